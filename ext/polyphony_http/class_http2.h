/* class_http2.h - a connection of HTTP/2 as the files class_http2_*.c see it: nghttp2 does the protocol, h2_budget
 * the limits, and Ruby the waiting. No callback of nghttp2's calls Ruby code or switches fibers: what happened is
 * gathered in `events` and handed out when nghttp2 has returned. */
#ifndef CLASS_HTTP2_H
#define CLASS_HTTP2_H

#include "h2_budget.h"
#include "polyphony_http.h"

#include <nghttp2/nghttp2.h>

/* References of a stream, in one array so that marking is a loop. Qnil when empty. */
enum h2_slot {
  SLOT_VERB, SLOT_TARGET, SLOT_AUTHORITY, SLOT_PROTOCOL,
  SLOT_HEADERS,        /* Hash */
  SLOT_TRAILERS,       /* Hash, of the request */
  SLOT_IN,             /* String: bytes of the request's body that nobody has read */
  SLOT_OUT,            /* frozen String: bytes of the answer that were not sent */
  SLOT_OUT_TRAILERS,   /* Array of name, value, name, value: checked and frozen */
  SLOT_COUNT,
};

/* Lives from the first HEADERS until nghttp2 has closed the stream and the handler has ended. */
struct h2_stream {
  struct h2_stream *next, *prev;
  int32_t id;
  VALUE slots[SLOT_COUNT];
  long out_at;               /* bytes of SLOT_OUT that were sent */
  int64_t content_length;    /* -1: none was said */
  uint32_t code;             /* why it was closed */
  bool active;               /* a handler has it */
  bool counts;               /* is among h2_session.counted */
  bool closed;               /* by nghttp2 */
  bool reset;                /* closed before all was said */
  bool in_trailers;          /* the header list being decoded comes behind the body */
  bool too_large;            /* the header list is over the limit */
  bool in_done;              /* the peer has said all */
  bool answered;             /* HEADERS of the answer were given to nghttp2 */
  bool out_done;             /* nothing is to be added to SLOT_OUT */
  bool end_sent;             /* END_STREAM went out */
  bool ours;                 /* we reset it, and not for a fault of the peer */
  bool reader, writer;       /* somebody waits for bytes, or for room */
  double mark;               /* since when the progress of SLOT_OUT is watched; 0: it is not */
  uint64_t mark_sent;        /* what `sent` was then */
  uint64_t mark_connection;  /* and what the connection's was */
  uint64_t sent;
  const char *fault;         /* static text */
};

#define H2_FORGOTTEN 64

struct h2_session {
  nghttp2_session *session;  /* NULL when closed */
  VALUE self;                /* set by each method; not marked */
  VALUE events;              /* Array, or Qnil when nothing has happened */
  VALUE output;              /* the String that #pull fills; Qnil outside of it */
  struct h2_budget budget;
  struct h2_stream *streams;
  uint32_t total;            /* in the list */
  uint32_t counted;          /* of these, open or reset with a handler that still runs */
  int32_t last_id;           /* the highest that had HEADERS */
  int32_t forgotten[H2_FORGOTTEN]; /* streams that we closed while the peer might still send */
  uint32_t forgotten_at;
  double now;                /* when the current call began */
  double header_time, settings_time, keep_alive, stall, body_rate;
  double born, idle_since, checked, drain_at;
  uint64_t sent;             /* bytes of DATA */
  long max_target;
  int64_t max_body;
  uint64_t requests, max_requests; /* 0: no maximum */
  bool acked, draining, pinged, drained, busy, patched;
  bool lost;                 /* nghttp2 was refused memory: it can neither go on nor be freed, see session_end */
  uint32_t failed;           /* code of a GOAWAY that is an error; 0: none */
  bool over;                 /* time is up for an idle connection */
  char reason[96];           /* for the log */
  nghttp2_nv *fields;        /* scratch: the fields of an answer, */
  size_t field_capacity, field_count;
  char *text;                /* and their bytes */
  size_t text_capacity, text_size;
};

/* --- class_http2_session.c */
struct h2_session *h2_session_get(VALUE self); /* raises if it is in use, or lost */
void h2_session_check_memory(struct h2_session *s); /* raises if it is lost */
void h2_session_event(struct h2_session *s, VALUE event);
void h2_session_fail(struct h2_session *s, uint32_t code, const char *reason);
void h2_session_last_goaway(struct h2_session *s);
double h2_now(void);

/* --- class_http2_streams.c */
struct h2_stream *h2_stream_new(struct h2_session *s, int32_t id);
void h2_stream_free(struct h2_session *s, struct h2_stream *st);
struct h2_stream *h2_stream_find(struct h2_session *s, int32_t id); /* NULL: there is none */
void h2_stream_set(struct h2_session *s, struct h2_stream *st, enum h2_slot slot, VALUE value);
void h2_stream_wake(struct h2_session *s, struct h2_stream *st, bool reader);
void h2_stream_recount(struct h2_session *s, struct h2_stream *st);
void h2_stream_forget(struct h2_session *s, int32_t id);
bool h2_stream_known(struct h2_session *s, int32_t id);
bool h2_stream_stalled(struct h2_session *s, struct h2_stream *st);
void h2_stream_drop_input(struct h2_session *s, struct h2_stream *st);
long h2_stream_queued(const struct h2_stream *st);

/* --- class_http2_input.c, class_http2_output.c */
void h2_input_callbacks(nghttp2_session_callbacks *callbacks);
void h2_output_callbacks(nghttp2_session_callbacks *callbacks);
void h2_output_methods(VALUE klass);
void h2_input_methods(VALUE klass);
void h2_output_close_unread(struct h2_session *s, struct h2_stream *st);

#endif
