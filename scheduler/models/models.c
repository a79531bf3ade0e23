/* models.c - see models.h. */
#include "scheduler/models/models.h"

#include "common/clock.h"
#include "common/life.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"
#include "scheduler/models/ahead.h"
#include "scheduler/models/homes.h"
#include "scheduler/models/room.h"
#include "scheduler/models/serving.h"
#include "scheduler/route.h"
#include "scheduler/sched.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOAD_TRIES 5
#define FIRST_PAUSE_NS SH_S(1)
#define LOAD_AGAIN_NS SH_S(1)

static void model_free(struct sched *s, struct model *m)
{
    placement_del_version(&s->models.placement, &m->lives);
    shapes_free(m);
    free(m->package);
    free(m->on);
    free(m->ready);
    free(m);
}

void models_fini(struct sched *s)
{
    struct models *ms = &s->models;

    for (size_t i = 0; i < ms->n; i++) {
        const struct model *m = ms->items[i];

        sh_metric_drop(M_shunt_request_queue_length, SH_LABELS(m->tenant, m->name));
        model_free(s, ms->items[i]);
    }
    for (size_t i = 0; i < s->execs.n; i++)
        placement_del_exec(&ms->placement, &s->execs.items[i]->homes);
    free(ms->items);
    idmap_fini(&ms->by_id);
    *ms = (struct models){0};
}

struct model *models_find(const struct models *m, int64_t version_id)
{
    return idmap_get(&m->by_id, (uint64_t)version_id);
}

/* The last version of a model takes its series along, and the last of a name those of whoever used
 * the model. */
static void drop_series(const struct models *ms, const struct model *gone)
{
    bool has_name = false, has_model = false;

    for (size_t i = 0; i < ms->n; i++) {
        const struct model *m = ms->items[i];
        bool same = strcmp(m->name, gone->name) == 0;

        has_name |= same;
        has_model |= same && m->model_id == gone->model_id;
    }
    if (!has_model)
        sh_metrics_forget(has_name ? gone->tenant : NULL, gone->name);
}

void models_release(struct sched *s, struct model *m)
{
    struct models *ms = &s->models;
    struct model *last;

    if (!m->gone || m->n_requests || m->n_runs)
        return;
    last = ms->items[ms->n - 1];
    ms->items[m->index] = last;
    last->index = m->index;
    ms->n--;
    drop_series(ms, m);
    model_free(s, m);
}

/* ------------------------------------------------------------------ to executors */

static uint64_t n_runs(const struct model *m)
{
    return m->n_runs_before + m->predict.n_runs;
}

/* What ran most, or is waited for, is wanted most. */
static double wanted(const struct sched *s, const struct model *m)
{
    uint64_t most = 1;

    if (m->n_requests)
        return 1;
    for (size_t i = 0; i < s->models.n; i++)
        most = SH_MAX(most, n_runs(s->models.items[i]));
    return (double)n_runs(m) / (double)most;
}

void models__go(struct sched *s, struct model *m, uint32_t exec, enum model_phase to)
{
    struct model_on *on = &m->on[exec];

    models__list(m, exec, to == MODEL_ON_READY);
    if (to != MODEL_ON_READY)
        on->worker_ns = 0;
    s->models.fits_changed |= to == MODEL_ON_FAILED || on->phase == MODEL_ON_FAILED;
    m->n_failed_on += (to == MODEL_ON_FAILED) - (on->phase == MODEL_ON_FAILED);
    on->phase = to;
}

bool models_has_failed_on(const struct model *m, uint32_t exec)
{
    return m->n_failed_on && m->on[exec].phase == MODEL_ON_FAILED && !m->on[exec].retry_ns;
}

void models_on_exec_lost(struct sched *s, struct exec *e)
{
    for (size_t i = 0; i < s->models.n; i++)
        models__list(s->models.items[i], e->index, false);
    homes_exec_away(s, e);
}

void models__reset(struct sched *s, struct model *m, uint32_t exec, enum model_phase to)
{
    struct model_on *on = &m->on[exec];

    models__go(s, m, exec, to);
    *on = (struct model_on){.phase = to, .shown = on->shown, .was_here = on->was_here};
}

void models__load(struct sched *s, struct model *m, struct exec *e)
{
    struct model_on *on = &m->on[e->index];

    if (on->phase != MODEL_ON_LOADING) {
        on->began_ns = sh_clock_ns();
        on->step = (struct model_step){.left_ns = -1, .at_ns = on->began_ns};
    }
    models__go(s, m, e->index, MODEL_ON_LOADING);
    on->retry_ns = 0;
    on->is_urgent = m->n_requests > 0;
    s->models.changed = true;
    session_send(e->session, &(struct sh_msg){.type = MSG_MODEL_LOAD,
                                              .u.model_load = {.epoch = s->epoch,
                                                               .version_id = m->version_id,
                                                               .tenant = m->tenant,
                                                               .model = m->name,
                                                               .package = m->package,
                                                               .max_batch = m->max_batch,
                                                               .precision = m->precision,
                                                               .wanted = wanted(s, m),
                                                               .source = homes_source(s, m, e)}});
}

static void send_unload(struct sched *s, int64_t version_id, struct exec *e)
{
    session_send(e->session,
                 &(struct sh_msg){.type = MSG_MODEL_UNLOAD,
                                  .u.model_unload = {.epoch = s->epoch, .version_id = version_id}});
}

/* Tells it what changed since it was last told. */
static void send_pin(struct sched *s, struct model *m, struct exec *e)
{
    struct model_on *on = &m->on[e->index];

    if (on->phase == MODEL_ON_ASIDE && m->pinned)
        models__load(s, m, e);
    if (on->phase != MODEL_ON_READY || on->pin_told == m->pinned)
        return;
    on->pin_told = m->pinned;
    session_send(e->session, &(struct sh_msg){.type = MSG_MODEL_PIN,
                                              .u.model_pin = {.epoch = s->epoch,
                                                              .version_id = m->version_id,
                                                              .pinned = m->pinned}});
}

static void write_model_state(struct sched *s, struct model *m);

/* The only writer of the state of a version that we have. */
static void version_go(struct model *m, enum model_state to)
{
    m->state = (enum model_state)sh_life_step(&VERSION_LIFE, m->state, to, m->version_id);
}

/* At its homes. */
static void load_where_missing(struct sched *s, struct model *m)
{
    int64_t now = sh_clock_ns();
    bool loads = false;

    homes_look(s, m);
    for (size_t i = 0; i < m->lives.n && !m->gone && m->state < MODEL_FAILED; i++) {
        struct exec *e = SH_TREE_OF(m->lives.homes[i].exec, struct exec, homes);
        struct model_on *on = &m->on[e->index];

        if (exec_is_up(e) &&
            (on->phase == MODEL_ON_ABSENT ||
             (on->phase == MODEL_ON_FAILED && on->retry_ns && now >= on->retry_ns)))
            models__load(s, m, e);
        loads |= on->phase == MODEL_ON_LOADING;
    }
    if (loads && m->state == MODEL_REGISTERED) {
        version_go(m, MODEL_LOADING);
        write_model_state(s, m);
    }
}

void models_load_again(struct sched *s, const char *version_id)
{
    int64_t id, now = sh_clock_ns();
    struct model *m = NULL;

    if (!sh_parse_i64(version_id, 1, INT64_MAX, "", &id, NULL))
        m = models_find(&s->models, id);
    if (!m || now - m->again_ns < LOAD_AGAIN_NS)
        return;
    m->again_ns = now;
    for (size_t i = 0; i < s->execs.n; i++) {
        struct model_on *on = &m->on[i];

        if (on->phase != MODEL_ON_FAILED || on->waits_for_room)
            continue;
        on->retry_ns = now;
        on->tries = 0;
        (void)placement_put(&s->models.placement, &m->lives, &s->execs.items[i]->homes, now, NULL);
        s->models.fits_changed = true;
    }
    m->n_failed = 0;
    load_where_missing(s, m);
}

void models_load_missing(struct sched *s)
{
    for (size_t i = 0; i < s->models.n; i++)
        load_where_missing(s, s->models.items[i]);
}

/* table: points to the pointer; it has one row more than executors, so that it is never empty. */
static int grow_table(void *table, size_t old, size_t n, size_t one, struct sh_err *err)
{
    size_t cap = old + 1;

    return sh_grow(table, &cap, n + 1, one, n + 1, "rows by executor", err);
}

int models_grow(struct sched *s, size_t n, struct sh_err *err)
{
    const size_t old = s->execs.cap;
    int rc = SH_OK;

    for (size_t i = 0; i < s->models.n && !rc; i++) {
        struct model *m = s->models.items[i];

        rc = grow_table(&m->on, old, n, sizeof(*m->on), err);
        if (!rc)
            rc = grow_table(&m->ready, old, n, sizeof(*m->ready), err);
        for (struct shape *h = m->shapes; h && !rc; h = h->next)
            rc = grow_table(&h->on, old, n, sizeof(*h->on), err);
    }
    return rc;
}

void models_forget_exec(struct sched *s, uint32_t exec_index)
{
    s->models.changed = s->models.fits_changed = true;
    for (size_t i = 0; i < s->models.n; i++) {
        struct model *m = s->models.items[i];

        models__reset(s, m, exec_index, MODEL_ON_ABSENT);
        m->on[exec_index].shown = (struct model_shown){0};
        shapes_forget_exec(m, exec_index);
    }
    homes_exec_away(s, s->execs.items[exec_index]);
    s->execs.items[exec_index]->rows_are_old = true;
}

/* ------------------------------------------------------------------ state */

static void on_state_written(void *ctx, void *arg, int rc, const struct sh_err *err)
{
    (void)arg;
    sched_op_ok(ctx, "model.state", rc, err);
}

static void write_model_state(struct sched *s, struct model *m)
{
    static const struct sched_op OP = {"model.state", store_model_set_state, on_state_written,
                                       store_model_state_free, 0};
    struct store_model_state *w = calloc(1, sizeof(*w));
    struct sh_err err = {0};
    const char *state = VERSION_LIFE.names[m->state];

    if (!w) {
        SH_ERROR("model.state", "version=%lld msg=\"out of memory\"", (long long)m->version_id);
        return;
    }
    w->fence = sched_fence(s);
    w->version_id = m->version_id;
    w->state = state;
    if (m->state == MODEL_FAILED) {
        sh_strlcpy(w->reason_code, sh_rc_name(m->fail_rc), sizeof(w->reason_code));
        sh_strlcpy(w->reason, m->fail_msg, sizeof(w->reason));
    } else if (m->state == MODEL_UNLOADED) {
        sh_strlcpy(w->reason_code, "UNLOADED", sizeof(w->reason_code));
        sh_strlcpy(w->reason, "unloaded on request; load it to use it again", sizeof(w->reason));
    }
    w->image_bytes = m->image_bytes;
    w->profile = models__profile_json(m);
    SH_INFO("model.state", "tenant=%s model=%s version=%u state=%s%s%s", m->tenant, m->name,
            m->version, state, w->reason_code[0] ? " code=" : "", w->reason_code);
    sched_submit(s, &OP, w, &err);
}

static void settle_unload(struct sched *s, struct model *m)
{
    for (size_t i = 0; i < s->execs.n; i++)
        if (exec_is_up(s->execs.items[i]) && m->on[i].phase != MODEL_ON_ABSENT)
            return;
    version_go(m, MODEL_UNLOADED);
    s->models.changed = true;
    write_model_state(s, m);
}

static bool has_failed(const struct sched *s, const struct model *m)
{
    for (size_t i = 0; i < s->execs.n; i++)
        if (exec_is_up(s->execs.items[i]) && m->on[i].phase == MODEL_ON_FAILED)
            return true;
    return false;
}

/* READY with its first home; FAILED, if one has failed for good, with its last one. One that will
 * try again keeps it from that. */
static void settle_model(struct sched *s, struct model *m)
{
    bool ready = false, waits = false;

    if (m->state == MODEL_UNLOADING)
        settle_unload(s, m);
    if (m->state != MODEL_LOADING && m->state != MODEL_REGISTERED)
        return;
    for (size_t i = 0; i < m->lives.n; i++) {
        const struct exec *e = SH_TREE_OF(m->lives.homes[i].exec, struct exec, homes);

        ready |= exec_is_up(e) && m->on[e->index].phase == MODEL_ON_READY;
        waits |= exec_is_up(e);
    }
    if (!ready && (waits || !has_failed(s, m)))
        return;
    version_go(m, ready ? MODEL_READY : MODEL_FAILED);
    write_model_state(s, m);
    s->models.changed = true;
    s->route->on_model(s, m->version_id, ready);
    sched_wake_jobs(s);
}

/* Would it be as well elsewhere, whatever memory there is? */
static bool is_of_version(int rc)
{
    return rc != SH_E_QUOTA && rc != SH_E_DEVMEM && rc != SH_E_TOOBIG && rc != SH_E_NOMEM;
}

/* For good: another executor may do better, if it has more memory or that was not the reason. */
static void leave_failed(struct sched *s, struct model *m, struct exec *e, uint64_t need_bytes)
{
    m->need_bytes = SH_MAX(m->need_bytes, need_bytes);
    if (is_of_version(m->fail_rc))
        m->n_failed++;
    else if (!homes_elsewhere(s, m, e))
        m->n_failed = HOMES_MAX_FAILED;
    homes_leave(s, m, e);
    load_where_missing(s, m);
}

static void on_failed(struct sched *s, struct model *m, struct exec *e,
                      const struct msg_model_state *msg)
{
    struct model_on *on = &m->on[e->index];

    if (room_on_full(s, m, e, msg))
        return;
    models__go(s, m, e->index, MODEL_ON_FAILED);
    on->is_aside = on->waits_for_room = false;
    on->tries++;
    m->fail_rc = msg->rc ? (int)msg->rc : SH_E_BUG;
    sh_strlcpy(m->fail_msg, msg->msg, sizeof(m->fail_msg));
    /* A quota does not grow by itself: who raises it loads the version again. */
    if (sh_rc_retry(m->fail_rc) && m->fail_rc != SH_E_QUOTA && on->tries < LOAD_TRIES)
        on->retry_ns = sh_clock_ns() + (FIRST_PAUSE_NS << on->tries);
    SH_WARN("model.failed", "executor=%s tenant=%s model=%s version=%u code=%s msg=\"%s\"",
            e->info.name, m->tenant, m->name, m->version, sh_rc_name(m->fail_rc), m->fail_msg);
    if (!on->retry_ns)
        leave_failed(s, m, e, msg->need_bytes);
    else if (!homes_has(m, e)) /* it was on its way when its home moved: nobody would ask again */
        models__reset(s, m, e->index, MODEL_ON_ABSENT);
    settle_model(s, m);
}

static void on_ready(struct sched *s, struct model *m, struct exec *e,
                     const struct msg_model_state *msg)
{
    struct model_on *on = &m->on[e->index];
    size_t n = msg->profile.len / sizeof(struct msg_profile);

    models__go(s, m, e->index, MODEL_ON_READY);
    on->ready_ns = sh_clock_ns();
    on->was_here = true;
    m->n_failed = 0;
    if (on->began_ns)
        m->load_ns = on->ready_ns - on->began_ns;
    on->began_ns = 0;
    on->is_aside = on->waits_for_room = false;
    on->tries = 0;
    if (msg->image_bytes) {
        m->image_bytes = msg->image_bytes;
        m->stored_bytes = msg->link_bytes ? msg->link_bytes : msg->image_bytes;
        on->link_share =
            (double)SH_MIN(msg->link_bytes, msg->image_bytes) / (double)msg->image_bytes;
    }
    models_hold(m, e->index, msg->resident_bytes);
    on->arrives_ns = on->unpack_ns = 0;
    if (n) {
        m->n_profile = SH_MIN(n, (size_t)PREDICT_N_BUCKETS);
        memcpy(m->profile, msg->profile.data, m->n_profile * sizeof(m->profile[0]));
        predict_profile(&m->predict, m->profile, m->n_profile);
        homes_measured(s, m, e, &m->profile[0]);
    }
    send_pin(s, m, e);
    shapes_warm(s, m, e);
    settle_model(s, m);
    sched_wake(s);
}

static void on_loading(struct sched *s, struct model *m, const struct exec *e,
                       const struct msg_model_state *msg)
{
    struct model_on *on = &m->on[e->index];

    models__go(s, m, e->index, MODEL_ON_LOADING);
    on->step = (struct model_step){.done = msg->done,
                                   .total = msg->total,
                                   .left_ns = SH_MIN(msg->left_ns, SH_DAYS(1)),
                                   .at_ns = sh_clock_ns()};
    sh_strlcpy(on->step.step, msg->step, sizeof(on->step.step));
}

void models__leave(struct sched *s, struct model *m, struct exec *e)
{
    models__go(s, m, e->index, MODEL_ON_UNLOADING);
    m->on[e->index].is_aside = m->on[e->index].is_urgent = false;
    send_unload(s, m->version_id, e);
}

static void take_state(struct sched *s, struct model *m, struct exec *e,
                       const struct msg_model_state *msg)
{
    /* On its way out: all that counts is that it is gone. */
    if (msg->state != MSG_MODEL_GONE && m->on[e->index].phase == MODEL_ON_UNLOADING)
        return;
    if (msg->state != MSG_MODEL_GONE && m->state >= MODEL_UNLOADING) {
        models__leave(s, m, e);
        return;
    }
    switch ((enum msg_model_phase)msg->state) {
    case MSG_MODEL_LOADING:
        on_loading(s, m, e, msg);
        break;
    case MSG_MODEL_READY:
        on_ready(s, m, e, msg);
        break;
    case MSG_MODEL_FAILED:
        /* It is still unloading what was asked for before: it says GONE, and gets it then. */
        if (msg->rc == SH_E_CONFLICT)
            models__go(s, m, e->index, MODEL_ON_UNLOADING);
        else
            on_failed(s, m, e, msg);
        break;
    case MSG_MODEL_GONE:
        if (m->on[e->index].is_aside) {
            room_on_gone(s, m, e);
            break;
        }
        models__reset(s, m, e->index, MODEL_ON_ABSENT);
        settle_model(s, m);
        load_where_missing(s, m);
        break;
    default:
        SH_ERROR("model.message", "executor=%s msg=\"unknown phase %u of a model\"", e->info.name,
                 msg->state);
    }
}

void models_on_state(struct sched *s, struct exec *e, const struct msg_model_state *msg)
{
    struct model *m = models_find(&s->models, msg->version_id);
    bool was_ready;

    s->models.changed = true;
    if (!m) {
        if (msg->state == MSG_MODEL_READY || msg->state == MSG_MODEL_LOADING)
            send_unload(s, msg->version_id, e); /* deleted while it was away */
        return;
    }
    was_ready = m->on[e->index].phase == MODEL_ON_READY;
    take_state(s, m, e, msg);
    homes_tell(s, m, e);
    if (was_ready && m->on[e->index].phase != MODEL_ON_READY)
        s->route->on_unready(s, e, m, NULL);
}

void models_on_place(struct sched *s, struct exec *e, const struct msg_model_place *msg)
{
    struct model *m = models_find(&s->models, msg->version_id);
    struct model_on *on;

    if (!m)
        return;
    on = &m->on[e->index];
    on->place = (struct model_place){.device_bytes = msg->device_bytes,
                                     .host_bytes = msg->host_bytes,
                                     .disk_bytes = msg->disk_bytes,
                                     .pin = (enum msg_pin)SH_MIN(msg->pin, MSG_PIN_WAITING)};
    on->shared_bytes = SH_MIN(msg->shared_bytes, msg->host_bytes);
    m->host_bytes = SH_MAX(m->host_bytes, msg->host_bytes);
    if (msg->idle_ns >= 0)
        on->place.last_use_ms = sh_clock_wall_ms() - msg->idle_ns / SH_MS(1);
    /* A run that was sent there and has not begun brings what is missing: that counts already. */
    for (const struct run *r = e->runs; r; r = r->next)
        if (r->model == m)
            return;
    models_hold(m, e->index, msg->device_bytes);
    on->is_on_disk = msg->disk_bytes > 0;
    models_set_unpacking(m, e, msg->unpack_ns);
    on->arrives_ns = msg->arrives_ns > 0 ? sh_clock_ns() + SH_MIN(msg->arrives_ns, SH_DAYS(1)) : 0;
    if (e->ahead.version_id != m->version_id)
        e->lane_ns = SH_MAX(e->lane_ns, on->arrives_ns);
    else if (on->arrives_ns)
        e->ahead.until_ns = on->arrives_ns;
    else
        e->ahead = (struct exec_ahead){0};
}

bool models_had_some(const struct model_on *on, int64_t now_ns)
{
    return (on->arrives_ns > now_ns ? on->had_bytes : on->resident_bytes) > 0;
}

static void expect(struct model *m, struct exec *e, int64_t from_ns, int64_t now_ns)
{
    struct model_on *on = &m->on[e->index];

    /* No queue of copies is thought longer than one copy can be. */
    m->copied_ns = on->arrives_ns =
        SH_MIN(SH_MAX(from_ns, now_ns) + models_copy_ns(m, e), now_ns + PREDICT_MAX_COPY_NS);
    on->had_bytes = on->resident_bytes;
    models_hold(m, e->index, m->image_bytes);
    on->is_on_disk = false;
}

void models_expect(struct model *m, struct exec *e, int64_t now_ns)
{
    const struct model_on *on = &m->on[e->index];

    if (e->ahead.version_id == m->version_id) { /* somebody asks: now it goes on */
        e->lane_ns = SH_MAX(e->lane_ns, on->arrives_ns);
        e->ahead = (struct exec_ahead){0};
    }
    if (on->resident_bytes >= m->image_bytes)
        return;
    expect(m, e, e->lane_ns, now_ns);
    e->lane_ns = on->arrives_ns;
}

void models_expect_ahead(struct model *m, struct exec *e, int64_t now_ns)
{
    expect(m, e, now_ns, now_ns);
    e->ahead = (struct exec_ahead){m->version_id, m->on[e->index].arrives_ns};
}

/* ------------------------------------------------------------------ the database */

static int model_new(struct sched *s, const struct store_model *row, struct model **out,
                     struct sh_err *err)
{
    struct models *ms = &s->models;
    struct model *m = NULL;
    int rc = sh_grow(&ms->items, &ms->cap, ms->n + 1, sizeof(ms->items[0]),
                     (size_t)(2 * s->conf->max_versions), "model versions (--max-versions)", err);

    if (rc)
        return rc;
    m = calloc(1, sizeof(*m));
    if (!m)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a model version");
    m->on = calloc(s->execs.cap + 1, sizeof(*m->on));
    m->ready = calloc(s->execs.cap + 1, sizeof(*m->ready));
    if (!m->on || !m->ready) {
        model_free(s, m);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the places of a model version");
    }
    m->version_id = row->version_id;
    m->model_id = row->model_id;
    m->tenant_id = row->tenant_id;
    m->version = row->version;
    m->max_batch = row->max_batch;
    m->is_solo = row->is_solo;
    m->image_bytes = row->image_bytes;
    m->n_runs_before = row->n_runs;
    sh_strlcpy(m->tenant, row->tenant, sizeof(m->tenant));
    sh_strlcpy(m->name, row->model, sizeof(m->name));
    sh_strlcpy(m->precision, row->precision, sizeof(m->precision));
    m->state = strcmp(row->state, "READY") == 0     ? MODEL_READY
               : strcmp(row->state, "LOADING") == 0 ? MODEL_LOADING
                                                    : MODEL_REGISTERED;
    m->slo_percentile = row->slo_percentile;
    models__read_profile(m, row->profile);
    rc = sh_strdup(row->package, &m->package, err);
    if (!rc)
        rc = shapes_read_warm(m, row->warm, err);
    if (!rc)
        rc = idmap_put(&ms->by_id, (uint64_t)m->version_id, m, err);
    if (rc) {
        model_free(s, m);
        return rc;
    }
    m->index = ms->n;
    *out = ms->items[ms->n++] = m;
    ms->changed = true;
    return SH_OK;
}

static void forget_model(struct sched *s, struct model *m)
{
    SH_INFO("model.gone", "tenant=%s model=%s version=%u", m->tenant, m->name, m->version);
    idmap_del(&s->models.by_id, (uint64_t)m->version_id);
    m->gone = true;
    s->models.fits_changed = true; /* where it had failed no longer counts */
    homes_leave_all(s, m);
    serving_forget(s, m);
    for (size_t i = 0; i < s->execs.n; i++) {
        if (s->execs.items[i]->session)
            send_unload(s, m->version_id, s->execs.items[i]);
    }
    m->n_requests++; /* keeps it until the loop below is through */
    s->route->on_model_away(s, m, SH_E_NOTFOUND, "the model version was deleted");
    m->n_requests--;
    sh_metric_drop(M_shunt_request_queue_length, SH_LABELS(m->tenant, m->name));
    models_release(s, m);
}

/* It was loaded again before we had seen its row FAILED: executors that refused it forget that. */
static void load_failed_again(struct sched *s, struct model *m)
{
    version_go(m, MODEL_REGISTERED);
    m->n_failed = 0;
    for (size_t i = 0; i < s->execs.n; i++) {
        struct exec *e = s->execs.items[i];

        if (!exec_is_up(e))
            continue;
        if (m->on[i].phase == MODEL_ON_FAILED)
            models__leave(s, m, e);
        else /* one that came with it meanwhile is a home again */
            homes_tell(s, m, e);
    }
}

/* What clients asked for: to leave the executors, or to come back. */
static void follow_wish(struct sched *s, struct model *m, const char *state)
{
    bool unload = strcmp(state, "UNLOADING") == 0;

    if (m->state == MODEL_FAILED && strcmp(state, "REGISTERED") == 0)
        load_failed_again(s, m);
    /* The write of it was lost, or a client asked twice between two of our looks: nobody would say
     * it again. */
    if ((m->state == MODEL_READY && !unload && strcmp(state, "READY") != 0) ||
        (m->state == MODEL_FAILED && strcmp(state, "LOADING") == 0) ||
        (m->state == MODEL_UNLOADED && unload))
        write_model_state(s, m);
    if (unload == (m->state >= MODEL_UNLOADING))
        return;
    s->models.changed = true;
    if (!unload) {
        m->n_failed = 0;
        version_go(m, MODEL_REGISTERED);
        return;
    }
    SH_INFO("model.unload", "tenant=%s model=%s version=%u", m->tenant, m->name, m->version);
    version_go(m, MODEL_UNLOADING);
    homes_leave_all(s, m);
    for (size_t i = 0; i < s->execs.n; i++) {
        struct exec *e = s->execs.items[i];

        if (e->session && m->on[i].phase != MODEL_ON_ABSENT && m->on[i].phase != MODEL_ON_UNLOADING)
            models__leave(s, m, e);
    }
    s->route->on_model_away(s, m, SH_E_CONFLICT, MODEL_UNLOADED_TEXT);
    settle_model(s, m);
}

static void refresh_model(struct model *m, const struct store_model *row)
{
    if (m->slo_percentile != row->slo_percentile)
        m->n_runs_shown = 0; /* other predictions */
    m->slo_percentile = row->slo_percentile;
    m->pinned = row->pinned;
    m->slo_ns = (int64_t)(SH_MIN(row->slo_ms, 86400e3) * 1e6);
    m->slo_priority = row->slo_priority;
    m->on_miss = strcmp(row->on_miss, "reject") == 0  ? SNAP_REJECT
                 : strcmp(row->on_miss, "delay") == 0 ? SNAP_DELAY
                                                      : SNAP_BEST_EFFORT;
}

int models_merge(struct sched *s, const struct store_view *v, struct sh_err *err)
{
    struct models *ms = &s->models;
    int64_t last = v->n_models < v->most.versions ? INT64_MAX : 0; /* those behind may be there */

    for (size_t i = 0; i < v->n_models; i++) {
        int rc = SH_OK;
        struct model *m = models_find(ms, v->models[i].version_id);
        const bool is_new = !m;

        if (!m)
            rc = model_new(s, &v->models[i], &m, err);
        if (rc)
            return rc;
        m->seen_poll = s->n_polls;
        last = SH_MAX(last, m->version_id);
        refresh_model(m, &v->models[i]);
        follow_wish(s, m, v->models[i].state);
        for (size_t k = 0; k < s->execs.n && !is_new; k++) /* a new one is nowhere yet */
            if (exec_is_up(s->execs.items[k]))
                send_pin(s, m, s->execs.items[k]);
    }
    if (!v->with_models)
        return SH_OK;
    for (size_t i = ms->n; i-- > 0;) {
        struct model *m = ms->items[i];

        if (!m->gone && m->seen_poll != s->n_polls && m->version_id <= last)
            forget_model(s, m);
    }
    models_load_missing(s);
    return SH_OK;
}

/* Versions of one model share a series: the first of them counts for all. */
static void count_waiting(struct sched *s)
{
    struct idmap first = {0}; /* by the model's id */

    for (size_t i = 0; i < s->models.n; i++) {
        struct model *m = s->models.items[i];

        m->n_waiting = 0;
        if (!m->gone && !idmap_get(&first, (uint64_t)m->model_id) &&
            idmap_put(&first, (uint64_t)m->model_id, m, NULL))
            goto out; /* no memory: the gauges are of a second ago */
    }
    for (size_t i = 0; i < s->requests.n; i++) {
        const struct request *r = s->requests.items[i];
        struct model *m = idmap_get(&first, (uint64_t)r->model->model_id);

        if (m && r->state != REQUEST_RUNNING)
            m->n_waiting++;
    }
    for (size_t i = 0; i < s->models.n; i++) {
        const struct model *m = s->models.items[i];

        if (idmap_get(&first, (uint64_t)m->model_id) == m)
            sh_metric_set(M_shunt_request_queue_length, SH_LABELS(m->tenant, m->name),
                          m->n_waiting);
    }
out:
    idmap_fini(&first);
}

void models_second(struct sched *s)
{
    homes_second(s);
    models_load_missing(s);
    ahead_second(s);
    for (size_t i = 0; i < s->models.n; i++)
        settle_model(s, s->models.items[i]); /* the executor we waited for may be gone */
    count_waiting(s);
}
