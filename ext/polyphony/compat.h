/* compat.h - the differences between Ruby 3.1 and 4.0, all in one place.
 * have_func in extconf.rb decides; nothing here looks at a version number. */
#ifndef POLYPHONY_COMPAT_H
#define POLYPHONY_COMPAT_H

#pragma GCC diagnostic push             /* Ruby's own headers are not written for -Wextra */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <ruby.h>
#include <ruby/debug.h>
#include <ruby/encoding.h>
#include <ruby/fiber/scheduler.h>
#include <ruby/io.h>
#include <ruby/io/buffer.h>
#include <ruby/thread.h>
#pragma GCC diagnostic pop

/* The thread stays on its native thread: an io_uring with SINGLE_ISSUER insists (3.4 and later,
 * where threads may move; before, they do not). */
static inline void compat_lock_native_thread(void) {
#ifdef HAVE_RB_THREAD_LOCK_NATIVE_THREAD
  rb_thread_lock_native_thread();
#endif
}

#endif
