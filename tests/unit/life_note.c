/* life_note.c - stands before sh_life_step() in the unit tests of `make coverage`, and appends each
 * step of a life that is taken, once, to the file that SHUNT_LIVES names. As tests/sim/lives.c. */
#include "common/life.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_LIVES 16
#define MAX_STATES 32

static struct noted {
    const struct sh_life *life;
    unsigned taken[MAX_STATES];
} noted[MAX_LIVES];

unsigned __real_sh_life_step(const struct sh_life *l, unsigned from, unsigned to, int64_t id);
unsigned __wrap_sh_life_step(const struct sh_life *l, unsigned from, unsigned to, int64_t id);

static void note(const struct sh_life *l, unsigned from, unsigned to)
{
    const char *path = getenv("SHUNT_LIVES");
    FILE *f = path ? fopen(path, "ae") : NULL;

    if (!f)
        return;
    fprintf(f, "%s %s -> %s\n", l->what, l->names[from], l->names[to]);
    fclose(f);
}

unsigned __wrap_sh_life_step(const struct sh_life *l, unsigned from, unsigned to, int64_t id)
{
    const unsigned out = __real_sh_life_step(l, from, to, id); /* or the end of the process */
    size_t i = 0;

    while (i < MAX_LIVES && noted[i].life && noted[i].life != l)
        i++;
    if (i == MAX_LIVES)
        return out;
    noted[i].life = l;
    if (!(noted[i].taken[from] & SH_LIFE(to)))
        note(l, from, to);
    noted[i].taken[from] |= SH_LIFE(to);
    return out;
}
