/* wakeup.h - lets any thread, or a signal handler, end another thread's wait.
 * Owner: struct loop. Plain C, no GVL needed anywhere in this file. */
#ifndef POLYPHONY_WAKEUP_H
#define POLYPHONY_WAKEUP_H

struct wakeup {
  int fd;                              /* readable while signalled; -1 when closed */
  int write_fd;                        /* where to write; the same as fd for an eventfd */
};

int  wakeup_open(struct wakeup *w);    /* 0 or -errno; close-on-exec, non-blocking */
void wakeup_close(struct wakeup *w);
void wakeup_signal(struct wakeup *w);  /* any thread, async-signal-safe; keeps errno */
void wakeup_drain(struct wakeup *w);   /* owner: makes fd unreadable again */

#endif
