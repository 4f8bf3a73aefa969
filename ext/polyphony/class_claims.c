/* class_claims.c - what a process and the workers it forks settle without a message. Layer 2.
 *
 * Polyphony::Claims are words in memory that a process shares with those it forks afterwards. Who changes a word
 * from one value to another is the only one who did, so that a task which lies in the queue of a busy worker can be
 * taken back without asking it. See lib/polyphony/core/process_pool. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "backend_base.h"
#include "errors.h"
#include "io.h"

struct claims {
  int32_t *words;               /* NULL until #initialize */
  long count;
};

static size_t size_of(const struct claims *claims) { return (size_t)claims->count * sizeof(int32_t); }

static void claims_free(void *pointer) {
  struct claims *claims = pointer;

  if (claims->words) munmap(claims->words, size_of(claims));
  xfree(claims);
}

static size_t claims_memsize(const void *pointer) { return sizeof(struct claims) + size_of(pointer); }

static const rb_data_type_t claims_type = {
  .wrap_struct_name = "Polyphony::Claims",
  .function = {
    .dsize = claims_memsize,
    .dfree = claims_free,
  },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static VALUE Claims_allocate(VALUE klass) {
  struct claims *claims;

  return TypedData_Make_Struct(klass, struct claims, &claims_type, claims);
}

static struct claims *get(VALUE self) {
  return typed_data(self, &claims_type);
}

/* All of them 0. */
static VALUE Claims_initialize(VALUE self, VALUE count) {
  struct claims *claims = get(self);
  long words = NUM2LONG(count);

  if (words < 1 || words > 1 << 20) rb_raise(rb_eArgError, "expected 1 to 1048576 words, got %ld", words);
  if (claims->words) rb_raise(rb_eArgError, "these claims are there already");
  void *memory = mmap(NULL, (size_t)words * sizeof(int32_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) error_raise_errno(-errno, "mmap(2)");
  claims->words = memory;
  claims->count = words;
  return self;
}

static int32_t *word(VALUE self, VALUE index) {
  struct claims *claims = get(self);
  long i = NUM2LONG(index);

  if (i < 0 || i >= claims->count) rb_raise(rb_eIndexError, "there are %ld claims, none is number %ld", claims->count, i);
  return claims->words + i;
}

static VALUE Claims_aref(VALUE self, VALUE index) { return INT2NUM(__atomic_load_n(word(self, index), __ATOMIC_ACQUIRE)); }

static VALUE Claims_aset(VALUE self, VALUE index, VALUE value) {
  __atomic_store_n(word(self, index), NUM2INT(value), __ATOMIC_RELEASE);
  return value;
}

/* Whether it was +from+, and is +to+ now. */
static VALUE Claims_change(VALUE self, VALUE index, VALUE from, VALUE to) {
  int32_t expected = NUM2INT(from);
  bool done = __atomic_compare_exchange_n(word(self, index), &expected, NUM2INT(to), false, __ATOMIC_ACQ_REL,
                                          __ATOMIC_ACQUIRE);
  return done ? Qtrue : Qfalse;
}

/* ---- a worker lives as long as its parent ------------------------------------------------------ */

/* The socket whose other end the parent has; the parent itself. */
static struct pollfd lifelines[2] = { { .fd = -1 }, { .fd = -1 } };

/* A thread without Ruby: nothing that the worker computes, in Ruby or in C, holds it up. poll overlooks a descriptor
 * that is negative. */
static void *follow(void *nothing) {
  while (poll(lifelines, 2, -1) < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOMEM)) {}
  _exit(1);
  return nothing;
}

/* Ends this process when the parent has ended, or has closed its end of the socket. That alone would not do: the
 * parent may have forked others, which have that end open as well. */
static VALUE Polyphony_end_with(VALUE self, VALUE fd, VALUE parent) {
  pthread_t thread;
  sigset_t all, before;
  int pid = NUM2INT(parent), rc;

  if (lifelines[1].fd >= 0) close(lifelines[1].fd);     /* this is the worker of a worker */
  lifelines[0] = (struct pollfd){ .fd = NUM2INT(fd), .events = 0 };     /* the end alone */
  lifelines[1] = (struct pollfd){ .fd = io_open_pidfd(pid), .events = POLLIN };
  if (getppid() != pid) _exit(1);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  /* signals are for Ruby's threads */
  rc = pthread_create(&thread, NULL, follow, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (rc) error_raise_errno(-rc, "pthread_create(3)");
  pthread_detach(thread);
  return self;
}

/* ---- descriptors of the parent ----------------------------------------------------------------- */

static bool reserved;

static void look(struct backend_base *backend, int fd) { reserved = reserved || loop_owns_p(&backend->loop, fd); }

static bool reserved_p(int fd) {
  reserved = rb_reserved_fd_p(fd);
  backend_base_each(look, NULL, fd);
  return reserved;
}

static bool kept_p(VALUE keep, int fd) {
  if (fd <= STDERR_FILENO) return true;
  for (long i = 0; i < RARRAY_LEN(keep); i++)
    if (NUM2INT(RARRAY_AREF(keep, i)) == fd) return true;
  return reserved_p(fd);
}

/* Files and devices may stay: a log, say, which tasks write to. */
static void give_up(int fd, int dead, VALUE keep) {
  struct stat info;

  if (fd == dead || fstat(fd, &info) < 0 || (!S_ISSOCK(info.st_mode) && !S_ISFIFO(info.st_mode))) return;
  if (!kept_p(keep, fd) && dup2(dead, fd) >= 0) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static void give_up_all(int dead, VALUE keep) {
  DIR *folder = opendir("/proc/self/fd");
  struct dirent *entry;
  long most = sysconf(_SC_OPEN_MAX);

  if (!folder) folder = opendir("/dev/fd");
  while (folder && (entry = readdir(folder)))
    if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(folder)) give_up(atoi(entry->d_name), dead, keep);
  for (int fd = 0; !folder && fd < (most < 0 || most > 65536 ? 65536 : most); fd++) give_up(fd, dead, keep);
  if (folder) closedir(folder);
}

/* Takes sockets and pipes of the parent's away from a forked child, all but those with these numbers: they would
 * keep connections open. The numbers stay taken, by a socket whose other end is closed. Libraries that still
 * have one find that out when they use it, and do not write into a file that has got the number since. */
static VALUE Polyphony_give_up_descriptors(VALUE self, VALUE keep) {
  int pair[2];

  Check_Type(keep, T_ARRAY);
  for (long i = 0; i < RARRAY_LEN(keep); i++) (void)NUM2INT(RARRAY_AREF(keep, i));
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0) error_raise_errno(-errno, "socketpair(2)");
  close(pair[1]);
  give_up_all(pair[0], keep);
  close(pair[0]);
  return self;
}

void class_claims_init(void) {
  VALUE claims = rb_define_class_under(mPolyphony, "Claims", rb_cObject);

  rb_define_alloc_func(claims, Claims_allocate);
  rb_define_method(claims, "initialize", Claims_initialize, 1);
  rb_define_method(claims, "[]", Claims_aref, 1);
  rb_define_method(claims, "[]=", Claims_aset, 2);
  rb_define_method(claims, "change", Claims_change, 3);
  rb_define_module_function(mPolyphony, "__end_with__", Polyphony_end_with, 2);
  rb_define_module_function(mPolyphony, "__give_up_descriptors__", Polyphony_give_up_descriptors, 1);
}
