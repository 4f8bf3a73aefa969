#include "ws_reader.h"
#include <string.h>

enum { PROTOCOL_ERROR = 1002, NO_CODE = 1005, BAD_DATA = 1007, TOO_BIG = 1009, OUR_FAULT = 1011 };

void ws_reader_init(struct ws_reader *reader, struct ws_limits limits, bool masked) {
  *reader = (struct ws_reader){.limits = limits, .masked = masked};
}

void ws_reader_free(struct ws_reader *reader) { ws_inflate_free(&reader->inflater); }

static enum ws_event fail(struct ws_reader *reader, uint16_t code, const char *why) {
  reader->code = code;
  reader->why = why;
  ws_inflate_free(&reader->inflater);
  return WS_EVENT_BAD;
}

/* --- control frames ------------------------------------------------------------------------------- */

static enum ws_event take_close(struct ws_reader *reader) {
  struct ws_utf8 utf8;

  reader->code = NO_CODE;
  if (reader->control_size == 0) return WS_EVENT_CONTROL;
  if (reader->control_size == 1) return fail(reader, PROTOCOL_ERROR, "close frame of one byte");

  reader->code = (uint16_t)(reader->payload[0] << 8 | reader->payload[1]);
  if (!ws_close_code_p(reader->code)) return fail(reader, PROTOCOL_ERROR, "close code that must not be sent");

  reader->control_size -= 2;
  memmove(reader->payload, reader->payload + 2, reader->control_size);
  ws_utf8_init(&utf8);
  if (!ws_utf8_feed(&utf8, reader->payload, reader->control_size) || !ws_utf8_whole_p(&utf8))
    return fail(reader, BAD_DATA, "close reason that is not UTF-8");
  return WS_EVENT_CONTROL;
}

static enum ws_event take_control(struct ws_reader *reader, const struct ws_head *head, const uint8_t *data) {
  reader->kind = head->opcode;
  reader->control_size = (uint8_t)head->length;
  ws_mask(reader->payload, data, (size_t)head->length, head->key, 0);
  return head->opcode == WS_CLOSE ? take_close(reader) : WS_EVENT_CONTROL;
}

/* --- data frames ---------------------------------------------------------------------------------- */

static enum ws_event begin_message(struct ws_reader *reader, const struct ws_head *head) {
  if (reader->opcode) return fail(reader, PROTOCOL_ERROR, "new message inside a message");
  if (head->rsv1 && !reader->deflate) return fail(reader, PROTOCOL_ERROR, "reserved bits are set");

  reader->opcode = head->opcode;
  reader->compressed = head->rsv1;
  reader->fragments = 0;
  ws_utf8_init(&reader->utf8);
  return WS_EVENT_MORE;
}

static enum ws_event continue_message(struct ws_reader *reader, const struct ws_head *head) {
  if (!reader->opcode) return fail(reader, PROTOCOL_ERROR, "continuation of nothing");
  if (head->rsv1) return fail(reader, PROTOCOL_ERROR, "compression that begins within a message");
  return WS_EVENT_MORE;
}

/* Asked before there is memory for it. */
static enum ws_event check_limits(struct ws_reader *reader, const struct ws_head *head, size_t before) {
  if (head->length > reader->limits.frame) return fail(reader, TOO_BIG, "frame too big");
  if (!reader->compressed && head->length > reader->limits.message - before)
    return fail(reader, TOO_BIG, "message too big");
  if (++reader->fragments > reader->limits.fragments) return fail(reader, TOO_BIG, "message in too many fragments");
  return WS_EVENT_MORE;
}

static enum ws_event begin_frame(struct ws_reader *reader, const struct ws_head *head, size_t before) {
  enum ws_event event = head->opcode ? begin_message(reader, head) : continue_message(reader, head);

  if (event == WS_EVENT_MORE) event = check_limits(reader, head, before);
  if (event != WS_EVENT_MORE) return event;
  reader->head = *head;
  reader->taken = 0;
  reader->in_frame = true;
  return WS_EVENT_MORE;
}

static enum ws_event inflated(struct ws_reader *reader, enum ws_inflated result) {
  switch (result) {
  case WS_INFLATED: return WS_EVENT_MORE;
  case WS_INFLATE_TOO_BIG: return fail(reader, TOO_BIG, "message too big when inflated");
  case WS_INFLATE_NO_MEMORY: return fail(reader, OUR_FAULT, "no memory");
  default: return fail(reader, BAD_DATA, "message that cannot be inflated");
  }
}

/* Room for the rest of the frame if it is there at once; else it grows with what comes, for a length alone
 * must not cost us memory. */
static bool reserve(struct ws_sink *sink, size_t size, uint64_t rest) {
  size_t need = sink->size + size;

  if (need <= sink->room) return true;
  if (rest > size && need < sink->room * 2) {
    uint64_t all = sink->size + rest;
    need = all < sink->room * 2 ? (size_t)all : sink->room * 2;
  }
  return sink->grow(sink, need);
}

/* The next bytes of a frame's payload, into the sink. */
static enum ws_event take_data(struct ws_reader *reader, uint8_t *data, size_t size, struct ws_sink *sink) {
  const struct ws_head *head = &reader->head;
  size_t before = sink->size;

  if (reader->compressed) {
    ws_mask(data, data, size, head->key, reader->taken);
    enum ws_inflated result = ws_inflate(&reader->inflater, data, size, sink, reader->limits.message);
    if (result != WS_INFLATED) return inflated(reader, result);
  }
  else {
    if (!reserve(sink, size, head->length - reader->taken)) return fail(reader, OUR_FAULT, "no memory");
    if (size) ws_mask(sink->data + before, data, size, head->key, reader->taken);
    sink->size += size;
  }
  reader->taken += size;
  if (reader->opcode == WS_TEXT && sink->size > before &&
      !ws_utf8_feed(&reader->utf8, sink->data + before, sink->size - before))
    return fail(reader, BAD_DATA, "text that is not UTF-8");
  return WS_EVENT_MORE;
}

static enum ws_event end_message(struct ws_reader *reader, struct ws_sink *sink) {
  size_t before = sink->size;

  if (reader->compressed) {
    enum ws_inflated result = ws_inflate_end(&reader->inflater, sink, reader->limits.message);
    if (result != WS_INFLATED) return inflated(reader, result);
  }
  if (reader->opcode == WS_TEXT) {
    bool valid = sink->size == before || ws_utf8_feed(&reader->utf8, sink->data + before, sink->size - before);
    if (!valid || !ws_utf8_whole_p(&reader->utf8)) return fail(reader, BAD_DATA, "text that is not UTF-8");
  }
  return WS_EVENT_MESSAGE;
}

/* The head of the next frame, and all of it if it is a control frame. Sets *used. */
static enum ws_event next_frame(struct ws_reader *reader, uint8_t *data, size_t size, size_t *used, size_t before) {
  struct ws_head head;
  const char *why;
  int length = ws_head_parse(&head, data, size, reader->masked, &why);

  if (length < 0) return fail(reader, PROTOCOL_ERROR, why);
  if (length == 0) return WS_EVENT_MORE;
  *used += (size_t)length;
  if (!ws_control_p(head.opcode)) return begin_frame(reader, &head, before);
  if (size - (size_t)length < head.length) {
    *used -= (size_t)length; /* read again when the rest of it is there */
    return WS_EVENT_MORE;
  }
  *used += (size_t)head.length;
  return take_control(reader, &head, data + length);
}

enum ws_event ws_reader_next(struct ws_reader *reader, uint8_t *data, size_t size, size_t *used,
                             struct ws_sink *sink) {
  enum ws_event event;

  *used = 0;
  for (;;) {
    if (!reader->in_frame) {
      if (!reader->opcode) sink->size = 0;
      event = next_frame(reader, data + *used, size - *used, used, sink->size);
      if (event != WS_EVENT_MORE || !reader->in_frame) return event;
    }
    uint64_t rest = reader->head.length - reader->taken;
    size_t part = rest < size - *used ? (size_t)rest : size - *used;
    event = take_data(reader, data + *used, part, sink);
    *used += part;
    if (event != WS_EVENT_MORE || part < rest) return event;

    reader->in_frame = false;
    if (!reader->head.fin) continue;
    event = end_message(reader, sink);
    reader->kind = reader->opcode;
    reader->opcode = 0;
    return event;
  }
}
