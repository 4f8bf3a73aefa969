/* failing_calls.c - preloaded: has system calls fail that the extension makes, or libev for it, by chance and from a seed.
 *
 * Only those: what Ruby itself calls goes through, for Ruby gives up when its timer or its heap fails. Who calls is told by the
 * address to return to. Off until failing_calls_set says how often; the ring may be opened with a few entries
 * from the beginning (FAILING_CALLS_RING), so that completions overflow and submissions come in parts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <netdb.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fcntl.h>

static double harmless, harmful;
static uint64_t state, struck[2];

void failing_calls_set(double new_harmless, double new_harmful, uint64_t seed) {
  harmless = new_harmless;
  harmful = new_harmful;
  state = seed;
}

uint64_t failing_calls_count(int which) { return struck[which]; }

static uint64_t draw(void) {
  uint64_t x = __atomic_add_fetch(&state, UINT64_C(0x9e3779b97f4a7c15), __ATOMIC_RELAXED);

  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

static int in_library(void *address, const char *name) {
  Dl_info info;

  return dladdr(address, &info) && info.dli_fname && strstr(info.dli_fname, name);
}

static int in_extension(void *address) { return in_library(address, "polyphony_ext") || in_library(address, "polyphony_http_ext"); }

/* What the web server is made of: their memory is refused like ours. */
static int in_protocol(void *address) { return in_library(address, "libnghttp2.so") || in_library(address, "libz.so") || in_library(address, "polyphony_http_ext"); }

static int ours(void *address) { return in_extension(address) || in_library(address, "libev.so"); }

static int drawn(double chance) { return chance > 0 && (double)(draw() >> 11) / (UINT64_C(1) << 53) < chance; }

static int strikes(double chance, int which, void *caller) {
  if (!drawn(chance) || !ours(caller)) return 0;
  __atomic_add_fetch(&struck[which], 1, __ATOMIC_RELAXED);
  return 1;
}

#define CALLER __builtin_return_address(0)
#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

/* Nothing comes of it: the caller tries again. */
#define INTERRUPTED(type, name, parameters, ...) \
  type name parameters { \
    if (strikes(harmless, 0, CALLER)) { errno = EINTR; return -1; } \
    static type (*next) parameters; \
    if (!next) *(void **)&next = real(#name); \
    return next(__VA_ARGS__); \
  }

/* There is no room for what it would make. */
#define REFUSED(type, name, error, failure, parameters, ...) \
  type name parameters { \
    if (strikes(harmful, 1, CALLER)) { errno = error; return failure; } \
    static type (*next) parameters; \
    if (!next) *(void **)&next = real(#name); \
    return next(__VA_ARGS__); \
  }

INTERRUPTED(ssize_t, read, (int fd, void *buf, size_t n), fd, buf, n)
INTERRUPTED(ssize_t, write, (int fd, const void *buf, size_t n), fd, buf, n)
INTERRUPTED(ssize_t, writev, (int fd, const struct iovec *iov, int n), fd, iov, n)
INTERRUPTED(ssize_t, pread, (int fd, void *buf, size_t n, off_t at), fd, buf, n, at)
INTERRUPTED(ssize_t, pwrite, (int fd, const void *buf, size_t n, off_t at), fd, buf, n, at)
INTERRUPTED(ssize_t, recv, (int fd, void *buf, size_t n, int flags), fd, buf, n, flags)
INTERRUPTED(ssize_t, send, (int fd, const void *buf, size_t n, int flags), fd, buf, n, flags)
INTERRUPTED(ssize_t, recvmsg, (int fd, struct msghdr *msg, int flags), fd, msg, flags)
INTERRUPTED(ssize_t, sendmsg, (int fd, const struct msghdr *msg, int flags), fd, msg, flags)
INTERRUPTED(ssize_t, splice, (int in, off64_t *from, int out, off64_t *to, size_t n, unsigned flags), in, from, out, to, n, flags)
INTERRUPTED(ssize_t, sendto, (int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t length), fd, buf, n, flags, to, length)
INTERRUPTED(ssize_t, tee, (int in, int out, size_t n, unsigned flags), in, out, n, flags)
INTERRUPTED(ssize_t, sendfile, (int out, int in, off_t *from, size_t n), out, in, from, n)
INTERRUPTED(ssize_t, preadv2, (int fd, const struct iovec *iov, int n, off_t at, int flags), fd, iov, n, at, flags)
INTERRUPTED(ssize_t, pwritev, (int fd, const struct iovec *iov, int n, off_t at), fd, iov, n, at)
INTERRUPTED(ssize_t, pwritev2, (int fd, const struct iovec *iov, int n, off_t at, int flags), fd, iov, n, at, flags)
INTERRUPTED(int, waitid, (idtype_t type, id_t id, siginfo_t *info, int options), type, id, info, options)
INTERRUPTED(int, poll, (struct pollfd *fds, nfds_t n, int ms), fds, n, ms)
INTERRUPTED(int, ppoll, (struct pollfd *fds, nfds_t n, const struct timespec *time, const sigset_t *mask), fds, n, time, mask)
INTERRUPTED(int, epoll_wait, (int fd, struct epoll_event *events, int n, int ms), fd, events, n, ms)

REFUSED(int, socket, EMFILE, -1, (int family, int type, int protocol), family, type, protocol)
REFUSED(int, socketpair, EMFILE, -1, (int family, int type, int protocol, int fds[2]), family, type, protocol, fds)
REFUSED(int, pipe2, EMFILE, -1, (int fds[2], int flags), fds, flags)
REFUSED(int, eventfd, EMFILE, -1, (unsigned initial, int flags), initial, flags)
REFUSED(int, epoll_create1, EMFILE, -1, (int flags), flags)
REFUSED(void *, mmap, ENOMEM, MAP_FAILED, (void *at, size_t n, int prot, int flags, int fd, off_t offset), at, n, prot, flags, fd, offset)
REFUSED(int, listen, EADDRINUSE, -1, (int fd, int backlog), fd, backlog)
REFUSED(int, bind, EADDRINUSE, -1, (int fd, const struct sockaddr *addr, socklen_t n), fd, addr, n)
REFUSED(int, fsync, EIO, -1, (int fd), fd)
REFUSED(int, fdatasync, EIO, -1, (int fd), fd)
REFUSED(int, statx, ENOMEM, -1, (int at, const char *path, int flags, unsigned mask, struct statx *into), at, path, flags, mask, into)
REFUSED(DIR *, opendir, EMFILE, NULL, (const char *path), path)
REFUSED(FILE *, fopen, EMFILE, NULL, (const char *path, const char *mode), path, mode)
REFUSED(int, pthread_create, EAGAIN, EAGAIN, (pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *argument),
        thread, attr, run, argument)
REFUSED(int, getaddrinfo, ENOMEM, EAI_MEMORY, (const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found),
        host, service, hints, found)

/* The limit of what a user may watch: by chance, and so many times from now on. */
static int refused_watches;

void failing_calls_refuse_watches(int count) { refused_watches = count; }

int epoll_ctl(int fd, int operation, int watched, struct epoll_event *event) {
  int refused = operation == EPOLL_CTL_ADD && refused_watches > 0 && ours(CALLER);

  if (refused) refused_watches--;
  if (refused || (operation == EPOLL_CTL_ADD && strikes(harmful, 1, CALLER))) { errno = ENOSPC; return -1; }
  return REAL(epoll_ctl)(fd, operation, watched, event);
}

/* libev is opened so that libc's functions come before those that were preloaded. */
void *dlopen(const char *name, int flags) { return REAL(dlopen)(name, flags & ~RTLD_DEEPBIND); }

int openat(int folder, const char *path, int flags, ...) {
  va_list list;

  va_start(list, flags);
  mode_t mode = va_arg(list, mode_t);
  va_end(list);
  if (strikes(harmful, 1, CALLER)) { errno = EMFILE; return -1; }
  return REAL(openat)(folder, path, flags, mode);
}

int fcntl(int fd, int command, ...) {
  va_list list;

  va_start(list, command);
  void *argument = va_arg(list, void *);
  va_end(list);
  if (command == F_DUPFD_CLOEXEC && strikes(harmful, 1, CALLER)) { errno = EMFILE; return -1; }
  return REAL(fcntl)(fd, command, argument);
}

/* Memory of the extension's own, and of the libraries of the web server: Ruby's is asked for by Ruby. Who asks again has it. libev ends the
 * process, as its manual says. */
#ifdef __GLIBC__
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *block, size_t n);

/* What the web server asks for in C, and its libraries, counted from now on: the one with this number is refused, once. 0: none. */
static long refused_request;

void failing_calls_refuse_memory(long number) { refused_request = number; }

long failing_calls_memory_left(void) { return refused_request; }

static int short_of_memory(void *caller) {
  static __thread int refused;

  if (refused_request > 0 && in_protocol(caller) && --refused_request == 0) return 1;
  if (!drawn(harmful) || !(in_extension(caller) || in_protocol(caller))) return 0;
  refused = !refused;
  if (!refused) return 0;
  __atomic_add_fetch(&struck[1], 1, __ATOMIC_RELAXED);
  errno = ENOMEM;
  return 1;
}

void *malloc(size_t n) { return short_of_memory(CALLER) ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return short_of_memory(CALLER) ? NULL : __libc_calloc(n, size); }
void *realloc(void *block, size_t n) { return short_of_memory(CALLER) ? NULL : __libc_realloc(block, n); }
#endif

int accept4(int fd, struct sockaddr *addr, socklen_t *n, int flags) {
  if (strikes(harmless, 0, CALLER)) { errno = EINTR; return -1; }
  if (strikes(harmful, 1, CALLER)) { errno = EMFILE; return -1; }
  return REAL(accept4)(fd, addr, n, flags);
}

int connect(int fd, const struct sockaddr *addr, socklen_t n) {
  if (strikes(harmful, 1, CALLER)) { errno = ECONNREFUSED; return -1; }
  return REAL(connect)(fd, addr, n);
}

/* pidfd_open, and what glibc has no name for. */
long syscall(long number, ...) {
  long a[6];
  va_list list;

  va_start(list, number);
  for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
  va_end(list);
  if (number == SYS_pidfd_open && strikes(harmful, 1, CALLER)) { errno = EMFILE; return -1; }
  return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- liburing, which makes its calls itself ---------------------------------------------------- */

int io_uring_queue_init_params(unsigned entries, struct io_uring *ring, struct io_uring_params *params) {
  const char *few = getenv("FAILING_CALLS_RING");

  if (strikes(harmful, 1, CALLER)) return draw() % 2 ? -EMFILE : -ENOMEM;
  if (few && atoi(few) > 0) {
    entries = (unsigned)atoi(few);
    params->cq_entries = entries;
  }
  return REAL(io_uring_queue_init_params)(entries, ring, params);
}

/* The ring of a probe. */
int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags) {
  if (strikes(harmful, 1, CALLER)) return -ENOMEM;
  return REAL(io_uring_queue_init)(entries, ring, flags);
}

int io_uring_register_buf_ring(struct io_uring *ring, struct io_uring_buf_reg *reg, unsigned flags) {
  if (strikes(harmful, 1, CALLER)) return -ENOMEM;
  return REAL(io_uring_register_buf_ring)(ring, reg, flags);
}

int io_uring_register_probe(struct io_uring *ring, struct io_uring_probe *probe, unsigned n) {
  if (strikes(harmful, 1, CALLER)) return -ENOMEM;
  return REAL(io_uring_register_probe)(ring, probe, n);
}

int io_uring_ring_dontfork(struct io_uring *ring) {
  if (strikes(harmful, 1, CALLER)) return -ENOMEM;
  return REAL(io_uring_ring_dontfork)(ring);
}

/* What the kernel says when a signal came, when it is short of memory, when completions have to be taken first. */
static int refusal(void) {
  static const int errors[] = { EINTR, EAGAIN, EBUSY };

  return -errors[draw() % 3];
}

/* The kernel takes some entries only: the rest is hidden from liburing for the time of the call. */
static unsigned hide_some(struct io_uring *ring) {
  unsigned waiting = ring->sq.sqe_tail - ring->sq.sqe_head, tail = ring->sq.sqe_tail;

  ring->sq.sqe_tail = ring->sq.sqe_head + 1 + draw() % (waiting - 1);
  return tail;
}

/* Who gets a part taken does not wait: so it is in the kernel. */
static int submit_some(struct io_uring *ring) {
  unsigned tail = hide_some(ring);
  int rc = REAL(io_uring_submit)(ring);

  ring->sq.sqe_tail = tail;
  return rc;
}

#define ENTERING(name, parameters, ...) \
  int name parameters { \
    if (strikes(harmless, 0, CALLER)) return refusal(); \
    if (ring->sq.sqe_tail - ring->sq.sqe_head > 1 && strikes(harmless, 0, CALLER)) return submit_some(ring); \
    return REAL(name)(__VA_ARGS__); \
  }

ENTERING(io_uring_submit, (struct io_uring *ring), ring)
ENTERING(io_uring_submit_and_get_events, (struct io_uring *ring), ring)
ENTERING(io_uring_submit_and_wait_timeout, (struct io_uring *ring, struct io_uring_cqe **cqe, unsigned n, struct __kernel_timespec *ts, sigset_t *mask),
         ring, cqe, n, ts, mask)
