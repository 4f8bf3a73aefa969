/* clock.c - see clock.h */
#include "clock.h"

struct clock_shift clock_shift;
