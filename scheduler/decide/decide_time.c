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

/* When the last of its weights are there. */
static int64_t arrives_ns(const struct work *w, const struct run_of *r, int64_t start_ns)
{
    const int64_t arrives = w->arrives_ns[(size_t)r->model * w->in->n_execs + r->exec];

    if (r->is_warm)
        return start_ns;
    return arrives ? arrives
                   : SH_MAX(start_ns, w->plans[r->exec].lane_ns) +
                         decide__missing_ns(w->in, r->model, r->exec);
}

/* What is still packed of its weights costs all of its unpacking, wherever the copies are. */
static int64_t unpacking_ns(const struct work *w, const struct run_of *r)
{
    return r->is_warm ? 0 : w->unpack_ns[(size_t)r->model * w->in->n_execs + r->exec];
}

void decide__foresee(const struct work *w, const struct run_of *r, int64_t start_ns,
                     struct foreseen *out)
{
    const struct snap_model *m = &w->in->models[r->model];
    const struct snap_place *p = decide__place(w->in, r->model, r->exec);
    const int64_t begin = start_ns + p->worker_ns, arrives = arrives_ns(w, r, begin);
    const int64_t warm_end = begin + decide__run_ns(w->in, r->model, r->batch);
    const int64_t unpack_ns = unpacking_ns(w, r);

    *out = (struct foreseen){.end_ns = warm_end,
                             .forecast_ns = warm_end + unpack_ns,
                             .slack_ns = decide__slack_ns(w->in, r->model, r->batch),
                             .weights = unpack_ns ? PREDICT_PACKED : PREDICT_WARM};
    if (arrives > begin) {
        out->weights = p->has_some ? PREDICT_PARTIAL : PREDICT_COLD;
        out->forecast_ns = SH_MAX(out->forecast_ns, arrives + m->tail_ns[predict_bucket(r->batch)]);
    }
    if (out->weights == PREDICT_WARM)
        return;
    out->slack_ns = SH_MAX(out->slack_ns, m->cold_slack_ns[out->weights]);
    /* What others never needed of theirs was of the copy: it computes as long as a warm one. */
    out->end_ns = SH_MAX(out->forecast_ns + m->cold_over_ns[out->weights], warm_end);
}

int64_t decide__end_ns(const struct work *w, const struct run_of *r, int64_t start_ns,
                       int64_t *slack)
{
    struct foreseen f;

    decide__foresee(w, r, start_ns, &f);
    *slack = f.slack_ns;
    return f.end_ns;
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
