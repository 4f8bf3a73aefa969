/* fd.c - see fd.h */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fd.h"
#include "io.h"
#include "list.h"
#include "pipe.h"
#include "stand_in.h"

/* ---- from object to descriptor --------------------------------------------------------------- */

static VALUE unwrap(VALUE io) {
  if (RB_TYPE_P(io, T_FILE)) return io;
  if (!RB_SPECIAL_CONST_P(io)) {
    VALUE inner = rb_ivar_get(io, id_io);
    if (!NIL_P(inner)) return unwrap(inner);
    if (rb_respond_to(io, id_to_io)) return rb_convert_type(io, T_FILE, "IO", "to_io");
  }
  rb_raise(rb_eTypeError, "expected an IO, a Polyphony::Pipe or a descriptor, got %"PRIsVALUE,
           rb_inspect(io));
}

static int checked(VALUE number) {
  int fd = NUM2INT(number);

  if (fd < 0) rb_raise(rb_eArgError, "a descriptor cannot be negative, got %d", fd);
  return fd;
}

int fd_of(VALUE io, enum fd_direction direction) {
  int fd;

  if (!RB_TYPE_P(io, T_FILE)) {
    if (RB_INTEGER_TYPE_P(io)) return checked(io);
    if (pipe_descriptor(io, direction, &fd)) return fd;
    io = unwrap(io);
  }
  if (direction == FD_READ) return rb_io_descriptor(io);
  VALUE write_io = rb_io_get_write_io(io);
  if (compat_buffered_p(write_io)) {
    fd_drain(write_io);
    rb_io_flush(write_io);      /* what was printed before comes before */
  }
  return rb_io_descriptor(write_io);
}

void fd_drain(VALUE io) {
  if (!compat_unwritten_p(io)) return;
  if (stand_in_wanted_p()) stand_in_run(io_drain, io);
  else if (stand_in_scheduled_p()) io_drain(io);
}

/* ---- read-ahead ------------------------------------------------------------------------------ */

struct ahead {
  struct list link;
  dev_t device;
  ino_t inode;
  int fd;                       /* number it was read through: tells when it has been closed */
  size_t length;
  char bytes[];
};

static struct list aheads = { &aheads, &aheads };
unsigned fd_ahead_count = 0;

static void discard(struct ahead *ahead) {
  list_remove(&ahead->link);
  fd_ahead_count--;
  free(ahead);
}

static bool same_file_p(const struct ahead *ahead, const struct stat *st) {
  return ahead->device == st->st_dev && ahead->inode == st->st_ino;
}

/* Files closed behind our back. One that lives on under another number only is lost with it. */
static void purge(void) {
  for (struct list *node = aheads.next, *next; node != &aheads; node = next) {
    struct ahead *ahead = list_entry(node, struct ahead, link);
    struct stat st;
    next = node->next;
    if (fstat(ahead->fd, &st) < 0 || !same_file_p(ahead, &st)) discard(ahead);
  }
}

static struct ahead *find(int fd) {
  static unsigned lookups;
  struct stat st;

  if (!fd_ahead_count || fstat(fd, &st) < 0) return NULL;
  if (++lookups % 64 == 0) purge();
  list_each(node, &aheads) {
    struct ahead *ahead = list_entry(node, struct ahead, link);
    if (same_file_p(ahead, &st)) return ahead;
  }
  return NULL;
}

void *fd_malloc(size_t size) {
  void *memory = malloc(size);

  if (memory) return memory;
  rb_gc();
  return malloc(size);
}

static struct ahead *new_ahead(int fd, const struct stat *st, const char *bytes, size_t length) {
  struct ahead *ahead = fd_malloc(sizeof(*ahead) + length);

  if (!ahead) rb_fatal("no memory for %zu bytes that a cancelled read had taken", length);
  *ahead = (struct ahead){ .device = st->st_dev, .inode = st->st_ino, .fd = fd, .length = length };
  memcpy(ahead->bytes, bytes, length);
  fd_ahead_count++;
  return ahead;
}

static void give_back(int fd, const char *bytes, size_t length, bool first) {
  struct stat st;

  if (!length || fstat(fd, &st) < 0) return;
  if (S_ISREG(st.st_mode)) {
    lseek(fd, -(off_t)length, SEEK_CUR);
    return;
  }
  purge();
  struct ahead *ahead = new_ahead(fd, &st, bytes, length);
  if (first) list_unshift(&aheads, &ahead->link);
  else list_push(&aheads, &ahead->link);
}

void fd_give_back(int fd, const char *bytes, size_t length) { give_back(fd, bytes, length, false); }

void fd_put_back(int fd, const char *bytes, size_t length) { give_back(fd, bytes, length, true); }

size_t fd_take_ahead(int fd, char *into, size_t length) {
  struct ahead *ahead = find(fd);

  if (!ahead) return 0;
  size_t taken = ahead->length < length ? ahead->length : length;
  memcpy(into, ahead->bytes, taken);
  memmove(ahead->bytes, ahead->bytes + taken, ahead->length - taken);
  ahead->length -= taken;
  if (!ahead->length) discard(ahead);
  return taken;
}

bool fd_has_ahead(int fd) { return find(fd) != NULL; }

/* Only the last descriptor of a file takes its read-ahead along; which one is the last cannot be
 * known, so it stays while the file is open under the number it was read through. */
void fd_forget(int fd) {
  for (struct list *node = aheads.next, *next; node != &aheads; node = next) {
    struct ahead *ahead = list_entry(node, struct ahead, link);
    next = node->next;
    if (ahead->fd == fd) discard(ahead);
  }
}

void fd_after_fork(void) {
  while (!list_empty_p(&aheads)) discard(list_entry(aheads.next, struct ahead, link));
}
