/* run.c - runs: their parts, what they hold, and who is told when they end. */
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "executor/agent.h"
#include "executor/data.h"
#include "executor/inputs.h"
#include "executor/switch_int.h"

#include <inttypes.h>
#include <stdlib.h>

void run__free_part(struct run_part *p)
{
    free(p->in);
    free(p->out);
    *p = (struct run_part){0};
}

void run__drop_parts(struct run *r, uint64_t rid, uint64_t api_id)
{
    size_t keep = 0;

    for (size_t i = 0; i < r->n_parts; i++) {
        struct run_part *p = &r->parts[i];
        const struct msg_result m = {
            .rid = p->rid, .rc = SH_E_CANCELLED, .msg = "cancelled before it ran"};

        if ((!rid || p->rid == rid) && (!api_id || p->api_id == api_id)) {
            if (!api_id) /* its API keeps the payload until it knows that nobody reads it */
                data_result(r->x->data, p, &m);
            r->batch -= p->batch;
            run__free_part(p);
        } else {
            r->parts[keep++] = *p;
        }
    }
    r->n_parts = keep;
}

/* While its inputs are on their way, what comes to its workspace may be another request's: the API
 * has the place in its slab back as soon as it is told. */
void run__give_back(struct run *r)
{
    if (r->has_pin)
        model_unpin(r->model);
    if (r->has_ws)
        space_give(r->x->space, &r->ws, inputs_arrived(r->x) ? r->tag : ARENA_FOREIGN);
    r->has_pin = r->has_ws = false;
}

void run__free(struct run *r)
{
    if (!r)
        return;
    run__give_back(r);
    if (r->model)
        r->model->n_users--;
    for (size_t i = 0; i < r->n_parts; i++)
        run__free_part(&r->parts[i]);
    free(r->parts);
    free(r->tenant);
    free(r);
}

/* ------------------------------------------------------------------ reports */

/* From the moment the run had the device to the arrival of its last group; 0: all was there. */
static int64_t copy_ns(const struct run *r)
{
    if (!r->has_pin || r->hit_bytes >= r->model->image_bytes || !r->start_ns)
        return 0;
    if (tx_image_busy(&r->model->tx)) /* the note of the last group came behind the result */
        return sh_clock_ns() - r->start_ns;
    return SH_MAX(r->model->tx.arrived_ns - r->start_ns, (int64_t)0);
}

static void observe(const struct run *r, const char *stage, int64_t ns)
{
    sh_metric_observe(M_shunt_switch_duration_seconds, SH_LABELS(r->x->conf->name, stage),
                      (double)ns / 1e9);
}

static void count(const struct run *r, const struct run_result *res,
                  const struct msg_wk_run_done *done)
{
    const char *found = r->hit_bytes >= r->model->image_bytes ? "full"
                        : r->hit_bytes > 0                    ? "partial"
                                                              : "none";

    sh_metric_add(M_shunt_runs_total,
                  SH_LABELS(r->tenant, r->model->name, res->rc ? sh_rc_name(res->rc) : "ok"), 1);
    if (res->rc || !done)
        return;
    sh_metric_add(M_shunt_residency_total, SH_LABELS(r->x->conf->name, found), 1);
    observe(r, "first_group", done->first_ns - r->start_ns);
    observe(r, "compute", res->compute_ns);
    observe(r, "total", done->end_ns - r->start_ns);
    if (res->copy_ns)
        observe(r, "copy", res->copy_ns);
}

static void tell_api(const struct run *r, const struct run_result *res)
{
    for (size_t i = 0; i < r->n_parts; i++) {
        const struct run_part *p = &r->parts[i];
        struct msg_result m = {.rid = p->rid,
                               .rc = res->rc,
                               .msg = res->msg,
                               .run_batch = res->batch,
                               .queue_ns = res->queue_ns,
                               .copy_ns = res->copy_ns,
                               .compute_ns = res->compute_ns,
                               .total_ns = res->total_ns};

        data_result(r->x->data, p, &m);
    }
}

void run__report(struct run *r, const struct sh_err *why, const struct msg_wk_run_done *done)
{
    int64_t now = sh_clock_ns();
    struct run_result res = {.rc = why->rc,
                             .msg = why->msg,
                             .batch = r->batch,
                             .n_passed = r->n_passed,
                             .queue_ns = (r->start_ns ? r->start_ns : now) - r->recv_ns,
                             .copy_ns = copy_ns(r),
                             .compute_ns = done ? done->end_ns - done->first_ns : 0,
                             .total_ns = now - r->recv_ns};
    struct sh_msg m = {.type = MSG_RUN_DONE};

    count(r, &res, done);
    SH_DEBUG("switch.done", "run=%" PRIu64 " rc=%d copy_ns=%" PRId64 " ns=%" PRId64, r->id, res.rc,
             res.copy_ns, now);
    if (why->rc)
        SH_WARN("run.failed", "run=%" PRIu64 " model=%s code=%s msg=\"%s\"", r->id, r->model->name,
                sh_rc_name(why->rc), why->msg);
    if (r->is_own) {
        if (r->fn)
            r->fn(r->arg, &res);
        return;
    }
    tell_api(r, &res);
    m.u.run_done = (struct msg_run_done){.run_id = r->id,
                                         .rc = res.rc,
                                         .msg = res.msg,
                                         .total_ns = res.total_ns,
                                         .copy_ns = res.copy_ns,
                                         .compute_ns = res.compute_ns,
                                         .resident_bytes = model_resident_bytes(r->model)};
    agent_send(r->x->agent, &m);
}
