/* replacement.c - who gives way first: the policies of residency.h.
 *
 * All of them go round one ring of the images that hold blocks, beginning at the hand; a new image
 * is inserted behind the hand, where it comes last. They differ in what a use does and whether the
 * hand stays where a search has left it:
 *
 *   clock          a use sets a bit, which the hand clears as it passes; the hand moves on
 *   fifo           a use does nothing; the hand stays at the oldest
 *   lru            a use puts the image last
 *   second chance  the newest images, up to max_active blocks, are active. A use of an active one
 *                  does nothing, a use of another one puts it last. As the oldest active image is
 *                  always the next to leave them, the ring is both lists, one behind the other
 *                  (Levy and Lipman, "Virtual memory management in the VAX/VMS operating system")
 */
#include "common/mem.h"
#include "executor/memory/residency_int.h"

#include <string.h>

int residency_policy(const char *name, enum residency_policy *out, struct sh_err *err)
{
    static const char *const NAMES[RESIDENCY_N_POLICIES] = {
        [RESIDENCY_CLOCK] = "clock", [RESIDENCY_LRU] = "lru",
        [RESIDENCY_FIFO] = "fifo",   [RESIDENCY_SECOND_CHANCE] = "second-chance",
        [RESIDENCY_NONE] = "none",
    };

    for (int p = 0; p < RESIDENCY_N_POLICIES; p++)
        if (strcmp(name, NAMES[p]) == 0) {
            *out = (enum residency_policy)p;
            return SH_OK;
        }
    return SH_FAIL(err, SH_E_INVALID,
                   "unknown residency policy \"%s\": clock, lru, fifo, second-chance or none",
                   name);
}

static bool hand_moves(const struct residency *r)
{
    return r->conf.policy == RESIDENCY_CLOCK;
}

/* More is active than may be: the oldest are not any more, but for the newest of all. */
static void demote(struct residency *r)
{
    uint32_t id = r->hand;

    for (uint32_t n = r->n_ring; n > 1 && r->active > r->max_active; n--) {
        struct image *im = &r->images[id];

        if (im->is_active)
            r->active -= im->conf.n_blocks;
        im->is_active = false;
        id = im->next;
    }
}

void replacement__insert(struct residency *r, uint32_t id)
{
    struct image *im = &r->images[id];

    if (im->in_ring)
        return;
    if (r->n_ring == 0) {
        im->prev = im->next = id;
        r->hand = id;
    } else {
        struct image *h = &r->images[r->hand];

        im->next = r->hand;
        im->prev = h->prev;
        r->images[h->prev].next = id;
        h->prev = id;
    }
    im->in_ring = true;
    im->count = 0;
    r->n_ring++;
    im->is_active = true;
    r->active += im->conf.n_blocks;
    demote(r);
}

void replacement__remove(struct residency *r, uint32_t id)
{
    struct image *im = &r->images[id];

    if (!im->in_ring)
        return;
    r->images[im->prev].next = im->next;
    r->images[im->next].prev = im->prev;
    im->in_ring = false;
    if (im->is_active)
        r->active -= im->conf.n_blocks;
    im->is_active = false;
    if (--r->n_ring == 0)
        r->hand = RESIDENCY_NO_IMAGE;
    else if (r->hand == id)
        r->hand = im->next;
}

void replacement__use(struct residency *r, uint32_t id)
{
    struct image *im = &r->images[id];
    const bool goes_last = r->conf.policy == RESIDENCY_LRU ||
                           (r->conf.policy == RESIDENCY_SECOND_CHANCE && !im->is_active);

    im->use = true;
    if (!goes_last || !im->in_ring)
        return;
    replacement__remove(r, id);
    replacement__insert(r, id);
}

/* NULL: it is no copy of another one. */
static const struct image *front_of(const struct residency *r, const struct image *im)
{
    return im->backs == RESIDENCY_NO_IMAGE ? NULL : &r->images[im->backs];
}

/* Of an image with a copy behind it: of no use without that. */
static bool needs_copy(const struct image *front)
{
    return front->is_packed || front->held < residency__needs(front);
}

static bool is_kept(const struct image *im, bool is_spare)
{
    return im->pins || im->is_sticky || is_spare;
}

bool replacement__stays(const struct residency *r, uint32_t id, uint32_t spare)
{
    const struct image *im = &r->images[id], *front = front_of(r, im);

    return is_kept(im, id == spare) ||
           (front && needs_copy(front) && is_kept(front, im->backs == spare));
}

bool replacement__has_front(const struct residency *r, uint32_t id, uint32_t spare)
{
    const struct image *im = &r->images[id], *front = front_of(r, im);

    return front && front->held && !front->is_candidate && !is_kept(front, im->backs == spare);
}

bool replacement__step(struct residency *r, uint32_t *at, uint32_t spare, bool only_over)
{
    const uint32_t id = *at;
    struct image *im = &r->images[id];

    *at = im->next;
    if (hand_moves(r))
        r->hand = im->next;
    if (replacement__stays(r, id, spare) || im->is_candidate ||
        replacement__has_front(r, id, spare) || (only_over && !r->tenants[im->conf.tag].is_over))
        return false;
    if (hand_moves(r) && im->use) {
        im->use = false;
        im->count = 0;
        return false;
    }
    if (hand_moves(r) && ++im->count < (im->is_costly ? r->conf.n_costly : r->conf.n_chance))
        return false;
    im->is_candidate = true;
    return true;
}

/* ------------------------------------------------------------------ what is there twice */

void residency_back(struct residency *r, uint32_t id, uint32_t by, double worth)
{
    if (r->images[id].backed_by != RESIDENCY_NO_IMAGE)
        r->images[r->images[id].backed_by].backs = RESIDENCY_NO_IMAGE;
    if (by != RESIDENCY_NO_IMAGE)
        r->images[by].backs = id;
    r->images[id].backed_by = by;
    r->images[id].worth = worth;
}

uint64_t residency_demand(const struct residency *r, uint32_t id, int64_t now_ns)
{
    uint64_t blocks = 0;

    for (uint32_t i = 0; i < r->n_images; i++) {
        const struct image *im = &r->images[i];
        const bool is_recent = im->last_use_ns && now_ns - im->last_use_ns <= RESIDENCY_RECENT_NS;

        if (im->is_used && !im->conf.is_whole && (is_recent || i == id))
            blocks += im->conf.unpacked_blocks ? im->conf.unpacked_blocks : im->conf.n_blocks;
    }
    return blocks;
}

bool replacement__is_backed(const struct residency *r, const struct image *im)
{
    const struct image *by = im->backed_by == RESIDENCY_NO_IMAGE ? NULL : &r->images[im->backed_by];

    return by && by->held >= by->conf.n_blocks;
}

void replacement__set_floors(struct residency *r, bool behind)
{
    for (uint32_t id = r->images[r->ends].older; id != r->ends; id = r->images[id].older) {
        struct image *im = &r->images[id];
        struct tenant *t = &r->tenants[im->conf.tag];

        if ((front_of(r, im) && !needs_copy(front_of(r, im))) != behind)
            continue;
        im->floor = SH_MIN(t->kept, im->held);
        t->kept -= im->floor;
    }
}

/* Since its last use, until the last use of any. */
static double age_of(const struct residency *r, const struct image *im)
{
    return (double)(r->images[r->images[r->ends].older].last_use_ns - im->last_use_ns);
}

static bool may_leave(const struct residency *r, uint32_t id, uint32_t spare, bool only_over)
{
    const struct image *im = &r->images[id];

    return im->in_ring && !replacement__stays(r, id, spare) && !im->is_candidate &&
           (!only_over || r->tenants[im->conf.tag].is_over);
}

/* Of those that nothing stands behind; below 0: there is none. */
static double greatest_age(const struct residency *r, uint32_t spare)
{
    for (uint32_t id = r->images[r->ends].newer; id != r->ends; id = r->images[id].newer)
        if (may_leave(r, id, spare, false) && !replacement__is_backed(r, &r->images[id]))
            return age_of(r, &r->images[id]);
    return -1;
}

/* By demand that falls with age: what is lost with a byte of a backed image is its worth over its
 * age, and with one of another 1 over its. That is so of packed copies; an image that comes packed
 * is cheaper by the bytes which that saves, but where there are copies few are without one. */
bool replacement__backed_first(struct residency *r, uint32_t *at, uint32_t spare, bool only_over)
{
    const double most = greatest_age(r, spare);
    uint32_t id = *at == RESIDENCY_NO_IMAGE ? r->images[r->ends].newer : r->images[*at].newer;

    for (; id != r->ends; id = r->images[id].newer) {
        struct image *im = &r->images[id];

        if (!may_leave(r, id, spare, only_over) || !replacement__is_backed(r, im) ||
            age_of(r, im) < most * im->worth)
            continue;
        im->is_candidate = true;
        *at = id;
        return true;
    }
    return false;
}

uint32_t residency_distance(struct residency *r, uint32_t id)
{
    const uint64_t last = r->images[id].last_run;
    uint64_t blocks = residency__needs(&r->images[id]);

    for (uint32_t i = 0; last && i < r->n_images; i++)
        if (r->images[i].is_used && r->images[i].last_run > last)
            blocks += residency__needs(&r->images[i]);
    r->images[id].last_run = ++r->n_runs;
    return last ? (uint32_t)SH_MIN(blocks, (uint64_t)RESIDENCY_NEVER - 1) : RESIDENCY_NEVER;
}

void replacement__order_insert(struct residency *r, uint32_t id)
{
    struct image *im = &r->images[id];
    uint32_t at = r->images[r->ends].older;

    while (at != r->ends && (r->images[at].last_use_ns > im->last_use_ns ||
                             (r->images[at].last_use_ns == im->last_use_ns && at < id)))
        at = r->images[at].older;
    im->older = at;
    im->newer = r->images[at].newer;
    r->images[im->newer].older = r->images[at].newer = id;
}

void replacement__order_remove(struct residency *r, uint32_t id)
{
    const struct image *im = &r->images[id];

    r->images[im->newer].older = im->older;
    r->images[im->older].newer = im->newer;
}

int replacement__check_order(const struct residency *r, uint32_t n_used, struct sh_err *err)
{
    uint32_t n = 0;

    for (uint32_t id = r->images[r->ends].older; id != r->ends; id = r->images[id].older, n++) {
        const struct image *im = &r->images[id];

        if (!im->is_used || r->images[im->older].newer != id ||
            (im->newer != r->ends && r->images[im->newer].last_use_ns < im->last_use_ns))
            return SH_FAIL(err, SH_E_BUG, "image %u is wrongly placed by its last use", id);
    }
    return n == n_used ? SH_OK : SH_FAIL(err, SH_E_BUG, "%u images by last use, not %u", n, n_used);
}

void residency_set_short(struct residency *r, uint32_t id, bool is_short)
{
    struct image *im = &r->images[id];
    bool gives_up;

    im->is_short = is_short;
    gives_up = im->held > residency__needs(im);
    if (gives_up)
        residency_forget(r, id, residency__needs(im));
    im->is_unfilled = gives_up && im->pins;
}

void residency_set_range(struct residency *r, uint32_t id, uint32_t n_blocks, uint32_t short_blocks)
{
    r->images[id].conf.n_blocks = n_blocks;
    r->images[id].conf.short_blocks = short_blocks;
}

uint32_t residency_first(const struct residency *r, uint32_t id)
{
    return r->images[id].first;
}
