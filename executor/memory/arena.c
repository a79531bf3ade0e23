/* arena.c - see arena.h. An array of segments in block order, no two neighbours alike. 139 GiB are
 * 71,168 blocks, but only a few segments for each image on the device, and a switch looks at all of
 * them. */
#include "executor/memory/arena.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

struct arena {
    uint32_t n, n_segs;
    uint32_t count[ARENA_N_KINDS];
    struct arena_seg *segs; /* OWNED; room for one a block, of which the end is never touched: a
                               switch may try out what it plans on a copy */
};

int arena_new(uint32_t n_blocks, struct arena **out, struct sh_err *err)
{
    struct arena *a = calloc(1, sizeof(*a));

    *out = NULL;
    if (a)
        a->segs = malloc(((size_t)n_blocks + 1) * sizeof(*a->segs)); /* not zeroed: see above */
    if (!a || !a->segs) {
        arena_free(a);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the map of %u blocks", n_blocks);
    }
    a->n = n_blocks;
    a->count[ARENA_FREE] = n_blocks;
    a->segs[0] = (struct arena_seg){.n = n_blocks, .kind = ARENA_FREE};
    a->n_segs = n_blocks > 0;
    *out = a;
    return SH_OK;
}

int arena_clone(const struct arena *a, struct arena **out, struct sh_err *err)
{
    int rc = arena_new(a->n, out, err);

    if (rc)
        return rc;
    memcpy((*out)->segs, a->segs, sizeof(*a->segs) * a->n_segs);
    memcpy((*out)->count, a->count, sizeof(a->count));
    (*out)->n_segs = a->n_segs;
    return SH_OK;
}

void arena_free(struct arena *a)
{
    if (!a)
        return;
    free(a->segs);
    free(a);
}

uint32_t arena_blocks(const struct arena *a)
{
    return a->n;
}

uint32_t arena_count(const struct arena *a, enum arena_kind k)
{
    return a->count[k];
}

/* ------------------------------------------------------------------ segments */

const struct arena_seg *arena_segs(const struct arena *a, uint32_t *n_out)
{
    *n_out = a->n_segs;
    return a->segs;
}

uint32_t arena_find(const struct arena *a, uint32_t block)
{
    uint32_t lo = 0, hi = a->n_segs;

    if (block >= a->n)
        return a->n_segs;
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (a->segs[mid].first <= block)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* Lets a segment begin at the block. There is room: each has one block at least. */
static uint32_t cut_segment(struct arena *a, uint32_t block)
{
    uint32_t i = arena_find(a, block);
    struct arena_seg *s = &a->segs[i];

    if (i == a->n_segs || s->first == block)
        return i;
    memmove(s + 1, s, (a->n_segs - i) * sizeof(*s));
    a->n_segs++;
    s[0].n = block - s->first;
    s[1].first = block;
    s[1].n -= s[0].n;
    return i + 1;
}

/* Joins neighbours that agree, among the segments [from, to) and the one on each side. */
static void join_segments(struct arena *a, uint32_t from, uint32_t to)
{
    uint32_t last = from > 0 ? from - 1 : 0;
    const uint32_t end = SH_MIN(to + 1, a->n_segs);

    for (uint32_t i = last + 1; i < end; i++) {
        struct arena_seg *l = &a->segs[last], *s = &a->segs[i];

        if (l->kind == s->kind && l->owner == s->owner && l->tag == s->tag)
            l->n += s->n;
        else
            a->segs[++last] = *s;
    }
    if (++last >= end)
        return;
    memmove(&a->segs[last], &a->segs[end], (a->n_segs - end) * sizeof(*a->segs));
    a->n_segs -= end - last;
}

/* The segments of a range, cut out of what they were part of, for the caller to change and join. */
static uint32_t cut_range(struct arena *a, struct arena_range r, uint32_t *end)
{
    uint32_t from = cut_segment(a, r.first);

    *end = cut_segment(a, r.first + r.n);
    return from;
}

static int check_arena_range(const struct arena *a, struct arena_range r, bool want_free,
                             struct sh_err *err)
{
    if (r.first > a->n || r.n > a->n - r.first)
        return SH_FAIL(err, SH_E_BUG, "blocks %u+%u lie outside of the arena of %u", r.first, r.n,
                       a->n);
    for (uint32_t i = arena_find(a, r.first); i < a->n_segs && a->segs[i].first < r.first + r.n;
         i++)
        if ((a->segs[i].kind == ARENA_FREE) != want_free)
            return SH_FAIL(err, SH_E_BUG, "block %u is %s", SH_MAX(a->segs[i].first, r.first),
                           want_free ? "taken" : "free");
    return SH_OK;
}

int arena_take(struct arena *a, struct arena_range r, enum arena_kind k, uint32_t owner,
               struct sh_err *err)
{
    int rc = check_arena_range(a, r, true, err);
    uint32_t from, end;

    if (rc)
        return rc;
    from = cut_range(a, r, &end);
    for (uint32_t i = from; i < end; i++) {
        a->segs[i].kind = k;
        a->segs[i].owner = owner;
    }
    join_segments(a, from, end);
    a->count[ARENA_FREE] -= r.n;
    a->count[k] += r.n;
    return SH_OK;
}

int arena_give(struct arena *a, struct arena_range r, uint32_t tag, struct sh_err *err)
{
    int rc = check_arena_range(a, r, false, err);
    uint32_t from, end;

    if (rc)
        return rc;
    from = cut_range(a, r, &end);
    for (uint32_t i = from; i < end; i++) {
        struct arena_seg *s = &a->segs[i];

        a->count[s->kind] -= s->n;
        *s = (struct arena_seg){.first = s->first, .n = s->n, .kind = ARENA_FREE, .tag = tag};
    }
    join_segments(a, from, end);
    a->count[ARENA_FREE] += r.n;
    return SH_OK;
}

void arena_set_tag(struct arena *a, struct arena_range r, uint32_t tag)
{
    uint32_t end, from = cut_range(a, r, &end);

    for (uint32_t i = from; i < end; i++)
        a->segs[i].tag = tag;
    join_segments(a, from, end);
}

void arena_scrubbed(struct arena *a, struct arena_range r)
{
    uint32_t end, from = cut_range(a, r, &end);

    for (uint32_t i = from; i < end; i++)
        if (a->segs[i].tag == ARENA_SCRUBBING)
            a->segs[i].tag = ARENA_CLEAN;
    join_segments(a, from, end);
}

bool arena_has_tag(const struct arena *a, struct arena_range r, uint32_t tag)
{
    for (uint32_t i = arena_find(a, r.first); i < a->n_segs && a->segs[i].first < r.first + r.n;
         i++)
        if (a->segs[i].tag == tag)
            return true;
    return false;
}

struct arena_seg arena_seg_at(const struct arena *a, uint32_t from)
{
    const uint32_t i = arena_find(a, from);
    struct arena_seg s = {.first = from};

    if (i < a->n_segs) {
        s = a->segs[i];
        s.n -= from - s.first;
        s.first = from;
    }
    return s;
}
