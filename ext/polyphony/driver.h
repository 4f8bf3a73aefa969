/* driver.h - what a driver (io_uring, libev) owes to the loop above it.
 * Plain C, no GVL needed. Callers ask for a feature bit, never for a driver's name. */
#ifndef POLYPHONY_DRIVER_H
#define POLYPHONY_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loop;
struct op;

enum driver_feature {
  DRIVER_COMPLETION   = 1 << 0,  /* the kernel carries ops out later: memory is lent meanwhile */
  DRIVER_LINK         = 1 << 1,  /* OP_LINKED works */
  DRIVER_MULTI_ACCEPT = 1 << 2,
  DRIVER_MULTI_RECV   = 1 << 3,
};

/* group: "flag", "opcode" or "extra". */
typedef void (*driver_teller)(void *argument, const char *group, const char *name, bool there);

struct driver {
  const char *name;              /* what POLYPHONY_BACKEND and Backend#kind call it */

  /* 0 if this driver can work in this process, else -errno of what refused it, and in why (size
   * bytes) one line that a user understands and that names a way out. Opens nothing for good. */
  int (*probe)(char *why, size_t size);

  /* Tells what it uses of what the kernel offers, for polyphony doctor: nothing where it does not work. NULL: there is nothing
   * to tell. */
  void (*describe)(driver_teller tell, void *argument);

  /* 0 or -errno; sets loop->driver_data, loop->features and loop->poller. Called by the thread that will use
   * the loop, which is the only one to call anything below. Must watch loop->wakeup. */
  int (*open)(struct loop *loop);

  /* Cancels what is in flight, waits until the kernel has let go of all lent memory, frees. */
  void (*close)(struct loop *loop);

  /* In a forked child: lets go of what was inherited without disturbing the parent, opens anew.
   * The loop has forgotten all ops already. 0 or -errno. */
  int (*after_fork)(struct loop *loop);

  /* Starts an op. Never fails: a full queue is flushed, an impossible request settles with -errno.
   * May settle at once (loop_settle). Does not block. */
  void (*submit)(struct loop *loop, struct op *op);

  /* Withdraws an op in flight. After it returns no outside event is needed for the op to settle:
   * at once, or during a following poll; with -ECANCELED or with what had happened already. */
  void (*cancel)(struct loop *loop, struct op *op);

  /* Collects what happened and settles ops. timeout_ns: 0 does not wait, -1 waits for ever.
   * The only place that blocks; runs without the GVL when it may. Returns early when
   * loop->wakeup is signalled or a signal arrives. Returns 0, or -errno if the driver is broken. */
  int (*poll)(struct loop *loop, int64_t timeout_ns);

  /* Gives back the buffer of a shot of OP_RECV_MULTI (and ignores the id of a shot that has none);
   * its address. NULL without that feature. */
  void (*recycle)(struct loop *loop, uint32_t buffer);
  char *(*buffer)(struct loop *loop, uint32_t buffer);
};

/* driver_table.c: what is compiled in, best first, NULL at the end. */
extern const struct driver *const driver_table[];
const struct driver *driver_find(const char *name);           /* NULL if not compiled in */

/* Chooses. name: "io_uring", "libev" (an order) or "auto", NULL, "" (first whose probe answers).
 * Returns NULL when refused; why then says who refused and how. When auto passes over a driver,
 * the driver chosen is returned and why is not empty: the caller shows it once. */
const struct driver *driver_choose(const char *name, char *why, size_t size);

#ifdef HAVE_LIBURING
extern const struct driver driver_uring;
#endif
#ifdef HAVE_LIBEV
extern const struct driver driver_libev;
#endif

#endif
