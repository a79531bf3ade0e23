/* residency.c - see residency.h.
 *
 * Finding room is a search over windows of the block map. The cost of a window is what would be
 * lost: blocks of candidates from the first covered one to the end of their prefix (what lies
 * behind keep_blocks counts little), the move of the image's own head, and blocks that must be
 * scrubbed. Only windows that touch the edge of a segment can be cheapest, so only those are tried.
 *
 * The ring of the clock is a list through the images that hold blocks; a new one is inserted behind
 * the hand, which is where its victim was.
 */
#include "executor/residency.h"

#include "common/mem.h"

#include <stdlib.h>

#define NONE RESIDENCY_NO_IMAGE
#define COST_EVICT_KEPT 64u
#define COST_EVICT 16u
#define COST_MOVE 8u
#define COST_SCRUB 1u

struct image {
    struct residency_image conf;
    bool is_used, use, is_candidate, in_ring, is_sticky;
    bool is_over;   /* its tenant holds more than its share: as of the last search */
    uint32_t floor; /* so many blocks are kept by its tenant's min: likewise */
    uint32_t first, held, pins, count;
    uint32_t prev, next; /* ring */
    int64_t last_use_ns;
};

struct quota {
    uint32_t tag;
    struct residency_quota is;
};

struct residency {
    struct arena *arena;
    struct quota *quotas; /* OWNED */
    size_t n_quotas, cap_quotas;
    bool yields;
    uint32_t n_chance, hand, n_ring;
    uint32_t n_images; /* slots in use or free below this */
    struct image images[RESIDENCY_MAX_IMAGES];
};

struct segs {
    struct arena_seg *v;
    size_t n, cap;
};

struct want {         /* what a search is for */
    uint32_t n, self; /* self: image whose own blocks count as free; NONE */
    uint32_t spare;   /* image that must stay; NONE */
    uint32_t tag;
    bool may_evict, scrub_matters, high; /* high: prefer the far end of the arena */
};

int residency_new(uint32_t n_blocks, uint32_t n_chance, struct residency **out, struct sh_err *err)
{
    struct residency *r = calloc(1, sizeof(*r));
    int rc;

    *out = NULL;
    if (!r)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the table of images");
    rc = arena_new(n_blocks, &r->arena, err);
    if (rc) {
        residency_free(r);
        return rc;
    }
    r->n_chance = n_chance ? n_chance : 1;
    r->hand = NONE;
    *out = r;
    return SH_OK;
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
    c->quotas = NULL;
    c->n_quotas = c->cap_quotas = 0;
    rc = arena_clone(r->arena, &c->arena, err);
    for (size_t i = 0; !rc && i < r->n_quotas; i++)
        rc = residency_set_quota(c, r->quotas[i].tag, &r->quotas[i].is, err);
    if (rc) {
        residency_free(c);
        return rc;
    }
    *out = c;
    return SH_OK;
}

void residency_free(struct residency *r)
{
    if (!r)
        return;
    arena_free(r->arena);
    free(r->quotas);
    free(r);
}

struct arena *residency_arena(struct residency *r)
{
    return r->arena;
}

/* ------------------------------------------------------------------ ring */

static void ring_insert(struct residency *r, uint32_t id)
{
    struct image *im = &r->images[id];

    if (im->in_ring)
        return;
    if (r->n_ring == 0) {
        im->prev = im->next = id;
        r->hand = id;
    } else { /* behind the hand: the last that it will reach */
        struct image *h = &r->images[r->hand];

        im->next = r->hand;
        im->prev = h->prev;
        r->images[h->prev].next = id;
        h->prev = id;
    }
    im->in_ring = true;
    im->count = 0;
    r->n_ring++;
}

static void ring_remove(struct residency *r, uint32_t id)
{
    struct image *im = &r->images[id];

    if (!im->in_ring)
        return;
    r->images[im->prev].next = im->next;
    r->images[im->next].prev = im->prev;
    im->in_ring = false;
    if (--r->n_ring == 0)
        r->hand = NONE;
    else if (r->hand == id)
        r->hand = im->next;
}

/* ------------------------------------------------------------------ images */

int residency_add(struct residency *r, const struct residency_image *im, uint32_t *id_out,
                  struct sh_err *err)
{
    uint32_t id = 0;

    if (im->n_blocks > arena_blocks(r->arena))
        return SH_FAIL(err, SH_E_TOOBIG,
                       "the weights need %zu MiB, the device pool has %zu MiB; raise pool-bytes",
                       (size_t)im->n_blocks * 2, (size_t)arena_blocks(r->arena) * 2);
    while (id < r->n_images && r->images[id].is_used)
        id++;
    if (id == RESIDENCY_MAX_IMAGES)
        return SH_FAIL(err, SH_E_TOOBIG, "this executor holds %u models, the most it can",
                       RESIDENCY_MAX_IMAGES);
    if (id == r->n_images)
        r->n_images++;
    r->images[id] = (struct image){.conf = *im, .is_used = true};
    *id_out = id;
    return SH_OK;
}

static void cut(struct residency *r, uint32_t id, uint32_t blocks, uint32_t tag)
{
    struct image *im = &r->images[id];

    if (blocks >= im->held || im->pins)
        return;
    /* Cannot fail: these blocks are the image's. */
    arena_give(r->arena, (struct arena_range){im->first + blocks, im->held - blocks}, tag, NULL);
    im->held = blocks;
    if (blocks == 0)
        ring_remove(r, id);
}

void residency_truncate(struct residency *r, uint32_t id, uint32_t blocks)
{
    cut(r, id, blocks, r->images[id].conf.tag);
}

void residency_forget(struct residency *r, uint32_t id)
{
    cut(r, id, 0, ARENA_FOREIGN);
}

void residency_remove(struct residency *r, uint32_t id)
{
    residency_truncate(r, id, 0);
    r->images[id].is_used = false;
}

void residency_pin(struct residency *r, uint32_t id)
{
    r->images[id].pins++;
}

void residency_unpin(struct residency *r, uint32_t id)
{
    if (r->images[id].pins)
        r->images[id].pins--;
}

uint32_t residency_pins(const struct residency *r, uint32_t id)
{
    return r->images[id].pins;
}

void residency_stick(struct residency *r, uint32_t id, bool is_sticky)
{
    r->images[id].is_sticky = is_sticky;
}

bool residency_is_sticky(const struct residency *r, uint32_t id)
{
    return r->images[id].is_sticky;
}

void residency_touch(struct residency *r, uint32_t id, int64_t now_ns)
{
    r->images[id].use = true;
    r->images[id].last_use_ns = now_ns;
}

uint32_t residency_held(const struct residency *r, uint32_t id)
{
    return r->images[id].held;
}

uint32_t residency_tag(const struct residency *r, uint32_t id)
{
    return r->images[id].conf.tag;
}

/* ------------------------------------------------------------------ quotas */

int residency_set_quota(struct residency *r, uint32_t tag, const struct residency_quota *q,
                        struct sh_err *err)
{
    size_t i = 0;
    int rc;

    while (i < r->n_quotas && r->quotas[i].tag != tag)
        i++;
    rc = sh_grow(&r->quotas, &r->cap_quotas, i + 1, sizeof(*r->quotas), (size_t)1 << 20,
                 "quotas of device memory", err);
    if (rc)
        return rc;
    r->quotas[i] = (struct quota){tag, *q};
    r->n_quotas = SH_MAX(r->n_quotas, i + 1);
    return SH_OK;
}

void residency_clear_quotas(struct residency *r)
{
    r->n_quotas = 0;
}

struct residency_quota residency_quota(const struct residency *r, uint32_t tag)
{
    for (size_t i = 0; i < r->n_quotas; i++)
        if (r->quotas[i].tag == tag)
            return r->quotas[i].is;
    return (struct residency_quota){.max_blocks = RESIDENCY_NO_MAX, .share = 1};
}

bool residency_yield(struct residency *r, bool yields)
{
    bool changes = false;

    for (size_t i = 0; i < r->n_quotas; i++)
        changes |= r->quotas[i].is.min_blocks > 0 && r->yields != yields;
    r->yields = yields;
    return changes;
}

/* Workspaces and training state: their segments have the tag as owner. */
static uint32_t used_by_ranges(const struct residency *r, uint32_t tag)
{
    uint32_t at = 0, n = 0;

    while (at < arena_blocks(r->arena)) {
        struct arena_seg g = arena_seg_at(r->arena, at);

        if ((g.kind == ARENA_WORK || g.kind == ARENA_TRAIN) && g.owner == tag)
            n += g.n;
        at += g.n;
    }
    return n;
}

uint32_t residency_used(const struct residency *r, uint32_t tag)
{
    uint32_t n = used_by_ranges(r, tag);

    for (uint32_t id = 0; id < r->n_images; id++)
        if (r->images[id].is_used && r->images[id].conf.tag == tag)
            n += r->images[id].held;
    return n;
}

/* Of the tenant's images that are there and keep nothing yet, the one that was used last; oldest:
 * first, and only one that may be cut for `w`. */
static uint32_t pick_own(const struct residency *r, uint32_t tag, const struct want *oldest)
{
    uint32_t best = NONE;

    for (uint32_t id = 0; id < r->n_images; id++) {
        const struct image *im = &r->images[id];
        bool newer;

        if (!im->is_used || im->conf.tag != tag || im->held <= im->floor ||
            (oldest && (im->pins || im->is_sticky || id == oldest->self || id == oldest->spare)) ||
            (!oldest && im->floor > 0))
            continue;
        newer = best == NONE || im->last_use_ns > r->images[best].last_use_ns;
        if (best == NONE || newer != (oldest != NULL))
            best = id;
    }
    return best;
}

/* What the others' mins keep from a tenant; tag: NONE: from everybody. */
static void set_floors(struct residency *r, uint32_t tag)
{
    for (uint32_t id = 0; id < r->n_images; id++)
        r->images[id].floor = 0;
    for (size_t i = 0; i < r->n_quotas && !r->yields; i++) {
        const struct quota *q = &r->quotas[i];
        uint32_t ranges, left, id;

        if (q->tag == tag || q->is.min_blocks == 0)
            continue;
        ranges = used_by_ranges(r, q->tag);
        left = q->is.min_blocks > ranges ? q->is.min_blocks - ranges : 0;
        while (left > 0 && (id = pick_own(r, q->tag, NULL)) != NONE) {
            r->images[id].floor = SH_MIN(left, r->images[id].held);
            left -= r->images[id].floor;
        }
    }
}

/* The first of its tenant's images that are there; NONE: it is not there itself. */
static uint32_t first_of_tag(const struct residency *r, uint32_t id)
{
    const struct image *im = &r->images[id];

    for (uint32_t k = 0; im->is_used && im->held && k <= id; k++)
        if (r->images[k].is_used && r->images[k].held && r->images[k].conf.tag == im->conf.tag)
            return k;
    return NONE;
}

/* Whose images go first: of tenants that have images here, the one that asks with what it asks. */
static void set_over(struct residency *r, const struct want *w)
{
    double shares = 0, rest = (double)arena_blocks(r->arena);

    for (uint32_t id = 0; id < r->n_images; id++) {
        struct residency_quota q = residency_quota(r, r->images[id].conf.tag);

        if (first_of_tag(r, id) != id)
            continue;
        shares += q.share;
        rest -= q.min_blocks;
    }
    for (uint32_t id = 0; id < r->n_images; id++) {
        const uint32_t tag = r->images[id].conf.tag;
        struct residency_quota q = residency_quota(r, tag);
        double fair = q.min_blocks + (shares > 0 ? SH_MAX(rest, 0.0) * q.share / shares : 0);
        uint32_t first = first_of_tag(r, id);

        if (first == id)
            r->images[id].is_over =
                residency_used(r, tag) + (tag == w->tag ? (double)w->n : 0) > fair;
        else if (first != NONE)
            r->images[id].is_over = r->images[first].is_over;
    }
}

/* Cuts older images of a tenant until n more blocks fit below its max. Fails: SH_E_DEVMEM, and
 * nothing was cut. */
static int keep_below_max(struct residency *r, const struct want *w, uint32_t n, uint32_t *evicted,
                          struct sh_err *err)
{
    const uint32_t max = residency_quota(r, w->tag).max_blocks;
    uint64_t used = max == RESIDENCY_NO_MAX ? 0 : (uint64_t)residency_used(r, w->tag) + n, can = 0;
    uint32_t id;

    if (used <= max)
        return SH_OK;
    for (id = 0; id < r->n_images; id++)
        r->images[id].floor = 0;
    for (id = 0; id < r->n_images; id++) {
        const struct image *im = &r->images[id];

        if (im->is_used && im->conf.tag == w->tag && !im->pins && !im->is_sticky && id != w->self &&
            id != w->spare)
            can += im->held;
    }
    if (!w->may_evict || used - max > can)
        return SH_FAIL(
            err, SH_E_DEVMEM,
            "the tenant may have %zu MiB of this device (gpu_memory_max_bytes), and what "
            "it uses now leaves no %zu MiB",
            (size_t)max * 2, (size_t)n * 2);
    while (used > max && (id = pick_own(r, w->tag, w)) != NONE) {
        uint32_t had = r->images[id].held, over = (uint32_t)SH_MIN(used - max, (uint64_t)had);

        residency_truncate(r, id, had - over);
        used -= over;
        *evicted += over;
    }
    return SH_OK;
}

/* ------------------------------------------------------------------ search */

static int collect(const struct residency *r, struct segs *s, struct sh_err *err)
{
    uint32_t at = 0;

    while (at < arena_blocks(r->arena)) {
        int rc = sh_grow(&s->v, &s->cap, s->n + 1, sizeof(*s->v), (size_t)1 << 24,
                         "segments of the arena", err);

        if (rc)
            return rc;
        s->v[s->n] = arena_seg_at(r->arena, at);
        at += s->v[s->n++].n;
    }
    return SH_OK;
}

/* What taking the blocks of segment g from `from` to the end of the window costs; false: they
 * cannot be had. The blocks of a victim behind the window fall with it. */
static bool seg_cost(const struct residency *r, const struct want *w, const struct arena_seg *g,
                     uint32_t from, uint32_t window_end, uint64_t *cost)
{
    const uint32_t to = SH_MIN(window_end, g->first + g->n);
    const struct image *im;
    uint32_t end, lo, kept;

    if (g->kind == ARENA_FREE) {
        if (w->scrub_matters && g->tag != ARENA_CLEAN && g->tag != w->tag)
            *cost += (uint64_t)(to - from) * COST_SCRUB;
        return true;
    }
    if (g->kind != ARENA_IMAGE)
        return false;
    if (g->owner == w->self)
        return true;
    im = &r->images[g->owner];
    if (!im->is_candidate || im->pins || from - im->first < im->floor)
        return false;
    lo = from - im->first;
    end = to == window_end ? im->held : to - im->first;
    kept = SH_MIN(im->conf.keep_blocks, end);
    *cost += (uint64_t)(end - lo) * COST_EVICT;
    if (kept > lo)
        *cost += (uint64_t)(kept - lo) * (COST_EVICT_KEPT - COST_EVICT);
    if (w->scrub_matters && im->conf.tag != w->tag)
        *cost += (uint64_t)(to - from) * COST_SCRUB;
    return true;
}

/* The segment that holds a block of the arena. */
static size_t seg_of(const struct segs *s, int64_t block)
{
    size_t lo = 0, hi = s->n;

    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;

        if (s->v[mid].first <= block)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static bool window_cost(const struct residency *r, const struct want *w, const struct segs *s,
                        uint32_t at, uint64_t *cost)
{
    *cost = 0;
    if (w->self != NONE && r->images[w->self].held && r->images[w->self].first != at)
        *cost = (uint64_t)r->images[w->self].held * COST_MOVE;
    for (size_t i = seg_of(s, at); i < s->n && s->v[i].first < at + w->n; i++) {
        const struct arena_seg *g = &s->v[i];

        if (!seg_cost(r, w, g, SH_MAX(at, g->first), at + w->n, cost))
            return false;
    }
    return true;
}

struct best {
    uint64_t cost;
    uint32_t at;
    bool found;
};

static void consider(const struct residency *r, const struct want *w, const struct segs *s,
                     int64_t at, struct best *b)
{
    uint64_t cost;
    bool tie_wins;

    if (at < 0 || at > (int64_t)arena_blocks(r->arena) - (int64_t)w->n)
        return;
    if (!window_cost(r, w, s, (uint32_t)at, &cost))
        return;
    tie_wins = w->high ? (uint32_t)at > b->at : (uint32_t)at < b->at;
    if (!b->found || cost < b->cost || (cost == b->cost && tie_wins))
        *b = (struct best){.cost = cost, .at = (uint32_t)at, .found = true};
}

/* Among the windows that touch blocks [from, to). */
static struct best search(const struct residency *r, const struct want *w, const struct segs *s,
                          uint32_t from, uint32_t to)
{
    const int64_t n = w->n;
    struct best b = {0};

    for (size_t i = seg_of(s, from - n); i < s->n && s->v[i].first <= to + n; i++) {
        int64_t first = s->v[i].first, end = first + s->v[i].n;

        consider(r, w, s, first, &b);
        consider(r, w, s, end, &b);
        consider(r, w, s, first - n, &b);
        consider(r, w, s, end - n, &b);
    }
    return b;
}

/* Moves the hand by one image. True: there is a new candidate. */
static bool advance(struct residency *r, uint32_t spare, bool only_over)
{
    uint32_t id = r->hand;
    struct image *im = &r->images[id];

    r->hand = im->next;
    if (im->pins || im->is_sticky || id == spare || im->is_candidate || (only_over && !im->is_over))
        return false;
    if (im->use) {
        im->use = false;
        im->count = 0;
        return false;
    }
    if (++im->count < r->n_chance)
        return false;
    im->is_candidate = true;
    return true;
}

static uint32_t evict_window(struct residency *r, const struct want *w, uint32_t at)
{
    uint32_t evicted = 0;

    for (uint32_t id = 0; id < r->n_images; id++) {
        struct image *im = &r->images[id];
        uint32_t had = im->held;

        if (!im->is_used || id == w->self || had == 0 || im->first >= at + w->n ||
            im->first + had <= at)
            continue;
        residency_truncate(r, id, at > im->first ? at - im->first : 0);
        evicted += had - im->held;
    }
    return evicted;
}

/* Finds a window, evicting what stands there if that is allowed. */
static int make_room(struct residency *r, const struct want *w, uint32_t *at_out,
                     uint32_t *evicted_out, struct sh_err *err)
{
    struct segs s = {0};
    const uint64_t rounds = w->may_evict ? (uint64_t)r->n_ring * (r->n_chance + 1) : 0;
    struct best b = {0};
    int rc = collect(r, &s, err);

    if (rc)
        goto out;
    b = search(r, w, &s, 0, arena_blocks(r->arena));
    if (!b.found && r->n_quotas > 0)
        set_over(r, w);
    if (!b.found)
        set_floors(r, w->tag);
    for (int pass = r->n_quotas > 0 ? 0 : 1; pass < 2; pass++)
        for (uint64_t steps = rounds; !b.found && steps > 0; steps--) {
            const struct image *im = &r->images[r->hand];

            if (advance(r, w->spare, pass == 0)) /* then only what touches it can be had */
                b = search(r, w, &s, im->first, im->first + im->held);
        }
    if (b.found) {
        *evicted_out += evict_window(r, w, b.at);
        *at_out = b.at;
    } else {
        rc = SH_FAIL(err, SH_E_DEVMEM,
                     "could not find %zu MiB of device memory in one piece; the rest is in use",
                     (size_t)w->n * 2);
    }
out:
    for (uint32_t id = 0; id < r->n_images; id++)
        r->images[id].is_candidate = false;
    free(s.v);
    return rc;
}

int residency_place(struct residency *r, uint32_t id, bool may_evict, struct residency_place *out,
                    struct sh_err *err)
{
    struct image *im = &r->images[id];
    struct want w = {.n = im->conf.n_blocks,
                     .self = id,
                     .spare = id,
                     .tag = im->conf.tag,
                     .may_evict = may_evict};
    uint32_t at = im->first;
    int rc;

    *out = (struct residency_place){.had_blocks = im->held, .had_first = im->first};
    if (im->held < im->conf.n_blocks) {
        rc = keep_below_max(r, &w, w.n - im->held, &out->evicted_blocks, err);
        if (!rc)
            rc = make_room(r, &w, &at, &out->evicted_blocks, err);
        if (rc)
            return rc;
        /* The old prefix and the new range may overlap: give all back, then take. */
        if (im->held)
            rc = arena_give(r->arena, (struct arena_range){im->first, im->held}, im->conf.tag, err);
        if (!rc)
            rc = arena_take(r->arena, (struct arena_range){at, w.n}, ARENA_IMAGE, id, err);
        if (rc)
            return rc;
        im->first = at;
        im->held = w.n;
        if (w.n)
            ring_insert(r, id);
    }
    out->range = (struct arena_range){im->first, im->held};
    im->use = true;
    return SH_OK;
}

int residency_alloc(struct residency *r, const struct residency_need *need, struct arena_range *out,
                    uint32_t *evicted_out, struct sh_err *err)
{
    struct want w = {.n = need->n_blocks,
                     .self = NONE,
                     .spare = need->spare,
                     .tag = need->tag,
                     .may_evict = true,
                     .scrub_matters = true,
                     .high = true};
    uint32_t at = 0;
    int rc;

    *out = (struct arena_range){0};
    *evicted_out = 0;
    if (need->n_blocks == 0)
        return SH_OK;
    rc = keep_below_max(r, &w, w.n, evicted_out, err);
    if (!rc)
        rc = make_room(r, &w, &at, evicted_out, err);
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
    if (had <= floor)
        return 0;
    residency_truncate(r, id, had - floor > missing ? had - missing : floor);
    return had - im->held;
}

uint32_t residency_trim(struct residency *r, uint32_t want_free, int64_t now_ns,
                        int64_t min_idle_ns)
{
    uint32_t evicted = 0;

    set_floors(r, NONE);
    /* Twice round the ring: first what costs no time when it is missing, then the heads. */
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0, n = r->n_ring; i < n && r->n_ring; i++) {
            uint32_t id = r->hand, free_now = arena_count(r->arena, ARENA_FREE);
            struct image *im = &r->images[id];

            if (free_now >= want_free)
                return evicted;
            r->hand = im->next;
            if (im->pins || im->is_sticky || now_ns - im->last_use_ns < min_idle_ns)
                continue;
            im->use = false;
            evicted += trim_one(r, id, pass == 0 ? im->conf.keep_blocks : 0, want_free - free_now);
        }
    }
    return evicted;
}

int residency_check(const struct residency *r, struct sh_err *err)
{
    uint32_t held = 0, ring = 0;

    for (uint32_t id = 0; id < r->n_images; id++) {
        const struct image *im = &r->images[id];
        uint32_t at = im->first;

        if (!im->is_used)
            continue;
        if (im->pins && im->held != im->conf.n_blocks)
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
    }
    if (held != arena_count(r->arena, ARENA_IMAGE) || ring != r->n_ring)
        return SH_FAIL(err, SH_E_BUG, "sums of images and arena differ");
    return SH_OK;
}
