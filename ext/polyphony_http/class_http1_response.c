/* class_http1_response.c - heads of answers, as methods of HTTP1::Parser, which knows the request.
 *
 * What the application says about the connection and about where the body ends is a wish: these fields are
 * written by us, since only we know what will be true. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include "http1_ruby.h"
#include "http1_scan.h"
#include "lobby_ruby.h"
#include "tls_ruby.h"

static VALUE cBadResponse;

/* ---- text that grows, on the stack as long as it is short ----------------------------------- */

struct text {
  size_t length;
  VALUE string;                         /* what did not fit in `small`, or false */
  char small[2048];
};

static void text_add(struct text *text, const char *bytes, size_t length) {
  if (!text->string && length <= sizeof(text->small) - text->length) {
    memcpy(text->small + text->length, bytes, length);
    text->length += length;
    return;
  }
  if (!text->string) text->string = rb_str_new(text->small, (long)text->length);
  rb_str_cat(text->string, bytes, (long)length);
}

#define text_literal(text, literal) text_add(text, literal, sizeof(literal) - 1)

static VALUE text_string(struct text *text, VALUE body) {
  size_t more = RB_TYPE_P(body, T_STRING) ? (size_t)RSTRING_LEN(body) : 0;

  if (!text->string) {
    text->string = rb_str_buf_new((long)(text->length + more));
    rb_str_cat(text->string, text->small, (long)text->length);
  }
  if (more) rb_str_cat(text->string, RSTRING_PTR(body), (long)more);
  return text->string;
}

/* ---- status line and date ------------------------------------------------------------------- */

static struct { uint8_t length; char text[63]; } status_lines[600]; /* made when they are needed */

static void make_status_line(int status) {
  VALUE phrases = rb_const_get(rb_const_get(mHTTP, rb_intern("Status")), rb_intern("PHRASES"));
  VALUE phrase = rb_hash_aref(phrases, INT2FIX(status));

  status_lines[status].length = (uint8_t)snprintf(status_lines[status].text, sizeof(status_lines[0].text),
    "HTTP/1.1 %d %.40s\r\n", status, NIL_P(phrase) ? "" : StringValueCStr(phrase));
}

static void add_status_line(struct text *text, int status) {
  if (status < 100 || status > 599) rb_raise(cBadResponse, "status must be between 100 and 599, got %d", status);
  if (!status_lines[status].length) make_status_line(status);
  text_add(text, status_lines[status].text, status_lines[status].length);
}

static void add_date(struct text *text) {
  static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
  static char line[48];
  static int length;
  static time_t of;
  struct timespec now;
  struct tm tm;

  clock_gettime(CLOCK_REALTIME, &now);
  if (now.tv_sec != of || !length) {
    gmtime_r(&now.tv_sec, &tm);         /* strftime would ask the locale */
    length = snprintf(line, sizeof(line), "date: %.3s, %02d %.3s %04d %02d:%02d:%02d GMT\r\n",
                      days + 3 * tm.tm_wday, tm.tm_mday, months + 3 * tm.tm_mon, (tm.tm_year + 1900) % 10000,
                      tm.tm_hour, tm.tm_min, tm.tm_sec);
    of = now.tv_sec;
  }
  text_add(text, line, (size_t)length);
}

/* ---- fields of the application -------------------------------------------------------------- */

struct answer {
  struct text text;
  int64_t length;                       /* content-length that the application gives; -1: none */
  bool close, upgrade, date;            /* what its fields say */
  bool trailing;                        /* whether these are trailers */
};

/* `small` is left as it is. */
static void begin(struct answer *answer, bool trailing) {
  answer->text.length = 0;
  answer->text.string = Qfalse;
  answer->length = -1;
  answer->close = answer->upgrade = answer->date = false;
  answer->trailing = trailing;
}

static void add_line(struct answer *answer, VALUE name, const char *value, size_t length) {
  text_add(&answer->text, RSTRING_PTR(name), (size_t)RSTRING_LEN(name));
  text_literal(&answer->text, ": ");
  text_add(&answer->text, value, length);
  text_literal(&answer->text, "\r\n");
}

/* A line feed is none of our own making either: Rack 2, which puts several values into one String with line feeds
 * between them, has them taken apart by its handler. */
static void add_value(struct answer *answer, VALUE name, VALUE value) {
  if (RB_INTEGER_TYPE_P(value)) value = rb_String(value);
  if (NIL_P(value)) return;
  if (!RB_TYPE_P(value, T_STRING)) value = rb_obj_as_string(value);
  const char *p = RSTRING_PTR(value), *end = p + RSTRING_LEN(value);

  if (scan_text(p, end) < end)
    rb_raise(cBadResponse, "the header %"PRIsVALUE" has a control character in its value", rb_inspect(name));
  add_line(answer, name, p, (size_t)(end - p));
  RB_GC_GUARD(value);                   /* p */
}

static void add_values(struct answer *answer, VALUE name, VALUE value) {
  if (!RB_TYPE_P(value, T_ARRAY)) {
    add_value(answer, name, value);
    return;
  }
  for (long i = 0; i < RARRAY_LEN(value); i++) add_value(answer, name, RARRAY_AREF(value, i));
}

static void note_length(struct answer *answer, VALUE value) {
  VALUE text = rb_obj_as_string(value);
  const char *p = RSTRING_PTR(text), *end = p + RSTRING_LEN(text);
  int64_t length = 0;

  if (p == end || end - p > 18 || scan_kind(p, end, SCAN_DIGIT) != end)
    rb_raise(cBadResponse, "content-length must be a number, got %"PRIsVALUE, rb_inspect(value));
  for (; p < end; p++) length = length * 10 + (*p - '0');
  if (answer->length >= 0 && answer->length != length)
    rb_raise(cBadResponse, "two values of content-length: %lld and %lld", (long long)answer->length, (long long)length);
  answer->length = length;
  RB_GC_GUARD(text);
}

static void note_connection(struct answer *answer, VALUE value) {
  VALUE text = RB_TYPE_P(value, T_ARRAY) ? rb_ary_join(value, rb_str_new_cstr(",")) : rb_obj_as_string(value);

  if (http1_list_has(RSTRING_PTR(text), (size_t)RSTRING_LEN(text), "close")) answer->close = true;
  RB_GC_GUARD(text);
}

/* Returns whether the field is to be written as it is. */
static bool note_field(struct answer *answer, uint32_t known, VALUE value) {
  if (answer->trailing) return http1_trailer_p(&(struct http1_field){ .known = known });
  switch (known) {
    case HTTP1_NAME_CONTENT_LENGTH: note_length(answer, value); return false;
    case HTTP1_NAME_CONNECTION: note_connection(answer, value); return false;
    case HTTP1_NAME_TRANSFER_ENCODING: case HTTP1_NAME_KEEP_ALIVE: case HTTP1_NAME_PROXY_CONNECTION: return false;
    case HTTP1_NAME_DATE: answer->date = true; return true;
    case HTTP1_NAME_UPGRADE: answer->upgrade = true; return true;
    default: return true;
  }
}

/* As in request[:content_type], underscores of a Symbol are dashes. */
static VALUE symbol_name(VALUE symbol) {
  VALUE name = rb_sym2str(symbol);

  if (!memchr(RSTRING_PTR(name), '_', (size_t)RSTRING_LEN(name))) return name;
  name = rb_str_dup(name);
  rb_str_modify(name);
  for (char *p = RSTRING_PTR(name), *end = p + RSTRING_LEN(name); p < end; p++) if (*p == '_') *p = '-';
  return name;
}

static int add_field(VALUE name, VALUE value, VALUE arg) {
  struct answer *answer = (struct answer *)arg;

  if (RB_SYMBOL_P(name)) name = symbol_name(name);
  if (!RB_TYPE_P(name, T_STRING)) name = rb_obj_as_string(name);
  const char *p = RSTRING_PTR(name), *end = p + RSTRING_LEN(name);
  if (p == end || scan_kind(p, end, SCAN_TOKEN) != end)
    rb_raise(cBadResponse, "the name of a header must be a token, got %"PRIsVALUE, rb_inspect(name));
  if (note_field(answer, http1_name_find(p, (size_t)(end - p)), value)) add_values(answer, name, value);
  RB_GC_GUARD(name);                    /* p */
  return ST_CONTINUE;
}

static void add_fields(struct answer *answer, VALUE headers) {
  Check_Type(headers, T_HASH);
  rb_hash_foreach(headers, add_field, (VALUE)answer);
}

/* ---- fields of ours ------------------------------------------------------------------------- */

static void add_length(struct answer *answer, int64_t length) {
  char digits[24], *end = digits + sizeof(digits), *p = end;

  do *--p = (char)('0' + length % 10);
  while ((length /= 10) > 0);
  text_literal(&answer->text, "content-length: ");
  text_add(&answer->text, p, (size_t)(end - p));
  text_literal(&answer->text, "\r\n");
}

static void add_connection(struct answer *answer, struct http1_reply *reply) {
  if (!reply->keep_alive && answer->upgrade) text_literal(&answer->text, "connection: close, upgrade\r\n");
  else if (!reply->keep_alive) text_literal(&answer->text, "connection: close\r\n");
  else if (answer->upgrade) text_literal(&answer->text, "connection: upgrade\r\n");
  else if (!reply->minor) text_literal(&answer->text, "connection: keep-alive\r\n");
}

/* What the body has: nil, none (of a HEAD it has to tell the length all the same); a String: that one;
 * false: what `length` says; true: what comes until it ends. */
static void add_framing(struct answer *answer, struct http1_reply *reply, int status, int64_t length, VALUE body) {
  reply->chunked = false;
  if (status == 204) return;
  if (status == 304) length = -1;
  if (!NIL_P(body) && body != Qtrue && answer->length >= 0 && answer->length != length)
    rb_raise(cBadResponse, "the body has %lld bytes, its content-length says %lld", (long long)length,
             (long long)answer->length);
  if (answer->length >= 0) length = answer->length;
  if (length >= 0) add_length(answer, length);
  else if (body == Qtrue && reply->minor) {
    reply->chunked = true;
    text_literal(&answer->text, "transfer-encoding: chunked\r\n");
  } else if (body == Qtrue) reply->keep_alive = false; /* the end of the connection is the end of the body */
}

static void compose(struct answer *answer, struct http1_reply *reply, int status, VALUE headers, int64_t length, VALUE body) {
  begin(answer, false);
  add_status_line(&answer->text, status);
  add_fields(answer, headers);
  if (answer->close) reply->keep_alive = false;
  if (!answer->date) add_date(&answer->text);
  add_framing(answer, reply, status, length, body);
  add_connection(answer, reply);
  text_literal(&answer->text, "\r\n");
}

/* answer(status, headers, length, body) => String */
static VALUE Parser_answer(VALUE self, VALUE status, VALUE headers, VALUE length, VALUE body) {
  struct answer answer;

  compose(&answer, http1_reply_of(self), NUM2INT(status), headers, NIL_P(length) ? -1 : (int64_t)NUM2LL(length), body);
  return rb_obj_freeze(text_string(&answer.text, body)); /* what is frozen need not be copied to be lent */
}

/* ---- the short way --------------------------------------------------------------------------- */

/* Bodies up to this size go out together with their head. */
#define SMALL 16384

static bool plain_status_p(VALUE status) {
  return FIXNUM_P(status) && status >= INT2FIX(200) && status <= INT2FIX(599) && status != INT2FIX(204) &&
         status != INT2FIX(304);
}

/* One record is less work than two. Under the GVL nobody else is in here. */
static ssize_t write_record(VALUE tls, const struct text *text, VALUE body) {
  static char record[sizeof(text->small) + SMALL];
  size_t length = (size_t)RSTRING_LEN(body);

  memcpy(record, text->small, text->length);
  memcpy(record + text->length, RSTRING_PTR(body), length);
  return tls_write(tls, record, text->length + length);
}

#ifndef MSG_MORE
#define MSG_MORE 0
#endif

/* What fits behind the head goes with it: send(2) is cheaper than sendmsg(2). The length of the text stays that of the head. */
static ssize_t send_both(VALUE socket, struct text *text, VALUE body, int more) {
  size_t length = (size_t)RSTRING_LEN(body);

  if (length <= sizeof(text->small) - text->length) {
    memcpy(text->small + text->length, RSTRING_PTR(body), length);
    return send(rb_io_descriptor(socket), text->small, text->length + length, MSG_DONTWAIT | MSG_NOSIGNAL | more);
  }
  struct iovec parts[] = { { text->small, text->length }, { RSTRING_PTR(body), (size_t)RSTRING_LEN(body) } };
  struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

  return sendmsg(rb_io_descriptor(socket), &message, MSG_DONTWAIT | MSG_NOSIGNAL | more);
}

/* How much was taken at once. What is wrong is left to those who wait: they know how to tell. */
static size_t send_at_once(VALUE socket, VALUE tls, struct text *text, VALUE body, int more) {
  if (NIL_P(socket) || text->string || !socket_open_p(socket)) return 0;
  ssize_t count = NIL_P(tls) ? send_both(socket, text, body, more) : write_record(tls, text, body);
  return count < 0 ? 0 : (size_t)count;
}

struct way {
  VALUE head, socket, tls;
};

/* Whether the answers to those who have asked meanwhile leave together with this one. */
static bool hold(VALUE self, const struct way *way, struct text *text, VALUE body) {
  if (text->string || !NIL_P(way->tls) || NIL_P(way->socket) || !socket_open_p(way->socket)) return false;
  struct iovec parts[] = { { text->small, text->length }, { RSTRING_PTR(body), (size_t)RSTRING_LEN(body) } };

  return lobby_hold(http1_guest_of(self), rb_io_descriptor(way->socket), parts);
}

/* last: whoever answered has nothing else to do for this request. If the connection ends, too, the answer waits for that, and both are one
 * packet: for a small answer it costs as much as the answer, at both ends. Until then it is the kernel that sends it, after 200 ms. */
static VALUE answer_shortly(VALUE self, struct way way, VALUE status, VALUE headers, VALUE body, bool last) {
  struct http1_reply *reply = http1_reply_of(self);
  struct answer answer;

  if (!plain_status_p(status) || !RB_TYPE_P(body, T_STRING) || RSTRING_LEN(body) > SMALL) return Qnil;
  if (http1_head_verb(way.head) == HTTP1_VERB_HEAD) return Qnil;
  long length = RSTRING_LEN(body);
  compose(&answer, reply, FIX2INT(status), headers, length, body);
  if (RSTRING_LEN(body) != length) rb_raise(cBadResponse, "the body has changed while its headers were made");
  http1_head_answered(way.head, FIX2INT(status), (uint32_t)length);
  if (last && reply->keep_alive && hold(self, &way, &answer.text, body)) return Qtrue;
  reply->held = MSG_MORE && last && !reply->keep_alive && NIL_P(way.tls);
  size_t sent = send_at_once(way.socket, way.tls, &answer.text, body, reply->held ? MSG_MORE : 0);
  if (sent && sent == answer.text.length + (size_t)RSTRING_LEN(body)) return Qtrue;
  VALUE whole = text_string(&answer.text, body);
  return rb_obj_freeze(sent ? rb_str_subseq(whole, (long)sent, RSTRING_LEN(whole) - (long)sent) : whole);
}

/* express(head, socket, tls, status, headers, body) => true if the answer went out, a String if that is still to be sent, nil
 * if it has to be made in another way. With a socket (nobody else may be writing to it; tls: the SSLSocket around it,
 * or nil) it goes out from here, and not even a String is made of it. */
static VALUE Parser_express(VALUE self, VALUE head, VALUE socket, VALUE tls, VALUE status, VALUE headers, VALUE body) {
  return answer_shortly(self, (struct way){ head, socket, tls }, status, headers, body, false);
}

/* The same for an answer of Rack's. */
static VALUE Parser_express_rack(VALUE self, VALUE head, VALUE socket, VALUE tls, VALUE status, VALUE headers, VALUE body,
                                 VALUE rack2) {
  VALUE text = rack_plain_answer(status, headers, body, RTEST(rack2));

  return NIL_P(text) ? Qnil : answer_shortly(self, (struct way){ head, socket, tls }, status, headers, text, true);
}

/* release(socket) => String or nil: an answer that waits for the end of the connection goes out, and the end with it. Not by close(2), which
 * throws away what was not sent if something was not read. One that waits for those of others goes out, too; what is left of it is still to
 * be sent. */
static VALUE Parser_release(VALUE self, VALUE socket) {
  struct http1_reply *reply = http1_reply_of(self);

  if (reply->held && socket_open_p(socket)) shutdown(rb_io_descriptor(socket), SHUT_WR);
  reply->held = false;
  return lobby_release(http1_guest_of(self));
}

/* info(status, headers) => String: 1xx, after which an answer or another protocol follows. */
static VALUE Parser_info(VALUE self, VALUE status, VALUE headers) {
  struct answer answer;

  begin(&answer, false);
  add_status_line(&answer.text, NUM2INT(status));
  add_fields(&answer, headers);
  if (NUM2INT(status) == 101) text_literal(&answer.text, "connection: upgrade\r\n");
  text_literal(&answer.text, "\r\n");
  return text_string(&answer.text, Qnil);
}

/* last_chunk(trailers) => String */
static VALUE Parser_last_chunk(VALUE self, VALUE trailers) {
  struct answer answer;

  begin(&answer, true);
  text_literal(&answer.text, "0\r\n");
  if (!NIL_P(trailers)) add_fields(&answer, trailers);
  text_literal(&answer.text, "\r\n");
  return text_string(&answer.text, Qnil);
}

/* chunk(data) => String */
static VALUE Parser_chunk(VALUE self, VALUE data) {
  char line[24];

  StringValue(data);
  int size = snprintf(line, sizeof(line), "%lx\r\n", (unsigned long)RSTRING_LEN(data));
  VALUE chunk = rb_str_buf_new(RSTRING_LEN(data) + size + 2);
  rb_str_cat(chunk, line, size);
  rb_str_cat(chunk, RSTRING_PTR(data), RSTRING_LEN(data));
  return rb_str_cat(chunk, "\r\n", 2);
}

static VALUE Parser_chunked_p(VALUE self) { return http1_reply_of(self)->chunked ? Qtrue : Qfalse; }

static VALUE Parser_close(VALUE self) {
  http1_reply_of(self)->keep_alive = false;
  return Qnil;
}

void Init_http1_response(void) {
  VALUE cParser = rb_const_get(cHTTP1, rb_intern("Parser"));

  cBadResponse = rb_const_get(mHTTP, rb_intern("BadResponse"));
  rb_gc_register_mark_object(cBadResponse);
  rb_define_method(cParser, "answer", Parser_answer, 4);
  rb_define_method(cParser, "express", Parser_express, 6);
  rb_define_method(cParser, "express_rack", Parser_express_rack, 7);
  rb_define_method(cParser, "release", Parser_release, 1);
  rb_define_method(cParser, "info", Parser_info, 2);
  rb_define_method(cParser, "last_chunk", Parser_last_chunk, 1);
  rb_define_method(cParser, "chunk", Parser_chunk, 1);
  rb_define_method(cParser, "chunked?", Parser_chunked_p, 0);
  rb_define_method(cParser, "close", Parser_close, 0);
}
