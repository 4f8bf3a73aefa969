#include "ws_deflate.h"

#ifdef HAVE_LIBZ
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* Inflating takes 40 KB, deflating 260 KB, so without takeover the streams are shared: a message that comes
 * in pieces keeps one for as long, deflating is done at once. */
#define SPARE_MAX 8
static z_stream *spare[SPARE_MAX];
static int spare_count;
static z_stream *shared[16]; /* deflaters by the size of their window */

/* What RFC 7692 takes off the end of each message. */
static const uint8_t TAIL[4] = {0x00, 0x00, 0xff, 0xff};

bool ws_deflate_available(void) { return true; }

static z_stream *inflate_acquire(void) {
  if (spare_count) return spare[--spare_count];

  z_stream *z = calloc(1, sizeof(*z));
  if (z && inflateInit2(z, -MAX_WBITS) == Z_OK) return z;
  free(z);
  return NULL;
}

static void inflate_release(z_stream *z) {
  if (spare_count < SPARE_MAX && inflateReset(z) == Z_OK) {
    spare[spare_count++] = z;
    return;
  }
  inflateEnd(z);
  free(z);
}

/* Doubles the room, but never beyond one byte more than allowed: that byte tells that it is too much. */
static bool make_room(struct ws_sink *sink, uint64_t most) {
  uint64_t room = sink->room < 512 ? 1024 : (uint64_t)sink->room * 2;

  if (room > most + 1) room = most + 1;
  return sink->grow(sink, (size_t)room);
}

static enum ws_inflated inflate_all(z_stream *z, struct ws_sink *sink, uint64_t most) {
  for (;;) {
    if (sink->size > most) return WS_INFLATE_TOO_BIG;
    if (sink->size == sink->room && !make_room(sink, most)) return WS_INFLATE_NO_MEMORY;

    size_t room = sink->room - sink->size;
    if (room > UINT_MAX) room = UINT_MAX;
    z->next_out = sink->data + sink->size;
    z->avail_out = (uInt)room;
    int result = inflate(z, Z_SYNC_FLUSH);
    sink->size += room - z->avail_out;
    if (result == Z_STREAM_END) {
      /* The sender may end a block for good within a message; what follows is a new one, with the same window. */
      if (inflateResetKeep(z) != Z_OK) return WS_INFLATE_BAD;
      if (!z->avail_in) break;
    }
    else if (result == Z_BUF_ERROR) break; /* nothing left to do with this input */
    else if (result == Z_MEM_ERROR) return WS_INFLATE_NO_MEMORY;
    else if (result != Z_OK) return WS_INFLATE_BAD;
    else if (!z->avail_in && z->avail_out) break;
  }
  return sink->size > most ? WS_INFLATE_TOO_BIG : WS_INFLATED;
}

enum ws_inflated ws_inflate(struct ws_inflater *inflater, uint8_t *data, size_t size, struct ws_sink *sink,
                            uint64_t most) {
  if (!inflater->stream && !(inflater->stream = inflate_acquire())) return WS_INFLATE_NO_MEMORY;

  z_stream *z = inflater->stream;
  enum ws_inflated result = WS_INFLATED;
  while (size && result == WS_INFLATED) {
    uInt part = size > UINT_MAX ? UINT_MAX : (uInt)size;
    z->next_in = data;
    z->avail_in = part;
    result = inflate_all(z, sink, most);
    data += part;
    size -= part;
  }
  return result;
}

enum ws_inflated ws_inflate_end(struct ws_inflater *inflater, struct ws_sink *sink, uint64_t most) {
  uint8_t tail[4];

  memcpy(tail, TAIL, 4);
  enum ws_inflated result = ws_inflate(inflater, tail, 4, sink, most);
  if (!inflater->takeover) ws_inflate_free(inflater);
  return result;
}

void ws_inflate_free(struct ws_inflater *inflater) {
  if (inflater->stream) inflate_release(inflater->stream);
  inflater->stream = NULL;
}

static z_stream *deflate_open(int bits) {
  z_stream *z = calloc(1, sizeof(*z));

  if (z && deflateInit2(z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -bits, 8, Z_DEFAULT_STRATEGY) == Z_OK) return z;
  free(z);
  return NULL;
}

static z_stream *deflate_stream(struct ws_deflater *deflater) {
  void **place = deflater->takeover ? &deflater->stream : (void **)&shared[deflater->bits];

  if (!*place) *place = deflate_open(deflater->bits);
  return *place;
}

/* zlib's own bound for raw deflate in the worst case, and the marks of the flush. */
size_t ws_deflate_bound(size_t size) { return size + (size >> 3) + (size >> 8) + 64; }

size_t ws_deflate(struct ws_deflater *deflater, const uint8_t *data, size_t size, uint8_t *out) {
  z_stream *z;
  size_t room = ws_deflate_bound(size);

  if (room > UINT_MAX || !(z = deflate_stream(deflater))) return 0;
  if (!deflater->takeover && deflateReset(z) != Z_OK) return 0;
  z->next_in = (uint8_t *)data;
  z->avail_in = (uInt)size;
  z->next_out = out;
  z->avail_out = (uInt)room;
  if (deflate(z, Z_SYNC_FLUSH) != Z_OK || z->avail_in || z->avail_out < 1) return 0;
  room -= z->avail_out;
  return room > 4 ? room - 4 : 0;
}

void ws_deflate_free(struct ws_deflater *deflater) {
  z_stream *z = deflater->stream;

  if (z) deflateEnd(z);
  free(z);
  deflater->stream = NULL;
}

#else

bool ws_deflate_available(void) { return false; }

enum ws_inflated ws_inflate(struct ws_inflater *inflater, uint8_t *data, size_t size, struct ws_sink *sink,
                            uint64_t most) {
  (void)inflater, (void)data, (void)size, (void)sink, (void)most;
  return WS_INFLATE_BAD;
}

enum ws_inflated ws_inflate_end(struct ws_inflater *inflater, struct ws_sink *sink, uint64_t most) {
  (void)inflater, (void)sink, (void)most;
  return WS_INFLATE_BAD;
}

void ws_inflate_free(struct ws_inflater *inflater) { (void)inflater; }

size_t ws_deflate_bound(size_t size) { return size; }

size_t ws_deflate(struct ws_deflater *deflater, const uint8_t *data, size_t size, uint8_t *out) {
  (void)deflater, (void)data, (void)size, (void)out;
  return 0;
}

void ws_deflate_free(struct ws_deflater *deflater) { (void)deflater; }

#endif
