/* class_pipe.c - Polyphony::Pipe: both ends in one object. Layer 2.
 * close closes the end for writing; what was written can still be read. The end for reading goes
 * with the object. Reading and writing words are in lib/polyphony/core/pipe.rb. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include "errors.h"
#include "io.h"
#include "pipe.h"

static VALUE cPipe = Qnil, eClosedPipe = Qnil;

struct pipe {
  int read_fd, write_fd;        /* -1 when closed or not open yet */
};

static void close_end(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static void pipe_free(void *pointer) {
  struct pipe *pipe = pointer;

  close_end(&pipe->read_fd);
  close_end(&pipe->write_fd);
  xfree(pipe);
}

static size_t pipe_memsize(const void *pointer) {
  (void)pointer;
  return sizeof(struct pipe);
}

static const rb_data_type_t pipe_type = {
  .wrap_struct_name = "Polyphony::Pipe",
  .function = { .dsize = pipe_memsize, .dfree = pipe_free },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE Pipe_allocate(VALUE klass) {
  struct pipe *pipe;
  VALUE self = TypedData_Make_Struct(klass, struct pipe, &pipe_type, pipe);

  pipe->read_fd = pipe->write_fd = -1;
  return self;
}

static struct pipe *get(VALUE self) {
  return typed_data(self, &pipe_type);
}

bool pipe_descriptor(VALUE object, enum fd_direction direction, int *fd) {
  if (!rb_typeddata_is_kind_of(object, &pipe_type)) return false;
  struct pipe *pipe = get(object);
  *fd = direction == FD_READ ? pipe->read_fd : pipe->write_fd;
  if (*fd < 0) rb_raise(eClosedPipe, "this pipe is closed for %s",
                        direction == FD_READ ? "reading" : "writing");
  return true;
}

static VALUE Pipe_initialize(VALUE self) {
  struct pipe *pipe = get(self);
  int fds[2];

  if (rb_cloexec_pipe(fds) < 0) error_raise_errno(-errno, "pipe");
  pipe->read_fd = fds[0];
  pipe->write_fd = fds[1];
  return self;
}

static VALUE Pipe_fds(VALUE self) {
  struct pipe *pipe = get(self);

  return rb_assoc_new(INT2NUM(pipe->read_fd), INT2NUM(pipe->write_fd));
}

static VALUE Pipe_close(VALUE self) {
  struct pipe *pipe = get(self);

  if (pipe->write_fd < 0) rb_raise(rb_eRuntimeError, "this pipe is closed already");
  io_release_waiters(pipe->write_fd);
  close_end(&pipe->write_fd);
  return self;
}

static VALUE Pipe_closed_p(VALUE self) { return get(self)->write_fd < 0 ? Qtrue : Qfalse; }

void class_pipe_init(void) {
  rb_gc_register_address(&cPipe);
  rb_gc_register_address(&eClosedPipe);
  cPipe = rb_define_class_under(mPolyphony, "Pipe", rb_cObject);
  eClosedPipe = rb_define_class_under(cPipe, "ClosedPipeError", rb_eRuntimeError);
  rb_define_alloc_func(cPipe, Pipe_allocate);
  rb_define_method(cPipe, "initialize", Pipe_initialize, 0);
  rb_define_method(cPipe, "fds", Pipe_fds, 0);
  rb_define_method(cPipe, "close", Pipe_close, 0);
  rb_define_method(cPipe, "closed?", Pipe_closed_p, 0);
}
