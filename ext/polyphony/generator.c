/* generator.c - see generator.h */
#include "generator.h"
#include "fiber_life.h"
#include <ruby/debug.h>

/* ---- the chain ------------------------------------------------------------------------------- */

static bool dead_p(struct fiber_state *fiber) {
  return fiber->ended || !RTEST(rb_fiber_alive_p(fiber->fiber));
}

static void link_to(struct fiber_state *resumer, struct fiber_state *fiber, bool unsure) {
  fiber->resumer = resumer;
  fiber->unsure = unsure;
  resumer->proxy = fiber;
  resumer->away = false;        /* stale if an exception came out of its last switch */
  RB_OBJ_WRITTEN(fiber->self, Qundef, resumer->self);
  RB_OBJ_WRITTEN(resumer->self, Qundef, fiber->self);
}

/* What it had for whoever resumed it goes back there. */
static void unlink_it(struct fiber_state *fiber) {
  struct fiber_state *resumer = fiber->resumer;

  fiber->resumer = NULL;
  if (!resumer) return;
  if (resumer->proxy == fiber) resumer->proxy = NULL;
  backend_base_hand_back(fiber, resumer);
}

static void end_children_of(struct fiber_state *fiber, struct fiber_state *heir) {
  while (!list_empty_p(&fiber->children))
    fiber_state_adopt(heir, list_entry(fiber->children.next, struct fiber_state, sibling));
}

/* Nobody knows what it returned but whoever resumed it. */
static void end(struct fiber_state *fiber, struct fiber_state *resumer) {
  struct fiber_state *heir = generator_base(resumer ? resumer : fiber->backend->root);

  if (fiber->ended || !fiber->backend) return;
  if (!resumer) backend_base_hand_back(fiber, heir);
  end_children_of(fiber, generator_p(heir) ? fiber->backend->root : heir);
  fiber_life_conclude(fiber, Qnil, false);
  list_remove(&fiber->noted);
}

/* It has yielded, or ended. Returns who had resumed it, or NULL. */
static struct fiber_state *leave(struct fiber_state *fiber) {
  struct fiber_state *resumer = fiber->resumer;
  VALUE self = fiber->self;

  unlink_it(fiber);
  if (generator_p(fiber) && dead_p(fiber)) end(fiber, resumer);
  RB_GC_GUARD(self);
  return resumer;
}

/* A fiber that runs is resuming nobody. Whether the one known to run was among those it had. */
static bool leave_all_below(struct fiber_state *fiber, struct fiber_state *known) {
  struct fiber_state *last = fiber;
  bool found = false;

  while (last->proxy) found |= (last = last->proxy) == known;
  while (last != fiber) last = leave(last);
  return found;
}

/* Whether it waits for one that it has resumed. Ruby tells only in its text for a fiber; a text without it is taken for
 * that of one that has yielded. */
static bool resuming_p(struct fiber_state *fiber) {
  static const char END[] = " by resuming)>";
  const long length = sizeof(END) - 1;
  VALUE text = rb_funcallv(fiber->fiber, id_stock_to_s, 0, NULL);
  bool resuming = RSTRING_LEN(text) >= length && !memcmp(RSTRING_END(text) - length, END, length);

  RB_GC_GUARD(text);
  return resuming;
}

/* The fiber runs, and the one known to run before did not come back to it. */
static void resumed(struct backend_base *backend, struct fiber_state *fiber, bool newborn) {
  struct fiber_state *before = backend->current;
  bool unsure = !backend->watching;

  while (before && generator_p(before) && dead_p(before)) before = leave(before);
  if (!before) before = backend->root;
  if (!generator_p(fiber) || before == fiber || fiber->resumer == before) return;
  /* One that was not looked at when it was resumed: others may stand between, and if it has not resumed this one it
   * has come back to one of them now. */
  if (before->unsure && before->resumer && !newborn && !resuming_p(before)) {
    unsure = true;
    before = leave(before);
  }
  unlink_it(fiber);             /* from one who is not known to be done with it */
  link_to(before, fiber, unsure);
}

static void arrive(struct backend_base *backend, struct fiber_state *fiber, bool newborn) {
  VALUE before = backend->current->self;

  fiber->away = false;
  if (!leave_all_below(fiber, backend->current)) resumed(backend, fiber, newborn);
  backend->current = fiber;
  RB_OBJ_WRITTEN(backend->self, Qundef, fiber->self);
  RB_GC_GUARD(before);
}

void generator_arrive(struct backend_base *backend, struct fiber_state *fiber) {
  arrive(backend, fiber, false);
  if (generator_p(fiber) && !fiber->escorted) generator_watch(backend);
}

void generator_came_back(struct backend_base *backend) {
  struct fiber_state *before = backend->current;

  if (!generator_p(before) || !dead_p(before)) return;
  leave(before);
  backend->handover = true;
}

/* ---- looking at switches ---------------------------------------------------------------------- */

/* Hooks are cheap to keep and not so cheap to set: it goes after so many switches without need. */
enum { QUIET_SWITCHES = 16 };

static bool needed_p(struct backend_base *backend) {
  struct fiber_state *current = backend->current;

  return (generator_p(current) && !current->escorted) || !list_empty_p(&backend->noted);
}

/* A fiber that has never run has no frames. */
static bool newborn_p(void) {
  VALUE frame;
  int line;

  return rb_profile_frames(0, 1, &frame, &line) == 0;
}

static void look(struct backend_base *backend, VALUE now) {
  struct fiber_state *fiber = fiber_state_of(now);

  /* A fiber has ended, and the VM went on with this one: it notices when its switch returns. */
  if (fiber->away && dead_p(backend->current)) return;
  if (!fiber->backend) {
    fiber->backend = backend;
    RB_OBJ_WRITTEN(fiber->self, Qundef, backend->self);
  }
  arrive(backend, fiber, newborn_p());
}

static void switched(rb_event_flag_t event, VALUE data, VALUE self, ID id, VALUE klass) {
  struct backend_base *backend = backend_base_of(data);

  (void)event, (void)self, (void)id, (void)klass;
  if (!backend->open || !backend->root) return;
  VALUE now = rb_fiber_current();
  if (backend->current->fiber != now) look(backend, now);
  if (needed_p(backend)) backend->quiet = 0;
  else if (++backend->quiet > QUIET_SWITCHES) generator_unwatch(backend);
}

void generator_watch(struct backend_base *backend) {
  backend->quiet = 0;
  if (backend->watching || !backend->open) return;
  backend->watching = true;
  rb_thread_add_event_hook(backend->thread, switched, RUBY_EVENT_FIBER_SWITCH, backend->self);
}

void generator_unwatch(struct backend_base *backend) {
  if (!backend->watching) return;
  backend->watching = false;
  rb_thread_remove_event_hook_with_data(backend->thread, switched, backend->self);
}

void generator_note(struct fiber_state *fiber) {
  if (!list_empty_p(&fiber->noted)) return;
  list_push(&fiber->backend->noted, &fiber->noted);
  generator_watch(fiber->backend);
}

void generator_note_awaited(struct fiber_state *fiber) {
  if (!fiber->backend) {
    fiber->backend = backend_base_current();
    RB_OBJ_WRITTEN(fiber->self, Qundef, fiber->backend->self);
  }
  fiber->heard = true;
  if (fiber->backend->open) generator_note(fiber);
}

void generator_drop(struct fiber_state *fiber) {
  if (!fiber->heard) list_remove(&fiber->noted);
}

/* ---- resuming -------------------------------------------------------------------------------- */

VALUE generator_escort(VALUE object, VALUE (*enter)(VALUE), VALUE argument) {
  struct backend_base *backend = backend_base_current();
  struct fiber_state *self = backend_base_running(backend), *fiber = fiber_state_of(object);
  int state;

  if (!generator_p(fiber) || fiber->resumer || fiber == self) return enter(argument);
  fiber->backend = backend;
  RB_OBJ_WRITTEN(fiber->self, Qundef, backend->self);
  link_to(self, fiber, false);
  fiber->escorted = true;
  backend->current = fiber;
  VALUE value = rb_protect(enter, argument, &state);
  fiber->escorted = false;
  /* A fiber that was killed with the thread has said that the main one goes on: it is left all the same. */
  if (backend->current != self || self->proxy) arrive(backend, self, false);
  if (state) rb_jump_tag(state);
  RB_GC_GUARD(object);
  return value;
}

struct resume {
  VALUE fiber;
  int argc;
  const VALUE *argv;
};

static VALUE resume_body(VALUE argument) {
  struct resume *resume = (struct resume *)argument;

  return rb_fiber_resume(resume->fiber, resume->argc, resume->argv);
}

VALUE generator_resume(VALUE object, int argc, const VALUE *argv) {
  struct resume resume = { object, argc, argv };

  return generator_escort(object, resume_body, (VALUE)&resume);
}
