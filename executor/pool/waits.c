/* waits.c - see waits.h. */
#include "executor/pool/waits.h"

#include "common/mem.h"

/* How long it has been at its present piece. */
static int64_t present_ns(const struct worker *w, int64_t now_ns)
{
    const struct worker_ctl *c = worker_page(w);
    const int64_t since_ns = w->preparing && c ? atomic_load(&c->piece_since_ns) : 0;

    return since_ns > 0 ? now_ns - SH_MIN(since_ns, now_ns) : 0;
}

/* The longest piece of late, in whatever it loads or has loaded: others load the same. */
static int64_t longest_ns(const struct worker *w, int64_t now_ns)
{
    const struct worker_ctl *c = worker_page(w);
    const int64_t ns = c ? atomic_load(&c->long_piece_ns) : 0;
    const int64_t end_ns = c ? atomic_load(&c->long_piece_end_ns) : 0;

    return end_ns > now_ns - worker_ctl_piece_counts_ns(ns) ? ns : 0;
}

int64_t waits_look(struct pool *p, const struct worker *trainer, int64_t now_ns)
{
    int64_t wait_ns = 0;
    bool any_free = false, any_takes = false;

    for (size_t i = 0; i < pool_size(p); i++) {
        const struct worker *w = pool_at(p, i);
        const bool takes_runs = worker_may_run(w) || (w->state == WORKER_ACTIVE && w != trainer);

        any_free |= takes_runs && !w->preparing;
        any_takes |= takes_runs;
        if (takes_runs)
            wait_ns = SH_MAX(wait_ns, present_ns(w, now_ns));
        wait_ns = SH_MAX(wait_ns, longest_ns(w, now_ns));
    }
    if (any_free)
        return 0;
    if (!any_takes)
        return WAITS_NOBODY_NS;
    return (SH_MIN(wait_ns, WAITS_NOBODY_NS) + WAITS_STEP_NS - 1) / WAITS_STEP_NS * WAITS_STEP_NS;
}
