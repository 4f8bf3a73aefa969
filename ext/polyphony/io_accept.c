/* io_accept.c - accepting connections, one at a time or for ever; see io.h
 *
 * Where the driver can, a loop has one multishot op that stays armed while the block runs. That
 * has a price: the kernel may accept before anybody asks. So
 *   - a loop uses it only while nobody else accepts from the same listener in this thread. Whoever
 *     comes second ends it and takes what it had got; then all accept one by one, and a fiber
 *     that is busy with its socket holds no other back.
 *   - an op that nobody waits for, because the block is busy, ends with its first socket, and one
 *     that has got too many for a loop that does not keep up (see backend_base_collect).
 *   - sockets that a loop had got but did not come to yield are kept, and are first in line for
 *     the next who accepts from that listener. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>
#include "accept.h"
#include "clock.h"
#include "io.h"

#define SOCKETS_PER_TURN 64
#define FIRST_PAUSE (NSEC_PER_SEC / 100)
#define LONGEST_PAUSE NSEC_PER_SEC
#define WARN_PERIOD (10 * NSEC_PER_SEC)

/* A number may be closed and given to another file; device and inode tell, as in fd.c. */
struct listener {
  int fd;
  dev_t device;
  ino_t inode;
};

struct accept_loop {
  struct list link;             /* in `loops` while it has an op */
  struct backend_base *backend;
  struct fiber_state *fiber;
  VALUE server, klass;
  unsigned batch;               /* so many that are there are taken in one turn; at least 1 */
  struct op *op;                /* OP_ACCEPT_MULTI, submitted; NULL when there is none */
  struct listener listener;     /* of the op */
  bool single;                  /* the kernel refused multishot */
  bool waiting;                 /* for a shot; else the block runs */
  int64_t pause;                /* ns, while descriptors are short; else 0 */
};

/* ---- sockets accepted and not handed out ----------------------------------------------------- */

struct kept {
  struct list link;
  struct listener listener;
  int socket;
};

static struct list kept_sockets = { &kept_sockets, &kept_sockets };

static void drop(struct kept *kept) {
  list_remove(&kept->link);
  free(kept);
}

static void discard(struct kept *kept) {
  close(kept->socket);
  drop(kept);
}

static bool listener_of(int fd, struct listener *listener) {
  struct stat st;

  if (fstat(fd, &st) < 0) return false;
  *listener = (struct listener){ .fd = fd, .device = st.st_dev, .inode = st.st_ino };
  return true;
}

static bool same_p(const struct listener *a, const struct listener *b) {
  return a->device == b->device && a->inode == b->inode;
}

static bool closed_p(const struct listener *listener) {
  struct listener now;

  return !listener_of(listener->fd, &now) || !same_p(listener, &now);
}

/* Listeners closed behind our back. */
static void purge(void) {
  for (struct list *node = kept_sockets.next, *next; node != &kept_sockets; node = next) {
    struct kept *kept = list_entry(node, struct kept, link);
    next = node->next;
    if (closed_p(&kept->listener)) discard(kept);
  }
}

static bool accepting_p(const struct op *op) {
  return op->kind == OP_ACCEPT || op->kind == OP_ACCEPT_MULTI;
}

/* Whoever waits for a connection meanwhile has to look again: their op settles with -ECANCELED, or
 * with another socket. So does who waits for the listener to become readable. */
static void tell_waiting(int fd) {
  struct backend_base *backend = backend_base_current();
  struct op *op = loop_ops_on(&backend->loop, fd);

  while (op && !(accepting_p(op) && op->state == OP_IN_FLIGHT)) op = op->fd_next;
  if (op) loop_cancel(&backend->loop, op);
  io_read_again(backend, fd);
}

static void keep(const struct listener *listener, int socket) {
  struct kept *kept = closed_p(listener) ? NULL : fd_malloc(sizeof(*kept));

  if (!kept) {
    close(socket);
    return;
  }
  *kept = (struct kept){ .listener = *listener, .socket = socket };
  list_push(&kept_sockets, &kept->link);
  tell_waiting(listener->fd);
}

static struct kept *find_kept(int fd) {
  struct listener listener;

  if (list_empty_p(&kept_sockets) || !listener_of(fd, &listener)) return NULL;
  purge();
  list_each(node, &kept_sockets) {
    struct kept *kept = list_entry(node, struct kept, link);
    if (same_p(&kept->listener, &listener)) return kept;
  }
  return NULL;
}

static int take_kept(int fd) {
  struct kept *kept = find_kept(fd);

  if (!kept) return -1;
  int socket = kept->socket;
  drop(kept);
  return socket;
}

bool io_has_accepted(int fd) { return find_kept(fd) != NULL; }

int io_take_accepted(int fd) { return take_kept(fd); }

void io_keep_accepted(int fd, int socket) {
  struct listener listener;

  if (listener_of(fd, &listener)) keep(&listener, socket);
  else close(socket);
}

/* The kernel wakes one accept for each connection. If that one is cancelled before it got it, the
 * others sleep on. */
void io_accept_again(int fd) {
  struct pollfd look = { .fd = fd, .events = POLLIN };

  if (loop_ops_on(&backend_base_current()->loop, fd) && poll(&look, 1, 0) == 1) tell_waiting(fd);
}

void io_forget_accepted(int fd) {
  struct kept *kept;

  while ((kept = find_kept(fd))) discard(kept);
}

/* ---- loops with an op ------------------------------------------------------------------------ */

static struct list loops = { &loops, &loops };
static VALUE loops_root = Qfalse;       /* marks the fibers in `loops`: their stacks are in it */

static void loops_mark(void *pointer) {
  (void)pointer;
  list_each(node, &loops) rb_gc_mark(list_entry(node, struct accept_loop, link)->fiber->self);
}

/* Not WB_PROTECTED: the list is in no Ruby object, so it is marked at every GC. */
static const rb_data_type_t loops_type = {
  .wrap_struct_name = "Polyphony::AcceptLoops",
  .function = { .dmark = loops_mark },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

/* A child has other ops, and leaves the parent's sockets to the parent. */
static void after_fork(void) {
  while (!list_empty_p(&loops)) {
    struct accept_loop *loop = list_entry(loops.next, struct accept_loop, link);
    list_remove(&loop->link);
    loop->op = NULL;
  }
  while (!list_empty_p(&kept_sockets))
    discard(list_entry(kept_sockets.next, struct kept, link));
}

static void prepare(void) {
  if (loops_root) return;
  loops_root = TypedData_Wrap_Struct(0, &loops_type, &loops);
  rb_gc_register_mark_object(loops_root);
  pthread_atfork(NULL, NULL, after_fork);
}

static void keep_shots(struct accept_loop *loop) {
  struct op_shot shot;

  while (loop_shift_shot(loop->op, &shot))
    if (shot.result >= 0) keep(&loop->listener, shot.result);
}

/* The op is settled, or never was in flight. What is not kept is closed along with it. */
static void release(struct accept_loop *loop, bool keep) {
  if (!loop->op) return;
  list_remove(&loop->link);
  if (keep) keep_shots(loop);
  loop_release_op(&loop->backend->loop, loop->op);
  loop->op = NULL;
}

static void arm(struct accept_loop *loop, int fd) {
  struct op *op = io_op(loop->backend, OP_ACCEPT_MULTI, fd);

  op->as.accept.flags = ACCEPT_AS_STOCK;
  loop->op = op;
  listener_of(fd, &loop->listener);
  list_push(&loops, &loop->link);
}

/* Others' loops on this listener give up their op, and what it has got goes to whoever is first.
 * Their fibers find it settled when they come to look. Nearly always it settles here.
 * True if there were such. */
static bool recall(struct backend_base *backend, int fd, const struct accept_loop *except) {
  bool found = false;

  for (struct list *node = loops.next, *next; node != &loops; node = next) {
    struct accept_loop *loop = list_entry(node, struct accept_loop, link);
    next = node->next;
    if (!loop->backend->open) list_remove(node);       /* its thread has ended */
    if (loop == except || loop->backend != backend || loop->op->fd != fd) continue;
    loop_cancel(&backend->loop, loop->op);
    if (!op_settled_p(loop->op)) loop_poll(&backend->loop, 0);
    keep_shots(loop);
    found = true;
  }
  if (found) backend_base_collect(backend);
  return found;
}

/* Who only waits for the listener to become readable will accept, too. */
static bool rival_p(const struct op *op) {
  return accepting_p(op) || (op->kind == OP_POLL && op->as.poll.events & POLLIN);
}

static bool alone_p(struct accept_loop *loop, int fd) {
  struct op *op = loop_ops_on(&loop->backend->loop, fd);

  for (; op; op = op->fd_next)
    if (op != loop->op && rival_p(op)) return false;
  return true;
}

/* ---- one socket ------------------------------------------------------------------------------ */

struct wrap {
  VALUE klass;
  int fd;
};

/* for_fd of a socket class does what its accept does (sync, binary); a plain IO is told. */
static VALUE wrap_body(VALUE argument) {
  struct wrap *wrap = (struct wrap *)argument;
  VALUE socket = rb_funcall(wrap->klass, id_for_fd, 1, INT2FIX(wrap->fd));

  rb_funcall(socket, id_sync, 1, Qtrue);
  return socket;
}

/* What page_cache.c would ask first. */
static void note_no_file(int fd) {
  struct fd_slot *slot = loop_fd_slot(&backend_base_current()->loop, fd);

  if (slot) slot->hints |= FD_ASKED;
}

static VALUE wrap_socket(VALUE klass, int fd) {
  struct wrap wrap = { klass, fd };
  int state;
  VALUE socket = rb_protect(wrap_body, (VALUE)&wrap, &state);

  if (!state) {
    note_no_file(fd);
    return socket;
  }
  close(fd);
  rb_jump_tag(state);
}

/* A descriptor or -errno; -ECANCELED when it is time to look again. Switches. */
static int64_t accept_one(struct backend_base *backend, int fd, VALUE server) {
  if (find_kept(fd)) {
    io_snooze(backend);         /* before it is taken: an exception must not cost the socket */
    int socket = take_kept(fd_of(server, FD_READ));
    return socket < 0 ? -ECANCELED : socket;
  }
  struct op *op = io_op(backend, OP_ACCEPT, fd);
  op->as.accept.flags = ACCEPT_AS_STOCK;
  return io_perform(backend, op, server);
}

static bool short_of_descriptors_p(int64_t result) {
  return result == -EMFILE || result == -ENFILE || result == -ENOBUFS || result == -ENOMEM;
}

/* Raises IOError if the server has been closed meanwhile. */
NORETURN(static void raise_refused(int64_t result, VALUE server));

static void raise_refused(int64_t result, VALUE server) {
  fd_of(server, FD_READ);
  error_raise_errno(result, "accept(2)");
}

static int64_t accept_any(struct backend_base *backend, VALUE server) {
  int64_t result;

  do {
    int fd = fd_of(server, FD_READ);
    recall(backend, fd, NULL);
    result = accept_one(backend, fd, server);
  } while (result == -ECANCELED);
  return result;
}

/* As stock accept does: sockets that nobody refers to any more may be waiting for the GC. */
int io_accept_descriptor(VALUE server) {
  struct backend_base *backend = backend_base_current();

  prepare();
  int64_t result = accept_any(backend, server);
  if (short_of_descriptors_p(result)) {
    rb_gc();
    result = accept_any(backend, server);
  }
  if (result < 0) raise_refused(result, server);
  return (int)result;
}

VALUE io_accept(VALUE server, VALUE klass) {
  return wrap_socket(klass, io_accept_descriptor(server));
}

/* ---- one socket and where it comes from ------------------------------------------------------- */

/* accept4 has no flag for not waiting; see decision 005. */
static void make_nonblocking(int fd) {
  int flags = fcntl(fd, F_GETFL), listening = 0;
  socklen_t length = sizeof(listening);

  if (flags < 0 || flags & O_NONBLOCK) return;
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) < 0 || !listening) return;
  fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

/* The kernel tells the address with the socket only; of one that was kept it can be asked unless it
 * is broken already. */
static int64_t try_to_accept(int fd, struct sockaddr_storage *address, socklen_t *length) {
  int socket = take_kept(fd);

  *length = sizeof(*address);
  if (socket >= 0) {
    if (getpeername(socket, (struct sockaddr *)address, length) < 0) *length = 0;
    return socket;
  }
  socket = accept_with(fd, (struct sockaddr *)address, length, ACCEPT_AS_STOCK);
  return socket < 0 ? -errno : socket;
}

/* No op: what it has accepted when it is cancelled would be kept without its address. */
int io_accept_from(VALUE server, struct sockaddr_storage *address, socklen_t *length) {
  struct backend_base *backend = backend_base_current();
  bool collected = false;

  prepare();
  io_give_way();
  for (;;) {
    int fd = fd_of(server, FD_READ);
    recall(backend, fd, NULL);
    make_nonblocking(fd);
    int64_t result = try_to_accept(fd, address, length);
    if (result >= 0) return (int)result;
    if (short_of_descriptors_p(result) && !collected) collected = true, rb_gc();
    else if (result == -EAGAIN) io_wait_ready(backend, fd, POLLIN, server);
    else if (result != -EINTR) raise_refused(result, server);
  }
}

/* ---- for ever -------------------------------------------------------------------------------- */

/* Look again, or errors of the connection that was to be accepted, not of the listener; see
 * accept(2). */
static bool transient_p(int64_t result) {
  switch (-result) {
    case ECANCELED: case EAGAIN: case EINTR: case ECONNABORTED: case EPROTO: case ENETDOWN:
    case ENETUNREACH: case EHOSTDOWN: case EHOSTUNREACH: case ENOPROTOOPT: case ETIMEDOUT:
#ifdef ENONET
    case ENONET:
#endif
      return true;
    default:
      return false;
  }
}

/* The listener stays readable meanwhile, so waiting for it would be spinning. */
static void pause_for_descriptors(struct accept_loop *loop, int64_t result) {
  static int64_t last;
  int64_t now = clock_monotonic();

  if (!loop->pause && (!last || now - last > WARN_PERIOD)) {
    last = now;
    rb_warn("accept: %s; waiting for descriptors to be closed. Raise the limit with ulimit -n, or "
            "LimitNOFILE= in systemd", strerror((int)-result));
  }
  loop->pause = loop->pause ? loop->pause * 2 : FIRST_PAUSE;
  if (loop->pause > LONGEST_PAUSE) loop->pause = LONGEST_PAUSE;
  io_sleep(loop->pause);
}

/* A descriptor or -errno; -ECANCELED when the op has ended and it is time for another. */
static int64_t accept_shot(struct accept_loop *loop, int fd) {
  struct op_shot shot;

  if (!loop->op) arm(loop, fd);
  loop->waiting = true;
  bool came = io_await_shot(loop->backend, loop->op, &shot, loop->server);
  loop->waiting = false;
  if (came) return shot.result;
  int64_t result = loop->op->result;
  release(loop, true);
  if (result == -EINVAL) loop->single = true;
  return result >= 0 || result == -EINVAL ? -ECANCELED : result;
}

/* It has ended, and what it had got was handed out. */
static bool spent_p(const struct op *op) {
  return op_settled_p(op) && op->shots_head == op->shots_tail;
}

static int64_t accept_next(struct accept_loop *loop) {
  int fd = fd_of(loop->server, FD_READ);

  if (loop->op && (spent_p(loop->op) || loop->op->fd != fd || !alone_p(loop, fd))) {
    int state = io_withdraw(loop->backend, loop->op);
    release(loop, true);
    if (state) rb_jump_tag(state);
  }
  bool rivals = !loop->op && recall(loop->backend, fd, loop);
  if (loop->single || rivals || find_kept(fd) || !alone_p(loop, fd))
    return accept_one(loop->backend, fd, loop->server);
  return accept_shot(loop, fd);
}

/* How many connections are taken in one turn. If each had to wait until everyone who is busy has
 * run once, then the more there are, the longer the next would wait. */
static unsigned fair_share(struct accept_loop *loop) {
  unsigned share = loop->batch + loop->backend->runqueue.length / 8;

  return share < SOCKETS_PER_TURN ? share : SOCKETS_PER_TURN;
}

/* A connection that is there already. -EAGAIN if there is none, or if that cannot be asked without
 * the risk of waiting. */
static int64_t accept_at_once(struct accept_loop *loop) {
  int fd = fd_of(loop->server, FD_READ);
  struct op_shot shot;

  if (loop->op) return loop_shift_shot(loop->op, &shot) ? shot.result : -EAGAIN;
  if (!loop->single || !(fcntl(fd, F_GETFL) & O_NONBLOCK) || !alone_p(loop, fd)) return -EAGAIN;
  int socket = accept_with(fd, NULL, NULL, ACCEPT_AS_STOCK);
  return socket >= 0 ? socket : -EAGAIN;
}

static void yield_socket(struct accept_loop *loop, int64_t socket) {
  loop->pause = 0;
  rb_yield(wrap_socket(loop->klass, (int)socket));
}

static VALUE loop_body(VALUE argument) {
  struct accept_loop *loop = (struct accept_loop *)argument;

  for (;;) {
    int64_t result = accept_next(loop);
    if (result >= 0) {
      yield_socket(loop, result);
      for (unsigned left = fair_share(loop); left > 1; left--) {
        if ((result = accept_at_once(loop)) < 0) break;
        yield_socket(loop, result);
      }
    } else if (short_of_descriptors_p(result)) {
      pause_for_descriptors(loop, result);
    } else if (!transient_p(result)) {
      raise_refused(result, loop->server);
    }
  }
  return Qnil;
}

static VALUE loop_ensure(VALUE argument) {
  struct accept_loop *loop = (struct accept_loop *)argument;
  bool closed = loop->waiting && !NIL_P(loop->fiber->closing);
  int state = loop->op ? io_withdraw(loop->backend, loop->op) : 0;

  release(loop, !closed);
  if (state) rb_jump_tag(state);
  return Qnil;
}

VALUE io_accept_loop(VALUE server, VALUE klass, unsigned batch) {
  struct backend_base *backend = backend_base_current();
  struct accept_loop loop = { .backend = backend, .fiber = backend_base_fiber(backend),
                              .server = server, .klass = klass, .batch = batch };

  prepare();
  list_init(&loop.link);
  loop.single = !(backend->loop.features & DRIVER_MULTI_ACCEPT);
  return rb_ensure(loop_body, (VALUE)&loop, loop_ensure, (VALUE)&loop);
}
