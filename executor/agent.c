/* agent.c - see agent.h. */
#include "executor/agent.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "executor/batch/batch.h"
#include "executor/files/push.h"
#include "executor/models/host.h"
#include "executor/models/tier.h"
#include "executor/pool/waits.h"
#include "executor/report/usage.h"
#include "executor/runs/switch.h"
#include "executor/training/train.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define LINK_CHANGE 0.02 /* of its rate: less is not worth a message */

struct agent {
    struct exec *x;
    uint64_t epoch; /* newest seen */
    struct msg_exec_state told;
    struct waits waits;
    char host_id[SH_BOOT_ID];
    int64_t refused_ns; /* rate limit of the log line */
    uint64_t refused_left_out;
};

static bool is_as_told(double rate, double told)
{
    return fabs(rate - told) < told * LINK_CHANGE;
}

static void exec_state(struct agent *a, bool anyway)
{
    const struct exec *x = a->x;
    const struct host_totals host = host_totals(x->store);
    struct sh_msg m = {.type = MSG_EXEC_STATE,
                       .u.exec_state = {.device_name = dev_mem_device_name(x->mem),
                                        .device_bytes = dev_mem_device_bytes(x->mem),
                                        .link_bytes_per_s = 1e9 / tx_beta_ns(x->tx),
                                        .disk_bytes_per_s = tier_bytes_per_s(x->store),
                                        .weights = space_bytes(x->space, ARENA_IMAGE),
                                        .training = space_bytes(x->space, ARENA_TRAIN),
                                        .workspace = space_bytes(x->space, ARENA_WORK),
                                        .host_images = host.images,
                                        .host_programs = host.programs,
                                        .host_limit = host.limit,
                                        .stopping = x->is_stopping}};
    struct msg_exec_state *now = &m.u.exec_state;

    now->fences = pool_fences(x->pool, &now->fences_why);
    if (!anyway && now->weights == a->told.weights && now->training == a->told.training &&
        now->workspace == a->told.workspace && now->host_images == a->told.host_images &&
        now->host_programs == a->told.host_programs && now->fences == a->told.fences &&
        is_as_told(now->link_bytes_per_s, a->told.link_bytes_per_s) &&
        is_as_told(now->disk_bytes_per_s, a->told.disk_bytes_per_s))
        return;
    a->told = *now;
    uplink_send(&x->report.uplink, &m);
}

static void say_waits(struct agent *a)
{
    struct exec *x = a->x;
    const struct waits_ask ask = {.trainer = train_active(x->train),
                                  .n_served_changes = store_n_served_changes(x->store),
                                  .is_due = store_is_due,
                                  .arg = x->store};

    if (waits_look(&a->waits, x->pool, &ask, sh_clock_ns()))
        store_tell_waits(x->store, &a->waits);
}

void agent_rest(struct agent *a)
{
    if (a && a->x->report.uplink.is_greeted)
        say_waits(a);
}

void agent_second(struct agent *a)
{
    if (a && sh_link_wire(a->x->report.uplink.link)) /* NULL: this process ends */
        exec_state(a, false);
}

void agent_stopping(struct agent *a)
{
    exec_state(a, true);
}

/* ------------------------------------------------------------------ greeting */

static void on_up(struct sh_wire *w, void *arg)
{
    struct agent *a = arg;
    struct exec *x = a->x;
    struct sh_msg m = {.type = MSG_EXEC_HELLO};

    (void)w;
    x->report.uplink.n_ups++;
    m.u.exec_hello = (struct msg_exec_hello){.executor = x->conf->name,
                                             .host_id = a->host_id,
                                             .data_addr = x->data_addr,
                                             .device = x->conf->device,
                                             .pool_bytes = dev_mem_bytes(x->mem),
                                             .n_workers = (uint32_t)x->conf->workers,
                                             .incarnation = x->incarnation};
    uplink_send(&x->report.uplink, &m);
    residency_clear_quotas(space_residency(x->space)); /* it tells those that count now */
    host_clear_quotas(x->store);
    exec_state(a, true);
    store_told_nothing(x->store);
    for (struct model *o = store_next(x->store, NULL); o; o = store_next(x->store, o))
        if (o->phase != MODEL_GOING)
            model_report(o);
    for (struct model *o = store_next_shape(x->store, NULL); o; o = store_next_shape(x->store, o))
        if (o->is_served)
            model_report(o);
    outcomes_send(&x->report.outcomes, &x->report.uplink);
    train_report_all(x->train);
    batch_report_all(x->batch);
    m = (struct sh_msg){.type = MSG_EXEC_SYNCED};
    m.u.exec_synced.incarnation = x->incarnation;
    uplink_send(&x->report.uplink, &m);
    x->report.uplink.is_greeted = true;
    a->waits = (struct waits){0};
    say_waits(a);
    usage_on_up(x->report.usage);
    sh_metrics_set_ready(true);
    SH_INFO("scheduler.up", "epoch=%" PRIu64, a->epoch);
}

static void on_down(struct sh_wire *w, const struct sh_err *why, void *arg)
{
    struct agent *a = arg;

    (void)w;
    a->x->report.uplink.is_greeted = false;
    sh_metrics_set_ready(false);
    SH_WARN("scheduler.down", "msg=\"%s\"", why->msg);
}

/* ------------------------------------------------------------------ commands */

/* False: the command is from a leader of the past. */
static bool is_current_epoch(struct agent *a, uint64_t epoch, const char *what)
{
    if (epoch >= a->epoch) {
        a->epoch = epoch;
        return true;
    }
    if (sh_log_ratelimit(&a->refused_ns, &a->refused_left_out, 1000)) {
        SH_WARN("scheduler.stale", "type=%s epoch=%" PRIu64 " newest=%" PRIu64 " left_out=%" PRIu64,
                what, epoch, a->epoch, a->refused_left_out);
        a->refused_left_out = 0;
    }
    return false;
}

static void on_run(struct agent *a, const struct msg_run *m)
{
    struct sh_err err = {0};

    if (!is_current_epoch(a, m->epoch, "RUN"))
        SH_FAIL(&err, SH_E_UNAVAILABLE,
                "the run was sent by a scheduler that was replaced; try again");
    if (err.rc)
        switch_refuse(a->x->sw, m, &err);
    else
        switch_on_run(a->x->sw, m);
}

static void on_prepare(struct agent *a, const struct msg_prepare *m)
{
    struct model *o = store_find(a->x->store, m->version_id);

    if (!is_current_epoch(a, m->epoch, "PREPARE") || !o)
        return;
    if (m->evict == MSG_EVICT_ANY)
        model_prepare(o, true);
    else
        model_bring_ahead(o, m->evict == MSG_EVICT_STALE);
}

static void on_memory(struct agent *a, const struct msg_tenant_memory *m)
{
    struct sh_err err = {0};

    if (space_set_quota(a->x->space, m->tenant, m->min_bytes, m->max_bytes, m->share, &err) ||
        host_set_quota(a->x->store, m->tenant, m->host_max_bytes, &err))
        sh_log_err(SH_LOG_ERROR, "tenant.memory", &err);
}

static void on_stop(struct exec *x, const struct msg_job_stop *m)
{
    if (batch_has(x->batch, m->job))
        batch_on_stop(x->batch, m);
    else
        train_on_stop(x->train, m);
}

/* Its end is recorded: what was kept here for another start of it goes. */
static void on_ended(const struct exec *x, int64_t job)
{
    if (!batch_has(x->batch, job) && !train_has(x->train, job)) /* else its own end follows */
        push_forget_ended(&x->files, job);
}

/* NULL: another job may; there is one at a time, of training or of batch inference. A refusal with
 * CONFLICT is no failure of the job. */
static const struct sh_err *may_start(const struct exec *x, struct sh_err *why)
{
    if (x->is_stopping) /* the scheduler did not know when it sent this */
        SH_FAIL(why, SH_E_CONFLICT, "the executor is stopping");
    else if (!train_is_quiet(x->train) || !batch_is_quiet(x->batch))
        SH_FAIL(why, SH_E_CONFLICT, "this executor still has another job");
    return why->rc ? why : NULL;
}

static void on_msg(struct sh_wire *w, const struct sh_msg *m, int *fds, size_t n_fds, void *arg)
{
    struct agent *a = arg;
    struct exec *x = a->x;
    struct sh_msg pong = {.type = MSG_PONG};
    struct sh_err err = {0};

    (void)w, (void)fds, (void)n_fds;
    switch (m->type) {
    case MSG_WELCOME:
        is_current_epoch(a, m->u.welcome.epoch, "WELCOME");
        return;
    case MSG_PING:
        pong.u.pong.cookie = m->u.ping.cookie;
        uplink_send(&x->report.uplink, &pong);
        return;
    case MSG_USAGE_STORED: /* true whoever says it */
        usage_on_stored(x->report.usage, &m->u.usage_stored);
        return;
    case MSG_TENANT_MEMORY:
        if (is_current_epoch(a, m->u.tenant_memory.epoch, "TENANT_MEMORY"))
            on_memory(a, &m->u.tenant_memory);
        return;
    case MSG_MODEL_LOAD:
        if (is_current_epoch(a, m->u.model_load.epoch, "MODEL_LOAD"))
            store_load(x->store, &m->u.model_load);
        return;
    case MSG_MODEL_UNLOAD:
        if (is_current_epoch(a, m->u.model_unload.epoch, "MODEL_UNLOAD"))
            store_unload(x->store, m->u.model_unload.version_id);
        return;
    case MSG_MODEL_PIN:
        if (is_current_epoch(a, m->u.model_pin.epoch, "MODEL_PIN"))
            store_pin(x->store, m->u.model_pin.version_id, m->u.model_pin.pinned != 0);
        return;
    case MSG_SHAPE_LOAD:
        if (is_current_epoch(a, m->u.shape_load.epoch, "SHAPE_LOAD"))
            store_load_shape(x->store, &m->u.shape_load);
        return;
    case MSG_PREPARE:
        sh_loop_stay_awake(x->loop);
        on_prepare(a, &m->u.prepare);
        return;
    case MSG_RUN_PART:
        switch_on_part(x->sw, &m->u.run_part);
        return;
    case MSG_RUN:
        sh_loop_stay_awake(x->loop);
        on_run(a, &m->u.run);
        return;
    case MSG_RUN_CANCEL:
        switch_on_cancel(x->sw, &m->u.run_cancel);
        return;
    case MSG_JOB_START:
        if (is_current_epoch(a, m->u.job_start.epoch, "JOB_START"))
            train_on_start(x->train, &m->u.job_start, may_start(x, &err));
        return;
    case MSG_BATCH_START:
        if (is_current_epoch(a, m->u.batch_start.epoch, "BATCH_START"))
            batch_on_start(x->batch, &m->u.batch_start, may_start(x, &err));
        return;
    case MSG_JOB_STOP:
        if (is_current_epoch(a, m->u.job_stop.epoch, "JOB_STOP"))
            on_stop(x, &m->u.job_stop);
        return;
    case MSG_JOB_ENDED: /* true whoever says it */
        on_ended(x, m->u.job_ended.job);
        return;
    case MSG_JOB_SAVE:
        if (!is_current_epoch(a, m->u.job_save.epoch, "JOB_SAVE"))
            return;
        if (batch_has(x->batch, m->u.job_save.job))
            batch_on_save(x->batch, &m->u.job_save);
        else
            train_on_save(x->train, &m->u.job_save);
        return;
    default:
        SH_WARN("scheduler.message", "type=%s msg=\"not for an executor\"", sh_msg_name(m->type));
    }
}

/* ------------------------------------------------------------------ life */

int agent_new(struct exec *x, struct agent **out, struct sh_err *err)
{
    struct agent *a = calloc(1, sizeof(*a));
    struct sh_link_handler h = {.on_up = on_up,
                                .on_msg = on_msg,
                                .on_down = on_down,
                                .arg = a,
                                .max_silence_ms = x->conf->scheduler_silence_ms,
                                .keys = x->link_keys};
    int rc;

    *out = NULL;
    if (!a)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the link to the scheduler");
    a->x = x;
    sh_boot_id(a->host_id);
    rc = sh_link_new(x->loop, x->conf->scheduler, &h, &x->report.uplink.link, err);
    if (rc) {
        free(a);
        return rc;
    }
    *out = a;
    return SH_OK;
}

void agent_free(struct agent *a)
{
    if (!a)
        return;
    sh_link_free(a->x->report.uplink.link);
    a->x->report.uplink = (struct uplink){0};
    free(a);
}
