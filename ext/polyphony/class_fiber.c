/* class_fiber.c - what Fiber gains, and the words spin, snooze, suspend, receive. Layer 2.
 * New names only; nothing of stock Ruby's is replaced. What is not hot is in lib/polyphony/core. */
#include "cancel_scope.h"
#include "clock.h"
#include "errors.h"
#include "fiber_life.h"
#include "generator.h"
#include "io.h"
#include "place.h"
#include "queue.h"
#include "telemetry.h"
#include "timeline.h"
#include "turn.h"

static struct fiber_state *get(VALUE self) { return fiber_state_of(self); }

/* A fiber with its backend known: made on demand for one that never waited. */
static struct fiber_state *current(void) { return backend_base_fiber(backend_base_current()); }

static struct fiber_state *bound(VALUE self) {
  struct fiber_state *fiber = get(self);

  if (fiber->backend && fiber->backend->root) return fiber;
  return self == rb_fiber_current() ? current() : fiber;
}

static VALUE Fiber_monitor_mailbox(VALUE self) {
  struct fiber_state *fiber = get(self);

  if (NIL_P(fiber->monitor_mailbox)) FIBER_WRITE(fiber, monitor_mailbox, queue_new());
  return fiber->monitor_mailbox;
}

/* ---- running -------------------------------------------------------------------------------- */

static void need_block(const char *word) {
  if (!rb_block_given_p()) rb_raise(rb_eArgError, "%s needs a block to run", word);
}

static VALUE spin_in(struct fiber_state *parent, int argc, VALUE *argv) {
  VALUE tag, caller;

  need_block("spin");
  rb_scan_args(argc, argv, "02", &tag, &caller);
  if (!NIL_P(caller) && !RB_TYPE_P(caller, T_ARRAY))
    rb_raise(rb_eTypeError, "expected where it was called, an Array of Strings, got %"PRIsVALUE,
             rb_inspect(caller));
  if (!parent->backend) parent = current();
  if (parent->ended) rb_raise(eFiberError, "a fiber that has ended cannot have children");
  if (parent->backend->thread != rb_thread_current())
    rb_raise(eFiberError, "a child has to be spun in the thread of its parent");
  VALUE fiber = fiber_life_spin(parent, tag, rb_block_proc());
  if (!NIL_P(caller)) FIBER_WRITE(get(fiber), caller, caller);
  return fiber;
}

static VALUE Fiber_spin(int argc, VALUE *argv, VALUE self) {
  return spin_in(bound(self), argc, argv);
}

/* A generator ends without a word, or never: what is spun in it belongs to whoever resumes it. */
static struct fiber_state *responsible(struct fiber_state *fiber) {
  while (fiber && !fiber->spun && !fiber->root) fiber = fiber->resumer;
  return fiber;
}

/* In a handler or hook the fiber at hand is anybody's, or has just ended: what is spun there belongs to main. */
static VALUE Words_spin(int argc, VALUE *argv, VALUE self) {
  struct backend_base *backend = backend_base_current();
  struct fiber_state *parent = NULL;

  (void)self;
  if (backend_base_may_wait_p(backend)) parent = responsible(backend_base_fiber(backend));
  bool over = !parent || parent->ended || parent->is_starter;
  return spin_in(over ? backend->root : parent, argc, argv);
}

static VALUE Words_snooze(VALUE self) {
  struct fiber_state *fiber = backend_base_known_here(__builtin_frame_address(0));
  VALUE value = fiber ? turn_at_once(fiber) : Qundef;

  (void)self;
  return value != Qundef ? value : backend_base_snooze(backend_base_current());
}

static VALUE Words_suspend(VALUE self) {
  (void)self;
  return backend_base_suspend(backend_base_current(), SWITCH_MAY_RETURN);
}

/* In its own thread whoever schedules a fiber can know that it has ended, and it does no harm. From
 * another one, a value that goes nowhere is most likely a mistake. */
static void check_reachable(struct fiber_state *fiber) {
  struct backend_base *backend = fiber->backend;

  if (!backend || backend->thread == rb_thread_current()) return;
  if (fiber->ended || !backend->open)
    rb_raise(eFiberError, "%"PRIsVALUE" of another thread cannot be scheduled: it has ended",
             rb_inspect(fiber->fiber));
}

static VALUE schedule(int argc, VALUE *argv, VALUE self, bool first) {
  VALUE value;

  rb_scan_args(argc, argv, "01", &value);
  check_reachable(get(self));
  backend_base_schedule_value(get(self), value, first);
  return self;
}

static VALUE Fiber_schedule(int argc, VALUE *argv, VALUE self) {
  return schedule(argc, argv, self, false);
}

static VALUE Fiber_schedule_with_priority(int argc, VALUE *argv, VALUE self) {
  return schedule(argc, argv, self, true);
}

/* For stop and the like, which do not mind. Nil if it had ended already. */
static VALUE Fiber_schedule_if_alive(VALUE self, VALUE exception) {
  struct fiber_state *fiber = get(self);

  if (fiber->ended || !RTEST(rb_fiber_alive_p(self))) return Qnil;
  backend_base_schedule_value(fiber, exception, false);
  return self;
}

/* Like resume, for generators of our own. */
static VALUE Fiber_resume(int argc, VALUE *argv, VALUE self) {
  return generator_resume(self, argc, argv);
}

/* Whoever ends it waits for that: a restart that comes meanwhile is not to make it begin again. */
static VALUE Fiber_doom(VALUE self) {
  get(self)->told_to_end = true;
  return self;
}

static VALUE Fiber_await(VALUE self) { return fiber_life_await(get(self)); }

static VALUE Fiber_await_all_children(VALUE self) {
  fiber_life_await_children(bound(self));
  return self;
}

static VALUE Fiber_shut_down(VALUE self, VALUE graceful) {
  VALUE order = Qundef, error = fiber_life_shut_down_children(bound(self), RTEST(graceful), &order);

  if (NIL_P(error) && order == Qundef) return self;
  if (NIL_P(error)) rb_exc_raise(order);
  if (order != Qundef) backend_base_schedule(current(), order, RESUME_RAISE);
  rb_exc_raise(error);
}

static VALUE tell_monitor(VALUE argument) {
  VALUE *pair = (VALUE *)argument;

  if (!RTEST(rb_obj_is_kind_of(pair[0], cFiber))) return rb_funcall(pair[0], id_push, 1, pair[1]);
  queue_add(Fiber_monitor_mailbox(pair[0]), pair[1]);
  return Qnil;
}

/* Tells everybody who monitors the fiber. Called when it ends: it cannot wait any more, and the
 * failure of one must not keep it from the others. */
static VALUE Fiber_report_end(VALUE self) {
  struct fiber_state *fiber = get(self);
  VALUE monitors = rb_ary_dup(fiber->monitors);
  VALUE pair[] = { Qnil, rb_ary_new_from_args(2, self, fiber->result) };
  int state;

  for (long i = 0; i < RARRAY_LEN(monitors); i++) {
    pair[0] = RARRAY_AREF(monitors, i);
    rb_protect(tell_monitor, (VALUE)pair, &state);
    if (state) rb_set_errinfo(Qnil);
  }
  return self;
}

static VALUE Fiber_respawn(VALUE self, VALUE value) {
  return fiber_life_respawn(get(self), value);
}

/* ---- the tree ------------------------------------------------------------------------------- */

static VALUE Fiber_parent(VALUE self) {
  struct fiber_state *parent = get(self)->parent;

  return parent ? parent->fiber : Qnil;
}

static void check_no_cycle(struct fiber_state *parent, struct fiber_state *child) {
  for (; parent; parent = parent->parent)
    if (parent == child) rb_raise(eFiberError, "a fiber cannot be its own ancestor");
}

static VALUE Fiber_set_parent(VALUE self, VALUE parent) {
  struct fiber_state *child = get(self), *new_parent = NIL_P(parent) ? NULL : bound(parent);

  if (new_parent && new_parent->ended)
    rb_raise(eFiberError, "a fiber that has ended cannot have children");
  check_no_cycle(new_parent, child);
  if (!child->ended) fiber_state_adopt(new_parent, child);
  return parent;
}

static VALUE Fiber_children(VALUE self) {
  struct fiber_state *fiber = get(self);
  VALUE children = rb_ary_new_capa(fiber->child_count);

  list_each(node, &fiber->children)
    rb_ary_push(children, list_entry(node, struct fiber_state, sibling)->fiber);
  return children;
}

/* ---- messages ------------------------------------------------------------------------------- */

static VALUE Fiber_mailbox(VALUE self) {
  struct fiber_state *fiber = bound(self);  /* which may bring it messages sent to its thread */

  if (NIL_P(fiber->mailbox)) FIBER_WRITE(fiber, mailbox, queue_new_mailbox(fiber->self));
  return fiber->mailbox;
}

static VALUE Fiber_tell(VALUE self, VALUE message) {
  queue_push(Fiber_mailbox(self), message);
  return self;
}

/* One argument is a message. Anything else is what Object#send makes of it: a method may be meant. */
static VALUE Fiber_send(int argc, VALUE *argv, VALUE self) {
  VALUE block = rb_block_given_p() ? rb_block_proc() : Qnil;

  if (argc == 1 && NIL_P(block)) return Fiber_tell(self, argv[0]);
  return rb_funcall_with_block_kw(self, id_send, argc, argv, block, rb_keyword_given_p());
}

static VALUE Fiber_receive(VALUE self) { return queue_shift(Fiber_mailbox(self)); }

static VALUE Words_receive(VALUE self) {
  (void)self;
  return Fiber_receive(rb_fiber_current());
}

/* ---- attributes ----------------------------------------------------------------------------- */

#define ATTRIBUTE(member) \
  static VALUE Fiber_##member(VALUE self) { return get(self)->member; } \
  static VALUE Fiber_set_##member(VALUE self, VALUE value) { \
    FIBER_WRITE(get(self), member, value); \
    return value; \
  }

ATTRIBUTE(tag)
ATTRIBUTE(monitors)
ATTRIBUTE(caller)
ATTRIBUTE(deadline)
ATTRIBUTE(storage)
ATTRIBUTE(auto_watcher)

static VALUE Fiber_received(VALUE self) { return get(self)->received; }

/* Polyphony::Telemetry, or nil. */
static VALUE Words_set_telemetry(VALUE self, VALUE hooks) {
  (void)self;
  return telemetry_hooks = hooks;
}

static VALUE storage_of(VALUE fiber) {
#ifdef HAVE_RB_FIBER_NEW_STORAGE        /* then Ruby has it, and gives a copy */
  return rb_funcall(fiber, rb_intern("storage"), 0);
#else
  return get(fiber)->storage;
#endif
}

static long storage_size(VALUE storage) { return NIL_P(storage) ? 0 : (long)RHASH_SIZE(storage); }

struct storage_comparison {
  VALUE other;
  bool same;
};

static int compare_value(VALUE key, VALUE value, VALUE argument) {
  struct storage_comparison *comparison = (struct storage_comparison *)argument;

  comparison->same = rb_hash_lookup2(comparison->other, key, Qundef) == value;
  return comparison->same ? ST_CONTINUE : ST_STOP;
}

/* The very same values: one that is only equal is another's, who may change it later; and == may be anybody's code. */
static bool same_storage_p(VALUE one, VALUE other) {
  struct storage_comparison comparison = { other, true };

  if (one == other) return true;
  if (storage_size(one) != storage_size(other)) return false;
  if (storage_size(one)) rb_hash_foreach(one, compare_value, (VALUE)&comparison);
  return comparison.same;
}

/* Polyphony.__as_new?(storage): whether those for whom the current fiber has run have left nothing behind that the next
 * would meet: children, messages, fiber-locals, fiber storage. */
static VALUE Words_as_new_p(VALUE self, VALUE storage) {
  (void)self;
  VALUE current = rb_fiber_current();
  struct fiber_state *fiber = get(current);
  bool left = fiber->child_count || !NIL_P(fiber->mailbox) || !NIL_P(fiber->deadline) || !list_empty_p(&fiber->scopes) ||
              (!NIL_P(fiber->monitors) && RARRAY_LEN(fiber->monitors));

  if (left || RARRAY_LEN(rb_funcallv(rb_thread_current(), id_keys, 0, NULL))) return Qfalse;
  return same_storage_p(storage_of(current), storage) ? Qtrue : Qfalse;
}

static VALUE Fiber_unschedule(VALUE self, VALUE exception) {
  return backend_base_unschedule(get(self), exception) ? Qtrue : Qfalse;
}

static VALUE Fiber_shift_exception(VALUE self) {
  VALUE exception = backend_base_shift_exception(get(self));

  return exception == Qundef ? Qnil : exception;
}

static VALUE Fiber_failed_p(VALUE self) { return get(self)->failed ? Qtrue : Qfalse; }

static VALUE Fiber_former_parent(VALUE self) {
  struct fiber_state *former = get(self)->former;

  return former ? former->fiber : Qnil;
}

/* Told of the fiber's end, with <<. One call each, so that threads cannot come between. */
static VALUE Fiber_add_monitor(VALUE self, VALUE object) {
  struct fiber_state *fiber = get(self);

  if (NIL_P(fiber->monitors)) FIBER_WRITE(fiber, monitors, rb_ary_new());
  rb_ary_push(fiber->monitors, object);
  if (generator_p(fiber)) generator_note_awaited(fiber);
  return self;
}

static VALUE Fiber_remove_monitor(VALUE self, VALUE object) {
  struct fiber_state *fiber = get(self);
  VALUE monitors = fiber->monitors;

  for (long i = NIL_P(monitors) ? 0 : RARRAY_LEN(monitors); i-- > 0;)
    if (RARRAY_AREF(monitors, i) == object) {
      rb_ary_delete_at(monitors, i);
      break;
    }
  if (!NIL_P(monitors) && !RARRAY_LEN(monitors)) fiber->monitors = Qnil;
  return self;
}

static VALUE Fiber_state(VALUE self) { return fiber_state_name(get(self)); }
static VALUE Fiber_result(VALUE self) { return get(self)->result; }
static VALUE Fiber_block(VALUE self) { return get(self)->block; }
static VALUE Fiber_spun_p(VALUE self) { return get(self)->spun ? Qtrue : Qfalse; }
static VALUE Fiber_main_p(VALUE self) { return bound(self)->root ? Qtrue : Qnil; }
static VALUE Fiber_graceful_p(VALUE self) { return get(self)->graceful ? Qtrue : Qfalse; }

static VALUE Fiber_set_graceful(VALUE self, VALUE value) {
  get(self)->graceful = RTEST(value);
  return value;
}

static VALUE Fiber_oob(VALUE self) { return get(self)->oob ? Qtrue : Qfalse; }

static VALUE Fiber_set_oob(VALUE self, VALUE value) {
  get(self)->oob = RTEST(value);
  return value;
}

static VALUE Fiber_s_reserve(VALUE klass, VALUE tag) {
  (void)klass;
  need_block("__reserve");
  return fiber_life_reserve(current()->backend, tag, rb_block_proc());
}

static VALUE Fiber_park_off(VALUE self) {
  backend_base_take_off(bound(self));
  return self;
}

static VALUE Fiber_unpark(VALUE self) {
  backend_base_put_back(bound(self));
  return self;
}

/* It has left through a switch of ours, and only one of ours may bring it back. */
static VALUE Fiber_away_p(VALUE self) {
  return get(self)->away && self != rb_fiber_current() ? Qtrue : Qfalse;
}

static VALUE Fiber_parked_p(VALUE self) { return get(self)->off ? Qtrue : Qfalse; }

static VALUE Fiber_setup_raw(VALUE self) {
  struct fiber_state *fiber = bound(self);

  if (fiber->spun || fiber->root) rb_raise(eFiberError, "%"PRIsVALUE" is not raw", rb_inspect(self));
  if (!fiber->backend) {
    fiber->backend = backend_base_current();
    RB_OBJ_WRITTEN(fiber->self, Qundef, fiber->backend->self);
  }
  return self;
}

static VALUE Fiber_setup_main(VALUE self) {
  struct fiber_state *fiber = bound(self);

  if (self != rb_fiber_current())
    rb_raise(eFiberError, "only the running fiber can become the main one of its thread");
  backend_base_make_root(fiber);
  FIBER_WRITE(fiber, tag, ID2SYM(rb_intern("main")));
  return self;
}

/* A fiber that has never waited belongs to no thread yet. */
static VALUE Fiber_set_thread(VALUE self, VALUE thread) {
  struct fiber_state *fiber = get(self);

  if (!RTEST(rb_obj_is_kind_of(thread, rb_cThread)))
    rb_raise(rb_eTypeError, "expected a Thread, got %"PRIsVALUE, rb_inspect(thread));
  struct backend_base *backend = backend_base_of_thread(thread);
  if (!backend) rb_raise(rb_eThreadError, "that thread has no backend yet: it makes its own");
  if (fiber->backend && fiber->backend != backend)
    rb_raise(eFiberError, "a fiber stays in its thread: %"PRIsVALUE, rb_inspect(self));
  fiber->backend = backend;
  RB_OBJ_WRITTEN(fiber->self, Qundef, backend->self);
  return thread;
}

static VALUE Fiber_thread(VALUE self) {
  struct fiber_state *fiber = bound(self);

  return fiber->backend ? fiber->backend->thread : Qnil;
}

static VALUE Fiber_spawn_frames(VALUE self) { return place_frames(get(self)->spun_at); }

static VALUE Fiber_wait_reason(VALUE self) {
  const char *reason = generator_innermost(get(self))->wait_reason;

  return reason ? rb_utf8_str_new_cstr(reason) : Qnil;
}

/* [reason or nil, subject or nil, since or nil] */
static VALUE Fiber_wait(VALUE self) {
  struct fiber_state *fiber = generator_innermost(get(self));
  VALUE since = fiber->wait_since ? DBL2NUM((double)fiber->wait_since / NSEC_PER_SEC) : Qnil;

  return rb_ary_new_from_args(3, Fiber_wait_reason(self), fiber_state_wait_subject(fiber), since);
}

static VALUE Fiber_switches(VALUE self) { return ULL2NUM(get(self)->switches); }

/* [id, name], as of those that have ended. */
static VALUE Fiber_timeline(VALUE self) {
  struct fiber_state *fiber = get(self);

  return rb_assoc_new(UINT2NUM(timeline_fiber_id(fiber)), timeline_fiber_name(fiber));
}

/* Seconds until a sleep of its own is over, or nil: also for one without an end, which is cut at 146 years (io_nanoseconds). */
static VALUE Fiber_time_left(VALUE self) {
  struct fiber_state *fiber = generator_innermost(get(self));

  if (!fiber->backend || !timer_armed_p(&fiber->timer)) return Qnil;
  int64_t left = fiber->timer.deadline - backend_base_now(fiber->backend);
  return left > INT64_MAX / 4 ? Qnil : DBL2NUM((double)left / NSEC_PER_SEC);
}

/* Seconds until the first of its time limits is over, or nil. */
static VALUE Fiber_limit_left(VALUE self) {
  struct fiber_state *fiber = get(self);
  int64_t first = INT64_MAX;

  list_each(node, &fiber->scopes) {
    struct timer *timer = &list_entry(node, struct cancel_scope, link)->timer;
    if (timer_armed_p(timer) && timer->deadline < first) first = timer->deadline;
  }
  if (first > INT64_MAX / 4) return Qnil;
  return DBL2NUM((double)(first - backend_base_now(fiber->backend)) / NSEC_PER_SEC);
}

/* Every fiber of every thread that has waited or is to run. */
static VALUE Fiber_s_all(VALUE klass) {
  (void)klass;
  return fiber_state_list();
}

/* Polyphony.__noting_kill(notes) { }: returns what the block returns. Fiber#kill and Thread#kill are no exceptions: no
 * rescue sees them, and an ensure cannot tell them from a break. If one leaves the block, notes gets a true. Nothing of Ruby's
 * runs before we go on, and so rb_errinfo is what it was. */
static VALUE Words_noting_kill(VALUE self, VALUE notes) {
  int state;
  VALUE result;
  (void)self;

  Check_Type(notes, T_ARRAY);
  result = rb_protect(rb_yield, Qundef, &state);
  if (!state) return result;
  if (FIXNUM_P(rb_errinfo())) rb_ary_push(notes, Qtrue);
  rb_jump_tag(state);
}

static void define_words(void) {
  VALUE words = rb_define_module_under(mPolyphony, "GlobalAPI");

  rb_define_private_method(words, "spin", Words_spin, -1);
  rb_define_private_method(words, "snooze", Words_snooze, 0);
  rb_define_private_method(words, "suspend", Words_suspend, 0);
  rb_define_private_method(words, "receive", Words_receive, 0);
}

static void define_attributes(void) {
  rb_define_method(cFiber, "tag", Fiber_tag, 0);
  rb_define_method(cFiber, "tag=", Fiber_set_tag, 1);
  rb_define_method(cFiber, "__monitors", Fiber_monitors, 0);
  rb_define_method(cFiber, "__monitors=", Fiber_set_monitors, 1);
  rb_define_method(cFiber, "monitor_mailbox", Fiber_monitor_mailbox, 0);
  rb_define_method(cFiber, "__polyphony_end", Fiber_report_end, 0);
  rb_define_method(cFiber, "__add_monitor", Fiber_add_monitor, 1);
  rb_define_method(cFiber, "__remove_monitor", Fiber_remove_monitor, 1);
  rb_define_method(cFiber, "__caller", Fiber_caller, 0);
  rb_define_method(cFiber, "__caller=", Fiber_set_caller, 1);
  rb_define_method(cFiber, "__deadline", Fiber_deadline, 0);
  rb_define_method(cFiber, "__deadline=", Fiber_set_deadline, 1);
  rb_define_method(cFiber, "__auto_watcher", Fiber_auto_watcher, 0);
  rb_define_method(cFiber, "__auto_watcher=", Fiber_set_auto_watcher, 1);
  rb_define_method(cFiber, "__received", Fiber_received, 0);
  rb_define_method(cFiber, "__storage", Fiber_storage, 0);
  rb_define_method(cFiber, "__storage=", Fiber_set_storage, 1);
  rb_define_singleton_method(mPolyphony, "__as_new?", Words_as_new_p, 1);
  rb_define_singleton_method(mPolyphony, "__telemetry=", Words_set_telemetry, 1);
  rb_define_singleton_method(mPolyphony, "__noting_kill", Words_noting_kill, 1);
  rb_define_method(cFiber, "__park__", Fiber_park_off, 0);
  rb_define_method(cFiber, "__unpark__", Fiber_unpark, 0);
  rb_define_method(cFiber, "__parked__?", Fiber_parked_p, 0);
  rb_define_method(cFiber, "oob", Fiber_oob, 0);
  rb_define_method(cFiber, "oob=", Fiber_set_oob, 1);
  rb_define_singleton_method(cFiber, "__reserve", Fiber_s_reserve, 1);
  rb_define_method(cFiber, "setup_raw", Fiber_setup_raw, 0);
  rb_define_method(cFiber, "setup_main_fiber", Fiber_setup_main, 0);
  rb_define_method(cFiber, "thread=", Fiber_set_thread, 1);
  rb_define_method(cFiber, "__block", Fiber_block, 0);
  rb_define_method(cFiber, "__spun?", Fiber_spun_p, 0);
  rb_define_method(cFiber, "__away?", Fiber_away_p, 0);
  rb_define_method(cFiber, "__wait_reason", Fiber_wait_reason, 0);
  rb_define_method(cFiber, "__wait", Fiber_wait, 0);
  rb_define_method(cFiber, "__timeline", Fiber_timeline, 0);
  rb_define_method(cFiber, "__time_left", Fiber_time_left, 0);
  rb_define_method(cFiber, "__limit_left", Fiber_limit_left, 0);
  rb_define_singleton_method(cFiber, "__all", Fiber_s_all, 0);
  rb_define_method(cFiber, "switches", Fiber_switches, 0);
  rb_define_method(cFiber, "__spawn_frames", Fiber_spawn_frames, 0);
  rb_define_method(cFiber, "__shift_exception", Fiber_shift_exception, 0);
  rb_define_method(cFiber, "__unschedule", Fiber_unschedule, 1);
  rb_define_method(cFiber, "__failed?", Fiber_failed_p, 0);
  rb_define_method(cFiber, "__former_parent", Fiber_former_parent, 0);
  rb_define_method(cFiber, "state", Fiber_state, 0);
  rb_define_method(cFiber, "result", Fiber_result, 0);
  rb_define_method(cFiber, "main?", Fiber_main_p, 0);
  rb_define_method(cFiber, "thread", Fiber_thread, 0);
  rb_define_method(cFiber, "graceful_shutdown?", Fiber_graceful_p, 0);
  rb_define_method(cFiber, "graceful_shutdown=", Fiber_set_graceful, 1);
}

void class_fiber_init(void) {
  rb_define_method(cFiber, "spin", Fiber_spin, -1);
  rb_define_method(cFiber, "schedule", Fiber_schedule, -1);
  rb_define_method(cFiber, "schedule_with_priority", Fiber_schedule_with_priority, -1);
  rb_define_method(cFiber, "__schedule_if_alive", Fiber_schedule_if_alive, 1);
  rb_define_method(cFiber, "__polyphony_resume", Fiber_resume, -1);
  rb_define_alias(cFiber, "__polyphony_stock_to_s", "to_s");
  rb_define_method(cFiber, "__doom", Fiber_doom, 0);
  rb_define_method(cFiber, "await", Fiber_await, 0);
  rb_define_method(cFiber, "join", Fiber_await, 0);
  rb_define_method(cFiber, "value", Fiber_await, 0);
  rb_define_method(cFiber, "await_all_children", Fiber_await_all_children, 0);
  rb_define_method(cFiber, "__shut_down_children", Fiber_shut_down, 1);
  rb_define_method(cFiber, "__respawn", Fiber_respawn, 1);
  rb_define_method(cFiber, "parent", Fiber_parent, 0);
  rb_define_method(cFiber, "parent=", Fiber_set_parent, 1);
  rb_define_method(cFiber, "children", Fiber_children, 0);
  rb_define_method(cFiber, "mailbox", Fiber_mailbox, 0);
  rb_define_method(cFiber, "<<", Fiber_tell, 1);
  rb_define_method(cFiber, "send", Fiber_send, -1);
  rb_define_method(cFiber, "receive", Fiber_receive, 0);
  define_attributes();
  define_words();
}
