/* place.c - see place.h */
#include "place.h"

enum { MOST_FRAMES = 64 };

static struct place *allocate(unsigned count) {
  struct place *place = xmalloc(sizeof(*place) + count * sizeof(place->frames[0]));

  place->count = count;
  return place;
}

static void tell_owner(VALUE owner, const struct place *place) {
  for (unsigned i = 0; i < place->count; i++) RB_OBJ_WRITTEN(owner, Qundef, place->frames[i].frame);
}

unsigned place_take(struct place_frame *frames, unsigned limit) {
  VALUE found[MOST_FRAMES];
  int lines[MOST_FRAMES];
  if (limit > MOST_FRAMES) limit = MOST_FRAMES;
  unsigned count = (unsigned)rb_profile_frames(0, (int)limit, found, lines);

  if (count > limit) return 0;  /* never; the compiler cannot know */
  for (unsigned i = 0; i < count; i++) frames[i] = (struct place_frame){ found[i], lines[i] };
  return count;
}

struct place *place_note(VALUE owner, unsigned limit) {
  struct place_frame frames[MOST_FRAMES];
  unsigned count = place_take(frames, limit);
  struct place *place = allocate(count);

  memcpy(place->frames, frames, count * sizeof(frames[0]));
  tell_owner(owner, place);
  return place;
}

struct place *place_copy(VALUE owner, const struct place *place) {
  if (!place) return NULL;
  struct place *copy = allocate(place->count);

  memcpy(copy->frames, place->frames, place->count * sizeof(place->frames[0]));
  tell_owner(owner, copy);
  return copy;
}

VALUE place_describe(const struct place_frame *at) {
  VALUE frame = at->frame;

  return rb_ary_new_from_args(5, rb_profile_frame_path(frame), INT2NUM(at->line),
                              rb_profile_frame_label(frame), rb_profile_frame_full_label(frame),
                              rb_profile_frame_method_name(frame));
}

VALUE place_frames(const struct place *place) {
  VALUE array = rb_ary_new();

  for (unsigned i = 0; place && i < place->count; i++)
    rb_ary_push(array, place_describe(&place->frames[i]));
  return array;
}

void place_mark(const struct place *place) {
  for (unsigned i = 0; place && i < place->count; i++) rb_gc_mark_movable(place->frames[i].frame);
}

void place_compact(struct place *place) {
  for (unsigned i = 0; place && i < place->count; i++)
    place->frames[i].frame = rb_gc_location(place->frames[i].frame);
}

void place_free(struct place *place) { xfree(place); }
