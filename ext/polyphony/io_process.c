/* io_process.c - waiting for children; see io.h
 *
 * Nothing is reaped before its status can be returned: what is waited for is only that there is
 * something to reap, and wait4 follows without a switch in between. For one child that is a pidfd.
 * For any child, or any of a group, the kernel has nothing but a blocking call, so a thread makes
 * it (with WNOWAIT) and tells us. It cannot be called off, so it outlives a wait that is cancelled,
 * and the next wait for the same children finds it there: however often a wait is cancelled, there
 * is at most one thread for each. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif
#include "io.h"

#define WATCH_STACK (64 * 1024)

/* ---- watches --------------------------------------------------------------------------------- */

struct watch {
  struct list link;             /* in `watches`; this and users: under the GVL */
  unsigned users;               /* fibers that wait for it */
  idtype_t type;
  id_t id;
  int fd;                       /* readable when it is done; -1 without users */
  int write_fd;                 /* likewise; under the lock */
  bool done;                    /* the thread is through with it; under the lock */
};

static struct list watches = { &watches, &watches };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The byte tells, not the end of the file: a forked child may have the write end, too. */
static void tell_users(struct watch *watch) {
  ssize_t written;

  pthread_mutex_lock(&lock);
  watch->done = true;
  if (watch->write_fd >= 0) {
    do written = write(watch->write_fd, "", 1);
    while (written < 0 && errno == EINTR);
  }
  pthread_mutex_unlock(&lock);
}

static void *run_watch(void *argument) {
  struct watch *watch = argument;
  siginfo_t info;
  int rc;

  do rc = waitid(watch->type, watch->id, &info, WEXITED | WNOWAIT);
  while (rc < 0 && errno == EINTR);
  tell_users(watch);            /* also when there is no such child: wait4 will say so */
  return NULL;
}

/* All signals are blocked in the new thread: they are Ruby's. */
static int start_thread(struct watch *watch) {
  pthread_attr_t attr;
  pthread_t thread;
  sigset_t all, before;
  int rc = pthread_attr_init(&attr);

  if (rc) return -rc;
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attr, WATCH_STACK);
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  rc = pthread_create(&thread, &attr, run_watch, watch);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attr);
  return -rc;
}

static bool done_p(struct watch *watch) {
  pthread_mutex_lock(&lock);
  bool done = watch->done;
  pthread_mutex_unlock(&lock);
  return done;
}

static void bury_done(void) {
  for (struct list *node = watches.next, *next; node != &watches; node = next) {
    struct watch *watch = list_entry(node, struct watch, link);
    next = node->next;
    if (watch->users > 0 || !done_p(watch)) continue;
    list_remove(node);
    free(watch);
  }
}

static struct watch *find_watch(idtype_t type, id_t id) {
  list_each(node, &watches) {
    struct watch *watch = list_entry(node, struct watch, link);
    if (watch->type == type && watch->id == id && !done_p(watch)) return watch;
  }
  return NULL;
}

/* The threads are the parent's; so is the memory, which they may be about to use. */
static void forget_watches(void) {
  pthread_mutex_init(&lock, NULL);
  list_each(node, &watches) {
    struct watch *watch = list_entry(node, struct watch, link);
    if (watch->fd >= 0) close(watch->fd);
    if (watch->write_fd >= 0) close(watch->write_fd);
    watch->fd = watch->write_fd = -1;
  }
  list_init(&watches);
}

static struct watch *start_watch(idtype_t type, id_t id) {
  static bool prepared;
  struct watch *watch = malloc(sizeof(*watch));

  if (!watch) rb_memerror();
  if (!prepared) pthread_atfork(NULL, NULL, forget_watches);
  prepared = true;
  *watch = (struct watch){ .type = type, .id = id, .fd = -1, .write_fd = -1 };
  int rc = start_thread(watch);
  if (rc < 0) {
    free(watch);
    error_raise_errno(rc, "starting a thread to wait for children");
  }
  list_push(&watches, &watch->link);
  return watch;
}

static int open_ends(struct watch *watch) {
  int fds[2];

  if (rb_cloexec_pipe(fds) < 0) return -errno;
  pthread_mutex_lock(&lock);
  watch->fd = fds[0];
  watch->write_fd = fds[1];
  pthread_mutex_unlock(&lock);
  return 0;
}

static void close_ends(struct watch *watch) {
  if (watch->fd < 0) return;    /* forked meanwhile */
  loop_forget_fd(&backend_base_current()->loop, watch->fd);
  pthread_mutex_lock(&lock);
  close(watch->fd);
  close(watch->write_fd);
  watch->fd = watch->write_fd = -1;
  pthread_mutex_unlock(&lock);
}

static void join_watch(struct watch *watch) {
  int rc = watch->users == 0 ? open_ends(watch) : 0;

  if (rc < 0) error_raise_errno(rc, "waiting for a child");
  watch->users++;
}

static VALUE leave_watch(VALUE argument) {
  struct watch *watch = (struct watch *)argument;

  if (--watch->users == 0) close_ends(watch);
  return Qnil;
}

static VALUE wait_for_watch(VALUE argument) {
  struct watch *watch = (struct watch *)argument;

  if (!done_p(watch)) io_wait_ready(backend_base_current(), watch->fd, POLLIN, Qnil);
  return Qnil;
}

static void await_any(idtype_t type, id_t id) {
  bury_done();
  struct watch *watch = find_watch(type, id);
  if (!watch) watch = start_watch(type, id);
  join_watch(watch);
  rb_ensure(wait_for_watch, (VALUE)watch, leave_watch, (VALUE)watch);
}

/* ---- pidfd ----------------------------------------------------------------------------------- */

static int open_pidfd(int pid) {
#ifdef SYS_pidfd_open
  return (int)syscall(SYS_pidfd_open, pid, 0);  /* close-on-exec always */
#else
  (void)pid;
  errno = ENOSYS;
  return -1;
#endif
}

static VALUE wait_for_pidfd(VALUE fd) {
  io_wait_ready(backend_base_current(), (int)fd, POLLIN, Qnil);
  return Qnil;
}

static VALUE close_pidfd(VALUE fd) {
  loop_forget_fd(&backend_base_current()->loop, (int)fd);
  close((int)fd);
  return Qnil;
}

static void await_pid(int pid) {
  int fd = open_pidfd(pid);

  if (fd >= 0) rb_ensure(wait_for_pidfd, (VALUE)fd, close_pidfd, (VALUE)fd);
  else if (errno == ENOSYS || errno == EPERM) await_any(P_PID, (id_t)pid);
  else if (errno != ESRCH) error_raise_errno(-errno, "pidfd_open(2)");
}

static void await_child(int pid) {
  if (pid > 0) await_pid(pid);
  else if (pid == -1) await_any(P_ALL, 0);
  else await_any(P_PGID, (id_t)(pid == 0 ? getpgrp() : -pid));
}

VALUE io_waitpid(int pid) {
  int status;
  pid_t reaped;

  io_snooze(backend_base_current());
  while ((reaped = wait4(pid, &status, WNOHANG, NULL)) <= 0) {
    if (reaped == 0) await_child(pid);
    else if (errno != EINTR) error_raise_errno(-errno, "waitpid(2)");
  }
  return rb_ary_new_from_args(2, INT2NUM(reaped), INT2NUM(status));
}
