/* class_http2_input.c - what nghttp2 tells us about the bytes of the client: requests, bodies, faults. */
#include "polyphony_http.h"

#ifdef HAVE_LIBNGHTTP2
#include "class_http2.h"
#include "http1.h"

#include <strings.h>

static struct h2_stream *stream_of(struct h2_session *s, int32_t id) {
  return nghttp2_session_get_stream_user_data(s->session, id);
}

/* --- heads -------------------------------------------------------------------------------------------------- */

static void refuse_stream(struct h2_session *s, int32_t id) {
  h2_stream_forget(s, id);
  nghttp2_submit_rst_stream(s->session, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
}

/* Handlers that still run after their answer are the application's choice, so twice as many of all kinds may be. */
static bool full_p(const struct h2_session *s) {
  uint32_t limit = s->budget.limits.streams;

  return s->counted >= limit || s->total / 2 >= limit;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
  struct h2_session *s = user;
  int32_t id = frame->hd.stream_id;
  struct h2_stream *st = stream_of(s, id);
  bool request = frame->headers.cat == NGHTTP2_HCAT_REQUEST;

  h2_budget_list(&s->budget, !request);
  if (!request) {
    if (st) st->in_trailers = true;
  } else if (full_p(s)) {
    refuse_stream(s, id);
  } else {
    st = h2_stream_new(s, id);
    h2_stream_set(s, st, SLOT_HEADERS, rb_hash_new());
    nghttp2_session_set_stream_user_data(session, id, st);
  }
  return 0;
}

static VALUE text(const nghttp2_vec *vec) { return rb_str_new((const char *)vec->base, (long)vec->len); }

/* Names come again and again. */
static VALUE name_text(const nghttp2_vec *vec) {
  return rb_enc_interned_str((const char *)vec->base, (long)vec->len, rb_usascii_encoding());
}

static bool same_p(const nghttp2_vec *vec, const char *name, size_t size) {
  return vec->len == size && memcmp(vec->base, name, size) == 0;
}
#define SAME_P(vec, name) same_p(vec, "" name, sizeof(name) - 1)

static void add_pseudo(struct h2_session *s, struct h2_stream *st, const nghttp2_vec *name, const nghttp2_vec *value) {
  enum h2_slot slot;

  if (SAME_P(name, ":method")) slot = SLOT_VERB;
  else if (SAME_P(name, ":path")) slot = SLOT_TARGET;
  else if (SAME_P(name, ":authority")) slot = SLOT_AUTHORITY;
  else if (SAME_P(name, ":protocol")) slot = SLOT_PROTOCOL;
  else return; /* :scheme has to be there, but we know better */
  h2_stream_set(s, st, slot, text(value));
}

/* Cookies may come in crumbs (RFC 9113, 8.2.3). */
static void add_field(VALUE hash, const nghttp2_vec *name, const nghttp2_vec *value) {
  VALUE key = name_text(name);
  VALUE before = rb_hash_lookup(hash, key);

  if (NIL_P(before)) {
    rb_hash_aset(hash, key, text(value));
  } else {
    rb_str_cat_cstr(before, SAME_P(name, "cookie") ? "; " : ", ");
    rb_str_cat(before, (const char *)value->base, (long)value->len);
  }
}

static int64_t length_of(const nghttp2_vec *value) {
  int64_t length = 0;

  /* nghttp2 has checked that it is a number below 2^63 */
  for (size_t i = 0; i < value->len && length < INT64_MAX / 10; i++) length = length * 10 + (value->base[i] - '0');
  return length;
}

/* Not what says where a message ends or whose it is. */
static void add_trailer(VALUE hash, const nghttp2_vec *name, const nghttp2_vec *value) {
  struct http1_field field = { .known = http1_name_find((const char *)name->base, name->len) };

  if (http1_trailer_p(&field)) add_field(hash, name, value);
}

static VALUE trailers_of(struct h2_session *s, struct h2_stream *st) {
  if (NIL_P(st->slots[SLOT_TRAILERS])) h2_stream_set(s, st, SLOT_TRAILERS, rb_hash_new());
  return st->slots[SLOT_TRAILERS];
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, nghttp2_rcbuf *name_buf,
                     nghttp2_rcbuf *value_buf, uint8_t flags, void *user) {
  struct h2_session *s = user;
  struct h2_stream *st = stream_of(s, frame->hd.stream_id);
  nghttp2_vec name = nghttp2_rcbuf_get_buf(name_buf), value = nghttp2_rcbuf_get_buf(value_buf);
  bool fits = h2_budget_field(&s->budget, name.len, value.len);

  if (s->budget.verdict != H2_FINE) return NGHTTP2_ERR_CALLBACK_FAILURE; /* not one field more */
  if (!st) return 0;
  if (!fits) {
    st->too_large = true;
  } else if (st->in_trailers) {
    add_trailer(trailers_of(s, st), &name, &value);
  } else if (name.len && name.base[0] == ':') {
    add_pseudo(s, st, &name, &value);
  } else {
    if (SAME_P(&name, "content-length")) st->content_length = length_of(&value);
    add_field(st->slots[SLOT_HEADERS], &name, &value);
  }
  return 0;
}

/* nghttp2 would leave such a field out and go on. */
static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame, nghttp2_rcbuf *name,
                             nghttp2_rcbuf *value, uint8_t flags, void *user) {
  return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

/* --- requests ----------------------------------------------------------------------------------------------- */

/* :authority is what counts; a Host that differs would be read by somebody else (RFC 9113, 8.3.1). */
static const char *settle_host(struct h2_session *s, struct h2_stream *st) {
  VALUE key = rb_enc_interned_str("host", 4, rb_usascii_encoding());
  VALUE headers = st->slots[SLOT_HEADERS], authority = st->slots[SLOT_AUTHORITY], host = rb_hash_lookup(headers, key);

  if (NIL_P(authority)) authority = host;
  else if (NIL_P(host)) rb_hash_aset(headers, key, authority);
  else if (RSTRING_LEN(host) != RSTRING_LEN(authority) ||
           strncasecmp(RSTRING_PTR(host), RSTRING_PTR(authority), (size_t)RSTRING_LEN(host)) != 0)
    return ":authority and host differ";
  if (NIL_P(authority)) return "no authority";
  return http1_host_p(RSTRING_PTR(authority), (size_t)RSTRING_LEN(authority)) ? NULL : "bad authority";
}

/* What HTTP/1 answers before a handler is asked, it answers here. */
static struct http1_fault judge(const struct h2_session *s, const struct h2_stream *st) {
  const VALUE *slots = st->slots;
  VALUE expect;

  if (st->too_large) return (struct http1_fault){ 431, "header list too large" };
  switch (http1_verb_find(RSTRING_PTR(slots[SLOT_VERB]), (size_t)RSTRING_LEN(slots[SLOT_VERB]))) {
    case HTTP1_VERB_NONE: return (struct http1_fault){ 501, "an unknown method" };
    case HTTP1_VERB_TRACE: return (struct http1_fault){ 405, "TRACE" };
    case HTTP1_VERB_CONNECT:
      if (NIL_P(slots[SLOT_PROTOCOL])) return (struct http1_fault){ 501, "CONNECT" };
      break;
    case HTTP1_VERB_OPTIONS:
      if (RSTRING_LEN(slots[SLOT_TARGET]) == 1 && RSTRING_PTR(slots[SLOT_TARGET])[0] == '*') break;
      /* fall through */
    default:
      if (RSTRING_PTR(slots[SLOT_TARGET])[0] != '/') return (struct http1_fault){ 400, "a target that is no path" };
  }
  if (RSTRING_LEN(slots[SLOT_TARGET]) > s->max_target) return (struct http1_fault){ 414, "target too long" };
  if (st->content_length > s->max_body) return (struct http1_fault){ 413, "body too large" };
  expect = rb_hash_lookup(slots[SLOT_HEADERS], rb_enc_interned_str("expect", 6, rb_usascii_encoding()));
  if (!NIL_P(expect) && strcasecmp(RSTRING_PTR(expect), "100-continue") != 0)
    return (struct http1_fault){ 417, "an unknown expectation" };
  return (struct http1_fault){ 0, NULL };
}

/* An event: id, verb, target, headers, protocol, whether a body follows; and if it is refused: status, reason. */
static void announce(struct h2_session *s, struct h2_stream *st) {
  VALUE *slots = st->slots;
  VALUE event = rb_ary_new_capa(8);
  struct http1_fault fault = judge(s, st);

  rb_ary_push(event, INT2FIX(st->id));
  rb_ary_push(event, slots[SLOT_VERB]);
  rb_ary_push(event, slots[SLOT_TARGET]);
  rb_ary_push(event, slots[SLOT_HEADERS]);
  rb_ary_push(event, slots[SLOT_PROTOCOL]);
  rb_ary_push(event, st->in_done ? Qfalse : Qtrue);
  if (fault.status) {
    rb_ary_push(event, INT2FIX(fault.status));
    rb_ary_push(event, rb_str_new_cstr(fault.reason));
  }
  for (int i = 0; i <= SLOT_HEADERS; i++) slots[i] = Qnil;
  st->active = true;
  s->requests += 1;
  h2_session_event(s, event);
}

static void refuse_request(struct h2_session *s, struct h2_stream *st, const char *fault) {
  st->fault = fault;
  nghttp2_submit_rst_stream(s->session, NGHTTP2_FLAG_NONE, st->id, NGHTTP2_PROTOCOL_ERROR);
}

static void on_request(struct h2_session *s, struct h2_stream *st) {
  const char *fault = st->too_large ? NULL : settle_host(s, st);

  if (s->budget.verdict != H2_FINE) return; /* the connection ends */
  if (fault) refuse_request(s, st, fault);
  else announce(s, st);
}

/* --- bodies ------------------------------------------------------------------------------------------------- */

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t size,
                         void *user) {
  struct h2_session *s = user;
  struct h2_stream *st = stream_of(s, id);

  if (!st || !st->active) {
    nghttp2_session_consume(session, id, size);
    return 0;
  }
  if (NIL_P(st->slots[SLOT_IN])) h2_stream_set(s, st, SLOT_IN, rb_str_new((const char *)data, (long)size));
  else rb_str_cat(st->slots[SLOT_IN], (const char *)data, (long)size);
  h2_stream_wake(s, st, true);
  return 0;
}

/* The next bytes of a request's body; nil: not yet, wait for an event; true: it is at its end; false: it is gone. */
static VALUE Session_take(VALUE self, VALUE id) {
  struct h2_session *s = h2_session_get(self);
  struct h2_stream *st = h2_stream_find(s, NUM2INT(id));

  if (!st || st->reset) return Qfalse;
  VALUE in = st->slots[SLOT_IN];
  if (!NIL_P(in)) {
    h2_stream_drop_input(s, st);
    return in;
  }
  if (st->in_done) return Qtrue;
  if (st->closed) return Qfalse;
  st->reader = true;
  return Qnil;
}

static VALUE Session_trailers(VALUE self, VALUE id) {
  struct h2_session *s = h2_session_get(self);
  struct h2_stream *st = h2_stream_find(s, NUM2INT(id));

  return st && st->in_done && !st->too_large ? st->slots[SLOT_TRAILERS] : Qnil;
}

static VALUE Session_trailers_too_large_p(VALUE self, VALUE id) {
  struct h2_session *s = h2_session_get(self);
  struct h2_stream *st = h2_stream_find(s, NUM2INT(id));

  return st && st->too_large ? Qtrue : Qfalse;
}

/* --- frames ------------------------------------------------------------------------------------------------- */

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
  struct h2_session *s = user;
  struct h2_stream *st;

  switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
    case NGHTTP2_DATA:
      if (!(st = stream_of(s, frame->hd.stream_id))) return 0;
      if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) st->in_done = true;
      if (frame->hd.type == NGHTTP2_HEADERS && !st->in_trailers) on_request(s, st);
      else if (st->in_done) h2_stream_wake(s, st, true);
      return 0;
    case NGHTTP2_SETTINGS:
      if (frame->hd.flags & NGHTTP2_FLAG_ACK) s->acked = true;
      return 0;
    case NGHTTP2_PING:
      if (frame->hd.flags & NGHTTP2_FLAG_ACK) h2_session_last_goaway(s);
      return 0;
    default:
      return 0;
  }
}

/* nghttp2 ignores HEADERS for streams that are closed, because trailers may cross a reset of ours. Those we know;
 * all the others are a protocol error (RFC 9113, 5.1.1). */
static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *head, void *user) {
  struct h2_session *s = user;

  if (head->type != NGHTTP2_HEADERS) return 0;
  if (head->stream_id > s->last_id) {
    s->last_id = head->stream_id;
  } else if (head->stream_id && !h2_stream_known(s, head->stream_id)) {
    h2_budget_judge(&s->budget, H2_STREAM_ID);
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  return 0;
}

/* Only remembered: when the reset goes out, it is charged and reported. */
static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int error, void *user) {
  struct h2_session *s = user;
  struct h2_stream *st = stream_of(s, frame->hd.stream_id);

  if (st && !st->fault) st->fault = nghttp2_strerror(error);
  return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *user) {
  struct h2_session *s = user;
  struct h2_stream *st = stream_of(s, id);

  if (!st) return 0;
  if (!NIL_P(st->slots[SLOT_IN])) nghttp2_session_consume_connection(session, (size_t)RSTRING_LEN(st->slots[SLOT_IN]));
  st->closed = true;
  st->code = code;
  st->reset = !(st->in_done && st->end_sent);
  nghttp2_session_set_stream_user_data(session, id, NULL);
  if (st->active) {
    h2_stream_recount(s, st);
    h2_stream_wake(s, st, true);
    h2_stream_wake(s, st, false);
  } else {
    h2_stream_free(s, st);
  }
  return 0;
}

void h2_input_callbacks(nghttp2_session_callbacks *callbacks) {
  nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
  nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
  nghttp2_session_callbacks_set_on_header_callback2(callbacks, on_header);
  nghttp2_session_callbacks_set_on_invalid_header_callback2(callbacks, on_invalid_header);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data_chunk);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
  nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
}

void h2_input_methods(VALUE klass) {
  rb_define_method(klass, "take", Session_take, 1);
  rb_define_method(klass, "trailers", Session_trailers, 1);
  rb_define_method(klass, "trailers_too_large?", Session_trailers_too_large_p, 1);
}

#endif
