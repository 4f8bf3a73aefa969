#include "ws_frame.h"
#include <string.h>

static int wrong(const char **why, const char *text) {
  *why = text;
  return -1;
}

/* What can be told by the first byte alone. */
static const char *check_first(const struct ws_head *head, uint8_t first) {
  if (first & 0x30) return "reserved bits are set";
  if ((head->opcode & 7) > 2) return "reserved opcode";
  if (!ws_control_p(head->opcode)) return NULL;
  if (!head->fin) return "fragmented control frame";
  return head->rsv1 ? "compressed control frame" : NULL;
}

/* Big-endian. */
static uint64_t read_length(const uint8_t *data, size_t size) {
  uint64_t length = 0;
  for (size_t i = 0; i < size; i++) length = length << 8 | data[i];
  return length;
}

static const char *check_length(const struct ws_head *head, size_t bytes) {
  if (bytes == 2 && head->length < 126) return "length in more bytes than needed";
  if (bytes == 8 && head->length <= 0xffff) return "length in more bytes than needed";
  return head->length >> 63 ? "length with its top bit set" : NULL;
}

int ws_head_parse(struct ws_head *head, const uint8_t *data, size_t size, bool masked, const char **why) {
  const char *problem;
  size_t bytes = 0; /* of the length, beyond the 7 bits */

  if (size < 1) return 0;
  head->opcode = data[0] & 0xf;
  head->fin = data[0] & WS_FIN;
  head->rsv1 = data[0] & WS_RSV1;
  if ((problem = check_first(head, data[0]))) return wrong(why, problem);
  if (size < 2) return 0;

  head->masked = data[1] & 0x80;
  head->length = data[1] & 0x7f;
  if (head->masked != masked) return wrong(why, masked ? "frame without a mask" : "frame with a mask");
  if (head->length >= 126) {
    if (ws_control_p(head->opcode)) return wrong(why, "control frame of more than 125 bytes");
    bytes = head->length == 126 ? 2 : 8;
    if (size < 2 + bytes) return 0;
    head->length = read_length(data + 2, bytes);
    if ((problem = check_length(head, bytes))) return wrong(why, problem);
  }

  memset(head->key, 0, 4);
  if (!masked) return (int)(2 + bytes);
  if (size < 6 + bytes) return 0;
  memcpy(head->key, data + 2 + bytes, 4);
  return (int)(6 + bytes);
}

size_t ws_head_write(uint8_t *out, uint8_t first, uint64_t length, const uint8_t *key) {
  size_t bytes = length < 126 ? 0 : length <= 0xffff ? 2 : 8;
  size_t size = 2 + bytes;

  out[0] = first;
  out[1] = (uint8_t)((bytes == 0 ? length : bytes == 2 ? 126 : 127) | (key ? 0x80 : 0));
  for (size_t i = 0; i < bytes; i++) out[2 + i] = (uint8_t)(length >> (8 * (bytes - 1 - i)));
  if (!key) return size;
  memcpy(out + size, key, 4);
  return size + 4;
}

/* By words; the compiler makes vectors of them. The memcpys are loads and stores without alignment. */
void ws_mask(uint8_t *out, const uint8_t *in, size_t size, const uint8_t key[4], uint64_t phase) {
  uint8_t turned[8];
  uint64_t mask, word;
  size_t i = 0;

  for (int k = 0; k < 8; k++) turned[k] = key[(phase + (uint64_t)k) & 3];
  memcpy(&mask, turned, 8);
  for (; i + 8 <= size; i += 8) {
    memcpy(&word, in + i, 8);
    word ^= mask;
    memcpy(out + i, &word, 8);
  }
  for (; i < size; i++) out[i] = in[i] ^ turned[i & 7];
}

/* RFC 6455, 7.4, and the registry of IANA: 1012 to 1014 came later. */
bool ws_close_code_p(unsigned code) {
  if (code >= 3000 && code <= 4999) return true;
  return code >= 1000 && code <= 1014 && !(code >= 1004 && code <= 1006);
}
