/* prepared.c - see prepared.h. A run looks its range up in the table of its plan; only who adds one
 * to a full device looks at those of all plans. */
#include "runtime/device/prepared.h"

#include "common/mem.h"

#include <stdlib.h>

struct dev_prepared {
    struct dev_prepared_all *all; /* BORROWED */
    struct dev_prepared *next;
    struct dev_range of[DEV_MAX_PREPARED];
    void *what[DEV_MAX_PREPARED];    /* OWNED by the back end */
    uint64_t used[DEV_MAX_PREPARED]; /* the turn of the last use */
    uint32_t n;
};

int dev_prepared_new(struct dev_prepared_all *a, struct dev_prepared **out, struct sh_err *err)
{
    struct dev_prepared *p = calloc(1, sizeof(*p));

    *out = p;
    if (!p)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the prepared ranges of a plan");
    p->all = a;
    p->next = a->first;
    a->first = p;
    return SH_OK;
}

void dev_prepared_free(struct dev_prepared *p)
{
    struct dev_prepared **at = p ? &p->all->first : NULL;

    if (!p)
        return;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    free(p);
}

void *dev_prepared_find(struct dev_prepared *p, const struct dev_range *r)
{
    for (uint32_t i = 0; i < p->n; i++) {
        const struct dev_range *o = &p->of[i];

        if (o->from == r->from && o->to == r->to && o->arena == r->arena && o->image == r->image &&
            o->workspace == r->workspace && o->tables == r->tables &&
            o->host_tables == r->host_tables) {
            p->used[i] = ++p->all->turn;
            return p->what[i];
        }
    }
    return NULL;
}

static void *take_range(struct dev_prepared *p, uint32_t i)
{
    void *what = p->what[i];

    p->n--;
    p->all->n--;
    p->of[i] = p->of[p->n];
    p->what[i] = p->what[p->n];
    p->used[i] = p->used[p->n];
    return what;
}

static uint32_t oldest_range(const struct dev_prepared *p)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < p->n; i++)
        if (p->used[i] < p->used[best])
            best = i;
    return best;
}

static void *take_oldest_of_all(const struct dev_prepared_all *a)
{
    struct dev_prepared *best = NULL;
    uint32_t at = 0;

    for (struct dev_prepared *p = a->first; p; p = p->next) {
        const uint32_t i = oldest_range(p);

        if (p->n > 0 && (!best || p->used[i] < best->used[at])) {
            best = p;
            at = i;
        }
    }
    return best ? take_range(best, at) : NULL;
}

void *dev_prepared_add(struct dev_prepared *p, const struct dev_range *r, void *what)
{
    void *gone = NULL;

    if (p->n == DEV_MAX_PREPARED)
        gone = take_range(p, oldest_range(p));
    else if (p->all->n == DEV_MAX_PREPARED_ALL)
        gone = take_oldest_of_all(p->all);
    p->of[p->n] = *r;
    p->what[p->n] = what;
    p->used[p->n++] = ++p->all->turn;
    p->all->n++;
    return gone;
}

void *dev_prepared_pop(struct dev_prepared *p)
{
    return p->n > 0 ? take_range(p, p->n - 1) : NULL;
}
