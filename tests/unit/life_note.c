/* life_note.c - stands before sh_life_step() in the unit tests of `make coverage`, and appends each
 * step of a life that is taken, once, to the file that SHUNT_LIVES names. As tests/sim/lives.c. */
#include "tests/taken.h"

static const struct sh_life *lives[TAKEN_MAX_LIVES]; /* as they come */
static struct taken taken;

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

    while (i < TAKEN_MAX_LIVES && lives[i] && lives[i] != l)
        i++;
    if (i < TAKEN_MAX_LIVES)
        lives[i] = l;
    if (taken_note(&taken, i, l, from, to))
        note(l, from, to);
    return out;
}
