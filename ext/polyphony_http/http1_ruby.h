/* http1_ruby.h - what the Ruby faces of HTTP/1 share. */
#ifndef POLYPHONY_HTTP1_RUBY_H
#define POLYPHONY_HTTP1_RUBY_H

#include "http1.h"
#include "polyphony_http.h"

extern VALUE cHTTP1;                  /* Polyphony::HTTP::HTTP1 */

void Init_http1_head(void);
void Init_http1_parser(void);
void Init_http1_response(void);

/* A copy of what was parsed, which lives as long as somebody asks for it. */
VALUE http1_head_new(const struct http1_head *head, const char *base);
enum http1_verb http1_head_verb(VALUE head);
/* Whether a request brings no body along, and asks neither for another protocol nor for nothing in particular. */
static inline bool http1_plain_p(const struct http1_head *head) {
  return !head->upgrade && !head->asterisk && head->framing == HTTP1_NO_BODY;
}
/* An HTTP1::Request without a body. */
VALUE http1_request_new(VALUE http1, VALUE head);
/* The plain answer that was noted: its status, and the size of its body; 0 if there was none, or it is no Head. */
int http1_head_status(VALUE head, uint32_t *size);
/* Notes the plain answer that is about to be sent: a request that gets one needs no room for it. */
void http1_head_answered(VALUE head, int status, uint32_t size);
/* The fields as a Hash. host: takes the place of Host's value, unless it is NULL. */
VALUE http1_fields_hash(const struct http1_fields *fields, const char *base, const struct http1_span *host);
/* What an answer has to know about its request, and what it decides. */
struct http1_reply {
  uint8_t minor;                        /* of the request's version */
  bool keep_alive;                      /* whether the connection stays open */
  bool chunked;                         /* whether the body is sent in chunks */
  bool held;                            /* whether the answer waits in the kernel, for the end of the connection */
};
struct http1_reply *http1_reply_of(VALUE parser);
/* The Lobby::Guest, or nil. */
VALUE http1_guest_of(VALUE parser);
/* Raises BadRequest. */
NORETURN(void http1_refuse(const struct http1_fault *fault));

#endif
