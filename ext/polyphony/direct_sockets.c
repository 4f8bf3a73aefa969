/* direct_sockets.c - stock methods of sockets that would stop the whole thread, or for which there is a
 * shorter way than through the scheduler. Layer 2.
 *
 * Ruby makes its sockets non-blocking, finds EAGAIN and asks the scheduler. A socket that came from
 * elsewhere (for_fd, recv_io, standard input) may be in blocking mode, and there stock methods wait in the
 * kernel. So they are told not to wait with MSG_DONTWAIT, and find EAGAIN as well. What else the mode
 * means stays: all is sent, MSG_WAITALL gets all. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "errors.h"
#include "io.h"
#include "scheduler.h"
#include "stand_in.h"

static VALUE end_of_stream;     /* what the running Ruby's recv returns there: "" or nil */

/* Whether others can run while we wait. */
static bool may_switch_p(void) {
  return NIL_P(rb_fiber_scheduler_current()) ? stand_in_wanted_p() : scheduler_ours_p();
}

static VALUE constant(const char *name) { return rb_const_get(rb_cObject, rb_intern(name)); }

static int socket_option(int fd, int option) {
  int value = 0;
  socklen_t length = sizeof(value);

  return getsockopt(fd, SOL_SOCKET, option, &value, &length) < 0 ? -1 : value;
}

static bool buffered_p(VALUE io) {
  rb_io_t *file;

  GetOpenFile(io, file);
  return rb_io_read_pending(file);
}

static int flags_of(int argc, const VALUE *argv) {
  return argc > 1 && !NIL_P(argv[1]) ? NUM2INT(argv[1]) : 0;
}

enum { MOST_ARGUMENTS = 5 };

/* The second argument is flags in all of them. */
static VALUE call_politely(int argc, const VALUE *argv) {
  VALUE told[MOST_ARGUMENTS];

  if (argc < 1 || argc > MOST_ARGUMENTS) return rb_call_super(argc, argv);
  io_give_way();
  MEMCPY(told, argv, VALUE, argc);
  told[1] = INT2NUM(flags_of(argc, argv) | MSG_DONTWAIT);
  return rb_call_super(argc < 2 ? 2 : argc, told);
}

/* ---- what a cancelled read had taken ---------------------------------------------------------- */

static bool ahead_p(VALUE io, int flags) {
  return fd_ahead_count && !(flags & MSG_OOB) && fd_has_ahead(rb_io_descriptor(io)) && !buffered_p(io);
}

/* Length may be nil: as recvmsg has it. */
static VALUE take_ahead(VALUE io, VALUE length, int flags, VALUE buffer) {
  int fd = rb_io_descriptor(io);
  long room = NIL_P(length) ? 4096 : NUM2LONG(length);
  VALUE text = NIL_P(buffer) ? rb_str_new(NULL, 0) : rb_str_to_str(buffer);

  if (room < 0) rb_raise(rb_eArgError, "negative length %ld given", room);
  rb_str_modify_expand(text, RSTRING_LEN(text) < room ? room - RSTRING_LEN(text) : 0);
  size_t taken = fd_take_ahead(fd, RSTRING_PTR(text), (size_t)room);
  rb_str_set_len(text, (long)taken);
  if (flags & MSG_PEEK) fd_put_back(fd, RSTRING_PTR(text), taken);
  return text;
}

static VALUE addrinfo(int fd, const void *address, socklen_t length) {
  struct sockaddr head = { .sa_family = AF_UNSPEC };

  if (length >= sizeof(head.sa_family)) memcpy(&head.sa_family, &((struct sockaddr *)address)->sa_family, sizeof(head.sa_family));
  return rb_funcall(constant("Addrinfo"), id_new, 4, rb_str_new(address, length),
                    INT2NUM(head.sa_family), INT2NUM(socket_option(fd, SO_TYPE)), INT2FIX(0));
}

/* Streams have no sender: what stock recvfrom says of them. */
static VALUE nobody(VALUE io) {
  if (RTEST(rb_obj_is_kind_of(io, constant("IPSocket")))) return Qnil;
  if (RTEST(rb_obj_is_kind_of(io, constant("UNIXSocket"))))
    return rb_assoc_new(rb_str_new_cstr("AF_UNIX"), rb_str_new(NULL, 0));
  return addrinfo(rb_io_descriptor(io), "", 0);
}

static VALUE third(int argc, const VALUE *argv) { return argc > 2 ? argv[2] : Qnil; }

static VALUE Basic_recv_nonblock(int argc, VALUE *argv, VALUE self) {
  int flags = flags_of(argc, argv);

  if (argc < 1 || !ahead_p(self, flags)) return rb_call_super(argc, argv);
  return take_ahead(self, argv[0], flags, third(argc, argv));
}

static VALUE From_recvfrom_nonblock(int argc, VALUE *argv, VALUE self) {
  int flags = flags_of(argc, argv);

  if (argc < 1 || !ahead_p(self, flags)) return rb_call_super(argc, argv);
  return rb_assoc_new(take_ahead(self, argv[0], flags, third(argc, argv)), nobody(self));
}

static VALUE Basic_read_nonblock(int argc, VALUE *argv, VALUE self) {
  if (argc < 1 || !ahead_p(self, 0) || argv[0] == INT2FIX(0)) return rb_call_super(argc, argv);
  return take_ahead(self, argv[0], 0, argc > 1 ? argv[1] : Qnil);
}

static VALUE message_ahead(int argc, const VALUE *argv, VALUE self) {
  int fd = rb_io_descriptor(self), flags = 0;

#ifdef MSG_CMSG_CLOEXEC
  flags = MSG_CMSG_CLOEXEC;     /* which stock recvmsg sets, and Linux returns */
#endif
  VALUE text = take_ahead(self, argv[0], flags_of(argc, argv), Qnil);
  return rb_ary_new_from_args(3, text, addrinfo(fd, "", 0), INT2NUM(flags));
}

static VALUE Basic_recvmsg_nonblock(int argc, VALUE *argv, VALUE self) {
  if (argc < 1 || !ahead_p(self, flags_of(argc, argv))) return rb_call_super(argc, argv);
  return message_ahead(argc, argv, self);
}

/* ---- receiving -------------------------------------------------------------------------------- */

static bool stream_p(VALUE io) {
  static VALUE tcp;

  if (!tcp) rb_gc_register_mark_object(tcp = constant("TCPSocket"));
  return RTEST(rb_obj_is_kind_of(io, tcp)) || socket_option(rb_io_descriptor(io), SO_TYPE) == SOCK_STREAM;
}

/* In non-blocking mode MSG_WAITALL means nothing, to the kernel and to stock Ruby. */
static bool all_wanted_p(VALUE io, int flags) {
  return flags & MSG_WAITALL && !(flags & (MSG_PEEK | MSG_OOB)) &&
         io_blocking_mode_p(rb_io_descriptor(io)) && stream_p(io);
}

/* Bytes of a stream can be given back when they come too late, a datagram cannot. */
static bool direct_p(int argc, const VALUE *argv, VALUE io, int flags) {
  return argc <= 3 && FIXNUM_P(argv[0]) && FIX2LONG(argv[0]) > 0 && FIX2LONG(argv[0]) <= INT_MAX &&
         (NIL_P(third(argc, argv)) || RB_TYPE_P(third(argc, argv), T_STRING)) &&
         !buffered_p(io) && (flags == 0 || all_wanted_p(io, flags)) && stream_p(io);
}

static VALUE Basic_recv(int argc, VALUE *argv, VALUE self) {
  int flags = flags_of(argc, argv);

  if (argc >= 1 && ahead_p(self, flags)) return take_ahead(self, argv[0], flags, third(argc, argv));
  if (!may_switch_p() || argc < 1) return rb_call_super(argc, argv);
  if (!direct_p(argc, argv, self, flags)) return call_politely(argc, argv);
  VALUE text = io_read(self, third(argc, argv), argv[0], flags & MSG_WAITALL, 0, true);
  return !NIL_P(text) ? text : NIL_P(end_of_stream) ? Qnil : NIL_P(third(argc, argv)) ? rb_str_new(NULL, 0) : argv[2];
}

struct rest {
  VALUE io, text;
  long length;
};

static VALUE read_rest(VALUE argument) {
  struct rest *rest = (struct rest *)argument;

  return io_read(rest->io, Qnil, LONG2NUM(rest->length), true, 0, true);
}

/* What MSG_WAITALL asks for beyond what was there. */
static void complete(VALUE io, VALUE text, long wanted) {
  struct rest rest = { io, text, wanted - RSTRING_LEN(text) };
  int state;

  if (RSTRING_LEN(text) == 0 || rest.length <= 0) return;
  VALUE more = rb_protect(read_rest, (VALUE)&rest, &state);
  if (state) fd_put_back(rb_io_descriptor(io), RSTRING_PTR(text), RSTRING_LEN(text));
  if (state) rb_jump_tag(state);
  if (!NIL_P(more)) rb_str_append(text, more);
}

static VALUE receive_message(int argc, const VALUE *argv, VALUE self) {
  int flags = flags_of(argc, argv);
  bool all = FIXNUM_P(argv[0]) && all_wanted_p(self, flags);
  VALUE message = call_politely(argc, argv);

  if (all) complete(self, rb_ary_entry(message, 0), FIX2LONG(argv[0]));
  return message;
}

static VALUE From_recvfrom(int argc, VALUE *argv, VALUE self) {
  int flags = flags_of(argc, argv);

  if (argc >= 1 && ahead_p(self, flags))
    return rb_assoc_new(take_ahead(self, argv[0], flags, third(argc, argv)), nobody(self));
  if (argc < 1 || !may_switch_p()) return rb_call_super(argc, argv);
  return receive_message(argc, argv, self);
}

static VALUE Basic_recvmsg(int argc, VALUE *argv, VALUE self) {
  if (argc >= 1 && ahead_p(self, flags_of(argc, argv))) return message_ahead(argc, argv, self);
  if (argc < 1 || !may_switch_p()) return rb_call_super(argc, argv);
  return receive_message(argc, argv, self);
}

/* ---- sending ---------------------------------------------------------------------------------- */

/* With four arguments UDPSocket looks up a name. */
static VALUE Basic_send(int argc, VALUE *argv, VALUE self) {
  if (argc < 2 || argc > 4 || !may_switch_p()) return rb_call_super(argc, argv);
  if (argc == 4) return call_politely(argc, argv);
  StringValue(argv[0]);
  return io_send_by_mode(self, argv[0], NUM2INT(argv[1]), argc > 2 ? argv[2] : Qnil);
}

/* A message goes out as a whole, except on a stream, where the rest of it follows. */
static VALUE Basic_sendmsg(int argc, VALUE *argv, VALUE self) {
  if (argc < 1 || !may_switch_p()) return rb_call_super(argc, argv);
  VALUE sent = call_politely(argc, argv), text = argv[0];
  int fd = rb_io_descriptor(self);

  if (NUM2LONG(sent) >= RSTRING_LEN(text) || !io_blocking_mode_p(fd)) return sent;
  VALUE rest = rb_str_subseq(text, NUM2LONG(sent), RSTRING_LEN(text) - NUM2LONG(sent));
  return rb_funcall(sent, '+', 1, io_send_by_mode(self, rest, flags_of(argc, argv), Qnil));
}

/* ---- passing descriptors ---------------------------------------------------------------------- */

/* There are no flags to pass. That a message is there is known; who shares the socket with another
 * process in blocking mode may find that the other one was faster. */
static VALUE UNIXSocket_recv_io(int argc, VALUE *argv, VALUE self) {
  char byte;

  while (may_switch_p() && io_blocking_mode_p(rb_io_descriptor(self)) &&
         recv(rb_io_descriptor(self), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN)
    io_wait_ready(backend_base_current(), rb_io_descriptor(self), POLLIN, self);
  return rb_call_super(argc, argv);
}

static VALUE UNIXSocket_send_io(VALUE self, VALUE io) {
  if (may_switch_p() && io_blocking_mode_p(rb_io_descriptor(self)))
    io_wait_ready(backend_base_current(), rb_io_descriptor(self), POLLOUT, self);
  return rb_call_super(1, &io);
}

/* ---- accepting -------------------------------------------------------------------------------- */

static VALUE wrap(const char *klass, int fd) {
  return rb_funcall(constant(klass), id_for_fd, 1, INT2NUM(fd));
}

static VALUE accept_as(VALUE self, const char *klass) {
  if (may_switch_p()) return io_accept(self, constant(klass));
  int kept = io_take_accepted(rb_io_descriptor(self));
  return kept < 0 ? rb_call_super(0, NULL) : wrap(klass, kept);
}

static VALUE TCPServer_accept(VALUE self) { return accept_as(self, "TCPSocket"); }

static VALUE UNIXServer_accept(VALUE self) { return accept_as(self, "UNIXSocket"); }

static VALUE Server_sysaccept(VALUE self) {
  if (may_switch_p()) return INT2NUM(io_accept_descriptor(self));
  int kept = io_take_accepted(rb_io_descriptor(self));
  return kept < 0 ? rb_call_super(0, NULL) : INT2NUM(kept);
}

static VALUE accept_nonblock_as(VALUE self, VALUE exception, const char *klass) {
  int kept = io_take_accepted(rb_io_descriptor(self));

  return kept < 0 ? rb_call_super(1, &exception) : wrap(klass, kept);
}

static VALUE TCPServer_accept_nonblock(VALUE self, VALUE exception) {
  return accept_nonblock_as(self, exception, "TCPSocket");
}

static VALUE UNIXServer_accept_nonblock(VALUE self, VALUE exception) {
  return accept_nonblock_as(self, exception, "UNIXSocket");
}

/* Socket tells the address, too. */
static VALUE with_address(VALUE self, bool wrapped, bool kept) {
  struct sockaddr_storage address;
  socklen_t length = sizeof(address);
  int fd;

  if (!kept) fd = io_accept_from(self, &address, &length);
  else if ((fd = io_take_accepted(rb_io_descriptor(self))) >= 0 &&
           getpeername(fd, (struct sockaddr *)&address, &length) < 0) length = 0;
  VALUE socket = wrapped ? wrap("Socket", fd) : INT2NUM(fd);
  return rb_assoc_new(socket, addrinfo(fd, &address, length));
}

static VALUE Socket_accept(VALUE self) {
  bool kept = !may_switch_p() && io_has_accepted(rb_io_descriptor(self));

  return kept || may_switch_p() ? with_address(self, true, kept) : rb_call_super(0, NULL);
}

static VALUE Socket_sysaccept(VALUE self) {
  bool kept = !may_switch_p() && io_has_accepted(rb_io_descriptor(self));

  return kept || may_switch_p() ? with_address(self, false, kept) : rb_call_super(0, NULL);
}

static VALUE Socket_accept_nonblock(VALUE self, VALUE exception) {
  if (!io_has_accepted(rb_io_descriptor(self))) return rb_call_super(1, &exception);
  return with_address(self, true, true);
}

/* ---- connecting ------------------------------------------------------------------------------- */

/* Where the queue of a UNIX listener is full, connect says EAGAIN, and stock Ruby takes the socket for
 * connected. */
static bool left_alone_p(int fd) {
  struct sockaddr_storage address;
  socklen_t length = sizeof(address);

  if (getsockname(fd, (struct sockaddr *)&address, &length) < 0 || address.ss_family != AF_UNIX) return false;
  length = sizeof(address);
  return getpeername(fd, (struct sockaddr *)&address, &length) < 0 && errno == ENOTCONN &&
         socket_option(fd, SO_TYPE) != SOCK_DGRAM;
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
  if (RB_TYPE_P(address, T_STRING)) address = rb_funcall(constant("Addrinfo"), id_new, 1, target);
  raise_refused(result, rb_funcall(address, rb_intern("inspect_sockaddr"), 0));
}

static VALUE Socket_connect(VALUE self, VALUE address) {
  if (!may_switch_p()) return rb_call_super(1, &address);
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
  VALUE target = rb_funcall(constant("Socket"), rb_intern("pack_sockaddr_un"), 1, opening->path);
  int64_t result = io_connect_packed(opening->socket, target);

  if (result < 0) raise_refused(result, opening->path);
  return Qnil;
}

static VALUE UNIXSocket_initialize(int argc, VALUE *argv, VALUE self) {
  struct opening opening = { self, argc > 0 ? argv[0] : Qnil };
  int state = 0;
  VALUE result = rb_call_super(argc, argv);

  if (may_switch_p() && left_alone_p(rb_io_descriptor(self)))
    rb_protect(connect_to_path, (VALUE)&opening, &state);
  if (state) rb_io_close(self);
  if (state) rb_jump_tag(state);
  return result;
}

/* ---- closing ---------------------------------------------------------------------------------- */

/* One that lingers stays in close(2) until all is sent or the time is over. As long as it has a second
 * descriptor it does not, and that one a worker can close. */
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
  int state, copy = !closed_p(self) && may_switch_p() ? copy_if_lingering(self) : -1;

  if (copy < 0) return rb_call_super(0, NULL);
  VALUE result = rb_protect(call_stock, Qnil, &state);
  if (state || !closed_p(self)) close(copy);
  else io_close_on_worker(self, copy);
  if (state) rb_jump_tag(state);
  return result;
}

/* ---- methods ---------------------------------------------------------------------------------- */

static VALUE direct_sockets_s_set_end(VALUE self, VALUE value) { return end_of_stream = NIL_P(value) ? Qnil : Qtrue; }

static VALUE define(const char *name) {
  return rb_define_module_under(rb_const_get(mPolyphony, rb_intern("DirectSockets")), name);
}

static void define_basic(void) {
  VALUE basic = define("Basic"), from = define("From"), from_nonblock = define("FromNonblock");

  rb_define_method(basic, "recv", Basic_recv, -1);
  rb_define_method(basic, "send", Basic_send, -1);
  rb_define_method(basic, "close", Basic_close, 0);
  rb_define_method(basic, "close_read", Basic_close, 0);
  rb_define_method(basic, "close_write", Basic_close, 0);
  rb_define_private_method(basic, "__recvmsg", Basic_recvmsg, -1);
  rb_define_private_method(basic, "__sendmsg", Basic_sendmsg, -1);
  rb_define_private_method(basic, "__recv_nonblock", Basic_recv_nonblock, -1);
  rb_define_private_method(basic, "__read_nonblock", Basic_read_nonblock, -1);
  rb_define_private_method(basic, "__recvmsg_nonblock", Basic_recvmsg_nonblock, -1);
  rb_define_method(from, "recvfrom", From_recvfrom, -1);
  rb_define_private_method(from_nonblock, "__recvfrom_nonblock", From_recvfrom_nonblock, -1);
  rb_define_method(define("UDPSocket"), "send", Basic_send, -1);
}

static void define_connecting(void) {
  VALUE tcp = define("TCPServer"), unix_server = define("UNIXServer"), socket = define("Socket");
  VALUE unix_socket = define("UNIXSocket");

  rb_define_method(tcp, "accept", TCPServer_accept, 0);
  rb_define_method(tcp, "sysaccept", Server_sysaccept, 0);
  rb_define_private_method(tcp, "__accept_nonblock", TCPServer_accept_nonblock, 1);
  rb_define_method(unix_server, "accept", UNIXServer_accept, 0);
  rb_define_method(unix_server, "sysaccept", Server_sysaccept, 0);
  rb_define_private_method(unix_server, "__accept_nonblock", UNIXServer_accept_nonblock, 1);
  rb_define_method(socket, "accept", Socket_accept, 0);
  rb_define_method(socket, "sysaccept", Socket_sysaccept, 0);
  rb_define_private_method(socket, "__accept_nonblock", Socket_accept_nonblock, 1);
  rb_define_method(socket, "connect", Socket_connect, 1);
  rb_define_private_method(unix_socket, "initialize", UNIXSocket_initialize, -1);
  rb_define_method(unix_socket, "recv_io", UNIXSocket_recv_io, -1);
  rb_define_method(unix_socket, "send_io", UNIXSocket_send_io, 1);
}

void direct_sockets_init(void) {
  VALUE module = rb_define_module_under(mPolyphony, "DirectSockets");

  end_of_stream = Qtrue;
  rb_define_singleton_method(module, "__end_of_stream=", direct_sockets_s_set_end, 1);
  define_basic();
  define_connecting();
}
