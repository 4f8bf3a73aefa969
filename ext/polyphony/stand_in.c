/* stand_in.c - see stand_in.h */
#include "errors.h"
#include "fork_locks.h"
#include "generator.h"
#include "scheduler.h"
#include "stand_in.h"

static VALUE cStandIn;          /* Polyphony::StandIn::Worker, never shown */
static VALUE eUnwind;           /* makes a stock method leave that waits for its block */
static VALUE eUncaughtThrow;    /* Ruby's */
static ID id_bind_call;

enum { IDLE_KEPT = 4 };         /* per thread */

enum event { NEW, RUNNING, YIELDED, RETURNED, RAISED, KILLED };

/* On the stack of the fiber that calls. */
struct request {
  VALUE caller;                         /* the fiber */
  const struct stand_in_call *call;     /* or NULL and */
  VALUE (*function)(VALUE);
  VALUE argument;
  bool with_block;
  enum event event;
  VALUE value;                          /* result, exception, or what the block returned */
  int yielded_count;
  const VALUE *yielded;                 /* on the stack of the stand-in */
  VALUE (*asked)(VALUE);                /* instead of a block; or NULL */
  VALUE asked_argument;
  bool unwind;                          /* the block will not return */
  bool stackless;                       /* no stand-in could be had */
};

struct worker {
  VALUE self, fiber;
  struct request *request;
  bool begun;
  VALUE next;                           /* idle ones of a thread, or Qnil */
};

static void worker_mark(void *pointer) {
  struct worker *worker = pointer;

  rb_gc_mark_movable(worker->fiber);
  rb_gc_mark_movable(worker->next);
}

static void worker_compact(void *pointer) {
  struct worker *worker = pointer;

  worker->fiber = rb_gc_location(worker->fiber);
  worker->next = rb_gc_location(worker->next);
  worker->self = rb_gc_location(worker->self);
}

static size_t worker_memsize(const void *pointer) {
  (void)pointer;
  return sizeof(struct worker);
}

static const rb_data_type_t worker_type = {
  .wrap_struct_name = "Polyphony::StandIn::Worker",
  .function = { .dmark = worker_mark, .dfree = RUBY_DEFAULT_FREE, .dsize = worker_memsize,
                .dcompact = worker_compact },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static struct worker *get(VALUE self) {
  return typed_data(self, &worker_type);
}

/* ---- in the stand-in -------------------------------------------------------------------------- */

/* Its caller was switched to by somebody else, Fiber#raise for instance, and went on without it. It
 * cannot end either, for Ruby would switch to the thread's first fiber. */
static void retire(void) {
  for (;;) {
    rb_set_errinfo(Qnil);
    int state;
    enum resume_how how;
    backend_base_wait(backend_base_current(), SWITCH_MUST_WAIT, "nothing", Qnil, &how, &state);
    if (state && !RTEST(rb_obj_is_kind_of(rb_errinfo(), rb_eException))) rb_jump_tag(state);
  }
}

static void unwind(void) { rb_exc_raise(rb_class_new_instance(0, NULL, eUnwind)); }

static void hand_over(struct request *request, enum event event, VALUE value) {
  request->event = event;
  request->value = value;
  rb_fiber_transfer(request->caller, 0, NULL);
}

static VALUE ask(struct request *request) {
  hand_over(request, YIELDED, Qnil);
  if (request->unwind) unwind();
  return request->value;
}

static VALUE relay_block(RB_BLOCK_CALL_FUNC_ARGLIST(first, data)) {
  struct request *request = ((struct worker *)data)->request;
  (void)first, (void)blockarg;

  if (!request) unwind();
  request->asked = NULL;
  request->yielded_count = argc;
  request->yielded = argv;
  return ask(request);
}

static struct worker *running_worker(void) {
  struct fiber_state *fiber = fiber_state_lookup(rb_fiber_current());

  return fiber ? fiber->worker : NULL;
}

bool stand_in_p(void) { return running_worker() != NULL; }

VALUE stand_in_ask(VALUE (*function)(VALUE), VALUE argument) {
  struct worker *worker = running_worker();

  if (!worker) return function(argument);
  if (!worker->request) unwind();
  worker->request->asked = function;
  worker->request->asked_argument = argument;
  return ask(worker->request);
}

struct fiber_state *stand_in_acting(struct fiber_state *fiber) {
  while (fiber->worker && fiber->worker->request && fiber->worker->request->event == YIELDED)
    fiber = fiber_state_of(fiber->worker->request->caller);
  return fiber;
}

static VALUE call_stock(VALUE argument) {
  struct worker *worker = (struct worker *)argument;
  const struct stand_in_call *call = worker->request->call;
  VALUE buffer, *argv = ALLOCV_N(VALUE, buffer, call->argc + 1), result;

  argv[0] = call->receiver;
  MEMCPY(argv + 1, call->argv, VALUE, call->argc);
  if (worker->request->with_block)
    result = rb_block_call_kw(call->method, id_bind_call, call->argc + 1, argv, relay_block,
                              (VALUE)worker, call->keywords);
  else
    result = rb_funcallv_kw(call->method, id_bind_call, call->argc + 1, argv, call->keywords);
  ALLOCV_END(buffer);
  return result;
}

static VALUE perform(VALUE argument) {
  struct worker *worker = (struct worker *)argument;
  struct request *request = worker->request;

  if (!request->call) return request->function(request->argument);
  if (!request->call->intake) return call_stock(argument);
  return intake_during(request->call->intake, call_stock, argument);
}

/* A kill goes through: Ruby ends the fiber, and kills the thread's first one next. */
static void serve_one(struct worker *worker) {
  int state;
  VALUE value = rb_protect(perform, (VALUE)worker, &state), error = rb_errinfo();
  bool killed = state && !RTEST(rb_obj_is_kind_of(error, rb_eException));
  struct request *request = worker->request;

  if (killed && request) request->event = KILLED;
  worker->request = NULL;
  if (killed) rb_jump_tag(state);
  if (!request) retire();
  if (state) rb_set_errinfo(Qnil);
  hand_over(request, state ? RAISED : RETURNED, state ? error : value);
}

static VALUE serve(RB_BLOCK_CALL_FUNC_ARGLIST(first, self));

static VALUE worker_new(void) {
  struct worker *worker;
  VALUE self = TypedData_Make_Struct(cStandIn, struct worker, &worker_type, worker);

  worker->self = self;
  worker->fiber = worker->next = Qnil;
  VALUE fiber = rb_funcall_with_block(cFiber, id_new, 0, NULL, rb_proc_new(serve, self));
  RB_OBJ_WRITE(self, &worker->fiber, fiber);
  fiber_state_of(fiber)->worker = worker;
  return self;
}

static void put_by(struct backend_base *backend, struct worker *worker) {
  RB_OBJ_WRITE(worker->self, &worker->next, backend->stand_ins);
  RB_OBJ_WRITE(backend->self, &backend->stand_ins, worker->self);
}

void stand_in_reserve(struct backend_base *backend) {
  VALUE self = worker_new();

  put_by(backend, get(self));
  RB_GC_GUARD(self);
}

static VALUE serve(RB_BLOCK_CALL_FUNC_ARGLIST(first, self)) {
  struct worker *worker = get(self);
  (void)first, (void)argc, (void)argv, (void)blockarg;

  worker->begun = true;
  stand_in_reserve(backend_base_current());
  for (;;) {
    worker->request->event = RUNNING;
    serve_one(worker);
  }
  RB_GC_GUARD(self);
  return Qnil;
}

/* ---- in the fiber that calls ------------------------------------------------------------------ */

/* Idle ones are the backend's, and one that has not begun is among them. */
static struct worker *hire(struct backend_base *backend) {
  if (NIL_P(backend->stand_ins)) stand_in_reserve(backend);
  struct worker *worker = get(backend->stand_ins);
  RB_OBJ_WRITE(backend->self, &backend->stand_ins, worker->next);
  if (worker->begun) backend->stand_in_count--;
  return worker;
}

static void dismiss(struct backend_base *backend, struct worker *worker) {
  if (backend->stand_in_count >= IDLE_KEPT || !backend->open) return;
  put_by(backend, worker);
  backend->stand_in_count++;
}

struct job {
  struct backend_base *backend;
  struct worker *worker;
  struct request *request;
};

/* By transfer: a resume that finds no memory for a stack would leave the caller in the state of one that
 * is resuming another, to which Ruby never switches again. Back here, the stand-in stands for nobody: it
 * may be hired by a generator next, before this fiber comes to a switchpoint. */
static VALUE transfer(VALUE fiber) {
  VALUE value = rb_fiber_transfer(fiber, 0, NULL);

  fork_locks_asked();
  return value;
}

static void resume(struct job *job) {
  VALUE fiber = job->worker->fiber;

  if (job->request->event != NEW) job->request->event = RUNNING;
  generator_escort(fiber, transfer, fiber);
}

static VALUE call_block(struct request *request) {
  const struct stand_in_call *call = request->call;

  if (request->asked) return request->asked(request->asked_argument);
  if (call->before_block) call->before_block(request->yielded_count, request->yielded);
  return rb_yield_values2(request->yielded_count, request->yielded);
}

static VALUE first_resume(VALUE argument) {
  resume((struct job *)argument);
  return Qnil;
}

/* Without memory for one more stack, others have to wait until the stock method is through. */
static VALUE do_without(struct job *job) {
  rb_set_errinfo(Qnil);
  job->worker->request = NULL;
  job->request->event = RETURNED;
  job->request->stackless = true;
  return Qnil;
}

static VALUE drive(VALUE argument) {
  struct job *job = (struct job *)argument;
  int state;

  rb_protect(first_resume, argument, &state);
  if (state && job->request->event == NEW) return do_without(job);
  if (state) rb_jump_tag(state);
  while (job->request->event == YIELDED) {
    job->request->value = call_block(job->request);
    resume(job);
  }
  if (job->request->event == RUNNING)
    rb_raise(eFiberError, "this fiber was switched to while it waits in a stock method");
  return Qnil;
}

/* Somebody else has switched to the caller. What the stand-in waits in is left, or it would take what others
 * wait for. */
static void abandon(struct worker *worker) {
  struct fiber_state *fiber = fiber_state_of(worker->fiber);

  worker->request = NULL;
  if (fiber->backend) backend_base_schedule(fiber, rb_class_new_instance(0, NULL, eUnwind), RESUME_RAISE);
}

/* The block was left for good: so is the stock method, which cleans up. What it raises then is lost
 * behind what is on its way already, as in an ensure. */
static VALUE finish(VALUE argument) {
  struct job *job = (struct job *)argument;

  while (job->request->event == YIELDED) {
    job->request->unwind = true;
    resume(job);
  }
  if (job->request->event == RUNNING) abandon(job->worker);
  else if (!job->request->stackless && (job->request->event == RETURNED || job->request->event == RAISED))
    dismiss(job->backend, job->worker);
  return Qnil;
}

/* Whether it is a line of the user's; our own are left out of backtraces, C functions have none, and those of
 * Ruby's own methods in Ruby stand for the line that called them, since 3.4. */
static bool theirs_p(VALUE location) {
  VALUE line = rb_funcall(location, rb_intern("lineno"), 0);
  VALUE path = rb_funcall(location, rb_intern("path"), 0);

  if (NIL_P(line) || NIL_P(path) || NUM2INT(line) == 0) return false;
  if (strncmp(StringValueCStr(path), "<internal:", 10) == 0) return false;
  VALUE ours = rb_const_get(rb_eException, rb_intern("POLYPHONY_DIR"));
  return !RTEST(rb_funcall(path, rb_intern("start_with?"), 1, ours));
}

static bool without_lines_p(VALUE error) {
  VALUE locations = rb_funcall(error, rb_intern("backtrace_locations"), 0);

  for (long i = 0; !NIL_P(locations) && i < RARRAY_LEN(locations); i++)
    if (theirs_p(RARRAY_AREF(locations, i))) return false;
  return true;
}

/* A throw, in a to_s for instance: there is no catch in the stand-in, but maybe here. */
static void throw_here(VALUE error) {
  rb_throw_obj(rb_funcall(error, rb_intern("tag"), 0), rb_funcall(error, id_value, 0));
}

/* C functions alone ran in the stand-in: where they were called is not among its frames. So Ruby is
 * made to note them anew, here. An exception that was raised elsewhere first keeps its own. */
static void raise_here(VALUE error, VALUE stand_in) {
  bool ours = fiber_state_noted(error, id_raising) == stand_in && !RB_OBJ_FROZEN(error);

  if (ours && CLASS_OF(error) == eUncaughtThrow) throw_here(error);
  if (ours && without_lines_p(error)) {
    rb_ivar_set(error, rb_intern("bt"), Qnil);
    rb_ivar_set(error, rb_intern("bt_locations"), Qnil);
  }
  rb_exc_raise(error);
}

static VALUE yield_on(RB_BLOCK_CALL_FUNC_ARGLIST(first, block)) {
  (void)first;
  return rb_proc_call_kw(block, rb_ary_new_from_values(argc, argv), rb_keyword_given_p());
}

static VALUE perform_here(struct request *request) {
  const struct stand_in_call *call = request->call;

  if (!call) return request->function(request->argument);
  VALUE method = rb_funcall(call->method, rb_intern("bind"), 1, call->receiver);
  if (request->with_block)
    return rb_block_call_kw(method, id_call, call->argc, call->argv, yield_on, rb_block_proc(), call->keywords);
  return rb_funcallv_kw(method, id_call, call->argc, call->argv, call->keywords);
}

static VALUE employ(struct request *request) {
  struct backend_base *backend = backend_base_current();
  struct job job = { backend, hire(backend), request };
  VALUE worker = job.worker->self;

  job.worker->request = request;
  rb_ensure(drive, (VALUE)&job, finish, (VALUE)&job);
  if (request->stackless) return perform_here(request);
  if (request->event == RAISED) raise_here(request->value, job.worker->fiber);
  RB_GC_GUARD(worker);
  return request->value;
}

VALUE stand_in_call(const struct stand_in_call *call) {
  struct request request = { .caller = rb_fiber_current(), .call = call,
                             .with_block = rb_block_given_p(), .value = Qnil };

  return employ(&request);
}

VALUE stand_in_run(VALUE (*function)(VALUE), VALUE argument) {
  struct request request = { .caller = rb_fiber_current(), .function = function, .argument = argument,
                             .value = Qnil };

  return employ(&request);
}

static bool may_wait_p(void) {
  struct backend_base *backend = backend_base_open_here();

  if (!backend) return false;
  if (backend->unscheduled) scheduler_come_back(backend);
  return scheduler_ours_p() && backend_base_may_wait_p(backend);
}

bool stand_in_possible_p(void) { return may_wait_p(); }

bool stand_in_wanted_p(void) { return NIL_P(rb_fiber_scheduler_current()) && may_wait_p(); }

bool stand_in_scheduled_p(void) { return !NIL_P(rb_fiber_scheduler_current()) && may_wait_p(); }

void stand_in_init(void) {
  id_bind_call = rb_intern("bind_call");
  VALUE module = rb_define_module_under(mPolyphony, "StandIn");
  cStandIn = rb_define_class_under(module, "Worker", rb_cObject);
  rb_undef_alloc_func(cStandIn);
  eUnwind = rb_define_class_under(module, "Unwind", rb_eException);
  rb_gc_register_address(&cStandIn);
  rb_gc_register_address(&eUnwind);
  rb_gc_register_address(&eUncaughtThrow);
  eUncaughtThrow = rb_path2class("UncaughtThrowError");
  rb_funcall(module, rb_intern("private_constant"), 2, ID2SYM(rb_intern("Worker")), ID2SYM(rb_intern("Unwind")));
}
