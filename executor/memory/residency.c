/* residency.c - see residency.h.
 *
 * Finding room is a search over windows of the block map. A window costs what would be lost: blocks
 * of candidates from the first one covered to the end of their prefix (those after keep_blocks
 * count little), the move of the image's own head, and blocks to scrub. The cheapest window touches
 * the edge of a segment, so only such windows are tried, and only in runs of available blocks that
 * are long enough.
 *
 * replacement.c decides which image gives way.
 */
#include "common/mem.h"
#include "executor/memory/residency_int.h"

#include <stdlib.h>
#include <string.h>

#define NONE RESIDENCY_NO_IMAGE
#define COST_EVICT_KEPT 64u
#define COST_EVICT 16u
#define COST_EVICT_BACKED 2u
#define COST_MOVE 8u
#define COST_SCRUB 1u

static const struct residency_quota NO_QUOTA = {.max_blocks = RESIDENCY_NO_MAX, .share = 1};

struct want {         /* what a search is for */
    uint32_t n, self; /* self: image whose own blocks count as free; NONE */
    uint32_t spare;   /* image that must stay; NONE */
    uint32_t tag;
    bool packs;                          /* for a packed copy */
    bool may_evict, scrub_matters, high; /* high: prefer the far end of the arena */
};

static int make_images(struct residency *r, struct sh_err *err)
{
    r->images = calloc((size_t)r->ends + 1, sizeof(*r->images));
    return r->images ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate %u images", r->ends);
}

int residency_new(uint32_t n_blocks, const struct residency_conf *conf, struct residency **out,
                  struct sh_err *err)
{
    struct residency *r = calloc(1, sizeof(*r));
    int rc;

    *out = NULL;
    if (!r)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the table of images");
    r->ends = conf->max_images ? conf->max_images : RESIDENCY_IMAGES;
    rc = make_images(r, err);
    if (!rc)
        rc = arena_new(n_blocks, &r->arena, err);
    if (rc) {
        residency_free(r);
        return rc;
    }
    r->conf = *conf;
    r->conf.n_chance = SH_MAX(conf->n_chance, 1u);
    r->conf.n_costly = conf->n_costly ? conf->n_costly : r->conf.n_chance;
    r->max_active = (uint32_t)(n_blocks * (1 - conf->second_share) + 0.5);
    r->hand = NONE;
    r->images[r->ends].newer = r->images[r->ends].older = r->ends;
    *out = r;
    return SH_OK;
}

static int grow_tenants(struct residency *r, size_t n, struct sh_err *err)
{
    return sh_grow(&r->tenants, &r->cap_tenants, n, sizeof(*r->tenants), (size_t)1 << 20,
                   "tenants of device memory", err);
}

int residency_clone(const struct residency *r, struct residency **out, struct sh_err *err)
{
    struct residency *c = malloc(sizeof(*c));
    int rc;

    *out = NULL;
    if (!c)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the table of images");
    *c = *r;
    c->arena = NULL;
    c->tenants = NULL;
    c->cap_tenants = 0;
    rc = make_images(c, err);
    if (!rc)
        rc = arena_clone(r->arena, &c->arena, err);
    if (!rc)
        rc = grow_tenants(c, r->n_tenants, err);
    if (rc) {
        residency_free(c);
        return rc;
    }
    for (size_t i = 0; i < r->n_tenants; i++)
        c->tenants[i] = r->tenants[i];
    memcpy(c->images, r->images, r->n_images * sizeof(*r->images));
    c->images[c->ends] = r->images[r->ends];
    *out = c;
    return SH_OK;
}

void residency_free(struct residency *r)
{
    if (!r)
        return;
    arena_free(r->arena);
    free(r->tenants);
    free(r->images);
    free(r);
}

struct residency_counts residency_counts(const struct residency *r)
{
    return r->counts;
}

struct arena *residency_arena(struct residency *r)
{
    return r->arena;
}

/* ------------------------------------------------------------------ images */

static int know_tenant(struct residency *r, uint32_t tag, struct sh_err *err)
{
    int rc = grow_tenants(r, (size_t)tag + 1, err);

    while (!rc && r->n_tenants <= tag)
        r->tenants[r->n_tenants++].quota = NO_QUOTA;
    return rc;
}

int residency_add(struct residency *r, const struct residency_image *im, uint32_t *id_out,
                  struct sh_err *err)
{
    uint32_t id = 0;
    int rc;

    if (im->n_blocks > arena_blocks(r->arena))
        return SH_FAIL(err, SH_E_TOOBIG,
                       "the weights need %zu MiB, the device pool has %zu MiB; raise pool-bytes",
                       (size_t)im->n_blocks * 2, (size_t)arena_blocks(r->arena) * 2);
    while (id < r->n_images && r->images[id].is_used)
        id++;
    if (id == r->ends)
        return SH_FAIL(
            err, SH_E_TOOBIG,
            "device memory has %u images, as many as max-loaded-versions allows; unload one",
            r->ends);
    rc = know_tenant(r, im->tag, err);
    if (rc)
        return rc;
    if (id == r->n_images)
        r->n_images++;
    r->images[id] = (struct image){.conf = *im, .is_used = true, .backed_by = NONE, .backs = NONE};
    replacement__order_insert(r, id);
    *id_out = id;
    return SH_OK;
}

/* Of the blocks that leave it. */
static uint32_t left_tag(const struct image *im)
{
    return im->is_packed ? ARENA_FOREIGN : im->conf.tag;
}

/* A part of a packed copy is of no use, nor is one of what has such a copy: all is unpacked. */
static bool leaves_whole(const struct residency *r, const struct image *im)
{
    return im->conf.is_whole || replacement__is_backed(r, im);
}

static void cut_image(struct residency *r, uint32_t id, uint32_t blocks, uint32_t tag)
{
    struct image *im = &r->images[id];

    if (blocks >= im->held || im->pins)
        return;
    if (leaves_whole(r, im) && blocks < residency__needs(im))
        blocks = 0;
    /* Cannot fail: these blocks are the image's. */
    arena_give(r->arena, (struct arena_range){im->first + blocks, im->held - blocks}, tag, NULL);
    im->held = blocks;
    if (blocks == 0)
        replacement__remove(r, id);
}

void residency_truncate(struct residency *r, uint32_t id, uint32_t blocks)
{
    cut_image(r, id, blocks, left_tag(&r->images[id]));
}

void residency_forget(struct residency *r, uint32_t id, uint32_t blocks)
{
    cut_image(r, id, blocks, ARENA_FOREIGN);
}

void residency_remove(struct residency *r, uint32_t id)
{
    residency_truncate(r, id, 0);
    replacement__order_remove(r, id);
    r->images[id].is_used = false;
    if (r->images[id].backs != NONE)
        r->images[r->images[id].backs].backed_by = NONE;
    if (r->images[id].backed_by != NONE)
        r->images[r->images[id].backed_by].backs = NONE;
}

void residency_pin(struct residency *r, uint32_t id)
{
    r->images[id].pins++;
}

void residency_unpin(struct residency *r, uint32_t id)
{
    struct image *im = &r->images[id];

    if (im->pins && --im->pins == 0 && im->held > residency__needs(im))
        cut_image(r, id, residency__needs(im), im->is_unfilled ? ARENA_FOREIGN : left_tag(im));
    im->is_unfilled = im->is_unfilled && im->pins;
}

uint32_t residency_pins(const struct residency *r, uint32_t id)
{
    return r->images[id].pins;
}

void residency_unpin_all(struct residency *r)
{
    for (uint32_t id = 0; id < r->n_images; id++)
        r->images[id].pins = 0;
}

void residency_stick(struct residency *r, uint32_t id, bool is_sticky)
{
    r->images[id].is_sticky = is_sticky;
}

void residency_set_packed(struct residency *r, uint32_t id, bool is_packed)
{
    r->images[id].is_packed = is_packed;
}

void residency_set_costly(struct residency *r, uint32_t id, bool is_costly)
{
    r->images[id].is_costly = is_costly;
}

bool residency_is_sticky(const struct residency *r, uint32_t id)
{
    return r->images[id].is_sticky;
}

void residency_touch(struct residency *r, uint32_t id, int64_t now_ns)
{
    replacement__order_remove(r, id);
    r->images[id].last_use_ns = now_ns;
    replacement__order_insert(r, id);
    replacement__use(r, id);
}

uint32_t residency_held(const struct residency *r, uint32_t id)
{
    return r->images[id].held;
}

uint32_t residency_blocks(const struct residency *r, uint32_t id)
{
    return residency__needs(&r->images[id]);
}

uint32_t residency_tag(const struct residency *r, uint32_t id)
{
    return r->images[id].conf.tag;
}

/* ------------------------------------------------------------------ quotas */

int residency_set_quota(struct residency *r, uint32_t tag, const struct residency_quota *q,
                        struct sh_err *err)
{
    int rc = know_tenant(r, tag, err);

    if (rc)
        return rc;
    r->tenants[tag].quota = *q;
    r->has_quotas = true;
    return SH_OK;
}

void residency_clear_quotas(struct residency *r)
{
    for (size_t i = 0; i < r->n_tenants; i++)
        r->tenants[i].quota = NO_QUOTA;
    r->has_quotas = false;
}

struct residency_quota residency_quota(const struct residency *r, uint32_t tag)
{
    return tag < r->n_tenants ? r->tenants[tag].quota : NO_QUOTA;
}

bool residency_yield(struct residency *r, bool yields)
{
    bool changes = false;

    for (size_t i = 0; i < r->n_tenants; i++)
        changes |= r->tenants[i].quota.min_blocks > 0 && r->yields != yields;
    r->yields = yields;
    return changes;
}

/* The tag of who holds a segment; NONE: nobody. Ranges have it as owner. */
static uint32_t segment_holder(const struct residency *r, const struct arena_seg *g)
{
    if (g->kind == ARENA_FREE)
        return NONE;
    return g->kind == ARENA_IMAGE ? r->images[g->owner].conf.tag : g->owner;
}

uint32_t residency_used(const struct residency *r, uint32_t tag)
{
    uint32_t n = 0, n_segs;
    const struct arena_seg *segs = arena_segs(r->arena, &n_segs);

    for (uint32_t i = 0; i < n_segs; i++)
        if (segment_holder(r, &segs[i]) == tag)
            n += segs[i].n;
    return n;
}

static void count_tenants(struct residency *r)
{
    uint32_t n_segs;
    const struct arena_seg *segs = arena_segs(r->arena, &n_segs);

    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < n_segs; i++) {
            uint32_t tag = segment_holder(r, &segs[i]);
            struct tenant *t = tag < r->n_tenants ? &r->tenants[tag] : NULL;

            if (t && pass == 0) {
                t->ranges = t->images = 0;
                t->is_counted = false;
            } else if (t) {
                *(segs[i].kind == ARENA_IMAGE ? &t->images : &t->ranges) += segs[i].n;
            }
        }
}

/* What the others' mins keep from a tenant; tag: NONE: from everybody. Of each the images that
 * were used last, and packed copies of what is there only behind them. */
static void set_floors(struct residency *r, uint32_t tag)
{
    for (uint32_t id = 0; id < r->n_images; id++) {
        struct tenant *t = &r->tenants[r->images[id].conf.tag];
        bool keeps = !r->yields && r->images[id].conf.tag != tag;

        t->kept = keeps && t->quota.min_blocks > t->ranges ? t->quota.min_blocks - t->ranges : 0;
    }
    replacement__set_floors(r, false);
    replacement__set_floors(r, true);
}

/* Whose images go first: of tenants that have images here, the one that asks with what it asks. */
static void set_over(struct residency *r, const struct want *w)
{
    double shares = 0, rest = (double)arena_blocks(r->arena);

    for (uint32_t id = 0; id < r->n_images; id++) {
        struct tenant *t = &r->tenants[r->images[id].conf.tag];

        if (r->images[id].held == 0 || t->is_counted)
            continue;
        t->is_counted = true;
        shares += t->quota.share;
        rest -= t->quota.min_blocks;
    }
    for (uint32_t id = 0; id < r->n_images; id++) {
        const uint32_t tag = r->images[id].conf.tag;
        struct tenant *t = &r->tenants[tag];
        const struct residency_quota *q = &t->quota;
        double fair = q->min_blocks + (shares > 0 ? SH_MAX(rest, 0.0) * q->share / shares : 0);

        t->is_over = t->ranges + t->images + (tag == w->tag ? (double)w->n : 0) > fair;
    }
}

static bool may_cut_own(const struct residency *r, const struct want *w, uint32_t id)
{
    const struct image *im = &r->images[id];

    return im->conf.tag == w->tag && id != w->self && !replacement__stays(r, id, w->spare);
}

/* So many blocks of its images must go before the tenant may have n more. */
static uint64_t over_max(const struct residency *r, const struct want *w, uint32_t n)
{
    const uint32_t max = residency_quota(r, w->tag).max_blocks;
    const uint64_t used = max == RESIDENCY_NO_MAX ? 0 : (uint64_t)residency_used(r, w->tag) + n;

    return used > max ? used - max : 0;
}

/* Cuts older images of a tenant by `over` blocks, so that n more fit below its max. Fails:
 * SH_E_DEVMEM, and nothing was cut. */
static int keep_below_max(struct residency *r, const struct want *w, uint32_t n, uint64_t over,
                          uint32_t *evicted, struct sh_err *err)
{
    uint64_t can = 0;
    uint32_t id;

    for (id = r->images[r->ends].newer; id != r->ends; id = r->images[id].newer)
        can += may_cut_own(r, w, id) ? r->images[id].held : 0;
    if (!w->may_evict || over > can)
        return SH_FAIL(err, SH_E_DEVMEM,
                       "the tenant may have %zu MiB of this device (gpu_memory_max_bytes, in whole "
                       "blocks of 2 MiB), and what it uses now leaves no %zu MiB",
                       (size_t)residency_quota(r, w->tag).max_blocks * 2, (size_t)n * 2);
    for (id = r->images[r->ends].newer; over && id != r->ends; id = r->images[id].newer)
        if (may_cut_own(r, w, id)) {
            uint32_t had = r->images[id].held, cut = (uint32_t)SH_MIN(over, (uint64_t)had);

            residency_truncate(r, id, had - cut);
            over -= cut;
            *evicted += cut;
        }
    return SH_OK;
}

/* ------------------------------------------------------------------ search */

/* From where on the blocks of a segment can be had; its end: none of them. */
static uint32_t had_from(const struct residency *r, const struct want *w, const struct arena_seg *g)
{
    const uint32_t end = g->first + g->n;
    const struct image *im;

    if (g->kind == ARENA_FREE || (g->kind == ARENA_IMAGE && g->owner == w->self))
        return g->first;
    if (g->kind != ARENA_IMAGE)
        return end;
    im = &r->images[g->owner];
    if (!im->is_candidate || im->pins || (im->floor && leaves_whole(r, im)))
        return end;
    return SH_MIN(SH_MAX(im->first + im->floor, g->first), end);
}

/* What lies behind them costs no time when it is missing. */
static uint32_t keep_of(const struct residency *r, const struct image *im)
{
    if (replacement__is_backed(r, im))
        return 0;
    return im->conf.is_whole || im->is_costly || im->is_packed ? residency__needs(im)
                                                               : im->conf.keep_blocks;
}

/* A packed copy goes to the far end where it can, whichever of those gives way: scattered, copies
 * would stand between the pieces that others need. */
static uint64_t evict_cost(const struct residency *r, const struct want *w, const struct image *im)
{
    return !replacement__is_backed(r, im) ? COST_EVICT : w->packs ? 0 : COST_EVICT_BACKED;
}

/* What taking the blocks of segment g from `from` to the end of the window costs. The blocks of a
 * victim behind the window fall with it. */
static uint64_t seg_cost(const struct residency *r, const struct want *w, const struct arena_seg *g,
                         uint32_t from, uint32_t window_end)
{
    const uint32_t to = SH_MIN(window_end, g->first + g->n);
    const struct image *im;
    uint32_t end, lo, kept;
    uint64_t cost;

    if (g->kind == ARENA_FREE)
        return w->scrub_matters && g->tag != ARENA_CLEAN && g->tag != w->tag
                   ? (uint64_t)(to - from) * COST_SCRUB
                   : 0;
    if (g->owner == w->self)
        return 0;
    im = &r->images[g->owner];
    lo = leaves_whole(r, im) ? 0 : from - im->first;
    end = to == window_end ? im->held : to - im->first;
    kept = SH_MIN(keep_of(r, im), end);
    cost = (uint64_t)(end - lo) * evict_cost(r, w, im);
    if (kept > lo)
        cost += (uint64_t)(kept - lo) * (COST_EVICT_KEPT - COST_EVICT);
    if (w->scrub_matters && im->conf.tag != w->tag)
        cost += (uint64_t)(to - from) * COST_SCRUB;
    return cost;
}

struct best {
    uint64_t cost;
    uint32_t at;
    bool found;
};

/* A window of blocks that can all be had. */
static void consider(const struct residency *r, const struct want *w, uint32_t at, struct best *b)
{
    const uint32_t end = at + w->n;
    uint32_t n_segs;
    const struct arena_seg *segs = arena_segs(r->arena, &n_segs);
    uint64_t cost = 0;
    bool tie_wins = w->high ? at > b->at : at < b->at;

    if (w->self != NONE && r->images[w->self].held && r->images[w->self].first != at)
        cost = (uint64_t)r->images[w->self].held * COST_MOVE;
    for (uint32_t i = arena_find(r->arena, at); i < n_segs && segs[i].first < end; i++)
        cost += seg_cost(r, w, &segs[i], SH_MAX(at, segs[i].first), end);
    if (!b->found || cost < b->cost || (cost == b->cost && tie_wins))
        *b = (struct best){.cost = cost, .at = at, .found = true};
}

/* Among the windows of the runs of blocks that can be had and touch [from, to). In such a run a
 * window ends where a segment ends, or begins where one begins. */
static struct best search(const struct residency *r, const struct want *w, uint32_t from,
                          uint32_t to)
{
    uint32_t n_segs, lo = 0, i = arena_find(r->arena, from), edge;
    const struct arena_seg *segs = arena_segs(r->arena, &n_segs);
    struct best b = {0};

    while (i > 0 && had_from(r, w, &segs[i]) == segs[i].first)
        i--;
    for (edge = i; i < n_segs && lo < to; i++) {
        const uint32_t end = segs[i].first + segs[i].n, begin = had_from(r, w, &segs[i]);

        if (begin > segs[i].first) { /* a run ended before it, the next one begins */
            lo = begin;
            edge = i + 1;
        }
        for (; edge <= i && end - segs[edge].first >= w->n; edge++)
            consider(r, w, segs[edge].first, &b);
        if (end - lo >= w->n)
            consider(r, w, end - w->n, &b);
    }
    return b;
}

static uint32_t evict_window(struct residency *r, const struct want *w, uint32_t at)
{
    uint32_t evicted = 0, n;

    for (uint32_t b = at; b < at + w->n; b += n) {
        const struct arena_seg g = arena_seg_at(r->arena, b);

        n = g.n;
        if (g.kind == ARENA_IMAGE && g.owner != w->self) {
            const struct image *im = &r->images[g.owner];
            const uint32_t had = im->held;

            residency_truncate(r, g.owner, b - im->first);
            evicted += had - im->held;
        }
    }
    return evicted;
}

/* So often the hand comes to an image until it is a candidate, its use bit counted; a packed copy
 * waits until what it stands behind is one. */
static uint64_t most_chances(const struct residency *r)
{
    return 2 * (SH_MAX(r->conf.n_chance, r->conf.n_costly) + UINT64_C(1));
}

/* Finds a window, evicting what stands there if that is allowed. */
static int make_image_room(struct residency *r, const struct want *w, uint32_t *at_out,
                           uint32_t *evicted_out, struct sh_err *err)
{
    const uint64_t rounds = w->may_evict ? (uint64_t)r->n_ring * most_chances(r) : 0;
    struct best b = search(r, w, 0, arena_blocks(r->arena));

    if (!b.found && rounds > 0) {
        count_tenants(r);
        set_over(r, w);
        set_floors(r, w->tag);
    }
    for (int pass = r->has_quotas ? 0 : 1; pass < 2; pass++) {
        uint32_t at = NONE;

        while (!b.found && rounds > 0 && replacement__backed_first(r, &at, w->spare, pass == 0))
            if (!w->packs)
                b = search(r, w, r->images[at].first, r->images[at].first + r->images[at].held);
        if (w->packs && !b.found && at != NONE)
            b = search(r, w, 0, arena_blocks(r->arena));
        at = r->hand;
        for (uint64_t steps = rounds; !b.found && steps > 0; steps--) {
            const struct image *im = &r->images[at];

            /* Before it no run was long enough. */
            if (replacement__step(r, &at, w->spare, pass == 0))
                b = search(r, w, im->first, im->first + im->held);
        }
    }
    for (uint32_t id = 0; id < r->n_images; id++)
        r->images[id].is_candidate = false;
    if (!b.found)
        return SH_FAIL(err, SH_E_DEVMEM,
                       "could not find %zu MiB of device memory in one piece; the rest is in use: "
                       "try again, or raise pool-bytes",
                       (size_t)w->n * 2);
    *evicted_out += evict_window(r, w, b.at);
    *at_out = b.at;
    return SH_OK;
}

/* Room for w->n blocks, n of which the tenant does not have yet. Where that takes images for its
 * max, a copy is asked first whether there will be a piece then. */
static int find_place(struct residency *r, const struct want *w, uint32_t n, uint32_t *at_out,
                      uint32_t *evicted_out, struct sh_err *err)
{
    const uint64_t over = over_max(r, w, n);
    struct residency *copy = NULL;
    uint32_t at, evicted = 0;
    int rc = over ? residency_clone(r, &copy, err) : SH_OK;

    if (!rc && over && w->packs)
        rc = SH_FAIL(err, SH_E_DEVMEM, "a packed copy is not worth what else the tenant has here");
    if (!rc && copy)
        rc = keep_below_max(copy, w, n, over, &evicted, err);
    if (!rc && copy)
        rc = make_image_room(copy, w, &at, &evicted, err);
    residency_free(copy);
    if (!rc && over)
        rc = keep_below_max(r, w, n, over, evicted_out, err);
    return rc ? rc : make_image_room(r, w, at_out, evicted_out, err);
}

/* What may give way for this image. */
static uint32_t evict_others(struct residency *r, uint32_t id)
{
    uint32_t evicted = 0;

    for (uint32_t i = 0; i < r->n_images; i++) {
        const struct image *im = &r->images[i];

        if (!im->is_used || replacement__stays(r, i, id))
            continue;
        evicted += im->held;
        residency_truncate(r, i, 0);
    }
    return evicted;
}

static void count_use(struct residency *r, const struct image *im)
{
    if (im->held < residency__needs(im))
        r->counts.hard++;
    else if (r->conf.policy == RESIDENCY_SECOND_CHANCE && !im->is_active)
        r->counts.soft++;
    else
        r->counts.hits++;
}

int residency_place(struct residency *r, uint32_t id, bool may_evict, struct residency_place *out,
                    struct sh_err *err)
{
    struct image *im = &r->images[id];
    struct want w = {.n = residency__range(im),
                     .self = id,
                     .spare = id,
                     .tag = im->conf.tag,
                     .may_evict = may_evict,
                     .high = im->conf.is_whole,
                     .packs = im->conf.is_whole};
    uint32_t at = im->first;
    int rc;

    *out = (struct residency_place){.had_blocks = im->held, .had_first = im->first};
    count_use(r, im);
    if (im->held < residency__needs(im)) {
        rc = find_place(r, &w, w.n - im->held, &at, &out->evicted_blocks, err);
        if (rc)
            return rc;
        /* The old prefix and the new range may overlap: give all back, then take. */
        if (im->held)
            rc = arena_give(r->arena, (struct arena_range){im->first, im->held}, left_tag(im), err);
        if (!rc)
            rc = arena_take(r->arena, (struct arena_range){at, w.n}, ARENA_IMAGE, id, err);
        if (rc)
            return rc;
        im->first = at;
        im->held = w.n;
        if (w.n)
            replacement__insert(r, id);
        if (may_evict && r->conf.policy == RESIDENCY_NONE)
            out->evicted_blocks += evict_others(r, id);
    }
    out->range = (struct arena_range){im->first, im->held};
    replacement__use(r, id);
    return SH_OK;
}

int residency_alloc(struct residency *r, const struct residency_need *need, struct arena_range *out,
                    uint32_t *evicted_out, struct sh_err *err)
{
    struct want w = {.n = need->n_blocks,
                     .self = NONE,
                     .spare = need->spare,
                     .tag = need->tag,
                     .may_evict = !need->is_from_free,
                     .scrub_matters = true,
                     .high = true};
    uint32_t at = 0;
    int rc;

    *out = (struct arena_range){0};
    *evicted_out = 0;
    if (need->n_blocks == 0)
        return SH_OK;
    rc = find_place(r, &w, w.n, &at, evicted_out, err);
    if (rc)
        return rc;
    *out = (struct arena_range){at, need->n_blocks};
    return arena_take(r->arena, *out, need->kind, need->tag, err);
}

void residency_release(struct residency *r, struct arena_range *range, uint32_t tag)
{
    if (range->n)
        arena_give(r->arena, *range, tag, NULL);
    *range = (struct arena_range){0};
}

/* ------------------------------------------------------------------ background */

static uint32_t trim_one(struct residency *r, uint32_t id, uint32_t floor, uint32_t missing)
{
    struct image *im = &r->images[id];
    uint32_t had = im->held;

    floor = SH_MAX(floor, im->floor);
    if (had <= floor || (floor && leaves_whole(r, im)))
        return 0;
    residency_truncate(r, id, had - floor > missing ? had - missing : floor);
    return had - im->held;
}

uint32_t residency_trim(struct residency *r, uint32_t want_free, int64_t now_ns,
                        int64_t min_idle_ns)
{
    uint32_t evicted = 0;

    count_tenants(r);
    set_floors(r, NONE);
    /* Round the ring: what costs no time when it is missing, then heads, then what is costly. */
    for (int pass = 0; pass < 3; pass++) {
        for (uint32_t i = 0, n = r->n_ring, at = r->hand; i < n && r->n_ring; i++) {
            uint32_t id = at, free_now = arena_count(r->arena, ARENA_FREE);
            struct image *im = &r->images[id];

            if (free_now >= want_free)
                return evicted;
            at = im->next;
            if (r->conf.policy == RESIDENCY_CLOCK)
                r->hand = at;
            if (replacement__stays(r, id, NONE) || replacement__has_front(r, id, NONE) ||
                now_ns - im->last_use_ns < min_idle_ns || (im->is_costly && pass < 2))
                continue;
            im->use = false;
            evicted += trim_one(r, id, pass == 0 ? keep_of(r, im) : 0, want_free - free_now);
        }
    }
    return evicted;
}

int residency_check(const struct residency *r, struct sh_err *err)
{
    uint32_t held = 0, ring = 0, n_used = 0;

    for (uint32_t id = 0; id < r->n_images; id++) {
        const struct image *im = &r->images[id];
        uint32_t at = im->first;

        if (!im->is_used)
            continue;
        if (im->pins && im->held < residency__needs(im))
            return SH_FAIL(err, SH_E_BUG, "image %u is pinned but not whole", id);
        if (im->in_ring != (im->held > 0))
            return SH_FAIL(err, SH_E_BUG, "image %u is wrongly %s the ring", id,
                           im->in_ring ? "in" : "outside of");
        while (at < im->first + im->held) {
            struct arena_seg g = arena_seg_at(r->arena, at);

            if (g.n == 0 || g.kind != ARENA_IMAGE || g.owner != id)
                return SH_FAIL(err, SH_E_BUG, "block %u is not image %u's", at, id);
            at += g.n;
        }
        held += im->held;
        ring += im->in_ring;
        n_used++;
    }
    if (held != arena_count(r->arena, ARENA_IMAGE) || ring != r->n_ring)
        return SH_FAIL(err, SH_E_BUG, "sums of images and arena differ");
    return replacement__check_order(r, n_used, err);
}
