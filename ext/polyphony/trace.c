/* trace.c - see trace.h */
#include "trace.h"

struct trace {
  VALUE proc;
  int argc;
  const VALUE *argv;
};

static VALUE trace_body(VALUE argument) {
  struct trace *trace = (struct trace *)argument;

  return rb_funcallv(trace->proc, id_call, trace->argc, trace->argv);
}

void backend_base_trace(struct backend_base *backend, int argc, const VALUE *argv) {
  struct trace trace = { backend->trace_proc, argc, argv };
  int state;

  if (NIL_P(trace.proc) || backend->tracing) return;
  backend->tracing = true;
  rb_protect(trace_body, (VALUE)&trace, &state);
  backend->tracing = false;
  if (state) rb_jump_tag(state);
}

void trace_schedule(struct backend_base *backend, struct fiber_state *fiber, VALUE value, bool first) {
  VALUE event[] = { ID2SYM(rb_intern("schedule")), fiber->fiber, value, first ? Qtrue : Qfalse,
                    rb_make_backtrace() };

  backend_base_trace(backend, 5, event);
}

void trace_poll(struct backend_base *backend, const char *name) {
  VALUE event[] = { ID2SYM(rb_intern(name)), rb_fiber_current() };

  backend_base_trace(backend, 2, event);
}

void trace_block(struct backend_base *backend, struct fiber_state *self) {
  VALUE event[] = { ID2SYM(rb_intern("block")), self->fiber, rb_make_backtrace() };

  backend_base_trace(backend, 3, event);
}

void trace_unblock(struct backend_base *backend, struct fiber_state *self, VALUE value) {
  VALUE event[] = { ID2SYM(rb_intern("unblock")), self->fiber, value, rb_make_backtrace() };
  enum resume_how how = backend->how;  /* the proc may switch fibers itself */

  backend_base_trace(backend, 4, event);
  backend->how = how;
}
