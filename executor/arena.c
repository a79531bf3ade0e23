/* arena.c - see arena.h. One small record a block: 139 GiB are 71,168 of them. */
#include "executor/arena.h"

#include <stdlib.h>
#include <string.h>

struct block {
    uint32_t owner, tag;
    uint8_t kind;
};

struct arena {
    uint32_t n;
    uint32_t count[ARENA_N_KINDS];
    struct block *blocks;
};

int arena_new(uint32_t n_blocks, struct arena **out, struct sh_err *err)
{
    struct arena *a = calloc(1, sizeof(*a));

    *out = NULL;
    if (a)
        a->blocks = calloc((size_t)n_blocks + 1, sizeof(*a->blocks));
    if (!a || !a->blocks) {
        arena_free(a);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the map of %u blocks", n_blocks);
    }
    a->n = n_blocks;
    a->count[ARENA_FREE] = n_blocks;
    *out = a;
    return SH_OK;
}

int arena_clone(const struct arena *a, struct arena **out, struct sh_err *err)
{
    int rc = arena_new(a->n, out, err);

    if (rc)
        return rc;
    memcpy((*out)->blocks, a->blocks, sizeof(*a->blocks) * a->n);
    memcpy((*out)->count, a->count, sizeof(a->count));
    return SH_OK;
}

void arena_free(struct arena *a)
{
    if (!a)
        return;
    free(a->blocks);
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

static int check(const struct arena *a, struct arena_range r, bool want_free, struct sh_err *err)
{
    if (r.first > a->n || r.n > a->n - r.first)
        return SH_FAIL(err, SH_E_BUG, "blocks %u+%u lie outside of the arena of %u", r.first, r.n,
                       a->n);
    for (uint32_t b = r.first; b < r.first + r.n; b++)
        if ((a->blocks[b].kind == ARENA_FREE) != want_free)
            return SH_FAIL(err, SH_E_BUG, "block %u is %s", b, want_free ? "taken" : "free");
    return SH_OK;
}

int arena_take(struct arena *a, struct arena_range r, enum arena_kind k, uint32_t owner,
               struct sh_err *err)
{
    int rc = check(a, r, true, err);

    if (rc)
        return rc;
    for (uint32_t b = r.first; b < r.first + r.n; b++) {
        a->blocks[b].kind = (uint8_t)k;
        a->blocks[b].owner = owner;
    }
    a->count[ARENA_FREE] -= r.n;
    a->count[k] += r.n;
    return SH_OK;
}

int arena_give(struct arena *a, struct arena_range r, uint32_t tag, struct sh_err *err)
{
    int rc = check(a, r, false, err);

    if (rc)
        return rc;
    for (uint32_t b = r.first; b < r.first + r.n; b++) {
        a->count[a->blocks[b].kind]--;
        a->blocks[b] = (struct block){.kind = ARENA_FREE, .tag = tag};
    }
    a->count[ARENA_FREE] += r.n;
    return SH_OK;
}

void arena_set_tag(struct arena *a, struct arena_range r, uint32_t tag)
{
    for (uint32_t b = r.first; b < r.first + r.n && b < a->n; b++)
        a->blocks[b].tag = tag;
}

void arena_scrubbed(struct arena *a, struct arena_range r)
{
    for (uint32_t b = r.first; b < r.first + r.n && b < a->n; b++)
        if (a->blocks[b].tag == ARENA_SCRUBBING)
            a->blocks[b].tag = ARENA_CLEAN;
}

bool arena_has_tag(const struct arena *a, struct arena_range r, uint32_t tag)
{
    for (uint32_t b = r.first; b < r.first + r.n && b < a->n; b++)
        if (a->blocks[b].tag == tag)
            return true;
    return false;
}

struct arena_seg arena_seg_at(const struct arena *a, uint32_t from)
{
    struct arena_seg s = {.first = from};
    const struct block *x;

    if (from >= a->n)
        return s;
    x = &a->blocks[from];
    s.kind = (enum arena_kind)x->kind;
    s.owner = x->owner;
    s.tag = x->tag;
    while (from + s.n < a->n && a->blocks[from + s.n].kind == x->kind &&
           a->blocks[from + s.n].owner == x->owner && a->blocks[from + s.n].tag == x->tag)
        s.n++;
    return s;
}
