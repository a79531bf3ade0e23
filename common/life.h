/* life.h - the states of a thing, and which may follow which.
 *
 * A step that the table lacks is a bug of ours, and what follows could be a wrong answer. So it
 * ends the process, in release builds too. Whoever started the process starts it again, from what
 * is on disk. */
#ifndef SH_COMMON_LIFE_H
#define SH_COMMON_LIFE_H

#include <stdbool.h>
#include <stdint.h>

#define SH_LIFE(state) (1u << (state))
struct sh_life {
    const char *what;         /* "worker" */
    unsigned n;               /* states, at most 32 */
    const char *const *names; /* [n] */
    const unsigned *next;     /* [n]: bits SH_LIFE(state) */
};

bool sh_life_may(const struct sh_life *l, unsigned from, unsigned to);
/* Returns `to`, the new state. id: names the thing in the log. */
unsigned sh_life_step(const struct sh_life *l, unsigned from, unsigned to, int64_t id);

#endif
