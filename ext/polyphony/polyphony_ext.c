/* polyphony_ext.c - where Ruby enters. */
#include "backend_base.h"
#include "errors.h"
#include "fiber_life.h"
#include "fiber_state.h"
#include "loading.h"
#include "place.h"
#include "ractor.h"
#include "stall.h"
#include "telemetry.h"
#include "thread_life.h"
#include "timeline.h"

/* What stands before stock methods. Other ractors have no backend: there it is stock. */
static void stock_methods_init(void) {
  rb_ext_ractor_safe(true);
  class_exception_init();
  class_thread_init();
  class_stand_in_init();
  class_fifo_init();
  class_io_end_init();
  class_reserved_init();
  direct_paths_init();
  class_stock_locks_init();
  class_stock_queues_init();
  class_process_init();
  direct_sockets_init();
  direct_connections_init();
  rb_ext_ractor_safe(false);
}

RUBY_FUNC_EXPORTED void Init_polyphony_ext(void) {
  ractor_init();
  ids_init();
  errors_init();
  fiber_state_init();
  backend_base_init();
  stall_init();
  telemetry_init();
  timeline_init();
  fiber_life_init();
  place_init();
  loading_init();
  thread_life_init();
  class_waitlist_init();
  class_queue_init();
  class_event_init();
  class_mutex_init();
  class_condition_init();
  class_sched_init();
  class_semaphore_init();
  class_pipe_init();
  class_scope_init();
  class_fiber_init();
  class_backend_init();
  class_scheduler_init();
  class_aside_init();
  class_sqlite_init();
  class_claims_init();
  class_testing_init();
  stock_methods_init();
  backend_base_note_root();
}
