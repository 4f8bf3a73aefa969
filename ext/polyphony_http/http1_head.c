/* http1_head.c - request line, and what a head means; see http1.h */
#include <string.h>
#include "http1.h"
#include "http1_scan.h"

enum { START, START_LF, VERB, TARGET, VERSION, LINE_LF, FIELDS };

#define VERSION_LENGTH 8                /* HTTP/1.1 */

static enum http1_result refuse(struct http1_head *head, int status, const char *reason) {
  head->fault = (struct http1_fault){ status, reason };
  return HTTP1_BAD;
}

void http1_head_begin(struct http1_head *head) {
  struct http1_head fresh = { .limits = head->limits, .fields.list = head->fields.list };

  fresh.fields.most = head->limits->header_fields;
  *head = fresh;
}

/* ---- the request line ----------------------------------------------------------------------- */

static struct http1_span span_of(const char *base, const char *from, const char *to) {
  return (struct http1_span){ (uint32_t)(from - base), (uint32_t)(to - from) };
}

static const char *bad_verb(char byte) {
  return byte == 0x16 ? "a TLS handshake on a port without TLS" : "a request line that is none";
}

/* p is at the first byte behind the version. */
static enum http1_result end_version(struct http1_head *head, const char *version, const char *p) {
  if (p - version != VERSION_LENGTH || memcmp(version, "HTTP/", 5) != 0 || version[6] != '.' ||
      !scan_is(version[5], SCAN_DIGIT) || !scan_is(version[7], SCAN_DIGIT))
    return refuse(head, 400, "an HTTP version that is none");
  if (version[5] != '1') return refuse(head, 505, "an HTTP version that is not 1.x");
  head->minor = version[7] == '0' ? 0 : 1;
  return HTTP1_MORE;
}

static enum http1_result too_long(struct http1_head *head) {
  if (head->state == TARGET) return refuse(head, 414, "target too long");
  return refuse(head, 400, "request line too long");
}

static enum http1_result parse_line(struct http1_head *head, const char *base, size_t length) {
  size_t most = head->limits->request_line;
  const char *p = base + head->pos, *end = base + (length < most ? length : most);

  while (p < end) {
    const char *token = base + head->token;
    switch (head->state) {
      case START:                       /* an empty line in front is what some clients send behind a body */
        head->state = VERB;
        if (*p != '\r') break;
        head->state = START_LF;
        p++;
        break;
      case START_LF:
        if (*p != '\n') return refuse(head, 400, "CR without LF before a request");
        head->state = VERB;
        head->token = (uint32_t)(++p - base);
        break;
      case VERB:
        p = scan_kind(p, end, SCAN_TOKEN);
        if (p == end) break;
        if (*p != ' ' || p == token) return refuse(head, 400, bad_verb(*p));
        head->verb = http1_verb_find(token, (size_t)(p - token));
        head->token = (uint32_t)(++p - base);
        head->state = TARGET;
        break;
      case TARGET:
        p = scan_kind(p, end, SCAN_TARGET);
        if (p == end) break;
        if (*p != ' ' || p == token) return refuse(head, 400, "a byte that must not be in a target");
        head->target = span_of(base, token, p);
        head->token = (uint32_t)(++p - base);
        head->state = VERSION;
        break;
      case VERSION:
        while (p < end && p - token < VERSION_LENGTH && *p > ' ') p++;
        if (p == end) break;
        if (end_version(head, token, p) == HTTP1_BAD) return HTTP1_BAD;
        if (*p++ != '\r') return refuse(head, 400, "a request line that does not end with CRLF");
        head->state = LINE_LF;
        break;
      default:
        if (*p++ != '\n') return refuse(head, 400, "CR without LF in a request line");
        head->state = FIELDS;
        http1_fields_begin(&head->fields, (uint32_t)(p - base), head->limits->header_block);
        return HTTP1_DONE;
    }
  }
  head->pos = (uint32_t)(p - base);
  return length < most ? HTTP1_MORE : too_long(head);
}

/* ---- what it asks for ----------------------------------------------------------------------- */

/* name or [address], and perhaps a port; nothing else, no user. */
bool http1_host_p(const char *host, size_t length) {
  const char *p = host, *end = host + length;

  if (p < end && *p == '[') {
    for (p++; p < end && (scan_is(*p, SCAN_HEX) || *p == ':' || *p == '.'); p++) ;
    if (p == end || *p++ != ']' || p - host < 4) return false;
  } else {
    p = scan_kind(p, end, SCAN_HOST);
    if (p == host) return false;
  }
  if (p == end) return true;
  if (*p++ != ':' || end - p > 5) return false;
  return scan_kind(p, end, SCAN_DIGIT) == end;
}

static bool prefix_p(const char *text, size_t length, const char *prefix) {
  size_t size = strlen(prefix);

  if (length < size) return false;
  for (size_t i = 0; i < size; i++) if (scan_lower(text[i]) != prefix[i]) return false;
  return true;
}

static void split_target(struct http1_head *head, const char *base, const char *path, const char *end) {
  const char *mark = memchr(path, '?', (size_t)(end - path));

  head->has_query = mark != NULL;
  head->path = span_of(base, path, mark ? mark : end);
  head->query = mark ? span_of(base, mark + 1, end) : span_of(base, end, end);
}

static enum http1_result absolute_target(struct http1_head *head, const char *base) {
  const char *target = base + head->target.at, *end = target + head->target.length;
  size_t scheme = prefix_p(target, head->target.length, "http://") ? 7
                : prefix_p(target, head->target.length, "https://") ? 8 : 0;
  const char *host = target + scheme, *p = host;

  if (!scheme) return refuse(head, 400, "a target that is neither a path nor a URL");
  while (p < end && *p != '/' && *p != '?') p++;
  if (!http1_host_p(host, (size_t)(p - host))) return refuse(head, 400, "a target with a bad host");
  head->absolute = true;
  head->host = span_of(base, host, p);
  split_target(head, base, p, end);
  return HTTP1_MORE;
}

static enum http1_result judge_target(struct http1_head *head, const char *base) {
  const char *target = base + head->target.at, *end = target + head->target.length;

  switch (head->verb) {
    case HTTP1_VERB_NONE: return refuse(head, 501, "an unknown method");
    case HTTP1_VERB_CONNECT: return refuse(head, 501, "CONNECT");
    case HTTP1_VERB_TRACE: return refuse(head, 405, "TRACE");
    default: break;
  }
  if (*target == '/') { split_target(head, base, target, end); return HTTP1_MORE; }
  if (*target != '*' || head->target.length > 1) return absolute_target(head, base);
  if (head->verb != HTTP1_VERB_OPTIONS) return refuse(head, 400, "the target * is for OPTIONS");
  head->asterisk = true;
  split_target(head, base, target, end);
  return HTTP1_MORE;
}

/* ---- what its fields mean ------------------------------------------------------------------- */

struct gathered {                       /* fields that decide something; NULL: not there */
  const struct http1_field *host, *length, *encoding, *expect;
  unsigned hosts, lengths, encodings, expects;
  bool close, keep_alive, upgrade;
};

/* The next element of a list, without whitespace around it; NULL at the end. */
static const char *list_next(const char **list, const char *end, size_t *length) {
  const char *p = *list;

  while (p < end && (*p == ' ' || *p == '\t' || *p == ',')) p++;
  if (p == end) return NULL;
  const char *comma = memchr(p, ',', (size_t)(end - p)), *stop = comma ? comma : end;
  *list = stop;
  while (stop[-1] == ' ' || stop[-1] == '\t') stop--;
  *length = (size_t)(stop - p);
  return p;
}

bool http1_list_has(const char *list, size_t length, const char *token) {
  const char *end = list + length, *element;
  size_t size;

  while ((element = list_next(&list, end, &size)))
    if (size == strlen(token) && prefix_p(element, size, token)) return true;
  return false;
}

static void gather_connection(struct gathered *all, const char *value, size_t length) {
  if (http1_list_has(value, length, "close")) all->close = true;
  if (http1_list_has(value, length, "keep-alive")) all->keep_alive = true;
  if (http1_list_has(value, length, "upgrade")) all->upgrade = true;
}

static struct gathered gather(const struct http1_fields *fields, const char *base) {
  struct gathered all = { 0 };

  for (uint32_t i = 0; i < fields->count; i++) {
    const struct http1_field *field = &fields->list[i];
    switch (field->known) {
      case HTTP1_NAME_HOST: all.host = field; all.hosts++; break;
      case HTTP1_NAME_CONTENT_LENGTH: all.length = field; all.lengths++; break;
      case HTTP1_NAME_TRANSFER_ENCODING: all.encoding = field; all.encodings++; break;
      case HTTP1_NAME_EXPECT: all.expect = field; all.expects++; break;
      case HTTP1_NAME_CONNECTION:
        gather_connection(&all, base + field->value.at, field->value.length);
        break;
      default: break;
    }
  }
  return all;
}

static enum http1_result judge_host(struct http1_head *head, const struct gathered *all, const char *base) {
  if (all->hosts > 1) return refuse(head, 400, "more than one Host");
  if (!all->hosts) return head->minor ? refuse(head, 400, "no Host") : HTTP1_MORE;
  if (!http1_host_p(base + all->host->value.at, all->host->value.length))
    return refuse(head, 400, "a Host that is none");
  if (!head->absolute) head->host = all->host->value;
  return HTTP1_MORE;
}

/* Codings that we do not have are well-formed as long as chunked is the last and only there. */
static enum http1_result judge_encoding(struct http1_head *head, const char *list, size_t length) {
  const char *end = list + length, *coding;
  size_t size, codings = 0, last_chunked = 0;

  while ((coding = list_next(&list, end, &size))) {
    if (last_chunked) return refuse(head, 400, "chunked is not the last Transfer-Encoding");
    codings++;
    if (size == 7 && prefix_p(coding, size, "chunked")) last_chunked = codings;
  }
  if (!last_chunked) return refuse(head, 400, "a Transfer-Encoding that does not end with chunked");
  if (codings > 1) return refuse(head, 501, "a Transfer-Encoding besides chunked");
  /* Somebody in front of us may read ",chunked" as another coding than we do. */
  if (length != 7) return refuse(head, 400, "an empty element in Transfer-Encoding");
  head->framing = HTTP1_CHUNKED;
  return HTTP1_MORE;
}

/* 19 digits are always less than 2^64. */
static enum http1_result judge_length(struct http1_head *head, const char *digits, size_t length) {
  uint64_t value = 0;

  if (length == 0 || length > 19 || scan_kind(digits, digits + length, SCAN_DIGIT) != digits + length)
    return refuse(head, 400, "a Content-Length that is none");
  for (size_t i = 0; i < length; i++) value = value * 10 + (uint64_t)(digits[i] - '0');
  if (value > head->limits->body) return refuse(head, 413, "body too long");
  head->framing = value ? HTTP1_LENGTH : HTTP1_NO_BODY;
  head->length = value;
  return HTTP1_MORE;
}

/* Where the body ends: decided here, once, and nowhere else. */
static enum http1_result judge_framing(struct http1_head *head, const struct gathered *all, const char *base) {
  head->framing = HTTP1_NO_BODY;
  if (all->lengths > 1) return refuse(head, 400, "more than one Content-Length");
  if (all->encodings > 1) return refuse(head, 400, "more than one Transfer-Encoding");
  if (all->encodings && all->lengths) return refuse(head, 400, "Content-Length and Transfer-Encoding");
  if (all->encodings && !head->minor) return refuse(head, 400, "Transfer-Encoding in HTTP/1.0");
  if (all->encodings) return judge_encoding(head, base + all->encoding->value.at, all->encoding->value.length);
  if (all->lengths) return judge_length(head, base + all->length->value.at, all->length->value.length);
  return HTTP1_MORE;
}

static enum http1_result judge_expect(struct http1_head *head, const struct gathered *all, const char *base) {
  const struct http1_field *field = all->expect;

  if (!all->expects) return HTTP1_MORE;
  if (all->expects > 1 || field->value.length != 12 ||
      !prefix_p(base + field->value.at, 12, "100-continue"))
    return refuse(head, 417, "an unknown Expect");
  head->expect = head->minor && head->framing != HTTP1_NO_BODY;
  return HTTP1_MORE;
}

static enum http1_result judge(struct http1_head *head, const char *base) {
  struct gathered all = gather(&head->fields, base);

  if (judge_target(head, base) == HTTP1_BAD || judge_host(head, &all, base) == HTTP1_BAD ||
      judge_framing(head, &all, base) == HTTP1_BAD || judge_expect(head, &all, base) == HTTP1_BAD)
    return HTTP1_BAD;
  head->keep_alive = !all.close && (head->minor || all.keep_alive);
  head->upgrade = all.upgrade && head->minor;
  return HTTP1_DONE;
}

enum http1_result http1_head_parse(struct http1_head *head, const char *base, size_t length) {
  enum http1_result result;

  if (head->state != FIELDS && (result = parse_line(head, base, length)) != HTTP1_DONE) return result;
  result = http1_fields_parse(&head->fields, base, length);
  if (result == HTTP1_BAD) head->fault = head->fields.fault;
  return result == HTTP1_DONE ? judge(head, base) : result;
}
