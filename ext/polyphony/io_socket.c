/* io_socket.c - sending, and messages with an address; see io.h
 *
 * There is no kind of op for sendmsg and recvmsg: they are tried without waiting, and what is
 * waited for is only that the socket becomes ready. So a cancelled one has taken no datagram. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>
#include "clock.h"
#include "io.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

#define AT_END INT64_MIN                /* of a stream; no errno */
#define MOST_CONTROL 65536              /* bytes of control data; the kernel's own limit is lower */

/* ---- send ----------------------------------------------------------------------------------- */

/* What is sent, held on the stack of the caller; text, or small, keeps base alive. */
struct sending {
  VALUE io, text;
  const char *base;
  size_t length, sent;
  int fd, flags;                /* fd: asked for since others ran last */
  char small[OP_SMALL];
};

/* With MSG_WAITALL a long text is one op and one wake instead of many: the driver sends the rest
 * by itself. Where the kernel does not know that, it is short and we go on. */
static int64_t send_some(struct backend_base *backend, const struct sending *s, int64_t deadline) {
  struct op *op = io_op_writing(backend, OP_SEND, s->fd, s->text, s->base + s->sent, s->length - s->sent);

  op->as.rw.flags = s->flags & MSG_DONTWAIT ? s->flags : s->flags | MSG_WAITALL;
  int64_t sent = io_perform_until(backend, op, s->io, deadline);
  if (sent < 0 && !io_late_p(backend, sent, deadline)) error_raise_errno(sent, "send");
  return sent;
}

/* The descriptor first: asking for it flushes, which may switch. */
static void sending_begin(struct sending *s, VALUE io, VALUE buffer, int flags) {
  s->io = io;
  s->flags = flags;
  s->sent = 0;
  s->fd = fd_of(io, FD_WRITE);
  s->text = buffer_copy_small(buffer, s->small, &s->base, &s->length);
  if (!RB_TYPE_P(buffer, T_STRING)) s->fd = fd_of(io, FD_WRITE);        /* its to_s may have done anything */
}

/* Whether all went out before the deadline. */
static bool send_rest(struct sending *s, int64_t deadline) {
  struct backend_base *backend = backend_base_current();

  for (;;) {
    int64_t count = send_some(backend, s, deadline);
    if (count < 0) return false;
    s->sent += (size_t)count;
    if (s->sent >= s->length) return true;
    s->fd = fd_of(s->io, FD_WRITE);
  }
}

VALUE io_send(VALUE io, VALUE buffer, int flags) {
  struct sending sending;

  sending_begin(&sending, io, buffer, flags);
  send_rest(&sending, CLOCK_NEVER);
  RB_GC_GUARD(sending.text);    /* base points into it */
  return SIZET2NUM(sending.sent);
}

/* What goes at once needs no operation and no switch: a server that answers waits for the next question next. It saves
 * a tenth of what a small request costs. Errors are left to the operation, which knows how to tell them. */
VALUE io_send_within(VALUE io, VALUE buffer, int flags, int64_t period) {
  struct sending sending;
  ssize_t count = 0;

  if (RB_TYPE_P(buffer, T_STRING)) {
    count = send(fd_of(io, FD_WRITE), RSTRING_PTR(buffer), RSTRING_LEN(buffer), flags | MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count == RSTRING_LEN(buffer)) return SIZET2NUM(count);
  }
  sending_begin(&sending, io, buffer, flags);
  if (count > 0) sending.sent = (size_t)count;
  bool all = send_rest(&sending, io_deadline_in(backend_base_current(), period));
  RB_GC_GUARD(sending.text);    /* base points into it */
  return all ? SIZET2NUM(sending.sent) : Qfalse;
}

/* Byte by byte: strings of different encodings are no obstacle, as they are to Array#join. */
VALUE io_sendv(VALUE io, VALUE buffers, int flags) {
  VALUE joined = rb_str_buf_new(0);

  Check_Type(buffers, T_ARRAY);
  for (long i = 0; i < RARRAY_LEN(buffers); i++) {
    const char *base;
    size_t length;
    VALUE snapshot = buffer_snapshot(RARRAY_AREF(buffers, i), &base, &length);
    rb_str_cat(joined, base, (long)length);
    RB_GC_GUARD(snapshot);      /* base points into it */
  }
  return io_send(io, joined, flags);
}

/* ---- waiting for a message ------------------------------------------------------------------ */

static int64_t result_of(int64_t n) { return n < 0 ? -errno : n; }

static int readiness(int flags, int usual) {
#ifdef MSG_ERRQUEUE
  if (flags & MSG_ERRQUEUE) return 0;   /* POLLERR comes unasked */
#endif
  return flags & MSG_OOB ? POLLPRI : usual;
}

/* Raises unless it was a reason to try again. snapshot: what is lent meanwhile, or Qundef. */
static void wait_or_raise(struct backend_base *backend, VALUE io, int fd, int flags, int events,
                          int64_t result, const char *doing, VALUE snapshot) {
  if (result == -EINTR) return;
  bool would_block = result == -EAGAIN || result == -EWOULDBLOCK;
  if (!would_block || (flags & MSG_DONTWAIT)) error_raise_errno(result, doing);
  if (snapshot != Qundef) buffer_lend_snapshot(backend_base_fiber(backend), snapshot);
  io_wait_ready(backend, fd, readiness(flags, events), io);
}

/* ---- recvmsg -------------------------------------------------------------------------------- */

static VALUE ip_address(const struct sockaddr *address, socklen_t length) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  const char *family = address->sa_family == AF_INET ? "AF_INET" : "AF_INET6";

  if (getnameinfo(address, length, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) return Qnil;
  VALUE name = rb_str_new_cstr(host);
  return rb_ary_new_from_args(4, rb_str_new_cstr(family), INT2NUM(atoi(port)), name, name);
}

/* A path ends at its NUL, if it has one; an abstract name begins with one and ends with length. */
static VALUE unix_address(const struct sockaddr_un *address, socklen_t length) {
  size_t head = offsetof(struct sockaddr_un, sun_path);
  size_t room = length > head ? length - head : 0;
  bool abstract = room > 0 && address->sun_path[0] == '\0';

  if (!abstract) room = strnlen(address->sun_path, room);
  return rb_ary_new_from_args(2, rb_str_new_cstr("AF_UNIX"),
                              rb_str_new(address->sun_path, (long)room));
}

/* As IPSocket#addr gives it, without asking for names. */
static VALUE address_array(const struct sockaddr_storage *address, socklen_t length) {
  if (length < sizeof(sa_family_t)) return Qnil;
  switch (address->ss_family) {
    case AF_INET:
    case AF_INET6: return ip_address((const struct sockaddr *)address, length);
    case AF_UNIX:  return unix_address((const struct sockaddr_un *)address, length);
    default:       return Qnil;
  }
}

struct incoming {
  VALUE io, object;             /* where from and where to */
  long pos;
  size_t maxlen;
  int flags;
  struct buffer buffer;         /* what `object` is at the moment */
  struct msghdr message;
  struct sockaddr_storage address;
};

/* We have no control buffer on purpose: the kernel then closes descriptors that were sent to us,
 * and says MSG_CTRUNC among the flags. */
static int64_t receive(int fd, struct incoming *in, char *base, size_t length) {
  struct iovec iov = { .iov_base = base, .iov_len = length };

  in->message = (struct msghdr){ .msg_iov = &iov, .msg_iovlen = 1, .msg_name = &in->address,
                                 .msg_namelen = sizeof(in->address) };
  return result_of(recvmsg(fd, &in->message, in->flags | MSG_DONTWAIT));
}

/* What a cancelled read had taken comes first; whose it was is not known any more. */
static int64_t take_or_receive(int fd, struct incoming *in, char *base, size_t length) {
  size_t taken = in->flags & MSG_PEEK ? 0 : fd_take_ahead(fd, base, length);

  if (!taken) return receive(fd, in, base, length);
  in->message = (struct msghdr){ 0 };
  return (int64_t)taken;
}

/* Only a stream has an end; a datagram may be empty. */
static bool stream_p(int fd) {
  int type = SOCK_DGRAM;
  socklen_t length = sizeof(type);

  getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length);
  return type == SOCK_STREAM || type == SOCK_SEQPACKET;
}

/* Lent for the length of the call only: while it waits, the buffer is its owner's. */
static int64_t try_receive(int fd, struct incoming *in, struct fiber_state *fiber) {
  in->buffer = buffer_for_filling(in->object, in->pos);
  in->pos = in->buffer.pos;     /* of a negative one: what it meant when we came */
  in->object = in->buffer.object;
  size_t length = in->maxlen;
  char *base = buffer_lend(&in->buffer, fiber, &length);
  int64_t received = take_or_receive(fd, in, base, length);
  buffer_return(fiber);
  if (received > 0) buffer_advance(&in->buffer, (size_t)received);
  return received == 0 && length > 0 && stream_p(fd) ? AT_END : received;
}

VALUE io_recvmsg(VALUE io, VALUE object, size_t maxlen, long pos, int flags, size_t maxcontrol,
                 VALUE options) {
  struct backend_base *backend = backend_base_current();
  struct incoming in = { .io = io, .object = object, .pos = pos, .maxlen = maxlen, .flags = flags };
  int64_t received;

  (void)maxcontrol, (void)options;      /* see receive() */
  io_snooze(backend);           /* now, not afterwards: an exception must not cost the message */
  for (;;) {
    int fd = fd_of(io, FD_READ);
    received = try_receive(fd, &in, backend_base_fiber(backend));
    if (received >= 0) break;
    if (received == AT_END) return Qnil;
    wait_or_raise(backend, io, fd, flags, POLLIN, received, "recvmsg", Qundef);
  }
  VALUE address = address_array(&in.address, in.message.msg_namelen);
  return rb_ary_new_from_args(3, buffer_finish(&in.buffer, in.pos), address,
                              INT2NUM(in.message.msg_flags));
}

/* ---- sendmsg -------------------------------------------------------------------------------- */

static VALUE destination(VALUE address) {
  ID to_sockaddr = rb_intern("to_sockaddr");

  if (NIL_P(address)) return Qnil;
  if (rb_respond_to(address, to_sockaddr)) address = rb_funcall(address, to_sockaddr, 0);
  StringValue(address);
  return rb_str_new_frozen(address);
}

/* [level, type, data], or what answers to these, as Socket::AncillaryData does. */
static void control_parts(VALUE control, int *level, int *type, VALUE *data) {
  static const char *const names[] = { "level", "type", "data" };
  VALUE parts[3];

  for (int i = 0; i < 3; i++) {
    if (RB_TYPE_P(control, T_ARRAY)) parts[i] = rb_ary_entry(control, i);
    else parts[i] = rb_check_funcall(control, rb_intern(names[i]), 0, NULL);
  }
  if (!RB_INTEGER_TYPE_P(parts[0]) || !RB_INTEGER_TYPE_P(parts[1]) ||
      !RB_TYPE_P(parts[2], T_STRING))
    rb_raise(rb_eArgError, "control data is a Socket::AncillaryData or [level, type, data] with "
             "two Integers and a String, got %"PRIsVALUE, rb_inspect(control));
  *level = NUM2INT(parts[0]);
  *type = NUM2INT(parts[1]);
  *data = parts[2];
}

static void append_control(VALUE packed, VALUE control) {
  long start = RSTRING_LEN(packed);
  int level, type;
  VALUE data;

  control_parts(control, &level, &type, &data);
  size_t length = RSTRING_LEN(data), space = CMSG_SPACE(length);
  if (start + space > MOST_CONTROL) rb_raise(rb_eArgError, "more than 64 KiB of control data");
  rb_str_resize(packed, start + (long)space);
  struct cmsghdr *header = (struct cmsghdr *)(RSTRING_PTR(packed) + start);
  memset(header, 0, space);
  header->cmsg_level = level;
  header->cmsg_type = type;
  header->cmsg_len = CMSG_LEN(length);
  memcpy(CMSG_DATA(header), RSTRING_PTR(data), length);
}

static VALUE pack_controls(VALUE controls) {
  VALUE packed = rb_str_buf_new(0);

  if (NIL_P(controls)) return packed;
  Check_Type(controls, T_ARRAY);
  for (long i = 0; i < RARRAY_LEN(controls); i++) append_control(packed, RARRAY_AREF(controls, i));
  return packed;
}

/* Everything a message is made of, held on the stack of the caller. */
struct outgoing {
  VALUE snapshot, address, controls;
  const char *base;
  size_t length;
};

/* Control data goes along with the first byte only. */
static int64_t try_send(int fd, const struct outgoing *out, size_t sent, int flags) {
  struct iovec iov = { .iov_base = (char *)out->base + sent, .iov_len = out->length - sent };
  struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };

  if (!NIL_P(out->address)) {
    message.msg_name = RSTRING_PTR(out->address);
    message.msg_namelen = (socklen_t)RSTRING_LEN(out->address);
  }
  if (sent == 0 && RSTRING_LEN(out->controls) > 0) {
    message.msg_control = RSTRING_PTR(out->controls);
    message.msg_controllen = RSTRING_LEN(out->controls);
  }
  return result_of(sendmsg(fd, &message, flags | MSG_DONTWAIT | MSG_NOSIGNAL));
}

VALUE io_sendmsg(VALUE io, VALUE buffer, int flags, VALUE address, VALUE controls) {
  struct backend_base *backend = backend_base_current();
  struct outgoing out = { .address = destination(address), .controls = pack_controls(controls) };
  size_t sent = 0;
  bool done = false;

  fd_of(io, FD_WRITE);          /* flushes; that and snoozing come before we look at the buffer */
  io_snooze(backend);
  out.snapshot = buffer_snapshot(buffer, &out.base, &out.length);
  while (!done) {
    int fd = fd_of(io, FD_WRITE);
    int64_t result = try_send(fd, &out, sent, flags);
    if (result < 0) wait_or_raise(backend, io, fd, flags, POLLOUT, result, "sendmsg", out.snapshot);
    else sent += (size_t)result, done = sent >= out.length;
  }
  RB_GC_GUARD(out.snapshot);    /* out.base points into it, try_send into the other two */
  RB_GC_GUARD(out.address);
  RB_GC_GUARD(out.controls);
  return SIZET2NUM(sent);
}

/* ---- as the stock methods do ----------------------------------------------------------------- */

bool io_blocking_mode_p(int fd) { return !(fcntl(fd, F_GETFL) & O_NONBLOCK); }

static int64_t try_to_send(int fd, VALUE text, size_t sent, int flags, VALUE address) {
  const char *base = RSTRING_PTR(text) + sent;
  size_t length = RSTRING_LEN(text) - sent;

  if (NIL_P(address)) return result_of(send(fd, base, length, flags));
  return result_of(sendto(fd, base, length, flags, (struct sockaddr *)RSTRING_PTR(address),
                          (socklen_t)RSTRING_LEN(address)));
}

enum { FUTILE_POLLS = 3 };

/* A datagram for a full mailbox of somebody whom we are not connected with: we always are ready. */
static void wait_for_room(struct backend_base *backend, VALUE io, int fd, unsigned futile) {
  if (futile < FUTILE_POLLS) io_wait_ready(backend, fd, POLLOUT, io);
  else io_sleep(NSEC_PER_SEC / 1000);
}

VALUE io_send_by_mode(VALUE io, VALUE text, int flags, VALUE address) {
  struct backend_base *backend = backend_base_current();
  size_t sent = 0;

  address = destination(address);
  io_give_way();
  for (unsigned futile = 0;; text = rb_str_new_frozen(text)) {
    int fd = rb_io_descriptor(io);
    int64_t result = try_to_send(fd, text, sent, flags | MSG_DONTWAIT, address);
    if (result == -EAGAIN || result == -EWOULDBLOCK) {
      wait_for_room(backend, io, fd, futile++);
    } else if (result < 0 && result != -EINTR) {
      if (sent > 0) return SIZET2NUM(sent);
      error_raise_errno(result, NIL_P(address) ? "send(2)" : "sendto(2)");
    } else if (result >= 0) {
      sent += (size_t)result;
      futile = 0;
      if (sent >= (size_t)RSTRING_LEN(text) || !io_blocking_mode_p(fd)) return SIZET2NUM(sent);
    }
  }
}

/* ---- closing --------------------------------------------------------------------------------- */

static int64_t close_it(void *argument) { return result_of(close(*(int *)argument)); }

static struct op *closing_op(struct backend_base *backend, int fd) {
  struct op *op = io_op_with_memory(backend, OP_CALL, -1, sizeof(int));

  *(int *)op->memory = fd;
  op->as.call.fn = close_it;
  op->as.call.arg = op->memory;
  op->as.call.orphanable = true;
  return op;
}

struct closing {
  struct backend_base *backend;
  struct op *op;
  VALUE io;
};

static VALUE await_closing(VALUE argument) {
  struct closing *closing = (struct closing *)argument;
  struct op_shot none;

  io_await_shot(closing->backend, closing->op, &none, closing->io);
  return Qnil;
}

static void close_unawaited(struct backend_base *backend, int fd) {
  struct op *op = closing_op(backend, fd);

  op->flags |= OP_DETACHED;
  loop_submit(&backend->loop, op);
}

/* Cancelled before a worker had it: there is another try, for which nobody waits. Afterwards: the
 * worker goes on with it. */
static int give_up(struct closing *closing, int fd) {
  VALUE error = rb_errinfo();
  int killed = io_withdraw(closing->backend, closing->op);
  bool begun = closing->op->result != -ECANCELED || !closing->op->memory;

  if (!begun) close_unawaited(closing->backend, fd);
  if (!killed && RTEST(rb_obj_is_kind_of(error, rb_eException))) rb_set_errinfo(error);
  return killed;
}

void io_close_on_worker(VALUE io, int fd) {
  struct backend_base *backend = backend_base_current();
  struct closing closing = { backend, closing_op(backend, fd), io };
  int state;

  rb_protect(await_closing, (VALUE)&closing, &state);
  int killed = state ? give_up(&closing, fd) : 0;
  bool no_thread = closing.op->result == -EAGAIN;
  loop_release_op(&backend->loop, closing.op);
  if (no_thread) close(fd);
  if (state) rb_jump_tag(killed ? killed : state);
}
