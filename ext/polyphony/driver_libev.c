/* driver_libev.c - completion made from readiness, on libev as it comes with the system.
 *
 * An op is attempted at once; if it would have to wait, the ev_io inside it is started, and its
 * callback attempts again. libev is used for nothing but ev_io and a timer or two; its
 * callbacks are plain C, so poll needs no GVL anywhere. Two things about libev shape this file.
 *
 * It must never see a bad descriptor. epoll_ctl(EBADF) fails an assertion in ev_epoll.c, and
 * Debian's libev 4.33 is built with assertions: the process would end because somebody closed a
 * descriptor that a fiber waits for. So whatever may make libev call epoll_ctl (a watcher started,
 * or one of several on a descriptor stopped) is put on the list `fresh`, and looked at with
 * F_GETFD just before libev does. libev also registers everything anew at times (after a stray
 * event from a file that a forked child still has open); an ev_fork watcher runs just before that.
 *
 * It calls epoll_ctl only for a changed set of events, or when EV__IOFDSET is in ev_io.events,
 * as ev_io_set leaves it. A connection that was read, answered, and is waited for again before the
 * next poll thus costs no epoll_ctl, if the flag is left out: 2 system calls a request, read and
 * write, plus a share of epoll_wait. But if the number got another file in between, and nobody
 * told us (OP_CLOSE, loop_forget_fd), that file is not registered and we would wait for ever. So
 * such a watcher is `trusted` for TRUST_MS only, then the flag is made up for. */
#ifdef HAVE_LIBEV
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/epoll.h>
#endif
#include "attempt.h"
#include "clock.h"
#include "driver_libev_api.h"
#include "list.h"
#include "loop.h"
#include "offload.h"

#define TRUST_MS 20
#define NSEC_PER_MSEC INT64_C(1000000)
#define REFUSAL_MS 50
#define PAUSE_SECONDS 0.005            /* between two connects to a unix listener that is full */

#ifdef __linux__
#define BACKEND EVBACKEND_EPOLL        /* linuxaio and iouring are there too, and not recommended */
#else
#define BACKEND (ev_recommended_backends() | EVBACKEND_KQUEUE)   /* not recommended on macOS, but
                                          what is, select, ends at descriptor 1023 */
#endif

enum stage { STAGE_ATTEMPT, STAGE_WATCHING, STAGE_PAUSED };

struct libev {
  struct ev_loop *ev;
  struct loop *loop;
  ev_io wakeup;
  ev_timer timeout;
  ev_fork renewal;                     /* libev is about to register everything anew */
  struct list fresh;                   /* ops whose descriptor must be checked before libev runs */
  struct list registered;              /* ops that epoll knows of; paused ones too */
  struct list trusted;                 /* ops that epoll probably knows of; oldest first */
  struct list nests;                   /* struct nest, for ops with unusual events */
  uint32_t turn;                       /* counts runs of libev, never 0 */
  int64_t deadline;                    /* of the present run */
  int64_t now;                         /* when the present or last poll began to look */
  bool news;                           /* this poll has settled something or was woken */
  bool expired;                        /* the timer fired */
  bool unsaid;                         /* watchers came or went, and epoll does not know yet */
  bool registering;                    /* epoll is asked for more, and may refuse it */
  bool deaf;                           /* it has refused the wakeup's descriptor */
  int renewed;                         /* libev's epoll may have this number since; -1: nothing new */
};

/* An epoll instance around one descriptor: libev's epoll knows EPOLLIN and EPOLLOUT only, but an
 * epoll descriptor is readable when anything in it is ready. In a list of the driver's own, so
 * that a forked child can close them when the ops are forgotten. */
struct nest {
  struct list node;
  int fd;
};

struct libev_op {
  union {
    ev_io io;                          /* STAGE_WATCHING; io.data: struct nest, or NULL */
    ev_timer timer;                    /* STAGE_PAUSED */
  } watcher;                           /* first: a watcher's address is the op's */
  struct list node;                    /* in one of libev's lists unless STAGE_ATTEMPT */
  struct attempt attempt;
  uint32_t since;                      /* trusted: milliseconds */
  uint8_t stage;                       /* enum stage */
};

_Static_assert(sizeof(struct libev_op) <= sizeof(((struct op *)0)->driver.bytes),
               "struct libev_op does not fit into an op");

static struct libev_op *libev_op(struct op *op) { return (struct libev_op *)(void *)&op->driver; }

static struct op *op_of(void *watcher) {
  return (struct op *)(void *)((char *)watcher - offsetof(struct op, driver));
}

static struct op *op_in(struct list *node) {
  return op_of(list_entry(node, struct libev_op, node));
}

static void list_move(struct list *to, struct list *node) {
  list_remove(node);
  list_push(to, node);
}

/* Milliseconds that wrap after 49 days; only differences count. */
static uint32_t now_ms(const struct libev *libev) { return (uint32_t)(libev->now / NSEC_PER_MSEC); }

/* Unusual events. */

#ifdef __linux__
static int nest_open(struct libev *libev, int fd, unsigned events, struct nest **nest) {
  struct epoll_event event = { .events = events };
  int epoll = epoll_create1(EPOLL_CLOEXEC);

  if (epoll < 0) return -errno;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 && (*nest = malloc(sizeof(**nest)))) {
    (*nest)->fd = epoll;
    list_push(&libev->nests, &(*nest)->node);
    return 0;
  }
  int rc = -errno;
  close(epoll);
  return rc;
}
#else
static int nest_open(struct libev *libev, int fd, unsigned events, struct nest **nest) {
  (void)libev, (void)fd, (void)events, (void)nest;
  return -EOPNOTSUPP;
}
#endif

static void nest_close(struct nest *nest) {
  close(nest->fd);
  list_remove(&nest->node);
  free(nest);
}

/* Watching. */

static bool watching_p(struct op *op) { return libev_op(op)->stage == STAGE_WATCHING; }

static bool alone_on_fd_p(const struct fd_slot *slot, const struct op *op) {
  return slot && slot->ops == op && !op->fd_next;
}

/* Whether epoll has just reported this descriptor to a reader, and libev's idea of it will be the
 * same again with op: then starting op without EV__IOFDSET makes no system call. */
static bool trusted_p(struct loop *loop, struct op *op) {
  struct libev *libev = loop->driver_data;
  struct fd_slot *slot = loop_fd_slot(loop, op->fd);

  return alone_on_fd_p(slot, op) && slot->watched == libev->turn && attempt_events(op) == POLLIN;
}

/* Stopping one of several changes the events that libev has to register for their descriptor, so
 * that has to be checked; one of the others stands for all. */
static void recheck_others(struct loop *loop, struct op *op) {
  struct libev *libev = loop->driver_data;
  struct op *other = loop_ops_on(loop, op->fd);

  while (other && (other == op || !watching_p(other))) other = other->fd_next;
  if (other) list_move(&libev->fresh, &libev_op(other)->node);
}

static void stop_io(struct loop *loop, struct op *op) {
  struct libev *libev = loop->driver_data;
  ev_io *io = &libev_op(op)->watcher.io;

  ev_io_stop(libev->ev, io);
  libev->unsaid = true;
  if (io->data) nest_close(io->data);
  recheck_others(loop, op);
}

/* Back to STAGE_ATTEMPT, from whichever it is in. */
static void stop(struct loop *loop, struct op *op) {
  struct libev *libev = loop->driver_data;
  struct libev_op *lop = libev_op(op);

  if (lop->stage == STAGE_WATCHING) stop_io(loop, op);
  if (lop->stage == STAGE_PAUSED) ev_timer_stop(libev->ev, &lop->watcher.timer);
  lop->stage = STAGE_ATTEMPT;
  list_remove(&lop->node);
}

static void settle(struct loop *loop, struct op *op, int64_t result) {
  struct libev *libev = loop->driver_data;

  stop(loop, op);
  libev->news = true;
  loop_settle(loop, op, result);
}

static void on_ready(struct ev_loop *ev, ev_io *io, int revents);
static void on_pause_end(struct ev_loop *ev, ev_timer *timer, int revents);

static void start_io(struct loop *loop, struct op *op, struct nest *nest) {
  struct libev *libev = loop->driver_data;
  struct libev_op *lop = libev_op(op);
  ev_io *io = &lop->watcher.io;
  unsigned events = attempt_events(op);
  bool trusted = trusted_p(loop, op);

  ev_init(io, on_ready);
  io->data = nest;
  io->fd = nest ? nest->fd : op->fd;
  io->events = nest ? EV_READ : (events & POLLIN ? EV_READ : 0) | (events & POLLOUT ? EV_WRITE : 0);
  if (!trusted) io->events |= EV__IOFDSET;
  ev_io_start(libev->ev, io);
  libev->unsaid = true;
  lop->stage = STAGE_WATCHING;
  lop->since = now_ms(libev);
  list_push(trusted ? &libev->trusted : &libev->fresh, &lop->node);
}

static void watch(struct loop *loop, struct op *op) {
  unsigned events = attempt_events(op);
  struct fd_slot *slot = loop_fd_slot(loop, op->fd);
  struct nest *nest = NULL;

  if (watching_p(op)) return;
  stop(loop, op);
  if (events == 0 || events & ~(unsigned)(POLLIN | POLLOUT)) {
    int rc = nest_open(loop->driver_data, op->fd, events, &nest);
    if (rc < 0) {
      settle(loop, op, rc);
      return;
    }
  }
  /* libev remembers EV__IOFDSET even if this op stops before it runs: no trust until it has. */
  if (slot && !trusted_p(loop, op)) slot->watched = 0;
  start_io(loop, op, nest);
}

static void pause_op(struct loop *loop, struct op *op) {
  struct libev *libev = loop->driver_data;
  struct libev_op *lop = libev_op(op);

  stop(loop, op);
  ev_now_update(libev->ev);
  ev_timer_init(&lop->watcher.timer, on_pause_end, PAUSE_SECONDS, 0);
  ev_timer_start(libev->ev, &lop->watcher.timer);
  lop->stage = STAGE_PAUSED;
  list_push(&libev->registered, &lop->node);
}

/* Carrying out. */

static int64_t attempt_with_hints(struct loop *loop, struct op *op) {
  struct attempt *attempt = &libev_op(op)->attempt;
  struct fd_slot *slot = loop_fd_slot(loop, op->fd);

  attempt->hints = slot ? slot->hints : 0;
  int64_t result = attempt_op(op, attempt);
  if (slot) slot->hints = attempt->hints;
  return result;
}

static void advance(struct loop *loop, struct op *op) {
  int64_t result = attempt_with_hints(loop, op);

  if (result == ATTEMPT_WAIT) {
    watch(loop, op);
  } else if (result == ATTEMPT_PAUSE) {
    pause_op(loop, op);
  } else if (result == ATTEMPT_OFFLOAD) {
    stop(loop, op);
    offload_submit(loop, op);
  } else {
    if (op->kind == OP_ACCEPT) loop_forget_fd(loop, (int)result);
    settle(loop, op, result);
  }
}

/* epoll has reported the descriptor: so it is registered, with these events if op is alone. */
static void note_watched(struct loop *loop, struct op *op) {
  struct libev *libev = loop->driver_data;
  struct fd_slot *slot = loop_fd_slot(loop, op->fd);

  if (alone_on_fd_p(slot, op) && attempt_events(op) == POLLIN) slot->watched = libev->turn;
}

static void on_ready(struct ev_loop *ev, ev_io *io, int revents) {
  struct loop *loop = ((struct libev *)ev_userdata(ev))->loop;
  struct op *op = op_of(io);

  if (revents & EV_ERROR) {            /* no memory for epoll, or its limit of descriptors */
    settle(loop, op, fcntl(op->fd, F_GETFD) < 0 ? -EBADF : -ENOMEM);
    return;
  }
  note_watched(loop, op);
  libev_op(op)->attempt.ready = true;
  advance(loop, op);
}

static void on_pause_end(struct ev_loop *ev, ev_timer *timer, int revents) {
  (void)revents;
  advance(((struct libev *)ev_userdata(ev))->loop, op_of(timer));
}

/* Whoever came first is served first: libev's callbacks of one descriptor come in the order in
 * which the watchers were started, so a newcomer need only not attempt anything before them. */
static bool others_first_p(struct loop *loop, struct op *op) {
  for (struct op *other = loop_ops_on(loop, op->fd); other; other = other->fd_next)
    if (other != op && watching_p(other) && other->kind != OP_POLL &&
        attempt_events(other) == attempt_events(op)) return true;
  return false;
}

static bool futile_p(struct loop *loop, struct op *op) {
  struct fd_slot *slot = loop_fd_slot(loop, op->fd);
  bool drained = slot && slot->hints & FD_DRAINED && trusted_p(loop, op);

  switch (op->kind) {
  case OP_READ:
    return op->as.rw.offset < 0 && (drained || others_first_p(loop, op));
  case OP_RECV:
  case OP_SEND:
    return !(op->as.rw.flags & MSG_DONTWAIT) && (drained || others_first_p(loop, op));
  case OP_WRITE:
    return op->as.rw.offset < 0 && others_first_p(loop, op);
  case OP_WRITEV:
    return op->as.vec.offset < 0 && others_first_p(loop, op);
  case OP_ACCEPT:
    return others_first_p(loop, op);
  case OP_POLL:
    return drained;
  default:
    return false;
  }
}

/* epoll forgets a closed file without a word, so ops that wait for it are told here. */
static void close_fd(struct loop *loop, struct op *op) {
  int fd = op->fd;
  struct op *next;

  for (struct op *other = loop_ops_on(loop, fd); other; other = next) {
    next = other->fd_next;
    if (libev_op(other)->stage != STAGE_ATTEMPT) settle(loop, other, -EBADF);
  }
  loop_forget_fd(loop, fd);
  settle(loop, op, op_execute(op));
}

static void libev_submit(struct loop *loop, struct op *op) {
  list_init(&libev_op(op)->node);
  switch (op->kind) {
  case OP_OPEN:
  case OP_STAT:
  case OP_FSYNC:
  case OP_CALL:
    offload_submit(loop, op);
    break;
  case OP_CLOSE:
    close_fd(loop, op);
    break;
  default:
    if (op->fd < 0) settle(loop, op, -EBADF);    /* poll(2) would only ignore it */
    else if (futile_p(loop, op)) watch(loop, op);
    else advance(loop, op);
  }
}

/* Ops with a worker never come here: loop_cancel sends them to offload_cancel. What MSG_WAITALL
 * has gathered is the result, as with io_uring. */
static void libev_cancel(struct loop *loop, struct op *op) {
  uint32_t done = libev_op(op)->attempt.done;

  settle(loop, op, done > 0 ? (int64_t)done : -ECANCELED);
}

/* Polling. */

static void check_fresh(struct libev *libev) {
  while (!list_empty_p(&libev->fresh)) {
    struct op *op = op_in(libev->fresh.next);

    libev->registering = true;
    if (fcntl(op->fd, F_GETFD) >= 0) list_move(&libev->registered, &libev_op(op)->node);
    else settle(libev->loop, op, -EBADF);    /* which makes the next on that descriptor fresh */
  }
}

/* Starting any watcher on the descriptor with EV__IOFDSET does it. Not the op's own: starting
 * that again would send it to the end of the queue. */
static void register_again(struct libev *libev, int fd) {
  ev_io io;

  ev_io_init(&io, on_ready, fd, EV_READ);
  ev_io_start(libev->ev, &io);
  ev_io_stop(libev->ev, &io);
  libev->unsaid = libev->registering = true;
}

static struct libev_op *first_trusted(struct libev *libev) {
  if (list_empty_p(&libev->trusted)) return NULL;
  return list_entry(libev->trusted.next, struct libev_op, node);
}

static void end_trust(struct libev *libev) {
  struct libev_op *lop;

  while ((lop = first_trusted(libev)) && now_ms(libev) - lop->since >= TRUST_MS) {
    register_again(libev, lop->watcher.io.fd);
    list_move(&libev->fresh, &lop->node);
  }
}

static void list_move_all(struct list *to, struct list *from) {
  while (!list_empty_p(from)) list_move(to, from->next);
}

static int lowest_free(const struct loop *loop) {
  int fd = fcntl(loop->wakeup.fd, F_DUPFD_CLOEXEC, 0);

  if (fd >= 0) close(fd);
  return fd;
}

/* libev then closes its epoll and opens another, which gets the lowest number that is free. The former one may be anybody's, so it is
 * not known which it is until that has been looked up: somebody else may have been quicker. */
static void forget_poller(struct libev *libev) {
  int fd = lowest_free(libev->loop), before = libev->loop->poller;

  libev->renewed = fd < 0 || (before >= 0 && before < fd) ? before : fd;
  libev->loop->poller = -1;
}

#ifdef __linux__
/* Whether it is an epoll that has our wakeup, which no other one has. */
static bool listens_p(const struct libev *libev, int number) {
  char path[64], line[256];
  int fd = -1;

  snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", number);
  FILE *file = fopen(path, "re");
  while (file && fd != libev->loop->wakeup.fd && fgets(line, sizeof(line), file)) sscanf(line, "tfd: %d", &fd);
  if (file) fclose(file);
  return fd == libev->loop->wakeup.fd;
}

/* Another thread has opened or closed something just then: all have to be looked at. */
static int search_poller(const struct libev *libev) {
  DIR *folder = opendir("/proc/self/fdinfo");
  struct dirent *entry;
  int found = -1;

  while (folder && found < 0 && (entry = readdir(folder)))
    if (entry->d_name[0] != '.' && listens_p(libev, atoi(entry->d_name))) found = atoi(entry->d_name);
  if (folder) closedir(folder);
  return found;
}

static void find_poller(struct libev *libev) {
  libev->loop->poller = listens_p(libev, libev->renewed) ? libev->renewed : search_poller(libev);
  libev->renewed = -1;
}
#else
static void find_poller(struct libev *libev) { libev->renewed = -1; }
#endif

static void arm_timeout(struct libev *libev, int64_t deadline);
static int64_t soon_if_refused(const struct libev *libev, int64_t deadline);

static void on_renewal(struct ev_loop *ev, ev_fork *fork, int revents) {
  struct libev *libev = ev_userdata(ev);

  (void)fork, (void)revents;
  forget_poller(libev);
  list_move_all(&libev->fresh, &libev->registered);
  list_move_all(&libev->fresh, &libev->trusted);
  check_fresh(libev);
  /* libev is about to wait, for as much as a minute; what was settled just now must be seen, and what epoll refuses. */
  if (libev->news) ev_break(ev, EVBREAK_ONE);
  libev->registering = true;
  arm_timeout(libev, soon_if_refused(libev, libev->deadline));
}

/* What libev was refused it takes for registered, unless it is told that the descriptor is another. */
static void listen_for_wakeup(struct libev *libev) {
  libev->wakeup.events = EV_READ | EV__IOFDSET;
  ev_io_start(libev->ev, &libev->wakeup);
  libev->deaf = false;
  libev->registering = true;
}

/* libev has stopped the watcher when epoll has refused it. */
static void on_wakeup(struct ev_loop *ev, ev_io *io, int revents) {
  struct libev *libev = ev_userdata(ev);

  (void)io;
  if (revents & EV_ERROR) libev->deaf = true;
  wakeup_drain(&libev->loop->wakeup);
  libev->news = true;
}

static void on_timeout(struct ev_loop *ev, ev_timer *timer, int revents) {
  (void)timer, (void)revents;
  ((struct libev *)ev_userdata(ev))->expired = true;
}

static int64_t min_time(int64_t a, int64_t b) { return a < b ? a : b; }

/* libev's timers count from its own idea of now, which is as old as its last run. */
static void arm_timeout(struct libev *libev, int64_t deadline) {
  struct libev_op *lop = first_trusted(libev);

  if (lop) {
    uint32_t age = now_ms(libev) - lop->since;
    deadline = min_time(deadline, libev->now + (TRUST_MS - (int64_t)age) * NSEC_PER_MSEC);
  }
  ev_timer_stop(libev->ev, &libev->timeout);
  if (deadline == CLOCK_NEVER) return;
  ev_now_update(libev->ev);
  ev_timer_set(&libev->timeout, (ev_tstamp)(deadline - libev->now) / NSEC_PER_SEC, 0);
  ev_timer_start(libev->ev, &libev->timeout);
}

/* When epoll refuses a descriptor (no memory, or the user watches too many), libev notes that for
 * the watcher, and waits nevertheless before it says so. So the wait in which epoll is asked is a short one. */
static int64_t soon_if_refused(const struct libev *libev, int64_t deadline) {
  return libev->registering ? min_time(deadline, libev->now + REFUSAL_MS * NSEC_PER_MSEC) : deadline;
}

static void run_libev(struct libev *libev, int flags) {
  if (++libev->turn == 0) libev->turn = 1;
  libev->unsaid = libev->registering = false;
  ev_run(libev->ev, flags);
}

#ifdef __linux__
/* libev has epoll_wait count the time, in whole milliseconds, rounded up. So it gets all but the last of it, and that is waited for
 * here, on the descriptor of its epoll. If that were another one, what comes in the meantime would be seen at the end. */
enum { ROUNDING = 1, LAST_PART = 2 * ROUNDING };       /* ms */

static bool near_p(const struct libev *libev, int64_t deadline) {
  return libev->loop->poller >= 0 && deadline - libev->now <= LAST_PART * NSEC_PER_MSEC;
}

static int64_t coarsely(const struct libev *libev, int64_t deadline) {
  return libev->loop->poller < 0 || deadline == CLOCK_NEVER ? deadline : deadline - ROUNDING * NSEC_PER_MSEC;
}

static void wait_exactly(struct libev *libev, int64_t deadline) {
  struct pollfd poller = { .fd = libev->loop->poller, .events = POLLIN };

  if (libev->unsaid) run_libev(libev, EVRUN_NOWAIT);
  int64_t left = deadline - clock_monotonic();
  if (libev->news || left <= 0) return;
  struct timespec timeout = { .tv_nsec = left };
  if (ppoll(&poller, 1, &timeout, NULL) != 0) run_libev(libev, EVRUN_NOWAIT);
}
#else
static bool near_p(const struct libev *libev, int64_t deadline) { return (void)libev, (void)deadline, false; }
static int64_t coarsely(const struct libev *libev, int64_t deadline) { return (void)libev, deadline; }
static void wait_exactly(struct libev *libev, int64_t deadline) { (void)libev, (void)deadline; }
#endif

static void run(struct libev *libev, int64_t deadline) {
  if (libev->renewed >= 0) find_poller(libev);
  if (libev->deaf) listen_for_wakeup(libev);
  end_trust(libev);
  check_fresh(libev);
  bool wait = !libev->news && deadline > libev->now;

  libev->deadline = deadline;
  libev->expired = false;
  if (wait && near_p(libev, deadline)) {
    wait_exactly(libev, deadline);
  } else {
    if (wait) arm_timeout(libev, soon_if_refused(libev, coarsely(libev, deadline)));
    run_libev(libev, wait ? EVRUN_ONCE : EVRUN_NOWAIT);
    ev_timer_stop(libev->ev, &libev->timeout);
  }
  if (wait) libev->now = clock_monotonic();
}

static bool idle_p(const struct libev *libev) {
  return list_empty_p(&libev->fresh) && list_empty_p(&libev->registered) &&
         list_empty_p(&libev->trusted);
}

static int64_t deadline_after(int64_t now, int64_t timeout_ns) {
  return timeout_ns < 0 || timeout_ns > CLOCK_NEVER - now ? CLOCK_NEVER : now + timeout_ns;
}

/* Goes on only if the timer rang for the end of somebody's trust. A signal ends epoll_wait and
 * thereby the run, without news and without the timer: that is an early return, as it should be. */
static int libev_poll(struct loop *loop, int64_t timeout_ns) {
  struct libev *libev = loop->driver_data;

  if (timeout_ns == 0 && idle_p(libev)) return 0;
  libev->now = clock_monotonic();
  libev->news = false;
  int64_t deadline = deadline_after(libev->now, timeout_ns);
  do run(libev, deadline);
  while (libev->expired && !libev->news && libev->now < deadline);
  return 0;
}

/* Opening and closing. */

/* A loop of our own: the default one would take SIGCHLD from Ruby. Neither the environment nor
 * inotify, timerfd or the signal mask are any business of it here. */
static struct ev_loop *create_ev_loop(void) {
  return ev_loop_new(EVFLAG_NOENV | EVFLAG_NOINOTIFY | EVFLAG_NOSIGMASK | EVFLAG_NOTIMERFD |
                     BACKEND);
}

static int libev_probe(char *why, size_t size) {
  int rc = libev_load(why, size);
  if (rc < 0) return rc;

  errno = 0;
  struct ev_loop *ev = create_ev_loop();
  rc = errno ? -errno : -ENOSYS;

  if (!ev) {
    snprintf(why, size, "libev could not open its poller (%s); are there free descriptors "
             "(ulimit -n)?", strerror(-rc));
    return rc;
  }
  ev_loop_destroy(ev);
  return 0;
}

static void start_own_watchers(struct libev *libev) {
  ev_init(&libev->timeout, on_timeout);
  ev_io_init(&libev->wakeup, on_wakeup, libev->loop->wakeup.fd, EV_READ);
  listen_for_wakeup(libev);
  ev_fork_init(&libev->renewal, on_renewal);
  ev_fork_start(libev->ev, &libev->renewal);
}

/* libev does not tell which descriptor it opens: it is the lowest that is free. Another loop must not take that
 * meanwhile, and if another thread has, for something else, it is not an epoll. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

static bool new_epoll_p(int fd, const struct loop *loop) {
#ifdef __linux__
  return epoll_ctl(fd, EPOLL_CTL_DEL, loop->wakeup.fd, NULL) < 0 && errno == ENOENT;
#else
  (void)loop;
  return fd >= 0;
#endif
}

static int libev_open(struct loop *loop) {
  int rc = libev_load(NULL, 0);
  if (rc < 0) return rc;

  struct libev *libev = calloc(1, sizeof(*libev));
  if (!libev) return -ENOMEM;

  pthread_mutex_lock(&opening);
  loop->poller = lowest_free(loop);
  errno = 0;
  libev->ev = create_ev_loop();
  rc = errno;
  if (!new_epoll_p(loop->poller, loop)) loop->poller = -1;
  pthread_mutex_unlock(&opening);
  if (!libev->ev) {
    rc = rc ? -rc : -ENOSYS;
    free(libev);
    return rc;
  }
  libev->loop = loop;
  libev->turn = 1;
  libev->renewed = -1;
  list_init(&libev->fresh);
  list_init(&libev->registered);
  list_init(&libev->trusted);
  list_init(&libev->nests);
  ev_set_userdata(libev->ev, libev);
  start_own_watchers(libev);
  loop->driver_data = libev;
  loop->features = 0;
  return 0;
}

/* Touches neither ops nor epoll's registrations, which a child shares with its parent until it
 * closes its copy of the descriptor. */
static void free_libev(struct loop *loop) {
  struct libev *libev = loop->driver_data;

  while (!list_empty_p(&libev->nests))
    nest_close(list_entry(libev->nests.next, struct nest, node));
  ev_loop_destroy(libev->ev);
  free(libev);
  loop->driver_data = NULL;
}

static void libev_close(struct loop *loop) {
  struct libev *libev = loop->driver_data;

  if (!libev) return;                  /* a child could not open it anew */
  list_move_all(&libev->fresh, &libev->registered);
  list_move_all(&libev->fresh, &libev->trusted);
  while (!list_empty_p(&libev->fresh)) settle(loop, op_in(libev->fresh.next), -ECANCELED);
  free_libev(loop);
}

static int libev_after_fork(struct loop *loop) {
  if (loop->driver_data) free_libev(loop);
  return libev_open(loop);
}

const struct driver driver_libev = {
  .name       = "libev",
  .probe      = libev_probe,
  .open       = libev_open,
  .close      = libev_close,
  .after_fork = libev_after_fork,
  .submit     = libev_submit,
  .cancel     = libev_cancel,
  .poll       = libev_poll,
};
#endif
