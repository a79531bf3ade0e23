/* model_report.c - reports versions and shapes to the scheduler and in metrics. */
#include "common/clock.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"
#include "executor/models/found.h"
#include "executor/models/host.h"
#include "executor/models/loading.h"
#include "executor/models/model_int.h"
#include "executor/models/tables.h"

#include <stdlib.h>

#define MAX_PROFILE 64u

static const enum msg_model_phase PHASE[MODEL_N_PHASES] = {
    [MODEL_BUILDING] = MSG_MODEL_LOADING,
    [MODEL_READY] = MSG_MODEL_READY,
    [MODEL_FAILED] = MSG_MODEL_FAILED,
    [MODEL_GOING] = MSG_MODEL_GONE,
};

static uint32_t fill_profile(const struct model *m, struct msg_profile profile[MAX_PROFILE])
{
    uint32_t n = m->layer_ns ? SH_MIN(m->n_batches, MAX_PROFILE) : 0;

    for (uint32_t i = 0; i < n; i++) {
        const double *layer_ns = m->layer_ns + (size_t)i * m->n_layers;

        profile[i].batch = m->batches[i].batch;
        for (uint32_t k = 0; k < m->n_layers; k++)
            profile[i].compute_ns += layer_ns[k];
        profile[i].tail_ns = model_tail_ns(m->base, layer_ns);
    }
    return n;
}

/* Of one that nobody can run just now it is not said that it is READY. */
static enum msg_model_phase phase_of(const struct model *m, enum msg_model_phase unserved)
{
    return m->phase == MODEL_READY && !m->is_served ? unserved : PHASE[m->phase];
}

static void report_version(struct model *m)
{
    struct msg_profile profile[MAX_PROFILE] = {{0}};
    struct sh_msg msg = {.type = MSG_MODEL_STATE};
    uint32_t n = fill_profile(m, profile);
    struct loading_step step = {.step = "", .left_ns = -1};

    if (m->handle < 0)
        return; /* ours alone */
    if (m->phase == MODEL_BUILDING && m->is_looked_at)
        step = loading_step_of(m->store, m);
    msg.u.model_state = (struct msg_model_state){
        .version_id = m->handle,
        .state = phase_of(m, MSG_MODEL_LOADING),
        .rc = m->phase == MODEL_FAILED ? m->why.rc : 0,
        .msg = m->phase == MODEL_FAILED ? m->why.msg : "",
        .image_bytes = m->image_bytes,
        .link_bytes = m->has_image ? tx_needed_bytes(&m->tx) : m->link_bytes,
        .resident_bytes = store_say_place(m, NULL),
        .profile = {profile, n * sizeof(profile[0])},
        .need_bytes = m->phase == MODEL_FAILED ? m->need_bytes : 0,
        .step = step.step,
        .done = step.done,
        .total = step.total,
        .left_ns = step.left_ns,
        .short_bytes = m->phase == MODEL_FAILED ? m->short_bytes : 0,
        .short_of_tenant = m->is_short_of_tenant};
    uplink_send(store__env(m->store)->up, &msg);
}

void shape_report(const struct model *m)
{
    struct msg_profile profile[MAX_PROFILE] = {{0}};
    struct sh_msg msg = {.type = MSG_SHAPE_STATE};
    uint32_t n = fill_profile(m, profile);

    if (m->base->handle < 0)
        return;
    msg.u.shape_state =
        (struct msg_shape_state){.version_id = m->base->handle,
                                 .sizes = {m->sizes.v, m->sizes.n * sizeof(m->sizes.v[0])},
                                 .state = phase_of(m, MSG_MODEL_GONE),
                                 .rc = m->phase == MODEL_FAILED ? m->why.rc : 0,
                                 .msg = m->phase == MODEL_FAILED ? m->why.msg : "",
                                 .profile = {profile, n * sizeof(profile[0])},
                                 .took_ns = m->took_ns};
    uplink_send(store__env(m->store)->up, &msg);
}

void model_report(struct model *m)
{
    if (m->base == m)
        report_version(m);
    else
        shape_report(m);
}

static void tell_wait(struct model *m, const struct waits *w)
{
    const struct store_env *env = store__env(m->store);
    const int64_t ns = m->is_served ? waits_for(w, env->pool, m->handle) : m->wait_told_ns;
    struct sh_msg msg = {.type = MSG_EXEC_WAIT,
                         .u.exec_wait = {.version_id = m->base->handle, .worker_ns = ns}};

    if (ns == m->wait_told_ns || m->base->handle < 0)
        return;
    m->wait_told_ns = ns;
    if (m->base != m)
        msg.u.exec_wait.sizes = (struct sh_blob){m->sizes.v, m->sizes.n * sizeof(m->sizes.v[0])};
    uplink_send(env->up, &msg);
}

uint64_t store_n_served_changes(struct store *s)
{
    return store__counts(s)->n_served_changes;
}

void store_tell_waits(struct store *s, const struct waits *w)
{
    served__note_all(s);
    for (struct model *m = store_next(s, NULL); m; m = store_next(s, m))
        tell_wait(m, w);
    for (struct model *m = store_next_shape(s, NULL); m; m = store_next_shape(s, m))
        tell_wait(m, w);
}

/* ------------------------------------------------------------------ metrics */

/* Has a run used it of late? Not one of our own, of an evaluation. */
static bool is_worked_with(const struct model *m, int64_t now_ns)
{
    return m->handle >= 0 && m->last_use_ns && now_ns - m->last_use_ns <= SH_WORKING_SET_NS;
}

static int by_model_name(const void *a, const void *b)
{
    return strcmp((*(const struct model *const *)a)->name, (*(const struct model *const *)b)->name);
}

static int by_model_tag(const void *a, const void *b)
{
    const uint32_t x = (*(const struct model *const *)a)->tag,
                   y = (*(const struct model *const *)b)->tag;

    return (x > y) - (x < y);
}

/* The label is the name, of any tenant. */
static void set_held_bytes(const struct model **all, size_t n, const char *executor)
{
    double bytes = 0;

    qsort(all, n, sizeof(*all), by_model_name);
    for (size_t i = 0; i < n; i++) {
        bytes += (double)model_resident_bytes(all[i]);
        if (i + 1 < n && by_model_name(&all[i], &all[i + 1]) == 0)
            continue;
        sh_metric_set(M_shunt_resident_bytes, SH_LABELS(executor, all[i]->name), bytes);
        bytes = 0;
    }
}

static void set_working_sets(const struct model **all, size_t n, const char *executor)
{
    const int64_t now = sh_clock_ns();
    const struct model *any = NULL; /* not one of our own */
    double bytes = 0;

    qsort(all, n, sizeof(*all), by_model_tag);
    for (size_t i = 0; i < n; i++) {
        bytes += is_worked_with(all[i], now) ? (double)all[i]->image_bytes : 0;
        any = all[i]->handle >= 0 ? all[i] : any;
        if (i + 1 < n && by_model_tag(&all[i], &all[i + 1]) == 0)
            continue;
        if (any)
            sh_metric_set(M_shunt_working_set_bytes, SH_LABELS(executor, any->tenant), bytes);
        any = NULL;
        bytes = 0;
    }
}

/* Sorted, what has one label is together. To look for it among all, for each of thousands, would
 * hold up the loop for seconds. */
void store_update_metrics(struct store *s)
{
    const struct model **all;
    size_t n = 0;

    host_update_metrics(s);
    for (const struct model *m = store_next(s, NULL); m; m = store_next(s, m))
        n++;
    all = calloc(n + 1, sizeof(*all));
    if (!all)
        return; /* there is a next second */
    n = 0;
    for (const struct model *m = store_next(s, NULL); m; m = store_next(s, m))
        all[n++] = m;
    set_held_bytes(all, n, store__env(s)->executor);
    set_working_sets(all, n, store__env(s)->executor);
    free(all);
}

const char *model_found_name(enum model_found f)
{
    static const char *const names[N_MODEL_FOUND] = {[MODEL_FOUND_NONE] = "none",
                                                     [MODEL_FOUND_PARTIAL] = "partial",
                                                     [MODEL_FOUND_PACKED] = "packed",
                                                     [MODEL_FOUND_FULL] = "full"};

    return names[f];
}

/* Its last model is gone. */
static void forget_tenant(const char *executor, const char *tenant)
{
    sh_metric_drop(M_shunt_working_set_bytes, SH_LABELS(executor, tenant));
    for (enum model_found f = 0; f < N_MODEL_FOUND; f++)
        sh_metric_drop(M_shunt_residency_total, SH_LABELS(executor, tenant, model_found_name(f)));
}

void model__forget_series(const struct model *gone)
{
    bool has_name = false, has_model = false, has_tenant = false;

    for (const struct model *m = store_next(gone->store, NULL); m; m = store_next(gone->store, m)) {
        bool same = strcmp(m->name, gone->name) == 0;

        has_name |= same;
        has_model |= same && strcmp(m->tenant, gone->tenant) == 0;
        has_tenant |= m->handle >= 0 && strcmp(m->tenant, gone->tenant) == 0;
    }
    if (!has_tenant)
        forget_tenant(store__env(gone->store)->executor, gone->tenant);
    if (!has_model)
        sh_metrics_forget(has_name ? gone->tenant : NULL, gone->name);
}
