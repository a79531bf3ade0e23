/* places.c - see places.h. */
#include "executor/worker/places.h"

#include "common/mem.h"

bool places_again(struct places *p, const struct dev_bases *b, uint32_t groups)
{
    const uint32_t n = SH_MIN(p->n, (uint32_t)PLACES_MAX);
    bool again = false;

    for (uint32_t i = 0; i < n && !again; i++)
        again = p->at[i].b.image == b->image && p->at[i].b.workspace == b->workspace &&
                p->at[i].b.tables == b->tables && p->at[i].b.host_tables == b->host_tables &&
                p->at[i].groups == groups;
    p->at[p->n % PLACES_MAX].b = *b;
    p->at[p->n % PLACES_MAX].groups = groups;
    p->n++;
    return again;
}
