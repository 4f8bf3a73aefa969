/* class_http2_streams.c - the streams of a connection. See class_http2.h. */
#include "polyphony_http.h"

#ifdef HAVE_LIBNGHTTP2
#include "class_http2.h"

struct h2_stream *h2_stream_new(struct h2_session *s, int32_t id) {
  struct h2_stream *st = ZALLOC(struct h2_stream);

  st->id = id;
  st->content_length = -1;
  for (int i = 0; i < SLOT_COUNT; i++) st->slots[i] = Qnil;
  st->next = s->streams;
  if (st->next) st->next->prev = st;
  s->streams = st;
  s->total += 1;
  s->counted += 1;
  st->counts = true;
  return st;
}

/* Those that count are open, or were reset while their handler runs: a client must not get more of them by resetting. */
void h2_stream_recount(struct h2_session *s, struct h2_stream *st) {
  if (!st->counts || !st->closed || (st->reset && st->active)) return;
  st->counts = false;
  s->counted -= 1;
}

void h2_stream_free(struct h2_session *s, struct h2_stream *st) {
  if (st->prev) st->prev->next = st->next;
  else s->streams = st->next;
  if (st->next) st->next->prev = st->prev;
  s->total -= 1;
  if (st->counts) s->counted -= 1;
  if (s->total == 0) s->idle_since = s->now;
  xfree(st);
}

/* nghttp2 finds open streams fast; of the closed ones there are few. */
struct h2_stream *h2_stream_find(struct h2_session *s, int32_t id) {
  struct h2_stream *st = s->session ? nghttp2_session_get_stream_user_data(s->session, id) : NULL;

  if (st) return st;
  for (st = s->streams; st; st = st->next)
    if (st->id == id) return st;
  return NULL;
}

void h2_stream_set(struct h2_session *s, struct h2_stream *st, enum h2_slot slot, VALUE value) {
  RB_OBJ_WRITE(s->self, &st->slots[slot], value);
}

void h2_stream_wake(struct h2_session *s, struct h2_stream *st, bool reader) {
  bool *waiting = reader ? &st->reader : &st->writer;

  if (!*waiting) return;
  *waiting = false;
  h2_session_event(s, INT2FIX(st->id));
}

void h2_stream_forget(struct h2_session *s, int32_t id) {
  s->forgotten[s->forgotten_at++ % H2_FORGOTTEN] = id;
}

bool h2_stream_known(struct h2_session *s, int32_t id) {
  if (nghttp2_session_get_stream_user_data(s->session, id)) return true;
  for (int i = 0; i < H2_FORGOTTEN; i++)
    if (s->forgotten[i] == id) return true;
  return false;
}

long h2_stream_queued(const struct h2_stream *st) {
  VALUE out = st->slots[SLOT_OUT];

  return NIL_P(out) ? 0 : RSTRING_LEN(out) - st->out_at;
}

/* Nobody will read them: let the connection's window have them back, and the stream's while it is open. */
void h2_stream_drop_input(struct h2_session *s, struct h2_stream *st) {
  VALUE in = st->slots[SLOT_IN];

  if (NIL_P(in)) return;
  if (RSTRING_LEN(in) > 0 && s->session && !st->closed)
    nghttp2_session_consume(s->session, st->id, (size_t)RSTRING_LEN(in));
  st->slots[SLOT_IN] = Qnil;
}

/* Whether a window holds back what is to be sent. One that is opened byte by byte is as good as closed. */
static bool closed_p(int32_t window, long queued) { return window < (queued < 1024 ? queued : 1024); }

/* A stream that waits for its window has to get body_rate bytes a second of it, seen over the time of `stall`. If the
 * connection's window is what is missing, the connection as a whole has to. A client that is slow in reading is not
 * meant here: that is write_stall. */
bool h2_stream_stalled(struct h2_session *s, struct h2_stream *st) {
  double enough = s->stall * s->body_rate;
  long queued = h2_stream_queued(st);
  bool stalled;

  if (st->closed || !st->answered || queued == 0) {
    st->mark = 0;
    return false;
  }
  if (st->mark != 0 && s->now - st->mark < s->stall) return false;
  stalled = st->mark != 0 &&
    ((closed_p(nghttp2_session_get_stream_remote_window_size(s->session, st->id), queued) &&
      (double)(st->sent - st->mark_sent) < enough) ||
     (closed_p(nghttp2_session_get_remote_window_size(s->session), queued) && (double)(s->sent - st->mark_connection) < enough));
  st->mark = s->now;
  st->mark_sent = st->sent;
  st->mark_connection = s->sent;
  return stalled;
}

#endif
