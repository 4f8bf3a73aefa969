/* offload.c - see offload.h
 *
 * A job is the pool's record of an op, so that an op can be given up while a worker is still busy
 * with it: the job outlives the op and its loop. Who wins, worker or cancel, is decided under
 * pool.lock: cancel takes the op out of the job, the worker marks the job finished. Once finished
 * the op cannot be taken back; it is on its way to loop->offloaded, and the loop cannot go
 * before it has collected it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif
#include "accept.h"
#include "list.h"
#include "offload.h"

struct lane {
  unsigned most_serving, most_threads;
  pthread_cond_t wanted;               /* there is a job to take */
  struct list queue;
  unsigned queued, idle, threads;
  unsigned serving;                    /* jobs begun and neither finished nor given up */
  unsigned largest;                    /* number of threads there was */
  uint64_t done;
};

struct offload_job {
  struct lane *lane;
  struct list node;                    /* in lane->queue; alone once a worker has it */
  struct loop *loop;                   /* not to be touched when op is NULL */
  struct op *op;                       /* NULL when given up */
  int64_t (*fn)(void *);               /* copy of as.call, for the op may be gone; else NULL */
  void *arg;
  void *memory;                        /* op->memory of a call given up while it runs; else NULL */
  void (*dispose)(void *);             /* of that */
  bool started, finished;
};

#define QUEUE_OF(lane) { &pool.lanes[lane].queue, &pool.lanes[lane].queue }

/* Calls given up do not count against what a lane may serve: a name server that does not answer would
 * keep out names that need none. Their number is limited by that of the threads. */
static struct {
  pthread_mutex_t lock;
  struct lane lanes[OFFLOAD_LANES];
  int64_t idle;                        /* ns for which a thread without a job is kept */
  pid_t pid;                           /* whose threads these are; 0 when there were none yet */
} pool = {
  .lock = PTHREAD_MUTEX_INITIALIZER,
  .idle = OFFLOAD_IDLE_SECONDS * INT64_C(1000000000),
  .lanes = {
    [OFFLOAD_WORK] = {
      .most_serving = OFFLOAD_MAX_THREADS, .most_threads = OFFLOAD_MAX_THREADS,
      .wanted = PTHREAD_COND_INITIALIZER, .queue = QUEUE_OF(OFFLOAD_WORK),
    },
    [OFFLOAD_LOOKUP] = {
      .most_serving = OFFLOAD_MAX_LOOKUPS, .most_threads = OFFLOAD_MAX_LOOKUP_THREADS,
      .wanted = PTHREAD_COND_INITIALIZER, .queue = QUEUE_OF(OFFLOAD_LOOKUP),
    },
  },
};

/* The system calls. */

static int64_t result_of(int64_t n) { return n < 0 ? -errno : n; }

static int64_t execute_read(struct op *op) {
  if (op->as.rw.offset < 0) return result_of(read(op->fd, op->as.rw.base, op->as.rw.len));
  return result_of(pread(op->fd, op->as.rw.base, op->as.rw.len, op->as.rw.offset));
}

static int64_t execute_write(struct op *op) {
  if (op->as.rw.offset < 0) return result_of(write(op->fd, op->as.rw.base, op->as.rw.len));
  return result_of(pwrite(op->fd, op->as.rw.base, op->as.rw.len, op->as.rw.offset));
}

static int64_t execute_writev(struct op *op) {
  int count = (int)op->as.vec.count;

  if (op->as.vec.offset < 0) return result_of(writev(op->fd, op->as.vec.iov, count));
  return result_of(pwritev(op->fd, op->as.vec.iov, count, op->as.vec.offset));
}

static int64_t execute_recv(struct op *op) {
  return result_of(recv(op->fd, op->as.rw.base, op->as.rw.len, op->as.rw.flags));
}

static int64_t execute_send(struct op *op) {
  int flags = op->as.rw.flags;

#ifdef MSG_NOSIGNAL
  flags |= MSG_NOSIGNAL;
#endif
  return result_of(send(op->fd, op->as.rw.base, op->as.rw.len, flags));
}

static int64_t execute_accept(struct op *op) {
  return result_of(accept_with(op->fd, NULL, NULL, op->as.accept.flags));
}

static int64_t execute_connect(struct op *op) {
  return result_of(connect(op->fd, (struct sockaddr *)op->as.connect.addr, op->as.connect.len));
}

static int64_t execute_poll(struct op *op) {
  struct pollfd pollfd = { .fd = op->fd, .events = (short)op->as.poll.events };
  int64_t n = result_of(poll(&pollfd, 1, -1));

  return n < 0 ? n : pollfd.revents;
}

/* Never again after EINTR: on Linux the descriptor is gone, and may be another's by now. */
static int64_t execute_close(struct op *op) {
  int64_t result = result_of(close(op->fd));
  return result == -EINTR ? 0 : result;
}

static int64_t execute_fsync(struct op *op) {
#ifdef __APPLE__
  return result_of(fsync(op->fd));
#else
  return result_of(op->as.fsync.datasync ? fdatasync(op->fd) : fsync(op->fd));
#endif
}

static int op_directory(const struct op *op) { return op->fd >= 0 ? op->fd : AT_FDCWD; }

static int64_t execute_open(struct op *op) {
  return result_of(openat(op_directory(op), op->as.open.path, op->as.open.flags | O_CLOEXEC,
                          op->as.open.mode));
}

static int64_t execute_stat(struct op *op) {
#ifdef __linux__
  /* musl has a function for it since 1.2.4. */
  return result_of(syscall(SYS_statx, op_directory(op), op->as.stat.path, op->as.stat.flags, op->as.stat.mask, op->as.stat.buf));
#else
  if (op->fd >= 0) return result_of(fstat(op->fd, op->as.stat.buf));
  return result_of(stat(op->as.stat.path, op->as.stat.buf));
#endif
}

static int64_t execute_call(struct op *op) { return op->as.call.fn(op->as.call.arg); }

static int64_t (*const executors[OP_KINDS])(struct op *) = {
  [OP_READ]    = execute_read,
  [OP_WRITE]   = execute_write,
  [OP_WRITEV]  = execute_writev,
  [OP_RECV]    = execute_recv,
  [OP_SEND]    = execute_send,
  [OP_ACCEPT]  = execute_accept,
  [OP_CONNECT] = execute_connect,
  [OP_POLL]    = execute_poll,
  [OP_CLOSE]   = execute_close,
  [OP_FSYNC]   = execute_fsync,
  [OP_OPEN]    = execute_open,
  [OP_STAT]    = execute_stat,
  [OP_CALL]    = execute_call,
};

int64_t op_execute(struct op *op) {
  int64_t result;

  if (!executors[op->kind]) return -EOPNOTSUPP;
  /* A connect goes on after EINTR, a second one would get EALREADY; a call speaks for itself. */
  do result = executors[op->kind](op);
  while (result == -EINTR && op->kind != OP_CONNECT && op->kind != OP_CALL);
  return result;
}

/* Workers. */

static bool job_to_take_p(const struct lane *lane) {
  return lane->queued > 0 && lane->serving < lane->most_serving;
}

static struct offload_job *shift_job(struct lane *lane) {
  struct offload_job *job = list_entry(lane->queue.next, struct offload_job, node);

  list_remove(&job->node);
  lane->queued--;
  lane->serving++;
  job->started = true;
  return job;
}

/* The signal comes before the unlock: the loop takes the lock to collect its last op, so it cannot
 * be freed between the two. Later ops of a batch need no signal, the list is taken whole. */
static void hand_over(struct loop *loop, struct op *op, int64_t result) {
  op->result = result;
  pthread_mutex_lock(&loop->offload_lock);
  op->next_free = loop->offloaded;
  __atomic_store_n(&loop->offloaded, op, __ATOMIC_RELEASE);
  if (!op->next_free) wakeup_signal(&loop->wakeup);
  pthread_mutex_unlock(&loop->offload_lock);
}

static void free_job(struct offload_job *job) {
  if (job->memory && job->dispose) job->dispose(job->memory);
  free(job->memory);
  free(job);
}

/* Holds pool.lock before and after, not meanwhile. */
static void run_job(struct offload_job *job) {
  pthread_mutex_unlock(&pool.lock);
  int64_t result = job->fn ? job->fn(job->arg) : op_execute(job->op);

  pthread_mutex_lock(&pool.lock);
  job->finished = true;
  job->lane->done++;
  struct op *op = job->op;
  if (op) job->lane->serving--;
  pthread_mutex_unlock(&pool.lock);
  if (op) hand_over(job->loop, op, result);
  else free_job(job);
  pthread_mutex_lock(&pool.lock);
}

static struct timespec later(struct timespec from, int64_t ns) {
  int64_t sum = from.tv_nsec + ns % 1000000000;

  return (struct timespec){ .tv_sec = from.tv_sec + ns / 1000000000 + sum / 1000000000, .tv_nsec = sum % 1000000000 };
}

/* On the wall clock, as a condition is by default: when that is set, idle threads end at another
 * moment, which harms nobody. False when it is time to go. */
static bool wait_for_job(struct lane *lane) {
  struct timespec since, until;
  int rc = 0;

  clock_gettime(CLOCK_REALTIME, &since);
  lane->idle++;
  while (!job_to_take_p(lane) && rc == 0) {
    until = later(since, pool.idle);   /* it may be set to another meanwhile */
    rc = pthread_cond_timedwait(&lane->wanted, &pool.lock, &until);
  }
  lane->idle--;
  return job_to_take_p(lane);
}

static void *work(void *argument) {
  struct lane *lane = argument;

  pthread_mutex_lock(&pool.lock);
  while (job_to_take_p(lane) || wait_for_job(lane)) run_job(shift_job(lane));
  lane->threads--;
  pthread_mutex_unlock(&pool.lock);
  return NULL;
}

/* All signals are blocked meanwhile, so the new thread inherits that and never takes one. */
static int start_thread(struct lane *lane) {
  pthread_attr_t attr;
  pthread_t thread;
  sigset_t all, before;
  int rc;

  if ((rc = pthread_attr_init(&attr)) != 0) return -rc;
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  rc = pthread_create(&thread, &attr, work, lane);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attr);
  return -rc;
}

/* Under pool.lock, when there may be a job to take. Failing is bad only if there is no thread at all. */
static int ensure_thread(struct lane *lane) {
  if (!job_to_take_p(lane)) return 0;  /* who serves will look here when done */
  if (lane->idle > 0) pthread_cond_signal(&lane->wanted);
  if (lane->idle >= lane->queued || lane->threads >= lane->most_threads) return 0;

  int rc = start_thread(lane);
  if (rc < 0) return lane->threads > 0 ? 0 : rc;
  if (++lane->threads > lane->largest) lane->largest = lane->threads;
  pool.pid = getpid();
  return 0;
}

/* The loop's side. */

static struct offload_job *create_job(struct loop *loop, struct op *op) {
  struct offload_job *job = calloc(1, sizeof(*job));
  if (!job) return NULL;

  list_init(&job->node);
  job->lane = &pool.lanes[op->kind == OP_CALL ? op->as.call.lane : OFFLOAD_WORK];
  job->loop = loop;
  job->op = op;
  if (op->kind == OP_CALL) {
    job->fn = op->as.call.fn;
    job->arg = op->as.call.arg;
  }
  return job;
}

/* Under pool.lock. */
static int enqueue_job(struct offload_job *job) {
  list_push(&job->lane->queue, &job->node);
  job->lane->queued++;
  int rc = ensure_thread(job->lane);
  if (rc == 0) return 0;

  list_remove(&job->node);
  job->lane->queued--;
  return rc;
}

/* Only when no worker can reach the op any more. */
static void settle(struct loop *loop, struct op *op, int64_t result) {
  op->job = NULL;
  loop->offloads--;
  loop_settle(loop, op, result);
}

void offload_submit(struct loop *loop, struct op *op) {
  struct offload_job *job = create_job(loop, op);
  int rc = -ENOMEM;

  op->job = job;
  loop->offloads++;
  pthread_mutex_lock(&pool.lock);
  if (job) rc = enqueue_job(job);
  pthread_mutex_unlock(&pool.lock);
  if (rc == 0) return;
  free(job);
  settle(loop, op, -EAGAIN);
}

/* Under pool.lock: takes the op away from the pool, which is possible until the job has started,
 * and for one that owns its memory until it has finished. */
static bool take_back(struct offload_job *job) {
  bool orphanable = job->op->kind == OP_CALL && job->op->as.call.orphanable;

  if (job->finished || (job->started && !orphanable)) return false;
  if (job->started) {                  /* fn goes on with it: it is the job's from now on */
    job->memory = job->op->memory;
    job->dispose = job->op->dispose;
    job->op->memory = NULL;
    job->lane->serving--;
    ensure_thread(job->lane);          /* somebody may have waited for that place */
  } else {
    list_remove(&job->node);
    job->lane->queued--;
  }
  job->op = NULL;
  return true;
}

void offload_cancel(struct loop *loop, struct op *op) {
  struct offload_job *job = op->job;

  pthread_mutex_lock(&pool.lock);
  bool taken = take_back(job);
  bool ours = taken && !job->started;  /* else the worker frees it when it is done */
  pthread_mutex_unlock(&pool.lock);
  if (ours) free(job);
  if (taken) settle(loop, op, -ECANCELED);
}

static struct op *take_offloaded(struct loop *loop) {
  if (!__atomic_load_n(&loop->offloaded, __ATOMIC_ACQUIRE)) return NULL;

  pthread_mutex_lock(&loop->offload_lock);
  struct op *list = loop->offloaded;
  __atomic_store_n(&loop->offloaded, NULL, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&loop->offload_lock);
  return list;
}

static struct op *reverse(struct op *list) {
  struct op *reversed = NULL;

  for (struct op *op = list, *next; op; op = next) {
    next = op->next_free;
    op->next_free = reversed;
    reversed = op;
  }
  return reversed;
}

void offload_collect(struct loop *loop) {
  struct op *next;

  /* Workers push in front; settle in the order in which they finished. */
  for (struct op *op = reverse(take_offloaded(loop)); op; op = next) {
    next = op->next_free;
    free(op->job);
    settle(loop, op, op->result);
  }
}

void offload_drain(struct loop *loop) {
  struct pollfd pollfd = { .fd = loop->wakeup.fd, .events = POLLIN };

  for (offload_collect(loop); loop->offloads > 0; offload_collect(loop)) {
    poll(&pollfd, 1, -1);
    wakeup_drain(&loop->wakeup);
  }
}

static unsigned least(unsigned limit, unsigned wanted) { return wanted && wanted < limit ? wanted : limit; }

/* Those that wait look at the clock again, and jobs in the queue may get the threads they had not got. */
static void let_all_look_again(void) {
  for (struct lane *lane = pool.lanes; lane < pool.lanes + OFFLOAD_LANES; lane++) {
    pthread_cond_broadcast(&lane->wanted);
    for (unsigned jobs = lane->queued; jobs > 0; jobs--) ensure_thread(lane);
  }
}

void offload_limit(unsigned threads, int64_t idle) {
  pthread_mutex_lock(&pool.lock);
  pool.lanes[OFFLOAD_WORK].most_serving = pool.lanes[OFFLOAD_WORK].most_threads = least(OFFLOAD_MAX_THREADS, threads);
  pool.lanes[OFFLOAD_LOOKUP].most_serving = least(OFFLOAD_MAX_LOOKUPS, threads);
  pool.lanes[OFFLOAD_LOOKUP].most_threads = least(OFFLOAD_MAX_LOOKUP_THREADS, threads);
  pool.idle = idle;
  let_all_look_again();
  pthread_mutex_unlock(&pool.lock);
}

struct offload_stats offload_stats(enum offload_lane which) {
  struct lane *lane = &pool.lanes[which];

  pthread_mutex_lock(&pool.lock);
  struct offload_stats stats = {
    .threads = lane->threads, .idle = lane->idle, .busy = lane->threads - lane->idle,
    .waiting = lane->queued, .largest = lane->largest, .done = lane->done,
  };
  pthread_mutex_unlock(&pool.lock);
  return stats;
}

/* A worker, or another thread of the parent, may have held the lock and been halfway through the
 * queue: nothing in there can be freed, so it is left behind. */
void offload_after_fork(void) {
  if (pool.pid == getpid()) return;    /* done already, for another loop */

  pthread_mutex_init(&pool.lock, NULL);
  for (struct lane *lane = pool.lanes; lane < pool.lanes + OFFLOAD_LANES; lane++) {
    pthread_cond_init(&lane->wanted, NULL);
    list_init(&lane->queue);
    lane->queued = lane->idle = lane->threads = lane->serving = lane->largest = 0;
    lane->done = 0;
  }
  pool.pid = getpid();
}
