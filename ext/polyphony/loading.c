/* loading.c - see loading.h */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>
#include "loading.h"
#include <ruby/debug.h>
#include <ruby/thread.h>

enum { FRAMES = 48 };           /* RubyGems needs some twenty to look at what is installed */

static bool starts_p(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

static bool loads_p(VALUE name) {
  static const char *const names[] = { "require", "require_relative", "load" };

  for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
    if (strcmp(StringValueCStr(name), names[i]) == 0) return true;
  return false;
}

/* What goes on between require and its file. C functions have no path. */
static bool machinery_p(VALUE path) {
  if (NIL_P(path)) return true;
  const char *text = StringValueCStr(path);
  return starts_p(text, "<internal:") || strstr(text, "/rubygems") || strstr(text, "/bundler");
}

static bool regular_p(VALUE io) {
  struct stat st;

  if (RTEST(rb_funcall(io, rb_intern("closed?"), 0))) return false;
  return fstat(rb_io_descriptor(io), &st) == 0 && S_ISREG(st.st_mode);
}

/* A method in C that has nothing to do with files, String#unicode_normalize for instance, requires its
 * library by rb_require: then nothing is between it and the scheduler's hook. */
static bool required_in_c_p(const VALUE *frames, int count) {
  static const char *const readers[] = { "IO", "File", "Kernel", "ARGF.class", "#<Class:" };
  VALUE name = count < 2 ? Qnil : rb_profile_frame_method_name(frames[0]), class_name;

  if (!RB_TYPE_P(name, T_STRING) || strcmp(StringValueCStr(name), "io_read") != 0) return false;
  if (!NIL_P(rb_profile_frame_path(frames[1]))) return false;
  class_name = rb_profile_frame_classpath(frames[1]);
  for (size_t i = 0; RB_TYPE_P(class_name, T_STRING) && i < sizeof(readers) / sizeof(*readers); i++)
    if (starts_p(StringValueCStr(class_name), readers[i])) return false;
  return RB_TYPE_P(class_name, T_STRING);
}

/* Code of the file that is being loaded is not meant: its frame comes first. */
static bool called_by_machinery_p(void) {
  VALUE frames[FRAMES];
  int lines[FRAMES], count = rb_profile_frames(0, FRAMES, frames, lines);

  if (required_in_c_p(frames, count)) return true;
  for (int i = 0; i < count; i++) {
    VALUE name = rb_profile_frame_method_name(frames[i]);
    if (RB_TYPE_P(name, T_STRING) && loads_p(name)) return true;
    if (!machinery_p(rb_profile_frame_path(frames[i]))) return false;
  }
  return false;
}

bool loading_p(VALUE io) {
  return rb_obj_class(io) == rb_cFile && called_by_machinery_p() && regular_p(io);
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
