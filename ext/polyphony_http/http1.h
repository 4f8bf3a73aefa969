/* http1.h - heads and bodies of HTTP/1 requests (RFC 9112), parsed where they lie. Plain C, no Ruby.
 *
 * Every parser here goes on where it stopped: it is given the same bytes again, from their beginning,
 * with more behind them (at another address perhaps, so all places are offsets), and looks at no byte
 * twice. Nothing is allocated. Each limit is checked before more is looked at than it allows. */
#ifndef POLYPHONY_HTTP1_H
#define POLYPHONY_HTTP1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http1_limits {
  uint32_t request_line, header_block, header_fields, chunk_line, chunk_overhead, trailers;
  uint64_t body;                      /* UINT64_MAX: no limit */
};

/* Why a request is refused. */
struct http1_fault {
  int status;                         /* of the answer; 0: no fault */
  const char *reason;                 /* for the log; a literal */
};

enum http1_result { HTTP1_BAD = -1, HTTP1_MORE = 0, HTTP1_DONE = 1, HTTP1_DATA = 2 };

struct http1_span {
  uint32_t at, length;                /* offset into what was parsed */
};

/* ---- field lines: of heads and of trailers -------------------------------------------------- */

struct http1_field {
  struct http1_span name, value;      /* without the whitespace around the value */
  uint32_t known;                     /* see http1_names.def; 0: none of these */
};

struct http1_fields {
  struct http1_field *list;           /* the owner's; has room for `most` */
  uint32_t count, most;
  uint32_t begin, bytes;              /* where the block begins, and how long it may be */
  uint32_t pos;                       /* next byte to look at */
  uint8_t state;
  bool underscores;                   /* whether a name has one */
  struct http1_fault fault;
};

/* The block begins at `begin`; list and most have to be set. */
void http1_fields_begin(struct http1_fields *fields, uint32_t begin, uint32_t bytes);
/* DONE: fields->pos is behind the empty line at the end. */
enum http1_result http1_fields_parse(struct http1_fields *fields, const char *base, size_t length);
/* Whether a field may come behind a body: not if it says where the message ends, where it goes, or who
 * sends it. */
bool http1_trailer_p(const struct http1_field *field);

/* ---- names that we know --------------------------------------------------------------------- */

enum http1_name {
  HTTP1_NAME_NONE,
#define NAME(symbol, text) HTTP1_NAME_##symbol,
#include "http1_names.def"
#undef NAME
  HTTP1_NAMES
};
extern const char *const http1_names[HTTP1_NAMES];  /* lower case */
/* Any case. 0: unknown. */
uint32_t http1_name_find(const char *name, size_t length);

enum http1_verb {
  HTTP1_VERB_NONE,
#define VERB(symbol, text) HTTP1_VERB_##symbol,
#include "http1_verbs.def"
#undef VERB
  HTTP1_VERBS
};
extern const char *const http1_verbs[HTTP1_VERBS];
uint32_t http1_verb_find(const char *verb, size_t length);

/* A name or [address], and perhaps a port; nothing else, no user. */
bool http1_host_p(const char *host, size_t length);

/* ---- heads ---------------------------------------------------------------------------------- */

enum http1_framing { HTTP1_NO_BODY, HTTP1_LENGTH, HTTP1_CHUNKED };

struct http1_head {
  const struct http1_limits *limits;  /* the owner's */
  struct http1_fields fields;
  struct http1_fault fault;
  uint32_t pos, token;                /* next byte to look at; where the token began that we are in */
  uint8_t state;

  /* When it is DONE: */
  enum http1_verb verb;
  uint8_t minor;                      /* HTTP/1.minor; 1 for anything above */
  struct http1_span target;           /* as sent */
  struct http1_span path, query;      /* query: behind the question mark; */
  bool has_query;
  struct http1_span host;             /* of an absolute target, else of Host; may be empty in 1.0 */
  bool absolute, asterisk;            /* form of the target */
  enum http1_framing framing;
  uint64_t length;                    /* of the body, with HTTP1_LENGTH */
  bool keep_alive, expect, upgrade;   /* expect: 100-continue; upgrade: Connection names it */
};

/* Forgets what was there; limits and fields.list have to be set. */
void http1_head_begin(struct http1_head *head);
/* DONE: head->fields.pos is behind the head. BAD: head->fault says why. */
enum http1_result http1_head_parse(struct http1_head *head, const char *base, size_t length);
/* Whether a list like that of Connection has this token (lower case). */
bool http1_list_has(const char *list, size_t length, const char *token);

/* ---- chunked bodies ------------------------------------------------------------------------- */

struct http1_chunks {
  const struct http1_limits *limits;
  struct http1_fault fault;
  uint64_t left;                      /* of the chunk that we are in */
  uint64_t total;                     /* size of all chunks so far */
  uint32_t line, digits, overhead;    /* bytes of this line; of these hex digits; of all extensions */
  uint8_t state;
};

void http1_chunks_begin(struct http1_chunks *chunks, const struct http1_limits *limits);
/* Looks at the bytes from *pos on and moves it. DATA: there are some of the body, in *data. DONE: the
 * last chunk was there, trailers begin at *pos. Unlike above, what was looked at need not be kept. */
enum http1_result http1_chunks_parse(struct http1_chunks *chunks, const char *base, size_t length,
                                     size_t *pos, struct http1_span *data);

#endif
