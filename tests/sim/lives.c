/* lives.c - see lives.h: stands before sh_life_step(). */
#include "tests/sim/lives.h"

#include "tests/lives.h"
#include "tests/sim/world.h"

#include <stdio.h>

struct taken sim_lives;
_Static_assert(N_LIVES <= TAKEN_MAX_LIVES, "tests/taken.h has room for all lives");

unsigned __real_sh_life_step(const struct sh_life *l, unsigned from, unsigned to, int64_t id);
unsigned __wrap_sh_life_step(const struct sh_life *l, unsigned from, unsigned to, int64_t id);

unsigned __wrap_sh_life_step(const struct sh_life *l, unsigned from, unsigned to, int64_t id)
{
    size_t i = 0;

    while (i < N_LIVES && LIVES[i] != l)
        i++;
    SIM_CHECK("lives", i < N_LIVES, "the life of a %s is not in tests/lives.h", l->what);
    taken_note(&sim_lives, i, l, from, to);
    return __real_sh_life_step(l, from, to, id);
}

void sim_lives_add(struct taken *to, const struct taken *more)
{
    for (size_t i = 0; i < TAKEN_MAX_LIVES; i++)
        for (size_t s = 0; s < TAKEN_MAX_STATES; s++)
            to->to[i][s] |= more->to[i][s];
}

void sim_lives_print(const struct taken *l)
{
    unsigned n = 0, n_taken = 0;

    for (size_t i = 0; i < N_LIVES; i++)
        for (unsigned from = 0; from < LIVES[i]->n; from++)
            for (unsigned to = 0; to < LIVES[i]->n; to++) {
                const bool is_taken = l->to[i][from] & SH_LIFE(to);

                if (!sh_life_may(LIVES[i], from, to))
                    continue;
                n++;
                n_taken += is_taken;
                if (!is_taken)
                    printf("not taken: %s %s -> %s\n", LIVES[i]->what, LIVES[i]->names[from],
                           LIVES[i]->names[to]);
            }
    printf("lives: %u of %u steps taken\n", n_taken, n);
}
