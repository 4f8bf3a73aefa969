/* telemetry.h - what a trace of requests (OpenTelemetry, for instance) calls the current context: it is asked for where a fiber
 * is spun, a thread made or a message sent, kept with that, and given back where the fiber, the thread or the receiver
 * goes on. What it is, is the business of the hooks in lib/polyphony/core/telemetry.rb. Layer 1.
 *
 * Off, it costs a comparison for each spin and for each push to a queue. */
#ifndef POLYPHONY_TELEMETRY_H
#define POLYPHONY_TELEMETRY_H

#include "polyphony.h"

extern VALUE telemetry_hooks;           /* Polyphony::Telemetry while there are hooks; else Qnil */

void telemetry_init(void);              /* once, at load */

/* The current context, or Qnil if there is none to carry on. Calls Ruby code, which must not switch; does not raise
 * StandardErrors. */
VALUE telemetry_capture(void);

/* Calls body(argument) in a context that was captured, for the fiber that begins. Raises what body does. */
VALUE telemetry_run(VALUE context, VALUE fiber, VALUE (*body)(VALUE), VALUE argument);

static inline VALUE telemetry_context(void) { return NIL_P(telemetry_hooks) ? Qnil : telemetry_capture(); }

#endif
