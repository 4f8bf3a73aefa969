/* http1_fields.c - the field lines of heads and trailers; see http1.h */
#include <string.h>
#include "http1.h"
#include "http1_scan.h"

enum { LINE, IN_NAME, BEFORE_VALUE, IN_VALUE, LF, LAST_LF };

static enum http1_result refuse(struct http1_fields *fields, int status, const char *reason) {
  fields->fault = (struct http1_fault){ status, reason };
  return HTTP1_BAD;
}

void http1_fields_begin(struct http1_fields *fields, uint32_t begin, uint32_t bytes) {
  fields->begin = fields->pos = begin;
  fields->bytes = bytes;
  fields->count = 0;
  fields->state = LINE;
  fields->underscores = false;
  fields->fault = (struct http1_fault){ 0 };
}

static const char *bad_name(const char *p) {
  switch (*p) {
    case ' ': case '\t': return "whitespace in the name of a header";
    case '\r': case '\n': return "a header line without a colon";
    default: return "a byte that must not be in the name of a header";
  }
}

static const char *bad_value(const char *p) {
  return *p == '\n' ? "a line that ends without CR" : "a control byte in the value of a header";
}

static void end_name(struct http1_fields *fields, const char *base, const char *p) {
  struct http1_field *field = &fields->list[fields->count];
  const char *name = base + field->name.at;

  field->name.length = (uint32_t)(p - name);
  field->known = http1_name_find(name, field->name.length);
  if (!field->known && memchr(name, '_', field->name.length)) fields->underscores = true;
}

/* p is behind the CR. */
static void end_value(struct http1_fields *fields, const char *base, const char *p) {
  struct http1_field *field = &fields->list[fields->count++];
  const char *begin = base + field->value.at, *end = p - 1;

  while (end > begin && (end[-1] == ' ' || end[-1] == '\t')) end--;
  field->value.length = (uint32_t)(end - begin);
}

enum http1_result http1_fields_parse(struct http1_fields *fields, const char *base, size_t length) {
  size_t most = (size_t)fields->begin + fields->bytes;
  const char *p = base + fields->pos, *end = base + (length < most ? length : most);

  while (p < end) {
    struct http1_field *field = &fields->list[fields->count];
    switch (fields->state) {
      case LINE:
        if (*p == '\r') { p++; fields->state = LAST_LF; break; }
        if (*p == ' ' || *p == '\t') return refuse(fields, 400, "a header line that begins with whitespace");
        if (fields->count == fields->most) return refuse(fields, 431, "too many header fields");
        field->name.at = (uint32_t)(p - base);
        fields->state = IN_NAME;
        /* fall through */
      case IN_NAME:
        p = scan_kind(p, end, SCAN_TOKEN);
        if (p == end) break;
        if (*p != ':') return refuse(fields, 400, bad_name(p));
        if (p == base + field->name.at) return refuse(fields, 400, "a header without a name");
        end_name(fields, base, p++);
        fields->state = BEFORE_VALUE;
        /* fall through */
      case BEFORE_VALUE:
        while (p < end && (*p == ' ' || *p == '\t')) p++;
        if (p == end) break;
        field->value.at = (uint32_t)(p - base);
        fields->state = IN_VALUE;
        /* fall through */
      case IN_VALUE:
        p = scan_text(p, end);
        if (p == end) break;
        if (*p != '\r') return refuse(fields, 400, bad_value(p));
        end_value(fields, base, ++p);
        fields->state = LF;
        break;
      case LF:
        if (*p != '\n') return refuse(fields, 400, "CR without LF in a header");
        p++;
        fields->state = LINE;
        break;
      default:
        if (*p != '\n') return refuse(fields, 400, "CR without LF in a header");
        fields->pos = (uint32_t)(p + 1 - base);
        return HTTP1_DONE;
    }
  }
  fields->pos = (uint32_t)(p - base);
  return length < most ? HTTP1_MORE : refuse(fields, 431, "header block too long");
}

bool http1_trailer_p(const struct http1_field *field) {
  switch (field->known) {
    case HTTP1_NAME_AUTHORIZATION: case HTTP1_NAME_CACHE_CONTROL: case HTTP1_NAME_CONNECTION:
    case HTTP1_NAME_CONTENT_ENCODING: case HTTP1_NAME_CONTENT_LENGTH: case HTTP1_NAME_CONTENT_RANGE:
    case HTTP1_NAME_CONTENT_TYPE: case HTTP1_NAME_COOKIE: case HTTP1_NAME_EXPECT:
    case HTTP1_NAME_FORWARDED: case HTTP1_NAME_HOST: case HTTP1_NAME_HTTP2_SETTINGS:
    case HTTP1_NAME_IF_MATCH: case HTTP1_NAME_IF_MODIFIED_SINCE: case HTTP1_NAME_IF_NONE_MATCH:
    case HTTP1_NAME_IF_RANGE: case HTTP1_NAME_IF_UNMODIFIED_SINCE: case HTTP1_NAME_KEEP_ALIVE:
    case HTTP1_NAME_MAX_FORWARDS: case HTTP1_NAME_ORIGIN: case HTTP1_NAME_PROXY_AUTHORIZATION:
    case HTTP1_NAME_PROXY_CONNECTION: case HTTP1_NAME_RANGE: case HTTP1_NAME_SET_COOKIE:
    case HTTP1_NAME_TE: case HTTP1_NAME_TRAILER: case HTTP1_NAME_TRANSFER_ENCODING:
    case HTTP1_NAME_UPGRADE: case HTTP1_NAME_X_FORWARDED_FOR: case HTTP1_NAME_X_FORWARDED_HOST:
    case HTTP1_NAME_X_FORWARDED_PORT: case HTTP1_NAME_X_FORWARDED_PROTO: case HTTP1_NAME_X_FORWARDED_SSL:
    case HTTP1_NAME_X_REAL_IP:
      return false;
    default:
      return true;
  }
}
