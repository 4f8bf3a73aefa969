/* proxy_protocol.c - see proxy_protocol.h
 *
 * Strict: one space between two words, addresses and ports as inet_pton and a proxy write them, and nothing that the
 * specification does not name. A header that is not finished is told from one that cannot become one at the first
 * wrong byte, as far as that is cheap; the limits hold for the rest. */
#include <arpa/inet.h>
#include <string.h>
#include "proxy_protocol.h"

enum { V2_PREFIX = 16 };               /* signature, command, family, length */

static const unsigned char v1_start[] = "PROXY ";
static const unsigned char v2_start[] = "\r\n\r\n\0\r\nQUIT\n";

enum { V1_START = sizeof(v1_start) - 1, V2_START = sizeof(v2_start) - 1 };

/* ---- version 1: a line of text ---------------------------------------------------------------- */

struct words {
  const char *at, *end;
};

/* The next word into a string of that size. False if there is none, or it is too long. */
static bool next_word(struct words *words, char *word, size_t size) {
  const char *space = memchr(words->at, ' ', (size_t)(words->end - words->at));
  const char *end = space ? space : words->end;
  size_t length = (size_t)(end - words->at);

  if (length == 0 || length >= size) return false;
  memcpy(word, words->at, length);
  word[length] = 0;
  words->at = space ? space + 1 : words->end;
  return space || words->at == words->end;
}

static bool next_address(struct words *words, int family, char *address) {
  unsigned char binary[sizeof(struct in6_addr)];
  char word[PROXY_ADDRESS_SIZE];

  return next_word(words, word, sizeof(word)) && inet_pton(family, word, binary) == 1 &&
         inet_ntop(family, binary, address, PROXY_ADDRESS_SIZE);
}

/* Digits, without a zero in front. */
static bool next_port(struct words *words, unsigned *port) {
  char word[6];
  unsigned value = 0;

  if (!next_word(words, word, sizeof(word)) || (word[0] == '0' && word[1])) return false;
  for (const char *digit = word; *digit; digit++) {
    if (*digit < '0' || *digit > '9') return false;
    value = value * 10 + (unsigned)(*digit - '0');
  }
  *port = value;
  return value <= 65535;
}

static bool v1_addresses(struct words *words, int family, struct proxy_header *header) {
  char destination[PROXY_ADDRESS_SIZE];
  unsigned port;

  if (words->end[-1] == ' ') return false;
  header->known = next_address(words, family, header->address) && next_address(words, family, destination) &&
                  next_port(words, &header->port) && next_port(words, &port) && words->at == words->end;
  return header->known;
}

static bool v1_line(struct words *words, struct proxy_header *header) {
  size_t length = (size_t)(words->end - words->at);
  char family[8];

  if (length == 0 || memchr(words->at, '\r', length) || memchr(words->at, 0, length)) return false;
  if (!next_word(words, family, sizeof(family))) return false;
  if (!strcmp(family, "TCP4")) return v1_addresses(words, AF_INET, header);
  if (!strcmp(family, "TCP6")) return v1_addresses(words, AF_INET6, header);
  return !strcmp(family, "UNKNOWN");   /* whatever stands behind it is to be ignored */
}

static enum proxy_result parse_v1(const unsigned char *bytes, size_t length, struct proxy_header *header) {
  size_t most = length < PROXY_V1_MAX ? length : PROXY_V1_MAX;
  const unsigned char *newline = memchr(bytes, '\n', most);

  if (!newline) return most < PROXY_V1_MAX ? PROXY_MORE : PROXY_BAD;
  if (newline[-1] != '\r') return PROXY_BAD;
  struct words words = { (const char *)bytes + V1_START, (const char *)newline - 1 };
  if (words.end < words.at) return PROXY_BAD;
  header->length = (size_t)(newline - bytes) + 1;
  return v1_line(&words, header) ? PROXY_DONE : PROXY_BAD;
}

/* ---- version 2: binary ------------------------------------------------------------------------ */

enum { LOCAL = 0x20, PROXY = 0x21 };   /* version and command */

/* Of the addresses of a family, or -1 for one that is none. Datagrams are not what we serve, but who says so
 * has told the address. */
static int addresses_size(unsigned char family) {
  switch (family) {
    case 0x00: return 0;               /* unspecified */
    case 0x11: case 0x12: return 12;
    case 0x21: case 0x22: return 36;
    case 0x31: case 0x32: return 216;  /* unix */
    default: return -1;
  }
}

static void v2_source(const unsigned char *addresses, unsigned char family, struct proxy_header *header) {
  bool v6 = family >> 4 == 2;
  const unsigned char *port = addresses + (v6 ? 32 : 8);

  header->known = inet_ntop(v6 ? AF_INET6 : AF_INET, addresses, header->address, PROXY_ADDRESS_SIZE) != NULL;
  header->port = (unsigned)port[0] << 8 | port[1];
}

static enum proxy_result parse_v2(const unsigned char *bytes, size_t length, struct proxy_header *header) {
  if (length < V2_PREFIX) return PROXY_MORE;
  unsigned char command = bytes[12], family = bytes[13];
  size_t rest = (size_t)bytes[14] << 8 | bytes[15];
  int needed = addresses_size(family);

  if ((command != LOCAL && command != PROXY) || needed < 0 || V2_PREFIX + rest > PROXY_V2_MAX) return PROXY_BAD;
  if (command == PROXY && rest < (size_t)needed) return PROXY_BAD;
  if (length < V2_PREFIX + rest) return PROXY_MORE;
  header->length = V2_PREFIX + rest;   /* what follows the addresses, TLVs, is left out */
  if (command == PROXY && (family >> 4 == 1 || family >> 4 == 2)) v2_source(bytes + V2_PREFIX, family, header);
  return PROXY_DONE;
}

/* ---- either ----------------------------------------------------------------------------------- */

static bool starts_p(const unsigned char *bytes, size_t length, const unsigned char *start, size_t size) {
  return memcmp(bytes, start, length < size ? length : size) == 0;
}

enum proxy_result proxy_parse(const unsigned char *bytes, size_t length, struct proxy_header *header) {
  memset(header, 0, sizeof(*header));
  if (length == 0) return PROXY_MORE;
  if (starts_p(bytes, length, v1_start, V1_START)) return length < V1_START ? PROXY_MORE : parse_v1(bytes, length, header);
  if (starts_p(bytes, length, v2_start, V2_START)) return length < V2_START ? PROXY_MORE : parse_v2(bytes, length, header);
  return PROXY_BAD;
}
