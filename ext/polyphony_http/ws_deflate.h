/* ws_deflate.h - the compression of messages (permessage-deflate, RFC 7692), on zlib.
 * Plain C; not for several threads at once: the streams that are not in use are shared. Without zlib all of it
 * fails, and nobody offers it. */
#ifndef WS_DEFLATE_H
#define WS_DEFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that grow: who reads brings the memory. */
struct ws_sink {
  uint8_t *data;
  size_t size; /* of what is there */
  size_t room; /* how much can be there */
  /* Makes room for at least so much; false: there is none. May raise, if its owner speaks Ruby. */
  bool (*grow)(struct ws_sink *sink, size_t room);
};

enum ws_inflated { WS_INFLATED, WS_INFLATE_BAD, WS_INFLATE_TOO_BIG, WS_INFLATE_NO_MEMORY };

/* One direction of one connection. Between two messages it has memory only if `takeover` is set. */
struct ws_inflater {
  bool takeover; /* whether a message may refer to those before it */
  void *stream;  /* NULL when there is no message in progress */
};

struct ws_deflater {
  bool takeover;
  int bits;     /* size of the window, 9 to 15 */
  void *stream; /* NULL without takeover */
};

bool ws_deflate_available(void);

/* Inflates a piece of a message to the end of the sink, which is never made bigger than `most`. */
enum ws_inflated ws_inflate(struct ws_inflater *inflater, uint8_t *data, size_t size, struct ws_sink *sink,
                            uint64_t most);
/* The message is whole: inflates what was held back. */
enum ws_inflated ws_inflate_end(struct ws_inflater *inflater, struct ws_sink *sink, uint64_t most);
void ws_inflate_free(struct ws_inflater *inflater);

/* At most so many bytes come out of ws_deflate for so many. */
size_t ws_deflate_bound(size_t size);
/* Deflates a message to `out`, which has the room of the bound. Returns the size, 0 if it failed. */
size_t ws_deflate(struct ws_deflater *deflater, const uint8_t *data, size_t size, uint8_t *out);
void ws_deflate_free(struct ws_deflater *deflater);

#endif
