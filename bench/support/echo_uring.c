/* echo_uring.c - an echo server with io_uring: one recv or send under way on each connection,
 * completions run when asked for (DEFER_TASKRUN), one system call a turn. The limit of what a driver
 * on io_uring can reach without multishot receives. */
#define _GNU_SOURCE
#include <liburing.h>
#include <unistd.h>
#include "echo_listen.h"

enum { ENTRIES = 4096 };

struct connection {
  int fd;
  int sending;
  char buffer[BUFFER];
};

static struct io_uring ring;

static struct io_uring_sqe *entry(void) {
  struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

  if (sqe) return sqe;
  io_uring_submit(&ring);
  return io_uring_get_sqe(&ring);
}

static void receive(struct connection *c) {
  struct io_uring_sqe *sqe = entry();

  c->sending = 0;
  io_uring_prep_recv(sqe, c->fd, c->buffer, BUFFER, 0);
  io_uring_sqe_set_data(sqe, c);
}

static void reply(struct connection *c, int length) {
  struct io_uring_sqe *sqe = entry();

  c->sending = 1;
  io_uring_prep_send(sqe, c->fd, c->buffer, length, MSG_NOSIGNAL);
  io_uring_sqe_set_data(sqe, c);
}

static void add(int fd) {
  struct connection *c = malloc(sizeof(*c));

  c->fd = fd;
  receive(c);
}

static void go_on(struct connection *c, int result) {
  if (result > 0 && c->sending) receive(c);
  else if (result > 0) reply(c, result);
  else {
    close(c->fd);
    free(c);
  }
}

static void accept_all(int server) {
  struct io_uring_sqe *sqe = entry();

  io_uring_prep_multishot_accept(sqe, server, NULL, NULL, 0);
  io_uring_sqe_set_data(sqe, NULL);
}

int main(void) {
  int server = listen_and_tell(0);
  struct io_uring_params params = {
    .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE,
    .cq_entries = ENTRIES * 4 };
  struct io_uring_cqe *cqe;
  unsigned head;

  need(io_uring_queue_init_params(ENTRIES, &ring, &params) == 0, "io_uring");
  accept_all(server);
  for (;;) {
    io_uring_submit_and_wait(&ring, 1);
    unsigned seen = 0;
    io_uring_for_each_cqe(&ring, head, cqe) {
      struct connection *c = io_uring_cqe_get_data(cqe);
      seen++;
      if (c) go_on(c, cqe->res);
      else if (cqe->res >= 0) add(cqe->res);
      if (!c && !(cqe->flags & IORING_CQE_F_MORE)) accept_all(server);
    }
    io_uring_cq_advance(&ring, seen);
  }
}
