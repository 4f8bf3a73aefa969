/* io_process.c - waiting for children; see io.h
 *
 * Nothing is reaped before its status can be returned: what is waited for is only that there is
 * something to reap, and the reaping follows without a switch in between, by Ruby's own method, which
 * knows about errors, ignored SIGCHLD and the like. For the end of one child that is a pidfd. For any
 * child, any of a group, or one that may be stopped, the kernel has nothing but a blocking call, so
 * a thread makes it (with WNOWAIT) and tells us. It cannot be called off, so it outlives a wait that is
 * cancelled, and the next wait for the same children finds it there: however often a wait is
 * cancelled, there is at most one thread for each.
 *
 * Who waits for any child must not get one that somebody waits for by its number: such a status is
 * kept for that one (Ruby 3.1 and 3.2 favour these waits in the same way, among threads). */
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
#define PAUSE 1000000           /* ns */
#define PATIENCE 5              /* pauses */
#define CHILD "a process to end"

/* ---- watches --------------------------------------------------------------------------------- */

struct watch {
  struct list link;             /* in `watches`; this and users: under the GVL */
  unsigned users;               /* fibers that wait for it */
  idtype_t type;
  id_t id;
  int options;                  /* WUNTRACED, WCONTINUED */
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

  do rc = waitid(watch->type, watch->id, &info, WEXITED | WNOWAIT | watch->options);
  while (rc < 0 && errno == EINTR);
  tell_users(watch);            /* also when there is no such child: the reaping will say so */
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

static struct watch *find_watch(const struct watch *like) {
  list_each(node, &watches) {
    struct watch *watch = list_entry(node, struct watch, link);
    bool same = watch->type == like->type && watch->id == like->id && watch->options == like->options;
    if (same && !done_p(watch)) return watch;
  }
  return NULL;
}

/* The threads are the parent's: nobody will tell of these children any more, so they count as told. Who waited is not here either, and may not
 * have left: those stay in the list. */
static void forget_watches(void) {
  pthread_mutex_init(&lock, NULL);
  list_each(node, &watches) {
    struct watch *watch = list_entry(node, struct watch, link);
    if (watch->fd >= 0) close(watch->fd);
    if (watch->write_fd >= 0) close(watch->write_fd);
    watch->fd = watch->write_fd = -1;
    watch->done = true;
  }
}

/* NULL when there is no thread or memory to be had. */
static struct watch *start_watch(const struct watch *like) {
  static bool prepared;
  struct watch *watch = malloc(sizeof(*watch));

  if (!watch) return NULL;
  if (!prepared) pthread_atfork(NULL, NULL, forget_watches);
  prepared = true;
  *watch = *like;
  if (start_thread(watch) < 0) {
    free(watch);
    return NULL;
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

static bool join_watch(struct watch *watch) {
  if (watch->users == 0 && open_ends(watch) < 0) return false;
  watch->users++;
  return true;
}

static VALUE leave_watch(VALUE argument) {
  struct watch *watch = (struct watch *)argument;

  if (--watch->users == 0) close_ends(watch);
  return Qnil;
}

static VALUE wait_for_watch(VALUE argument) {
  struct watch *watch = (struct watch *)argument;

  if (!done_p(watch)) io_wait_told(backend_base_current(), watch->fd, CHILD, Qnil);
  return Qnil;
}

/* Without threads or descriptors left, there is still looking again and again. */
static void pause_a_while(void) { io_sleep(PAUSE); }

static void await_watch(const struct watch *like) {
  bury_done();
  struct watch *watch = find_watch(like);
  if (!watch) watch = start_watch(like);
  if (watch && join_watch(watch)) rb_ensure(wait_for_watch, (VALUE)watch, leave_watch, (VALUE)watch);
  else pause_a_while();
}

/* ---- pidfd ----------------------------------------------------------------------------------- */

int io_open_pidfd(int pid) {
#ifdef SYS_pidfd_open
  return (int)syscall(SYS_pidfd_open, pid, 0);  /* close-on-exec always */
#else
  (void)pid;
  errno = ENOSYS;
  return -1;
#endif
}

struct pidfd {
  int fd, pid;
};

static VALUE wait_for_pidfd(VALUE argument) {
  struct pidfd *child = (struct pidfd *)argument;

  io_wait_told(backend_base_current(), child->fd, CHILD, INT2NUM(child->pid));
  return Qnil;
}

static VALUE close_pidfd(VALUE argument) {
  struct pidfd *child = (struct pidfd *)argument;

  loop_forget_fd(&backend_base_current()->loop, child->fd);
  close(child->fd);
  return Qnil;
}

static struct watch watch_for(int pid, int flags) {
  struct watch watch = { .options = flags & (WUNTRACED | WCONTINUED), .fd = -1, .write_fd = -1 };

  watch.type = pid > 0 ? P_PID : pid == -1 ? P_ALL : P_PGID;
  if (pid != -1) watch.id = (id_t)(pid > 0 ? pid : pid == 0 ? getpgrp() : -pid);
  return watch;
}

static void await_child(int pid, int flags) {
  struct watch watch = watch_for(pid, flags);
  struct pidfd child = { pid > 0 && !watch.options ? io_open_pidfd(pid) : -ENOSYS, pid };

  if (child.fd >= 0) rb_ensure(wait_for_pidfd, (VALUE)&child, close_pidfd, (VALUE)&child);
  else if (child.fd == -ENOSYS || errno == ENOSYS || errno == EPERM) await_watch(&watch);
  else if (errno != ESRCH) pause_a_while();
}

/* ---- reaping --------------------------------------------------------------------------------- */

static VALUE stock_wait;        /* Method: Process::Status.wait as Ruby has it */
static VALUE cWaiter;           /* Process::Waiter, the thread that Process.detach makes */
static VALUE kept;              /* Hash: statuses reaped for somebody else, by pid */
static st_table *claims;        /* how many wait for a child, by its pid */

/* With WNOHANG: neither waits nor asks a fiber scheduler. nil when no child has news, a status whose
 * pid is -1 when there is no such child. */
static VALUE reap(int pid, int flags) {
  VALUE arguments[] = { INT2NUM(pid), INT2NUM(flags | WNOHANG) };

  return rb_method_call(2, arguments, stock_wait);
}

int io_process_pid(VALUE status) { return NUM2INT(rb_funcall(status, id_pid, 0)); }

void io_process_claim(int pid, int by) {
  st_data_t count = 0;

  if (pid <= 0) return;
  st_lookup(claims, (st_data_t)pid, &count);
  count += (st_data_t)by;
  if ((int)count > 0) st_insert(claims, (st_data_t)pid, count);
  else st_delete(claims, &(st_data_t){ (st_data_t)pid }, NULL);
}

static bool claimed_p(int pid) { return st_lookup(claims, (st_data_t)pid, NULL); }

void io_process_keep(VALUE status) { rb_hash_aset(kept, INT2NUM(io_process_pid(status)), status); }

static int find_unclaimed(VALUE pid, VALUE status, VALUE found) {
  (void)status;
  if (claimed_p(NUM2INT(pid))) return ST_CONTINUE;
  *(VALUE *)found = pid;
  return ST_STOP;
}

/* nil if there is none. */
static VALUE take_kept(int pid) {
  VALUE key = INT2NUM(pid);

  if (pid == -1) rb_hash_foreach(kept, find_unclaimed, (VALUE)&key);
  return rb_hash_delete(kept, key);
}

/* A child that was only stopped, or goes on, will have a last status for those who wait for it. */
static bool ended_p(VALUE status) {
  int raw = NUM2INT(rb_funcall(status, id_to_i, 0));

  return WIFEXITED(raw) || WIFSIGNALED(raw);
}

/* The child with news; 0 if there is none, or -errno. Reaps nothing. */
static int peek(int pid, int flags) {
  struct watch watch = watch_for(pid, flags);
  siginfo_t info = { .si_pid = 0 };
  int rc;

  do rc = waitid(watch.type, watch.id, &info, WEXITED | WNOWAIT | WNOHANG | watch.options);
  while (rc < 0 && errno == EINTR);
  return rc < 0 ? -errno : info.si_pid;
}

/* A thread of Process.detach cannot be told of a status that was reaped by another. */
static bool detached_p(int pid) {
  VALUE threads = rb_thread_alone() || pid <= 0 ? Qnil : rb_funcall(rb_cThread, id_list, 0);

  for (long i = 0; !NIL_P(threads) && i < RARRAY_LEN(threads); i++) {
    VALUE thread = RARRAY_AREF(threads, i);
    if (RTEST(rb_obj_is_kind_of(thread, cWaiter)) && io_process_pid(thread) == pid) return true;
  }
  return false;
}

/* What is kept under a number that is a child's now was another's. */
static VALUE look_for(int pid, int flags) {
  VALUE status = reap(pid, flags), before = NIL_P(status) ? Qnil : take_kept(pid);

  return NIL_P(before) || io_process_pid(status) > 0 ? status : before;
}

/* Any child, or any of a group. *others: the next one is a thread's, which is about to reap it. */
static VALUE look_around(int pid, int flags, bool *others) {
  VALUE status = pid == -1 ? take_kept(pid) : Qnil;
  int next = 0;

  while (NIL_P(status) && (next = peek(pid, flags)) > 0) {
    if ((*others = detached_p(next))) return Qnil;
    status = look_for(next, flags);
    if (!NIL_P(status) && io_process_pid(status) < 0) status = Qnil;  /* another thread was first */
    if (NIL_P(status) || !claimed_p(next) || !ended_p(status)) continue;
    io_process_keep(status);
    status = Qnil;
  }
  return next < 0 ? reap(pid, flags) : status;          /* ECHILD and the like are stock's to tell */
}

static VALUE look(int pid, int flags, bool *others) {
  *others = false;
  return pid > 0 ? look_for(pid, flags) : look_around(pid, flags, others);
}

/* A thread that is about to reap its child is left some time for it: there may be others behind. */
static VALUE look_without_waiting(int pid, int flags) {
  struct timeval pause = { .tv_usec = PAUSE / 1000 };
  bool others;
  VALUE status = look(pid, flags, &others);

  for (int i = 0; others && i < PATIENCE; i++) {
    rb_thread_wait_for(pause);
    status = look(pid, flags, &others);
  }
  return status;
}

struct process_wait {
  int pid, flags;
  bool in_turn;
};

static VALUE wait_for_child(VALUE argument) {
  struct process_wait *wait = (struct process_wait *)argument;
  VALUE status;
  bool others;

  if (wait->in_turn) io_snooze(backend_base_current());
  while (NIL_P(status = look(wait->pid, wait->flags, &others))) {
    if (others) pause_a_while();
    else await_child(wait->pid, wait->flags);
  }
  return status;
}

static VALUE end_claim(VALUE pid) {
  io_process_claim((int)pid, -1);
  return Qnil;
}

/* Claimed before any switch: from the moment on that it is asked for, the status is this fiber's. */
static VALUE process_wait(struct process_wait *wait) {
  backend_base_keeps_statuses = true;
  if (wait->flags & WNOHANG) return look_without_waiting(wait->pid, wait->flags);
  io_process_claim(wait->pid, 1);
  return rb_ensure(wait_for_child, (VALUE)wait, end_claim, (VALUE)wait->pid);
}

VALUE io_process_wait(int pid, int flags) {
  return process_wait(&(struct process_wait){ pid, flags, true });
}

/* Whether the child has a pid that nobody knows: that of system, and of a command that spawn could not
 * run. The first frame is the hook's. */
static bool nameless_p(void) {
  VALUE frames[2];
  int lines[2];

  if (rb_profile_frames(0, 2, frames, lines) < 2) return false;
  VALUE name = rb_profile_frame_method_name(frames[1]);
  if (NIL_P(name)) return false;
  return strcmp(StringValueCStr(name), "system") == 0 || strcmp(StringValueCStr(name), "spawn") == 0;
}

static VALUE detach(VALUE pid) { return rb_detach_process((rb_pid_t)pid); }

/* A child that nobody can wait for any more would be a zombie to the end of the program. */
static void let_go(int pid) {
  VALUE error = rb_errinfo();
  int state;

  if (!RTEST(rb_obj_is_kind_of(error, rb_eException)) || !nameless_p()) return;
  rb_protect(detach, (VALUE)pid, &state);
  rb_set_errinfo(error);
}

static VALUE process_wait_body(VALUE argument) {
  return process_wait((struct process_wait *)argument);
}

VALUE io_process_wait_hook(int pid, int flags) {
  struct process_wait wait = { pid, flags, false };
  int state;
  VALUE status = rb_protect(process_wait_body, (VALUE)&wait, &state);

  if (!state) return status;
  let_go(pid);
  rb_jump_tag(state);
}

void io_process_await(int pid) {
  if (peek(pid, 0) == 0) await_child(pid, 0);
}

VALUE io_waitpid(int pid) {
  VALUE status = io_process_wait(pid, 0);
  int reaped = io_process_pid(status), error = reaped < 0 ? peek(pid, 0) : 0;

  if (reaped < 0) error_raise_errno(error < 0 ? error : -ECHILD, "waitpid(2)");
  return rb_ary_new_from_args(2, INT2NUM(reaped), rb_funcall(status, id_to_i, 0));
}

/* The children are the parent's. */
void io_process_after_fork(void) {
  st_clear(claims);
  rb_hash_clear(kept);
}

void io_process_init(void) {
  VALUE status = rb_path2class("Process::Status");

  claims = st_init_numtable();
  rb_gc_register_address(&stock_wait);
  rb_gc_register_address(&kept);
  rb_gc_register_address(&cWaiter);
  stock_wait = rb_obj_method(status, ID2SYM(rb_intern("wait")));
  kept = rb_hash_new();
  cWaiter = rb_path2class("Process::Waiter");
}
