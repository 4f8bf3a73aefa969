/* class_websocket.c - Polyphony::HTTP::WebSocket::Codec: the frames of one WebSocket connection. */
#include "polyphony_http.h"
#include "tls_ruby.h"
#include "ws_reader.h"
#include <limits.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/random.h>
#endif

/* Shorter messages do not become shorter. */
#define DEFLATE_MIN 64
/* Frames up to this size, head included, are made on the stack. */
#define EXPRESS_MAX 4096

struct codec {
  struct ws_reader reader;
  struct ws_deflater deflater;
  bool deflate;       /* whether we compress */
  bool client;        /* whether we mask */
  bool begun;         /* it was initialized */
  bool bad;           /* the peer broke the rules: nothing more is read */
  size_t offset;      /* how much of the buffer was consumed */
  VALUE message;      /* the message in progress, as long as it has room; or nil */
  size_t size;        /* how much of that is filled */
  uint8_t random[256]; /* masks to come, so that the kernel is not asked for each */
  size_t random_used;
};

struct sink {
  struct ws_sink base;
  struct codec *codec;
  VALUE self;
};

static VALUE sym_ping, sym_pong, sym_close, sym_bad;

static void codec_mark(void *ptr) { rb_gc_mark_movable(((struct codec *)ptr)->message); }

static void codec_compact(void *ptr) {
  struct codec *codec = ptr;
  codec->message = rb_gc_location(codec->message);
}

static void codec_free(void *ptr) {
  struct codec *codec = ptr;
  ws_reader_free(&codec->reader);
  ws_deflate_free(&codec->deflater);
  xfree(codec);
}

static size_t codec_memsize(const void *ptr) {
  const struct codec *codec = ptr;
  return sizeof(*codec) + (codec->reader.inflater.stream ? 40 << 10 : 0) + (codec->deflater.stream ? 260 << 10 : 0);
}

static const rb_data_type_t codec_type = {
  .wrap_struct_name = "Polyphony::HTTP::WebSocket::Codec",
  .function = {
    .dmark = codec_mark,
    .dfree = codec_free,
    .dsize = codec_memsize,
    .dcompact = codec_compact,
  },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static struct codec *codec_of(VALUE self) {
  struct codec *codec;
  TypedData_Get_Struct(self, struct codec, &codec_type, codec);
  return codec;
}

static VALUE Codec_allocate(VALUE klass) {
  struct codec *codec;
  VALUE self = TypedData_Make_Struct(klass, struct codec, &codec_type, codec);
  codec->message = Qnil;
  codec->random_used = sizeof(codec->random);
  return self;
}

/* Sizes that no String has need not be told apart, and are far from where sums of them overflow. */
static uint64_t limit(VALUE value, uint64_t most) {
  double number = NUM2DBL(value);
  return number < (double)most ? (uint64_t)number : most;
}

/* call-seq: new(client, frame, message, fragments, deflate)
 * deflate: nil, or [peer may refer to earlier messages, we do, size of our window] */
static VALUE Codec_initialize(VALUE self, VALUE client, VALUE frame, VALUE message, VALUE fragments, VALUE deflate) {
  struct codec *codec = codec_of(self);
  struct ws_limits limits = {.frame = limit(frame, LONG_MAX / 4), .message = limit(message, LONG_MAX / 4),
                             .fragments = (uint32_t)limit(fragments, UINT32_MAX)};

  if (codec->begun) rb_raise(rb_eTypeError, "initialized already");
  codec->begun = true;
  codec->client = RTEST(client);
  ws_reader_init(&codec->reader, limits, !codec->client);
  if (NIL_P(deflate) || !ws_deflate_available()) return self;

  Check_Type(deflate, T_ARRAY);
  int bits = NUM2INT(rb_ary_entry(deflate, 2));
  if (bits < 9 || bits > 15) rb_raise(rb_eArgError, "window must be 9 to 15 bits, got %d", bits);
  codec->deflate = codec->reader.deflate = true;
  codec->reader.inflater.takeover = RTEST(rb_ary_entry(deflate, 0));
  codec->deflater.takeover = RTEST(rb_ary_entry(deflate, 1));
  codec->deflater.bits = bits;
  return self;
}

/* --- reading -------------------------------------------------------------------------------------- */

/* ws_sink.grow; raises NoMemoryError. */
static bool sink_grow(struct ws_sink *base, size_t room) {
  struct sink *sink = (struct sink *)base;
  struct codec *codec = sink->codec;

  if (NIL_P(codec->message)) RB_OBJ_WRITE(sink->self, &codec->message, rb_str_new(NULL, (long)room));
  else rb_str_resize(codec->message, (long)room);
  base->data = (uint8_t *)RSTRING_PTR(codec->message);
  base->room = room;
  return true;
}

/* What was consumed leaves the buffer when nothing more can be had: messages that came together cost one move. */
static void drop_consumed(struct codec *codec, VALUE buffer) {
  long rest = RSTRING_LEN(buffer) - (long)codec->offset;

  if (codec->offset && rest) memmove(RSTRING_PTR(buffer), RSTRING_PTR(buffer) + codec->offset, (size_t)rest);
  if (codec->offset) rb_str_set_len(buffer, rest);
  codec->offset = 0;
}

/* Leaves the buffer empty if all of it was consumed: nobody need ask for more then. */
static VALUE take_message(VALUE self, struct codec *codec, VALUE buffer) {
  VALUE message = NIL_P(codec->message) ? rb_str_new(NULL, 0) : codec->message;
  bool text = codec->reader.kind == WS_TEXT;

  RB_OBJ_WRITE(self, &codec->message, Qnil);
  if (codec->offset == (size_t)RSTRING_LEN(buffer)) drop_consumed(codec, buffer);
  if ((size_t)RSTRING_LEN(message) != codec->size) rb_str_resize(message, (long)codec->size);
  codec->size = 0;
  if (!text) return message;
  /* It was checked while it came: Ruby need not look again. */
  RB_ENCODING_SET_INLINED(message, rb_utf8_encindex());
  ENC_CODERANGE_SET(message, codec->reader.utf8.ascii ? ENC_CODERANGE_7BIT : ENC_CODERANGE_VALID);
  return message;
}

/* call-seq: next(buffer) -> String, :ping, :pong, :close, :bad or nil
 * nil: nothing whole is in the buffer, which has lost what was consumed. */
static VALUE Codec_next(VALUE self, VALUE buffer) {
  struct codec *codec = codec_of(self);
  struct sink sink = {.codec = codec, .self = self};
  size_t used;

  StringValue(buffer);
  rb_str_modify(buffer);
  if (codec->bad) return sym_bad;
  if (codec->offset > (size_t)RSTRING_LEN(buffer)) codec->offset = 0; /* it is another one */
  if (codec->offset == (size_t)RSTRING_LEN(buffer)) {
    drop_consumed(codec, buffer);
    return Qnil;
  }

  sink.base.grow = sink_grow;
  if (!NIL_P(codec->message)) {
    sink.base.data = (uint8_t *)RSTRING_PTR(codec->message);
    sink.base.room = (size_t)RSTRING_LEN(codec->message);
    sink.base.size = codec->size;
  }
  uint8_t *data = (uint8_t *)RSTRING_PTR(buffer) + codec->offset;
  codec->bad = true; /* should growing raise, nobody knows how far we came */
  enum ws_event event =
    ws_reader_next(&codec->reader, data, (size_t)RSTRING_LEN(buffer) - codec->offset, &used, &sink.base);
  codec->bad = false;
  codec->offset += used;
  codec->size = sink.base.size;
  RB_GC_GUARD(buffer); /* data */

  switch (event) {
  case WS_EVENT_MESSAGE: return take_message(self, codec, buffer);
  case WS_EVENT_CONTROL:
    return codec->reader.kind == WS_PING ? sym_ping : codec->reader.kind == WS_PONG ? sym_pong : sym_close;
  case WS_EVENT_BAD:
    codec->bad = true;
    RB_OBJ_WRITE(self, &codec->message, Qnil);
    return sym_bad;
  default:
    drop_consumed(codec, buffer);
    return Qnil;
  }
}

/* What a ping or pong carried, or the reason of a close. */
static VALUE Codec_payload(VALUE self) {
  struct codec *codec = codec_of(self);
  VALUE payload = rb_str_new((const char *)codec->reader.payload, codec->reader.control_size);

  if (codec->reader.kind == WS_CLOSE) rb_enc_associate_index(payload, rb_utf8_encindex());
  return payload;
}

/* The code of a close (1005: it had none), or the code to close with after :bad. */
static VALUE Codec_code(VALUE self) { return UINT2NUM(codec_of(self)->reader.code); }

/* What was bad, for the log. */
static VALUE Codec_why(VALUE self) {
  struct codec *codec = codec_of(self);
  return codec->reader.why ? rb_utf8_str_new_cstr(codec->reader.why) : Qnil;
}

/* Whether a data frame has begun and has not ended: then no other frame can come. */
static VALUE Codec_inside_p(VALUE self) { return codec_of(self)->reader.in_frame ? Qtrue : Qfalse; }

/* --- writing -------------------------------------------------------------------------------------- */

/* Raises. */
static const uint8_t *next_key(struct codec *codec) {
  if (codec->random_used == sizeof(codec->random)) {
    if (getentropy(codec->random, sizeof(codec->random)) < 0) rb_sys_fail("getentropy");
    codec->random_used = 0;
  }
  codec->random_used += 4;
  return codec->random + codec->random_used - 4;
}

static VALUE build_plain(struct codec *codec, uint8_t first, VALUE payload) {
  const uint8_t *key = codec && codec->client ? next_key(codec) : NULL;
  size_t size = (size_t)RSTRING_LEN(payload);
  uint8_t head[WS_HEAD_MAX];
  size_t head_size = ws_head_write(head, first, size, key);
  VALUE frame = rb_str_new(NULL, (long)(head_size + size));
  uint8_t *out = (uint8_t *)RSTRING_PTR(frame);

  memcpy(out, head, head_size);
  if (key) ws_mask(out + head_size, (const uint8_t *)RSTRING_PTR(payload), size, key, 0);
  else memcpy(out + head_size, RSTRING_PTR(payload), size);
  RB_GC_GUARD(payload);
  return frame;
}

/* Qnil if it does not become shorter; but what went into our window has to be sent. */
static VALUE build_deflated(struct codec *codec, struct ws_deflater *deflater, uint8_t opcode, VALUE payload) {
  size_t size = (size_t)RSTRING_LEN(payload);
  VALUE frame = rb_str_new(NULL, (long)(WS_HEAD_MAX + ws_deflate_bound(size)));
  uint8_t *out = (uint8_t *)RSTRING_PTR(frame);
  size_t deflated = ws_deflate(deflater, (const uint8_t *)RSTRING_PTR(payload), size, out + WS_HEAD_MAX);

  RB_GC_GUARD(payload);
  if (!deflated && deflater->takeover) rb_raise(rb_eNoMemError, "cannot compress a message of %zu bytes", size);
  if (!deflated || (deflated >= size && !deflater->takeover)) return Qnil;

  const uint8_t *key = codec && codec->client ? next_key(codec) : NULL;
  size_t head_size = ws_head_write(out, WS_FIN | WS_RSV1 | opcode, deflated, key);
  if (key) ws_mask(out + head_size, out + WS_HEAD_MAX, deflated, key, 0);
  else memmove(out + head_size, out + WS_HEAD_MAX, deflated);
  rb_str_resize(frame, (long)(head_size + deflated));
  return frame;
}

/* call-seq: frame(opcode, payload) -> String, compressed if that was agreed upon and is worth it */
static VALUE Codec_frame(VALUE self, VALUE opcode, VALUE payload) {
  struct codec *codec = codec_of(self);
  uint8_t code = (uint8_t)NUM2UINT(opcode);

  StringValue(payload);
  if (codec->deflate && !ws_control_p(code) && RSTRING_LEN(payload) >= DEFLATE_MIN) {
    VALUE frame = build_deflated(codec, &codec->deflater, code, payload);
    if (!NIL_P(frame)) return frame;
  }
  return build_plain(codec, WS_FIN | code, payload);
}

/* What a message is sent as, without more ado: WS_BINARY, WS_TEXT, or 0 if more has to be known of it. */
static uint8_t opcode_of(VALUE string) {
  if (!RB_TYPE_P(string, T_STRING)) return 0;
  int encoding = rb_enc_get_index(string);

  if (encoding == rb_ascii8bit_encindex()) return WS_BINARY;
  if (encoding != rb_utf8_encindex() && encoding != rb_usascii_encindex()) return 0;
  int range = rb_enc_str_coderange(string);
  return range == ENC_CODERANGE_7BIT || range == ENC_CODERANGE_VALID ? WS_TEXT : 0;
}

/* call-seq: message(string) -> String, or nil if more has to be known of it */
static VALUE Codec_message(VALUE self, VALUE string) {
  uint8_t opcode = opcode_of(string);

  return opcode ? Codec_frame(self, INT2FIX(opcode), string) : Qnil;
}

/* call-seq: express(socket, tls, string) -> true if the message went out, a String if that is still to be sent, nil if it has to be
 * made in another way. tls: the SSLSocket around the socket, or nil. Nobody else may be writing there. What is wrong with it is left to those who wait. */
static VALUE Codec_express(VALUE self, VALUE socket, VALUE tls, VALUE string) {
  struct codec *codec = codec_of(self);
  uint8_t frame[EXPRESS_MAX], opcode = opcode_of(string);
  size_t size = opcode ? (size_t)RSTRING_LEN(string) : 0;

  if (!opcode || size > sizeof(frame) - WS_HEAD_MAX || (codec->deflate && size >= DEFLATE_MIN)) return Qnil;
  if (!socket_open_p(socket)) return Qnil;
  const uint8_t *key = codec->client ? next_key(codec) : NULL;
  size_t head = ws_head_write(frame, WS_FIN | opcode, size, key);
  if (key) ws_mask(frame + head, (const uint8_t *)RSTRING_PTR(string), size, key, 0);
  else memcpy(frame + head, RSTRING_PTR(string), size);

  ssize_t sent = NIL_P(tls) ? send(rb_io_descriptor(socket), frame, head + size, MSG_DONTWAIT | MSG_NOSIGNAL)
                            : tls_write(tls, (const char *)frame, head + size);
  if (sent == (ssize_t)(head + size)) return Qtrue;
  if (sent < 0) sent = 0;
  return rb_str_new((const char *)frame + sent, (long)(head + size) - sent);
}

/* Whether a frame of Codec.deflated can be sent here. */
static VALUE Codec_shares_p(VALUE self) {
  struct codec *codec = codec_of(self);
  return codec->deflate && !codec->deflater.takeover && codec->deflater.bits == 15 && !codec->client ? Qtrue : Qfalse;
}

static VALUE Codec_client_p(VALUE self) { return codec_of(self)->client ? Qtrue : Qfalse; }

/* call-seq: Codec.plain(opcode, payload) -> String, of a server */
static VALUE Codec_s_plain(VALUE klass, VALUE opcode, VALUE payload) {
  StringValue(payload);
  return build_plain(NULL, (uint8_t)(WS_FIN | NUM2UINT(opcode)), payload);
}

/* call-seq: Codec.deflated(opcode, payload) -> String, of a server, or nil if it is not worth it */
static VALUE Codec_s_deflated(VALUE klass, VALUE opcode, VALUE payload) {
  struct ws_deflater deflater = {.bits = 15};

  StringValue(payload);
  if (!ws_deflate_available() || RSTRING_LEN(payload) < DEFLATE_MIN) return Qnil;
  return build_deflated(NULL, &deflater, (uint8_t)NUM2UINT(opcode), payload);
}

static VALUE Codec_s_deflate_p(VALUE klass) { return ws_deflate_available() ? Qtrue : Qfalse; }

/* Gives back what compression took. */
static VALUE Codec_release(VALUE self) {
  struct codec *codec = codec_of(self);

  ws_reader_free(&codec->reader);
  ws_deflate_free(&codec->deflater);
  codec->bad = true;
  RB_OBJ_WRITE(self, &codec->message, Qnil);
  return Qnil;
}

void Init_websocket(void) {
  VALUE cWebSocket = rb_define_class_under(mHTTP, "WebSocket", rb_cObject);
  VALUE cCodec = rb_define_class_under(cWebSocket, "Codec", rb_cObject);

  sym_ping = ID2SYM(rb_intern("ping"));
  sym_pong = ID2SYM(rb_intern("pong"));
  sym_close = ID2SYM(rb_intern("close"));
  sym_bad = ID2SYM(rb_intern("bad"));

  rb_define_alloc_func(cCodec, Codec_allocate);
  rb_define_method(cCodec, "initialize", Codec_initialize, 5);
  rb_define_method(cCodec, "next", Codec_next, 1);
  rb_define_method(cCodec, "payload", Codec_payload, 0);
  rb_define_method(cCodec, "code", Codec_code, 0);
  rb_define_method(cCodec, "why", Codec_why, 0);
  rb_define_method(cCodec, "inside?", Codec_inside_p, 0);
  rb_define_method(cCodec, "frame", Codec_frame, 2);
  rb_define_method(cCodec, "message", Codec_message, 1);
  rb_define_method(cCodec, "express", Codec_express, 3);
  rb_define_method(cCodec, "shares?", Codec_shares_p, 0);
  rb_define_method(cCodec, "client?", Codec_client_p, 0);
  rb_define_method(cCodec, "release", Codec_release, 0);
  rb_define_singleton_method(cCodec, "plain", Codec_s_plain, 2);
  rb_define_singleton_method(cCodec, "deflated", Codec_s_deflated, 2);
  rb_define_singleton_method(cCodec, "deflate?", Codec_s_deflate_p, 0);
}
