/* homes.c - see homes.h. */
#include "scheduler/models/homes.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"
#include "scheduler/route.h"
#include "scheduler/sched.h"

#include <string.h>

#define NEW_SPEED 0.3 /* weight of what was measured last */
#define MAX_SPEED 16.0

static struct model *model_of(const struct place_version *v)
{
    return SH_TREE_OF(v, struct model, lives);
}

static struct exec *exec_of(const struct place_exec *x)
{
    return SH_TREE_OF(x, struct exec, homes);
}

static bool takes(void *arg, const struct place_version *v, const struct place_exec *x)
{
    (void)arg;
    return model_of(v)->on[x->f.index].phase == MODEL_ON_ABSENT;
}

static bool is_version_near(void *arg, const struct place_version *v, const struct place_exec *x)
{
    (void)arg;
    return model_of(v)->on[x->f.index].was_here;
}

void homes_begin(struct sched *s)
{
    s->models.placement = (struct placement){
        .takes = takes, .is_near = is_version_near, .grace_ns = SH_MS(s->conf->grace_ms)};
    s->models.began_ns = sh_clock_ns();
}

bool homes_has(const struct model *m, const struct exec *e)
{
    return placement_home(&m->lives, &e->homes) != NULL;
}

/* ------------------------------------------------------------------ facts */

static bool is_version_served(const struct sched *s, const struct model *m)
{
    if (m->gone || m->state >= MODEL_FAILED || m->n_failed >= HOMES_MAX_FAILED)
        return false;
    return m->state != MODEL_READY || m->n_requests || m->lives.n > 0 ||
           sh_clock_ns() - s->models.began_ns >= HOMES_ASK_NS;
}

static void set_facts(struct sched *s, struct model *m, int64_t now_ns)
{
    const struct tenant *t = tenants_by_id(&s->tenants, m->tenant_id);
    struct place_version_facts f = {
        .is_wanted = is_version_served(s, m),
        .is_urgent = m->n_requests > 0,
        .is_pinned = m->pinned,
        .tenant = (uint64_t)m->tenant_id,
        .tenant_host_bytes = t ? t->memory.host_max_bytes : 0,
        .device_bytes = SH_MAX(m->image_bytes, m->need_bytes),
        .host_bytes = SH_MAX(m->stored_bytes ? m->stored_bytes : m->image_bytes, m->host_bytes),
        .most = place_most(0, 0, 0),
        .min_copies = (uint32_t)s->conf->min_copies,
        .load_ns = m->load_ns ? m->load_ns : HOMES_FIRST_LOAD_NS};
    struct predict_time one;

    if (m->demand.samples > 0) {
        predict_run(&m->predict, 1, m->slo_percentile, now_ns, &one);
        f.load = place_load(&m->demand, one.usual_ns, now_ns);
        f.most = place_most(one.usual_ns, m->slo_ns, m->slo_percentile);
    }
    placement_set_version(&m->lives, &s->models.placement, &f);
}

void homes_exec_changed(struct sched *s, struct exec *e)
{
    const struct place_exec_facts f = {.is_up = exec_is_up(e),
                                       .index = e->index,
                                       .device_bytes = e->info.pool_bytes,
                                       .host_bytes = e->state.host_limit,
                                       .speed = place_class(e->speed)};

    placement_set_exec(&s->models.placement, &e->homes, &f, sh_clock_ns());
}

void homes_measured(struct sched *s, struct model *m, struct exec *e, const struct msg_profile *p)
{
    const double ns = p->compute_ns;

    if (!(ns > 0) || p->batch != 1)
        return;
    if (m->unit_ns > 0)
        e->speed +=
            NEW_SPEED * (SH_MIN(SH_MAX(m->unit_ns / ns, 1 / MAX_SPEED), MAX_SPEED) - e->speed);
    else
        m->unit_ns = ns * e->speed;
    homes_exec_changed(s, e);
}

/* ------------------------------------------------------------------ moves */

static void carry_out(struct sched *s, const struct place_move *move)
{
    struct model *m = model_of(move->version);
    struct exec *e = exec_of(move->exec);
    const enum model_phase was = m->on[e->index].phase;

    SH_INFO("model.home", "executor=%s tenant=%s model=%s version=%u move=%s why=%s load=%.3f%s",
            e->info.name, m->tenant, m->name, m->version, move->is_drop ? "drop" : "add",
            PLACE_WHY[move->why], move->version->f.load, move->is_over ? " over=1" : "");
    sh_metric_add(M_shunt_placement_moves_total, SH_LABELS(PLACE_WHY[move->why]), 1);
    if (!move->is_drop) {
        models__load(s, m, e);
        return;
    }
    if (!exec_is_up(e) || was == MODEL_ON_ABSENT || was == MODEL_ON_UNLOADING)
        return;
    if (was == MODEL_ON_ASIDE)
        models__reset(s, m, e->index, MODEL_ON_ABSENT);
    else
        models__leave(s, m, e);
    s->models.changed = true;
    if (was == MODEL_ON_READY)
        s->route->on_unready(s, e, m, NULL);
}

static bool is_home_waited_for(const struct model *m, const struct exec *e)
{
    for (const struct request *r = e->waiting.first; r; r = r->behind)
        if (r->model == m)
            return true;
    return false;
}

/* What was promised there is kept there. */
static void hold_for_requests(struct model *m)
{
    for (size_t i = 0; i < m->lives.n && m->lives.n > 1 && m->n_requests; i++) {
        struct place_home *h = &m->lives.homes[i];

        h->is_held |= is_home_waited_for(m, exec_of(h->exec));
    }
}

void homes_look(struct sched *s, struct model *m)
{
    const int64_t now = sh_clock_ns();
    struct place_move move;

    set_facts(s, m, now);
    hold_for_requests(m);
    while (placement_look(&s->models.placement, &m->lives, now, &move))
        carry_out(s, &move);
}

void homes_tell(struct sched *s, struct model *m, struct exec *e)
{
    const struct model_on *on = &m->on[e->index];
    const bool is_there = on->phase == MODEL_ON_READY || on->phase == MODEL_ON_LOADING;
    const int64_t now = sh_clock_ns();

    if (is_there && !m->gone && m->state < MODEL_FAILED)
        (void)placement_put(&s->models.placement, &m->lives, &e->homes, now, NULL);
    placement_tell(&s->models.placement, &m->lives, &e->homes, on->phase == MODEL_ON_READY,
                   on->phase == MODEL_ON_ASIDE, now);
}

void homes_leave(struct sched *s, struct model *m, const struct exec *e)
{
    struct place_home *h = placement_home(&m->lives, &e->homes);

    if (h)
        placement_take(&s->models.placement, &m->lives, h->exec);
}

void homes_leave_all(struct sched *s, struct model *m)
{
    while (m->lives.n)
        placement_take(&s->models.placement, &m->lives, m->lives.homes[m->lives.n - 1].exec);
}

bool homes_elsewhere(struct sched *s, struct model *m, struct exec *e)
{
    struct place_move move;

    if (!homes_has(m, e))
        return true;
    set_facts(s, m, sh_clock_ns());
    if (!placement_more(&s->models.placement, &m->lives, sh_clock_ns(), &move))
        return false;
    homes_leave(s, m, e);
    carry_out(s, &move);
    return true;
}

/* ------------------------------------------------------------------ executors */

/* Whoever looked at a version since it said so took e for one that is away. */
void homes_exec_synced(struct sched *s, struct exec *e)
{
    homes_exec_changed(s, e);
    for (size_t i = 0; i < s->models.n; i++) {
        struct model *m = s->models.items[i];

        homes_tell(s, m, e);
        m->n_failed = SH_MIN(m->n_failed, HOMES_MAX_FAILED - 1);
    }
}

void homes_exec_away(struct sched *s, struct exec *e)
{
    homes_exec_changed(s, e);
    for (size_t i = 0; i < s->models.n; i++) {
        struct model *m = s->models.items[i];

        if (!homes_has(m, e))
            continue;
        placement_tell(&s->models.placement, &m->lives, &e->homes, false, false, sh_clock_ns());
        homes_look(s, m);
    }
}

void homes_exec_forget(struct sched *s, struct exec *e)
{
    for (size_t i = 0; i < s->models.n; i++) {
        homes_leave(s, s->models.items[i], e);
        s->models.items[i]->on[e->index].was_here = false;
    }
    placement_del_exec(&s->models.placement, &e->homes);
}

/* ------------------------------------------------------------------ demand */

void homes_asked(struct model *m, uint32_t samples, int64_t now_ns)
{
    predict_ask(&m->predict, samples, now_ns);
    place_ask(&m->demand, samples, now_ns);
}

void homes_ran(const struct run *run, int64_t device_ns)
{
    place_ran(&run->model->demand, run->batch, device_ns, place_class(run->exec->speed));
}

static void want_on(struct sched *s, struct model *m, struct exec *e)
{
    struct model_on *on = &m->on[e->index];

    m->asked_ns = sh_clock_ns();
    if (!exec_is_up(e))
        return;
    if (on->phase == MODEL_ON_ABSENT)
        (void)placement_put(&s->models.placement, &m->lives, &e->homes, m->asked_ns, NULL);
    if (on->phase == MODEL_ON_ASIDE || on->phase == MODEL_ON_ABSENT ||
        (on->phase == MODEL_ON_LOADING && !on->is_urgent))
        models__load(s, m, e);
    else if (on->phase == MODEL_ON_UNLOADING)
        on->is_urgent = true;
}

void homes_want_on(struct sched *s, struct model *m, struct exec *e)
{
    struct place_home *h;

    want_on(s, m, e);
    if (m->on[e->index].phase == MODEL_ON_UNLOADING && m->state < MODEL_FAILED)
        (void)placement_put(&s->models.placement, &m->lives, &e->homes, m->asked_ns, NULL);
    h = placement_home(&m->lives, &e->homes);
    if (h)
        h->is_held = true;
}

void homes_want(struct sched *s, struct model *m)
{
    m->asked_ns = sh_clock_ns();
    for (uint32_t i = 0; i < m->n_ready; i++)
        if (exec_is_up(s->execs.items[m->ready[i]]))
            return;
    homes_look(s, m);
    for (size_t i = 0; i < m->lives.n; i++) {
        struct exec *e = exec_of(m->lives.homes[i].exec);

        if (m->on[e->index].phase != MODEL_ON_ABSENT)
            want_on(s, m, e);
    }
}

/* ------------------------------------------------------------------ each second */

/* By batch inference, which uses the version where it runs. For who waits each look adds its own,
 * which counts until then. */
static void hold_homes(struct sched *s)
{
    for (size_t i = 0; i < s->models.n; i++)
        for (size_t k = 0; k < s->models.items[i]->lives.n; k++)
            s->models.items[i]->lives.homes[k].is_held = false;
    for (size_t i = 0; i < s->jobs.n; i++) {
        const struct job *j = s->jobs.items[i];
        struct model *m =
            j->is_batch && j->executor[0] ? models_find(&s->models, j->version_id) : NULL;
        const struct exec *e = m ? execs_find(&s->execs, j->executor) : NULL;
        struct place_home *h = e ? placement_home(&m->lives, &e->homes) : NULL;

        if (h)
            h->is_held = true;
    }
}

static void show_home_metrics(struct sched *s)
{
    for (size_t i = 0; i < s->execs.n; i++) {
        struct exec *e = s->execs.items[i];

        sh_metric_set(M_shunt_placement_load, SH_LABELS(e->info.name), e->homes.load);
        sh_metric_set(M_shunt_models_shut, SH_LABELS(e->info.name), e->thrash.n_shut);
    }
}

void homes_second(struct sched *s)
{
    hold_homes(s);
    show_home_metrics(s);
}

const char *homes_source(const struct sched *s, const struct model *m, const struct exec *e)
{
    for (uint32_t i = 0; i < m->n_ready; i++) {
        const struct exec *x = s->execs.items[m->ready[i]];

        if (x != e && exec_is_up(x) && !m->on[x->index].is_on_disk &&
            strncmp(x->info.data_addr, "tcp:", 4) == 0)
            return x->info.data_addr;
    }
    return "";
}
