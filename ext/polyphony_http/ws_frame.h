/* ws_frame.h - frames of the WebSocket protocol (RFC 6455): their heads and their masks.
 * Plain C: no memory of its own, nothing is waited for. */
#ifndef WS_FRAME_H
#define WS_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ws_opcode {
  WS_CONTINUATION = 0x0,
  WS_TEXT = 0x1,
  WS_BINARY = 0x2,
  WS_CLOSE = 0x8,
  WS_PING = 0x9,
  WS_PONG = 0xa,
};

#define WS_FIN 0x80        /* bits of the first byte */
#define WS_RSV1 0x40       /* a compressed message begins here (RFC 7692) */
#define WS_HEAD_MAX 14     /* two bytes, a length of 64 bits, a mask */
#define WS_CONTROL_MAX 125 /* payload of a close, ping or pong */

struct ws_head {
  uint8_t opcode;
  bool fin;
  bool rsv1;
  bool masked;
  uint8_t key[4]; /* zeros if it is not masked */
  uint64_t length;
};

/* Reads the head of a frame. Returns its size, 0 if some of it is missing, -1 if it is wrong: then
 * *why says so. `masked` is what the frames of this peer have to be. What is wrong shows as soon as its byte
 * is there. */
int ws_head_parse(struct ws_head *head, const uint8_t *data, size_t size, bool masked, const char **why);

/* Writes a head to `out` (WS_HEAD_MAX bytes); `first` is opcode and bits, `key` is NULL for a frame without
 * mask. Returns its size. */
size_t ws_head_write(uint8_t *out, uint8_t first, uint64_t length, const uint8_t *key);

/* Masks or unmasks; `phase` is how much of the payload came before, `out` may be `in`. */
void ws_mask(uint8_t *out, const uint8_t *in, size_t size, const uint8_t key[4], uint64_t phase);

/* Whether a close frame may carry this code over the wire. */
bool ws_close_code_p(unsigned code);

static inline bool ws_control_p(uint8_t opcode) { return opcode >= WS_CLOSE; }

#endif
