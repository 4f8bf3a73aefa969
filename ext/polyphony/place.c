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

struct place *place_note(VALUE owner, int limit) {
  VALUE frames[MOST_FRAMES];
  int lines[MOST_FRAMES];
  int count = rb_profile_frames(1, limit < MOST_FRAMES ? limit : MOST_FRAMES, frames, lines);
  struct place *place = allocate((unsigned)count);

  for (int i = 0; i < count; i++) place->frames[i] = (struct place_frame){ frames[i], lines[i] };
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

VALUE place_frames(const struct place *place) {
  VALUE array = rb_ary_new();

  for (unsigned i = 0; place && i < place->count; i++) {
    VALUE frame = place->frames[i].frame;
    rb_ary_push(array, rb_ary_new_from_args(5, rb_profile_frame_path(frame),
                                            INT2NUM(place->frames[i].line),
                                            rb_profile_frame_label(frame),
                                            rb_profile_frame_full_label(frame),
                                            rb_profile_frame_method_name(frame)));
  }
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
