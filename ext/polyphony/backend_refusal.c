/* backend_refusal.c - switches to fibers that may not take it: new ones, for which there may be no memory, those that are not
 * ours, and those that are killed. */
#include "backend_parts.h"
#include "fiber_life.h"

static VALUE transfer_body(VALUE argument) {
  struct runqueue_entry *next = (struct runqueue_entry *)argument;

  /* The method asks whether that fiber may be switched to; up to Ruby 3.2 the function does not. */
  if (next->fiber->spun || next->fiber->root) return rb_fiber_transfer(next->fiber->fiber, 1, &next->value);
  return rb_funcallv(next->fiber->fiber, id_transfer, 1, &next->value);
}

static VALUE stack_error(VALUE error) {
  return rb_exc_new_str(CLASS_OF(error), rb_sprintf("%"PRIsVALUE"; every fiber needs two memory "
    "mappings, raise the limit: sysctl vm.max_map_count", rb_obj_as_string(error)));
}

/* Stacks of fibers that have ended are only given back by the GC: it is asked once, and not again
 * before others have ended, for with that many fibers it takes long. */
static bool try_again(struct backend_base *backend, struct runqueue_entry *next) {
  if (next->fiber->retried || backend->ended_at_gc == backend->ended_count) return false;
  next->fiber->retried = true;
  backend->ended_at_gc = backend->ended_count;
  rb_gc_start();
  backend_enqueue(backend, next->fiber, next->value, next->how, AT_HEAD);
  return true;
}

/* Ruby may refuse to switch: there is no memory for the stack of a new fiber, which then ends
 * with that error; or a fiber that is not ours has ended, or has yielded to whoever resumes it,
 * and was scheduled by mistake: the main fiber is told. */
static void refuse(struct backend_base *backend, struct runqueue_entry *next) {
  VALUE error = rb_errinfo();
  bool newborn = next->fiber->spun && !next->fiber->started;

  rb_set_errinfo(Qnil);
  if (backend_own_limit_p(next->fiber, next->value)) return;   /* incoming: it gets it when it waits again */
  if (next->how == RESUME_RAISE && !NIL_P(fiber_state_noted(next->value, id_source))) {
    next->fiber->incoming = Qundef;
    error = next->value;        /* of a child: it must not be lost */
  }
  if (!newborn) backend_base_schedule(backend->root, error, RESUME_RAISE);
  else if (!try_again(backend, next)) fiber_life_fail(next->fiber, stack_error(error));
}

VALUE backend_fiber_kill = Qundef;

static VALUE yield_once(VALUE nothing) { return rb_fiber_yield(0, &nothing); }

static VALUE note_kill(RB_BLOCK_CALL_FUNC_ARGLIST(first, data)) {
  int state;
  (void)first, (void)data, (void)argc, (void)argv, (void)blockarg;

  rb_protect(yield_once, Qnil, &state);
  if (FIXNUM_P(rb_errinfo())) backend_fiber_kill = rb_errinfo();
  if (state) rb_jump_tag(state);
  return Qnil;
}

/* Ruby has no name for it: one is killed, and looked at. */
void backend_learn_fiber_kill(void) {
  VALUE fiber = rb_fiber_new(note_kill, Qnil);

  if (!rb_respond_to(fiber, id_kill)) return;
  rb_fiber_resume(fiber, 0, NULL);
  rb_funcallv(fiber, id_kill, 0, NULL);
}

static bool killed_again_p(struct backend_base *backend, struct fiber_state *self) {
  return backend_killable_p(self) && rb_errinfo() == backend_fiber_kill && (backend->current == self || backend->handover);
}

VALUE backend_transfer_with_care(struct backend_base *backend, struct fiber_state *self,
                                struct runqueue_entry *next) {
  int state;
  VALUE value = rb_protect(transfer_body, (VALUE)next, &state);

  if (!state) return value;
  if (killed_again_p(backend, self)) {
    rb_set_errinfo(Qnil);
    value = backend->handover ? Qnil : backend->handed;
    backend->handed = Qnil;
    return value;
  }
  /* We were away and came back; or that fiber was killed with the thread, and now it is our turn. */
  bool killed = !RTEST(rb_obj_is_kind_of(rb_errinfo(), rb_eException));
  if (killed || backend->current != next->fiber) rb_jump_tag(state);
  backend->current = self;
  refuse(backend, next);
  backend->handover = true;
  return Qnil;
}
