/* rivalry.c - see switch_int.h: runs and training want the same device memory (memory/tenure.h). */
#include "common/clock.h"
#include "common/hook.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "executor/memory/transmit.h"
#include "executor/models/tables.h"
#include "executor/runs/switch_int.h"

/* As of a run's beginning, or of a tick. */
static void want(struct switcher *sw, int64_t now)
{
    const double beta_ns = tx_beta_ns(sw->env.tx);
    struct tenure_claim c = {.job = 0};

    sw->wish = sw->rival.wants(sw->rival.arg);
    c.job = sw->wish.job;
    c.step_ns = sw->wish.step_ns;
    c.copy_ns = (int64_t)((double)sw->wish.ws_bytes * beta_ns);
    tenure_want(&sw->tenure, &c, now);
}

void rivalry__begin(struct switcher *sw, int64_t now)
{
    want(sw, now);
    tenure_begin_run(&sw->tenure, now);
}

void rivalry__end(struct switcher *sw)
{
    tenure_end_run(&sw->tenure, sh_clock_ns());
}

void rivalry__look(struct switcher *sw, int64_t now)
{
    want(sw, now);
    sh_metric_set(M_shunt_training_held_off, SH_LABELS(sw->env.executor),
                  sw->wish.job && sw->tenure.holds_off);
}

static uint32_t blocks_less(uint32_t blocks, uint64_t bytes)
{
    const uint64_t n = bytes / DEV_BLOCK + (bytes % DEV_BLOCK != 0);

    return n < blocks ? blocks - (uint32_t)n : 0;
}

/* What images have beside the state and the workspace of a run; no tenant has more than its max. */
static struct tenure_room run_room(struct residency *res, const struct run *r,
                                   const struct switch_wish *wish)
{
    const uint32_t all = arena_blocks(residency_arena(res));
    const uint32_t max = residency_quota(res, r->model->tag).max_blocks;
    const uint32_t without = blocks_less(blocks_less(all, wish->state_bytes), r->ws_bytes);

    return (struct tenure_room){.beside = SH_MIN(blocks_less(without, wish->ws_bytes), max),
                                .without = SH_MIN(without, max)};
}

static size_t n_behind(const struct switcher *sw)
{
    size_t n = 0;

    for (const struct run *r = sw->queue; r; r = r->next)
        n += !r->is_own;
    return n;
}

/* Batch inference takes what is left, as training does: what it waits costs nobody. */
void rivalry__pay(struct run *r)
{
    struct switcher *sw = r->sw;
    struct residency *res = space_residency(sw->env.space);
    const uint32_t distance = residency_distance(res, r->model->res);
    const struct tenure_room room = run_room(res, r, &sw->wish);
    const uint32_t n = tenure_displaced(&room, residency_blocks(res, r->model->res), distance);

    if (n && !r->is_own)
        tenure_pay(&sw->tenure, (int64_t)((double)n * DEV_BLOCK * tx_beta_ns(sw->env.tx)),
                   n_behind(sw), sh_clock_ns());
}

void rivalry__lose(struct switcher *sw)
{
    tenure_lose(&sw->tenure, sh_clock_ns());
}

bool rivalry__waits_for_drop(const struct run *r)
{
    const struct switcher *sw = r->sw;
    const struct switch_rival *rival = &sw->rival;

    return switch_holds_off(sw) && rival->has_yielded(rival->arg, STOP_PAUSE) &&
           !rival->has_yielded(rival->arg, STOP_DROP) &&
           model_resident_bytes(r->model) < model_run_bytes(r->model);
}

bool switch_holds_off(const struct switcher *sw)
{
    return HOOK_ASK(sw->env.hooks, holds_off, sw->tenure.holds_off, sw->tenure.holds_off);
}
