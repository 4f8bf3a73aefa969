/* driver_uring_setup.c - opening a ring: flags, opcodes, buffers; explaining a refusal.
 *
 * What the kernel can do is asked, never read off its version: distributions backport, sandboxes
 * take away. Flags are tried from best to plain, opcodes are listed by the kernel
 * (IORING_REGISTER_PROBE), and the two things which neither shows are tried out once per
 * process on sockets of our own (find_traits). */
#ifdef HAVE_LIBURING
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>
#include "attempt.h"
#include "driver.h"
#include "driver_uring.h"

/* Opening. */

/* DEFER_TASKRUN: completions are worked off only when we ask, in one batch, and no interrupt is
 * sent to a thread that runs Ruby (6.1). COOP_TASKRUN: no interrupt either (5.19). With both,
 * TASKRUN_FLAG tells without a system call that there is something to ask for. SUBMIT_ALL: a bad
 * op does not stop the batch behind it (5.18). */
static const unsigned ladder[] = {
  IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
    IORING_SETUP_SUBMIT_ALL,
  IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL,
  IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
  IORING_SETUP_SUBMIT_ALL,
  0,
};

static int try_rung(struct io_uring *ring, unsigned entries, unsigned flags) {
  struct io_uring_params params = {
    .flags = flags | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
    .cq_entries = entries * URING_COMPLETIONS_PER_ENTRY,
  };
  return io_uring_queue_init_params(entries, ring, &params);
}

/* Kernels before 5.12 count rings as locked memory, of which a user often has 64 KiB in all. */
static int climb_ladder(struct io_uring *ring, unsigned entries) {
  int rc = -EINVAL;

  for (unsigned i = 0; rc == -EINVAL && i < sizeof(ladder) / sizeof(*ladder); i++) {
    rc = try_rung(ring, entries, ladder[i]);
    for (unsigned less = entries / 2; rc == -ENOMEM && less >= URING_LEAST_ENTRIES; less /= 2)
      rc = try_rung(ring, less, ladder[i]);
  }
  return rc;
}

/* CUR_PERSONALITY: what is done has the rights that we have when we hand it over, not those of when the ring was opened. */
static const struct {
  unsigned flag;
  const char *name;
} required[] = {
  { IORING_FEAT_NODROP,          "IORING_FEAT_NODROP (Linux 5.5)" },
  { IORING_FEAT_SUBMIT_STABLE,   "IORING_FEAT_SUBMIT_STABLE (Linux 5.5)" },
  { IORING_FEAT_RW_CUR_POS,      "IORING_FEAT_RW_CUR_POS (Linux 5.6)" },
  { IORING_FEAT_CUR_PERSONALITY, "IORING_FEAT_CUR_PERSONALITY (Linux 5.6)" },
  { IORING_FEAT_FAST_POLL,       "IORING_FEAT_FAST_POLL (Linux 5.7)" },
  { IORING_FEAT_EXT_ARG,         "IORING_FEAT_EXT_ARG (Linux 5.11)" },
};

static const char *missing_feature(const struct io_uring *ring) {
  for (unsigned i = 0; i < sizeof(required) / sizeof(*required); i++)
    if (!(ring->features & required[i].flag)) return required[i].name;
  return NULL;
}

/* Opcodes. */

static const struct {
  uint8_t opcode;
  bool replaceable;             /* a worker can do it: it ends by itself */
  const char *name;
} opcodes[OP_KINDS] = {
  [OP_NONE]    = { IORING_OP_ASYNC_CANCEL, false, "IORING_OP_ASYNC_CANCEL" },
  [OP_READ]    = { IORING_OP_READ,         false, "IORING_OP_READ" },
  [OP_WRITE]   = { IORING_OP_WRITE,        false, "IORING_OP_WRITE" },
  [OP_WRITEV]  = { IORING_OP_WRITEV,       false, "IORING_OP_WRITEV" },
  [OP_RECV]    = { IORING_OP_RECV,         false, "IORING_OP_RECV" },
  [OP_SEND]    = { IORING_OP_SEND,         false, "IORING_OP_SEND" },
  [OP_ACCEPT]  = { IORING_OP_ACCEPT,       false, "IORING_OP_ACCEPT" },
  [OP_CONNECT] = { IORING_OP_CONNECT,      false, "IORING_OP_CONNECT" },
  [OP_POLL]    = { IORING_OP_POLL_ADD,     false, "IORING_OP_POLL_ADD" },
  [OP_CLOSE]   = { IORING_OP_CLOSE,        true,  "IORING_OP_CLOSE" },
  [OP_FSYNC]   = { IORING_OP_FSYNC,        true,  "IORING_OP_FSYNC" },
  [OP_OPEN]    = { IORING_OP_OPENAT,       true,  "IORING_OP_OPENAT" },
  [OP_STAT]    = { IORING_OP_STATX,        true,  "IORING_OP_STATX" },
};

/* Fills u->lacks; the name of an opcode that cannot be missing, or NULL. A chain is the kernel's
 * from end to end or not at all, so a replaced opcode takes DRIVER_LINK away. */
static const char *note_opcodes(struct uring *u, const struct io_uring_probe *probe) {
  u->features = DRIVER_COMPLETION | DRIVER_LINK;
  for (unsigned kind = 0; kind < OP_KINDS; kind++) {
    if (!opcodes[kind].name || io_uring_opcode_supported(probe, opcodes[kind].opcode)) continue;
    if (!opcodes[kind].replaceable) return opcodes[kind].name;
    u->lacks[kind] = true;
    u->features &= ~DRIVER_LINK;
  }
  return NULL;
}

static int ask_opcodes(struct uring *u, const char **call) {
  struct io_uring_probe *probe = calloc(1, sizeof(*probe) + 256 * sizeof(probe->ops[0]));

  *call = "io_uring_register";
  if (!probe) return -ENOMEM;
  int rc = io_uring_register_probe(&u->ring, probe, 256);
  const char *missing = rc < 0 ? NULL : note_opcodes(u, probe);
  free(probe);
  if (!missing) return rc;
  *call = missing;
  return -EOPNOTSUPP;
}

/* Traits: what only trying out can tell. The kernel does not change under a process, so that
 * one answer does for all threads and children; two threads asking at once get the same. */

enum trait {
  TRAIT_KNOWN        = 1 << 0,
  TRAIT_MULTI_ACCEPT = 1 << 1,
  TRAIT_MULTI_RECV   = 1 << 2,
};

static atomic_uint known_traits;

/* Submits the one op in the ring. An unknown flag is refused with EINVAL at once; anything else
 * (mostly no answer yet: nobody connects, nothing is sent) means that the kernel knows it.
 * 1 yes, 0 no, -errno of io_uring_enter. */
static int kernel_knows(struct io_uring *ring) {
  struct io_uring_cqe *cqe;
  int rc = io_uring_submit(ring);

  if (rc < 0) return rc;
  if (io_uring_peek_cqe(ring, &cqe) < 0) return 1;
  bool knows = cqe->res != -EINVAL;
  io_uring_cqe_seen(ring, cqe);
  return knows;
}

/* A listening socket that nobody can find: an abstract name which the kernel chooses. */
static int try_multi_accept(struct io_uring *ring) {
  struct sockaddr_un name = { .sun_family = AF_UNIX };
  int rc = 0, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

  if (fd < 0) return 0;
  if (bind(fd, (struct sockaddr *)&name, sizeof(sa_family_t)) == 0 && listen(fd, 1) == 0) {
    io_uring_prep_multishot_accept(io_uring_get_sqe(ring), fd, NULL, NULL, SOCK_CLOEXEC);
    rc = kernel_knows(ring);
  }
  close(fd);
  return rc;
}

static int try_multi_recv(struct uring *u) {
  int fds[2];

  if (uring_open_buffers(u) < 0) return 0;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0) return 0;
  struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
  io_uring_prep_recv_multishot(sqe, fds[0], NULL, 0, 0);
  sqe->flags |= IOSQE_BUFFER_SELECT;
  sqe->buf_group = URING_BUFFER_GROUP;
  int rc = kernel_knows(&u->ring);
  close(fds[0]);
  close(fds[1]);
  return rc;
}

/* On a ring of its own, because multishots stay armed until it goes. If there is no room for a
 * second ring just now, we live without multishots, and ask again for the next ring. */
static int find_traits(unsigned *traits) {
  struct uring u = { 0 };

  *traits = 0;
  if (io_uring_queue_init(4, &u.ring, 0) < 0) return 0;
  int accepts = try_multi_accept(&u.ring);
  int receives = accepts < 0 ? 0 : try_multi_recv(&u);
  uring_close(&u);
  if (accepts < 0) return accepts;
  if (receives < 0) return receives;
  *traits |= TRAIT_KNOWN;
  *traits |= (accepts ? TRAIT_MULTI_ACCEPT : 0) | (receives ? TRAIT_MULTI_RECV : 0);
  return 0;
}

static int note_traits(struct uring *u, const char **call) {
  unsigned traits = atomic_load_explicit(&known_traits, memory_order_relaxed);
  int rc;

  if (!(traits & TRAIT_KNOWN)) {
    if ((rc = find_traits(&traits)) < 0) {
      *call = "io_uring_enter";
      return rc;
    }
    atomic_store_explicit(&known_traits, traits, memory_order_relaxed);
  }
  if (traits & TRAIT_MULTI_ACCEPT) u->features |= DRIVER_MULTI_ACCEPT;
  if (traits & TRAIT_MULTI_RECV) u->features |= DRIVER_MULTI_RECV;
  u->write_flags = attempt_nosignal();
  return 0;
}

/* Opening and closing. */

/* Also children that nobody tells us of are to find out (Process.daemon): asking for the pid would
 * be a system call each time. */
static unsigned generation;
static pthread_once_t generations_counted = PTHREAD_ONCE_INIT;

static void count_generation(void) { generation++; }

static void count_generations(void) { pthread_atfork(NULL, NULL, count_generation); }

bool uring_inherited_p(const struct uring *u) { return u->generation != generation; }

/* The kernel makes the descriptor close-on-exec. The mappings are kept from children, see
 * uring_forget. */
int uring_open(struct uring *u, unsigned entries, const char **call) {
  const char *ignored;
  int rc;

  if (!call) call = &ignored;
  memset(u, 0, sizeof(*u));
  pthread_once(&generations_counted, count_generations);
  u->generation = generation;
  list_init(&u->queued);
  list_init(&u->running);
  *call = "io_uring_setup";
  if ((rc = climb_ladder(&u->ring, entries)) < 0) return rc;
  if ((*call = missing_feature(&u->ring))) rc = -EOPNOTSUPP;
  if (rc == 0) rc = ask_opcodes(u, call);
  if (rc == 0) rc = note_traits(u, call);
  if (rc == 0 && (rc = io_uring_ring_dontfork(&u->ring)) < 0) *call = "madvise";
  if (rc < 0) io_uring_queue_exit(&u->ring);
  return rc;
}

static size_t buffers_size(void) {
  return URING_BUFFERS * (sizeof(struct io_uring_buf) + URING_BUFFER_SIZE);
}

void uring_close(struct uring *u) {
  if (u->buffers) io_uring_unregister_buf_ring(&u->ring, URING_BUFFER_GROUP);
  io_uring_queue_exit(&u->ring);
  if (u->buffers) munmap(u->buffers, buffers_size());
}

/* A child has the descriptor but, by MADV_DONTFORK, not the mappings: where they were may be
 * something else by now, so unmapping (as io_uring_queue_exit does) would hit a stranger. Closing
 * its copy of the descriptor takes a reference from the file, no more: ops belong to the task that
 * submitted them, and the parent's go on. */
void uring_forget(struct uring *u) {
  close(u->ring.ring_fd);
}

/* Buffers. */

static void add_buffer(struct uring *u, uint32_t buffer, int nth) {
  io_uring_buf_ring_add(u->buffers, uring_buffer(u, buffer), URING_BUFFER_SIZE,
                        (unsigned short)buffer, io_uring_buf_ring_mask(URING_BUFFERS), nth);
}

int uring_open_buffers(struct uring *u) {
  if (u->buffers) return 0;

  void *memory = mmap(NULL, buffers_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
  if (memory == MAP_FAILED) return -errno;
  madvise(memory, buffers_size(), MADV_DONTFORK);
  struct io_uring_buf_reg reg = {
    .ring_addr = (uintptr_t)memory, .ring_entries = URING_BUFFERS, .bgid = URING_BUFFER_GROUP,
  };
  int rc = io_uring_register_buf_ring(&u->ring, &reg, 0);
  if (rc < 0) {
    munmap(memory, buffers_size());
    return rc;
  }
  u->buffers = memory;
  io_uring_buf_ring_init(u->buffers);
  for (int i = 0; i < URING_BUFFERS; i++) add_buffer(u, (uint32_t)i, i);
  io_uring_buf_ring_advance(u->buffers, URING_BUFFERS);
  return 0;
}

char *uring_buffer(struct uring *u, uint32_t buffer) {
  char *first = (char *)u->buffers + URING_BUFFERS * sizeof(struct io_uring_buf);
  return first + (size_t)buffer * URING_BUFFER_SIZE;
}

void uring_recycle(struct uring *u, uint32_t buffer) {
  if (!u->buffers || buffer >= URING_BUFFERS || uring_inherited_p(u)) return;

  add_buffer(u, buffer, 0);
  io_uring_buf_ring_advance(u->buffers, 1);
}

/* Explaining. */

static const struct {
  int error;
  const char *name, *reason;
} refusals[] = {
  { EPERM,      "EPERM",      "a seccomp filter forbids it (the default profile of Docker, Podman "
                              "and many Kubernetes clusters does); allow io_uring_setup, "
                              "io_uring_enter and io_uring_register in the profile" },
  { EACCES,     "EACCES",     "a security module (SELinux, AppArmor) or seccomp filter forbids it; "
                              "allow io_uring in its policy" },
  { ENOSYS,     "ENOSYS",     "this kernel has no io_uring (older than Linux 5.1, or built "
                              "without CONFIG_IO_URING), or a sandbox hides it; run on Linux 5.11 "
                              "or later" },
  { EINVAL,     "EINVAL",     "the kernel's io_uring is too old; run on Linux 5.11 or later" },
  { EOPNOTSUPP, "EOPNOTSUPP", "the kernel or a sandbox does not offer it; run on Linux 5.11 or "
                              "later, outside of the sandbox" },
  { EMFILE,     "EMFILE",     "the process has no descriptor left; raise ulimit -n" },
  { ENFILE,     "ENFILE",     "the system has no descriptor left; raise fs.file-max" },
  { ENOMEM,     "ENOMEM",     NULL },
};

#ifdef HAVE_LIBEV
#define ALTERNATIVE ", or set POLYPHONY_BACKEND=libev"
#else
#define ALTERNATIVE ", or build polyphony with libev"
#endif

/* -1 when there is no such sysctl (Linux before 6.6). */
static int read_disabled_sysctl(void) {
  FILE *file = fopen("/proc/sys/kernel/io_uring_disabled", "re");
  int value = -1;

  if (!file) return -1;
  if (fscanf(file, "%d", &value) != 1) value = -1;
  fclose(file);
  return value;
}

static void explain_sysctl(char *text, size_t size, int value) {
  snprintf(text, size, "sysctl kernel.io_uring_disabled is %d (%s); an administrator can set it "
           "to 0", value, value == 1 ? "only for CAP_SYS_ADMIN and kernel.io_uring_group"
                                     : "for nobody");
}

static void explain_memory(char *text, size_t size) {
  struct rlimit limit = { 0 };

  getrlimit(RLIMIT_MEMLOCK, &limit);
  if (limit.rlim_cur == RLIM_INFINITY)
    snprintf(text, size, "the kernel has no memory for a ring; raise the memory limit");
  else
    snprintf(text, size, "no memory for a ring, likely too little of it may be locked (ulimit -l "
             "is %llu KiB); raise that limit", (unsigned long long)limit.rlim_cur / 1024);
}

static const char *find_refusal(int error, const char **reason) {
  for (unsigned i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
    if (refusals[i].error != error) continue;
    *reason = refusals[i].reason;
    return refusals[i].name;
  }
  *reason = strerror(error);
  return NULL;
}

static void explain(char *why, size_t size, const char *call, int error) {
  char name[32], computed[256] = "";
  const char *reason, *known = find_refusal(error, &reason);
  int disabled = error == EPERM ? read_disabled_sysctl() : -1;

  if (disabled > 0) explain_sysctl(computed, sizeof(computed), disabled);
  if (error == ENOMEM) explain_memory(computed, sizeof(computed));
  snprintf(name, sizeof(name), "errno %d", error);
  snprintf(why, size, "%s: %s: %s%s", call, known ? known : name, *computed ? computed : reason,
           ALTERNATIVE);
}

int uring_probe(char *why, size_t size) {
  struct uring u;
  const char *call;
  int rc = uring_open(&u, URING_LEAST_ENTRIES, &call);

  if (size > 0) *why = '\0';
  if (rc < 0) explain(why, size, call, -rc);
  else uring_close(&u);
  return rc;
}

static const struct {
  unsigned flag;
  const char *name;
} setup_flags[] = {
  { IORING_SETUP_SINGLE_ISSUER, "IORING_SETUP_SINGLE_ISSUER (Linux 6.0)" },
  { IORING_SETUP_DEFER_TASKRUN, "IORING_SETUP_DEFER_TASKRUN (Linux 6.1)" },
  { IORING_SETUP_COOP_TASKRUN,  "IORING_SETUP_COOP_TASKRUN (Linux 5.19)" },
  { IORING_SETUP_TASKRUN_FLAG,  "IORING_SETUP_TASKRUN_FLAG (Linux 5.19)" },
  { IORING_SETUP_SUBMIT_ALL,    "IORING_SETUP_SUBMIT_ALL (Linux 5.18)" },
};

static void describe_flags(const struct uring *u, driver_teller tell, void *argument) {
  bool deferred = u->ring.flags & IORING_SETUP_DEFER_TASKRUN;

  for (unsigned i = 0; i < sizeof(setup_flags) / sizeof(*setup_flags); i++) {
    if (deferred && setup_flags[i].flag == IORING_SETUP_COOP_TASKRUN) continue;  /* which it replaces */
    tell(argument, "flag", setup_flags[i].name, u->ring.flags & setup_flags[i].flag);
  }
}

void uring_describe(driver_teller tell, void *argument) {
  struct uring u;

  if (uring_open(&u, URING_LEAST_ENTRIES, NULL) < 0) return;
  describe_flags(&u, tell, argument);
  for (unsigned kind = 0; kind < OP_KINDS; kind++)
    if (opcodes[kind].name) tell(argument, "opcode", opcodes[kind].name, !u.lacks[kind]);
  tell(argument, "extra", "multishot accept (Linux 5.19)", u.features & DRIVER_MULTI_ACCEPT);
  tell(argument, "extra", "multishot receive (Linux 6.0)", u.features & DRIVER_MULTI_RECV);
  tell(argument, "extra", "writes without SIGPIPE (Linux 6.18)", u.write_flags != 0);
  uring_close(&u);
}

#endif
