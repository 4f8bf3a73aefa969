/* ws_reader.h - makes messages of what a WebSocket peer sends, and holds it to the rules and the limits while
 * the bytes come. Plain C; the memory of messages is the caller's (struct ws_sink). */
#ifndef WS_READER_H
#define WS_READER_H

#include "ws_deflate.h"
#include "ws_frame.h"
#include "ws_utf8.h"

enum ws_event {
  WS_EVENT_MORE,    /* the rest of the input is not enough for anything */
  WS_EVENT_MESSAGE, /* the sink has one, `kind` is WS_TEXT or WS_BINARY */
  WS_EVENT_CONTROL, /* `kind`, `payload` and `code` tell which */
  WS_EVENT_BAD,     /* close with `code`, because of `why`; nothing more is read */
};

struct ws_limits {
  uint64_t frame;     /* bytes of payload, as sent */
  uint64_t message;   /* bytes, inflated */
  uint32_t fragments; /* frames of a message */
};

struct ws_reader {
  struct ws_limits limits;
  bool masked;                  /* whether the peer has to mask, which clients do */
  bool deflate;                 /* whether messages may be compressed */
  struct ws_inflater inflater;

  bool in_frame;                /* between the head of a data frame and its last byte */
  struct ws_head head;          /* of that frame */
  uint64_t taken;               /* bytes of its payload that came */
  uint8_t opcode;               /* of the message in progress; 0: there is none */
  bool compressed;              /* that message */
  uint32_t fragments;           /* of it */
  struct ws_utf8 utf8;          /* of it, if it is text */

  uint8_t kind;                 /* opcode of what was told last */
  uint8_t control_size;
  uint8_t payload[WS_CONTROL_MAX]; /* of that; of a close, only the reason */
  uint16_t code;                /* of a close: 1005 if it had none; of WS_EVENT_BAD: what to answer */
  const char *why;              /* of WS_EVENT_BAD */
};

void ws_reader_init(struct ws_reader *reader, struct ws_limits limits, bool masked);

/* Goes on with the input until there is something to tell; *used is how much of it was consumed. What was
 * consumed may have been unmasked in place. */
enum ws_event ws_reader_next(struct ws_reader *reader, uint8_t *data, size_t size, size_t *used,
                             struct ws_sink *sink);
void ws_reader_free(struct ws_reader *reader);

#endif
