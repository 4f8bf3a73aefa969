/* place.h - where in the program something was done, kept as Ruby's own frames and turned into text
 * only when somebody asks. Layer 1.
 * A frame costs about 13 ns to note; a line of backtrace text a hundred times that. */
#ifndef POLYPHONY_PLACE_H
#define POLYPHONY_PLACE_H

#include "polyphony.h"

struct place {
  unsigned owners;              /* most spins come from a few places: they are shared */
  unsigned count;
  int brief;                    /* how many fibers from here ended without waiting, see starter.h */
  struct place_frame {
    VALUE frame;                /* an iseq or method entry */
    int line;                   /* 0 in a C function */
  } frames[];
};

/* The frames of the running fiber, innermost first; returns how many. The caller tells its object. */
unsigned place_take(struct place_frame *frames, unsigned limit);

/* The same, at most limit of them, for an object that will mark them and is yet to be made: none is told. Raises NoMemoryError. */
struct place *place_note(unsigned limit);
struct place *place_share(struct place *place);        /* NULL for NULL */

/* Of a frame: [path or nil, line, label, label with class, method name]. */
VALUE place_describe(const struct place_frame *frame);
VALUE place_frames(const struct place *place);         /* Array of them; empty for NULL */

void place_mark(const struct place *place);            /* each of these takes NULL, too */
void place_compact(struct place *place);
void place_release(struct place *place);

void place_init(void);                                 /* once, at load */

#endif
