/* io_connect.c - connecting a socket; see io.h */
#include <errno.h>
#include <string.h>
#include <sys/un.h>
#include "io_resolve.h"

static int socket_option(int fd, int option, int otherwise) {
  int value = otherwise;
  socklen_t length = sizeof(value);

  return getsockopt(fd, SOL_SOCKET, option, &value, &length) < 0 ? otherwise : value;
}

static int family_of(int fd) {
#ifdef SO_DOMAIN
  return socket_option(fd, SO_DOMAIN, AF_UNSPEC);
#else
  struct sockaddr_storage own = { .ss_family = AF_UNSPEC };
  socklen_t length = sizeof(own);

  getsockname(fd, (struct sockaddr *)&own, &length);
  return own.ss_family;
#endif
}

static void check_port(VALUE port) {
  if (!RB_INTEGER_TYPE_P(port)) return;
  long number = NUM2LONG(port);
  if (number < 0 || number > 65535)
    rb_raise(rb_eArgError, "a port is between 0 and 65535, got %ld", number);
}

static VALUE resolve(int fd, VALUE host, VALUE port) {
  check_port(port);
  return io_addresses(host, RB_INTEGER_TYPE_P(port) ? port : rb_obj_as_string(port), family_of(fd),
                      socket_option(fd, SO_TYPE, SOCK_STREAM));
}

/* ---- addresses that need no resolving -------------------------------------------------------- */

static VALUE one_address(VALUE address) {
  long length = RSTRING_LEN(address);

  if (length > (long)sizeof(struct sockaddr_storage) || length < (long)sizeof(sa_family_t))
    rb_raise(rb_eArgError, "not a socket address: it has %ld bytes", length);
  return rb_ary_new_from_args(1, rb_str_new_frozen(address));
}

static VALUE unix_path(VALUE path) {
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  size_t length = RSTRING_LEN(path);

  if (length >= sizeof(address.sun_path))
    rb_raise(rb_eArgError, "a socket's path has at most %zu bytes, got %zu",
             sizeof(address.sun_path) - 1, length);
  memcpy(address.sun_path, RSTRING_PTR(path), length);
  bool abstract = length > 0 && address.sun_path[0] == '\0';
  size_t size = offsetof(struct sockaddr_un, sun_path) + length + !abstract;
  return one_address(rb_str_new((char *)&address, (long)size));
}

/* A packed address begins with its family, which a path hardly does. */
static bool packed_p(VALUE string, int family) {
  struct sockaddr head = { 0 };
  size_t length = RSTRING_LEN(string);

  if (length < sizeof(head.sa_family)) return false;
  memcpy(&head, RSTRING_PTR(string), length < sizeof(head) ? length : sizeof(head));
  return head.sa_family == family;
}

static VALUE packed_address(int fd, VALUE address) {
  ID to_sockaddr = rb_intern("to_sockaddr");

  if (rb_respond_to(address, to_sockaddr)) address = rb_funcall(address, to_sockaddr, 0);
  StringValue(address);
  int family = family_of(fd);
  if (family == AF_UNIX && !packed_p(address, family)) return unix_path(address);
  return one_address(address);
}

/* ---- connecting ------------------------------------------------------------------------------ */

static int64_t connect_to(struct backend_base *backend, VALUE socket, VALUE address) {
  int fd = fd_of(socket, FD_READ);
  struct op *op = io_op_with_memory(backend, OP_CONNECT, fd, sizeof(struct sockaddr_storage));

  memcpy(op->memory, RSTRING_PTR(address), RSTRING_LEN(address));
  op->as.connect.addr = op->memory;
  op->as.connect.len = (socklen_t)RSTRING_LEN(address);
  RB_GC_GUARD(address);
  return io_perform(backend, op, socket);
}

int64_t io_connect_packed(VALUE socket, VALUE packed) {
  return connect_to(backend_base_current(), socket, RARRAY_AREF(one_address(packed), 0));
}

NORETURN(static void raise_refused(int64_t result, VALUE host, VALUE port));

static void raise_refused(int64_t result, VALUE host, VALUE port) {
  VALUE text = rb_str_new_cstr("connect(2)");

  if (!NIL_P(port)) rb_str_catf(text, " for %"PRIsVALUE":%"PRIsVALUE, host, port);
  error_raise_errno(result, StringValueCStr(text));
}

VALUE io_connect(VALUE socket, VALUE host, VALUE port) {
  struct backend_base *backend = backend_base_current();
  int fd = fd_of(socket, FD_READ);
  VALUE addresses = NIL_P(port) ? packed_address(fd, host) : resolve(fd, host, port);
  int64_t result = -EADDRNOTAVAIL;

  for (long i = 0; i < RARRAY_LEN(addresses) && result < 0; i++)
    result = connect_to(backend, socket, RARRAY_AREF(addresses, i));
  RB_GC_GUARD(addresses);
  if (result < 0) raise_refused(result, host, port);
  return socket;
}
