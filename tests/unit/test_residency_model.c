/* test_residency_model.c - who gives way on the device, against a plain model of it.
 *
 * The model has a record a block and keeps nothing in order: every window is tried, block by block,
 * and its ring is an array that begins at the hand.
 *
 * Without it: a search that is quick because it looks at less could pass over the cheapest window,
 * take what a min keeps, or turn the clock another way, and nobody would see more than a copy that
 * was not needed. */
/* uses: executor/memory/residency.o executor/memory/replacement.o executor/memory/arena.o */
#include "executor/memory/residency.h"
#include "tests/unit/sh_test.h"

enum { M_BLOCKS = 48, M_IMAGES = 10, M_TENANTS = 3, M_CHANCE = 2 };

struct m_image {
    uint32_t tag, n, keep, first, held, count, floor;
    bool use, is_pinned, is_sticky, is_candidate;
    int64_t last;
};

struct m_want {
    uint32_t n, self, spare, tag;
    bool may_evict, is_range;
};

struct model {
    struct arena_seg block[M_BLOCKS]; /* kind, owner, tag */
    struct m_image im[M_IMAGES];
    struct residency_quota quota[M_TENANTS + 1];
    uint32_t ring[M_IMAGES], n_ring;
    bool has_quotas;
};

static uint32_t m_used(const struct model *m, uint32_t tag, bool with_images)
{
    uint32_t n = 0;

    for (uint32_t b = 0; b < M_BLOCKS; b++)
        if (m->block[b].kind == ARENA_IMAGE)
            n += with_images && m->im[m->block[b].owner].tag == tag;
        else
            n += m->block[b].kind != ARENA_FREE && m->block[b].owner == tag;
    return n;
}

static void m_truncate(struct model *m, uint32_t id, uint32_t to)
{
    struct m_image *im = &m->im[id];

    for (; !im->is_pinned && im->held > to; im->held--)
        m->block[im->first + im->held - 1] = (struct arena_seg){.tag = im->tag};
    for (uint32_t i = 0; im->held == 0 && i < m->n_ring; i++)
        if (m->ring[i] == id) {
            m->n_ring--;
            for (; i < m->n_ring; i++)
                m->ring[i] = m->ring[i + 1];
        }
}

/* UINT64_MAX: there is a block that cannot be had. */
static uint64_t m_cost(const struct model *m, const struct m_want *w, uint32_t at)
{
    const struct m_image *self = w->self == RESIDENCY_NO_IMAGE ? NULL : &m->im[w->self];
    uint64_t cost = self && self->first != at ? self->held * 8 : 0;

    for (uint32_t b = at; b < M_BLOCKS; b++) {
        const struct arena_seg *c = &m->block[b];
        const struct m_image *im = c->kind == ARENA_IMAGE ? &m->im[c->owner] : NULL;
        bool is_inside = b<at + w->n, falls = b> at && im && c->owner == c[-1].owner;

        if (!is_inside && (!falls || c[-1].kind != ARENA_IMAGE))
            break;
        if (im && im == self)
            continue;
        if (c->kind != ARENA_FREE &&
            (!im || !im->is_candidate || im->is_pinned || b - im->first < im->floor))
            return UINT64_MAX;
        if (im)
            cost += b - im->first < im->keep ? 64 : 16;
        if (is_inside && w->is_range && w->tag != (im ? im->tag : c->tag) &&
            (im || c->tag != ARENA_CLEAN))
            cost++;
    }
    return cost;
}

static bool m_best(const struct model *m, const struct m_want *w, uint32_t *at_out)
{
    uint64_t best = UINT64_MAX;

    for (uint32_t at = 0; at + w->n <= M_BLOCKS; at++) {
        uint64_t cost = m_cost(m, w, at);

        if (cost < best || (cost == best && cost < UINT64_MAX && w->is_range))
            *at_out = at;
        best = cost < best ? cost : best;
    }
    return best < UINT64_MAX;
}

/* Of a tenant's images that are there, have no floor and are not spared; NO_IMAGE: none. */
static uint32_t m_pick(const struct model *m, uint32_t tag, bool oldest, const struct m_want *w)
{
    uint32_t best = RESIDENCY_NO_IMAGE;

    for (uint32_t id = 0; id < M_IMAGES; id++) {
        const struct m_image *im = &m->im[id];

        if (im->tag != tag || im->held == 0 || im->floor > 0 ||
            (oldest && (im->is_pinned || im->is_sticky || id == w->self || id == w->spare)))
            continue;
        if (best == RESIDENCY_NO_IMAGE ||
            (oldest ? im->last <= m->im[best].last : im->last > m->im[best].last))
            best = id;
    }
    return best;
}

static bool m_keep_below_max(struct model *m, const struct m_want *w, uint32_t n)
{
    const struct model before = *m;
    uint32_t id;

    while (m_used(m, w->tag, true) + (uint64_t)n > m->quota[w->tag].max_blocks) {
        id = w->may_evict ? m_pick(m, w->tag, true, w) : RESIDENCY_NO_IMAGE;
        if (id == RESIDENCY_NO_IMAGE) {
            *m = before;
            return false;
        }
        m_truncate(m, id, m->im[id].held - 1);
    }
    return true;
}

static bool m_is_over(const struct model *m, const struct m_want *w, uint32_t of)
{
    double shares = 0, rest = M_BLOCKS, fair;

    for (uint32_t tag = 1; tag <= M_TENANTS; tag++)
        if (m_used(m, tag, true) > m_used(m, tag, false)) {
            shares += m->quota[tag].share;
            rest -= m->quota[tag].min_blocks;
        }
    fair = m->quota[of].min_blocks;
    fair += rest > 0 && shares > 0 ? rest * m->quota[of].share / shares : 0;
    return m_used(m, of, true) + (of == w->tag ? w->n : 0) > fair;
}

static void m_set_floors(struct model *m, uint32_t for_tag)
{
    for (uint32_t tag = 1; tag <= M_TENANTS; tag++) {
        uint32_t left = m->quota[tag].min_blocks, ranges = m_used(m, tag, false), id;

        left = tag == for_tag || left < ranges ? 0 : left - ranges;
        while (left > 0 && (id = m_pick(m, tag, false, NULL)) != RESIDENCY_NO_IMAGE) {
            m->im[id].floor = left < m->im[id].held ? left : m->im[id].held;
            left -= m->im[id].floor;
        }
    }
}

/* True: the hand has made a candidate of what it has passed. */
static bool m_advance(struct model *m, const struct m_want *w, bool only_over)
{
    const uint32_t id = m->ring[0];
    struct m_image *im = &m->im[id];

    for (uint32_t i = 1; i < m->n_ring; i++)
        m->ring[i - 1] = m->ring[i];
    m->ring[m->n_ring - 1] = id;
    if (im->is_pinned || im->is_sticky || id == w->spare || im->is_candidate ||
        (only_over && !m_is_over(m, w, im->tag)))
        return false;
    im->count = im->use ? 0 : im->count + 1;
    im->is_candidate = !im->use && im->count >= M_CHANCE;
    im->use = false;
    return im->is_candidate;
}

static bool m_make_room(struct model *m, const struct m_want *w, uint32_t *at_out)
{
    bool found = m_best(m, w, at_out);

    m_set_floors(m, w->tag);
    for (int only_over = m->has_quotas; only_over >= 0; only_over--)
        for (uint32_t i = m->n_ring * (M_CHANCE + 1); w->may_evict && !found && i > 0; i--)
            found = m_advance(m, w, only_over) && m_best(m, w, at_out);
    for (uint32_t b = *at_out; found && b < *at_out + w->n; b++)
        if (m->block[b].kind == ARENA_IMAGE && m->block[b].owner != w->self)
            m_truncate(m, m->block[b].owner, b - m->im[m->block[b].owner].first);
    for (uint32_t id = 0; id < M_IMAGES; id++) {
        m->im[id].is_candidate = false;
        m->im[id].floor = 0;
    }
    return found;
}

/* What went for the max comes back where there is no piece all the same. */
static bool m_find_place(struct model *m, const struct m_want *w, uint32_t n, uint32_t *at_out)
{
    const struct model before = *m;

    if (!m_keep_below_max(m, w, n))
        return false;
    if (m_make_room(m, w, at_out))
        return true;
    if (m_used(&before, w->tag, true) + (uint64_t)n > m->quota[w->tag].max_blocks)
        *m = before;
    return false;
}

static void m_take(struct model *m, uint32_t at, uint32_t n, enum arena_kind kind, uint32_t owner)
{
    for (uint32_t b = at; b < at + n; b++) {
        m->block[b].kind = kind;
        m->block[b].owner = owner;
    }
}

static bool m_place(struct model *m, uint32_t id, bool may_evict)
{
    struct m_image *im = &m->im[id];
    const struct m_want w = {
        .n = im->n, .self = id, .spare = id, .tag = im->tag, .may_evict = may_evict};
    bool was_there = im->held > 0;
    uint32_t at = 0;

    if (im->held < im->n) {
        if (!m_find_place(m, &w, im->n - im->held, &at))
            return false;
        for (uint32_t b = im->first; b < im->first + im->held; b++)
            m->block[b] = (struct arena_seg){.tag = im->tag};
        m_take(m, at, im->n, ARENA_IMAGE, id);
        im->first = at;
        im->held = im->n;
        if (!was_there) {
            m->ring[m->n_ring++] = id;
            im->count = 0;
        }
    }
    im->use = true;
    return true;
}

static void assert_same(struct residency *r, const struct model *m)
{
    for (uint32_t b = 0; b < M_BLOCKS; b++) {
        const struct arena_seg g = arena_seg_at(residency_arena(r), b);

        assert_int_equal(g.kind, m->block[b].kind);
        assert_int_equal(g.owner, m->block[b].owner);
        assert_int_equal(g.tag, m->block[b].tag);
    }
    for (uint32_t id = 0; id < M_IMAGES; id++)
        assert_int_equal(residency_held(r, id), m->im[id].held);
}

struct life { /* one of both, side by side */
    struct residency *r;
    struct model m;
    struct arena_range work[4];
    uint32_t x, placed, refused;
};

static void begin_life(struct life *l, uint32_t seed)
{
    *l = (struct life){.x = seed};
    assert_ok(residency_new(M_BLOCKS, &(struct residency_conf){.n_chance = M_CHANCE}, &l->r, NULL));
    l->m.has_quotas = seed % 3 > 0;
    for (uint32_t tag = 0; tag <= M_TENANTS; tag++) {
        struct residency_quota *q = &l->m.quota[tag];

        *q = (struct residency_quota){.max_blocks = RESIDENCY_NO_MAX, .share = 1};
        if (!l->m.has_quotas || tag == 0)
            continue;
        q->min_blocks = sh_test_random(&l->x) % 2 * (sh_test_random(&l->x) % 20);
        q->max_blocks =
            sh_test_random(&l->x) % 2 ? 20 + sh_test_random(&l->x) % 20 : RESIDENCY_NO_MAX;
        q->share = 1 + sh_test_random(&l->x) % 4;
        assert_ok(residency_set_quota(l->r, tag, q, NULL));
    }
    for (uint32_t i = 0; i < M_IMAGES; i++) {
        struct m_image *im = &l->m.im[i];
        struct residency_image conf;
        uint32_t id;

        im->tag = 1 + sh_test_random(&l->x) % M_TENANTS;
        im->n = 1 + sh_test_random(&l->x) % 16;
        im->keep = sh_test_random(&l->x) % (im->n + 1);
        conf = (struct residency_image){.n_blocks = im->n, .keep_blocks = im->keep, .tag = im->tag};
        assert_ok(residency_add(l->r, &conf, &id, NULL));
        assert_int_equal(id, i);
    }
}

static void a_step_of_a_range(struct life *l, uint32_t k, uint32_t spare)
{
    const struct residency_need need = {.n_blocks = 1 + sh_test_random(&l->x) % 12,
                                        .kind = ARENA_WORK,
                                        .tag = 1 + k % M_TENANTS,
                                        .spare = spare,
                                        .is_from_free = sh_test_random(&l->x) % 4 == 0};
    const struct m_want w = {.n = need.n_blocks,
                             .self = RESIDENCY_NO_IMAGE,
                             .spare = spare,
                             .tag = need.tag,
                             .may_evict = !need.is_from_free,
                             .is_range = true};
    struct arena_range *range = &l->work[k];
    uint32_t at = 0, evicted;
    bool fits;

    if (range->n) {
        for (uint32_t b = range->first; b < range->first + range->n; b++)
            l->m.block[b] = (struct arena_seg){.tag = need.tag};
        residency_release(l->r, range, need.tag);
        return;
    }
    fits = m_find_place(&l->m, &w, w.n, &at);
    if (fits)
        m_take(&l->m, at, w.n, need.kind, need.tag);
    assert_int_equal(residency_alloc(l->r, &need, range, &evicted, NULL) == SH_OK, fits);
}

static void a_step(struct life *l, int64_t now)
{
    const uint32_t id = sh_test_random(&l->x) % M_IMAGES, k = sh_test_random(&l->x) % 4;
    struct m_image *im = &l->m.im[id];
    struct residency_place p;
    bool fits;

    switch (sh_test_random(&l->x) % 10) {
    default:
        fits = m_place(&l->m, id, k > 0);
        assert_int_equal(residency_place(l->r, id, k > 0, &p, NULL) == SH_OK, fits);
        *(fits ? &l->placed : &l->refused) += 1;
        break;
    case 4:
    case 5:
        a_step_of_a_range(l, k, k % 2 ? id : RESIDENCY_NO_IMAGE);
        break;
    case 6:
        im->use = true;
        im->last = now - (int64_t)(k * 5); /* not always in order, and some are equal */
        residency_touch(l->r, id, im->last);
        break;
    case 7:
        if (im->is_pinned)
            residency_unpin(l->r, id);
        else if (im->held == im->n && k == 0)
            residency_pin(l->r, id);
        im->is_pinned = residency_pins(l->r, id) > 0;
        break;
    case 8:
        im->is_sticky = k == 0;
        residency_stick(l->r, id, im->is_sticky);
        break;
    case 9:
        m_truncate(&l->m, id, k);
        residency_truncate(l->r, id, k);
    }
}

static void every_decision_is_that_of_a_plain_model(void **state)
{
    uint32_t placed = 0, refused = 0;

    (void)state;
    for (uint32_t seed = 1; seed <= 300; seed++) {
        struct life l;

        begin_life(&l, seed);
        for (int step = 0; step < 400; step++) {
            a_step(&l, step / 3 * 5);
            assert_same(l.r, &l.m);
        }
        assert_ok(residency_check(l.r, NULL));
        placed += l.placed;
        refused += l.refused;
        residency_free(l.r);
    }
    assert_true(placed > 1000 && refused > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_decision_is_that_of_a_plain_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
