/* queue.h - Polyphony::Queue for callers in C: mailboxes. Layer 2; switches and raises as the
 * methods do. */
#ifndef POLYPHONY_QUEUE_H
#define POLYPHONY_QUEUE_H

#include "polyphony.h"

VALUE queue_new(void);                  /* uncapped */
VALUE queue_new_mailbox(VALUE owner);   /* of the fiber with that record; retires when it ends */
VALUE queue_push(VALUE queue, VALUE item);
void queue_add(VALUE queue, VALUE item);  /* past its capacity; not if closed */
VALUE queue_shift(VALUE queue);         /* waits */

#endif
