/* polyphony_http.h - what the files that speak Ruby share: class_*.c and polyphony_http_ext.c.
 * All the other files of this folder are plain C: no ruby.h, so that they can be fuzzed. */
#ifndef POLYPHONY_HTTP_H
#define POLYPHONY_HTTP_H

#include <stdbool.h>
#include <sys/socket.h>
#include <ruby.h>
#include <ruby/encoding.h>
#include <ruby/io.h>

#ifndef MSG_NOSIGNAL             /* Ruby has a handler for SIGPIPE, which does nothing */
#define MSG_NOSIGNAL 0
#endif

extern VALUE mHTTP; /* Polyphony::HTTP */

/* Whether a socket has a descriptor still. */
static inline bool socket_open_p(VALUE socket) {
#ifdef HAVE_RB_IO_CLOSED_P
  return !RTEST(rb_io_closed_p(socket));
#else
  return RB_TYPE_P(socket, T_FILE) && RFILE(socket)->fptr && RFILE(socket)->fptr->fd >= 0;
#endif
}

/* The whole body of an answer of Rack's, if it is one String under headers that say nothing to the server; else nil.
 * rack2: several lines of a value are several values. */
VALUE rack_plain_answer(VALUE status, VALUE headers, VALUE body, bool rack2);

void Init_http2_session(void); /* defines HTTP2 if there is libnghttp2 */

#endif
