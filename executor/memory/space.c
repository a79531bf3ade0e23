/* space.c - see space.h. */
#include "executor/memory/space.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"

#include <inttypes.h>
#include <stdlib.h>

#define MAX_TENANTS 65536u
#define IDLE_SCRUB_BLOCKS 16u /* a tick: 32 MiB, a few milliseconds even on a slow device */
#define IDLE_NS SH_S(2)

struct pending { /* the lane will still zero or read blocks, whoever has them by then */
    struct pending *next;
    struct space *space;
    struct arena_range range;
};

struct space {
    struct tx *tx;
    struct residency *res;
    const char *executor;
    char **tenants; /* index + 1 = tag */
    size_t n_tenants, cap_tenants;
    uint64_t n_evicted;
    uint32_t n_kept_free; /* blocks, by space_idle() */
    struct pending *pending;
};

static uint32_t to_blocks(size_t bytes)
{
    return (uint32_t)((bytes + DEV_BLOCK - 1) / DEV_BLOCK);
}

int space_new(struct tx *tx, const char *executor, const struct residency_conf *conf,
              struct space **out, struct sh_err *err)
{
    struct space *s = calloc(1, sizeof(*s));
    int rc;

    *out = NULL;
    if (!s)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the memory manager");
    s->tx = tx;
    s->executor = executor;
    rc = residency_new((uint32_t)(dev_mem_bytes(tx_mem(tx)) / DEV_BLOCK), conf, &s->res, err);
    if (rc) {
        space_free(s);
        return rc;
    }
    *out = s;
    return SH_OK;
}

void space_free(struct space *s)
{
    if (!s)
        return;
    while (s->pending) {
        struct pending *next = s->pending->next;

        tx_forget(s->tx, s->pending);
        free(s->pending);
        s->pending = next;
    }
    for (size_t i = 0; i < s->n_tenants; i++)
        free(s->tenants[i]);
    free(s->tenants);
    residency_free(s->res);
    free(s);
}

struct residency *space_residency(struct space *s)
{
    return s->res;
}

int space_tag(struct space *s, const char *tenant, uint32_t *out, struct sh_err *err)
{
    int rc;

    for (size_t i = 0; i < s->n_tenants; i++)
        if (strcmp(s->tenants[i], tenant) == 0) {
            *out = (uint32_t)i + 1;
            return SH_OK;
        }
    rc = sh_grow(&s->tenants, &s->cap_tenants, s->n_tenants + 1, sizeof(*s->tenants), MAX_TENANTS,
                 "tenants of one executor", err);
    if (!rc)
        rc = sh_strdup(tenant, &s->tenants[s->n_tenants], err);
    if (!rc)
        *out = (uint32_t)++s->n_tenants;
    return rc;
}

int space_set_quota(struct space *s, const char *tenant, uint64_t min_bytes, uint64_t max_bytes,
                    double share, struct sh_err *err)
{
    const uint64_t all = arena_blocks(residency_arena(s->res));
    const struct residency_quota q = {
        .min_blocks = (uint32_t)SH_MIN(min_bytes / DEV_BLOCK + (min_bytes % DEV_BLOCK > 0), all),
        .max_blocks = max_bytes ? (uint32_t)SH_MIN(max_bytes / DEV_BLOCK, all) : RESIDENCY_NO_MAX,
        .share = share};
    uint32_t tag;
    int rc = space_tag(s, tenant, &tag, err);

    return rc ? rc : residency_set_quota(s->res, tag, &q, err);
}

int space_check_max(struct space *s, uint32_t tag, uint64_t bytes, const char *what,
                    struct sh_err *err)
{
    const uint32_t max = residency_quota(s->res, tag).max_blocks;

    if (max == RESIDENCY_NO_MAX || bytes <= (uint64_t)max * DEV_BLOCK)
        return SH_OK;
    return SH_FAIL(err, SH_E_QUOTA,
                   "%s needs %" PRIu64 " MiB of device memory, and the tenant may have %" PRIu64
                   " MiB (gpu_memory_max_bytes of its quota, in whole blocks of %d MiB); lower the "
                   "batch, or have the quota raised",
                   what, (bytes + (1 << 20) - 1) >> 20, (uint64_t)max * DEV_BLOCK >> 20,
                   (int)(DEV_BLOCK >> 20));
}

/* ------------------------------------------------------------------ pending */

/* The truth about what is on its way; a block's tag may have changed since with its holder. */
static bool is_pending(const struct space *s, struct arena_range r)
{
    for (const struct pending *p = s->pending; p; p = p->next)
        if (r.first < p->range.first + p->range.n && p->range.first < r.first + r.n)
            return true;
    return false;
}

/* Block by block: what another note names is not clean before that one has come, too. */
static void scrubbed_but_pending(struct space *s, struct arena_range r)
{
    for (uint32_t b = r.first; b < r.first + r.n; b++)
        if (!is_pending(s, (struct arena_range){b, 1}))
            arena_scrubbed(residency_arena(s->res), (struct arena_range){b, 1});
}

static void on_passed(void *arg)
{
    struct pending *c = arg;
    struct space *s = c->space;

    for (struct pending **p = &s->pending; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            break;
        }
    if (!is_pending(s, c->range))
        arena_scrubbed(residency_arena(s->res), c->range);
    else
        scrubbed_but_pending(s, c->range);
    free(c);
}

/* Notes what was just enqueued. */
static int note_on_lane(struct space *s, struct arena_range r, struct sh_err *err)
{
    struct pending *p = calloc(1, sizeof(*p));
    int rc;

    if (p) {
        *p = (struct pending){.space = s, .range = r, .next = s->pending};
        rc = tx_mark(s->tx, TX_LANE_IN, on_passed, p, err);
    } else {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not note what the copy lane does");
    }
    if (rc) {
        free(p);
        return rc;
    }
    s->pending = p;
    return SH_OK;
}

/* If it cannot be noted the blocks are foreign to everyone: whoever takes them scrubs them, behind
 * it on the lane, and waits for that. */
static int note_pending(struct space *s, struct arena_range r, struct sh_err *err)
{
    const int rc = note_on_lane(s, r, err);

    if (rc)
        arena_set_tag(residency_arena(s->res), r, ARENA_FOREIGN);
    return rc;
}

/* ------------------------------------------------------------------ scrubbing */

static int zero_bytes(struct space *s, size_t off, size_t bytes, struct sh_err *err)
{
    int rc = tx_zero(s->tx, off, bytes, err);

    if (!rc)
        sh_metric_add(M_shunt_scrubbed_bytes_total, SH_LABELS(s->executor), (double)bytes);
    return rc;
}

static int scrub(struct space *s, struct arena_range r, struct sh_err *err)
{
    int rc = zero_bytes(s, (size_t)r.first * DEV_BLOCK, (size_t)r.n * DEV_BLOCK, err);

    if (!rc)
        rc = note_pending(s, r, err);
    if (!rc)
        arena_set_tag(residency_arena(s->res), r, ARENA_SCRUBBING);
    return rc;
}

/* Zeroes what others left in a range that is now `tag`'s; ARENA_CLEAN: nobody's alone. */
static int scrub_foreign(struct space *s, struct arena_range r, uint32_t tag, struct sh_err *err)
{
    struct arena *a = residency_arena(s->res);
    uint32_t at = r.first, end = r.first + r.n;

    while (at < end) {
        struct arena_seg g = arena_seg_at(a, at);
        uint32_t n = SH_MIN(g.first + g.n, end) - at;

        if (g.n == 0)
            break;
        if (g.tag != ARENA_CLEAN && g.tag != ARENA_SCRUBBING && g.tag != tag) {
            int rc = scrub(s, (struct arena_range){at, n}, err);

            if (rc)
                return rc;
        }
        at += n;
    }
    return SH_OK;
}

/* ------------------------------------------------------------------ ranges */

/* rule: what the room was for (docs/rules.md). */
static void count_evicted(struct space *s, uint32_t blocks, const char *rule)
{
    if (!blocks)
        return;
    s->n_evicted++;
    SH_DEBUG("image.evicted", "executor=%s bytes=%zu rule=%s", s->executor,
             (size_t)blocks * DEV_BLOCK, rule);
    sh_metric_add(M_shunt_evicted_bytes_total, SH_LABELS(s->executor, rule),
                  (double)blocks * (double)DEV_BLOCK);
}

uint64_t space_n_evicted(const struct space *s)
{
    return s->n_evicted;
}

/* It has its blocks: those that others left are zeroed. */
static int take_over(struct space *s, const struct residency_need *n, struct space_range *out,
                     struct sh_err *err)
{
    int rc = scrub_foreign(s, out->blocks, n->is_mixed ? ARENA_CLEAN : n->tag, err);

    if (rc) {
        space_give(s, out, ARENA_FOREIGN); /* some of it still holds what others left */
        return rc;
    }
    out->must_wait = !space_is_clean(s, out);
    return SH_OK;
}

int space_alloc(struct space *s, size_t bytes, const struct residency_need *need,
                struct space_range *out, struct sh_err *err)
{
    struct residency_need n = *need;
    uint32_t evicted = 0;
    int rc;

    n.n_blocks = to_blocks(SH_MAX(bytes, (size_t)1));
    rc = residency_alloc(s->res, &n, &out->blocks, &evicted, err);
    if (rc)
        return rc;
    count_evicted(s, evicted, need->kind == ARENA_TRAIN ? "training" : "workspace");
    return take_over(s, &n, out, err);
}

void space_give(struct space *s, struct space_range *r, uint32_t tag)
{
    residency_release(s->res, &r->blocks, tag);
    r->must_wait = false;
}

void space_cut(struct space *s, struct space_range *r, size_t bytes, uint32_t tag)
{
    const uint32_t n = SH_MIN(to_blocks(bytes), r->blocks.n);
    struct arena_range rest = {r->blocks.first + n, r->blocks.n - n};

    r->blocks.n = n;
    residency_release(s->res, &rest, tag);
}

bool space_is_clean(const struct space *s, const struct space_range *r)
{
    return !is_pending(s, r->blocks);
}

bool space_is_settled(const struct space *s, size_t off, size_t bytes)
{
    return !is_pending(s, (struct arena_range){(uint32_t)(off / DEV_BLOCK), to_blocks(bytes)});
}

size_t space_offset(const struct space_range *r)
{
    return (size_t)r->blocks.first * DEV_BLOCK;
}

/* ------------------------------------------------------------------ images */

/* What others left in these bytes, and whose blocks still say so, must not stay there under the tag
 * of this one. */
static int scrub_bytes(struct space *s, size_t from, size_t end, uint32_t tag, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t at = from, to; !rc && at < end; at = to) {
        const uint32_t block = (uint32_t)(at / DEV_BLOCK);
        const struct arena_seg g = arena_seg_at(residency_arena(s->res), block);

        to = SH_MIN((size_t)(g.first + g.n) * DEV_BLOCK, end);
        if (g.tag == tag || g.tag == ARENA_CLEAN || g.tag == ARENA_SCRUBBING)
            continue;
        rc = zero_bytes(s, at, to - at, err);
        if (!rc) /* the image may be gone again before that is done */
            rc = note_pending(s, (struct arena_range){block, to_blocks(to) - block}, err);
    }
    return rc;
}

/* The image does not fill its last blocks. */
static int scrub_tail(struct space *s, const struct residency_place *p, uint64_t image_bytes,
                      uint32_t tag, struct sh_err *err)
{
    const size_t first = (size_t)p->range.first * DEV_BLOCK;

    if (p->had_blocks == p->range.n)
        return SH_OK;
    return scrub_bytes(s, first + (size_t)image_bytes, first + (size_t)p->range.n * DEV_BLOCK, tag,
                       err);
}

int space_scrub(struct space *s, uint32_t image, size_t off, size_t bytes, struct sh_err *err)
{
    const size_t from = (size_t)residency_first(s->res, image) * DEV_BLOCK + off;
    const int rc = scrub_bytes(s, from, from + bytes, residency_tag(s->res, image), err);

    if (rc)
        residency_forget(s->res, image, 0);
    return rc;
}

/* True: the head is on its way. Its old blocks may be somebody else's already, or soon. */
static bool move_head(struct space *s, const struct residency_place *p, size_t bytes)
{
    if (tx_move(s->tx, (size_t)p->range.first * DEV_BLOCK, (size_t)p->had_first * DEV_BLOCK, bytes,
                NULL))
        return false;
    note_pending(s, (struct arena_range){p->had_first, p->had_blocks}, NULL);
    return true;
}

static void count_faults(const struct space *s, uint64_t n, const char *kind)
{
    if (n)
        sh_metric_add(M_shunt_residency_faults_total, SH_LABELS(s->executor, kind), (double)n);
}

int space_place(struct space *s, uint32_t image, uint64_t image_bytes, bool may_evict,
                struct tx_place *out, struct sh_err *err)
{
    const struct residency_counts was = residency_counts(s->res);
    struct residency_counts now;
    struct residency_place p;
    size_t head;
    int rc = residency_place(s->res, image, may_evict, &p, err);

    *out = (struct tx_place){0};
    if (rc)
        return rc;
    count_evicted(s, p.evicted_blocks, "image");
    now = residency_counts(s->res);
    count_faults(s, now.soft - was.soft, "soft");
    count_faults(s, now.hard - was.hard, "hard");
    rc = scrub_tail(s, &p, image_bytes, residency_tag(s->res, image), err);
    if (rc) {
        residency_forget(s->res, image, 0);
        return rc;
    }
    head = SH_MIN((size_t)p.had_blocks * DEV_BLOCK, (size_t)image_bytes);
    out->off = (size_t)p.range.first * DEV_BLOCK;
    out->resident = head;
    if (head && p.had_first != p.range.first) {
        out->moved = move_head(s, &p, head);
        out->resident = out->moved ? head : 0; /* else: copied anew */
    }
    residency_touch(s->res, image, sh_clock_ns());
    return SH_OK;
}

/* Where that cannot be noted, what was copied may be anything by then: whoever fills the place
 * copies it again, behind it on the lane. */
bool space_copy(struct space *s, size_t to, uint32_t image, size_t off, size_t bytes)
{
    const uint32_t first = residency_first(s->res, image) + (uint32_t)(off / DEV_BLOCK);
    const struct arena_range r = {first, to_blocks(off % DEV_BLOCK + bytes)};

    return !tx_move(s->tx, to, (size_t)first * DEV_BLOCK + off % DEV_BLOCK, bytes, NULL) &&
           !note_on_lane(s, r, NULL);
}

static struct residency_need need_beside(const struct residency *r, uint32_t image, size_t bytes,
                                         enum space_way way, const struct residency_need *need)
{
    struct residency_need n = *need;

    n.n_blocks = to_blocks(SH_MAX(bytes, (size_t)1));
    if (way == SPACE_TOGETHER)
        n.n_blocks += residency_blocks(r, image);
    n.is_from_free = way == SPACE_FREE || way == SPACE_ASIDE;
    n.spare = way == SPACE_SPARING ? image : RESIDENCY_NO_IMAGE;
    return n;
}

static bool is_free(struct residency *r, struct arena_range range)
{
    const struct arena_seg g = arena_seg_at(residency_arena(r), range.first);

    return g.kind == ARENA_FREE && g.first + g.n >= range.first + range.n;
}

/* Blocks that are free, and still are when the image has its place. Changes nothing. */
static int find_aside(struct residency *r, uint32_t image, const struct residency_need *n,
                      struct arena_range *out, struct sh_err *err)
{
    struct residency *c = NULL;
    struct residency_place p;
    uint32_t evicted;
    int rc = residency_clone(r, &c, err);

    if (!rc)
        rc = residency_place(c, image, true, &p, err);
    if (!rc)
        rc = residency_alloc(c, n, out, &evicted, err);
    if (!rc && !is_free(r, *out))
        rc = SH_FAIL(err, SH_E_DEVMEM, "could not find free device memory beside the weights");
    residency_free(c);
    return rc;
}

static int alloc_aside(struct space *s, uint32_t image, const struct residency_need *n,
                       struct space_range *out, struct sh_err *err)
{
    int rc = find_aside(s->res, image, n, &out->blocks, err);

    if (!rc)
        rc = arena_take(residency_arena(s->res), out->blocks, n->kind, n->tag, err);
    return rc ? rc : take_over(s, n, out, err);
}

int space_alloc_beside(struct space *s, uint32_t image, size_t bytes, enum space_way way,
                       const struct residency_need *need, struct space_range *out,
                       struct sh_err *err)
{
    const struct residency_need n = need_beside(s->res, image, bytes, way, need);
    int rc = way == SPACE_ASIDE ? alloc_aside(s, image, &n, out, err)
                                : space_alloc(s, (size_t)n.n_blocks * DEV_BLOCK, &n, out, err);

    if (!rc && way == SPACE_TOGETHER)
        space_cut(s, out, SH_MAX(bytes, (size_t)1), n.tag);
    return rc;
}

/* Fails: in this way there is no room. */
static int try_way(struct residency *r, uint32_t image, size_t ws_bytes, enum space_way way,
                   const struct residency_need *need, struct sh_err *err)
{
    const struct residency_need n = need_beside(r, image, ws_bytes, way, need);
    struct residency *c = NULL;
    struct residency_place p;
    struct arena_range at;
    uint32_t evicted;
    int rc;

    if (way == SPACE_ASIDE)
        return find_aside(r, image, &n, &at, err);
    rc = residency_clone(r, &c, err);
    if (!rc)
        rc = residency_alloc(c, &n, &at, &evicted, err);
    if (!rc && way == SPACE_TOGETHER) {
        const uint32_t n_ws = n.n_blocks - residency_blocks(c, image);

        residency_release(c, &(struct arena_range){at.first + n_ws, at.n - n_ws}, n.tag);
    }
    if (!rc)
        rc = residency_place(c, image, true, &p, err);
    residency_free(c);
    return rc;
}

int space_find_way(struct space *s, uint32_t image, size_t ws_bytes,
                   const struct residency_need *need, const struct space_if *x,
                   enum space_way *way_out, struct sh_err *err)
{
    struct residency *c = NULL;
    struct sh_err first = {0}, why;
    int rc = residency_clone(s->res, &c, err);

    if (rc)
        return rc;
    for (size_t i = 0; i < x->n_given; i++) {
        struct arena_range r = x->given[i].blocks;

        residency_release(c, &r, ARENA_CLEAN);
    }
    if (x->is_unpinned)
        residency_unpin_all(c);
    for (int way = SPACE_ASIDE; way < SPACE_N_WAYS; way++) {
        *way_out = (enum space_way)way;
        why = (struct sh_err){0};
        rc = try_way(c, image, ws_bytes, *way_out, need, &why);
        sh_err_copy(&first, &why);
        if (rc != SH_E_DEVMEM)
            break;
    }
    residency_free(c);
    return rc ? sh_err_copy(err, rc == SH_E_DEVMEM ? &first : &why) : SH_OK;
}

/* ------------------------------------------------------------------ background */

static void idle_scrub(struct space *s)
{
    struct arena *a = residency_arena(s->res);
    uint32_t at = 0;

    if (s->pending)
        return;
    while (at < arena_blocks(a)) {
        struct arena_seg g = arena_seg_at(a, at);

        if (g.kind == ARENA_FREE && g.tag != ARENA_CLEAN && g.tag != ARENA_SCRUBBING) {
            scrub(s, (struct arena_range){g.first, SH_MIN(g.n, IDLE_SCRUB_BLOCKS)}, NULL);
            return;
        }
        at += g.n;
    }
}

static bool has_free(struct residency *r, uint32_t blocks)
{
    return arena_count(residency_arena(r), ARENA_FREE) >= blocks;
}

bool space_has_spare(const struct space *s, uint64_t bytes)
{
    return has_free(s->res, to_blocks(bytes) + s->n_kept_free);
}

void space_clear(struct space *s, uint32_t image, uint64_t bytes, int64_t idle_ns)
{
    const uint32_t blocks = to_blocks(bytes) + s->n_kept_free;
    const int64_t now_ns = sh_clock_ns();
    struct residency *c = NULL;
    struct residency_place p;
    bool helps;

    if (residency_clone(s->res, &c, NULL))
        return;
    residency_trim(c, blocks, now_ns, idle_ns);
    helps = has_free(c, blocks) && !residency_place(c, image, false, &p, NULL);
    residency_free(c);
    if (helps)
        count_evicted(s, residency_trim(s->res, blocks, now_ns, idle_ns), "ahead");
}

void space_idle(struct space *s, uint32_t low_percent, uint32_t high_percent)
{
    struct arena *a = residency_arena(s->res);
    uint64_t n = arena_blocks(a), low = n * low_percent / 100, high = n * high_percent / 100;

    s->n_kept_free = (uint32_t)high;
    if (arena_count(a, ARENA_FREE) < low)
        count_evicted(s, residency_trim(s->res, (uint32_t)high, sh_clock_ns(), IDLE_NS), "idle");
    idle_scrub(s);
}

uint64_t space_bytes(const struct space *s, enum arena_kind kind)
{
    return (uint64_t)arena_count(residency_arena(s->res), kind) * DEV_BLOCK;
}

void space_update_metrics(struct space *s)
{
    static const char *const KIND[ARENA_N_KINDS] = {
        [ARENA_FREE] = "free",
        [ARENA_IMAGE] = "weights",
        [ARENA_WORK] = "workspace",
        [ARENA_TRAIN] = "training",
    };
    struct arena *a = residency_arena(s->res);

    for (int k = 0; k < ARENA_N_KINDS; k++)
        sh_metric_set(M_shunt_arena_bytes, SH_LABELS(s->executor, KIND[k]),
                      (double)space_bytes(s, (enum arena_kind)k));
    sh_metric_set(M_shunt_arena_bytes, SH_LABELS(s->executor, "total"),
                  (double)arena_blocks(a) * (double)DEV_BLOCK);
}
