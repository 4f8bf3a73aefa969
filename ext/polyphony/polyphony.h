/* polyphony.h - what every file of layers 1 and 2 sees: Ruby, compat, our IDs and modules. */
#ifndef POLYPHONY_H
#define POLYPHONY_H

#include "compat.h"

/* Of a variable that hot code looks at. With -fvisibility=hidden alone its address is taken from a table first. */
#define OURS __attribute__((visibility("hidden")))

#define ID_ENTRY(name, string) extern ID id_##name;
#include "ids.def"
#undef ID_ENTRY

extern VALUE mPolyphony;                /* module Polyphony */
extern VALUE cFiber;                    /* ::Fiber, which has no C name in the public headers */

void ids_init(void);

/* Each file of layer 2 adds its methods. Called once, in this order, by polyphony_ext.c. */
void class_fiber_init(void);
void class_thread_init(void);
void class_backend_init(void);
void class_waitlist_init(void);
void class_queue_init(void);
void class_event_init(void);
void class_mutex_init(void);
void class_condition_init(void);
void class_sched_init(void);
void class_semaphore_init(void);
void class_pipe_init(void);
void class_scope_init(void);
void class_exception_init(void);
void class_scheduler_init(void);
void class_stand_in_init(void);
void class_aside_init(void);
void class_sqlite_init(void);
void class_fifo_init(void);
void class_io_end_init(void);
void class_claims_init(void);
void class_testing_init(void);
void class_reserved_init(void);
void direct_paths_init(void);
void class_stock_locks_init(void);
void class_stock_queues_init(void);
void class_process_init(void);
void direct_sockets_init(void);
void direct_connections_init(void);

#endif
