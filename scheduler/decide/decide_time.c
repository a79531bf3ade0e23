/* decide_time.c - how long a run takes, as predicted for decide.c and decide_due.c. */
#include "common/mem.h"
#include "scheduler/decide/decide_int.h"

#define HEED 4 /* of the time that a request has, one part may be kept free for slow runs */

int64_t decide__run_ns(const struct snapshot *in, uint32_t model, uint32_t batch)
{
    return in->models[model].run_ns[predict_bucket(batch)];
}

int64_t decide__slack_ns(const struct snapshot *in, uint32_t model, uint32_t batch)
{
    const struct snap_model *m = &in->models[model];
    const unsigned b = predict_bucket(batch);

    return SH_MAX(m->slow_ns[b] - m->run_ns[b], 0);
}

const struct snap_place *decide__place(const struct snapshot *in, uint32_t model, uint32_t e)
{
    return &in->places[(size_t)model * in->n_execs + e];
}

int64_t decide__missing_ns(const struct snapshot *in, uint32_t model, uint32_t e)
{
    const struct snap_model *m = &in->models[model];
    const struct snap_place *p = decide__place(in, model, e);
    const double share = p->link_share > 0 ? p->link_share : 1;

    return predict_missing_ns(m->image_bytes, p->resident_bytes, share * in->execs[e].ns_per_byte,
                              share * p->disk_ns_per_byte);
}

static int64_t arrives_ns(const struct work *w, const struct run_of *r, int64_t start_ns)
{
    const int64_t arrives = w->arrives_ns[(size_t)r->model * w->in->n_execs + r->exec];

    if (r->is_warm)
        return start_ns;
    return arrives ? arrives
                   : SH_MAX(start_ns, w->plans[r->exec].lane_ns) +
                         decide__missing_ns(w->in, r->model, r->exec);
}

enum predict_kind decide__weights(const struct work *w, const struct run_of *r, int64_t start_ns)
{
    const struct snap_place *p = decide__place(w->in, r->model, r->exec);

    start_ns += p->worker_ns;
    if (arrives_ns(w, r, start_ns) <= start_ns)
        return PREDICT_WARM;
    return p->has_some ? PREDICT_PARTIAL : PREDICT_COLD;
}

/* By bytes and layers alone; its worker is ready at start_ns. */
static int64_t forecast(const struct work *w, const struct run_of *r, enum predict_kind weights,
                        int64_t start_ns)
{
    const int64_t end = start_ns + decide__run_ns(w->in, r->model, r->batch);

    if (weights == PREDICT_WARM)
        return end;
    return SH_MAX(end, arrives_ns(w, r, start_ns) +
                           w->in->models[r->model].tail_ns[predict_bucket(r->batch)]);
}

int64_t decide__forecast_ns(const struct work *w, const struct run_of *r, int64_t start_ns)
{
    return forecast(w, r, decide__weights(w, r, start_ns),
                    start_ns + decide__place(w->in, r->model, r->exec)->worker_ns);
}

int64_t decide__end_ns(const struct work *w, const struct run_of *r, int64_t start_ns,
                       int64_t *slack)
{
    const struct snap_model *m = &w->in->models[r->model];
    const enum predict_kind weights = decide__weights(w, r, start_ns);
    int64_t end;

    start_ns += decide__place(w->in, r->model, r->exec)->worker_ns;
    end = forecast(w, r, weights, start_ns);
    *slack = decide__slack_ns(w->in, r->model, r->batch);
    if (weights == PREDICT_WARM)
        return end;
    *slack = SH_MAX(*slack, m->cold_slack_ns[weights]);
    /* What others never needed of theirs was of the copy: it computes as long as a warm one. */
    return SH_MAX(end + m->cold_over_ns[weights],
                  start_ns + decide__run_ns(w->in, r->model, r->batch));
}

int64_t decide__heed(const struct snap_request *r, int64_t until_ns, int64_t slack, double reserve)
{
    const double most = (double)SH_MAX(until_ns - r->arrived_ns, 0) / HEED;

    return (int64_t)SH_MIN((double)slack * reserve, most);
}

bool decide__joins(const struct snapshot *in, uint32_t head, uint32_t i)
{
    const struct snap_request *h = &in->requests[head], *r = &in->requests[i];

    return r->model == h->model && (r->is_modest || !h->is_modest);
}

int64_t decide__before(const struct work *w, uint32_t e, const struct snap_request *r,
                       int64_t until_ns, int64_t begin_ns, int64_t now_end, int64_t slack)
{
    const int64_t all = predict_slack(slack, decide__slack_ns(w->in, r->model, r->batch));
    const int64_t end =
        begin_ns - w->in->margin_ns - decide__heed(r, until_ns, all, w->plans[e].reserve);

    return end >= now_end ? end : begin_ns;
}

uint32_t decide__most(const struct snapshot *in, uint32_t model)
{
    return in->models[model].is_solo ? 0 : in->models[model].max_batch;
}

uint32_t decide__whole(const struct snapshot *in, uint32_t model, uint32_t batch)
{
    uint32_t full = 1;

    while (full <= batch / 2)
        full *= 2;
    if (full == batch || batch == in->models[model].max_batch || in->models[model].is_solo)
        return batch;
    return decide__run_ns(in, model, full) + decide__run_ns(in, model, batch - full) <
                   decide__run_ns(in, model, batch)
               ? full
               : batch;
}
