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

/* ---- who reads mostly ------------------------------------------------------------------------
 * What stands above decides by at most so many frames, and the first that is not a C function's mostly ends it. To ask
 * for names and paths takes a tenth of what a read of 64 KiB does, so those who were found to be no machinery are remembered. */

enum { NEAR = 4, READERS = 16 };

struct reader {
  VALUE frames[NEAR];           /* up to the first of Ruby code; 0 behind that */
};

static struct reader readers[READERS];

/* Pinned: the addresses are the key. What is marked is not used again for another frame. */
static void readers_mark(void *nothing) {
  (void)nothing;
  for (int i = 0; i < READERS; i++)
    for (int j = 0; j < NEAR && readers[i].frames[j]; j++) rb_gc_mark(readers[i].frames[j]);
}

/* Not WB_PROTECTED on purpose: marked at every GC instead. */
static const rb_data_type_t readers_type = {
  .wrap_struct_name = "Polyphony::Readers",
  .function = { .dmark = readers_mark },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

void loading_init(void) {
  rb_gc_register_mark_object(TypedData_Wrap_Struct(rb_cObject, &readers_type, readers));
}

/* The frames up to the first of Ruby code; returns how many, 0 if that is further away. C functions have no line. */
static int nearest(struct reader *reader) {
  VALUE frames[NEAR];
  int lines[NEAR], count = rb_profile_frames(0, NEAR, frames, lines), n = 0;

  while (n < count && !lines[n]) n++;
  if (n >= count) return 0;
  for (int i = 0; i < NEAR; i++) reader->frames[i] = i <= n ? frames[i] : 0;
  return n + 1;
}

static struct reader *slot_for(const struct reader *reader) {
  uintptr_t hash = 0;

  for (int i = 0; i < NEAR; i++) hash = hash * 31 + (reader->frames[i] >> 3);
  return &readers[hash % READERS];
}

static bool same_p(const struct reader *a, const struct reader *b) { return !memcmp(a, b, sizeof(*a)); }

/* Code of the file that is being loaded is not meant: its frame comes first. Sets *decided_by to the number of frames it took. */
static bool machinery_calls_p(int *decided_by) {
  VALUE frames[FRAMES];
  int lines[FRAMES], count = rb_profile_frames(0, FRAMES, frames, lines);

  if (required_in_c_p(frames, count)) return true;
  for (int i = 0; i < count; i++) {
    VALUE name = rb_profile_frame_method_name(frames[i]);
    if (RB_TYPE_P(name, T_STRING) && loads_p(name)) return true;
    *decided_by = i + 1;
    if (!machinery_p(rb_profile_frame_path(frames[i]))) return false;
  }
  return false;
}

/* required_in_c_p looks at two frames. */
static bool called_by_machinery_p(void) {
  struct reader reader = { { 0 } };
  int count = nearest(&reader), decided_by = 0;

  if (count && same_p(slot_for(&reader), &reader)) return false;
  if (machinery_calls_p(&decided_by)) return true;
  if (count && decided_by == count && count >= 2) *slot_for(&reader) = reader;
  return false;
}

/* ---- reading -------------------------------------------------------------------------------- */

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
