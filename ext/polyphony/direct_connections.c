/* direct_connections.c - accepting, connecting and closing, and passing descriptors. Layer 2. */
#include <errno.h>
#include <poll.h>
#include <unistd.h>
#include "direct_sockets.h"

/* ---- passing descriptors --------------------------------------------------------------------- */

/* There are no flags to pass. That a message is there is known; who shares the socket with another
 * process in blocking mode may find that the other one was faster. */
static VALUE UNIXSocket_recv_io(int argc, VALUE *argv, VALUE self) {
  char byte;

  while (direct_may_switch_p() && io_blocking_mode_p(rb_io_descriptor(self)) &&
         recv(rb_io_descriptor(self), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN)
    io_wait_ready(backend_base_current(), rb_io_descriptor(self), POLLIN, self);
  return rb_call_super(argc, argv);
}

static VALUE UNIXSocket_send_io(VALUE self, VALUE io) {
  if (direct_may_switch_p() && io_blocking_mode_p(rb_io_descriptor(self)))
    io_wait_ready(backend_base_current(), rb_io_descriptor(self), POLLOUT, self);
  return rb_call_super(1, &io);
}

/* ---- accepting ------------------------------------------------------------------------------- */

static VALUE wrap(VALUE klass, int fd) { return rb_funcall(klass, id_for_fd, 1, INT2NUM(fd)); }

static VALUE accept_as(VALUE self, VALUE klass) {
  if (direct_may_switch_p()) return io_accept(self, klass);
  int kept = io_take_accepted(rb_io_descriptor(self));
  return kept < 0 ? rb_call_super(0, NULL) : wrap(klass, kept);
}

static VALUE TCPServer_accept(VALUE self) { return accept_as(self, direct_constant("TCPSocket")); }

static VALUE UNIXServer_accept(VALUE self) { return accept_as(self, direct_constant("UNIXSocket")); }

static VALUE Server_sysaccept(VALUE self) {
  if (direct_may_switch_p()) return INT2NUM(io_accept_descriptor(self));
  int kept = io_take_accepted(rb_io_descriptor(self));
  return kept < 0 ? rb_call_super(0, NULL) : INT2NUM(kept);
}

static VALUE accept_nonblock_as(VALUE self, VALUE exception, VALUE klass) {
  int kept = io_take_accepted(rb_io_descriptor(self));

  return kept < 0 ? rb_call_super(1, &exception) : wrap(klass, kept);
}

static VALUE TCPServer_accept_nonblock(VALUE self, VALUE exception) {
  return accept_nonblock_as(self, exception, direct_constant("TCPSocket"));
}

static VALUE UNIXServer_accept_nonblock(VALUE self, VALUE exception) {
  return accept_nonblock_as(self, exception, direct_constant("UNIXSocket"));
}

/* Socket tells the address, too. Qundef if stock Ruby has to do it. */
static VALUE accept_with_address(VALUE self, bool wrapped, bool wait) {
  struct sockaddr_storage address;
  socklen_t length = sizeof(address);
  int fd;

  if (wait) fd = io_accept_from(self, &address, &length);
  else if ((fd = io_take_accepted(rb_io_descriptor(self))) < 0) return Qundef;
  else if (getpeername(fd, (struct sockaddr *)&address, &length) < 0) length = 0;
  VALUE socket = wrapped ? wrap(direct_constant("Socket"), fd) : INT2NUM(fd);
  return rb_assoc_new(socket, direct_addrinfo(fd, &address, length));
}

static VALUE Socket_accept(VALUE self) {
  VALUE connection = accept_with_address(self, true, direct_may_switch_p());

  return connection == Qundef ? rb_call_super(0, NULL) : connection;
}

static VALUE Socket_sysaccept(VALUE self) {
  VALUE connection = accept_with_address(self, false, direct_may_switch_p());

  return connection == Qundef ? rb_call_super(0, NULL) : connection;
}

static VALUE Socket_accept_nonblock(VALUE self, VALUE exception) {
  VALUE connection = accept_with_address(self, true, false);

  return connection == Qundef ? rb_call_super(1, &exception) : connection;
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* Where the queue of a UNIX listener is full, connect says EAGAIN, and stock Ruby takes the socket
 * for connected. */
static bool left_alone_p(int fd) {
  struct sockaddr_storage address;
  socklen_t length = sizeof(address);

  if (getsockname(fd, (struct sockaddr *)&address, &length) < 0) return false;
  if (address.ss_family != AF_UNIX) return false;
  length = sizeof(address);
  return getpeername(fd, (struct sockaddr *)&address, &length) < 0 && errno == ENOTCONN &&
         direct_socket_option(fd, SO_TYPE) != SOCK_DGRAM;
}

static VALUE packed(VALUE address) {
  ID to_sockaddr = rb_intern("to_sockaddr");

  if (rb_respond_to(address, to_sockaddr)) address = rb_funcall(address, to_sockaddr, 0);
  return rb_str_new_frozen(StringValue(address));
}

NORETURN(static void raise_refused(int64_t result, VALUE place));

static void raise_refused(int64_t result, VALUE place) {
  VALUE text = rb_sprintf("connect(2) for %"PRIsVALUE, place);

  error_raise_errno(result, StringValueCStr(text));
}

static void connect_directly(VALUE self, VALUE address) {
  VALUE target = packed(address);
  int64_t result = io_connect_packed(self, target);

  if (result >= 0) return;
  if (RB_TYPE_P(address, T_STRING))
    address = rb_funcall(direct_constant("Addrinfo"), id_new, 1, target);
  raise_refused(result, rb_funcall(address, rb_intern("inspect_sockaddr"), 0));
}

static VALUE Socket_connect(VALUE self, VALUE address) {
  if (!direct_may_switch_p()) return rb_call_super(1, &address);
  bool blocking = io_blocking_mode_p(rb_io_descriptor(self));
  if (!blocking) rb_call_super(1, &address);
  if (blocking || left_alone_p(rb_io_descriptor(self))) connect_directly(self, address);
  return INT2FIX(0);
}

struct opening {
  VALUE socket, path;
};

static VALUE connect_to_path(VALUE argument) {
  struct opening *opening = (struct opening *)argument;
  VALUE socket = direct_constant("Socket");
  VALUE target = rb_funcall(socket, rb_intern("pack_sockaddr_un"), 1, opening->path);
  int64_t result = io_connect_packed(opening->socket, target);

  if (result < 0) raise_refused(result, opening->path);
  return Qnil;
}

static VALUE UNIXSocket_initialize(int argc, VALUE *argv, VALUE self) {
  struct opening opening = { self, argc > 0 ? argv[0] : Qnil };
  int state = 0;
  VALUE result = rb_call_super(argc, argv);

  if (direct_may_switch_p() && left_alone_p(rb_io_descriptor(self)))
    rb_protect(connect_to_path, (VALUE)&opening, &state);
  if (!state) return result;
  VALUE error = rb_errinfo();           /* closing is a call, and since 3.4 one that forgets it */
  rb_io_close(self);
  if (RTEST(rb_obj_is_kind_of(error, rb_eException))) rb_set_errinfo(error);
  rb_jump_tag(state);
}

/* ---- closing --------------------------------------------------------------------------------- */

/* One that lingers stays in close(2) until all is sent or the time is over. As long as it has a
 * second descriptor it does not, and that one a worker can close. */
static int copy_if_lingering(VALUE self) {
  struct linger linger = { 0 };
  socklen_t length = sizeof(linger);
  int fd = rb_io_descriptor(self);

  if (getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length) < 0) return -1;
  return linger.l_onoff && linger.l_linger > 0 ? rb_cloexec_dup(fd) : -1;
}

static bool closed_p(VALUE io) { return RTEST(rb_funcall(io, id_closed_p, 0)); }

static VALUE call_stock(VALUE nothing) { return rb_call_super(0, NULL); }

static VALUE Basic_close(VALUE self) {
  int state, copy = !closed_p(self) && direct_may_switch_p() ? copy_if_lingering(self) : -1;

  if (copy < 0) return rb_call_super(0, NULL);
  VALUE result = rb_protect(call_stock, Qnil, &state);
  if (state || !closed_p(self)) close(copy);
  else io_close_on_worker(self, copy);
  if (state) rb_jump_tag(state);
  return result;
}

/* ---- methods -------------------------------------------------------------------------------- */

static void define_servers(void) {
  VALUE tcp = direct_module("TCPServer"), unix_server = direct_module("UNIXServer");

  rb_define_method(tcp, "accept", TCPServer_accept, 0);
  rb_define_method(tcp, "sysaccept", Server_sysaccept, 0);
  rb_define_private_method(tcp, "__accept_nonblock", TCPServer_accept_nonblock, 1);
  rb_define_method(unix_server, "accept", UNIXServer_accept, 0);
  rb_define_method(unix_server, "sysaccept", Server_sysaccept, 0);
  rb_define_private_method(unix_server, "__accept_nonblock", UNIXServer_accept_nonblock, 1);
}

void direct_connections_init(void) {
  VALUE basic = direct_module("Basic"), socket = direct_module("Socket");
  VALUE unix_socket = direct_module("UNIXSocket");

  define_servers();
  rb_define_method(basic, "close", Basic_close, 0);
  rb_define_method(basic, "close_read", Basic_close, 0);
  rb_define_method(basic, "close_write", Basic_close, 0);
  rb_define_method(socket, "accept", Socket_accept, 0);
  rb_define_method(socket, "sysaccept", Socket_sysaccept, 0);
  rb_define_private_method(socket, "__accept_nonblock", Socket_accept_nonblock, 1);
  rb_define_method(socket, "connect", Socket_connect, 1);
  rb_define_private_method(unix_socket, "initialize", UNIXSocket_initialize, -1);
  rb_define_method(unix_socket, "recv_io", UNIXSocket_recv_io, -1);
  rb_define_method(unix_socket, "send_io", UNIXSocket_send_io, 1);
}
