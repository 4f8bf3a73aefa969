/* versions.c - the versions of the libraries and of the compiler which the limits are built with. */
#include <stdio.h>
#if __has_include(<ev.h>)
#include <ev.h>
#endif
#if __has_include(<liburing.h>)
#include <liburing.h>
#endif

int main(void) {
  printf("{");
#ifdef IO_URING_VERSION_MAJOR
  printf("\"liburing\": \"%d.%d\", ", IO_URING_VERSION_MAJOR, IO_URING_VERSION_MINOR);
#endif
#ifdef EV_VERSION_MAJOR
  printf("\"libev\": \"%d.%d\", ", EV_VERSION_MAJOR, EV_VERSION_MINOR);
#endif
  printf("\"compiler\": \"%s\"}\n", __VERSION__);
  return 0;
}
