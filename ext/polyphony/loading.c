/* loading.c - see loading.h */
#include <errno.h>
#include <unistd.h>
#include "loading.h"
#include <ruby/debug.h>
#include <ruby/thread.h>

static bool loads_p(VALUE name) {
  static const char *const names[] = { "require", "require_relative", "load" };

  if (!RB_TYPE_P(name, T_STRING)) return false;
  for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
    if (strcmp(RSTRING_PTR(name), names[i]) == 0) return true;
  return false;
}

/* The first frame is the hook's own. */
bool loading_p(VALUE io) {
  VALUE frames[2];
  int lines[2];

  if (rb_obj_class(io) != rb_cFile) return false;
  return rb_profile_frames(0, 2, frames, lines) == 2 && loads_p(rb_profile_frame_method_name(frames[1]));
}

struct reading {
  int fd;
  char *base;
  size_t length;
  ssize_t result;
  int error;
};

static void *read_nogvl(void *argument) {
  struct reading *reading = argument;

  reading->result = read(reading->fd, reading->base, reading->length);
  reading->error = errno;
  return NULL;
}

int64_t loading_read(int fd, char *base, size_t length) {
  struct reading reading = { fd, base, length, -1, EINTR };

  while (reading.result < 0 && reading.error == EINTR)
    rb_thread_call_without_gvl(read_nogvl, &reading, RUBY_UBF_IO, NULL);
  return reading.result < 0 ? -reading.error : reading.result;
}
