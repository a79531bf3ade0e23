/* taken.h - which steps of lives (common/life.h) were taken, for the two that stand before
 * sh_life_step(): tests/sim/lives.c and tests/unit/life_note.c. */
#ifndef SH_TESTS_TAKEN_H
#define SH_TESTS_TAKEN_H

#include "common/life.h"

#include <stdio.h>
#include <stdlib.h>

#define TAKEN_MAX_LIVES 16u
#define TAKEN_MAX_STATES 32u

struct taken {
    unsigned to[TAKEN_MAX_LIVES][TAKEN_MAX_STATES]; /* sets of SH_LIFE(to), by life and from */
};

/* Notes a step of the life at this place. True: it is the first such step. One for which there is
 * no room ends the process, or a step could be missing and nobody would know. */
static inline bool taken_note(struct taken *t, size_t life, const struct sh_life *l, unsigned from,
                              unsigned to)
{
    bool is_new;

    if (life >= TAKEN_MAX_LIVES || from >= TAKEN_MAX_STATES) {
        fprintf(stderr, "tests/taken.h: no room for the life of a %s\n", l->what);
        abort();
    }
    is_new = !(t->to[life][from] & SH_LIFE(to));
    t->to[life][from] |= SH_LIFE(to);
    return is_new;
}

#endif
