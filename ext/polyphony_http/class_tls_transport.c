/* class_tls_transport.c - HTTP.__fair_reads, for TLS.
 *
 * SSL_read goes on by itself after a record that is not data (SSL_MODE_AUTO_RETRY). A client that asks for new keys all
 * the time (KeyUpdate, TLS 1.3) keeps the thread in there as long as it likes, and everybody else waits. Without that
 * mode a call that does not wait says that it wants to read, and others have their turn. Ruby's openssl cannot set it,
 * so we call the function of the very library that it uses. Where that is not found, nothing is changed. */
#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>
#include "polyphony_http.h"

typedef long control(void *context, int command, long argument, void *pointer);

enum { CLEAR_MODE = 78, AUTO_RETRY = 4 };      /* SSL_CTRL_CLEAR_MODE, SSL_MODE_AUTO_RETRY: since OpenSSL 0.9.6 */

static control *control_of(const char *openssl_so) {
  void *library = dlopen(openssl_so, RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return NULL;
  control *found = (control *)dlsym(library, "SSL_CTX_ctrl");

  dlclose(library);                             /* one reference less; Ruby has it open */
  return found;
}

static bool context_p(VALUE object) {
  return RB_TYPE_P(object, T_DATA) && RTYPEDDATA_P(object) && RTYPEDDATA_DATA(object) &&
         !strcmp(RTYPEDDATA_TYPE(object)->wrap_struct_name, "OpenSSL/SSL/CTX");
}

/* Whether it could be done. */
static VALUE HTTP_fair_reads(VALUE self, VALUE context, VALUE openssl_so) {
  control *control = control_of(StringValueCStr(openssl_so));

  if (!control || !context_p(context)) return Qfalse;
  control(RTYPEDDATA_DATA(context), CLEAR_MODE, AUTO_RETRY, NULL);
  return Qtrue;
}

void Init_tls_transport(void) {
  rb_define_singleton_method(mHTTP, "__fair_reads", HTTP_fair_reads, 2);
}
