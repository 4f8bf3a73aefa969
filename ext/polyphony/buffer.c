/* buffer.c - see buffer.h */
#include <stdlib.h>
#include "buffer.h"
#include "list.h"

/* ---- raw buffers ----------------------------------------------------------------------------- */

struct raw {
  struct list link;
  size_t size, length;          /* room; bytes that the last operation or set left in it */
  unsigned loans;               /* operations that have its address; freed when the last is over */
  char bytes[];
};

static struct list raws = { &raws, &raws };

VALUE buffer_raw_new(size_t size) {
  struct raw *raw = xcalloc(1, sizeof(*raw) + size);  /* what was there before is not theirs */

  raw->size = size;
  raw->length = 0;
  list_push(&raws, &raw->link);
  return ULL2NUM((uintptr_t)raw);
}

static struct raw *raw_find(VALUE handle) {
  uintptr_t address = NUM2ULL(handle);

  list_each(node, &raws) {
    struct raw *raw = list_entry(node, struct raw, link);
    if ((uintptr_t)raw == address) return raw;
  }
  rb_raise(rb_eArgError, "%"PRIsVALUE" is not a raw buffer: they are valid within the block of "
           "Polyphony.__with_raw_buffer__", handle);
}

void buffer_raw_free(VALUE handle) {
  struct raw *raw = raw_find(handle);

  list_remove(&raw->link);
  if (!raw->loans) xfree(raw);
}

static void raw_lend(struct fiber_state *fiber, VALUE handle) {
  raw_find(handle)->loans++;
  FIBER_WRITE(fiber, lent, handle);
}

/* Its block may have ended meanwhile: then it is in no list any more, and nobody else's. */
static void raw_return(VALUE handle) {
  struct raw *raw = (struct raw *)(uintptr_t)NUM2ULL(handle);

  if (--raw->loans == 0 && list_empty_p(&raw->link)) xfree(raw);
}

bool buffer_raw_find(VALUE handle, char **base, size_t *size, size_t **length) {
  if (!RB_INTEGER_TYPE_P(handle)) return false;
  struct raw *raw = raw_find(handle);
  *base = raw->bytes;
  *size = raw->size;
  *length = &raw->length;
  return true;
}

/* ---- filling --------------------------------------------------------------------------------- */

static bool io_buffer_p(VALUE object) {
  static VALUE klass = 0;

  if (!klass) {
    klass = rb_path2class("IO::Buffer");
    rb_gc_register_mark_object(klass);
  }
  return RTEST(rb_obj_is_kind_of(object, klass));
}

static struct buffer string_buffer(VALUE string, long pos) {
  rb_str_modify(string);
  long length = RSTRING_LEN(string);
  long start = pos < 0 ? length + 1 + pos : pos;
  if (start < 0 || start > length)
    rb_raise(rb_eIndexError, "position %ld is outside of the buffer's %ld bytes", pos, length);
  return (struct buffer){ .object = string, .size = length, .pos = start };
}

struct buffer buffer_for_filling(VALUE object, long pos) {
  size_t *length;
  struct buffer buffer = { .object = object, .pos = pos < 0 ? 0 : pos };

  if (NIL_P(object)) return string_buffer(rb_str_new(NULL, 0), 0);
  if (RB_TYPE_P(object, T_STRING)) return string_buffer(object, pos);
  if (buffer_raw_find(object, &buffer.base, &buffer.size, &length)) {
    if (pos < 0) buffer.pos = (long)*length;
  } else if (io_buffer_p(object)) {
    rb_io_buffer_get_bytes_for_writing(object, (void **)&buffer.base, &buffer.size);
  } else {
    rb_raise(rb_eTypeError, "expected a String, an IO::Buffer or a raw buffer to read into, got "
             "%"PRIsVALUE, rb_inspect(object));
  }
  if ((size_t)buffer.pos > buffer.size)
    rb_raise(rb_eIndexError, "position %ld is outside of the buffer's %zu bytes", buffer.pos,
             buffer.size);
  return buffer;
}

/* Others may have run since the last part came, and had the String or IO::Buffer to themselves. */
static void check_room(struct buffer *buffer, size_t size) {
  if ((size_t)buffer->pos > size) rb_raise(rb_eRuntimeError, "buffer modified while it is read into");
}

static char *lend_string(struct buffer *buffer, struct fiber_state *fiber, size_t length) {
  check_room(buffer, RSTRING_LEN(buffer->object));
  rb_str_set_len(buffer->object, buffer->pos);
  if (rb_str_capacity(buffer->object) < buffer->pos + length) rb_str_modify_expand(buffer->object, (long)length);
  rb_str_locktmp(buffer->object);
  FIBER_WRITE(fiber, lent, buffer->object);
  return RSTRING_PTR(buffer->object) + buffer->pos;
}

char *buffer_lend(struct buffer *buffer, struct fiber_state *fiber, size_t *length) {
  if (RB_TYPE_P(buffer->object, T_STRING)) return lend_string(buffer, fiber, *length);
  if (!buffer->object) {
    check_room(buffer, buffer->size);
  } else if (RB_INTEGER_TYPE_P(buffer->object)) {
    raw_lend(fiber, buffer->object);
  } else {
    rb_io_buffer_get_bytes_for_writing(buffer->object, (void **)&buffer->base, &buffer->size);
    check_room(buffer, buffer->size);
    rb_io_buffer_lock(buffer->object);
    FIBER_WRITE(fiber, lent, buffer->object);
  }
  size_t room = buffer->size - buffer->pos;
  if (*length > room) *length = room;
  return buffer->base + buffer->pos;
}

void buffer_advance(struct buffer *buffer, size_t length) {
  buffer->pos += (long)length;
  if (RB_TYPE_P(buffer->object, T_STRING)) rb_str_set_len(buffer->object, buffer->pos);
}

VALUE buffer_finish(struct buffer *buffer, long start) {
  size_t *length, size;
  char *base;

  if (RB_TYPE_P(buffer->object, T_STRING)) {
    if (RSTRING_LEN(buffer->object) != buffer->pos) rb_str_set_len(buffer->object, buffer->pos);
    return buffer->object;
  }
  if (buffer_raw_find(buffer->object, &base, &size, &length)) *length = buffer->pos;
  return LONG2NUM(buffer->pos - start);
}

/* ---- writing --------------------------------------------------------------------------------- */

VALUE buffer_snapshot(VALUE object, const char **base, size_t *length) {
  size_t size, *raw_length;
  char *raw;

  if (RB_INTEGER_TYPE_P(object)) {
    buffer_raw_find(object, &raw, &size, &raw_length);
    *base = raw;
    *length = *raw_length;
    return object;
  }
  if (!RB_TYPE_P(object, T_STRING) && io_buffer_p(object)) {
    rb_io_buffer_get_bytes_for_reading(object, (const void **)base, length);
    return object;
  }
  VALUE string = rb_str_new_frozen(rb_obj_as_string(object));
  *base = RSTRING_PTR(string);
  *length = RSTRING_LEN(string);
  return string;
}

VALUE buffer_copy_small(VALUE object, char small[OP_SMALL], const char **base, size_t *length) {
  if (!RB_TYPE_P(object, T_STRING) || RSTRING_LEN(object) > OP_SMALL) return buffer_snapshot(object, base, length);
  *length = (size_t)RSTRING_LEN(object);
  *base = memcpy(small, RSTRING_PTR(object), *length);
  return Qnil;
}

VALUE buffer_text(VALUE object) {
  const char *base;
  size_t length;
  VALUE snapshot = buffer_snapshot(object, &base, &length);

  if (RB_TYPE_P(snapshot, T_STRING)) return snapshot;
  return rb_str_freeze(rb_str_new(base, (long)length));
}

void buffer_lend_snapshot(struct fiber_state *fiber, VALUE snapshot) {
  if (RB_INTEGER_TYPE_P(snapshot)) {
    raw_lend(fiber, snapshot);
    return;
  }
  if (!RB_TYPE_P(snapshot, T_STRING) && !RB_TYPE_P(snapshot, T_ARRAY)) rb_io_buffer_lock(snapshot);
  FIBER_WRITE(fiber, lent, snapshot);
}

void buffer_return(struct fiber_state *fiber) {
  VALUE lent = fiber->lent;

  fiber->lent = Qnil;
  if (NIL_P(lent)) return;
  if (RB_INTEGER_TYPE_P(lent)) {
    raw_return(lent);
    return;
  }
  if (!RB_TYPE_P(lent, T_STRING) && !RB_TYPE_P(lent, T_ARRAY)) rb_io_buffer_unlock(lent);
  else if (RB_TYPE_P(lent, T_STRING) && !OBJ_FROZEN(lent)) rb_str_unlocktmp(lent);
}
