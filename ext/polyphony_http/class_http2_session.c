/* class_http2_session.c - Polyphony::HTTP::HTTP2::Session: the life of a connection, its clocks, and its end.
 * What comes in is in class_http2_input.c, what goes out in class_http2_output.c. */
#include "polyphony_http.h"

#ifdef HAVE_LIBNGHTTP2
#include "class_http2.h"

#include <time.h>

/* A client that does not answer our PING gets its last GOAWAY after so many seconds. */
#define DRAIN_PATIENCE 1.0
/* Told to nghttp2 in place of Limits#h2_streams: beyond its number it closes the connection, we refuse the stream. */
#define MANY_STREAMS 0x7fffffff

static VALUE cSession;

double h2_now(void) {
  struct timespec ts;

  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* --- memory ------------------------------------------------------------------------------------------------ */

static void session_mark(void *pointer) {
  struct h2_session *s = pointer;

  rb_gc_mark_movable(s->events);
  rb_gc_mark_movable(s->output);
  for (struct h2_stream *st = s->streams; st; st = st->next)
    for (int i = 0; i < SLOT_COUNT; i++) rb_gc_mark_movable(st->slots[i]);
}

static void session_compact(void *pointer) {
  struct h2_session *s = pointer;

  s->events = rb_gc_location(s->events);
  s->output = rb_gc_location(s->output);
  for (struct h2_stream *st = s->streams; st; st = st->next)
    for (int i = 0; i < SLOT_COUNT; i++) st->slots[i] = rb_gc_location(st->slots[i]);
}

/* nghttp2 calls back for streams that are open when it goes; they are freed here, so it must not find them. Without memory for an
 * entry of a queue it frees what was to be in there and leaves it in the stream (1.52), and would free it again: the little that
 * such a session has is left behind. */
static void session_end(struct h2_session *s) {
  nghttp2_session *session = s->session;

  s->session = NULL;
  if (session && !s->lost) nghttp2_session_del(session);
}

static void session_free(void *pointer) {
  struct h2_session *s = pointer;

  session_end(s);
  while (s->streams) {
    struct h2_stream *st = s->streams;
    s->streams = st->next;
    xfree(st);
  }
  xfree(s->fields);
  xfree(s->text);
  xfree(s);
}

static size_t session_memsize(const void *pointer) {
  const struct h2_session *s = pointer;

  return sizeof(*s) + s->total * sizeof(struct h2_stream) + s->field_capacity * sizeof(nghttp2_nv) + s->text_capacity;
}

static const rb_data_type_t session_type = {
  .wrap_struct_name = "Polyphony::HTTP::HTTP2::Session",
  .function = {
    .dmark    = session_mark,
    .dcompact = session_compact,
    .dsize    = session_memsize,
    .dfree    = session_free,
  },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE Session_allocate(VALUE klass) {
  struct h2_session *s;
  VALUE self = TypedData_Make_Struct(klass, struct h2_session, &session_type, s);

  s->events = Qnil;
  s->output = Qnil;
  return self;
}

/* nghttp2's own memory. Each of its functions may say that there is none, also where nobody can be told, in a callback; so it is
 * noted where it happens. */
static void *noted(void *memory, size_t size, struct h2_session *s) {
  if (!memory && size) s->lost = true;
  return memory;
}

static void *take_memory(size_t size, void *s) { return noted(malloc(size), size, s); }

static void *take_zeroes(size_t count, size_t size, void *s) { return noted(calloc(count, size), count * size, s); }

static void *change_memory(void *memory, size_t size, void *s) { return noted(realloc(memory, size), size, s); }

static void give_memory(void *memory, void *s) { free(memory); }

void h2_session_check_memory(struct h2_session *s) {
  if (s->lost) rb_memerror();
}

/* `busy` stays set when an exception (no memory) has left a call of nghttp2's in the middle: nothing can be trusted
 * then, and the connection ends. */
struct h2_session *h2_session_get(VALUE self) {
  struct h2_session *s;

  TypedData_Get_Struct(self, struct h2_session, &session_type, s);
  h2_session_check_memory(s);
  if (s->busy) rb_raise(rb_eRuntimeError, "this HTTP/2 session was left in the middle of a call");
  s->self = self;
  return s;
}

void h2_session_event(struct h2_session *s, VALUE event) {
  if (NIL_P(s->events)) RB_OBJ_WRITE(s->self, &s->events, rb_ary_new());
  rb_ary_push(s->events, event);
}

/* --- beginning ---------------------------------------------------------------------------------------------- */

static double number(VALUE limits, const char *name) {
  VALUE value = rb_hash_aref(limits, ID2SYM(rb_intern(name)));

  return NIL_P(value) ? 0 : NUM2DBL(value);
}

/* Limits may be any number; frames have 31 bits. */
static uint32_t whole(VALUE limits, const char *name) {
  double value = number(limits, name);

  return value >= 0x7fffffff ? 0x7fffffff : (uint32_t)value;
}

static int64_t huge(VALUE limits, const char *name) {
  double value = number(limits, name);

  return value >= (double)INT64_MAX ? INT64_MAX : (int64_t)value;
}

static void read_limits(struct h2_session *s, VALUE limits) {
  struct h2_limits l = {
    .streams       = whole(limits, "h2_streams"),
    .list          = whole(limits, "h2_header_list"),
    .fields        = whole(limits, "header_fields"),
    .trailers      = whole(limits, "trailers"),
    .block         = whole(limits, "header_block"),
    .continuations = whole(limits, "h2_continuations"),
    .queue         = whole(limits, "h2_queue"),
    .resets        = number(limits, "h2_resets"),
    .reset_rate    = number(limits, "h2_reset_rate"),
  };

  h2_budget_init(&s->budget, &l, s->now);
  s->header_time = number(limits, "header_time");
  s->settings_time = number(limits, "h2_settings_time");
  s->keep_alive = number(limits, "keep_alive");
  s->stall = number(limits, "h2_stall");
  s->body_rate = number(limits, "body_rate");
  s->max_target = (long)whole(limits, "request_line");
  s->max_body = number(limits, "body") ? huge(limits, "body") : INT64_MAX;
  s->max_requests = (uint64_t)huge(limits, "requests");
}

static int new_options(struct h2_session *s, nghttp2_option **option) {
  int rc = nghttp2_option_new(option);

  if (rc) return rc;
  nghttp2_option_set_no_auto_window_update(*option, 1); /* windows grow by what was consumed */
  nghttp2_option_set_no_closed_streams(*option, 1);     /* no memory for priorities that we do not use */
  nghttp2_option_set_max_send_header_block_length(*option, 1 << 20);
  nghttp2_option_set_max_outbound_ack(*option, 2 * (size_t)s->budget.limits.queue); /* ours comes first */
#ifdef HAVE_NGHTTP2_OPTION_SET_STREAM_RESET_RATE_LIMIT
  /* more than a number of 32 bits is as good as none */
  double resets = s->budget.limits.resets, rate = s->budget.limits.reset_rate;
  nghttp2_option_set_stream_reset_rate_limit(*option, resets < UINT32_MAX ? (uint64_t)resets * 2 + 100 : UINT32_MAX,
                                             rate < UINT32_MAX ? (uint64_t)rate + 1 : UINT32_MAX);
#endif
#ifdef HAVE_NGHTTP2_OPTION_SET_MAX_CONTINUATIONS
  /* it counts a frame once for each piece of its head that comes, so up to nine times */
  nghttp2_option_set_max_continuations(*option, 10 * ((size_t)s->budget.limits.continuations + 1));
#endif
  return 0;
}

static int new_session(struct h2_session *s) {
  nghttp2_mem memory = { s, take_memory, give_memory, take_zeroes, change_memory };
  nghttp2_session_callbacks *callbacks = NULL;
  nghttp2_option *option = NULL;
  int rc = nghttp2_session_callbacks_new(&callbacks);

  if (rc) return rc;
  h2_input_callbacks(callbacks);
  h2_output_callbacks(callbacks);
  rc = new_options(s, &option);
  if (rc == 0) rc = nghttp2_session_server_new3(&s->session, callbacks, s, option, &memory);
  nghttp2_option_del(option);
  nghttp2_session_callbacks_del(callbacks);
  return rc;
}

/* MAX_CONCURRENT_STREAMS is the first, see Session#pull. */
static int submit_settings(struct h2_session *s, VALUE limits) {
  nghttp2_settings_entry entries[] = {
    { NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, MANY_STREAMS },
    { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, whole(limits, "h2_stream_window") },
    { NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, s->budget.limits.list },
    { NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL, 1 },
    { NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1 },
  };
  int rc = nghttp2_submit_settings(s->session, NGHTTP2_FLAG_NONE, entries, sizeof(entries) / sizeof(entries[0]));

  if (rc) return rc;
  return nghttp2_session_set_local_window_size(s->session, NGHTTP2_FLAG_NONE, 0, (int32_t)whole(limits, "h2_window"));
}

static void check(int rc) {
  if (rc == NGHTTP2_ERR_NOMEM) rb_memerror();
  if (rc < 0) rb_raise(rb_eRuntimeError, "nghttp2: %s", nghttp2_strerror(rc));
}

static VALUE Session_initialize(VALUE self, VALUE limits) {
  struct h2_session *s = h2_session_get(self);

  Check_Type(limits, T_HASH);
  if (s->session) rb_raise(rb_eRuntimeError, "initialized twice");
  s->now = s->born = s->idle_since = s->checked = h2_now();
  read_limits(s, limits);
  check(new_session(s));
  check(submit_settings(s, limits));
  return self;
}

/* What HTTP/1 asked to become stream 1. False if the settings are none. */
static VALUE Session_upgrade(VALUE self, VALUE settings, VALUE head) {
  struct h2_session *s = h2_session_get(self);
  int rc;

  StringValue(settings);
  if (!s->session) rb_raise(rb_eRuntimeError, "this HTTP/2 session is closed");
  struct h2_stream *st = h2_stream_new(s, 1);
  rc = nghttp2_session_upgrade2(s->session, (const uint8_t *)RSTRING_PTR(settings), (size_t)RSTRING_LEN(settings),
                                RTEST(head), NULL);
  if (rc) {
    h2_stream_free(s, st);
    h2_session_check_memory(s);
    return Qfalse;
  }
  nghttp2_session_set_stream_user_data(s->session, 1, st);
  st->active = st->in_done = true;
  s->budget.last_id = 1;
  s->last_id = 1;
  s->requests = 1;
  return Qtrue;
}

/* --- clocks ------------------------------------------------------------------------------------------------- */

void h2_session_fail(struct h2_session *s, uint32_t code, const char *reason) {
  if (s->failed || !s->session) return;
  s->failed = code;
  snprintf(s->reason, sizeof(s->reason), "%s", reason);
  nghttp2_session_terminate_session(s->session, code);
}

void h2_session_last_goaway(struct h2_session *s) {
  if (s->drained || !s->draining) return;
  s->drained = true;
  nghttp2_submit_goaway(s->session, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(s->session),
                        NGHTTP2_NO_ERROR, NULL, 0);
}

static void check_stalls(struct h2_session *s) {
  for (struct h2_stream *st = s->streams; st; st = st->next) {
    if (!h2_stream_stalled(s, st)) continue;
    st->fault = "stalled: the window of the stream stayed closed";
    nghttp2_submit_rst_stream(s->session, NGHTTP2_FLAG_NONE, st->id, NGHTTP2_CANCEL);
  }
}

static double stall_step(const struct h2_session *s) {
  return s->stall / 4 < 1.0 ? s->stall / 4 : 1.0;
}

/* What time has brought. Called for every input, so the usual case has to be a few comparisons. */
static void check_clocks(struct h2_session *s) {
  if (s->failed) return;
  if (!s->acked && s->now - s->born >= s->settings_time)
    return h2_session_fail(s, NGHTTP2_SETTINGS_TIMEOUT, "SETTINGS were not acknowledged in time");
  if (s->budget.since != 0 && s->now - s->budget.since >= s->header_time)
    return h2_session_fail(s, NGHTTP2_ENHANCE_YOUR_CALM, "a frame or header block took too long");
  if (s->draining && s->now >= s->drain_at) h2_session_last_goaway(s);
  if (s->total == 0 && s->now - s->idle_since >= s->keep_alive && !s->over) {
    s->over = true;
    nghttp2_session_terminate_session(s->session, NGHTTP2_NO_ERROR);
  }
  if (s->total > 0 && s->now - s->checked >= stall_step(s)) {
    s->checked = s->now;
    check_stalls(s);
  }
}

static void sooner(double *at, double other) {
  if (other < *at) *at = other;
}

/* Seconds until a clock has to be looked at; never more than a day. */
static VALUE Session_wait_time(VALUE self) {
  struct h2_session *s = h2_session_get(self);
  double at;

  s->now = h2_now();
  at = s->now + 86400;
  if (!s->acked) sooner(&at, s->born + s->settings_time);
  if (s->budget.since != 0) sooner(&at, s->budget.since + s->header_time);
  if (s->draining && !s->drained) sooner(&at, s->drain_at);
  if (s->total == 0) sooner(&at, s->idle_since + s->keep_alive);
  else sooner(&at, s->now + stall_step(s));
  return DBL2NUM(at > s->now ? at - s->now : 0.0);
}

static VALUE take_events(struct h2_session *s) {
  VALUE events = s->events;

  s->events = Qnil;
  return events;
}

static VALUE Session_events(VALUE self) { return take_events(h2_session_get(self)); }

static VALUE Session_check(VALUE self) {
  struct h2_session *s = h2_session_get(self);

  if (!s->session) return Qnil;
  s->now = h2_now();
  check_clocks(s);
  return Qnil;
}

/* --- input -------------------------------------------------------------------------------------------------- */

static void input_failed(struct h2_session *s, int rc) {
  if (s->budget.verdict != H2_FINE) return; /* judge_input knows why */
  switch (rc) {
    case NGHTTP2_ERR_BAD_CLIENT_MAGIC:
      return h2_session_fail(s, NGHTTP2_PROTOCOL_ERROR, "bad connection preface");
    case NGHTTP2_ERR_FLOODED:
      return h2_session_fail(s, NGHTTP2_ENHANCE_YOUR_CALM, h2_verdict_text(H2_QUEUE));
    default:
      return h2_session_fail(s, NGHTTP2_INTERNAL_ERROR, nghttp2_strerror(rc));
  }
}

static void judge_input(struct h2_session *s) {
  struct h2_budget *b = &s->budget;

  if (nghttp2_session_get_outbound_queue_size(s->session) > b->limits.queue) h2_budget_judge(b, H2_QUEUE);
  if (b->verdict != H2_FINE) h2_session_fail(s, h2_verdict_code(b->verdict), h2_verdict_text(b->verdict));
}

static void begin_drain(struct h2_session *s);

/* Takes all bytes of the buffer. Returns what happened, or nil. */
static VALUE Session_feed(VALUE self, VALUE buffer) {
  struct h2_session *s = h2_session_get(self);
  size_t size;
  ssize_t rc;

  Check_Type(buffer, T_STRING);
  if (!s->session) return Qnil;
  rb_str_modify(buffer); /* its bytes may be another String's, too */
  s->now = h2_now();
  size = h2_budget_scan(&s->budget, (const uint8_t *)RSTRING_PTR(buffer), (size_t)RSTRING_LEN(buffer), s->now);
  s->busy = true;
  rc = nghttp2_session_mem_recv(s->session, (const uint8_t *)RSTRING_PTR(buffer), size);
  s->busy = false;
  rb_str_set_len(buffer, 0);
  RB_GC_GUARD(buffer); /* callbacks were reading its bytes */
  h2_session_check_memory(s);
  if (rc < 0) input_failed(s, (int)rc);
  judge_input(s);
  check_clocks(s);
  if (s->max_requests && s->requests >= s->max_requests && !s->draining) begin_drain(s);
  return take_events(s);
}

/* --- the end ------------------------------------------------------------------------------------------------ */

/* In two steps (RFC 9113, 6.8): first a notice, so that requests on their way still count; the true last stream
 * when the client has answered a PING, which says that it has seen the notice. */
static void begin_drain(struct h2_session *s) {
  if (s->draining || !s->session) return;
  s->draining = true;
  s->drain_at = h2_now() + DRAIN_PATIENCE;
  nghttp2_submit_shutdown_notice(s->session); /* the PING follows when it has gone out: see sent_goaway */
}

static VALUE Session_drain(VALUE self) {
  begin_drain(h2_session_get(self));
  return Qnil;
}

static VALUE Session_drained(VALUE self) {
  struct h2_session *s = h2_session_get(self);

  if (s->session) h2_session_last_goaway(s);
  return Qnil;
}

/* The connection is gone: all streams are closed. Works after an exception within nghttp2, too: who waits has to learn
 * that it is over. */
static VALUE Session_close(VALUE self) {
  struct h2_session *s = rb_check_typeddata(self, &session_type);

  session_end(s);
  s->busy = s->lost = false;
  for (struct h2_stream *st = s->streams; st; st = st->next) st->closed = st->reset = true;
  return Qnil;
}

/* Whether bytes of the client are still of interest. */
static VALUE Session_open_p(VALUE self) {
  struct h2_session *s = h2_session_get(self);

  return s->session && !s->failed && !s->over && nghttp2_session_want_read(s->session) ? Qtrue : Qfalse;
}

/* What went wrong with the connection, or nil. */
static VALUE Session_failure(VALUE self) {
  struct h2_session *s = h2_session_get(self);

  if (!s->failed) return Qnil;
  return rb_sprintf("HTTP/2 %s%s%s", nghttp2_http2_strerror(s->failed), *s->reason ? ": " : "", s->reason);
}

static VALUE Session_idle_p(VALUE self) { return h2_session_get(self)->total == 0 ? Qtrue : Qfalse; }

static VALUE Session_version(VALUE klass) { return rb_str_new_cstr(nghttp2_version(0)->version_str); }

void Init_http2_session(void) {
  VALUE http2 = rb_define_class_under(mHTTP, "HTTP2", rb_cObject);

  cSession = rb_define_class_under(http2, "Session", rb_cObject);
  rb_gc_register_mark_object(cSession);
  rb_define_alloc_func(cSession, Session_allocate);
  rb_define_singleton_method(cSession, "nghttp2_version", Session_version, 0);
  rb_define_method(cSession, "initialize", Session_initialize, 1);
  rb_define_method(cSession, "upgrade", Session_upgrade, 2);
  rb_define_method(cSession, "feed", Session_feed, 1);
  rb_define_method(cSession, "events", Session_events, 0);
  rb_define_method(cSession, "check", Session_check, 0);
  rb_define_method(cSession, "wait_time", Session_wait_time, 0);
  rb_define_method(cSession, "drain", Session_drain, 0);
  rb_define_method(cSession, "drained", Session_drained, 0);
  rb_define_method(cSession, "close", Session_close, 0);
  rb_define_method(cSession, "open?", Session_open_p, 0);
  rb_define_method(cSession, "failure", Session_failure, 0);
  rb_define_method(cSession, "idle?", Session_idle_p, 0);
  h2_input_methods(cSession);
  h2_output_methods(cSession);
}

#else

void Init_http2_session(void) {}

#endif
