/* life.c - see life.h. */
#include "common/life.h"

#include "common/log.h"

#include <inttypes.h>
#include <stdlib.h>

static const char *state_name(const struct sh_life *l, unsigned state)
{
    return state < l->n ? l->names[state] : "?";
}

bool sh_life_may(const struct sh_life *l, unsigned from, unsigned to)
{
    return from < l->n && to < l->n && (l->next[from] & SH_LIFE(to));
}

unsigned sh_life_step(const struct sh_life *l, unsigned from, unsigned to, int64_t id)
{
    if (sh_life_may(l, from, to))
        return to;
    SH_ERROR("life.bug", "%s=%" PRId64 " from=%s to=%s msg=\"this cannot be; the process ends\"",
             l->what, id, state_name(l, from), state_name(l, to));
    abort();
}
