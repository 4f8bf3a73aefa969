/* io_resolve.c - see io_resolve.h */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include "io_resolve.h"
#include "offload.h"

/* ---- on a worker ----------------------------------------------------------------------------- */

static int64_t run(void *memory) {
  struct lookup *lookup = memory;

  lookup->run(lookup);
  return 0;
}

static void dispose(void *memory) {
  struct lookup *lookup = memory;

  if (lookup->answer) lookup->free_answer(lookup->answer);
}

/* -ECANCELED after an interjection, which may have left the worker alone with its memory. */
static int64_t try_on_worker(struct backend_base *backend, struct lookup *lookup, size_t size,
                             VALUE subject) {
  struct op *op = io_op_with_memory(backend, OP_CALL, -1, size);

  memcpy(op->memory, lookup, size);
  op->dispose = dispose;
  op->as.call.fn = run;
  op->as.call.arg = op->memory;
  op->as.call.orphanable = true;
  op->as.call.lane = OFFLOAD_LOOKUP;
  int64_t result = io_await(backend, op, subject);
  if (result >= 0) {
    memcpy(lookup, op->memory, size);
    ((struct lookup *)op->memory)->answer = NULL;
  }
  loop_release_op(&backend->loop, op);
  return result;
}

void lookup_on_worker(struct backend_base *backend, struct lookup *lookup, size_t size,
                      VALUE subject) {
  int64_t result;

  do result = try_on_worker(backend, lookup, size, subject);
  while (result == -ECANCELED);
  if (result < 0) error_raise_errno(result, "starting a thread to resolve a name");
}

bool lookup_copy(char *into, size_t size, VALUE string) {
  const char *bytes = StringValueCStr(string);
  size_t length = strlen(bytes);

  if (length >= size) return false;
  memcpy(into, bytes, length + 1);
  RB_GC_GUARD(string);          /* bytes points into it */
  return true;
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* Both fail without asking anybody. */
static VALUE fail_like_getaddrinfo(VALUE addrinfo) {
  VALUE address = rb_ary_new_from_args(4, rb_str_new_cstr("AF_INET"), INT2FIX(0), Qnil,
                                       rb_str_new_cstr("?"));
  return rb_class_new_instance(1, &address, addrinfo);
}

static VALUE fail_like_getnameinfo(VALUE addrinfo) {
  VALUE address = rb_str_new("\0\0", 2);

  return rb_funcall(rb_class_new_instance(1, &address, addrinfo), rb_intern("getnameinfo"), 0);
}

/* Which class it is, and how the message begins, changes from Ruby to Ruby: so we let Socket raise
 * one. nil where there is no Socket. */
static VALUE stock_error(VALUE (*fail)(VALUE)) {
  ID name = rb_intern("Addrinfo");
  VALUE before = rb_errinfo();
  int state = 0;

  if (!rb_const_defined(rb_cObject, name)) return Qnil;
  rb_protect(fail, rb_const_get(rb_cObject, name), &state);
  VALUE error = state ? rb_errinfo() : Qnil;
  rb_set_errinfo(before);
  return error;
}

static VALUE message_like(VALUE error, const char *function, int code) {
  VALUE text = rb_str_new_cstr(function);

  if (!NIL_P(error)) {
    VALUE message = rb_obj_as_string(error);
    char *end = memchr(RSTRING_PTR(message), ':', RSTRING_LEN(message));
    if (end) text = rb_str_new(RSTRING_PTR(message), end - RSTRING_PTR(message));
    RB_GC_GUARD(message);
  }
  return rb_str_catf(text, ": %s", gai_strerror(code));
}

NORETURN(static void raise_error(const struct lookup *lookup, const char *function,
                                 const char *details, VALUE (*fail)(VALUE)));

static void raise_error(const struct lookup *lookup, const char *function, const char *details,
                        VALUE (*fail)(VALUE)) {
  if (lookup->error == EAI_SYSTEM && lookup->system_error)
    error_raise_errno(-lookup->system_error, function);
  VALUE stock = stock_error(fail);
  VALUE klass = NIL_P(stock) ? rb_eRuntimeError : rb_obj_class(stock);
  VALUE message = rb_str_cat_cstr(message_like(stock, function, lookup->error), details);
  VALUE error = rb_exc_new_str(klass, message);
  ID code = rb_intern("error_code");    /* Socket::ResolutionError keeps it under this very name */
  if (rb_respond_to(error, code)) rb_ivar_set(error, code, INT2NUM(lookup->error));
  rb_exc_raise(error);
}

/* ---- names to addresses ---------------------------------------------------------------------- */

struct address_lookup {
  struct lookup lookup;
  struct addrinfo hints;
  bool has_host, has_service;
  bool details;                 /* the error is to name both */
  char host[NI_MAXHOST];
  char service[NI_MAXSERV];
};

static void free_addresses(void *answer) { freeaddrinfo(answer); }

static void find_addresses(struct lookup *lookup) {
  struct address_lookup *asked = (struct address_lookup *)lookup;
  struct addrinfo *found = NULL;

  lookup->error = getaddrinfo(asked->has_host ? asked->host : NULL,
                              asked->has_service ? asked->service : NULL, &asked->hints, &found);
  lookup->system_error = errno;
  lookup->answer = lookup->error ? NULL : found;
}

/* The names that Ruby itself gives to addresses; NULL for others. */
static const char *number_of(const char *name) {
  if (!name[0] || !strcmp(name, "<any>")) return "0.0.0.0";
  return strcmp(name, "<broadcast>") ? NULL : "255.255.255.255";
}

static void fill_host(struct address_lookup *asked, VALUE host) {
  if (NIL_P(host)) return;
  if (!lookup_copy(asked->host, sizeof(asked->host), host))
    rb_raise(rb_eArgError, "hostname too long (%ld)", RSTRING_LEN(rb_str_to_str(host)));
  const char *number = number_of(asked->host);
  if (number) {
    strcpy(asked->host, number);
    asked->hints.ai_flags |= AI_NUMERICHOST;
  }
  asked->has_host = true;
}

static void fill_service(struct address_lookup *asked, VALUE service) {
  if (NIL_P(service)) return;
  if (RB_INTEGER_TYPE_P(service)) {
    asked->hints.ai_flags |= AI_NUMERICSERV;
    service = rb_obj_as_string(service);
  }
  if (!lookup_copy(asked->service, sizeof(asked->service), service))
    rb_raise(rb_eArgError, "service name too long (%ld)", RSTRING_LEN(rb_str_to_str(service)));
  asked->has_service = true;
}

/* Numbers need no worker: nothing is asked for. Nor is a name that only numbers were asked for. */
static bool settled_by_numbers_p(struct address_lookup *asked) {
  int flags = asked->hints.ai_flags;

  asked->hints.ai_flags |= AI_NUMERICHOST | AI_NUMERICSERV;
  find_addresses(&asked->lookup);
  asked->hints.ai_flags = flags;
  if (asked->lookup.error != EAI_NONAME) return true;
  if (!asked->has_host) return !asked->has_service || flags & AI_NUMERICSERV;
  return flags & AI_NUMERICHOST && (!asked->has_service || flags & AI_NUMERICSERV);
}

static VALUE error_at_newline(void) {
  ID name = rb_intern("SocketError");
  VALUE klass = rb_const_defined(rb_cObject, name) ? rb_const_get(rb_cObject, name)
                                                   : rb_eRuntimeError;
  return rb_exc_new_cstr(klass, "newline at the end of hostname");
}

static void check(const struct address_lookup *asked) {
  if (!asked->lookup.error) return;
  size_t length = strlen(asked->host);
  if (length > 0 && asked->host[length - 1] == '\n') rb_exc_raise(error_at_newline());
  char details[NI_MAXHOST + NI_MAXSERV + 8] = "";
  if (asked->details)
    snprintf(details, sizeof(details), " (%s:%s)", asked->host, asked->service);
  raise_error(&asked->lookup, "getaddrinfo", details, fail_like_getaddrinfo);
}

static VALUE packed(const struct addrinfo *info) {
  return rb_str_new((const char *)info->ai_addr, info->ai_addrlen);
}

static VALUE row(const struct addrinfo *info) {
  return rb_ary_new_from_args(5, packed(info), INT2NUM(info->ai_family),
                              INT2NUM(info->ai_socktype), INT2NUM(info->ai_protocol),
                              info->ai_canonname ? rb_str_new_cstr(info->ai_canonname) : Qnil);
}

static VALUE numeric(const struct addrinfo *info) {
  char host[NI_MAXHOST];

  if (getnameinfo(info->ai_addr, info->ai_addrlen, host, sizeof(host), NULL, 0, NI_NUMERICHOST))
    return Qnil;
  return rb_str_new_cstr(host);
}

struct build {
  struct addrinfo *found;
  VALUE (*each)(const struct addrinfo *);
};

static VALUE build_list(VALUE argument) {
  struct build *build = (struct build *)argument;
  VALUE list = rb_ary_new();

  for (struct addrinfo *info = build->found; info; info = info->ai_next)
    rb_ary_push(list, build->each(info));
  return list;
}

static VALUE free_list(VALUE argument) {
  freeaddrinfo((struct addrinfo *)argument);
  return Qnil;
}

static VALUE find_and_list(struct address_lookup *asked, VALUE subject,
                           VALUE (*each)(const struct addrinfo *)) {
  struct backend_base *backend = backend_base_current();

  asked->lookup.run = find_addresses;
  asked->lookup.free_answer = free_addresses;
  io_snooze(backend);           /* before, so that nothing is in hand when it raises */
  if (!settled_by_numbers_p(asked))
    lookup_on_worker(backend, &asked->lookup, sizeof(*asked), subject);
  check(asked);
  struct build build = { asked->lookup.answer, each };
  return rb_ensure(build_list, (VALUE)&build, free_list, (VALUE)build.found);
}

VALUE io_getaddrinfo(VALUE host, VALUE service, int family, int socktype, int protocol, int flags) {
  struct address_lookup asked = {
    .hints = { .ai_family = family, .ai_socktype = socktype, .ai_protocol = protocol,
               .ai_flags = flags },
  };

  fill_host(&asked, host);
  fill_service(&asked, service);
  return find_and_list(&asked, NIL_P(host) ? service : host, row);
}

VALUE io_addresses(VALUE host, VALUE service, int family, int socktype) {
  struct address_lookup asked = {
    .hints = { .ai_family = family, .ai_socktype = socktype }, .details = true,
  };

  fill_host(&asked, host);
  fill_service(&asked, service);
  return find_and_list(&asked, host, packed);
}

/* One kind of socket, or each address would come three times. */
VALUE io_address_resolve(VALUE hostname) {
  struct address_lookup asked = { .hints = { .ai_socktype = SOCK_STREAM } };

  fill_host(&asked, hostname);
  VALUE addresses = find_and_list(&asked, hostname, numeric);
  return rb_funcall(addresses, rb_intern("compact"), 0);
}

/* ---- addresses to names ---------------------------------------------------------------------- */

struct name_lookup {
  struct lookup lookup;
  struct sockaddr_storage address;
  socklen_t length;
  int flags;
  char host[NI_MAXHOST];
  char service[NI_MAXHOST];     /* of a UNIX socket it is the path */
};

static void find_name(struct lookup *lookup) {
  struct name_lookup *asked = (struct name_lookup *)lookup;

  lookup->error = getnameinfo((struct sockaddr *)&asked->address, asked->length, asked->host,
                              sizeof(asked->host), asked->service, sizeof(asked->service),
                              asked->flags);
  lookup->system_error = errno;
}

static bool nothing_to_look_up_p(const struct name_lookup *asked) {
  int family = asked->address.ss_family, numbers = NI_NUMERICHOST | NI_NUMERICSERV;

  return (asked->flags & numbers) == numbers || (family != AF_INET && family != AF_INET6);
}

VALUE io_getnameinfo(VALUE address, int flags) {
  struct backend_base *backend = backend_base_current();
  struct name_lookup asked = { .lookup = { .run = find_name }, .flags = flags };

  StringValue(address);
  if ((size_t)RSTRING_LEN(address) > sizeof(asked.address))
    rb_raise(rb_eArgError, "not a socket address: it has %ld bytes", RSTRING_LEN(address));
  asked.length = (socklen_t)RSTRING_LEN(address);
  memcpy(&asked.address, RSTRING_PTR(address), asked.length);
  io_snooze(backend);
  if (nothing_to_look_up_p(&asked)) find_name(&asked.lookup);
  else lookup_on_worker(backend, &asked.lookup, sizeof(asked), address);
  if (asked.lookup.error) raise_error(&asked.lookup, "getnameinfo", "", fail_like_getnameinfo);
  return rb_ary_new_from_args(2, rb_str_new_cstr(asked.host), rb_str_new_cstr(asked.service));
}

/* ---- what stock Ruby looks up ---------------------------------------------------------------- */

enum form { NOT_A_NAME, NUMBER, NAME };

static bool number_p(const char *text) {
  return text[0] && strspn(text, "0123456789") == strlen(text);
}

static bool address_p(const char *text) {
  unsigned char bytes[16];

  return number_of(text) || inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1;
}

static enum form form_of(VALUE value, size_t size, bool (*numeric_p)(const char *)) {
  if (NIL_P(value) || RB_INTEGER_TYPE_P(value)) return NUMBER;
  if (!RB_TYPE_P(value, T_STRING) || (size_t)RSTRING_LEN(value) >= size) return NOT_A_NAME;
  if (memchr(RSTRING_PTR(value), '\0', RSTRING_LEN(value))) return NOT_A_NAME;
  char text[NI_MAXHOST];
  memcpy(text, RSTRING_PTR(value), RSTRING_LEN(value));
  text[RSTRING_LEN(value)] = '\0';
  return numeric_p(text) ? NUMBER : NAME;
}

bool io_lookup_needed_p(VALUE host, VALUE service) {
  enum form host_form = form_of(host, NI_MAXHOST, address_p);
  enum form service_form = form_of(service, NI_MAXSERV, number_p);

  if (host_form == NOT_A_NAME || service_form == NOT_A_NAME) return false;
  return host_form == NAME || service_form == NAME;
}
