/* direct_sockets.c - sending and receiving. Layer 2.
 *
 * Ruby makes its sockets non-blocking, finds EAGAIN and asks the scheduler. A socket that came from
 * elsewhere (for_fd, recv_io, standard input) may be in blocking mode, and there stock methods wait
 * in the kernel. So they are told not to wait with MSG_DONTWAIT, and find EAGAIN as well. What else
 * the mode means stays: all is sent, MSG_WAITALL gets all. */
#include <limits.h>
#include "direct_sockets.h"
#include "scheduler.h"
#include "stand_in.h"

static bool nil_at_end;         /* what the running Ruby's recv returns there; else "" */

bool direct_may_switch_p(void) {
  return NIL_P(rb_fiber_scheduler_current()) ? stand_in_wanted_p() : scheduler_ours_p();
}

int direct_socket_option(int fd, int option) {
  int value = 0;
  socklen_t length = sizeof(value);

  return getsockopt(fd, SOL_SOCKET, option, &value, &length) < 0 ? -1 : value;
}

VALUE direct_addrinfo(int fd, const void *address, socklen_t length) {
  sa_family_t family = AF_UNSPEC;

  if (length >= sizeof(struct sockaddr)) family = ((const struct sockaddr *)address)->sa_family;
  else if (length >= sizeof(family)) memcpy(&family, address, sizeof(family));
  return rb_funcall(direct_constant("Addrinfo"), id_new, 4, rb_str_new(address, length),
                    INT2NUM(family), INT2NUM(direct_socket_option(fd, SO_TYPE)), INT2FIX(0));
}

VALUE direct_module(const char *name) {
  return rb_define_module_under(rb_define_module_under(mPolyphony, "DirectSockets"), name);
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

/* ---- what a cancelled read had taken --------------------------------------------------------- */

static bool ahead_p(VALUE io, int flags) {
  return fd_ahead_count && !(flags & MSG_OOB) && fd_has_ahead(rb_io_descriptor(io)) &&
         !buffered_p(io);
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

/* Streams have no sender: what stock recvfrom says of them. */
static VALUE nobody(VALUE io) {
  if (RTEST(rb_obj_is_kind_of(io, direct_constant("IPSocket")))) return Qnil;
  if (RTEST(rb_obj_is_kind_of(io, direct_constant("UNIXSocket"))))
    return rb_assoc_new(rb_str_new_cstr("AF_UNIX"), rb_str_new(NULL, 0));
  return direct_addrinfo(rb_io_descriptor(io), "", 0);
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
  return rb_ary_new_from_args(3, text, direct_addrinfo(fd, "", 0), INT2NUM(flags));
}

static VALUE Basic_recvmsg_nonblock(int argc, VALUE *argv, VALUE self) {
  if (argc < 1 || !ahead_p(self, flags_of(argc, argv))) return rb_call_super(argc, argv);
  return message_ahead(argc, argv, self);
}

/* ---- receiving ------------------------------------------------------------------------------- */

static bool stream_p(VALUE io) {
  static VALUE tcp;

  if (!tcp) rb_gc_register_mark_object(tcp = direct_constant("TCPSocket"));
  return RTEST(rb_obj_is_kind_of(io, tcp)) ||
         direct_socket_option(rb_io_descriptor(io), SO_TYPE) == SOCK_STREAM;
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

static VALUE receive_directly(VALUE io, VALUE length, VALUE buffer, bool all) {
  VALUE text = io_read(io, buffer, length, all, 0, true);

  if (!NIL_P(text) || nil_at_end) return text;
  return NIL_P(buffer) ? rb_str_new(NULL, 0) : buffer;
}

static VALUE Basic_recv(int argc, VALUE *argv, VALUE self) {
  int flags = flags_of(argc, argv);

  if (argc >= 1 && ahead_p(self, flags)) return take_ahead(self, argv[0], flags, third(argc, argv));
  if (argc < 1 || !direct_may_switch_p()) return rb_call_super(argc, argv);
  if (!direct_p(argc, argv, self, flags)) return call_politely(argc, argv);
  return receive_directly(self, argv[0], third(argc, argv), flags & MSG_WAITALL);
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

  if (all && !NIL_P(message))           /* nil at the end, since 3.3 */
    complete(self, rb_ary_entry(message, 0), FIX2LONG(argv[0]));
  return message;
}

static VALUE From_recvfrom(int argc, VALUE *argv, VALUE self) {
  int flags = flags_of(argc, argv);

  if (argc >= 1 && ahead_p(self, flags))
    return rb_assoc_new(take_ahead(self, argv[0], flags, third(argc, argv)), nobody(self));
  if (argc < 1 || !direct_may_switch_p()) return rb_call_super(argc, argv);
  return receive_message(argc, argv, self);
}

static VALUE Basic_recvmsg(int argc, VALUE *argv, VALUE self) {
  if (argc >= 1 && ahead_p(self, flags_of(argc, argv))) return message_ahead(argc, argv, self);
  if (argc < 1 || !direct_may_switch_p()) return rb_call_super(argc, argv);
  return receive_message(argc, argv, self);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* With four arguments UDPSocket looks up a name. */
static VALUE Basic_send(int argc, VALUE *argv, VALUE self) {
  if (argc < 2 || argc > 4 || !direct_may_switch_p()) return rb_call_super(argc, argv);
  if (argc == 4) return call_politely(argc, argv);
  StringValue(argv[0]);
  return io_send_by_mode(self, argv[0], NUM2INT(argv[1]), argc > 2 ? argv[2] : Qnil);
}

/* A message goes out as a whole, except on a stream, where the rest of it follows. */
static VALUE Basic_sendmsg(int argc, VALUE *argv, VALUE self) {
  if (argc < 1 || !direct_may_switch_p()) return rb_call_super(argc, argv);
  VALUE text = argv[0] = rb_str_new_frozen(rb_str_to_str(argv[0]));
  long sent = NUM2LONG(call_politely(argc, argv)), left = RSTRING_LEN(text) - sent;

  if (left <= 0 || !io_blocking_mode_p(rb_io_descriptor(self))) return LONG2NUM(sent);
  VALUE rest = rb_str_subseq(text, sent, left);
  return LONG2NUM(sent + NUM2LONG(io_send_by_mode(self, rest, flags_of(argc, argv), Qnil)));
}

/* ---- methods -------------------------------------------------------------------------------- */

static VALUE DirectSockets_s_set_end(VALUE self, VALUE value) {
  nil_at_end = NIL_P(value);
  return value;
}

void direct_sockets_init(void) {
  VALUE module = rb_define_module_under(mPolyphony, "DirectSockets");
  VALUE basic = direct_module("Basic"), nonblock = direct_module("FromNonblock");

  rb_define_singleton_method(module, "__end_of_stream=", DirectSockets_s_set_end, 1);
  rb_define_method(basic, "recv", Basic_recv, -1);
  rb_define_method(basic, "send", Basic_send, -1);
  rb_define_private_method(basic, "__recvmsg", Basic_recvmsg, -1);
  rb_define_private_method(basic, "__sendmsg", Basic_sendmsg, -1);
  rb_define_private_method(basic, "__recv_nonblock", Basic_recv_nonblock, -1);
  rb_define_private_method(basic, "__read_nonblock", Basic_read_nonblock, -1);
  rb_define_private_method(basic, "__recvmsg_nonblock", Basic_recvmsg_nonblock, -1);
  rb_define_method(direct_module("From"), "recvfrom", From_recvfrom, -1);
  rb_define_private_method(nonblock, "__recvfrom_nonblock", From_recvfrom_nonblock, -1);
  rb_define_method(direct_module("UDPSocket"), "send", Basic_send, -1);
}
