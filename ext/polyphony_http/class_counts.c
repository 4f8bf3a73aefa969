/* class_counts.c - HTTP::Counts: the part of HTTP::Stats that changes with every request. In Ruby it would be a tenth of what
 * the server itself does for a small one. */
#include <string.h>
#include "http1_ruby.h"
#include "polyphony_http.h"

enum { CLASSES = 6 };                   /* first digits of a status; there is none with 0 */

struct counts {
  uint64_t requests, bytes_out;
  int64_t running;
  uint64_t answers[CLASSES];
};

static ID id_head, id_status, id_sent;

static size_t counts_memsize(const void *pointer) { return sizeof(struct counts); }

static const rb_data_type_t counts_type = {
  .wrap_struct_name = "Polyphony::HTTP::Counts",
  .function = { .dfree = RUBY_TYPED_DEFAULT_FREE, .dsize = counts_memsize },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE Counts_allocate(VALUE klass) {
  struct counts *counts;
  return TypedData_Make_Struct(klass, struct counts, &counts_type, counts);
}

static struct counts *counts_of(VALUE self) { return rb_check_typeddata(self, &counts_type); }

/* A request has begun. */
static VALUE Counts_began(VALUE self) {
  struct counts *counts = counts_of(self);

  counts->requests++;
  counts->running++;
  return Qnil;
}

/* over(request): it has ended. */
static VALUE Counts_over(VALUE self, VALUE request) {
  struct counts *counts = counts_of(self);
  uint32_t size;
  int status = http1_head_status(rb_attr_get(request, id_head), &size);

  counts->running--;
  if (status) counts->bytes_out += size;
  else {
    VALUE said = rb_funcallv(request, id_status, 0, NULL);
    status = NIL_P(said) ? 0 : NUM2INT(said);
    counts->bytes_out += NUM2ULL(rb_funcallv(request, id_sent, 0, NULL));
  }
  if (status >= 100 && status < 100 * CLASSES) counts->answers[status / 100]++;
  return Qnil;
}

#define COUNTER(member, to_value, from_value) \
  static VALUE Counts_##member(VALUE self) { return to_value(counts_of(self)->member); } \
  static VALUE Counts_set_##member(VALUE self, VALUE value) { \
    counts_of(self)->member = from_value(value); \
    return value; \
  }

COUNTER(requests, ULL2NUM, NUM2ULL)
COUNTER(bytes_out, ULL2NUM, NUM2ULL)
COUNTER(running, LL2NUM, NUM2LL)

static uint64_t *answers_with(VALUE self, VALUE digit) {
  int number = NUM2INT(digit);

  if (number < 1 || number >= CLASSES) rb_raise(rb_eArgError, "a status begins with 1 to 5, got %d", number);
  return &counts_of(self)->answers[number];
}

static VALUE Counts_answers(VALUE self, VALUE digit) { return ULL2NUM(*answers_with(self, digit)); }

static VALUE Counts_add_answers(VALUE self, VALUE digit, VALUE count) {
  *answers_with(self, digit) += NUM2ULL(count);
  return Qnil;
}

void Init_counts(void) {
  VALUE cCounts = rb_define_class_under(mHTTP, "Counts", rb_cObject);

  id_head = rb_intern("@head");
  id_status = rb_intern("status");
  id_sent = rb_intern("sent");
  rb_define_alloc_func(cCounts, Counts_allocate);
  rb_define_method(cCounts, "began", Counts_began, 0);
  rb_define_method(cCounts, "over", Counts_over, 1);
  rb_define_method(cCounts, "requests", Counts_requests, 0);
  rb_define_method(cCounts, "requests=", Counts_set_requests, 1);
  rb_define_method(cCounts, "bytes_out", Counts_bytes_out, 0);
  rb_define_method(cCounts, "bytes_out=", Counts_set_bytes_out, 1);
  rb_define_method(cCounts, "running", Counts_running, 0);
  rb_define_method(cCounts, "running=", Counts_set_running, 1);
  rb_define_method(cCounts, "answers", Counts_answers, 1);
  rb_define_method(cCounts, "add_answers", Counts_add_answers, 2);
}
