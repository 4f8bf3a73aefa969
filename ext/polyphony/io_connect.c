/* io_connect.c - connecting a socket, with names resolved on a worker thread; see io.h */
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/un.h>
#include "io.h"

enum { MOST_ADDRESSES = 16 };

struct address {
  socklen_t length;
  struct sockaddr_storage storage;
};

/* One lookup, flat: it is the memory of its op, and outlives both op and fiber if nobody waits for
 * the worker any more. */
struct lookup {
  int family, type, flags;
  int error;                            /* EAI_..., or 0 */
  int system_error;                     /* errno behind EAI_SYSTEM */
  unsigned count;
  struct address addresses[MOST_ADDRESSES];
  char port[32];
  char host[];
};

static void keep_addresses(struct lookup *lookup, const struct addrinfo *info) {
  for (; info && lookup->count < MOST_ADDRESSES; info = info->ai_next) {
    struct address *address = &lookup->addresses[lookup->count];
    if (info->ai_addrlen > sizeof(address->storage)) continue;
    address->length = info->ai_addrlen;
    memcpy(&address->storage, info->ai_addr, info->ai_addrlen);
    lookup->count++;
  }
}

static int64_t look_up(void *argument) {
  struct lookup *lookup = argument;
  struct addrinfo *info = NULL, hints = { .ai_family = lookup->family, .ai_flags = lookup->flags,
                                          .ai_socktype = lookup->type };

  lookup->error = getaddrinfo(lookup->host, lookup->port, &hints, &info);
  lookup->system_error = errno;
  if (lookup->error) return 0;
  keep_addresses(lookup, info);
  freeaddrinfo(info);
  return 0;
}

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

/* Whoever gave us a Socket has loaded the library that defines it. */
static VALUE socket_error(void) {
  ID name = rb_intern("SocketError");

  return rb_const_defined(rb_cObject, name) ? rb_const_get(rb_cObject, name) : rb_eRuntimeError;
}

static void check(const struct lookup *lookup) {
  if (lookup->error == EAI_SYSTEM)
    error_raise_errno(-lookup->system_error, "getaddrinfo");
  if (lookup->error)
    rb_raise(socket_error(), "getaddrinfo: %s (%s:%s)", gai_strerror(lookup->error), lookup->host,
             lookup->port);
}

static VALUE copy_addresses(const struct lookup *lookup) {
  check(lookup);
  return rb_str_new((const char *)lookup->addresses, lookup->count * sizeof(struct address));
}

static void fill_port(struct lookup *lookup, VALUE port) {
  if (RB_INTEGER_TYPE_P(port)) {
    long number = NUM2LONG(port);
    if (number < 0 || number > 65535)
      rb_raise(rb_eArgError, "a port is between 0 and 65535, got %ld", number);
  }
  VALUE text = rb_obj_as_string(port);
  const char *string = StringValueCStr(text);
  if (strlen(string) >= sizeof(lookup->port))
    rb_raise(rb_eArgError, "a port is a number or a service's name, got %"PRIsVALUE,
             rb_inspect(port));
  strcpy(lookup->port, string);
}

/* In the memory of a String, so that nothing is lost when something raises. */
static VALUE new_lookup(int fd, VALUE host, VALUE port) {
  const char *name = StringValueCStr(host);
  size_t size = sizeof(struct lookup) + strlen(name) + 1;
  VALUE memory = rb_str_new(NULL, (long)size);
  struct lookup *lookup = (struct lookup *)RSTRING_PTR(memory);

  memset(lookup, 0, size);
  lookup->family = family_of(fd);
  lookup->type = socket_option(fd, SO_TYPE, SOCK_STREAM);
  strcpy(lookup->host, name);
  fill_port(lookup, port);
  RB_GC_GUARD(host);            /* name points into it */
  return memory;
}

/* Numbers need no worker: nothing is asked for. */
static bool numeric_p(struct lookup *lookup) {
  lookup->flags = AI_NUMERICHOST | AI_NUMERICSERV;
  look_up(lookup);
  lookup->flags = 0;
  return lookup->error == 0;
}

/* -ECANCELED after an interjection, which may have left the worker alone with its memory. */
static int64_t try_on_worker(struct backend_base *backend, VALUE memory, VALUE subject) {
  size_t size = RSTRING_LEN(memory);
  struct op *op = io_op_with_memory(backend, OP_CALL, -1, size);

  memcpy(op->memory, RSTRING_PTR(memory), size);
  op->as.call.fn = look_up;
  op->as.call.arg = op->memory;
  op->as.call.orphanable = true;
  int64_t result = io_await(backend, op, subject);
  if (result >= 0) memcpy(RSTRING_PTR(memory), op->memory, size);
  loop_release_op(&backend->loop, op);
  return result;
}

static void look_up_on_worker(struct backend_base *backend, VALUE memory, VALUE subject) {
  int64_t result;

  do result = try_on_worker(backend, memory, subject);
  while (result == -ECANCELED);
  if (result < 0) error_raise_errno(result, "starting a thread to resolve a name");
}

static VALUE resolve(struct backend_base *backend, int fd, VALUE host, VALUE port, VALUE subject) {
  VALUE memory = new_lookup(fd, host, port);

  if (!numeric_p((struct lookup *)RSTRING_PTR(memory)))
    look_up_on_worker(backend, memory, subject);
  VALUE addresses = copy_addresses((struct lookup *)RSTRING_PTR(memory));
  RB_GC_GUARD(memory);
  return addresses;
}

/* ---- addresses that need no resolving -------------------------------------------------------- */

static VALUE one_address(const void *bytes, size_t length) {
  struct address address = { .length = (socklen_t)length };

  if (length > sizeof(address.storage) || length < sizeof(sa_family_t))
    rb_raise(rb_eArgError, "not a socket address: it has %zu bytes", length);
  memcpy(&address.storage, bytes, length);
  return rb_str_new((const char *)&address, sizeof(address));
}

static VALUE unix_path(VALUE path) {
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  size_t length = RSTRING_LEN(path);

  if (length >= sizeof(address.sun_path))
    rb_raise(rb_eArgError, "a socket's path has at most %zu bytes, got %zu",
             sizeof(address.sun_path) - 1, length);
  memcpy(address.sun_path, RSTRING_PTR(path), length);
  bool abstract = length > 0 && address.sun_path[0] == '\0';
  return one_address(&address, offsetof(struct sockaddr_un, sun_path) + length + !abstract);
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
  return one_address(RSTRING_PTR(address), RSTRING_LEN(address));
}

/* ---- connecting ------------------------------------------------------------------------------ */

static int64_t connect_to(struct backend_base *backend, VALUE socket,
                          const struct address *address) {
  int fd = fd_of(socket, FD_READ);
  struct op *op = io_op_with_memory(backend, OP_CONNECT, fd, sizeof(address->storage));

  memcpy(op->memory, &address->storage, address->length);
  op->as.connect.addr = op->memory;
  op->as.connect.len = address->length;
  return io_perform(backend, op, socket);
}

int64_t io_connect_packed(VALUE socket, VALUE packed) {
  VALUE address = one_address(RSTRING_PTR(packed), RSTRING_LEN(packed));
  int64_t result = connect_to(backend_base_current(), socket, (struct address *)RSTRING_PTR(address));

  RB_GC_GUARD(address);
  return result;
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
  VALUE addresses = NIL_P(port) ? packed_address(fd, host)
                                : resolve(backend, fd, host, port, socket);
  long count = RSTRING_LEN(addresses) / (long)sizeof(struct address);
  int64_t result = -EADDRNOTAVAIL;

  for (long i = 0; i < count && result < 0; i++)
    result = connect_to(backend, socket, (struct address *)RSTRING_PTR(addresses) + i);
  RB_GC_GUARD(addresses);       /* connect_to looks into it */
  if (result < 0) raise_refused(result, host, port);
  return socket;
}
