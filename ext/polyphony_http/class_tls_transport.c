/* class_tls_transport.c - see tls_ruby.h, HTTP.__fair_reads and HTTP.__tls_input.
 *
 * SSL_read goes on by itself after a record that is not data (SSL_MODE_AUTO_RETRY). A client that asks for new keys all
 * the time (KeyUpdate, TLS 1.3) keeps the thread in there as long as it likes, and everybody else waits. Without that
 * mode a call that does not wait says that it wants to read, and others have their turn. Ruby's openssl cannot set it.
 *
 * Functions of OpenSSL are those of the very library that Ruby's openssl uses: its objects are of no use to another. All
 * have been there, as they are, since OpenSSL 1.1.0. Where they are not found, everything goes through Ruby's openssl. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "tls_ruby.h"

enum {
  CLEAR_MODE = 78, AUTO_RETRY = 4,             /* SSL_CTRL_CLEAR_MODE, SSL_MODE_AUTO_RETRY */
  ERROR_SSL = 1,                               /* SSL_ERROR_SSL; all since OpenSSL 0.9.6 */
  SOURCE_SINK = 0x0400,                        /* BIO_TYPE_SOURCE_SINK */
  FLAGS_READ = 0x01, FLAGS_RETRY = 0x08,       /* BIO_FLAGS_READ, BIO_FLAGS_SHOULD_RETRY */
  AT_END = 2, FLUSH = 11,                      /* BIO_CTRL_EOF, BIO_CTRL_FLUSH */
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
  void *(*source)(const void *ssl);
  void (*set_source)(void *ssl, void *bio);
  void *(*new_bio)(const void *method);
  void (*set_data)(void *bio, void *data);
  void *(*data_of)(void *bio);
  void (*set_ready)(void *bio, int ready);
  void (*set_flags)(void *bio, int flags);
  void (*clear_flags)(void *bio, int flags);
  int (*type_of)(const void *bio);
  bool all;                                    /* were found */
} openssl;

static struct {
  void *method;                                /* BIO_METHOD; NULL: it cannot be made */
  int type;
} input_bio;

static void *object_of(VALUE object, const char *type) {
  if (!RB_TYPE_P(object, T_DATA) || !RTYPEDDATA_P(object)) return NULL;
  return strcmp(RTYPEDDATA_TYPE(object)->wrap_struct_name, type) ? NULL : RTYPEDDATA_DATA(object);
}

/* ---- where OpenSSL's bytes come from ---------------------------------------------------------
 *
 * OpenSSL asks for the five bytes of a record's head and then for the rest: two system calls for a request that needs one,
 * and nobody knows whether the kernel has more. So its source is ours. It receives as much as there is, and keeps what was not asked
 * for yet. Less than a whole `received` has emptied the socket, as epoll(7) says. */

struct input {
  int fd;                                      /* the socket's; not ours to close */
  bool emptied;                                /* by the last receive */
  bool ended;
  char *rest;                                  /* malloc; NULL: there is none */
  size_t at, length;
};

static char received[16384 + 1024];            /* a whole record, and more; under the GVL nobody else is in here */

/* Whether there was memory for it. */
static bool input_keep(struct input *input, const char *bytes, size_t length) {
  if (!length) return true;
  if (!(input->rest = malloc(length))) return false;
  memcpy(input->rest, bytes, length);
  input->at = 0;
  input->length = length;
  return true;
}

static int input_receive(struct input *input, void *bio, char *bytes, int size) {
  ssize_t count;

  do count = recv(input->fd, received, sizeof(received), MSG_DONTWAIT);
  while (count < 0 && errno == EINTR);
  input->emptied = count < (ssize_t)sizeof(received);
  input->ended = count == 0;
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) openssl.set_flags(bio, FLAGS_READ | FLAGS_RETRY);
  if (count <= 0) return (int)count;
  size_t taken = count < size ? (size_t)count : (size_t)size;
  memcpy(bytes, received, taken);
  if (input_keep(input, received + taken, (size_t)count - taken)) return (int)taken;
  errno = ENOMEM;
  return -1;
}

static int input_read(void *bio, char *bytes, int size) {
  struct input *input = openssl.data_of(bio);

  if (!bytes || size <= 0) return 0;
  openssl.clear_flags(bio, FLAGS_READ | FLAGS_RETRY);
  if (!input->rest) return input_receive(input, bio, bytes, size);
  size_t left = input->length - input->at, taken = left < (size_t)size ? left : (size_t)size;
  memcpy(bytes, input->rest + input->at, taken);
  input->at += taken;
  if (input->at == input->length) {
    free(input->rest);
    input->rest = NULL;
  }
  return (int)taken;
}

static long input_control(void *bio, int command, long argument, void *pointer) {
  struct input *input = openssl.data_of(bio);

  if (command == AT_END) return !input || (input->ended && !input->rest);
  return command == FLUSH;
}

static int input_destroy(void *bio) {
  struct input *input = openssl.data_of(bio);

  if (input) free(input->rest);
  free(input);
  openssl.set_data(bio, NULL);
  return 1;
}

static struct input *input_of(void *ssl) {
  void *bio = input_bio.method ? openssl.source(ssl) : NULL;
  return bio && openssl.type_of(bio) == input_bio.type ? openssl.data_of(bio) : NULL;
}

/* __tls_input(io, descriptor): the SSLSocket reads from there from here on, with fewer calls. After its handshake, which may
 * set another source. Whether it could be done; if not, all is as it was. */
static VALUE HTTP_s_tls_input(VALUE self, VALUE io, VALUE descriptor) {
  void *ssl = openssl.all && input_bio.method ? object_of(io, "OpenSSL/SSL") : NULL;
  struct input *input = ssl && !input_of(ssl) ? calloc(1, sizeof(*input)) : NULL;
  void *bio = input ? openssl.new_bio(input_bio.method) : NULL;

  if (!bio) {
    free(input);
    return Qfalse;
  }
  input->fd = NUM2INT(descriptor);
  openssl.set_data(bio, input);
  openssl.set_ready(bio, 1);
  openssl.set_source(ssl, bio);
  return Qtrue;
}

/* __tls_left?(io): whether something can be read without the kernel, be it a record or a part of one. */
static VALUE HTTP_s_tls_left_p(VALUE self, VALUE io) {
  void *ssl = openssl.all ? object_of(io, "OpenSSL/SSL") : NULL;
  struct input *input = ssl ? input_of(ssl) : NULL;

  return ssl && (openssl.pending(ssl) > 0 || (input && input->rest)) ? Qtrue : Qfalse;
}

/* ---- functions of OpenSSL ---------------------------------------------------------------------- */

static void *find(void *library, const char *name) {
  void *found = dlsym(library, name);

  if (!found) openssl.all = false;
  return found;
}

/* NULL if a function is missing. */
static void *make_method(void *library) {
  void *(*create)(int type, const char *name) = (void *(*)(int, const char *))find(library, "BIO_meth_new");
  int (*new_index)(void) = (int (*)(void))find(library, "BIO_get_new_index");
  int (*set_read)(void *, int (*)(void *, char *, int)) =
    (int (*)(void *, int (*)(void *, char *, int)))find(library, "BIO_meth_set_read");
  int (*set_control)(void *, long (*)(void *, int, long, void *)) =
    (int (*)(void *, long (*)(void *, int, long, void *)))find(library, "BIO_meth_set_ctrl");
  int (*set_destroy)(void *, int (*)(void *)) = (int (*)(void *, int (*)(void *)))find(library, "BIO_meth_set_destroy");

  if (!openssl.all) return NULL;
  input_bio.type = new_index() | SOURCE_SINK;
  void *method = create(input_bio.type, "polyphony");
  if (!method) return NULL;
  set_read(method, input_read);
  set_control(method, input_control);
  set_destroy(method, input_destroy);
  return method;
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
  openssl.source = (void *(*)(const void *))find(library, "SSL_get_rbio");
  openssl.set_source = (void (*)(void *, void *))find(library, "SSL_set0_rbio");
  openssl.new_bio = (void *(*)(const void *))find(library, "BIO_new");
  openssl.set_data = (void (*)(void *, void *))find(library, "BIO_set_data");
  openssl.data_of = (void *(*)(void *))find(library, "BIO_get_data");
  openssl.set_ready = (void (*)(void *, int))find(library, "BIO_set_init");
  openssl.set_flags = (void (*)(void *, int))find(library, "BIO_set_flags");
  openssl.clear_flags = (void (*)(void *, int))find(library, "BIO_clear_flags");
  openssl.type_of = (int (*)(const void *))find(library, "BIO_method_type");
  if (!input_bio.method) input_bio.method = make_method(library);
  dlclose(library);                             /* one reference less; Ruby has it open */
  return openssl.all ? Qtrue : Qfalse;
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

ssize_t tls_read(VALUE io, char *bytes, size_t size, bool *more, bool *emptied) {
  void *ssl = openssl.all ? object_of(io, "OpenSSL/SSL") : NULL;

  if (!ssl) return -1;
  openssl.clear_errors();                      /* SSL_get_error wants the queue empty, and so does Ruby's openssl */
  int count = openssl.read(ssl, bytes, (int)size);
  if (count <= 0 && openssl.error_of(ssl, count) == ERROR_SSL) raise_error();
  struct input *input = input_of(ssl);
  *more = openssl.pending(ssl) > 0 || (input && input->rest);
  *emptied = input && input->emptied;
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
  rb_define_singleton_method(mHTTP, "__tls_input", HTTP_s_tls_input, 2);
  rb_define_singleton_method(mHTTP, "__tls_left?", HTTP_s_tls_left_p, 1);
}
