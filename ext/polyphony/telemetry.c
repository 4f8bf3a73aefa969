/* telemetry.c - see telemetry.h */
#include "telemetry.h"

VALUE telemetry_hooks = Qnil;

VALUE telemetry_capture(void) { return rb_funcall(telemetry_hooks, id_capture, 0); }

struct body {
  VALUE (*call)(VALUE);
  VALUE argument;
};

static VALUE call_body(RB_BLOCK_CALL_FUNC_ARGLIST(yielded, data)) {
  struct body *body = (struct body *)data;
  (void)yielded, (void)argc, (void)argv, (void)blockarg;

  return body->call(body->argument);
}

VALUE telemetry_run(VALUE context, VALUE fiber, VALUE (*body)(VALUE), VALUE argument) {
  struct body call = { body, argument };
  VALUE words[] = { context, fiber };

  if (NIL_P(context) || NIL_P(telemetry_hooks)) return body(argument);
  return rb_block_call(telemetry_hooks, id_begin, 2, words, call_body, (VALUE)&call);
}

void telemetry_init(void) { rb_gc_register_address(&telemetry_hooks); }
