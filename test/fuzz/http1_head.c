/* http1_head.c - heads: whatever comes, in whatever pieces, gives the same result, and what is taken
 * keeps the rules. The first two bytes say how it is split and how tight the limits are. */
#include <ctype.h>
#include <strings.h>
#include "fuzz.h"
#include "http1.h"

#define MOST_FIELDS 20

struct run {
  struct http1_limits limits;
  struct http1_head head;
  struct http1_field list[MOST_FIELDS];
  enum http1_result result;
};

static void begin(struct run *run, uint8_t tight) {
  memset(run, 0, sizeof(*run));
  run->limits = (struct http1_limits){ .request_line = tight & 1 ? 40 : 4096, .header_block = tight & 2 ? 100 : 4096,
    .header_fields = tight & 4 ? 3 : MOST_FIELDS, .body = tight & 8 ? 1000 : UINT64_MAX };
  run->head.limits = &run->limits;
  run->head.fields.list = run->list;
  http1_head_begin(&run->head);
}

static void feed(struct run *run, const char *bytes, size_t size) {
  char *copy = exact_copy(bytes, size);
  run->result = http1_head_parse(&run->head, copy, size);
  free(copy);
}

static void feed_in_pieces(struct run *run, const char *bytes, size_t size, uint32_t seed) {
  size_t fed = 0;
  do {
    fed += next_piece(&seed, size - fed);
    feed(run, bytes, fed);
  } while (run->result == HTTP1_MORE && fed < size);
}

static bool same_span(struct http1_span a, struct http1_span b) { return a.at == b.at && a.length == b.length; }

static void must_be_same(const struct run *a, const struct run *b) {
  MUST(a->result == b->result);
  MUST(a->head.fault.status == b->head.fault.status && a->head.fault.reason == b->head.fault.reason);
  if (a->result != HTTP1_DONE) return;
  MUST(a->head.verb == b->head.verb && a->head.minor == b->head.minor);
  MUST(same_span(a->head.target, b->head.target) && same_span(a->head.path, b->head.path));
  MUST(same_span(a->head.query, b->head.query) && same_span(a->head.host, b->head.host));
  MUST(a->head.framing == b->head.framing && a->head.length == b->head.length);
  MUST(a->head.keep_alive == b->head.keep_alive && a->head.expect == b->head.expect);
  MUST(a->head.fields.count == b->head.fields.count && a->head.fields.pos == b->head.fields.pos);
  for (uint32_t i = 0; i < a->head.fields.count; i++) {
    MUST(same_span(a->list[i].name, b->list[i].name) && same_span(a->list[i].value, b->list[i].value));
    MUST(a->list[i].known == b->list[i].known);
  }
}

static bool inside(struct http1_span span, size_t size) { return span.at <= size && span.length <= size - span.at; }

static bool named(const struct http1_field *field, const char *bytes, const char *name) {
  return field->name.length == strlen(name) && strncasecmp(bytes + field->name.at, name, field->name.length) == 0;
}

static unsigned count(const struct run *run, const char *bytes, const char *name) {
  unsigned found = 0;
  for (uint32_t i = 0; i < run->head.fields.count; i++) found += named(&run->list[i], bytes, name);
  return found;
}

static void must_be_a_field(const struct http1_field *field, const char *bytes, size_t size) {
  MUST(inside(field->name, size) && inside(field->value, size) && field->name.length > 0);
  for (uint32_t i = 0; i < field->name.length; i++) {
    unsigned char c = (unsigned char)bytes[field->name.at + i];
    MUST(c > ' ' && c < 0x7f && !strchr("\"(),/:;<=>?@[\\]{}", c));
  }
  for (uint32_t i = 0; i < field->value.length; i++) {
    unsigned char c = (unsigned char)bytes[field->value.at + i];
    MUST((c >= ' ' && c != 0x7f) || c == '\t');
  }
  if (field->known) MUST(named(field, bytes, http1_names[field->known]));
}

/* Said again in other words than those of the parser. */
static void must_be_sane(const struct run *run, const char *bytes, size_t size) {
  const struct http1_head *head = &run->head;
  MUST(head->fields.pos <= size && head->fields.pos >= 4 && head->fields.count <= run->limits.header_fields);
  MUST(memcmp(bytes + head->fields.pos - 4, "\r\n\r\n", 4) == 0);
  MUST(memmem(bytes, size, "\r\n\r\n", 4) == bytes + head->fields.pos - 4 || bytes[0] == '\r');
  for (uint32_t i = 0; i < head->fields.count; i++) must_be_a_field(&run->list[i], bytes, head->fields.pos);
  MUST(inside(head->target, size) && inside(head->path, size) && inside(head->query, size) && inside(head->host, size));
  unsigned lengths = count(run, bytes, "content-length"), encodings = count(run, bytes, "transfer-encoding");
  unsigned hosts = count(run, bytes, "host");
  MUST(lengths + encodings <= 1 && hosts <= 1 && (hosts == 1 || !head->minor));
  MUST((head->framing == HTTP1_CHUNKED) == (encodings == 1));
  MUST(head->framing != HTTP1_LENGTH || (lengths == 1 && head->length > 0 && head->length <= run->limits.body));
  MUST(head->verb != HTTP1_VERB_NONE && head->verb != HTTP1_VERB_TRACE && head->verb != HTTP1_VERB_CONNECT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct run whole, split;
  if (size < 2) return 0;
  const char *bytes = (const char *)data + 2;
  size -= 2;

  begin(&whole, data[1]);
  feed(&whole, bytes, size);
  begin(&split, data[1]);
  feed_in_pieces(&split, bytes, size, data[0]);
  must_be_same(&whole, &split);
  if (whole.result == HTTP1_DONE) must_be_sane(&whole, bytes, size);
  if (whole.result == HTTP1_BAD) MUST(whole.head.fault.status >= 400 && whole.head.fault.reason);
  return 0;
}
