/* support.h - describing and waiting for ops in tests, and things to try them on. */
#ifndef POLYPHONY_TEST_SUPPORT_H
#define POLYPHONY_TEST_SUPPORT_H

#include <netinet/in.h>
#include <semaphore.h>
#include "loop.h"

/* A driver that does nothing by itself: ops stay in flight until the test settles them. */
extern const struct driver fake_driver;
extern unsigned fake_recycled;         /* calls of recycle */
extern int fake_open_result;           /* what open returns */

/* Ops, described but not submitted. offset -1, no flags, where a request has those. */
struct op *op_read(struct loop *loop, int fd, char *base, size_t len);
struct op *op_write(struct loop *loop, int fd, const char *base, size_t len);
struct op *op_recv(struct loop *loop, int fd, char *base, size_t len, int flags);
struct op *op_send(struct loop *loop, int fd, const char *base, size_t len, int flags);
struct op *op_accept(struct loop *loop, int fd, int flags);
struct op *op_connect(struct loop *loop, int fd, const struct sockaddr_in *addr);
struct op *op_poll(struct loop *loop, int fd, unsigned events);
struct op *op_call(struct loop *loop, int64_t (*fn)(void *), void *arg, bool orphanable);

struct op *submitted(struct loop *loop, struct op *op);   /* submits, returns op */
void await(struct loop *loop, struct op *op);             /* polls until it has settled */
int64_t finish(struct loop *loop, struct op *op);         /* await, release; the result */
int64_t run_op(struct loop *loop, struct op *op);         /* submit and finish */
/* Polls without waiting; checks that op is still in flight. */
void check_pending(struct loop *loop, struct op *op);
/* Cancels and polls without ever waiting: checks that it settles. Releases; the result. */
int64_t cancel_and_finish(struct loop *loop, struct op *op);
void forget_news(struct loop *loop);

enum blocking { BLOCKING, NONBLOCKING };
void open_pipe(int fds[2], enum blocking blocking);
void open_pair(int fds[2], enum blocking blocking);       /* AF_UNIX stream */
void open_tcp_pair(int fds[2]);
int open_listener(struct sockaddr_in *addr, int backlog); /* on loopback, any port */
int open_tcp(void);
int open_temporary(void);                                 /* a regular file without a name */
void close_both(int fds[2]);
void fill(int fd);                                        /* writes until it would block */
size_t drain(int fd);                                     /* reads until it would block */
void write_all(int fd, const char *bytes, size_t len);
int unused_descriptor(void);                              /* a number that is not open */

/* A call on a worker that tells when it started and ends when it may. */
struct gate {
  sem_t started, may_end, ended;
  int64_t result;
  int runs;
};
void gate_init(struct gate *gate, int64_t result);
int64_t gate_pass(void *gate);
void gate_free(struct gate *gate);
void semaphore_wait(sem_t *semaphore);

#endif
