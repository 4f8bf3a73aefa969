/* class_http1_parser.c - HTTP1::Parser: what comes in on a connection, one request after the other.
 *
 * The buffer is a String that the transport appends to. Bytes in front of `at` are used up; they go when
 * all of it is, or before more is waited for, so that what is kept is moved at most once per wait. */
#include <math.h>
#include <string.h>
#include <sys/socket.h>
#include "http1_ruby.h"
#include "tls_ruby.h"

VALUE cHTTP1;
static VALUE cParser, cBadRequest;
static VALUE last_limits;               /* pinned */
static struct http1_limits last_read;   /* what they say */

struct parser {
  struct http1_limits limits;
  struct http1_head head;               /* has a list of fields when the first head was not a short one */
  struct http1_chunks chunks;
  struct http1_fields trailing;         /* its list is head's, which is not needed any more by then */
  uint64_t left;                        /* of a body with a length */
  size_t at;
  VALUE trailers;                       /* Hash or nil */
  VALUE guest;                          /* what the connection is in the lobby, or nil */
  enum http1_framing framing;
  bool begun;                           /* whether the head that is being parsed has begun */
  bool in_trailers;
  bool drained, emptied;                /* see receive */
  struct http1_reply reply;
};

static void parser_mark(void *ptr) {
  struct parser *parser = ptr;
  rb_gc_mark_movable(parser->trailers);
  rb_gc_mark_movable(parser->guest);
}

static void parser_compact(void *ptr) {
  struct parser *parser = ptr;
  parser->trailers = rb_gc_location(parser->trailers);
  parser->guest = rb_gc_location(parser->guest);
}

static void parser_free(void *ptr) {
  struct parser *parser = ptr;
  ruby_xfree(parser->head.fields.list);
  ruby_xfree(parser);
}

static size_t parser_memsize(const void *ptr) {
  const struct parser *parser = ptr;
  return sizeof(*parser) + (parser->head.fields.list ? parser->limits.header_fields * sizeof(struct http1_field) : 0);
}

static const rb_data_type_t parser_type = {
  .wrap_struct_name = "Polyphony::HTTP::HTTP1::Parser",
  .function = { .dmark = parser_mark, .dcompact = parser_compact, .dfree = parser_free,
                .dsize = parser_memsize },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE Parser_allocate(VALUE klass) {
  struct parser *parser;
  VALUE self = TypedData_Make_Struct(klass, struct parser, &parser_type, parser);

  parser->trailers = parser->guest = Qnil;
  return self;
}

static struct parser *parser_of(VALUE self) {
  return rb_check_typeddata(self, &parser_type);
}

struct http1_reply *http1_reply_of(VALUE parser) { return &parser_of(parser)->reply; }
VALUE http1_guest_of(VALUE parser) { return parser_of(parser)->guest; }

void http1_refuse(const struct http1_fault *fault) {
  VALUE args[] = { rb_str_new_cstr(fault->reason), INT2FIX(fault->status) };
  rb_exc_raise(rb_class_new_instance(2, args, cBadRequest));
}

/* ---- limits --------------------------------------------------------------------------------- */

static uint32_t limit(VALUE limits, const char *name, uint32_t most) {
  double value = NUM2DBL(rb_funcall(limits, rb_intern(name), 0));
  return value < 1 ? 1 : value < most ? (uint32_t)value : most;
}

static uint64_t body_limit(VALUE body) {
  double value = NIL_P(body) ? HUGE_VAL : NUM2DBL(body);
  return value < (double)INT64_MAX ? (uint64_t)value : UINT64_MAX;
}

/* Offsets have 32 bits, so no part of a head may be larger than this. */
#define MOST (1U << 30)
#define MOST_FIELDS (1U << 20)

static struct http1_limits limits_from(VALUE limits) {
  VALUE body = rb_funcall(limits, rb_intern("body"), 0);

  return (struct http1_limits){
    .request_line = limit(limits, "request_line", MOST), .header_block = limit(limits, "header_block", MOST),
    .header_fields = limit(limits, "header_fields", MOST_FIELDS),
    .chunk_line = limit(limits, "chunk_line", MOST), .chunk_overhead = limit(limits, "chunk_overhead", MOST),
    .trailers = limit(limits, "trailers", MOST), .body = body_limit(body),
  };
}

/* Limits do not change, and a server gives the same ones to each of its connections. */
static struct http1_limits limits_of(VALUE limits) {
  if (limits != last_limits) {
    struct http1_limits read = limits_from(limits);
    if (!OBJ_FROZEN(limits)) return read;
    last_read = read;
    last_limits = limits;
  }
  return last_read;
}

static VALUE Parser_initialize(VALUE self, VALUE limits) {
  struct parser *parser = parser_of(self);

  if (parser->limits.header_fields) rb_raise(rb_eTypeError, "initialized already");
  parser->limits = limits_of(limits);
  parser->head.limits = &parser->limits;
  return self;
}

/* Answers may wait there for others. */
static VALUE Parser_set_guest(VALUE self, VALUE guest) {
  RB_OBJ_WRITE(self, &parser_of(self)->guest, guest);
  return guest;
}

/* ---- the buffer ----------------------------------------------------------------------------- */

struct bytes {
  char *base;
  size_t length;
};

/* Raises if the buffer is lent to the kernel, before anything of it is used. */
static struct bytes bytes_of(struct parser *parser, VALUE buffer) {
  Check_Type(buffer, T_STRING);
  if (!parser->limits.header_fields) rb_raise(rb_eTypeError, "not initialized");
  rb_str_modify(buffer);
  size_t length = (size_t)RSTRING_LEN(buffer);
  if (parser->at > length) parser->at = length; /* somebody else has cut it */
  return (struct bytes){ RSTRING_PTR(buffer), length };
}

/* A buffer that has had to grow is not kept: most connections have nothing to do for most of the time. */
#define USUAL_SIZE 32768

/* Moves what is left to the front. */
static void use_up(struct parser *parser, VALUE buffer, size_t at) {
  size_t length = (size_t)RSTRING_LEN(buffer);

  parser->at = 0;
  if (at == 0) return;
  if (at == length && length > USUAL_SIZE) {
    rb_str_resize(buffer, 0);           /* frees it, as setting the length does not */
    return;
  }
  if (at < length) memmove(RSTRING_PTR(buffer), RSTRING_PTR(buffer) + at, length - at);
  rb_str_set_len(buffer, (long)(length - at));
}

/* All is used: that costs nothing. Else it can wait. */
static void move_to(struct parser *parser, VALUE buffer, size_t at) {
  parser->at = at;
  if (at == (size_t)RSTRING_LEN(buffer)) use_up(parser, buffer, at);
}

/* ---- heads ---------------------------------------------------------------------------------- */

static struct http1_field *fields_of(struct parser *parser) {
  struct http1_field **list = &parser->head.fields.list;

  if (!*list) *list = ruby_xmalloc2(parser->limits.header_fields, sizeof(**list));
  return *list;
}

static void begin_body(struct parser *parser, const struct http1_head *head) {
  parser->reply = (struct http1_reply){ .minor = head->minor, .keep_alive = head->keep_alive };
  parser->begun = parser->in_trailers = false;
  parser->trailers = Qnil;
  parser->framing = head->framing;
  parser->left = head->length;
  if (parser->framing == HTTP1_CHUNKED) http1_chunks_begin(&parser->chunks, &parser->limits);
}

/* Returns a Head, or false if its end has not come yet. */
static VALUE Parser_head(VALUE self, VALUE buffer) {
  struct parser *parser = parser_of(self);
  struct bytes bytes = bytes_of(parser, buffer);

  fields_of(parser);
  if (!parser->begun) http1_head_begin(&parser->head);
  parser->begun = true;
  switch (http1_head_parse(&parser->head, bytes.base + parser->at, bytes.length - parser->at)) {
    case HTTP1_MORE: use_up(parser, buffer, parser->at); return Qfalse;
    case HTTP1_DONE: break;
    default: http1_refuse(&parser->head.fault);
  }
  VALUE head = http1_head_new(&parser->head, bytes.base + parser->at);
  begin_body(parser, &parser->head);
  move_to(parser, buffer, parser->at + parser->head.fields.pos);
  return head;
}

/* How much is received for a request without a String to put it in: nearly all are shorter. */
#define SHORT_HEAD 4096
#define SHORT_FIELDS 128

/* Where they are parsed: the same place for all connections, so that it is in the processor's cache. */
static struct http1_field short_fields[SHORT_FIELDS]; /* as many as the limit allows, see below */

/* tls: the SSLSocket around it, or nil. A receive that gives less than was asked for has got all there is; of TLS the
 * kernel may have more all the same, unless it was emptied. */
static ssize_t receive(struct parser *parser, VALUE socket, VALUE tls, char *bytes, size_t size) {
  bool more = false, emptied = true;

  if (!socket_open_p(socket)) return -1;
  ssize_t count = NIL_P(tls) ? recv(rb_io_descriptor(socket), bytes, size, MSG_DONTWAIT)
                             : tls_read(tls, bytes, size, &more, &emptied);
  parser->drained = count < (ssize_t)size && !more;
  parser->emptied = parser->drained && emptied;
  return count;
}

/* request(http1, socket, tls, buffer) => HTTP1::Request, or nil if it has to be received in the usual way; what has come of it is in
 * the buffer then, which has to be empty before. Most requests are a short head and nothing else: they are parsed where
 * they were received. What is wrong with one is left to the usual way, too, which knows how to tell. */
static VALUE Parser_request(VALUE self, VALUE http1, VALUE socket, VALUE tls, VALUE buffer) {
  struct parser *parser = parser_of(self);
  struct http1_head head = { .limits = &parser->limits, .fields = { .list = short_fields } };
  char bytes[SHORT_HEAD];

  if (parser->begun || bytes_of(parser, buffer).length || parser->limits.header_fields > SHORT_FIELDS) return Qnil;
  ssize_t count = receive(parser, socket, tls, bytes, sizeof(bytes));
  if (count <= 0) return Qnil;
  http1_head_begin(&head);
  enum http1_result result = http1_head_parse(&head, bytes, (size_t)count);
  if (result != HTTP1_DONE || head.fields.pos != count || !http1_plain_p(&head)) {
    rb_str_cat(buffer, bytes, count);
    return Qnil;
  }
  VALUE object = http1_head_new(&head, bytes);
  begin_body(parser, &head);
  return http1_request_new(http1, object);
}

/* Whether another request may follow, and nothing of it has come. */
static VALUE Parser_settled_p(VALUE self, VALUE buffer) {
  struct parser *parser = parser_of(self);

  return parser->drained && parser->reply.keep_alive && RSTRING_LEN(buffer) == 0 ? Qtrue : Qfalse;
}

/* Whether the kernel had nothing more behind the last short request. */
static VALUE Parser_emptied_p(VALUE self) { return parser_of(self)->emptied ? Qtrue : Qfalse; }

/* Whether the connection stays open after this request. */
static VALUE Parser_keep_alive_p(VALUE self) { return parser_of(self)->reply.keep_alive ? Qtrue : Qfalse; }
static VALUE Parser_expect_p(VALUE self) { return parser_of(self)->head.expect ? Qtrue : Qfalse; }

/* ---- bodies --------------------------------------------------------------------------------- */

static VALUE take_length(struct parser *parser, VALUE buffer, struct bytes bytes) {
  size_t there = bytes.length - parser->at;
  size_t size = there < parser->left ? there : (size_t)parser->left;

  if (size == 0) return Qfalse;
  VALUE piece = rb_str_new(bytes.base + parser->at, (long)size);
  parser->left -= size;
  if (!parser->left) parser->framing = HTTP1_NO_BODY;
  move_to(parser, buffer, parser->at + size);
  return piece;
}

static void keep_trailers(VALUE self, struct parser *parser, const char *base) {
  struct http1_fields *fields = &parser->trailing;
  uint32_t kept = 0;

  for (uint32_t i = 0; i < fields->count; i++)
    if (http1_trailer_p(&fields->list[i])) fields->list[kept++] = fields->list[i];
  fields->count = kept;
  RB_OBJ_WRITE(self, &parser->trailers, http1_fields_hash(fields, base, NULL));
}

static void refuse_trailers(struct parser *parser) {
  struct http1_fault fault = parser->trailing.fault;

  if (fault.status == 431) fault.reason = "trailers too long or too many";
  http1_refuse(&fault);
}

/* Returns nil at their end, false if it has not come. */
static VALUE take_trailers(VALUE self, struct parser *parser, VALUE buffer, struct bytes bytes) {
  const char *base = bytes.base + parser->at;

  switch (http1_fields_parse(&parser->trailing, base, bytes.length - parser->at)) {
    case HTTP1_MORE: use_up(parser, buffer, parser->at); return Qfalse;
    case HTTP1_DONE: break;
    default: refuse_trailers(parser);
  }
  if (parser->trailing.count) keep_trailers(self, parser, base);
  parser->framing = HTTP1_NO_BODY;
  move_to(parser, buffer, parser->at + parser->trailing.pos);
  return Qnil;
}

static void begin_trailers(struct parser *parser) {
  parser->in_trailers = true;
  parser->trailing.list = fields_of(parser);
  parser->trailing.most = parser->limits.header_fields;
  http1_fields_begin(&parser->trailing, 0, parser->limits.trailers);
}

/* All the chunks that are there become one piece, so that many small ones are as cheap as one. */
static VALUE take_chunks(VALUE self, struct parser *parser, VALUE buffer, struct bytes bytes) {
  VALUE piece = Qfalse;
  size_t pos = parser->at;
  struct http1_span data;
  enum http1_result result;

  while ((result = http1_chunks_parse(&parser->chunks, bytes.base, bytes.length, &pos, &data)) == HTTP1_DATA) {
    if (!piece && pos == bytes.length) piece = rb_str_new(bytes.base + data.at, data.length);
    else {
      if (!piece) piece = rb_str_buf_new((long)(bytes.length - data.at));
      rb_str_cat(piece, bytes.base + data.at, data.length);
    }
  }
  if (result == HTTP1_BAD) http1_refuse(&parser->chunks.fault);
  move_to(parser, buffer, pos);
  if (result == HTTP1_DONE) begin_trailers(parser);
  if (result != HTTP1_DONE || piece) return piece;
  return take_trailers(self, parser, buffer, bytes_of(parser, buffer));
}

/* Returns a piece of the body, nil at its end, or false if none has come yet. */
static VALUE Parser_body(VALUE self, VALUE buffer) {
  struct parser *parser = parser_of(self);
  struct bytes bytes = bytes_of(parser, buffer);
  VALUE piece = Qnil;

  switch (parser->framing) {
    case HTTP1_NO_BODY: break;
    case HTTP1_LENGTH: piece = take_length(parser, buffer, bytes); break;
    case HTTP1_CHUNKED:
      piece = (parser->in_trailers ? take_trailers : take_chunks)(self, parser, buffer, bytes);
      break;
  }
  if (piece == Qfalse && !parser->in_trailers) use_up(parser, buffer, parser->at);
  return piece;
}

/* Whether some of the body is still to come. */
static VALUE Parser_body_p(VALUE self) { return parser_of(self)->framing != HTTP1_NO_BODY ? Qtrue : Qfalse; }

static VALUE Parser_left(VALUE self) {
  struct parser *parser = parser_of(self);
  return parser->framing == HTTP1_LENGTH ? ULL2NUM(parser->left) : Qnil;
}

/* So many bytes of a body with a length were received past the buffer. */
static VALUE Parser_took(VALUE self, VALUE count) {
  struct parser *parser = parser_of(self);
  uint64_t size = NUM2ULL(count);

  if (parser->framing != HTTP1_LENGTH || size > parser->left) rb_raise(rb_eArgError, "more than is left of the body");
  parser->left -= size;
  if (!parser->left) parser->framing = HTTP1_NO_BODY;
  return Qnil;
}

static VALUE Parser_trailers(VALUE self) { return parser_of(self)->trailers; }

/* Whether bytes are there that belong to no request yet. */
static VALUE Parser_rest_p(VALUE self, VALUE buffer) {
  struct parser *parser = parser_of(self);
  struct bytes bytes = bytes_of(parser, buffer);
  return bytes.length > parser->at ? Qtrue : Qfalse;
}

/* Cuts the buffer, so that it has only what was not parsed. */
static VALUE Parser_rest(VALUE self, VALUE buffer) {
  struct parser *parser = parser_of(self);

  bytes_of(parser, buffer);
  use_up(parser, buffer, parser->at);
  return buffer;
}

void Init_http1_parser(void) {
  cHTTP1 = rb_define_class_under(mHTTP, "HTTP1", rb_cObject);
  rb_gc_register_mark_object(cHTTP1);
  cBadRequest = rb_const_get(mHTTP, rb_intern("BadRequest"));
  rb_gc_register_mark_object(cBadRequest);
  last_limits = Qnil;
  rb_gc_register_address(&last_limits);
  cParser = rb_define_class_under(cHTTP1, "Parser", rb_cObject);
  rb_gc_register_mark_object(cParser);
  rb_define_alloc_func(cParser, Parser_allocate);
  rb_define_method(cParser, "initialize", Parser_initialize, 1);
  rb_define_method(cParser, "guest=", Parser_set_guest, 1);
  rb_define_method(cParser, "head", Parser_head, 1);
  rb_define_method(cParser, "request", Parser_request, 4);
  rb_define_method(cParser, "settled?", Parser_settled_p, 1);
  rb_define_method(cParser, "emptied?", Parser_emptied_p, 0);
  rb_define_method(cParser, "keep_alive?", Parser_keep_alive_p, 0);
  rb_define_method(cParser, "expect?", Parser_expect_p, 0);
  rb_define_method(cParser, "body", Parser_body, 1);
  rb_define_method(cParser, "body?", Parser_body_p, 0);
  rb_define_method(cParser, "left", Parser_left, 0);
  rb_define_method(cParser, "took", Parser_took, 1);
  rb_define_method(cParser, "trailers", Parser_trailers, 0);
  rb_define_method(cParser, "rest", Parser_rest, 1);
  rb_define_method(cParser, "rest?", Parser_rest_p, 1);
}
