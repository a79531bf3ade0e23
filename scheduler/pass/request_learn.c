/* request_learn.c - see request.h: what a run that has ended says of its model, of the link and of
 * predictions, and who pays for it. */
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/trace.h"
#include "common/units.h"
#include "scheduler/models/homes.h"
#include "scheduler/sched.h"

#include <inttypes.h>
#include <math.h>

#define HOP_NS SH_MS(1)           /* what messages between the processes take, at most */
#define WAITED_NS SH_MS(1)        /* less is what the way to a free executor takes */
#define BIG_COPY_BYTES (1u << 20) /* less says little about the rate of the link */

/* Moves an eighth towards the sample, which counts as four times what was known at most: a stall
 * says nothing. */
static double blend(double old, double sample, double step)
{
    return old + (SH_MIN(sample, 4 * old + step) - old) / 8;
}

int64_t requests__span(int64_t ns)
{
    return SH_MIN(SH_MAX(ns, 0), SH_DAYS(1));
}

/* How far the prediction was off, and whether the run stayed within what a slow one may take. */
static void judge(const struct run *run, const struct exec *e, int64_t took)
{
    static const char *const KINDS[PREDICT_N_KINDS] = {"warm", "partial", "cold", "packed"};
    const char *kind = KINDS[run->kind];
    const bool held = took <= run->predicted_ns + run->slack_ns;

    /* Of all shapes' cold runs the model knows, as in predict_cold_ns(): weights are the same. */
    predict_judge(run->shape && run->kind == PREDICT_WARM ? &run->shape->predict
                                                          : &run->model->predict,
                  run->kind, run->model->slo_percentile, held);
    SH_DEBUG("run.judged",
             "run=%" PRIu64 " executor=%s model=%s batch=%u kind=%s predicted_ns=%" PRId64
             " slack_ns=%" PRId64 " took_ns=%" PRId64,
             run->id, e->info.name, run->model->name, run->batch, kind, run->predicted_ns,
             run->slack_ns, took);
    sh_metric_add(M_shunt_predictions_total,
                  SH_LABELS(run->model->name, kind, held ? "held" : "exceeded"), 1);
    sh_metric_observe(M_shunt_prediction_error_ratio, SH_LABELS(kind),
                      fabs((double)(took - run->predicted_ns)) / (double)took);
}

/* Learns from a run: how long it took, the rate of the link, the cost of stopping training. What
 * the worker measured counts, and HOP_NS at most for the way there and back: that one of the other
 * processes stood still says nothing of the model. */
void requests__learn(struct exec *e, const struct run *run, const struct msg_run_done *m,
                     int64_t now)
{
    int64_t began = SH_MAX(run->sent_ns, e->done_ns), all = SH_MAX(now - began, 1);
    int64_t busy = requests__span(m->busy_ns), took = busy + SH_MIN(SH_MAX(all - busy, 0), HOP_NS);
    const int64_t judged = SH_MAX(all - (run->stopped_training ? e->stop_ns : 0), 1);

    judge(run, e, judged);
    if (m->copied_bytes > BIG_COPY_BYTES && m->copy_ns > 0)
        e->ns_per_byte = blend(e->ns_per_byte, (double)m->copy_ns / (double)m->copied_bytes, 0);
    if (run->stopped_training) {
        int64_t rest = took - requests__span(m->compute_ns) - requests__span(m->copy_ns);

        e->stop_ns = (int64_t)blend((double)e->stop_ns, (double)SH_MAX(rest, 0), FIRST_STOP_NS);
        took = SH_MAX(took - e->stop_ns, 1);
    }
    if (!m->cold && run->kind == PREDICT_WARM)
        predict_add_after(run->shape ? &run->shape->predict : &run->model->predict, run->batch,
                          run->before, took);
    if (!m->cold && run->shape)
        predict_add(&run->shape->predict, run->batch, took, now);
    if (!m->cold)
        predict_add(&run->model->predict, run->batch, took, now);
    else /* one that nobody knew to be cold says nothing of what was predicted */
        predict_add_cold(&run->model->predict, run->batch,
                         run->kind != PREDICT_WARM ? all - run->predicted_ns : 0, now);
    if (m->cold && run->kind != PREDICT_WARM)
        predict_add_over(&run->model->predict, run->kind, run->forecast_ns, judged, now);
}

void requests__charge(struct sched *s, const struct run *run, int64_t gpu_ns)
{
    uint32_t left = run->batch;

    homes_ran(run, gpu_ns);
    for (size_t i = 0; i < run->n_parts; i++) {
        const struct request *r = run->parts[i];

        tenants_charge(&s->tenants, r->tenant, sh_share(&gpu_ns, &left, r->batch), sh_clock_ns());
    }
}

void requests__note_sent(const struct run *run, int64_t now)
{
    const struct model *v = run->model;

    sh_metric_observe(M_shunt_batch_size, SH_LABELS(v->name), run->batch);
    for (size_t i = 0; i < run->n_parts; i++) {
        const int64_t waited_ns = now - run->parts[i]->ready_ns;

        sh_metric_observe(M_shunt_request_queue_wait_seconds,
                          SH_LABELS(run->parts[i]->tenant->name, v->name), (double)waited_ns / 1e9);
        SH_TRACE(.name = "queue", .track = "queue", .begin_ns = run->parts[i]->ready_ns,
                 .end_ns = now, .api = run->parts[i]->api_id, .rid = run->parts[i]->rid,
                 .run = run->id, .what = v->name);
        if (waited_ns >= WAITED_NS)
            sched_count("wait", "Turn");
    }
}
