/* io_select.c - IO.select; see io.h
 *
 * In rounds: take the descriptors out of the Arrays, look with poll(2), which is all that most calls
 * need, collect what is ready, else wait and begin anew. Nobody else runs between the look and the
 * answer, and a closed IO is found by the next round at the latest.
 *
 * The wait is one poll of one descriptor: the only one there is, or an epoll that has them all. That one is
 * edge-triggered, because it tells of a hang-up that nobody asked for (select(2) does not, in
 * writables and exceptables), and would again at once. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/epoll.h>
#endif
#include "clock.h"
#include "io.h"

enum { READABLES, WRITABLES, EXCEPTABLES, SETS };

/* As select(2) does it on Linux. */
static const struct {
  short asked, ready;
} meaning[SETS] = {
  [READABLES]   = { POLLIN | POLLRDNORM | POLLRDBAND,
                    POLLIN | POLLRDNORM | POLLRDBAND | POLLHUP | POLLERR },
  [WRITABLES]   = { POLLOUT | POLLWRNORM | POLLWRBAND, POLLOUT | POLLWRNORM | POLLWRBAND | POLLERR },
  [EXCEPTABLES] = { POLLPRI, POLLPRI },
};

struct selection {
  struct backend_base *backend;
  VALUE sets[SETS];
  int64_t deadline;             /* or CLOCK_NEVER */
  VALUE memory;                 /* String of struct pollfd, in order of their numbers */
  struct select_wait *wait;     /* NULL until it has to wait for several */
  bool deceived;                /* a wait came back and there was nothing */
  int64_t pause;                /* where there is no epoll: ns */
};

static struct pollfd *fds_of(const struct selection *selection) {
  return (struct pollfd *)RSTRING_PTR(selection->memory);
}

static unsigned count_of(const struct selection *selection) {
  return (unsigned)(RSTRING_LEN(selection->memory) / sizeof(struct pollfd));
}

/* ---- descriptors out of objects -------------------------------------------------------------- */

static rb_io_t *open_file(VALUE io) {
  rb_io_t *file;

  GetOpenFile(io, file);
  return file;
}

static int descriptor_of(VALUE io) {
  open_file(io);
  return rb_io_descriptor(io);
}

/* A duplex IO, of popen for instance, has two. second is -1 unless it counts, too. */
static VALUE unwrap(VALUE object, int set, int *fd, int *second) {
  VALUE io = rb_io_get_io(object);
  VALUE writer = set == READABLES ? io : rb_io_get_write_io(io);

  *fd = descriptor_of(set == WRITABLES ? writer : io);
  *second = set == EXCEPTABLES && writer != io ? descriptor_of(writer) : -1;
  return io;
}

static void add(struct selection *selection, int fd, int set) {
  struct pollfd pollfd = { .fd = fd, .events = meaning[set].asked };

  if (fd >= 0) rb_str_cat(selection->memory, (const char *)&pollfd, sizeof(pollfd));
}

static void add_set(struct selection *selection, int set) {
  VALUE objects = selection->sets[set];
  int fd, second;

  if (NIL_P(objects)) return;
  Check_Type(objects, T_ARRAY);
  for (long i = 0; i < RARRAY_LEN(objects); i++) {      /* to_io may change it */
    unwrap(RARRAY_AREF(objects, i), set, &fd, &second);
    add(selection, fd, set);
    add(selection, second, set);
  }
}

static int by_number(const void *a, const void *b) {
  const struct pollfd *left = a, *right = b;

  return (left->fd > right->fd) - (left->fd < right->fd);
}

static unsigned merge(struct pollfd *fds, unsigned count) {
  unsigned last = 0;

  for (unsigned i = 1; i < count; i++) {
    if (fds[i].fd == fds[last].fd) fds[last].events |= fds[i].events;
    else fds[++last] = fds[i];
  }
  return count ? last + 1 : 0;
}

static void gather(struct selection *selection) {
  selection->memory = rb_str_buf_new(0);
  for (int set = 0; set < SETS; set++) add_set(selection, set);
  unsigned count = count_of(selection);
  qsort(fds_of(selection), count, sizeof(struct pollfd), by_number);
  rb_str_set_len(selection->memory, merge(fds_of(selection), count) * sizeof(struct pollfd));
}

/* ---- looking --------------------------------------------------------------------------------- */

static void look(struct selection *selection) {
  struct pollfd *fds = fds_of(selection);
  unsigned count = count_of(selection);
  int rc;

  do rc = poll(fds, count, 0);
  while (rc < 0 && errno == EINTR);
  if (rc < 0) rb_sys_fail("poll(2)");
  for (unsigned i = 0; i < count; i++)
    if (fds[i].revents & POLLNVAL) rb_syserr_fail(EBADF, NULL);
}

static const struct pollfd *find(const struct pollfd *fds, unsigned count, int fd) {
  struct pollfd key = { .fd = fd };

  return bsearch(&key, fds, count, sizeof(key), by_number);
}

static bool ready_p(const struct selection *selection, int fd, int set) {
  const struct pollfd *found = find(fds_of(selection), count_of(selection), fd);

  return found && found->revents & meaning[set].ready;
}

/* What the kernel does not know of any more: in Ruby's buffer, or kept from a cancelled operation. */
static bool at_hand_p(VALUE io, int fd) {
  return rb_io_read_pending(open_file(io)) || io_ready_at_once_p(fd);
}

static VALUE collect(const struct selection *selection, int set) {
  VALUE objects = selection->sets[set], ready = rb_ary_new();
  int fd, second;

  for (long i = 0; !NIL_P(objects) && i < RARRAY_LEN(objects); i++) {
    VALUE object = RARRAY_AREF(objects, i), io = unwrap(object, set, &fd, &second);
    if (ready_p(selection, fd, set) || ready_p(selection, second, set) ||
        (set == READABLES && at_hand_p(io, fd))) rb_ary_push(ready, object);
  }
  return ready;
}

static VALUE answer(const struct selection *selection) {
  VALUE arrays = rb_ary_new();
  long length = 0;

  for (int set = 0; set < SETS; set++) {
    VALUE ready = collect(selection, set);
    rb_ary_push(arrays, ready);
    length += RARRAY_LEN(ready);
  }
  return length > 0 ? arrays : Qnil;
}

/* For reports: the first Array that is not empty. */
static VALUE subject_of(const struct selection *selection) {
  int set = 0;

  while (set < EXCEPTABLES && (NIL_P(selection->sets[set]) || !RARRAY_LEN(selection->sets[set])))
    set++;
  return selection->sets[set];
}

/* ---- waiting for several --------------------------------------------------------------------- */

bool select_waits_for_p(const struct select_wait *wait, int fd) {
  return find(wait->fds, wait->count, fd) != NULL;
}

static void close_epoll(struct select_wait *wait) {
  if (wait->epoll >= 0) close(wait->epoll);
  wait->epoll = -1;
}

void select_forget_all(struct list *selects) {
  while (!list_empty_p(selects)) {
    struct select_wait *wait = list_entry(selects->next, struct select_wait, link);
    list_remove(&wait->link);
    close_epoll(wait);
  }
}

static VALUE give_up(VALUE argument) {
  struct selection *selection = (struct selection *)argument;
  struct select_wait *wait = selection->wait;

  if (!wait) return Qnil;
  list_remove(&wait->link);
  if (wait->epoll >= 0) loop_forget_fd(&selection->backend->loop, wait->epoll);
  close_epoll(wait);
  free(wait);
  return Qnil;
}

#ifdef __linux__

/* Files on disk are refused with EPERM: they are ready for reading and writing always, so the look has
 * found them, and never have anything exceptional. */
static void watch(int epoll, const struct pollfd *pollfd) {
  struct epoll_event event = { .events = (uint32_t)(uint16_t)pollfd->events | EPOLLET };

  if (epoll_ctl(epoll, EPOLL_CTL_ADD, pollfd->fd, &event) < 0 && errno != EPERM)
    error_raise_errno(-errno, "epoll_ctl(2)");
}

static void prepare(struct selection *selection) {
  unsigned count = count_of(selection);
  struct select_wait *wait = malloc(sizeof(*wait) + count * sizeof(struct pollfd));

  if (!wait) rb_memerror();
  *wait = (struct select_wait){ .epoll = epoll_create1(EPOLL_CLOEXEC), .count = count };
  list_init(&wait->link);
  selection->wait = wait;       /* from here on give_up takes care of it */
  if (wait->epoll < 0) error_raise_errno(-errno, "epoll_create1(2)");
  memcpy(wait->fds, fds_of(selection), count * sizeof(struct pollfd));
  for (unsigned i = 0; i < count; i++) watch(wait->epoll, &wait->fds[i]);
}

static void drain(int epoll) {
  struct epoll_event events[64];

  while (epoll_wait(epoll, events, 64, 0) == 64) continue;
}

/* In the list only while it waits: what is scheduled then ends this wait and no other. */
static void wait_for_several(struct selection *selection) {
  if (!selection->wait) prepare(selection);
  struct select_wait *wait = selection->wait;
  struct backend_base *backend = selection->backend;

  wait->fiber = backend_base_fiber(backend);
  list_push(&backend->selects, &wait->link);
  io_wait_ready_until(backend, wait->epoll, POLLIN, subject_of(selection), selection->deadline);
  list_remove(&wait->link);
  drain(wait->epoll);
}

#else

#define FIRST_PAUSE (NSEC_PER_SEC / 2000)
#define LONGEST_PAUSE (NSEC_PER_SEC / 50)

static void wait_for_several(struct selection *selection) {
  int64_t left = selection->deadline - backend_base_now(selection->backend);

  if (selection->pause < FIRST_PAUSE) selection->pause = FIRST_PAUSE;
  io_sleep(left < selection->pause ? (left > 0 ? left : 0) : selection->pause);
  if ((selection->pause *= 2) > LONGEST_PAUSE) selection->pause = LONGEST_PAUSE;
}

#endif

/* libev has no word for exceptional conditions. */
static bool one_will_do_p(const struct selection *selection) {
  return count_of(selection) == 1 && !selection->deceived && !selection->wait &&
         !(fds_of(selection)[0].events & POLLPRI);
}

static void wait_for_one(struct selection *selection, const struct pollfd *pollfd) {
  int events = pollfd->events & (POLLIN | POLLOUT);

  VALUE subject = rb_ary_entry(subject_of(selection), 0);
  io_wait_ready_until(selection->backend, pollfd->fd, events, subject, selection->deadline);
  selection->deceived = true;   /* unless the next look finds something */
}

static void wait_for_time(const struct selection *selection) {
  int64_t left = selection->deadline - backend_base_now(selection->backend);

  io_sleep(left > INT64_MAX / 2 ? INT64_MAX / 2 : left < 0 ? 0 : left);
}

static void wait_for_any(struct selection *selection) {
  if (count_of(selection) == 0) wait_for_time(selection);
  else if (one_will_do_p(selection)) wait_for_one(selection, fds_of(selection));
  else wait_for_several(selection);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bool over_p(const struct selection *selection) {
  return selection->deadline != CLOCK_NEVER &&
         backend_base_now(selection->backend) >= selection->deadline;
}

static VALUE run(VALUE argument) {
  struct selection *selection = (struct selection *)argument;

  for (;; wait_for_any(selection)) {
    bool last = over_p(selection);
    gather(selection);
    look(selection);
    VALUE arrays = answer(selection);
    if (!NIL_P(arrays) || last) return arrays;
  }
}

VALUE io_select(VALUE readables, VALUE writables, VALUE exceptables, int64_t timeout) {
  struct backend_base *backend = backend_base_current();
  struct selection selection = {
    .backend = backend, .sets = { readables, writables, exceptables }, .memory = Qnil,
    .deadline = timeout < 0 ? CLOCK_NEVER : backend_base_now(backend) + timeout,
  };

  io_snooze(backend);
  return rb_ensure(run, (VALUE)&selection, give_up, (VALUE)&selection);
}
