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

bool waits_takes_runs(const struct worker *w, const struct worker *trainer)
{
    return worker_may_run(w) || (w->state == WORKER_ACTIVE && w != trainer);
}

bool waits_is_stuck(const struct worker *w, int64_t now_ns)
{
    return w->preparing &&
           SH_MAX(present_ns(w, now_ns), now_ns - w->progress_ns) >= WAITS_NOBODY_NS;
}

/* Its longest piece of late, or else of its last load. */
static int64_t own_ns(const struct worker *w)
{
    const struct worker_ctl *c = worker_page(w);

    return c ? atomic_load(&c->long_piece_ns) : 0;
}

/* The longest piece of late of all, in whatever they load or have loaded: others load the same. */
static int64_t longest_ns(struct pool *p, int64_t now_ns)
{
    int64_t longest = 0;

    for (size_t i = 0; i < pool_size(p); i++) {
        const struct worker_ctl *c = worker_page(pool_at(p, i));
        const int64_t ns = c ? atomic_load(&c->long_piece_ns) : 0;

        if (c && atomic_load(&c->long_piece_end_ns) > now_ns - worker_ctl_piece_counts_ns(ns))
            longest = SH_MAX(longest, ns);
    }
    return longest;
}

static int64_t in_wait_steps(int64_t ns)
{
    ns = SH_MIN(SH_MAX(ns, 0), WAITS_NOBODY_NS);
    return (ns + WAITS_STEP_NS - 1) / WAITS_STEP_NS * WAITS_STEP_NS;
}

bool waits_look(struct waits *x, struct pool *p, const struct waits_ask *ask, int64_t now_ns)
{
    const int64_t longest = longest_ns(p, now_ns);
    bool is_new = x->n_served_changes != ask->n_served_changes;

    x->n_served_changes = ask->n_served_changes;
    for (size_t i = 0; i < pool_size(p); i++) {
        const struct worker *w = pool_at(p, i);
        const bool takes_runs = waits_takes_runs(w, ask->trainer);
        struct waits_worker now = {.takes_runs = takes_runs,
                                   .is_free = takes_runs && !w->preparing,
                                   .is_stuck = takes_runs && waits_is_stuck(w, now_ns),
                                   .n_model_changes = w->n_model_changes};

        if (takes_runs && (w->preparing || ask->is_due(ask->arg, w)))
            now.piece_ns = in_wait_steps(SH_MAX(SH_MAX(present_ns(w, now_ns), own_ns(w)), longest));
        is_new |= memcmp(&now, &x->workers[i], sizeof(now)) != 0;
        x->workers[i] = now;
    }
    return is_new;
}

int64_t waits_for(const struct waits *x, struct pool *p, int64_t handle)
{
    size_t n_take = 0, n_free = 0;
    int64_t longest = 0;

    for (size_t i = 0; i < pool_size(p); i++) {
        const struct waits_worker *w = &x->workers[i];

        if (!w->takes_runs || !worker_has_model(pool_at(p, i), handle))
            continue;
        n_take++;
        n_free += w->is_free;
        longest = SH_MAX(longest, w->piece_ns);
    }
    if (n_take == 0)
        return WAITS_NOBODY_NS;
    return n_free == 0 || n_take == 1 ? longest : 0;
}
