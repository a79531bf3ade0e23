/* waits.c - see waits.h. */
#include "executor/pool/waits.h"

#include "common/mem.h"

#define KEEP_NS INT64_C(60000000000) /* so long the longest piece counts */
#define STEP_NS INT64_C(10000000)    /* told as a multiple of this */

static void note(struct waits *w, int64_t ns, int64_t now_ns)
{
    if (ns < w->longest_ns && now_ns - w->longest_at_ns < KEEP_NS)
        return;
    w->longest_ns = ns;
    w->longest_at_ns = now_ns;
}

/* How long it has been at its present piece. */
static int64_t piece_ns(struct waits *all, const struct worker *w, int64_t now_ns)
{
    struct waits_piece *p = &all->now[w->index];
    const uint32_t n_done = atomic_load(&w->ctl->load_done);

    if (p->handle == w->preparing && p->n_done == n_done)
        return now_ns - p->since_ns;
    if (p->handle == w->preparing)
        note(all, now_ns - p->since_ns, now_ns);
    *p = (struct waits_piece){w->preparing, n_done, now_ns};
    return 0;
}

int64_t waits_look(struct waits *all, struct pool *p, const struct worker *trainer, int64_t now_ns)
{
    int64_t longest = -1;
    bool any_free = false;

    for (size_t i = 0; i < pool_size(p); i++) {
        const struct worker *w = pool_at(p, i);
        const bool takes_runs = worker_may_run(w) || (w->state == WORKER_ACTIVE && w != trainer);
        int64_t ns = 0;

        if (w->preparing && w->ctl)
            ns = piece_ns(all, w, now_ns);
        else
            all->now[i].handle = 0;
        any_free |= takes_runs && !w->preparing;
        if (takes_runs)
            longest = SH_MAX(longest, ns);
    }
    if (any_free)
        return 0;
    if (longest < 0)
        return WAITS_NOBODY_NS;
    return (SH_MAX(longest, all->longest_ns) + STEP_NS - 1) / STEP_NS * STEP_NS;
}
