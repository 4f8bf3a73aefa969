/* ractor.h - everything of ours lives in the main ractor. Layer 1. */
#ifndef POLYPHONY_RACTOR_H
#define POLYPHONY_RACTOR_H

#include "polyphony.h"

void ractor_init(void);
/* Whether the caller runs in the main ractor. In others, which run beside it, stock methods are stock, and
 * our state must not be touched. */
bool ractor_main_p(void);
/* Raises Ractor::UnsafeError in others. */
void ractor_check(void);

#endif
