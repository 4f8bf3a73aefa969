/* io.h - the one wait and the operations built on it. Layer 1; everything here switches and
 * raises unless it says otherwise. An `io` is whatever fd_of takes. */
#ifndef POLYPHONY_IO_H
#define POLYPHONY_IO_H

#include <poll.h>
#include "backend_base.h"
#include "buffer.h"
#include "errors.h"
#include "fd.h"

/* A fresh op; raises NoMemoryError, after giving back what the fiber has lent. */
struct op *io_op(struct backend_base *backend, enum op_kind kind, int fd);
/* The same, for writing these bytes; snapshot keeps them and is lent, or is Qnil: they are few, and the op has its own. */
struct op *io_op_writing(struct backend_base *backend, enum op_kind kind, int fd, VALUE snapshot, const char *base,
                         size_t length);
/* The same with that many zeroed bytes in op->memory. */
struct op *io_op_with_memory(struct backend_base *backend, enum op_kind kind, int fd, size_t size);

/* Submits the op and waits until it is settled; always a switchpoint. Returns 0 or more, or
 * -errno (never -EAGAIN, -EINTR). The loan of the fiber's record is returned in any case. If the
 * fiber is woken with an exception: the op is withdrawn, what the kernel had done already is
 * reclaimed (bytes to the read-ahead, a socket kept for the next accept, a descriptor closed), the
 * op released, the exception raised.
 * A plain wake, or an interjection, does not end the wait: data could be mistaken for EOF. (After
 * it, an orphanable call may have settled with -ECANCELED: the caller makes a new one.)
 * On return the caller releases the op. subject: what the fiber waits for, in reports. */
int64_t io_await(struct backend_base *backend, struct op *op, VALUE subject);
/* The same until a time on the clock of backend_base_now (CLOCK_NEVER: no limit). -ETIMEDOUT when it
 * is over and the op has come to nothing. */
int64_t io_await_until(struct backend_base *backend, struct op *op, VALUE subject, int64_t deadline);
/* The same for a caller who keeps count of bytes: if the kernel had done the op already, its result is
 * returned, and the exception is delivered at the fiber's next switchpoint. */
int64_t io_await_firmly(struct backend_base *backend, struct op *op, VALUE subject);
/* io_await and io_await_until, and they release the op. */
int64_t io_perform(struct backend_base *backend, struct op *op, VALUE subject);
int64_t io_perform_until(struct backend_base *backend, struct op *op, VALUE subject, int64_t deadline);
/* So many nanoseconds from now; negative: CLOCK_NEVER. */
int64_t io_deadline_in(struct backend_base *backend, int64_t period);
/* Whether a result is that of a deadline: the kernel knows -ETIMEDOUT, too. */
bool io_late_p(struct backend_base *backend, int64_t result, int64_t deadline);

/* A multishot op: submits it if it is idle, waits for its next shot; false when it has settled and
 * there is none left. Always a switchpoint. It goes on while the caller does other things; whatever
 * is raised here or there, the caller withdraws and releases it. */
bool io_await_shot(struct backend_base *backend, struct op *op, struct op_shot *shot,
                   VALUE subject);
/* Ends an op in whatever state it is; on return it is settled or was never submitted. Does not
 * raise: returns a tag if the thread was killed meanwhile, else 0. Switches seldom. */
int io_withdraw(struct backend_base *backend, struct op *op);
/* Submits all (a chain, if OP_LINKED) and waits until all are settled, for the caller to look at
 * and release. Woken with an exception: all are withdrawn, released, and it is raised; what the
 * kernel had done is done. After an interjection some may be settled with -ECANCELED. */
void io_await_all(struct backend_base *backend, struct op **ops, unsigned count, VALUE subject);

/* Waits until there is something to read; what: as which reports name it. */
void io_wait_told(struct backend_base *backend, int fd, const char *what, VALUE subject);
/* Waits until fd is ready (POLLIN, POLLOUT); returns revents; raises for -errno. */
int io_wait_ready(struct backend_base *backend, int fd, int events, VALUE subject);
/* The same until that time; 0 when it is over. */
int io_wait_ready_until(struct backend_base *backend, int fd, int events, VALUE subject,
                        int64_t deadline);
/* The same for so many nanoseconds (negative: for ever); 0 when they are over. */
int io_wait_ready_for(struct backend_base *backend, int fd, int events, int64_t timeout,
                      VALUE subject);

/* Whether bytes or a socket that a cancelled operation had got are there to be taken: then who waits to
 * read need not wait. Neither switches nor raises. */
bool io_ready_at_once_p(int fd);

/* Takes part in the turn although nothing had to be waited for. */
void io_snooze(struct backend_base *backend);
/* Said first by methods that do not switch while they find something to do: whoever calls nothing else
 * lets others run now and then. Any fiber of any thread. Switches. */
void io_give_way(void);

/* Wakes every fiber of this thread and others that waits on fd with IOError, and withdraws their
 * operations. Does not wait for them: none will touch the number again, so the caller may close it. */
void io_release_waiters(int fd);

/* io_stream.c */
VALUE io_read(VALUE io, VALUE buffer, VALUE length, bool to_eof, long pos, bool socket);
/* recv for at most so many nanoseconds (negative: for ever); Qfalse when they are over. */
VALUE io_recv_within(VALUE io, VALUE buffer, VALUE length, long pos, int64_t period);
/* recv of what is there, Qfalse if nothing is. Does not switch, unless bytes had been given back. */
VALUE io_recv_at_once(VALUE io, VALUE buffer, VALUE length, long pos);
VALUE io_read_loop(VALUE io, size_t maxlen, bool socket);            /* yields each chunk */
VALUE io_feed_loop(VALUE io, VALUE receiver, ID method, bool socket);
VALUE io_write(VALUE io, int count, const VALUE *buffers);
VALUE io_close(VALUE io);
VALUE io_fsync(VALUE io, bool datasync);
VALUE io_open(VALUE path, int flags, int mode);                      /* a descriptor */
VALUE io_stat(VALUE path_or_io);                                     /* Hash */
int64_t io_write_all(struct backend_base *backend, int fd, const char *base, size_t length,
                     VALUE snapshot, VALUE io);                      /* raises; total */

/* For Ruby's own buffers, which count what they have: one operation, at the file's position if offset
 * is negative. Bytes, or -errno; an exception that comes with bytes is delivered later. */
int64_t io_read_memory(VALUE io, char *base, size_t length, int64_t offset);
int64_t io_write_memory(VALUE io, const char *base, size_t length, int64_t offset);
/* What of that can be done without a switch, where nobody else has the chance to change the bytes; -EAGAIN if nothing can,
 * or if it is others' turn. */
int64_t io_read_at_once(VALUE io, char *base, size_t length, int64_t offset);
int64_t io_write_at_once(VALUE io, const char *base, size_t length);
/* The rest of writing, which may switch. */
int64_t io_write_waiting(VALUE io, const char *base, size_t length, int64_t offset);
/* io_plain.c: the same while the whole thread waits; and poll(2), what happened, 0 when the period is over. */
int64_t io_plain_read(VALUE io, char *base, size_t length, int64_t offset);
int64_t io_plain_write(VALUE io, const char *base, size_t length, int64_t offset);
int io_plain_wait(int fd, int events, int64_t period);
/* Writes what Ruby has buffered, as long as it can. For fd_drain: it may have to lock, which only
 * fibers can where Ruby asks the scheduler. */
VALUE io_drain(VALUE io);

/* io_socket.c, io_accept.c, io_connect.c */
VALUE io_send(VALUE io, VALUE buffer, int flags);
/* The same for at most so many nanoseconds: Qfalse when they are over, and nobody knows how much went out. Switches only
 * if it has to wait. */
VALUE io_send_within(VALUE io, VALUE buffer, int flags, int64_t period);
VALUE io_sendv(VALUE io, VALUE buffers, int flags);
VALUE io_sendmsg(VALUE io, VALUE buffer, int flags, VALUE address, VALUE controls);
VALUE io_recvmsg(VALUE io, VALUE buffer, size_t maxlen, long pos, int flags, size_t maxcontrol,
                 VALUE options);
bool io_blocking_mode_p(int fd);                                     /* neither switches nor raises */
/* As much as goes at once, at least a byte, on a socket in non-blocking mode; all on another. */
VALUE io_send_by_mode(VALUE io, VALUE text, int flags, VALUE address);
void io_close_on_worker(VALUE io, int fd);  /* for a close that takes its time */
VALUE io_accept(VALUE server, VALUE socket_class);
int io_accept_descriptor(VALUE server);
int io_accept_from(VALUE server, struct sockaddr_storage *address, socklen_t *length);
/* Yields each socket. batch: how many that are there already it yields without a switch, at least 1. */
VALUE io_accept_loop(VALUE server, VALUE socket_class, unsigned batch);
VALUE io_connect(VALUE socket, VALUE host, VALUE port);
int64_t io_connect_packed(VALUE socket, VALUE packed);               /* 0 or -errno */
/* Bytes were given back: fibers of this thread that wait for some look again, as their op settles
 * with -ECANCELED. */
void io_read_again(struct backend_base *backend, int fd);
void io_accept_again(int fd);               /* after an accept was cancelled: it may owe a wake */
void io_keep_accepted(int fd, int socket);  /* for whoever accepts next; neither raises */
bool io_has_accepted(int fd);               /* whether one is kept; neither switches nor raises */
int io_take_accepted(int fd);               /* or -1; likewise */
void io_forget_accepted(int fd);        /* a listener is being closed: so are sockets kept for it */

/* io_splice.c, io_chain.c */
VALUE io_splice(VALUE source, VALUE target, long maxlen);
VALUE io_tee(VALUE source, VALUE target, long maxlen);
VALUE io_double_splice(VALUE source, VALUE target);
VALUE io_splice_chunks(VALUE source, VALUE target, const VALUE affixes[4], long chunk_size);
VALUE io_chain(int count, const VALUE *operations);

/* io_select.c: IO.select, for at most that many nanoseconds (negative: for ever). The Arrays, or nil, hold
 * IOs or what has to_io. Three Arrays of what is ready, or nil. */
VALUE io_select(VALUE readables, VALUE writables, VALUE exceptables, int64_t timeout);

/* A fiber that waits for several descriptors at once, in backend->selects meanwhile. Not on its stack:
 * a thread may end without it. */
struct select_wait {
  struct list link;
  struct fiber_state *fiber;
  int epoll;                            /* -1 when closed */
  unsigned count;
  struct pollfd fds[];                  /* in order of their numbers */
};
bool select_waits_for_p(const struct select_wait *wait, int fd);
void select_forget_all(struct list *selects);          /* nobody will come back to them */

/* io_time.c */
VALUE io_sleep(int64_t nanoseconds);                   /* negative: for ever; resume value */
VALUE io_timer_loop(int64_t period);                   /* yields at a fixed rate */
int64_t io_period(VALUE seconds);                      /* of a timeout: nil -1, negative 0; raises */
int64_t io_nanoseconds(VALUE seconds);                 /* raises for what is not a duration */
int64_t io_interval(VALUE seconds);                    /* as IO.select takes them: nil -1; raises as stock */

/* io_process.c */
VALUE io_waitpid(int pid);                             /* [pid, raw status] */
/* A Process::Status, as Process::Status.wait: its pid is -1 when there is no such child, and with
 * WNOHANG it may be nil. What is reaped is returned without a switch in between, so a cancel loses
 * nothing; nobody who waits for any child gets one that somebody waits for by its pid. */
VALUE io_process_wait(int pid, int flags);
/* The same for stock methods, called by a scheduler's process_wait: no switchpoint if it need not wait,
 * and if system is cut short, its child is reaped when it ends. */
VALUE io_process_wait_hook(int pid, int flags);
/* Returns when that child has ended, perhaps before, or if it is none; reaps nothing. */
int io_open_pidfd(int pid);                            /* -1 and errno; close-on-exec */
void io_process_await(int pid);
int io_process_pid(VALUE status);                      /* of a Process::Status or ::Waiter */
/* Says that somebody waits for that child elsewhere (1), or does no more (-1). Does not raise. */
void io_process_claim(int pid, int by);
void io_process_keep(VALUE status);                    /* for whoever waits for that child next */
void io_process_after_fork(void);
void io_process_init(void);                            /* once, at load */

#endif
