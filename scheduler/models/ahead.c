/* ahead.c - see ahead.h. */
#include "scheduler/models/ahead.h"

#include "common/clock.h"
#include "common/mem.h"
#include "scheduler/sched.h"

static uint64_t n_runs_seen(const struct model *m)
{
    return m->n_runs_before + m->predict.n_runs;
}

static bool is_wanted_more(const struct model *m, const struct model *than)
{
    const double load = m->lives.f.load / (double)SH_MAX(m->lives.n, (size_t)1);
    const double other = than->lives.f.load / (double)SH_MAX(than->lives.n, (size_t)1);

    return load != other ? load > other : n_runs_seen(m) > n_runs_seen(than);
}

static bool is_exec_idle(const struct exec *e, int64_t now_ns)
{
    return exec_is_up(e) && !e->n_runs && !e->waiting.n && e->lane_ns <= now_ns &&
           e->ahead.until_ns <= now_ns;
}

static bool may_come(const struct model *m, const struct exec *e, int64_t now_ns)
{
    const struct model_on *on = &m->on[e->index];

    return on->resident_bytes < m->image_bytes && !on->is_on_disk && on->ahead_ns <= now_ns &&
           m->image_bytes <= e->info.pool_bytes;
}

static void choose_exec_for(struct sched *s, struct model *m, int64_t now_ns)
{
    if (m->gone || m->state != MODEL_READY || !(n_runs_seen(m) || m->lives.f.load > 0))
        return;
    for (uint32_t i = m->n_resident; i < m->n_ready; i++) {
        struct exec *e = s->execs.items[m->ready[i]];

        if (is_exec_idle(e, now_ns) && may_come(m, e, now_ns) &&
            (!e->next_ahead || is_wanted_more(m, e->next_ahead)))
            e->next_ahead = m;
    }
}

static void bring_to_exec(struct sched *s, struct model *m, struct exec *e, int64_t now_ns)
{
    const bool is_fresh = m->demand.samples > 0 && now_ns - m->demand.at_ns < AHEAD_FRESH_NS;

    m->on[e->index].ahead_ns = now_ns + AHEAD_AGAIN_NS;
    sched_count("move", "Ahead");
    models_expect_ahead(m, e, now_ns); /* before its answer, which a simulation gives at once */
    session_send(e->session, &(struct sh_msg){.type = MSG_PREPARE,
                                              .u.prepare = {.epoch = s->epoch,
                                                            .version_id = m->version_id,
                                                            .evict = is_fresh ? MSG_EVICT_STALE
                                                                              : MSG_EVICT_NONE}});
}

void ahead_tick(struct sched *s)
{
    const int64_t now = sh_clock_ns();

    if (!s->models.ahead_is_due)
        return;
    s->models.ahead_is_due = false;
    for (size_t i = 0; i < s->models.n; i++)
        choose_exec_for(s, s->models.items[i], now);
    for (size_t i = 0; i < s->execs.n; i++) {
        struct exec *e = s->execs.items[i];

        if (e->next_ahead) {
            bring_to_exec(s, e->next_ahead, e, now);
            s->models.ahead_is_due = true;
        }
        e->next_ahead = NULL;
    }
}

void ahead_second(struct sched *s)
{
    s->models.ahead_is_due = true;
}
