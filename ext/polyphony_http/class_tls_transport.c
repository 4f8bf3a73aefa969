/* class_tls_transport.c - see tls_ruby.h, and HTTP.__fair_reads.
 *
 * SSL_read goes on by itself after a record that is not data (SSL_MODE_AUTO_RETRY). A client that asks for new keys all
 * the time (KeyUpdate, TLS 1.3) keeps the thread in there as long as it likes, and everybody else waits. Without that
 * mode a call that does not wait says that it wants to read, and others have their turn. Ruby's openssl cannot set it.
 *
 * Functions of OpenSSL are those of the very library that Ruby's openssl uses: its objects are of no use to another. All
 * have been there, as they are, since OpenSSL 1.1.0. Where they are not found, everything goes through Ruby's openssl. */
#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include "tls_ruby.h"

enum {
  CLEAR_MODE = 78, AUTO_RETRY = 4,             /* SSL_CTRL_CLEAR_MODE, SSL_MODE_AUTO_RETRY */
  ERROR_SSL = 1,                               /* SSL_ERROR_SSL; all since OpenSSL 0.9.6 */
};

static struct {
  long (*control)(void *context, int command, long argument, void *pointer);
  int (*read)(void *ssl, void *bytes, int count);
  int (*write)(void *ssl, const void *bytes, int count);
  int (*pending)(const void *ssl);
  int (*error_of)(const void *ssl, int result);
  unsigned long (*first_error)(void);
  const char *(*reason)(unsigned long error);
  void (*clear_errors)(void);
  bool all;                                    /* were found */
} openssl;

static void *find(void *library, const char *name) {
  void *found = dlsym(library, name);

  if (!found) openssl.all = false;
  return found;
}

/* __openssl(path of openssl.so) => whether all functions were found */
static VALUE HTTP_s_openssl(VALUE self, VALUE path) {
  void *library = dlopen(StringValueCStr(path), RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return Qfalse;

  openssl.all = true;
  openssl.control = (long (*)(void *, int, long, void *))find(library, "SSL_CTX_ctrl");
  openssl.read = (int (*)(void *, void *, int))find(library, "SSL_read");
  openssl.write = (int (*)(void *, const void *, int))find(library, "SSL_write");
  openssl.pending = (int (*)(const void *))find(library, "SSL_pending");
  openssl.error_of = (int (*)(const void *, int))find(library, "SSL_get_error");
  openssl.first_error = (unsigned long (*)(void))find(library, "ERR_peek_error");
  openssl.reason = (const char *(*)(unsigned long))find(library, "ERR_reason_error_string");
  openssl.clear_errors = (void (*)(void))find(library, "ERR_clear_error");
  dlclose(library);                             /* one reference less; Ruby has it open */
  return openssl.all ? Qtrue : Qfalse;
}

static void *object_of(VALUE object, const char *type) {
  if (!RB_TYPE_P(object, T_DATA) || !RTYPEDDATA_P(object)) return NULL;
  return strcmp(RTYPEDDATA_TYPE(object)->wrap_struct_name, type) ? NULL : RTYPEDDATA_DATA(object);
}

/* Whether it could be done. */
static VALUE HTTP_s_fair_reads(VALUE self, VALUE context) {
  void *pointer = object_of(context, "OpenSSL/SSL/CTX");

  if (!openssl.control || !pointer) return Qfalse;
  openssl.control(pointer, CLEAR_MODE, AUTO_RETRY, NULL);
  return Qtrue;
}

/* As Ruby's openssl says it, but with the first error, by which SSL_get_error goes, too. Since OpenSSL 3.2 others follow
 * that tell nothing, as that the alert about it could not be written. */
NORETURN(static void raise_error(void));

static void raise_error(void) {
  const char *reason = openssl.reason(openssl.first_error());

  openssl.clear_errors();
  rb_raise(rb_path2class("OpenSSL::SSL::SSLError"), "SSL_read: %s", reason ? reason : "unknown error");
}

ssize_t tls_read(VALUE io, char *bytes, size_t size, bool *more) {
  void *ssl = openssl.all ? object_of(io, "OpenSSL/SSL") : NULL;

  if (!ssl) return -1;
  openssl.clear_errors();                      /* SSL_get_error wants the queue empty, and so does Ruby's openssl */
  int count = openssl.read(ssl, bytes, (int)size);
  if (count <= 0 && openssl.error_of(ssl, count) == ERROR_SSL) raise_error();
  *more = openssl.pending(ssl) > 0;
  if (count > 0) return count;
  openssl.clear_errors();
  return -1;
}

ssize_t tls_write(VALUE io, const char *bytes, size_t size) {
  void *ssl = openssl.all && size <= INT_MAX ? object_of(io, "OpenSSL/SSL") : NULL;

  if (!ssl) return -1;
  openssl.clear_errors();
  int count = openssl.write(ssl, bytes, (int)size);
  if (count <= 0) openssl.clear_errors();
  return count > 0 ? count : -1;
}

void Init_tls_transport(void) {
  rb_define_singleton_method(mHTTP, "__openssl", HTTP_s_openssl, 1);
  rb_define_singleton_method(mHTTP, "__fair_reads", HTTP_s_fair_reads, 1);
}
