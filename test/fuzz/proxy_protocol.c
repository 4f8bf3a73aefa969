/* proxy_protocol.c - headers of the PROXY protocol: each beginning of a header wants more and nothing else does, and
 * what follows a header changes nothing. Whoever reads one from a socket takes bytes off by that. */
#include <arpa/inet.h>
#include "fuzz.h"
#include "proxy_protocol.h"

static enum proxy_result parse(const uint8_t *data, size_t size, struct proxy_header *header) {
  char *copy = exact_copy((const char *)data, size);
  enum proxy_result result = proxy_parse((const unsigned char *)copy, size, header);

  free(copy);
  return result;
}

static void must_be_sane(const struct proxy_header *header, size_t size) {
  unsigned char binary[sizeof(struct in6_addr)];

  MUST(header->length > 0 && header->length <= size && header->length <= PROXY_V2_MAX);
  MUST(memchr(header->address, 0, sizeof(header->address)) && header->port <= 65535);
  if (!header->known) MUST(!header->address[0] && !header->port);
  else MUST(inet_pton(strchr(header->address, ':') ? AF_INET6 : AF_INET, header->address, binary) == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct proxy_header whole, part;
  enum proxy_result result = parse(data, size, &whole);

  if (result == PROXY_DONE) must_be_sane(&whole, size);
  if (result == PROXY_MORE) MUST(size < PROXY_V2_MAX);
  for (size_t length = 0; length < size && length <= PROXY_V2_MAX; length++) {
    enum proxy_result before = parse(data, length, &part);
    if (result == PROXY_MORE) MUST(before == PROXY_MORE);
    else if (result == PROXY_BAD) MUST(before != PROXY_DONE);
    else if (length < whole.length) MUST(before == PROXY_MORE);
    else MUST(before == PROXY_DONE && memcmp(&part, &whole, sizeof(part)) == 0);
  }
  return 0;
}
