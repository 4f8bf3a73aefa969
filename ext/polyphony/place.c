/* place.c - see place.h */
#include "place.h"
#include <stdbool.h>

enum { MOST_FRAMES = 64 };

unsigned place_take(struct place_frame *frames, unsigned limit) {
  VALUE found[MOST_FRAMES];
  int lines[MOST_FRAMES];
  if (limit > MOST_FRAMES) limit = MOST_FRAMES;
  unsigned count = (unsigned)rb_profile_frames(0, (int)limit, found, lines);

  if (count > limit) return 0;  /* never; the compiler cannot know */
  for (unsigned i = 0; i < count; i++) frames[i] = (struct place_frame){ found[i], lines[i] };
  return count;
}

static struct place *allocate(const struct place_frame *frames, unsigned count) {
  struct place *place = xmalloc(sizeof(*place) + count * sizeof(frames[0]));

  place->owners = 0;
  place->count = count;
  place->brief = 0;
  for (unsigned i = 0; i < count; i++) place->frames[i] = frames[i];
  return place;
}

static bool same_p(const struct place *place, const struct place_frame *frames, unsigned count) {
  if (!place || place->count != count) return false;
  for (unsigned i = 0; i < count; i++)
    if (place->frames[i].frame != frames[i].frame || place->frames[i].line != frames[i].line)
      return false;
  return true;
}

struct place *place_share(struct place *place) {
  if (place) place->owners++;
  return place;
}

void place_release(struct place *place) {
  if (place && --place->owners == 0) xfree(place);
}

/* ---- those noted last -------------------------------------------------------------------------- */

enum { RECENT_PLACES = 16 };

static struct place *recent[RECENT_PLACES];

static struct place **slot_for(const struct place_frame *frames, unsigned count) {
  uintptr_t hash = count;

  for (unsigned i = 0; i < count && i < 4; i++) hash = hash * 31 + (frames[i].frame >> 3) + frames[i].line;
  return &recent[hash % RECENT_PLACES];
}

struct place *place_note(unsigned limit) {
  struct place_frame frames[MOST_FRAMES];
  unsigned count = place_take(frames, limit);
  struct place **slot = slot_for(frames, count);

  if (same_p(*slot, frames, count)) return place_share(*slot);
  struct place *place = allocate(frames, count);
  place_release(*slot);
  *slot = place;
  place->owners++;
  return place_share(place);
}

static void recent_mark(void *nothing) {
  (void)nothing;
  for (int i = 0; i < RECENT_PLACES; i++) place_mark(recent[i]);
}

static void recent_compact(void *nothing) {
  (void)nothing;
  for (int i = 0; i < RECENT_PLACES; i++) place_compact(recent[i]);
}

/* Not WB_PROTECTED on purpose: written at every other spin, and marked at every GC instead. */
static const rb_data_type_t recent_type = {
  .wrap_struct_name = "Polyphony::RecentPlaces",
  .function = { .dmark = recent_mark, .dcompact = recent_compact },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

void place_init(void) {
  rb_gc_register_mark_object(TypedData_Wrap_Struct(rb_cObject, &recent_type, recent));
}

/* ---- as text ------------------------------------------------------------------------------------ */

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
