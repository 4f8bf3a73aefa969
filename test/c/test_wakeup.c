#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include "test.h"
#include "wakeup.h"

static struct wakeup wakeup;

static int readable(int timeout) {
  struct pollfd pollfd = { .fd = wakeup.fd, .events = POLLIN };
  return poll(&pollfd, 1, timeout);
}

static void *signal_from_thread(void *unused) {
  wakeup_signal(&wakeup);
  return unused;
}

TEST(wakeup_by_a_thread_ends_a_wait) {
  pthread_t thread;

  CHECK_EQUAL(0, wakeup_open(&wakeup));
  CHECK_EQUAL(0, readable(0));
  CHECK_EQUAL(0, pthread_create(&thread, NULL, signal_from_thread, NULL));
  CHECK_EQUAL(1, readable(-1));
  pthread_join(thread, NULL);
  wakeup_drain(&wakeup);
  CHECK_EQUAL(0, readable(0));
  wakeup_close(&wakeup);
}

static void signal_from_handler(int number) {
  (void)number;
  wakeup_signal(&wakeup);
}

TEST(wakeup_by_a_signal_handler_keeps_errno) {
  CHECK_EQUAL(0, wakeup_open(&wakeup));
  signal(SIGUSR1, signal_from_handler);
  errno = EDOM;
  raise(SIGUSR1);
  CHECK_EQUAL(EDOM, errno);
  CHECK_EQUAL(1, readable(0));
  wakeup_close(&wakeup);
  raise(SIGUSR1);                      /* closed: nothing happens */
  CHECK_EQUAL(EDOM, errno);
}

TEST(wakeup_coalesces_any_number_of_signals) {
  CHECK_EQUAL(0, wakeup_open(&wakeup));
  for (int i = 0; i < 100000; i++) wakeup_signal(&wakeup);
  CHECK_EQUAL(1, readable(0));
  wakeup_drain(&wakeup);
  CHECK_EQUAL(0, readable(0));
  wakeup_drain(&wakeup);               /* empty: does not wait */
  wakeup_close(&wakeup);
}
