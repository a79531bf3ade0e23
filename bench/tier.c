/* tier.c - how many runs need no link, with packed copies in device memory and without them.
 *
 * A Zipf mix of 40 models over a pool, by the real policy (executor/memory/residency.h) and in the
 * order of executor/models/model.c: workspace, image, packed copy. The same mix twice in one run.
 * Times are those of an H200 for what is copied and unpacked (decision 52), each run by itself.
 *
 *   build/bench/tier [POOL_GIB [RUNS]] */
#include "common/mem.h"
#include "common/units.h"
#include "executor/memory/residency.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define N_MODELS 40u
#define BLOCK ((uint64_t)2 << 20)
#define PACKED 0.45 /* of the bytes, tf32 */
#define LINK_NS 0.0181
#define UNPACK_NS 0.0008
#define WORKSPACE ((uint64_t)60 << 20)
#define PERCENT 100u /* --keep-packed-percent */
#define STEP_NS SH_MS(5)

enum found { FULL, IN_PACKED, PART, NOTHING, N_FOUND };

struct model {
    uint32_t full, blocks, packed, packed_blocks;
    bool has_packed;
};

struct world {
    struct residency *r;
    struct model models[N_MODELS];
    double sum[N_MODELS]; /* of Zipf's weights */
    bool is_tiered;
    uint64_t n[N_FOUND], n_runs;
    double link_bytes, wait_ns;
    uint64_t random;
};

static double draw(struct world *w)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return (double)(w->random >> 11) / 9007199254740992.0;
}

static uint32_t blocks_of(double bytes)
{
    return (uint32_t)ceil(bytes / (double)BLOCK);
}

/* ResNet-152, BERT-base, Inception-v3, ResNet-50: MB in fp32. */
static void make_models(struct world *w, double skew)
{
    static const double MB[] = {241, 438, 95.5, 102};

    for (uint32_t i = 0; i < N_MODELS; i++) {
        struct model *m = &w->models[i];
        struct residency_image im = {.tag = 1};

        im.n_blocks = im.keep_blocks = m->blocks = blocks_of(MB[i % 4] * 1e6);
        m->packed_blocks = blocks_of(MB[i % 4] * 1e6 * PACKED);
        if (residency_add(w->r, &im, &m->full, NULL))
            abort();
        w->sum[i] = (i ? w->sum[i - 1] : 0) + 1 / pow(i + 1, skew);
    }
}

static uint32_t choose(struct world *w)
{
    const double at = draw(w) * w->sum[N_MODELS - 1];
    uint32_t i = 0;

    while (i + 1 < N_MODELS && w->sum[i] < at)
        i++;
    return i * 7 % N_MODELS; /* what is asked for most is not all of one size */
}

static bool is_there(const struct world *w, uint32_t id)
{
    return residency_held(w->r, id) >= residency_blocks(w->r, id);
}

static bool has_packed(struct world *w, struct model *m)
{
    if (m->has_packed && !is_there(w, m->packed)) {
        residency_remove(w->r, m->packed);
        m->has_packed = false;
    }
    return m->has_packed;
}

static bool wants_packed(const struct world *w, const struct model *m, int64_t now)
{
    return w->is_tiered && residency_demand(w->r, m->full, now) * 100 >
                               (uint64_t)arena_blocks(residency_arena(w->r)) * PERCENT;
}

static void keep_packed(struct world *w, struct model *m)
{
    const struct residency_image im = {
        .n_blocks = m->packed_blocks, .keep_blocks = m->packed_blocks, .tag = 1, .is_whole = true};
    struct residency_place p;

    if (residency_add(w->r, &im, &m->packed, NULL))
        return;
    residency_pin(w->r, m->full);
    m->has_packed = residency_place(w->r, m->packed, true, &p, NULL) == SH_OK;
    residency_unpin(w->r, m->full);
    if (m->has_packed)
        residency_back(w->r, m->full, m->packed, UNPACK_NS / LINK_NS);
    else
        residency_remove(w->r, m->packed);
}

static enum found place(struct world *w, struct model *m, int64_t now)
{
    const bool was_whole = is_there(w, m->full), has_copy = has_packed(w, m);
    const bool keeps = !was_whole && !has_copy && wants_packed(w, m, now);
    struct residency_place p;
    double bytes;

    if (has_copy && !was_whole)
        residency_pin(w->r, m->packed);
    if ((has_copy && !was_whole) || keeps)
        residency_forget(w->r, m->full, 0);
    if (residency_place(w->r, m->full, true, &p, NULL))
        abort();
    if (has_copy && !was_whole)
        residency_unpin(w->r, m->packed);
    if (keeps)
        keep_packed(w, m);
    if (was_whole)
        return FULL;
    bytes = (double)(m->blocks * BLOCK);
    if (has_copy) {
        w->wait_ns += bytes * UNPACK_NS;
        return IN_PACKED;
    }
    bytes = (double)((m->blocks - p.had_blocks) * BLOCK) * PACKED;
    w->link_bytes += bytes;
    w->wait_ns += bytes * LINK_NS;
    return p.had_blocks ? PART : NOTHING;
}

static void run(struct world *w, int64_t now, bool counts)
{
    const struct residency_need need = {.n_blocks = (uint32_t)(WORKSPACE / BLOCK),
                                        .tag = 1,
                                        .kind = ARENA_WORK,
                                        .spare = RESIDENCY_NO_IMAGE};
    struct model *m = &w->models[choose(w)];
    struct arena_range ws;
    uint32_t evicted;
    enum found found;

    if (residency_alloc(w->r, &need, &ws, &evicted, NULL))
        abort();
    found = place(w, m, now);
    residency_touch(w->r, m->full, now);
    if (m->has_packed)
        residency_touch(w->r, m->packed, now);
    residency_release(w->r, &ws, 1);
    if (!counts)
        return;
    w->n[found]++;
    w->n_runs++;
}

static void replay(double gib, double skew, uint64_t runs, bool is_tiered)
{
    struct world w = {.is_tiered = is_tiered, .random = 88172645463325252u};
    const uint32_t blocks = (uint32_t)(gib * (1 << 30) / (double)BLOCK);
    double all;

    if (residency_new(blocks, &(struct residency_conf){.n_chance = 2}, &w.r, NULL))
        abort();
    make_models(&w, skew);
    for (uint64_t i = 0; i < 2 * runs; i++) {
        if (i == runs) /* the first half fills the memory */
            w.link_bytes = w.wait_ns = 0;
        run(&w, (int64_t)(i + 1) * STEP_NS, i >= runs);
    }
    all = (double)w.n_runs;
    printf("%4.1f GiB  skew %.1f  %-8s no link %5.1f %%  (unpacked %5.1f, packed %5.1f)  partly "
           "%5.1f %%  link %6.1f MB a run  weights %5.2f ms a run\n",
           gib, skew, is_tiered ? "packed" : "without",
           100 * (double)(w.n[FULL] + w.n[IN_PACKED]) / all, 100 * (double)w.n[FULL] / all,
           100 * (double)w.n[IN_PACKED] / all, 100 * (double)w.n[PART] / all,
           w.link_bytes / all / 1e6, w.wait_ns / all / 1e6);
    residency_free(w.r);
}

int main(int argc, char **argv)
{
    static const double SKEWS[] = {0, 0.6, 1, 1.4};
    const double gib = argc > 1 ? strtod(argv[1], NULL) : 8;
    const uint64_t runs = argc > 2 ? strtoull(argv[2], NULL, 10) : 20000;

    for (size_t i = 0; i < SH_ARRAY_LEN(SKEWS); i++)
        for (int tiered = 0; tiered < 2; tiered++)
            replay(gib, SKEWS[i], runs, tiered);
    return 0;
}
