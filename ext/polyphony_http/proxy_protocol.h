/* proxy_protocol.h - what a proxy says about its client before anything else: the PROXY protocol, versions 1 and 2,
 * as HAProxy's proxy-protocol.txt describes it. Plain C: no memory of its own, no state between two calls. */
#ifndef POLYPHONY_HTTP_PROXY_PROTOCOL_H
#define POLYPHONY_HTTP_PROXY_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>

enum {
  PROXY_V1_MAX = 107,                  /* with its CRLF */
  PROXY_V2_MAX = 536,
  PROXY_ADDRESS_SIZE = 46              /* of the longest IPv6 address, with its NUL */
};

struct proxy_header {
  size_t length;                       /* bytes of the header; what follows is the client's */
  bool known;                          /* else it tells nothing of the client: UNKNOWN, LOCAL, a unix socket */
  char address[PROXY_ADDRESS_SIZE];    /* as inet_ntop writes it */
  unsigned port;
};

enum proxy_result {
  PROXY_DONE,                          /* the header is filled in */
  PROXY_MORE,                          /* all of the bytes belong to a header, whose end is not there yet */
  PROXY_BAD                            /* is none */
};

enum proxy_result proxy_parse(const unsigned char *bytes, size_t length, struct proxy_header *header);

#endif
