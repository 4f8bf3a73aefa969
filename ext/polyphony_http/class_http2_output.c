/* class_http2_output.c - answers: their header fields, their bodies, and the bytes that nghttp2 makes of them. */
#include "polyphony_http.h"

#ifdef HAVE_LIBNGHTTP2
#include "class_http2.h"

#include <time.h>

static VALUE bad_response; /* HTTP::BadResponse, which is Ruby's; looked up when it is needed */

NORETURN(static void refuse(const char *what, VALUE value));
static void refuse(const char *what, VALUE value) {
  if (!bad_response) {
    bad_response = rb_const_get(mHTTP, rb_intern("BadResponse"));
    rb_gc_register_mark_object(bad_response);
  }
  rb_raise(bad_response, "%s: %"PRIsVALUE, what, rb_inspect(value));
}

/* --- header fields ------------------------------------------------------------------------------------------ */

/* Scratch that has grown beyond this is not kept: connections live long. */
#define USUAL_TEXT 16384

/* The application's Strings are copied at once: while the others are looked at, a compacting GC may move the bytes of
 * a short one. Returns where the copy begins in s->text, which itself moves when it grows. */
static size_t add_text(struct h2_session *s, const char *bytes, size_t size) {
  if (size > s->text_capacity - s->text_size) {
    size_t capacity = s->text_capacity ? s->text_capacity : 1024;
    while (size > capacity - s->text_size) capacity *= 2;
    REALLOC_N(s->text, char, capacity);
    s->text_capacity = capacity;
  }
  if (size) memcpy(s->text + s->text_size, bytes, size);
  s->text_size += size;
  return s->text_size - size;
}

/* Both are places in s->text, until fields_of. */
static void add_placed(struct h2_session *s, size_t name, size_t name_size, size_t value, size_t value_size) {
  if (s->field_count == s->field_capacity) {
    size_t capacity = s->field_capacity ? s->field_capacity * 2 : 16;
    REALLOC_N(s->fields, nghttp2_nv, capacity);
    s->field_capacity = capacity;
  }
  s->fields[s->field_count++] = (nghttp2_nv){
    .name = (uint8_t *)name, .namelen = name_size, .value = (uint8_t *)value, .valuelen = value_size,
    .flags = NGHTTP2_NV_FLAG_NONE,
  };
}

static void add(struct h2_session *s, const char *name, const char *value, size_t value_size) {
  size_t name_size = strlen(name), at = add_text(s, name, name_size);

  add_placed(s, at, name_size, add_text(s, value, value_size), value_size);
}

static void begin_fields(struct h2_session *s) {
  s->field_count = s->text_size = 0;
}

/* Once, when nothing more is added. */
static const nghttp2_nv *fields_of(struct h2_session *s) {
  for (size_t i = 0; i < s->field_count; i++) {
    s->fields[i].name = (uint8_t *)s->text + (uintptr_t)s->fields[i].name;
    s->fields[i].value = (uint8_t *)s->text + (uintptr_t)s->fields[i].value;
  }
  return s->fields;
}

static void end_fields(struct h2_session *s) {
  s->field_count = s->text_size = 0;
  if (s->text_capacity <= USUAL_TEXT) return;
  xfree(s->text);
  s->text = NULL;
  s->text_capacity = 0;
}

/* Fields that speak about a connection of HTTP/1 (RFC 9113, 8.2.2); and pseudo fields, which are ours to send. */
static bool of_connection_p(const char *name, size_t size) {
  static const char *const NAMES[] = { "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade" };

  for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++)
    if (strlen(NAMES[i]) == size && memcmp(NAMES[i], name, size) == 0) return true;
  return false;
}

/* What is being gathered. Nothing here runs code of the application's, which could wait: the scratch has one user at
 * a time. */
struct gathering {
  struct h2_session *s;
  int64_t length;        /* content-length; -1: none */
  bool date;
};

/* Returns where it is in s->text. Underscores of a Symbol are dashes, as in request[:content_type]. */
static size_t add_name(struct gathering *g, VALUE name, bool symbol) {
  size_t size = (size_t)RSTRING_LEN(name), at = add_text(g->s, RSTRING_PTR(name), size);
  char *text = g->s->text + at;

  for (size_t i = 0; i < size; i++) {
    if (text[i] >= 'A' && text[i] <= 'Z') text[i] |= 0x20;
    else if (symbol && text[i] == '_') text[i] = '-';
  }
  if (size == 0 || text[0] == ':' || !nghttp2_check_header_name((const uint8_t *)text, size))
    refuse("a header must not have such a name", name);
  return at;
}

/* What needs no method of the application's. */
static VALUE string_of(VALUE value) {
  if (FIXNUM_P(value)) return rb_fix2str(value, 10);
  if (RB_INTEGER_TYPE_P(value)) return rb_big2str(value, 10);
  if (RB_FLOAT_TYPE_P(value) || value == Qtrue || value == Qfalse) return rb_obj_as_string(value); /* as HTTP/1 does */
  return SYMBOL_P(value) ? rb_sym2str(value) : value;
}

static void gather_value(struct gathering *g, VALUE name, size_t at, VALUE value) {
  value = string_of(value);
  if (!RB_TYPE_P(value, T_STRING)) refuse("a header must be a String", value);
  if (!nghttp2_check_header_value((const uint8_t *)RSTRING_PTR(value), (size_t)RSTRING_LEN(value)))
    refuse("a control character is in the value of the header", name); /* which may be a secret */
  size_t size = (size_t)RSTRING_LEN(value);
  add_placed(g->s, at, (size_t)RSTRING_LEN(name), add_text(g->s, RSTRING_PTR(value), size), size);
  RB_GC_GUARD(value);
}

static void note_length(struct gathering *g, VALUE value) {
  VALUE number = string_of(value);
  long long length = -1;

  if (RB_TYPE_P(number, T_STRING) && RSTRING_LEN(number) > 0 && RSTRING_LEN(number) < 19) {
    const char *p = RSTRING_PTR(number), *end = p + RSTRING_LEN(number);
    for (length = 0; p < end && *p >= '0' && *p <= '9'; p++) length = length * 10 + (*p - '0');
    if (p < end) length = -1;
  }
  if (length < 0) refuse("content-length must be a number, got", value);
  if (g->length >= 0 && g->length != length) refuse("content-length was said already, and differs from", value);
  g->length = length;
}

static int gather_field(VALUE name, VALUE value, VALUE arg) {
  struct gathering *g = (struct gathering *)arg;

  if (NIL_P(value)) return ST_CONTINUE;
  bool symbol = SYMBOL_P(name);
  if (symbol) name = rb_sym2str(name);
  if (!RB_TYPE_P(name, T_STRING)) refuse("the name of a header must be a String", name);
  size_t size = (size_t)RSTRING_LEN(name), at = add_name(g, name, symbol);
  const char *text = g->s->text + at;
  if (of_connection_p(text, size)) return ST_CONTINUE;
  if (size == 14 && memcmp(text, "content-length", 14) == 0) {
    note_length(g, value);
    return ST_CONTINUE;
  }
  if (size == 4 && memcmp(text, "date", 4) == 0) g->date = true;
  if (RB_TYPE_P(value, T_ARRAY))
    for (long i = 0; i < RARRAY_LEN(value); i++) gather_value(g, name, at, RARRAY_AREF(value, i));
  else
    gather_value(g, name, at, value);
  RB_GC_GUARD(name);
  return ST_CONTINUE;
}

static void gather(struct gathering *g, VALUE headers) {
  Check_Type(headers, T_HASH);
  rb_hash_foreach(headers, gather_field, (VALUE)g);
}

/* As RFC 9110 writes it, made once a second. */
static const char *date_text(size_t *size) {
  static char text[40];
  static time_t made;
  static size_t length;
  time_t now = time(NULL);

  if (now != made) {
    static const char *const DAYS[] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
    static const char *const MONTHS[] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };
    struct tm tm;
    gmtime_r(&now, &tm);
    length = (size_t)snprintf(text, sizeof(text), "%s, %02d %s %04d %02d:%02d:%02d GMT", DAYS[tm.tm_wday], tm.tm_mday,
                              MONTHS[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
    made = now;
  }
  *size = length;
  return text;
}

static void add_status(struct h2_session *s, int status) {
  char text[3] = { (char)('0' + status / 100), (char)('0' + status / 10 % 10), (char)('0' + status % 10) };

  begin_fields(s);
  add(s, ":status", text, 3);
}

/* --- bodies ------------------------------------------------------------------------------------------------- */

/* Both were checked when they were handed in, so that nothing can raise in the middle of nghttp2. */
static void submit_trailers(struct h2_session *s, struct h2_stream *st) {
  VALUE list = st->slots[SLOT_OUT_TRAILERS];
  nghttp2_nv fields[32];
  size_t count = 0;

  for (long i = 0; i + 1 < RARRAY_LEN(list) && count < 32; i += 2) {
    VALUE name = RARRAY_AREF(list, i), value = RARRAY_AREF(list, i + 1);
    fields[count++] = (nghttp2_nv){
      .name = (uint8_t *)RSTRING_PTR(name), .namelen = (size_t)RSTRING_LEN(name),
      .value = (uint8_t *)RSTRING_PTR(value), .valuelen = (size_t)RSTRING_LEN(value), .flags = NGHTTP2_NV_FLAG_NONE,
    };
  }
  nghttp2_submit_trailer(s->session, st->id, fields, count);
}

/* The bytes are copied once, by on_send_data. */
static ssize_t read_data(nghttp2_session *session, int32_t id, uint8_t *buffer, size_t length, uint32_t *flags,
                         nghttp2_data_source *source, void *user) {
  struct h2_session *s = user;
  struct h2_stream *st = source->ptr;
  size_t left = (size_t)h2_stream_queued(st);

  if (!left && !st->out_done) return NGHTTP2_ERR_DEFERRED;
  *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (left > length) return (ssize_t)length;
  if (st->out_done) {
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (!NIL_P(st->slots[SLOT_OUT_TRAILERS])) {
      *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      submit_trailers(s, st);
    }
  }
  return (ssize_t)left;
}

/* Answers below this many waiting bytes let their handler go on. */
#define HIGH_WATER 65536

static int on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t length,
                        nghttp2_data_source *source, void *user) {
  struct h2_session *s = user;
  struct h2_stream *st = source->ptr;
  VALUE out = st->slots[SLOT_OUT];

  rb_str_cat(s->output, (const char *)head, 9);
  if (length) rb_str_cat(s->output, RSTRING_PTR(out) + st->out_at, (long)length);
  RB_GC_GUARD(out); /* or a GC that makes room in the output may move its bytes */
  st->out_at += (long)length;
  st->sent += length;
  s->sent += length;
  h2_budget_sent(&s->budget, length, h2_stream_queued(st) == 0);
  if (h2_stream_queued(st) == 0) {
    st->slots[SLOT_OUT] = Qnil;
    st->out_at = 0;
  }
  if (h2_stream_queued(st) < HIGH_WATER) h2_stream_wake(s, st, false);
  return 0;
}

/* --- frames that went out ----------------------------------------------------------------------------------- */

/* A fault of the client's: it pays, and the log gets a line. */
static void sent_reset(struct h2_session *s, struct h2_stream *st, uint32_t code, int32_t id) {
  const char *fault = st && st->fault ? st->fault : code == NGHTTP2_REFUSED_STREAM ? "too many streams at once" : "bad stream";

  if (st && !st->in_done) h2_stream_forget(s, id);
  if (st && st->ours) return;
  h2_budget_reset(&s->budget, s->now);
  h2_session_event(s, rb_sprintf("HTTP/2 stream reset, %s: %s", nghttp2_http2_strerror(code), fault));
}

/* A notice is followed by a PING, whose answer says that it was seen. Errors here are of nghttp2's own judgement;
 * ours are in s->failed already. */
static void sent_goaway(struct h2_session *s, const nghttp2_goaway *goaway) {
  if (s->draining && !s->drained && !s->pinged) {
    s->pinged = true;
    nghttp2_submit_ping(s->session, NGHTTP2_FLAG_NONE, (const uint8_t *)"draining");
  }
  if (goaway->error_code == NGHTTP2_NO_ERROR || s->failed) return;
  s->failed = goaway->error_code;
  snprintf(s->reason, sizeof(s->reason), "%.*s", (int)(goaway->opaque_data_len < 90 ? goaway->opaque_data_len : 90),
           goaway->opaque_data ? (const char *)goaway->opaque_data : "");
}

/* The answer is whole and the handler gone, but the client still sends: it may stop (RFC 9113, 8.1). */
void h2_output_close_unread(struct h2_session *s, struct h2_stream *st) {
  if (st->closed || st->active || st->in_done || !st->end_sent) return;
  st->ours = true;
  nghttp2_submit_rst_stream(s->session, NGHTTP2_FLAG_NONE, st->id, NGHTTP2_NO_ERROR);
}

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
  struct h2_session *s = user;
  struct h2_stream *st;

  switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
    case NGHTTP2_DATA:
      if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) return 0;
      if (!(st = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id))) return 0;
      st->end_sent = true;
      h2_output_close_unread(s, st);
      return 0;
    case NGHTTP2_RST_STREAM:
      st = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
      sent_reset(s, st, frame->rst_stream.error_code, frame->hd.stream_id);
      return 0;
    case NGHTTP2_GOAWAY:
      sent_goaway(s, &frame->goaway);
      return 0;
    default:
      return 0;
  }
}

/* An answer that cannot be packed must not leave the client waiting. */
static int on_frame_not_send(nghttp2_session *session, const nghttp2_frame *frame, int error, void *user) {
  struct h2_session *s = user;
  struct h2_stream *st = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

  if (frame->hd.type != NGHTTP2_HEADERS || !st || st->closed) return 0;
  st->ours = true;
  nghttp2_submit_rst_stream(s->session, NGHTTP2_FLAG_NONE, st->id, NGHTTP2_INTERNAL_ERROR);
  return 0;
}

/* Our first frame is SETTINGS, and its first entry MAX_CONCURRENT_STREAMS. nghttp2 was told a number that is never
 * reached, because it closes the connection of a client which opens one stream too many; the client is told ours. */
static void patch_settings(struct h2_session *s) {
  unsigned char *entry = (unsigned char *)RSTRING_PTR(s->output) + 9;
  uint32_t streams = s->budget.limits.streams;

  s->patched = true;
  for (int i = 0; i < 4; i++) entry[2 + i] = (unsigned char)(streams >> (24 - 8 * i));
}

static void pull_frames(struct h2_session *s, long limit) {
  const uint8_t *data;
  ssize_t size;

  while (RSTRING_LEN(s->output) < limit && (size = nghttp2_session_mem_send(s->session, &data)) > 0) {
    rb_str_cat(s->output, (const char *)data, size);
    if (!s->patched) patch_settings(s);
  }
}

/* Puts frames into the (empty) string, about so many bytes. Returns true if there was anything. */
static VALUE Session_pull(VALUE self, VALUE output, VALUE limit) {
  struct h2_session *s = h2_session_get(self);
  long most = NUM2LONG(limit);

  Check_Type(output, T_STRING);
  if (!s->session) return Qfalse;
  rb_str_modify(output);
  rb_str_set_len(output, 0);
  s->now = h2_now();
  RB_OBJ_WRITE(self, &s->output, output);
  s->busy = true;
  pull_frames(s, most);
  s->busy = false;
  s->output = Qnil;
  h2_session_check_memory(s);
  if (s->budget.verdict != H2_FINE)
    h2_session_fail(s, h2_verdict_code(s->budget.verdict), h2_verdict_text(s->budget.verdict));
  return RSTRING_LEN(output) > 0 ? Qtrue : Qfalse;
}

static VALUE Session_pending_p(VALUE self) {
  struct h2_session *s = h2_session_get(self);

  return s->session && nghttp2_session_want_write(s->session) ? Qtrue : Qfalse;
}

/* --- answering ---------------------------------------------------------------------------------------------- */

/* NULL: it is closed, or was never answered though it has to be. */
static struct h2_stream *open_stream(struct h2_session *s, VALUE id) {
  struct h2_stream *st = s->session ? nghttp2_session_get_stream_user_data(s->session, NUM2INT(id)) : NULL;

  return st && !st->closed && !st->end_sent ? st : NULL;
}

static int submit_answer(struct h2_session *s, struct h2_stream *st, bool last) {
  nghttp2_data_provider provider = { .source.ptr = st, .read_callback = read_data };

  st->answered = true;
  return nghttp2_submit_response(s->session, st->id, fields_of(s), s->field_count, last ? NULL : &provider);
}

/* The application's word holds for HEAD, where there is no body to compare it with. */
static void settle_length(struct gathering *g, int64_t length, bool head) {
  if (g->length >= 0 && g->length != length && !head)
    refuse("the body has another length than its content-length says", LL2NUM(g->length));
  if (g->length < 0) g->length = length;
}

/* Begins an answer. With a body it is the whole of it; without, `last` says that none comes. False: the client is gone.
 * What may run code of the application's comes before the stream is looked up, which could be gone afterwards. */
static VALUE Session_respond(VALUE self, VALUE id, VALUE status, VALUE headers, VALUE length, VALUE body, VALUE last) {
  struct h2_session *s = h2_session_get(self);
  struct gathering g = { .s = s, .length = -1 };
  int code = NUM2INT(status);
  int64_t size = NIL_P(length) ? -1 : NUM2LL(length);
  char number[24];
  size_t date_size;

  if (!NIL_P(body)) StringValue(body);
  struct h2_stream *st = open_stream(s, id);
  if (!st) return Qfalse;
  if (st->answered) rb_raise(rb_eRuntimeError, "stream %d was answered already", st->id);
  add_status(s, code);
  gather(&g, headers);
  if (size >= 0) settle_length(&g, size, NIL_P(body));
  if (g.length >= 0)
    add(s, "content-length", number, (size_t)snprintf(number, sizeof(number), "%lld", (long long)g.length));
  const char *date = date_text(&date_size);
  if (!g.date) add(s, "date", date, date_size);
  if (!NIL_P(body)) h2_stream_set(s, st, SLOT_OUT, rb_str_new_frozen(body));
  st->out_done = RTEST(last) || !NIL_P(body);
  st->out_at = 0;
  int rc = submit_answer(s, st, RTEST(last));
  end_fields(s);
  return rc == 0 ? Qtrue : Qfalse;
}

/* 1xx */
static VALUE Session_inform(VALUE self, VALUE id, VALUE status, VALUE headers) {
  struct h2_session *s = h2_session_get(self);
  struct gathering g = { .s = s, .length = -1 };
  int code = NUM2INT(status);
  struct h2_stream *st = open_stream(s, id);

  if (!st || st->answered) return Qfalse;
  add_status(s, code);
  gather(&g, headers);
  nghttp2_submit_headers(s->session, NGHTTP2_FLAG_NONE, st->id, NULL, fields_of(s), s->field_count, NULL);
  end_fields(s);
  return Qtrue;
}

/* How many bytes wait for the client, at most HIGH_WATER if the handler may go on; then the stream is watched. */
static VALUE room(struct h2_stream *st) {
  long queued = h2_stream_queued(st);

  if (queued >= HIGH_WATER) st->writer = true;
  return queued >= HIGH_WATER ? Qnil : Qtrue;
}

static void queue_bytes(struct h2_session *s, struct h2_stream *st, VALUE data) {
  long queued = h2_stream_queued(st);

  if (queued) {
    VALUE out = st->slots[SLOT_OUT], joined = rb_str_buf_new(queued + RSTRING_LEN(data));
    rb_str_cat(joined, RSTRING_PTR(out) + st->out_at, queued);
    rb_str_cat(joined, RSTRING_PTR(data), RSTRING_LEN(data));
    RB_GC_GUARD(out);
    RB_GC_GUARD(data);
    data = joined;
  }
  h2_stream_set(s, st, SLOT_OUT, rb_str_new_frozen(data));
  st->out_at = 0;
}

/* Adds to the body. True: go on; nil: wait for an event, then ask #room; false: the client is gone. */
static VALUE Session_send_data(VALUE self, VALUE id, VALUE data) {
  struct h2_session *s = h2_session_get(self);

  StringValue(data);
  struct h2_stream *st = open_stream(s, id);
  if (!st || st->out_done) return Qfalse;
  queue_bytes(s, st, data);
  nghttp2_session_resume_data(s->session, st->id);
  return room(st);
}

static VALUE Session_room(VALUE self, VALUE id) {
  struct h2_session *s = h2_session_get(self);
  struct h2_stream *st = h2_stream_find(s, NUM2INT(id));

  if (!st || (st->reset && st->closed)) return Qfalse;
  return room(st);
}

static VALUE trailer_list(struct h2_session *s, VALUE trailers) {
  struct gathering g = { .s = s, .length = -1 };
  VALUE list = rb_ary_new();

  begin_fields(s);
  gather(&g, trailers);
  if (s->field_count > 32) refuse("at most 32 trailers can be sent, got", SIZET2NUM(s->field_count));
  const nghttp2_nv *field = fields_of(s);
  for (size_t i = 0; i < s->field_count; i++, field++) {
    rb_ary_push(list, rb_str_new((char *)field->name, (long)field->namelen));
    rb_ary_push(list, rb_str_new((char *)field->value, (long)field->valuelen));
  }
  end_fields(s);
  return list;
}

/* Ends the body. */
static VALUE Session_finish(VALUE self, VALUE id, VALUE trailers) {
  struct h2_session *s = h2_session_get(self);
  struct h2_stream *st = open_stream(s, id);

  if (!NIL_P(trailers)) Check_Type(trailers, T_HASH);
  if (!st || st->out_done) return Qfalse;
  if (!NIL_P(trailers) && RHASH_SIZE(trailers) > 0) h2_stream_set(s, st, SLOT_OUT_TRAILERS, trailer_list(s, trailers));
  st->out_done = true;
  nghttp2_session_resume_data(s->session, st->id);
  return Qtrue;
}

static VALUE Session_reset(VALUE self, VALUE id, VALUE code) {
  struct h2_session *s = h2_session_get(self);
  struct h2_stream *st = h2_stream_find(s, NUM2INT(id));

  if (!st || st->closed || !s->session) return Qfalse;
  st->ours = true;
  nghttp2_submit_rst_stream(s->session, NGHTTP2_FLAG_NONE, st->id, NUM2UINT(code));
  return Qtrue;
}

/* The handler has ended. An answer that was not begun or not finished by now never will be. */
static VALUE Session_release(VALUE self, VALUE id) {
  struct h2_session *s = h2_session_get(self);
  struct h2_stream *st = h2_stream_find(s, NUM2INT(id));

  if (!st) return Qnil;
  s->now = s->total == 1 ? h2_now() : s->now;
  st->active = false;
  h2_stream_drop_input(s, st);
  if (st->closed) {
    h2_stream_recount(s, st);
    h2_stream_free(s, st);
  } else if (!st->out_done) {
    st->ours = true;
    nghttp2_submit_rst_stream(s->session, NGHTTP2_FLAG_NONE, st->id, NGHTTP2_INTERNAL_ERROR);
  } else {
    h2_output_close_unread(s, st);
  }
  return Qnil;
}

void h2_output_callbacks(nghttp2_session_callbacks *callbacks) {
  nghttp2_session_callbacks_set_send_data_callback(callbacks, on_send_data);
  nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_send);
  nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, on_frame_not_send);
}

void h2_output_methods(VALUE klass) {
  rb_define_method(klass, "pull", Session_pull, 2);
  rb_define_method(klass, "pending?", Session_pending_p, 0);
  rb_define_method(klass, "respond", Session_respond, 6);
  rb_define_method(klass, "inform", Session_inform, 3);
  rb_define_method(klass, "send_data", Session_send_data, 2);
  rb_define_method(klass, "room", Session_room, 1);
  rb_define_method(klass, "finish", Session_finish, 2);
  rb_define_method(klass, "reset", Session_reset, 2);
  rb_define_method(klass, "release", Session_release, 1);
}

#endif
