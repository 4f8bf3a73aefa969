/* intake.c - see intake.h */
#include <stdlib.h>
#include "fd.h"
#include "intake.h"
#include "io.h"

void intake_begin(struct intake *intake, VALUE io) {
  bool noted = RB_TYPE_P(io, T_FILE) && compat_descriptor(io) >= 0 && compat_plain_p(io);

  *intake = (struct intake){ .io = noted ? io : Qnil, .taken = Qnil };
  if (noted) intake->base = compat_read_buffer(io, &intake->count);
}

void intake_continue(struct intake *intake) {
  if (!intake->count) return;
  if (intake->direct) intake->unclear = true;
  if (NIL_P(intake->taken)) intake->taken = rb_str_new(NULL, 0);
  rb_str_cat(intake->taken, intake->base, (long)intake->count);
  intake->count = 0;
}

void intake_filled(struct intake *intake, const char *base, size_t count, bool in_buffer) {
  if (!in_buffer) {
    intake->direct += count;
    return;
  }
  intake->base = base;
  intake->count = count;
}

/* Its String is one piece, so what it got before stands before what it was to get. */
void intake_put_back(struct intake *intake, const char *base) {
  int fd = compat_descriptor(intake->io);

  if (fd < 0 || intake->unclear) return;
  if (intake->direct) fd_put_back(fd, base - intake->direct, intake->direct);
  if (!NIL_P(intake->taken)) fd_put_back(fd, RSTRING_PTR(intake->taken), (size_t)RSTRING_LEN(intake->taken));
  if (intake->direct || !NIL_P(intake->taken)) io_read_again(backend_base_current(), fd);
}

struct during {
  struct fiber_state *fiber;
  struct intake *before;
};

static VALUE restore(VALUE argument) {
  struct during *during = (struct during *)argument;

  during->fiber->intake = during->before;
  return Qnil;
}

VALUE intake_during(struct intake *intake, VALUE (*function)(VALUE), VALUE argument) {
  struct fiber_state *fiber = backend_base_fiber(backend_base_current());
  struct during during = { fiber, fiber->intake };

  fiber->intake = intake;
  VALUE result = rb_ensure(function, argument, restore, (VALUE)&during);
  RB_GC_GUARD(intake->taken);
  return result;
}
