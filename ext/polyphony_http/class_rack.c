/* class_rack.c - what RackHandler asks about every answer.
 *
 * Most answers of applications are a String in an Array, under headers that say nothing to the server. They
 * need no Response, which costs more than all the rest of a small one; and asking in Ruby whether an answer is
 * such a one is a fifth of it. */
#include <string.h>
#include <strings.h>
#include "polyphony_http.h"

struct question {
  bool rack2;                           /* lines of a value are several values */
  bool plain;
};

static bool speaks_to_server_p(const char *name, long length) {
  switch (length) {
    case 14: return strncasecmp(name, "content-length", 14) == 0;
    case 17: return strncasecmp(name, "transfer-encoding", 17) == 0;
    default: return length >= 5 && memcmp(name, "rack.", 5) == 0;
  }
}

static bool string_p(VALUE object) {
  return RB_TYPE_P(object, T_STRING) && rb_obj_class(object) == rb_cString;
}

static int look_at(VALUE name, VALUE value, VALUE argument) {
  struct question *question = (struct question *)argument;

  question->plain = string_p(name) && string_p(value) && !speaks_to_server_p(RSTRING_PTR(name), RSTRING_LEN(name)) &&
                    !(question->rack2 && memchr(RSTRING_PTR(value), '\n', RSTRING_LEN(value)));
  return question->plain ? ST_CONTINUE : ST_STOP;
}

/* HEAD is not asked about, as its answer has to know its length. */
VALUE rack_plain_answer(VALUE status, VALUE headers, VALUE body, bool rack2) {
  struct question question = { rack2, true };

  if (!RB_TYPE_P(body, T_ARRAY) || rb_obj_class(body) != rb_cArray || RARRAY_LEN(body) != 1) return Qnil;
  if (!FIXNUM_P(status) || status == INT2FIX(101)) return Qnil;
  if (!RB_TYPE_P(headers, T_HASH) || rb_obj_class(headers) != rb_cHash) return Qnil;
  VALUE text = RARRAY_AREF(body, 0);
  if (!string_p(text)) return Qnil;
  rb_hash_foreach(headers, look_at, (VALUE)&question);
  return question.plain ? text : Qnil;
}

/* __plain_answer(status, headers, body, rack2) => String or nil */
static VALUE HTTP_s_plain_answer(VALUE self, VALUE status, VALUE headers, VALUE body, VALUE rack2) {
  return rack_plain_answer(status, headers, body, RTEST(rack2));
}

void Init_rack(void) {
  rb_define_singleton_method(mHTTP, "__plain_answer", HTTP_s_plain_answer, 4);
}
