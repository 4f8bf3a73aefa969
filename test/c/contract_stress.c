/* What every driver owes: awkward moments, and bytes that survive any number of cancels. */
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "clock.h"
#include "support.h"
#include "test.h"

CONTRACT(poll_for_half_closed_and_urgent_on_one_descriptor) {
  int fds[2];

  LINUX_ONLY("an epoll within an epoll");
  open_tcp_pair(fds);
  struct op *half_closed = submitted(loop, op_poll(loop, fds[0], POLLRDHUP));
  struct op *urgent = submitted(loop, op_poll(loop, fds[0], POLLPRI));
  check_pending(loop, half_closed);
  write_all(fds[1], "no", 2);                      /* ordinary data is neither */
  check_pending(loop, urgent);
  CHECK_EQUAL(1, send(fds[1], "!", 1, MSG_OOB));
  CHECK(finish(loop, urgent) & POLLPRI);
  check_pending(loop, half_closed);
  shutdown(fds[1], SHUT_WR);
  CHECK(finish(loop, half_closed) & POLLRDHUP);
  close_both(fds);
}

static int64_t cpu_time(void) {
  struct timespec ts;

  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
  return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

/* A peer that has sent its all and now reads: the half of the connection that is closed must not
 * be taken for room in the other, or we would try again and again. */
static void check_half_closed(struct loop *loop, struct op *(*describe)(struct loop *, int)) {
  for (enum blocking blocking = BLOCKING; blocking <= NONBLOCKING; blocking++) {
    int fds[2];
    open_pair(fds, blocking);
    fill(fds[0]);
    shutdown(fds[1], SHUT_WR);
    struct op *op = submitted(loop, describe(loop, fds[0]));
    int64_t start = cpu_time(), until = clock_monotonic() + NSEC_PER_SEC / 5;
    while (clock_monotonic() < until && !op_settled_p(op))
      CHECK_EQUAL(0, loop_poll(loop, NSEC_PER_SEC / 5));
    CHECK(!op_settled_p(op));
    CHECK(cpu_time() - start < NSEC_PER_SEC / 10);
    while (!op_settled_p(op)) {
      drain(fds[1]);
      CHECK_EQUAL(0, loop_poll(loop, NSEC_PER_SEC / 1000));
    }
    CHECK(finish(loop, op) > 0);
    close_both(fds);
  }
}

static struct op *a_write(struct loop *loop, int fd) { return op_write(loop, fd, "x", 1); }
static struct op *a_send(struct loop *loop, int fd) { return op_send(loop, fd, "x", 1, 0); }
static struct op *a_poll(struct loop *loop, int fd) { return op_poll(loop, fd, POLLOUT); }

CONTRACT(write_to_a_half_closed_connection_waits) { check_half_closed(loop, a_write); }
CONTRACT(send_to_a_half_closed_connection_waits) { check_half_closed(loop, a_send); }
CONTRACT(poll_of_a_half_closed_connection_waits) { check_half_closed(loop, a_poll); }

CONTRACT(poll_of_a_pidfd_tells_of_the_childs_end) {
  int fds[2], status;
  char byte;

  open_pipe(fds, BLOCKING);
  pid_t pid = fork();
  if (pid == 0) {
    close(fds[1]);
    _exit(read(fds[0], &byte, 1) == 0 ? 0 : 1);
  }
  int fd = (int)syscall(SYS_pidfd_open, pid, 0);
  if (fd < 0) test_skip("no pidfd_open");
  struct op *op = submitted(loop, op_poll(loop, fd, POLLIN));
  check_pending(loop, op);
  close(fds[1]);
  CHECK(finish(loop, op) & POLLIN);
  CHECK_EQUAL(pid, waitpid(pid, &status, WNOHANG));
  close(fd), close(fds[0]);
}

/* A unix listener without room says EAGAIN to a socket in non-blocking mode, and holds up the
 * thread of a blocking one, which for io_uring is a worker of the kernel's. */
CONTRACT(cancel_of_a_connect_to_a_busy_unix_listener) {
  struct sockaddr_un addr = { .sun_family = AF_UNIX };
  socklen_t len = sizeof(addr);
  int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), fillers = 0, filler[8];

  CHECK_EQUAL(0, bind(listener, (struct sockaddr *)&addr, sizeof(sa_family_t)));   /* abstract */
  CHECK_EQUAL(0, getsockname(listener, (struct sockaddr *)&addr, &len));
  CHECK_EQUAL(0, listen(listener, 0));
  do filler[fillers] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  while (connect(filler[fillers++], (struct sockaddr *)&addr, len) == 0 && fillers < 8);
  for (int i = 0; i < 4; i++) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | (i & 1 ? SOCK_NONBLOCK : 0), 0);
    struct op *op = op_connect(loop, fd, &(struct sockaddr_in) { 0 });
    memcpy(op->memory, &addr, len);
    op->as.connect.len = len;
    loop_submit(loop, op);
    if (i & 2) check_pending(loop, op);
    loop_cancel(loop, op);
    CHECK_EQUAL(-ECANCELED, finish(loop, op));     /* may have to wait for that worker */
    close(fd);
  }
  while (fillers-- > 0) close(filler[fillers]);
  close(listener);
}

CONTRACT(accept_without_a_free_descriptor_is_emfile) {
  struct sockaddr_in addr;
  struct rlimit limit, low;
  int listener = open_listener(&addr, 8), client = open_tcp();

  connect(client, (struct sockaddr *)&addr, sizeof(addr));
  getrlimit(RLIMIT_NOFILE, &limit);
  low = limit;
  low.rlim_cur = (rlim_t)unused_descriptor();
  setrlimit(RLIMIT_NOFILE, &low);
  int64_t refused = run_op(loop, op_accept(loop, listener, SOCK_CLOEXEC));
  setrlimit(RLIMIT_NOFILE, &limit);
  CHECK_EQUAL(-EMFILE, refused);
  int server = (int)run_op(loop, op_accept(loop, listener, SOCK_CLOEXEC));
  CHECK(server >= 0);
  close(server), close(client), close(listener);
}

/* As closing an IO does it: withdraw all, and close at once. */
CONTRACT(close_right_after_a_cancel_is_seen_by_the_peer) {
  for (int i = 0; i < 100; i++) {
    int fds[2];
    char bytes[2][8] = { "" };

    open_pair(fds, NONBLOCKING);
    fill(fds[0]);
    struct op *read_op = submitted(loop, op_recv(loop, fds[0], bytes[0], 8, 0));
    struct op *write_op = submitted(loop, op_send(loop, fds[0], bytes[1], 8, 0));
    if (i % 2) CHECK_EQUAL(0, loop_poll(loop, 0));
    for (struct op *op = loop_ops_on(loop, fds[0]), *next; op; op = next) {
      next = op->fd_next;
      loop_cancel(loop, op);
    }
    CHECK_EQUAL(0, run_op(loop, loop_acquire_op(loop, OP_CLOSE, fds[0])));
    CHECK_EQUAL(-ECANCELED, finish(loop, read_op));
    CHECK_EQUAL(-ECANCELED, finish(loop, write_op));
    drain(fds[1]);
    CHECK_EQUAL(0, run_op(loop, op_recv(loop, fds[1], bytes[0], 8, 0)));
    close(fds[1]);
  }
}

/* Somebody closes it without telling us, and the number goes to another file. */
CONTRACT(close_behind_the_drivers_back_does_no_harm) {
  for (int i = 0; i < 64; i++) {
    int fds[2], other[2];
    char bytes[2][8];

    open_pair(fds, NONBLOCKING);
    struct op *op = submitted(loop, op_recv(loop, fds[0], bytes[0], 8, 0));
    struct op *poll_op = submitted(loop, op_poll(loop, fds[0], POLLIN));
    if (i & 1) CHECK_EQUAL(0, loop_poll(loop, 0));
    close(fds[0]);
    if (i & 2) CHECK_EQUAL(0, loop_poll(loop, 0));
    open_pipe(other, NONBLOCKING);
    CHECK_EQUAL(fds[0], other[0]);
    struct op *heir = submitted(loop, op_read(loop, other[0], bytes[1], 8));
    if (i & 4) CHECK_EQUAL(0, loop_poll(loop, 0));
    loop_cancel(loop, op);
    loop_cancel(loop, poll_op);
    CHECK(finish(loop, op) < 0);
    CHECK(finish(loop, poll_op) < 0);
    check_pending(loop, heir);
    write_all(other[1], "new", 3);
    CHECK_EQUAL(3, finish(loop, heir));
    close_both(other);
    close(fds[1]);
  }
}

/* Random ops on pairs of sockets, withdrawn at random. Each byte that was sent is received once
 * and in its place, or waits in the kernel at the end. */
enum { CHATS = 16 };

struct chat {
  int fds[2];
  struct op *send_op, *recv_op;
  uint8_t out[64], in[64];
  uint8_t sent, received;              /* counters that wrap, as the bytes do */
};

static void chat_settle(struct loop *loop, struct chat *chat, struct op *op) {
  CHECK(op->result > 0 || op->result == -ECANCELED);
  if (op == chat->send_op) {
    chat->send_op = NULL;
    if (op->result > 0) chat->sent += (uint8_t)op->result;
  } else {
    CHECK(op == chat->recv_op);
    chat->recv_op = NULL;
    for (int64_t i = 0; i < op->result; i++) CHECK_EQUAL(chat->received++, chat->in[i]);
  }
  loop_release_op(loop, op);
}

static struct op *chat_send(struct loop *loop, struct chat *chat, bool write) {
  size_t len = (size_t)(rand() % 64 + 1);
  char *out = (char *)chat->out;

  for (size_t i = 0; i < len; i++) chat->out[i] = (uint8_t)(chat->sent + i);
  return write ? op_write(loop, chat->fds[0], out, len) : op_send(loop, chat->fds[0], out, len, 0);
}

static struct op *chat_recv(struct loop *loop, struct chat *chat, bool read) {
  size_t len = (size_t)(rand() % 64 + 1);
  char *in = (char *)chat->in;

  return read ? op_read(loop, chat->fds[1], in, len) : op_recv(loop, chat->fds[1], in, len, 0);
}

static void chat_submit(struct loop *loop, struct chat *chat, struct op **slot, struct op *op) {
  *slot = op;
  op->owner = chat;
  loop_submit(loop, op);
}

static void chat_step(struct loop *loop, struct chat *chat, int dice) {
  if (dice < 4 && !chat->send_op)
    chat_submit(loop, chat, &chat->send_op, chat_send(loop, chat, dice & 1));
  else if (dice >= 4 && dice < 8 && !chat->recv_op)
    chat_submit(loop, chat, &chat->recv_op, chat_recv(loop, chat, dice & 1));
  else if (dice == 8 && chat->send_op)
    loop_cancel(loop, chat->send_op);
  else if (dice == 9 && chat->recv_op)
    loop_cancel(loop, chat->recv_op);
}

static void chat_news(struct loop *loop) {
  for (struct op *op; (op = loop_shift_news(loop));) chat_settle(loop, op->owner, op);
}

static void chat_end(struct loop *loop, struct chat *chat) {
  if (chat->send_op) loop_cancel(loop, chat->send_op);
  if (chat->recv_op) loop_cancel(loop, chat->recv_op);
  for (chat_news(loop); chat->send_op || chat->recv_op; chat_news(loop))
    CHECK_EQUAL(0, loop_poll(loop, -1));
  fcntl(chat->fds[1], F_SETFL, O_NONBLOCK);
  for (uint8_t byte; read(chat->fds[1], &byte, 1) == 1;) CHECK_EQUAL(chat->received++, byte);
  CHECK_EQUAL(chat->sent, chat->received);
  close_both(chat->fds);
}

CONTRACT(random_conversations_with_cancels_lose_and_repeat_nothing) {
  static struct chat chats[CHATS];

  srand(1);
  for (int i = 0; i < CHATS; i++) {
    if (i & 2) open_pair(chats[i].fds, i & 1 ? BLOCKING : NONBLOCKING);
    else open_tcp_pair(chats[i].fds);
  }
  for (int step = 0; step < 60000; step++) {
    chat_step(loop, &chats[rand() % CHATS], rand() % 10);
    if (rand() % 4) continue;
    CHECK_EQUAL(0, loop_poll(loop, 0));
    chat_news(loop);
  }
  for (int i = 0; i < CHATS; i++) chat_end(loop, &chats[i]);
  CHECK_EQUAL(0, loop->in_flight);
}
