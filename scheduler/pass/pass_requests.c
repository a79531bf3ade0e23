/* pass_requests.c - see pass.h: requests. */
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/units.h"
#include "scheduler/models/serving.h"
#include "scheduler/pass/pass_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_EXECS 16u /* of one pass, but for those that its last new request brings */
#define MAX_NEW 64u   /* requests of one pass that no executor has */
#define MAX_OFFERS 8u /* executors that are asked what a new request would mean there ... */
#define FEW_OFFERS 3u /* ... where more than that have its model: asks_more() */
#define MUCH 8        /* time is short if an answer takes more than 1/MUCH of it */
#define MAX_SEEN 64u  /* executors that have its model, looked at for these ... */
#define MAX_HOLD 32u  /* ... so many at first that hold all of it on their device */
#define DOUBT 2       /* one part in so many more than guessed, and it would be late */
#define LATE_NS SH_S(1000000)
#define LONG_NS SH_S(1)    /* a wait for which an executor has too much to do */
#define MAX_PASSES 100000u /* of one turn: the tick goes on with what is left */

/* ------------------------------------------------------------------ what it is about */

static bool is_ready(const struct model *m, const struct shape *h, const struct exec *e)
{
    return m->on[e->index].phase == MODEL_ON_READY && !m->gone &&
           (!h || h->on[e->index].phase == SHAPE_READY);
}

static void add_snap_exec(struct sched *s, struct snapshot *in, struct exec *e)
{
    struct pass *p = &s->pass;

    if (e->snap != SNAP_NONE)
        return;
    e->snap = (uint32_t)in->n_execs;
    p->exec_of[in->n_execs] = e;
    p->execs[in->n_execs] = pass__exec(s, e, in->now_ns);
    p->execs[in->n_execs++].has_modest = demand_has_modest(&e->demand, in->now_ns);
}

/* A worker that has the shape has its version, which may be compiled for just these sizes. */
static int64_t worker_ns(const struct model *m, const struct shape *h, const struct exec *e)
{
    return SH_MAX(m->on[e->index].worker_ns, h ? h->on[e->index].worker_ns : 0);
}

/* May it share a run with who waits there? */
static bool may_join(const struct request *r, const struct exec *e)
{
    const struct request *last = e->waiting.last;

    return last && last->model == r->model;
}

/* Its price there, roughly: when it would be done, behind what waits and with the copy of what is
 * missing, and what that takes from others. Those that may be too late come behind all others. */
static int64_t guess_ns(const struct sched *s, const struct request *r, const struct exec *e,
                        int64_t now_ns)
{
    const struct model *m = r->model;
    const int64_t run_ns = SH_MAX(m->predict.profile_ns[0], 1) + models_unpack_ns(m, e);
    int64_t slack, ns = exec_busy_until_ns(e, now_ns, &slack) - now_ns + worker_ns(m, r->shape, e);
    int64_t cost = models_copy_ns(m, e);

    ns = SH_MAX(ns + (int64_t)e->waiting.n * run_ns + cost, m->on[e->index].arrives_ns - now_ns) +
         run_ns;
    if (r->limit_ns != SNAP_NO_DEADLINE && ns + ns / DOUBT > r->limit_ns - now_ns)
        return LATE_NS + ns;
    if (jobs_train_on(s, e))
        cost += decide_displaced_ns(may_join(r, e) ? 0 : run_ns, e->stop_ns,
                                    !e->n_runs && !e->waiting.n);
    return decide_price_ns(ns, cost);
}

struct offers { /* by when they would be done, the first at first */
    struct exec *exec[MAX_OFFERS];
    int64_t ns[MAX_OFFERS], now_ns;
    uint32_t n, n_seen;
};

static void keep_best(struct offers *o, struct exec *e, int64_t ns)
{
    uint32_t at = o->n;

    if (at == MAX_OFFERS && o->ns[at - 1] <= ns)
        return;
    if (at < MAX_OFFERS)
        o->n++;
    else
        at--;
    for (; at > 0 && o->ns[at - 1] > ns; at--) {
        o->exec[at] = o->exec[at - 1];
        o->ns[at] = o->ns[at - 1];
    }
    o->exec[at] = e;
    o->ns[at] = ns;
}

struct rows {               /* of model.ready */
    uint32_t from, n, most; /* so many of them at most */
};

/* Looks at those that are up, beginning with the nextth. */
static void see_offers(struct sched *s, const struct request *r, struct rows rows, uint32_t *next,
                       struct offers *best)
{
    const struct model *m = r->model;
    uint32_t i, seen = 0;

    for (i = 0; i < rows.n && seen < rows.most; i++) {
        struct exec *e = s->execs.items[m->ready[rows.from + (*next + i) % rows.n]];

        if (!exec_is_up(e) || !is_ready(m, r->shape, e))
            continue;
        seen++;
        keep_best(best, e, guess_ns(s, r, e, best->now_ns));
    }
    if (seen == rows.most)
        *next += i;
    best->n_seen += seen;
}

/* Is it worth while to ask more than a few? Not if they will hardly refuse it, nor if those behind
 * them would be too late as well. */
static bool asks_more(const struct request *r, const struct offers *o)
{
    const int64_t ns = o->ns[FEW_OFFERS - 1];

    return r->limit_ns != SNAP_NO_DEADLINE && ns < LATE_NS && ns > (r->limit_ns - o->now_ns) / MUCH;
}

/* The executors that are most likely to answer r at the least price; where many have its model, of
 * a part of them: of others each time (Mitzenmacher, "The power of two choices"). Those that hold
 * it come first, by chance alone they would hardly be among so few; but one that lacks it is always
 * asked, so that its image spreads. */
static void add_offers(struct sched *s, struct snapshot *in, const struct request *r)
{
    struct model *m = r->model;
    struct offers best = {.now_ns = in->now_ns}, lack = best;
    const struct rows hold = {0, m->n_resident, MAX_HOLD};
    struct rows rest = {m->n_resident, m->n_ready - m->n_resident, MAX_SEEN};

    see_offers(s, r, hold, &m->next_resident, &best);
    rest.most -= best.n_seen;
    see_offers(s, r, rest, &m->next_ready, &lack);
    for (uint32_t k = 0; k < lack.n; k++)
        keep_best(&best, lack.exec[k], lack.ns[k]);
    if (best.n_seen + lack.n_seen > MAX_OFFERS && !asks_more(r, &best))
        best.n = FEW_OFFERS;
    for (uint32_t k = 0; k < best.n; k++)
        add_snap_exec(s, in, best.exec[k]);
    if (lack.n)
        add_snap_exec(s, in, lack.exec[0]);
}

/* Nobody has its model: what it hears depends on whether there is any executor. */
static void add_any(struct sched *s, struct snapshot *in)
{
    for (size_t i = 0; i < s->execs.n && in->n_execs == 0; i++)
        if (exec_is_up(s->execs.items[i]))
            add_snap_exec(s, in, s->execs.items[i]);
}

/* False: there is nothing to look at. */
static bool choose_requests(struct sched *s, struct snapshot *in)
{
    struct pass *p = &s->pass;
    struct request *r;
    struct exec *e;

    p->n_new = 0;
    while (in->n_execs < MAX_EXECS && p->n_new < MAX_NEW && (r = waiting_take(s))) {
        if (!requests_has_shape(s, r))
            continue; /* it is parked */
        p->parts[p->n_new++] = r;
        add_offers(s, in, r);
    }
    while (in->n_execs < MAX_EXECS && (e = waiting_take_exec(s)))
        if (exec_is_up(e))
            add_snap_exec(s, in, e);
    if (p->n_new)
        add_any(s, in);
    return p->n_new > 0 || in->n_execs > 0;
}

/* ------------------------------------------------------------------ the snapshot */

/* What is asked for here, if all that have the model get as much. */
static double asked_here(const struct model *m, const struct shape *h, uint32_t n_here,
                         int64_t now_ns)
{
    const double asked = predict_asked(h ? &h->predict : &m->predict, now_ns);
    uint32_t n = h ? 0 : m->n_ready;

    for (uint32_t i = 0; h && i < m->n_ready; i++)
        n += h->on[m->ready[i]].phase == SHAPE_READY;
    return n_here && n_here < n ? asked * n_here / n : asked;
}

/* What the snapshot says of a model on an executor. Only that is read of both which a request asks
 * about: with many of each most of it would be for nobody. */
static void take_snap_place(struct pass *p, const struct snapshot *in, uint32_t model, size_t i)
{
    struct snap_place *place = &p->places[(size_t)model * in->n_execs + i];
    const struct model_on *on = &p->model_of[model]->on[p->exec_of[i]->index];

    if (place->ready)
        return;
    *place = (struct snap_place){
        .ready = is_ready(p->model_of[model], p->shape_of[model], p->exec_of[i]),
        .resident_bytes = on->resident_bytes,
        .arrives_ns = on->arrives_ns,
        .unpack_ns = models_unpack_ns(p->model_of[model], p->exec_of[i]),
        .link_share = on->link_share,
        .disk_ns_per_byte = models_disk_ns(p->model_of[model], p->exec_of[i]),
        .is_shut = on->resident_bytes < p->model_of[model]->image_bytes &&
                   thrash_is_shut(&p->exec_of[i]->thrash, p->model_of[model]->version_id),
        .has_some = models_had_some(on, in->now_ns),
        .worker_ns = worker_ns(p->model_of[model], p->shape_of[model], p->exec_of[i])};
    p->n_here[model] += place->ready;
}

/* h: one of its shapes, or NULL. */
static void take_model(struct sched *s, struct snapshot *in, struct model *m, struct shape *h)
{
    struct pass *p = &s->pass;
    struct snap_model *x = &p->models[in->n_models];
    const struct predict *times = h ? &h->predict : &m->predict;
    const unsigned last = predict_bucket(m->max_batch);
    struct predict_time t[PREDICT_N_BUCKETS];

    memset(&p->places[in->n_models * in->n_execs], 0, in->n_execs * sizeof(*p->places));
    p->n_here[in->n_models] = 0;
    *(h ? &h->snap : &m->snap) = (uint32_t)in->n_models;
    p->model_of[in->n_models] = m;
    p->shape_of[in->n_models] = h;
    *x = (struct snap_model){.max_batch = m->max_batch,
                             .is_solo = m->is_solo,
                             .image_bytes = m->image_bytes,
                             .refused_ns = m->refused_ns,
                             .copied_ns = m->copied_ns};
    for (enum predict_kind k = PREDICT_WARM + 1; k < PREDICT_N_KINDS; k++) {
        x->cold_over_ns[k] = predict_over_ns(&m->predict, k, in->now_ns);
        x->cold_slack_ns[k] = predict_cold_ns(&m->predict, k, m->slo_percentile, in->now_ns);
    }
    predict_runs(times, last, m->slo_percentile, in->now_ns, t);
    x->fastest_ns = t[0].fastest_ns;
    for (unsigned b = 0; b <= last; b++) {
        x->run_ns[b] = t[b].usual_ns;
        x->slow_ns[b] = t[b].slow_ns;
        x->tail_ns[b] = t[b].tail_ns;
    }
    in->n_models++;
}

/* What follows from all places that were taken. */
static void finish_model(struct sched *s, const struct snapshot *in, size_t i)
{
    struct pass *p = &s->pass;
    struct model *m = p->model_of[i];
    struct snap_model *x = &p->models[i];

    x->asked = asked_here(m, p->shape_of[i], p->n_here[i], in->now_ns);
    if (p->n_here[i] || !p->n_new) /* nobody asks otherwise */
        return;
    x->expected_ns = serving_expected_ns(s, m, in->now_ns);
    x->failed = serving_state(s, m) == MSG_UP_FAILED;
}

static bool is_request_taken(const struct pass *p, const struct snapshot *in,
                             const struct request *r)
{
    const uint32_t at = r->shape ? r->shape->snap : r->model->snap;

    return at < in->n_models && p->model_of[at] == r->model && p->shape_of[at] == r->shape;
}

/* decide() tells tenants apart, no more. */
static uint32_t take_tenant(struct pass *p, struct snapshot *in, struct tenant *t)
{
    if (t->snap >= in->n_tenants || p->tenant_of[t->snap] != t) {
        t->snap = (uint32_t)in->n_tenants++;
        p->tenant_of[t->snap] = t;
    }
    return t->snap;
}

static int make_snap_room(struct pass *p, const struct snapshot *in, struct sh_err *err)
{
    const size_t n = in->n_requests + 1, m = in->n_models + 1;
    int rc = pass__grow(&p->requests, &p->cap_requests, n, sizeof(*p->requests), err);

    if (!rc)
        rc = pass__grow(&p->request_of, &p->cap_request_of, n, sizeof(*p->request_of), err);
    if (!rc)
        rc = pass__grow(&p->tenant_of, &p->cap_tenant_of, n, sizeof(*p->tenant_of), err);
    if (!rc)
        rc = pass__grow(&p->models, &p->cap_models, m, sizeof(*p->models), err);
    if (!rc)
        rc = pass__grow(&p->model_of, &p->cap_model_of, m, sizeof(*p->model_of), err);
    if (!rc)
        rc = pass__grow(&p->shape_of, &p->cap_shape_of, m, sizeof(*p->shape_of), err);
    if (!rc)
        rc = pass__grow(&p->n_here, &p->cap_n_here, m, sizeof(*p->n_here), err);
    if (!rc)
        rc = pass__grow(&p->places, &p->cap_places, m * SH_MAX(in->n_execs, 1u), sizeof(*p->places),
                        err);
    return rc;
}

/* Does it ask for a part of the time? One that is new does, and one whose body brought more samples
 * than it was placed with. */
static bool asks_for_part(const struct request *r)
{
    return !r->exec || r->n_asked < r->batch;
}

/* One sample, as part of a run that is full. */
static double sample_ns(int64_t one_ns, int64_t full_ns, uint32_t full)
{
    return SH_MIN((double)one_ns, (double)full_ns / full);
}

static uint32_t most_of(bool is_solo, uint32_t max_batch)
{
    return is_solo ? 1 : SH_MIN(1u << predict_bucket(max_batch), max_batch);
}

void pass_note_refused(const struct sched *s, const struct tenant *t, struct model *m)
{
    const int64_t now = sh_clock_ns();
    const uint32_t most = most_of(m->is_solo, m->max_batch);
    const uint32_t n = m->n_ready <= MAX_OFFERS ? m->n_ready : FEW_OFFERS;
    struct predict_time one, full;

    predict_run(&m->predict, 1, m->slo_percentile, now, &one);
    predict_run(&m->predict, most, m->slo_percentile, now, &full);
    for (uint32_t i = 0; i < n; i++)
        demand_add(&s->execs.items[m->ready[m->next_ready++ % m->n_ready]]->demand, t->id,
                   m->version_id, sample_ns(one.usual_ns, full.usual_ns, most) / n, now);
}

/* What is asked of the executors that could answer it: all that have its model as much, or where it
 * is placed. Each sample once. */
static void note_demand(struct sched *s, const struct snapshot *in, struct request *r, uint32_t at)
{
    const struct snap_model *m = &in->models[in->requests[at].model];
    const struct snap_place *on = &in->places[(size_t)in->requests[at].model * in->n_execs];
    const uint32_t most = most_of(m->is_solo, m->max_batch);
    const double ns =
        sample_ns(m->run_ns[0], m->run_ns[predict_bucket(most)], most) * (r->batch - r->n_asked);
    uint32_t n = 0;

    if (ns <= 0)
        return;
    for (size_t e = 0; e < in->n_execs && !r->exec; e++)
        n += on[e].ready;
    for (size_t e = 0; e < in->n_execs; e++)
        if (r->exec ? s->pass.exec_of[e] == r->exec : on[e].ready)
            demand_add(&s->pass.exec_of[e]->demand, r->tenant->id, r->model->version_id,
                       ns / SH_MAX(n, 1u), in->now_ns);
    if (r->exec || n > 0)
        r->n_asked = r->batch;
}

/* Of request i, on the executors that have its model. Its tenant is modest if it is so on all. */
static void take_parts(struct pass *p, const struct snapshot *in, size_t i)
{
    const struct snap_place *on = &in->places[(size_t)in->requests[i].model * in->n_execs];
    struct request *r = p->request_of[i];
    bool any = false, is_modest = true;

    for (size_t e = 0; e < in->n_execs; e++) {
        struct demand_part x = {.part = 1};

        if (on[e].ready) {
            x = demand_part(&p->exec_of[e]->demand, r->tenant->id, in->now_ns);
            is_modest &= x.is_modest;
            any = true;
        }
        p->shares[i * in->n_execs + e] = x.part;
    }
    if (!r->exec)
        p->requests[i].is_modest = r->is_modest = any && is_modest;
}

/* The first n requests ask for a part. */
static int take_shares(struct sched *s, struct snapshot *in, size_t n, struct sh_err *err)
{
    struct pass *p = &s->pass;
    int rc = pass__grow(&p->shares, &p->cap_shares, n * in->n_execs + 1, sizeof(*p->shares), err);

    for (uint32_t i = 0; i < n && !rc; i++)
        note_demand(s, in, p->request_of[i], i);
    for (size_t i = 0; i < n && !rc; i++)
        take_parts(p, in, i);
    in->shares = p->shares;
    in->n_shared = rc ? 0 : n;
    return rc;
}

/* Each that could take it hears of it, once, and whether it does any longer. */
static void note_asked(struct sched *s, const struct snapshot *in, const struct request *r,
                       uint32_t at)
{
    const struct model *m = r->model;
    const struct tenant *owner = tenants_by_id(&s->tenants, m->tenant_id);
    const struct thrash_model asked = {.version = m->version_id,
                                       .tenant = m->tenant_id,
                                       .bytes = m->image_bytes,
                                       .share = owner ? owner->memory.share : 1};

    for (size_t i = 0; i < in->n_execs; i++) {
        struct exec *e = s->pass.exec_of[i];
        const uint32_t was = e->thrash.n_shut;

        if (!s->pass.places[(size_t)at * in->n_execs + i].ready)
            continue;
        if (r->waits == DECIDE_THRASHING)
            thrash_look(&e->thrash, exec_image_bytes(e), in->now_ns);
        else
            thrash_ask(&e->thrash, &asked, exec_image_bytes(e), in->now_ns);
        if (e->thrash.n_shut < was)
            waiting_unpark(s); /* who waits for it comes before it may be shut again */
        if (e->thrash.n_shut != was)
            SH_INFO("executor.shuts", "executor=%s models=%u before=%u rule=Thrashing",
                    e->info.name, e->thrash.n_shut, was);
    }
}

/* Half of its time at most: the rest is for what it came for. */
static int64_t patience_of(const struct request *r)
{
    return r->open_ns + SH_MIN((r->expires_ns - r->open_ns) / 2, THRASH_TRY_NS);
}

static int take_request(struct sched *s, struct snapshot *in, struct request *r, struct sh_err *err)
{
    struct pass *p = &s->pass;
    int rc = make_snap_room(p, in, err);
    uint32_t model;

    if (rc)
        return rc;
    if (!is_request_taken(p, in, r))
        take_model(s, in, r->model, r->shape);
    model = r->shape ? r->shape->snap : r->model->snap;
    for (size_t i = 0; !r->exec && i < in->n_execs; i++)
        take_snap_place(p, in, model, i);
    if (!r->exec)
        note_asked(s, in, r, model);
    if (r->exec)
        take_snap_place(p, in, model, r->exec->snap);
    p->request_of[in->n_requests] = r;
    p->requests[in->n_requests++] =
        (struct snap_request){.state = r->state == REQUEST_READY ? SNAP_READY : SNAP_OPEN,
                              .model = model,
                              .tenant = take_tenant(p, in, r->tenant),
                              .exec = r->exec ? r->exec->snap : SNAP_NONE,
                              .promised = r->promised,
                              .batch = r->batch,
                              .priority = r->priority,
                              .arrived_ns = r->open_ns,
                              .turn_ns = r->turn_ns,
                              .is_modest = r->is_modest,
                              .deadline_ns = r->deadline_ns,
                              .limit_ns = r->limit_ns,
                              .let_in_ns = r->let_in_ns,
                              .wait_ns = r->open_ns + SH_MS(s->conf->load_wait_ms),
                              .patience_ns = patience_of(r),
                              .waits = r->waits,
                              .on_miss = r->model->on_miss};
    return SH_OK;
}

/* Those that are placed, and ask for a part or do not. */
static int take_placed(struct sched *s, struct snapshot *in, bool asks, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; i < in->n_execs; i++)
        for (struct request *r = s->pass.exec_of[i]->waiting.first; r && !rc; r = r->behind)
            if (asks_for_part(r) == asks && requests_has_shape(s, r))
                rc = take_request(s, in, r, err);
    return rc;
}

static int snapshot(struct sched *s, struct snapshot *in, struct sh_err *err)
{
    struct pass *p = &s->pass;
    size_t n_asking = 0;
    int rc = SH_OK;

    for (size_t i = 0; i < p->n_new && !rc; i++) /* of their shape it was asked before */
        rc = take_request(s, in, p->parts[i], err);
    if (!rc)
        rc = take_placed(s, in, true, err);
    n_asking = in->n_requests;
    if (!rc)
        rc = take_placed(s, in, false, err);
    for (size_t i = 0; i < in->n_models && !rc; i++)
        finish_model(s, in, i);
    in->execs = p->execs;
    in->requests = p->requests;
    in->models = p->models;
    in->places = p->places;
    if (!rc)
        rc = take_shares(s, in, n_asking, err);
    return rc ? rc
              : pass__grow(&p->parts, &p->cap_parts, in->n_requests + MAX_NEW, sizeof(*p->parts),
                           err);
}

/* ------------------------------------------------------------------ acting */

/* Too late, by prediction: what a client reads, and what is done so that another is not. */
static void refuse_late(struct sched *s, const struct decision *d, struct request *r, char *msg,
                        size_t size)
{
    double limit_ms = (double)((r->limit_ns - r->open_ns + 500) / 1000) / 1e3;
    double expected_ms = (double)d->predicted_ns / 1e6;
    char more[96];

    r->predicted_ms = sh_ms_up(d->predicted_ns);
    if (!r->exec && !r->model->refused_ns)
        r->model->refused_ns = sh_clock_ns();
    if (d->exec != SNAP_NONE)
        requests_bring(s, r, s->pass.exec_of[d->exec]);
    snprintf(more, sizeof(more), "; asking again in %" PRId64 " ms may help", d->retry_after_ms);
    if (d->reason == DECIDE_FAIR_SHARE)
        snprintf(
            msg, size,
            "more is asked for than can be answered in time, and requests of tenant \"%s\" for "
            "this model have been promised their share of it%s",
            r->tenant->name, more);
    else if (expected_ms > limit_ms)
        snprintf(msg, size,
                 "the deadline of %.12g ms cannot be met: the result is expected after %.3f ms%s",
                 limit_ms, expected_ms,
                 d->is_alone_too_slow
                     ? "; the model alone takes longer than that, so asking again does not help: "
                       "allow more time"
                     : more);
    else
        snprintf(msg, size,
                 "the deadline of %.12g ms could be met only if requests admitted earlier missed "
                 "theirs%s",
                 limit_ms, more);
}

static void refuse_decided(struct sched *s, const struct decision *d)
{
    struct request *r = s->pass.request_of[d->request];
    char msg[640];
    size_t n;

    switch (d->reason) {
    case DECIDE_DEADLINE:
    case DECIDE_FAIR_SHARE:
        refuse_late(s, d, r, msg, sizeof(msg));
        break;
    case DECIDE_MODEL_FAILED:
        n = (size_t)snprintf(msg, sizeof(msg),
                             "no executor could load version %u of \"%s\": ", r->model->version,
                             r->model->name);
        sh_strlcpy(msg + n, r->model->fail_msg, sizeof(msg) - n);
        break;
    case DECIDE_THRASHING:
        snprintf(msg, sizeof(msg),
                 "the models that are asked for do not fit into device memory together, and "
                 "requests for \"%s\" wait until they do; try again",
                 r->model->name);
        break;
    case DECIDE_MODEL_LOADING:
        snprintf(msg, sizeof(msg), "version %u of \"%s\" is being loaded; try again",
                 r->model->version, r->model->name);
        break;
    default:
        snprintf(msg, sizeof(msg), "no executor is connected; try again");
    }
    requests_refuse_by(s, r, decide_reason_name(d->reason), d->rc, d->retry_after_ms, msg);
}

static void run_decided(struct sched *s, const struct decision *d)
{
    struct pass *p = &s->pass;
    struct sh_err err = {0};

    for (uint32_t i = 0; i < d->n; i++)
        p->parts[i] = p->request_of[p->out.members[d->first + i]];
    if (requests_run(s, p->exec_of[d->exec], p->parts, d->n, d, &err))
        sh_log_err(SH_LOG_ERROR, "request.run", &err);
}

/* It is counted once, though each pass finds it waiting. */
static void wait_for_model(struct request *r, enum decide_reason why)
{
    r->waits = (int)why;
    sched_count("wait", decide_reason_name(why));
}

static void act_on_decision(struct sched *s, const struct decision *d)
{
    struct pass *p = &s->pass;

    if (d->kind == DECISION_PLACE)
        requests_place(s, p->request_of[d->request], p->exec_of[d->exec], d->is_probe);
    else if (d->kind == DECISION_REFUSE)
        refuse_decided(s, d);
    else if (d->kind == DECISION_WAIT)
        wait_for_model(p->request_of[d->request], d->reason);
    else
        run_decided(s, d);
}

/* One that finds no time says so of all that could have taken it; one without a limit, if it waits
 * for long behind others. */
static void note_late(const struct pass *p, const struct snapshot *in, const struct decision *d)
{
    const struct snap_request *r =
        d->kind == DECISION_PLACE || d->kind == DECISION_REFUSE ? &in->requests[d->request] : NULL;

    if (d->kind == DECISION_PLACE && r->limit_ns == SNAP_NO_DEADLINE && !r->waits &&
        d->predicted_ns > LONG_NS)
        thrash_late(&p->exec_of[d->exec]->thrash);
    if (d->kind != DECISION_REFUSE || r->exec != SNAP_NONE ||
        (d->reason != DECIDE_DEADLINE && d->reason != DECIDE_FAIR_SHARE))
        return;
    for (size_t i = 0; i < in->n_execs; i++) {
        const struct snap_place *on = &in->places[(size_t)r->model * in->n_execs + i];

        if (on->ready && !on->is_shut)
            thrash_late(&p->exec_of[i]->thrash);
    }
}

/* One pass; *any: it had something to look at. */
static int look_at_requests(struct sched *s, bool *any, struct sh_err *err)
{
    struct pass *p = &s->pass;
    struct snapshot in = pass__conf(s);
    int rc;

    *any = choose_requests(s, &in);
    rc = *any ? snapshot(s, &in, err) : SH_OK;
    if (*any && !rc)
        rc = decide(&in, &p->out, err);
    for (size_t i = 0; *any && !rc && i < p->out.n; i++) {
        note_late(p, &in, &p->out.items[i]);
        act_on_decision(s, &p->out.items[i]);
    }
    for (size_t i = 0; i < in.n_execs; i++)
        p->exec_of[i]->snap = SNAP_NONE;
    return rc;
}

void pass_requests(struct sched *s)
{
    const size_t n = s->execs.n + 1;
    struct pass *p = &s->pass;
    int64_t began = sh_clock_ns();
    struct sh_err err = {0};
    bool any = true;
    int rc = pass__grow(&p->execs, &p->cap_execs, n, sizeof(*p->execs), &err);

    if (!rc)
        rc = pass__grow(&p->exec_of, &p->cap_exec_of, n, sizeof(*p->exec_of), &err);
    if (!rc)
        rc = pass__grow(&p->parts, &p->cap_parts, MAX_NEW, sizeof(*p->parts), &err);
    for (uint32_t i = 0; any && !rc && i < MAX_PASSES; i++)
        rc = look_at_requests(s, &any, &err);
    if (rc)
        sh_log_err(SH_LOG_ERROR, "pass.failed", &err);
    pass__took(began);
}
