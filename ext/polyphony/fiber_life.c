/* fiber_life.c - see fiber_life.h */
#include <stdio.h>
#include "errors.h"
#include "fiber_life.h"
#include "generator.h"
#include "place.h"
#include "holding.h"
#include "stall.h"
#include "starter.h"
#include "telemetry.h"
#include "timeline.h"
#include "waitlist.h"

/* ---- running the block ----------------------------------------------------------------------- */

struct run {
  struct fiber_state *fiber;
  VALUE value;
  enum resume_how how;
};

static VALUE call_block(VALUE argument) {
  struct run *run = (struct run *)argument;
  VALUE block = run->fiber->block;

  if (run->how == RESUME_RAISE) {
    error_invoke(run->value);   /* comes back from an interjection */
    run->value = Qnil;
  }
  /* spin(&method(:job)) with a method that takes nothing */
  bool bare = RTEST(rb_proc_lambda_p(block)) && rb_proc_arity(block) == 0;
  return rb_proc_call_with_block(block, !bare, &run->value, Qnil);
}

static VALUE call_block_imposed(RB_BLOCK_CALL_FUNC_ARGLIST(yielded, data)) {
  (void)yielded, (void)argc, (void)argv, (void)blockarg;
  return call_block(data);
}

static VALUE run_block_in_time(VALUE argument) {
  struct fiber_state *fiber = ((struct run *)argument)->fiber;

  if (NIL_P(fiber->deadline)) return call_block(argument);
  return rb_block_call(fiber->deadline, id_impose, 0, NULL, call_block_imposed, argument);
}

static VALUE run_block(VALUE argument) {
  struct fiber_state *fiber = ((struct run *)argument)->fiber;

  if (NIL_P(fiber->context)) return run_block_in_time(argument);
  return telemetry_run(fiber->context, fiber->fiber, run_block_in_time, argument);
}

static bool is_a(VALUE object, VALUE klass) { return RTEST(rb_obj_is_kind_of(object, klass)); }
static bool stop_p(VALUE error) { return is_a(error, eMoveOn) || is_a(error, eTerminate); }

static void set_result(struct fiber_state *fiber, VALUE result, bool failed) {
  FIBER_WRITE(fiber, result, result);
  fiber->failed = failed;
}

static VALUE name_source(VALUE argument) {
  VALUE *pair = (VALUE *)argument;

  if (!NIL_P(rb_funcall(pair[0], id_source_fiber, 0))) return Qnil;  /* passed up by a child */
  return rb_funcall(pair[0], id_set_source_fiber, 1, pair[1]);
}

/* A frozen exception, or one whose class objects, stays without. */
static void set_failure(struct fiber_state *fiber, VALUE error) {
  VALUE pair[] = { error, fiber->fiber };
  int state;

  set_result(fiber, error, true);
  rb_protect(name_source, (VALUE)pair, &state);
  if (state) rb_set_errinfo(Qnil);
}

/* What the user's own method raised. */
static void fail_with_errinfo(struct fiber_state *fiber) {
  VALUE error = rb_errinfo();

  rb_set_errinfo(Qnil);
  set_failure(fiber, error);
}

static VALUE value_of(VALUE error) { return rb_funcall(error, id_value, 0); }

static void set_outcome(struct fiber_state *fiber, VALUE error) {
  int state;

  if (!stop_p(error)) {
    set_failure(fiber, error);
    return;
  }
  VALUE value = rb_protect(value_of, error, &state);
  if (state) fail_with_errinfo(fiber);
  else set_result(fiber, value, false);
}

/* ---- children -------------------------------------------------------------------------------- */

static void stop_child(struct fiber_state *child, bool graceful) {
  child->told_to_end = true;
  if (graceful) child->graceful = true;
  backend_base_schedule(child, rb_class_new_instance(0, NULL, eTerminate), RESUME_RAISE);
}

static void stop_children(struct fiber_state *fiber, bool graceful) {
  struct list *node = fiber->children.prev;

  while (node != &fiber->children) {
    struct list *previous = node->prev;
    stop_child(list_entry(node, struct fiber_state, sibling), graceful);
    node = previous;
  }
}

static VALUE park_until_child_ends(VALUE argument) {
  struct fiber_state *child = (struct fiber_state *)argument;

  return waitlist_park(&child->awaiters, child->self, "children to end");
}

/* The program is to end, or nothing can run any more: a main fiber does not wait on. */
static bool gives_up_p(VALUE error) {
  bool main = backend_base_fiber(backend_base_current())->root;

  return main && (error_ends_program_p(error) || is_a(error, eDeadlock));
}

/* Seen here, an error need not come a second time as that of a child. */
static VALUE take_failure(struct fiber_state *fiber) {
  backend_base_unschedule(backend_base_fiber(backend_base_current()), fiber->result);
  return fiber->result;
}

/* Children may be spun, or attached, while the others are being stopped: they are told, too. */
/* Errors behind the first: each is raised in its turn, if the fiber lives on; else it goes up. */
static void schedule_all(VALUE errors) {
  struct fiber_state *self = backend_base_fiber(backend_base_current());

  for (long i = 0; i < RARRAY_LEN(errors); i++)
    backend_base_schedule(self, RARRAY_AREF(errors, i), RESUME_RAISE);
}

VALUE fiber_life_shut_down_children(struct fiber_state *fiber, bool graceful, VALUE *order) {
  VALUE errors = rb_ary_new();
  int state;

  stop_children(fiber, graceful);
  while (!list_empty_p(&fiber->children)) {
    struct fiber_state *child = list_entry(fiber->children.prev, struct fiber_state, sibling);
    VALUE self = child->self;
    if (!child->told_to_end) stop_child(child, graceful);
    rb_protect(park_until_child_ends, (VALUE)child, &state);
    /* Its error was not passed on, because it is waited for. */
    if (child->ended && child->failed) rb_ary_push(errors, take_failure(child));
    RB_GC_GUARD(self);
    if (!state) continue;
    VALUE error = rb_errinfo();
    if (!is_a(error, rb_eException)) rb_jump_tag(state);
    rb_set_errinfo(Qnil);
    if (gives_up_p(error)) return error;
    if (stop_p(error) || is_a(error, eRestart)) *order = error;
    else rb_ary_push(errors, error);
  }
  VALUE first = rb_ary_shift(errors);
  schedule_all(errors);
  return first;
}

void fiber_life_await_children(struct fiber_state *fiber) {
  while (!list_empty_p(&fiber->children))
    fiber_life_await(list_entry(fiber->children.next, struct fiber_state, sibling));
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Not if an exception is to end its wait before it sees the result. */
static bool awaited_by(struct fiber_state *fiber, struct fiber_state *who) {
  return who->wait_subject == fiber->self && !backend_base_raising_p(who);
}

/* Monitors are fibers, or watches that belong to one (lib/polyphony/core/monitoring.rb). */
static bool monitored_by(struct fiber_state *fiber, struct fiber_state *who) {
  for (long i = 0; !NIL_P(fiber->monitors) && i < RARRAY_LEN(fiber->monitors); i++) {
    VALUE monitor = RARRAY_AREF(fiber->monitors, i);
    if (monitor == who->fiber) return true;
    if (rb_ivar_get(monitor, id_watcher) == who->fiber) return true;
  }
  return false;
}

/* The deadline of a fiber that is told of it itself. */
static bool heard_p(struct fiber_state *fiber) {
  return fiber->inherited && is_a(fiber->result, eDeadlineExceeded) &&
         RTEST(rb_funcall(fiber->deadline, id_heard_p, 1, fiber->result));
}

static void pass_error_on(struct fiber_state *fiber) {
  struct fiber_state *root = fiber->backend->root;
  struct fiber_state *parent = fiber->parent ? fiber->parent : root;

  if (error_ends_program_p(fiber->result)) parent = root;  /* nobody stands in their way */
  else if (fiber->starting) return;                        /* see scheduler_fiber */
  else if ((fiber->ended && awaited_by(fiber, parent)) || monitored_by(fiber, parent) || heard_p(fiber)) return;
  backend_base_schedule_first(parent, fiber->result, RESUME_RAISE);
}

static VALUE tell_monitors(VALUE argument) {
  struct fiber_state *fiber = (struct fiber_state *)argument;

  return rb_funcall(fiber->fiber, id_report_end, 0);
}

static void trace_end(struct fiber_state *fiber) {
  VALUE event[] = { ID2SYM(rb_intern("terminate")), fiber->fiber, fiber->result };

  backend_base_trace(fiber->backend, 3, event);
}

static void conclude(struct fiber_state *fiber) {
  int state;

  fiber->ended = true;
  fiber->stack_known = 0;
  runqueue_remove(&fiber->backend->runqueue, fiber);
  if (!NIL_P(fiber->mailbox)) rb_funcall(fiber->mailbox, id_retire, 0);
  if (!NIL_P(fiber->monitors)) {
    rb_protect(tell_monitors, (VALUE)fiber, &state);
    if (state) rb_set_errinfo(Qnil);
  }
  if (fiber->failed) pass_error_on(fiber);
  waitlist_wake_all(&fiber->awaiters, Qnil);
  fiber->former = fiber->parent;
  holding_end_all(fiber);
  fiber_state_adopt(NULL, fiber);
  fiber_state_forget(fiber);
  if (timeline_on) timeline_end(fiber);
  if (!NIL_P(fiber->backend->trace_proc)) trace_end(fiber);
}

void fiber_life_conclude(struct fiber_state *fiber, VALUE result, bool failed) {
  set_result(fiber, result, failed);
  conclude(fiber);
}

void fiber_life_fail(struct fiber_state *fiber, VALUE error) {
  set_failure(fiber, error);
  conclude(fiber);
}

/* Children may wait in their ensure blocks and take their time. Returns what the fiber was told last
 * meanwhile, a stop or a Restart; or Qundef. */
static VALUE end_children(struct fiber_state *fiber) {
  VALUE order = Qundef;

  if (list_empty_p(&fiber->children)) return order;
  VALUE error = fiber_life_shut_down_children(fiber, fiber->graceful, &order);
  if (!NIL_P(error)) set_failure(fiber, error);
  return order;
}

/* A child's error that came too late to be raised: it ended together with its parent. What is no
 * child's, a second stop for instance, has lost its object. Returns those behind the first, or Qnil. */
static VALUE take_late_errors(struct fiber_state *fiber) {
  VALUE error, more = Qnil;

  while ((error = backend_base_shift_exception(fiber)) != Qundef) {
    if (NIL_P(fiber_state_noted(error, id_source)) || error == fiber->result) continue;
    if (!fiber->failed) set_failure(fiber, error);
    else rb_ary_push(NIL_P(more) ? (more = rb_ary_new()) : more, error);
  }
  return more;
}

/* They go on to the grandparent, behind the one that the fiber ended with. */
static void pass_late_errors_on(struct fiber_state *fiber, VALUE errors) {
  struct fiber_state *parent = fiber->former ? fiber->former : fiber->backend->root;

  for (long i = 0; !NIL_P(errors) && i < RARRAY_LEN(errors); i++)
    backend_base_schedule(parent, RARRAY_AREF(errors, i), RESUME_RAISE);
}

VALUE fiber_life_end_children(struct fiber_state *main, bool take_late) {
  VALUE order = Qundef;         /* a stop: it is ending already */
  VALUE first = fiber_life_shut_down_children(main, main->graceful, &order), error;

  while ((error = backend_base_shift_exception(main)) != Qundef)
    if (take_late && NIL_P(first) && !NIL_P(fiber_state_noted(error, id_source))) first = error;
  return first;
}

/* In a forked child the forking fiber is the main one: when it ends, so does the process. */
static VALUE raise_result(VALUE error) { rb_exc_raise(error); }

static void end_process(struct fiber_state *fiber) {
  int status = 0;

  if (fiber->failed) rb_protect(raise_result, fiber->result, &status);
  ruby_stop(status);            /* reports what was raised, like the end of a program */
}

/* Ruby continues a fiber that returns in the thread's root fiber, or the innermost of those which that
 * one has resumed. If it is waiting in backend_base_switch_fiber, returning is the best way to go: Ruby
 * knows that the fiber is dead, and the other takes the next entry for us. (The stack is given back by
 * the GC all the same: Ruby does that at once only for fibers that were resumed, see starter.h.) If it left otherwise,
 * this fiber switches away and never comes back. */
VALUE fiber_life_depart(struct fiber_state *fiber) {
  struct backend_base *backend = fiber->backend;

  if (fiber->begun_by_starter) return Qnil;
  if (generator_returned_to(backend->root)->away) {
    backend->handover = true;
    return Qnil;
  }
  for (;;) backend_base_switch_fiber(backend, SWITCH_MUST_WAIT);
}

/* ---- from beginning to end -------------------------------------------------------------------- */

/* Runs the block once. Returns a tag that is no exception (Thread#kill), or 0; then *restart is
 * the Restart that ended it, or Qundef. */
static int run_once(struct run *run, VALUE *restart) {
  int state;
  VALUE result = rb_protect(run_block, (VALUE)run, &state);

  *restart = Qundef;
  backend_base_fiber(run->fiber->backend);  /* lets go of generators it resumed */
  if (!state) {
    set_result(run->fiber, result, false);
    return 0;
  }
  VALUE error = rb_errinfo();
  if (!is_a(error, rb_eException)) return state;
  rb_set_errinfo(Qnil);
  if (is_a(error, eRestart)) *restart = error;
  else set_outcome(run->fiber, error);
  return 0;
}

/* A stop followed by a restart: the second one came while the first was being dealt with. An error
 * that ended the block meanwhile is reported before the block runs again. */
static VALUE late_restart(struct fiber_state *fiber) {
  VALUE restart = backend_base_shift_instance(fiber, eRestart);

  if (restart == Qundef && !fiber->root) restart = end_children(fiber);
  if (restart == Qundef || stop_p(restart)) return Qundef;
  if (fiber->failed) pass_error_on(fiber);
  return restart;
}

/* The last word counts: another restart may come while children end, or a stop. */
static bool may_begin_again(struct fiber_state *fiber, VALUE *restart) {
  VALUE order = Qundef;
  VALUE error = fiber_life_shut_down_children(fiber, false, &order);

  if (order != Qundef) *restart = order;
  if (stop_p(*restart)) set_outcome(fiber, *restart);
  if (!NIL_P(error)) set_failure(fiber, error);
  return NIL_P(error) && !stop_p(*restart) && !fiber->told_to_end;
}

static void begin_again(struct run *run, VALUE restart) {
  run->value = rb_funcall(restart, id_value, 0);
  run->how = RESUME_RETURN;
}

/* Returns a tag that is no exception (Thread#kill), or 0. */
static int run_to_the_end(struct run *run) {
  VALUE restart;

  for (;;) {
    int killed = run_once(run, &restart);
    if (killed) return killed;
    if (restart == Qundef) restart = late_restart(run->fiber);
    if (restart == Qundef || !may_begin_again(run->fiber, &restart)) return 0;
    begin_again(run, restart);
    RB_GC_GUARD(restart);
  }
}

/* Who is begun by a starter gives it back at once, and the next one has the same. */
static void tell_of_stack(struct fiber_state *fiber) {
  if (fiber->begun_by_starter) return;
  rb_gc_adjust_memory_usage(FIBER_FOOTPRINT);
  fiber->stack_told = true;
}

/* The block of every spun fiber: a Proc for each would cost as much as the rest of spin. Who we
 * are is known from the switch that brought us here. */
static VALUE fiber_main(RB_BLOCK_CALL_FUNC_ARGLIST(first, data)) {
  struct fiber_state *fiber = backend_base_fiber(backend_base_current());
  VALUE self = fiber->self;
  struct run run = { fiber, first, fiber->backend->how };
  (void)data, (void)argc, (void)argv, (void)blockarg;

  fiber->started = true;
  fiber->incoming = Qundef;
  tell_of_stack(fiber);
  if (backend_base_keeps_statuses) backend_base_show_status(fiber->backend, fiber->last_status);
  fiber->last_status = Qnil;
  backend_base_queue_pending(fiber);
  int killed = run_to_the_end(&run);
  stall_turn_ends(fiber->backend, fiber);
  fiber->backend->ended_count++;
  if (fiber->root) end_process(fiber);
  end_children(fiber);
  starter_learn(fiber);
  VALUE late = take_late_errors(fiber);
  conclude(fiber);
  fiber_state_lay_to_rest(fiber);
  pass_late_errors_on(fiber, late);
  RB_GC_GUARD(self);
  if (killed) {
    fiber->backend->current = fiber->backend->root;  /* who goes on; we may be collected */
    rb_jump_tag(killed);
  }
  return fiber_life_depart(fiber);
}

/* ---- birth ----------------------------------------------------------------------------------- */

static VALUE main_proc = Qnil;

void fiber_life_init(void) {
  rb_gc_register_address(&main_proc);
  main_proc = rb_proc_new(fiber_main, Qnil);
}

static void trace_spin(struct fiber_state *fiber) {
  VALUE event[] = { ID2SYM(rb_intern("spin")), fiber->fiber, rb_make_backtrace() };

  backend_base_trace(fiber->backend, 3, event);
}

/* More than a backtrace shows of most programs, and not too much for a spin in a deep one. */
enum { SPAWN_FRAMES = 32 };

/* Not queued, nobody's child. */
static VALUE conceive(struct backend_base *backend, VALUE tag, VALUE block, struct place *place) {
  VALUE fiber = rb_funcall_with_block(cFiber, id_new, 0, NULL, main_proc);
  struct place *spun_at = place ? place_share(place) : place_note(SPAWN_FRAMES);
  struct fiber_state *state = fiber_state_draft();

  state->spun_at = spun_at;
  state->spun = true;
  state->tag = tag;
  state->block = block;
  state->fiber = fiber;
  state->backend = backend;
  fiber_state_publish(state);
  fiber_state_attach(state, fiber);
  RB_GC_GUARD(tag);
  RB_GC_GUARD(block);
  return fiber;
}

static VALUE spin(struct fiber_state *parent, VALUE tag, VALUE block, struct place *place, VALUE context) {
  VALUE fiber = conceive(parent->backend, tag, block, place);
  struct fiber_state *state = fiber_state_of(fiber);

  fiber_state_adopt(parent, state);
  state->inherited = !NIL_P(parent->deadline);
  FIBER_WRITE(state, deadline, parent->deadline);
  FIBER_WRITE(state, storage, parent->backend->current->storage);
  FIBER_WRITE(state, context, context);
  if (backend_base_keeps_statuses)
    FIBER_WRITE(state, last_status, backend_base_last_status(parent->backend));
  if (!NIL_P(state->backend->trace_proc)) trace_spin(state);
  backend_base_schedule(state, Qnil, RESUME_RETURN);
  RB_GC_GUARD(fiber);
  return fiber;
}

VALUE fiber_life_reserve(struct backend_base *backend, VALUE tag, VALUE block) {
  VALUE fiber = conceive(backend, tag, block, NULL);

  fiber_state_of(fiber)->oob = true;
  return fiber;
}

VALUE fiber_life_spin(struct fiber_state *parent, VALUE tag, VALUE block) {
  return spin(parent, tag, block, NULL, telemetry_context());
}

static struct fiber_state *parent_for_respawn(struct fiber_state *old) {
  struct fiber_state *parent = old->former ? old->former : old->backend->root;

  if (parent->ended)
    rb_raise(eFiberError, "%"PRIsVALUE" cannot be restarted: its parent has ended",
             rb_inspect(old->fiber));
  if (!parent->backend->open || parent->backend->thread != rb_thread_current())
    rb_raise(eFiberError, "%"PRIsVALUE" has ended: it can be restarted in its own thread only",
             rb_inspect(old->fiber));
  return parent;
}

VALUE fiber_life_respawn(struct fiber_state *old, VALUE value) {
  struct fiber_state *parent = parent_for_respawn(old);
  VALUE fiber = spin(parent, old->tag, old->block, old->spun_at, old->context);
  struct fiber_state *state = fiber_state_of(fiber);

  FIBER_WRITE(state, caller, old->caller);
  backend_base_schedule_value(state, value, false);
  return fiber;
}

/* ---- waiting for it --------------------------------------------------------------------------- */

static bool over_p(struct fiber_state *fiber) {
  return fiber->ended || !RTEST(rb_fiber_alive_p(fiber->fiber));
}

/* A child's error is not passed to a parent that awaits it. If something else is raised in the parent
 * before it sees the error, it gets that next. */
static bool owed_p(struct fiber_state *fiber, struct fiber_state *parent) {
  return fiber->ended && fiber->failed && fiber->former == parent &&
         !error_ends_program_p(fiber->result) && !monitored_by(fiber, parent);
}

static void await_end(struct fiber_state *fiber) {
  struct fiber_state *self = backend_base_fiber(backend_base_current());
  int state = 0;

  if (generator_p(fiber)) generator_note_awaited(fiber);
  do waitlist_park_protected(&fiber->awaiters, fiber->self, "a fiber to end", &state);
  while (!state && !over_p(fiber));
  if (!state) return;
  if (owed_p(fiber, self) && rb_errinfo() != fiber->result)
    backend_base_schedule(self, take_failure(fiber), RESUME_RAISE);  /* once */
  rb_jump_tag(state);
}

VALUE fiber_life_await(struct fiber_state *fiber) {
  if (fiber->fiber == rb_fiber_current())
    rb_raise(eFiberError, "a fiber cannot await itself");
  if (!over_p(fiber)) await_end(fiber);
  if (fiber->failed) rb_exc_raise(take_failure(fiber));
  return fiber->result;
}
