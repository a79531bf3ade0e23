/* store.c - see store.h. model.c holds what concerns a single model. */
#include "executor/models/store.h"

#include "common/clock.h"
#include "common/idmap.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/spawn.h"
#include "common/units.h"
#include "executor/files/folder.h"
#include "executor/models/arrival.h"
#include "executor/models/fetch.h"
#include "executor/models/host.h"
#include "executor/models/keep.h"
#include "executor/models/loading.h"
#include "executor/models/model_int.h"
#include "executor/models/packed.h"
#include "executor/models/seen.h"
#include "executor/models/share.h"
#include "executor/models/tables.h"
#include "executor/models/tier.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define FIRST_NS_PER_BYTE 50.0 /* a guess */
#define FIRST_DISK_NS_PER_BYTE 1.0
#define YIELD_NS SH_MS(500)
#define RETRY_MIN_NS SH_S(1)
#define RETRY_MAX_NS SH_S(300)

struct store {
    struct store_env env;
    struct store_users users;
    struct model *models;
    size_t n_models;
    struct idmap by_handle; /* models and shapes */
    int64_t n_internal;     /* so many there have been */
    double ns_per_byte;     /* of slow loads */
    double disk_ns_per_byte;
    struct store_shapes shapes;
    struct store_counts counts;
    struct store_lacks lacks;
    struct host_quotas host;
    struct store_share share;
    int64_t loaded_ns; /* when a worker that serves was through with a model, last */
    int64_t renewed_ns;
    struct store_told told;
    struct arrival *arrivals;
};

int store_new(const struct store_env *env, const struct store_users *users, struct store **out,
              struct sh_err *err)
{
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the store of models");
    (*out)->env = *env;
    (*out)->users = *users;
    (*out)->ns_per_byte = FIRST_NS_PER_BYTE;
    (*out)->disk_ns_per_byte = FIRST_DISK_NS_PER_BYTE;
    (*out)->share.memory.fd = -1;
    return SH_OK;
}

double *store__ns_per_byte(struct store *s)
{
    return &s->ns_per_byte;
}

double *store__disk_ns_per_byte(struct store *s)
{
    return &s->disk_ns_per_byte;
}

struct host_quotas *store__host_quotas(struct store *s)
{
    return &s->host;
}

struct store_told *store__told(struct store *s)
{
    return &s->told;
}

struct arrival **store__arrivals(struct store *s)
{
    return &s->arrivals;
}

int64_t *store__renewed_ns(struct store *s)
{
    return &s->renewed_ns;
}

const struct store_users *store__users(const struct store *s)
{
    return &s->users;
}

const struct store_env *store__env(const struct store *s)
{
    return &s->env;
}

struct store_shapes *store__shapes(struct store *s)
{
    return &s->shapes;
}

struct store_lacks *store__lacks(struct store *s)
{
    return &s->lacks;
}

struct store_share *store__share(struct store *s)
{
    return &s->share;
}

struct store_counts *store__counts(struct store *s)
{
    return &s->counts;
}

static void free_all(struct model **first)
{
    while (*first) {
        struct model *m = *first;

        *first = m->next; /* what shares with it counts anew */
        model__free(m);
    }
}

void store_free(struct store *s)
{
    if (!s)
        return;
    arrival__stop(s);
    share__stop(s);
    free_all(&s->shapes.first);
    free_all(&s->models);
    idmap_fini(&s->by_handle);
    free(s->host.max);
    free(s);
}

int store__put(struct store *s, struct model *m, struct sh_err *err)
{
    return idmap_put(&s->by_handle, (uint64_t)m->handle, m, err);
}

struct model *store_find(struct store *s, int64_t handle)
{
    return idmap_get(&s->by_handle, (uint64_t)handle);
}

size_t store_size(const struct store *s)
{
    return s->n_models + s->shapes.n;
}

struct model *store_next(struct store *s, const struct model *m)
{
    return m ? m->next : s->models;
}

/* ------------------------------------------------------------------ load and unload */

/* Below blobs/, and perhaps still to come; of an internal model its whole path, wherever the state
 * folder is: --state-dir may be relative. */
static int take_package(struct model *m, const char *package, struct sh_err *err)
{
    const struct files *files = m->store->env.files;
    int rc;

    if (m->handle < 0)
        return sh_strdup(package, &m->package, err);
    rc = files_path(files, "blobs", package, &m->package, err);
    return rc ? rc : blob_want(files->blobs, &m->blobs, package, err);
}

static int new_store_model(struct store *s, const struct msg_model_load *l, struct model **out,
                           struct sh_err *err)
{
    struct model *m = NULL;
    int rc;

    *out = NULL;
    if (s->n_models >= (size_t)s->env.max_versions)
        return SH_FAIL(err, SH_E_TOOBIG, "%s has %zu models, as many as max-loaded-versions allows",
                       s->env.executor, s->n_models);
    m = calloc(1, sizeof(*m));
    if (!m)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a model");
    m->store = s;
    m->base = m;
    m->handle = l->version_id;
    m->max_batch = l->max_batch;
    m->wanted = SH_MIN(SH_MAX(l->wanted, 0), 1); /* NAN: 0 */
    m->image.fd = m->kept_fd = m->tables.fd = -1;
    rc = sh_strdup(l->tenant, &m->tenant, err);
    if (!rc)
        rc = sh_strdup(l->model, &m->name, err);
    if (!rc)
        rc = sh_strdup(l->precision[0] ? l->precision : "fp32", &m->precision, err);
    if (!rc)
        rc = sh_strdup(l->source ? l->source : "", &m->source, err);
    if (!rc)
        rc = take_package(m, l->package, err);
    if (!rc)
        rc = space_tag(s->env.space, l->tenant, &m->tag, err);
    if (!rc)
        rc = store__put(s, m, err);
    if (rc) {
        model__free(m);
        return rc;
    }
    m->next = s->models;
    s->models = m;
    s->n_models++;
    model__count(m, 1);
    *out = m;
    return SH_OK;
}

static void refuse_load(struct store *s, int64_t handle, const struct sh_err *why)
{
    struct sh_msg m = {.type = MSG_MODEL_STATE};

    m.u.model_state = (struct msg_model_state){
        .version_id = handle, .state = MSG_MODEL_FAILED, .rc = why->rc, .msg = why->msg};
    uplink_send(s->env.up, &m);
}

/* It has failed because its package did not come, or for something that may be over: being asked
 * again is worth another try. */
static void try_load_again(struct store *s, struct model *m, const struct msg_model_load *l)
{
    const struct sh_err *why = NULL;

    if (m->phase == MODEL_FAILED && (m->short_bytes || sh_rc_retry(m->why.rc)) &&
        blob_set_state(&m->blobs, &why) != BLOB_FAILED) {
        m->why = (struct sh_err){0};
        model__go(m, MODEL_BUILDING);
        return;
    }
    if (m->phase != MODEL_FAILED || blob_set_state(&m->blobs, &why) != BLOB_FAILED)
        return;
    blob_set_drop(&m->blobs);
    m->why = (struct sh_err){0};
    if (blob_want(s->env.files->blobs, &m->blobs, l->package, &m->why) == SH_OK)
        model__go(m, MODEL_BUILDING);
}

void store_load(struct store *s, const struct msg_model_load *l)
{
    struct model *m = store_find(s, l->version_id);
    struct sh_err err = {0};

    if (m && m->phase == MODEL_GOING) {
        SH_FAIL(&err, SH_E_CONFLICT, "the version is still being unloaded; try again");
        refuse_load(s, l->version_id, &err);
        return;
    }
    if (m) {
        m->wanted = SH_MIN(SH_MAX(l->wanted, 0), 1);
        try_load_again(s, m, l);
        model_report(m);
        return;
    }
    if (l->version_id <= 0 || l->version_id >= STORE_SHAPES || l->max_batch < 1 ||
        l->max_batch > 1024)
        SH_FAIL(&err, SH_E_INVALID, "max_batch must be from 1 to 1024, not %u", l->max_batch);
    if (err.rc || new_store_model(s, l, &m, &err)) {
        sh_log_err(SH_LOG_ERROR, "model.load", &err);
        refuse_load(s, l->version_id, &err);
        return;
    }
    SH_INFO("model.load", "version=%" PRId64 " model=%s max_batch=%u precision=%s", m->handle,
            m->name, m->max_batch, m->precision);
    model_report(m);
}

int store_load_internal(struct store *s, const struct msg_model_load *l, struct model **out,
                        struct sh_err *err)
{
    struct msg_model_load own = *l;

    own.version_id = -++s->n_internal;
    return new_store_model(s, &own, out, err);
}

void store_unload(struct store *s, int64_t handle)
{
    struct model *m = store_find(s, handle);

    if (m) {
        model__go(m, MODEL_GOING);
        shapes__leave(s, m);
        return;
    }
    if (handle > 0)
        uplink_send(s->env.up, &(struct sh_msg){.type = MSG_MODEL_STATE,
                                                .u.model_state = {.version_id = handle,
                                                                  .state = MSG_MODEL_GONE}});
}

static void drop_in_worker(struct worker *w, int64_t handle)
{
    struct sh_msg m = {.type = MSG_WK_MODEL_DROP};

    m.u.wk_model_drop.handle = handle;
    worker_send(w, &m, NULL, 0);
    worker_forget_model(w, handle);
}

/* A model that is going leaves when nothing needs it any more. */
static bool may_model_leave(struct store *s, const struct model *m)
{
    return m->phase == MODEL_GOING && !m->n_users && !tx_image_busy(&m->tx) && !m->is_broken &&
           !lacks__is_compiled_now(s, m->handle) && !shapes__any(s, m) && !tier_is_reading(m) &&
           !fetch_is_keeping(m) && !share__is_at(m);
}

static bool reap_from(struct store *s, struct model **list, size_t *n)
{
    for (struct model **p = list; *p; p = &(*p)->next) {
        struct model *m = *p;

        if (!may_model_leave(s, m))
            continue;
        for (size_t i = 0; i < pool_size(s->env.pool); i++)
            if (worker_has_model(pool_at(s->env.pool, i), m->handle))
                drop_in_worker(pool_at(s->env.pool, i), m->handle);
        *p = m->next;
        --*n;
        idmap_del(&s->by_handle, (uint64_t)m->handle);
        model__count(m, -1);
        model_report(m);
        if (m->base == m)
            seen_forget(m);
        if (m->base == m)
            SH_INFO("model.gone", "version=%" PRId64 " model=%s", m->handle, m->name);
        if (m->base == m && m->handle >= 0) /* not one of our own, of an evaluation */
            model__forget_series(m);
        model__free(m);
        return true;
    }
    return false;
}

static bool reap_models(struct store *s)
{
    return s->counts.n_in[MODEL_GOING] &&
           (reap_from(s, &s->shapes.first, &s->shapes.n) || reap_from(s, &s->models, &s->n_models));
}

/* ------------------------------------------------------------------ compiling */

static void retry_load_later(struct model *m, const struct sh_err *why);

/* The worker cannot open a file by itself. again: it is READY, and made once more to be kept. */
static void compile_in(struct store *s, struct worker *w, struct model *m, bool again)
{
    const bool is_shape = m->base != m;
    const bool build = !is_shape && (again || m->phase == MODEL_BUILDING);
    struct sh_msg msg = {.type = MSG_WK_MODEL};
    struct sh_err err = {0};
    size_t n_fds = is_shape ? 0 : 2;
    uint64_t turn;
    int fds[3];

    worker_meet(w, m->tag);
    if (!is_shape &&
        folder_open_package(m->package, fds, &err) == SH_E_NOMEM) { /* of descriptors, perhaps */
        retry_load_later(m, &err);
        return;
    }
    turn = worker_begin_model(w, m->handle);
    if (err.rc) {
        const struct msg_wk_model_done done = {
            .handle = m->handle, .rc = err.rc, .msg = err.msg, .turn = turn};

        store_on_model_done(s, w, &done, NULL, 0);
        return;
    }
    msg.u.wk_model = (struct msg_wk_model){.handle = m->handle,
                                           .precision = m->precision,
                                           .max_batch = m->max_batch,
                                           .build = build,
                                           .turn = turn,
                                           .host_left = host_left_for(m, build),
                                           .host_copies = (uint32_t)pool_size(s->env.pool)};
    m->build_ns = sh_clock_ns();
    if (is_shape) {
        msg.u.wk_model.of = m->base->handle;
        msg.u.wk_model.sizes = (struct sh_blob){m->sizes.v, m->sizes.n * sizeof(m->sizes.v[0])};
    }
    if (!is_shape)
        tables__ask(m, &msg.u.wk_model);
    if (build) {
        packed__ask(m, &msg.u.wk_model);
        fds[2] = loading_open_kept(w, m);
        n_fds += fds[2] >= 0;
        msg.u.wk_model.key = n_fds > 2 ? m->kept.key : "";
        msg.u.wk_model.maps = n_fds > 2 && !again && loading_may_map(m, fds[2]);
        SH_INFO("model.build",
                "version=%" PRId64 " model=%s worker=%u kept=%d wanted=%.2f again=%d", m->handle,
                m->name, w->index, n_fds > 2, m->wanted, again);
    }
    worker_send(w, &msg, n_fds ? fds : NULL, n_fds);
    model__keep_fd(m, msg.u.wk_model.maps ? fds[--n_fds] : -1);
    for (size_t i = 0; i < n_fds; i++)
        close(fds[i]);
}

/* What it compiles is at the cost of runs. */
static bool would_serve(const struct worker *w)
{
    return w->state == WORKER_STANDBY || w->state == WORKER_ACTIVE;
}

static size_t n_compiling(struct store *s)
{
    size_t n = 0;

    for (size_t i = 0; i < pool_size(s->env.pool); i++)
        n += pool_at(s->env.pool, i)->preparing && would_serve(pool_at(s->env.pool, i));
    return n;
}

/* A core is left to those who bring and take requests. */
static size_t quick_at_once(void)
{
    return SH_MAX(sh_cores(), 2u) - 1;
}

/* Does a run wait for this worker, and for no other that is free? It goes first for a while, or who
 * compiles one model after the other would not serve the first of them. */
static bool is_worker_wanted(struct store *s, const struct worker *w)
{
    bool is_turn = sh_clock_ns() - w->compiled_ns > YIELD_NS;

    for (const struct model *m = s->models; m && !is_turn; m = m->next) {
        bool others = false;

        if (!worker_has_model(w, m->handle) || !s->users.has_waiting(s->users.arg, m))
            continue;
        for (size_t i = 0; i < pool_size(s->env.pool) && !others; i++) {
            const struct worker *o = pool_at(s->env.pool, i);

            others = o != w && worker_is_idle(o) && worker_has_model(o, m->handle);
        }
        if (!others)
            return true;
    }
    return false;
}

/* May this worker compile what another one has? Of those that serve only one at a time, so that
 * requests for other models still find a worker, and not at their cost, but for a turn now and
 * then, or if nobody takes runs of it; one that is starting serves nobody yet. */
static bool may_compile(struct store *s, struct worker *w)
{
    const struct model *next;

    if (!worker_is_alive(w) || w->preparing || w->job_compiling || is_worker_wanted(s, w))
        return false;
    if (w->state == WORKER_STARTING || w->state == WORKER_PARKED)
        return !s->users.is_torn(s->users.arg, w);
    if (w->state != WORKER_STANDBY || n_compiling(s) > 0)
        return false;
    if (s->users.is_quiet(s->users.arg) || sh_clock_ns() - s->loaded_ns > YIELD_NS)
        return true;
    next = lacks__next(s, w);
    return next && !served__is_taken(next);
}

static void fail_model(struct model *m, const struct sh_err *why);

/* What it makes should best be kept, too (keep.h). */
static int rank_builder(struct store *s, const struct worker *w, const struct model *m)
{
    return 2 * served__is_spare(s, w) + worker_met_only(w, m->tag);
}

/* Of those that are free one that nobody misses, or else the one that has loaded nothing for the
 * longest time: what was loaded last is what clients wait for. Quick loads may run beside each
 * other, slow ones not: they time what they load. */
static struct worker *worker_for(struct store *s, const struct model *m)
{
    struct worker *best = NULL;
    int best_rank = 0;

    if (n_compiling(s) >= (m->is_quick ? quick_at_once() : 1))
        return NULL;
    for (size_t i = 0; i < pool_size(s->env.pool); i++) {
        struct worker *w = pool_at(s->env.pool, i);
        int its = 0;

        if (!worker_is_idle(w) || is_worker_wanted(s, w) ||
            (m->base != m && !worker_has_model(w, m->base->handle)))
            continue;
        its = rank_builder(s, w, m);
        if (!best || its > best_rank || (its == best_rank && w->compiled_ns < best->compiled_ns)) {
            best = w;
            best_rank = its;
        }
    }
    return best;
}

static const struct worker *any_ready(struct store *s)
{
    for (size_t i = 0; i < pool_size(s->env.pool); i++)
        if (worker_is_alive(pool_at(s->env.pool, i)))
            return pool_at(s->env.pool, i);
    return NULL;
}

/* asked: of those that somebody waits for. */
static bool start_shape(struct store *s, bool asked)
{
    const struct shapes_ask ask = {lacks__is_due, worker_for, asked};
    struct model *next = NULL;
    struct worker *w = NULL;

    if (s->counts.n_in[MODEL_BUILDING] || (asked && lacks__any_idle(s)))
        next = shapes__next(s, &ask, &w);
    if (next) {
        next->base->turn = ++s->shapes.n_turns;
        compile_in(s, w, next, false);
    }
    return next != NULL;
}

/* The first of those that may begin; slow: also those that take long. */
static bool start_build(struct store *s, bool slow)
{
    const struct worker *any = s->counts.n_in[MODEL_BUILDING] ? any_ready(s) : NULL;
    struct model *best = NULL;
    struct worker *w;

    for (struct model *m = s->models; any && m; m = m->next) {
        const struct sh_err *why = NULL;
        enum blob_state package;

        if (m->phase != MODEL_BUILDING || lacks__is_compiled_now(s, m->handle))
            continue;
        package = blob_set_state(&m->blobs, &why);
        if (package == BLOB_COMING || sh_clock_ns() < m->retry_ns)
            continue;
        if (package == BLOB_FAILED) {
            fail_model(m, why);
            return true;
        }
        loading_look(m, any->identity);
        if (fetch_delays(m))
            continue;
        if ((slow || m->is_quick) && (!best || loading_is_before(m, best)))
            best = m;
    }
    w = best ? worker_for(s, best) : NULL;
    if (w)
        compile_in(s, w, best, false);
    return w != NULL;
}

static bool start_spread(struct store *s)
{
    for (size_t i = 0; i < pool_size(s->env.pool); i++) {
        struct worker *w = pool_at(s->env.pool, i);
        struct model *m, *again;

        if (w->state == WORKER_STARTING && worker_is_alive(w) && served__by_none_but(s, w)) {
            served__join(s, w);
            return true;
        }
        if (!may_compile(s, w))
            continue;
        again = keep_next(s, w);
        worker_end_renewal(w);
        m = again ? again : lacks__next(s, w);
        if (m) {
            compile_in(s, w, m, again != NULL);
            return true;
        }
        if (w->state == WORKER_STARTING) {
            served__join(s, w);
            return true;
        }
    }
    return false;
}

/* The worker that trains can compile only when it is stopped; asked for when all others are
 * done. */
static void ask_trainer(struct store *s)
{
    struct worker *trainer = NULL;

    for (size_t i = 0; i < pool_size(s->env.pool); i++) {
        struct worker *w = pool_at(s->env.pool, i);

        if (!worker_is_alive(w) || !lacks__any(s, w))
            continue;
        if (w->preparing || w->state != WORKER_ACTIVE)
            return;
        trainer = w;
    }
    if (trainer)
        s->users.pause_training(s->users.arg, trainer);
}

bool store_worker_lacks(struct store *s, const struct worker *w)
{
    return lacks__any(s, w);
}

/* Builds come first, wherever a worker is free. */
bool store_is_due(void *store, const struct worker *w)
{
    struct store *s = store;
    const struct sh_err *why = NULL;

    if (lacks__any(s, w))
        return true;
    for (const struct model *m = s->counts.n_in[MODEL_BUILDING] ? s->models : NULL; m; m = m->next)
        if (m->phase == MODEL_BUILDING && !lacks__is_compiled_now(s, m->handle) &&
            !fetch_is_under_way(m) && sh_clock_ns() >= m->retry_ns &&
            blob_set_state(&m->blobs, &why) == BLOB_HERE)
            return true;
    return false;
}

bool store_turn(struct store *s)
{
    bool did = reap_models(s) || start_shape(s, true) || start_build(s, false) || start_spread(s) ||
               start_build(s, true) || start_shape(s, false);

    if (!did)
        ask_trainer(s);
    return did;
}

/* ------------------------------------------------------------------ answers */

static void fail_model(struct model *m, const struct sh_err *why)
{
    if (m->phase == MODEL_FAILED || m->phase == MODEL_GOING)
        return;
    if (why->rc != SH_E_TOOBIG && why->rc != SH_E_QUOTA)
        m->need_bytes = 0; /* of another time */
    if (why->rc != SH_E_QUOTA)
        m->short_bytes = 0;
    model__go(m, MODEL_FAILED);
    m->why = *why;
    model__keep_fd(m, -1);
    sh_log_err(m->base == m ? SH_LOG_ERROR : SH_LOG_WARN, "model.failed", why);
    model_report(m);
}

/* Other workers serve it, so the trouble is one worker's: no reason to take it from all. Or what
 * was missing comes back. */
static void retry_load_later(struct model *m, const struct sh_err *why)
{
    int64_t ns = RETRY_MIN_NS;

    for (uint32_t i = 0; i < m->n_retries && ns < RETRY_MAX_NS; i++)
        ns *= 2;
    ns = SH_MIN(ns, RETRY_MAX_NS);
    m->n_retries++;
    m->is_unkept = false;
    m->retry_ns = sh_clock_ns() + ns;
    m->store->counts.n_changes++;
    SH_WARN("model.retry", "version=%" PRId64 " model=%s ms=%" PRId64 " code=%s msg=\"%s\"",
            m->handle, m->name, ns / SH_MS(1), sh_rc_name(why->rc), why->msg);
}

static void note_load_failure(struct store *s, struct model *m, const struct sh_err *why)
{
    if ((m->handle < 0 || m->phase == MODEL_GOING) && lacks__is_orphan(s, m))
        s->users.give_up(s->users.arg, m, why);
    else if (m->phase == MODEL_READY)
        retry_load_later(m, why);
    else
        fail_model(m, why);
    if (m->base != m && m->phase == MODEL_FAILED)
        s->users.give_up(s->users.arg, m, why);
}

/* An internal model is used from its builder alone. */
static void become_ready(struct store *s, struct worker *w, struct model *m,
                         const struct msg_wk_model_done *d)
{
    const int64_t took_ns = sh_clock_ns() - m->build_ns;

    model__go(m, MODEL_READY);
    m->is_served = true; /* by w; reported below */
    if (m->base != m) {
        m->took_ns = took_ns;
        sh_metric_observe(M_shunt_shape_compile_seconds, SH_LABELS(s->env.executor),
                          (double)m->took_ns / 1e9);
        SH_INFO("shape.ready", "version=%" PRId64 " model=%s shape=%" PRId64 " ms=%" PRId64,
                m->base->handle, m->name, m->handle - STORE_SHAPES, m->took_ns / SH_MS(1));
        model_report(m);
        return;
    }
    seen_bring(m);
    model__keep_fd(m, -1);
    if (m->handle < 0)
        return;
    SH_INFO("model.ready",
            "version=%" PRId64 " model=%s image_bytes=%" PRIu64 " layers=%u kept=%u mapped=%u "
            "ms=%" PRId64,
            m->handle, m->name, m->image_bytes, m->n_layers, d->was_kept, m->image.fd < 0,
            took_ns / SH_MS(1));
    if (d->was_kept)
        kept_dir_used(&m->kept);
    else
        loading_took(m, took_ns);
    model_report(m);
    if (!d->was_kept)
        keep_made(m, w, d, m->image.fd);
}

void store__take_done(struct store *s, struct worker *w, const struct msg_wk_model_done *d,
                      int *fds, size_t n_fds)
{
    struct model *m = store_find(s, d->handle);
    const bool had = worker_has_model(w, d->handle);
    struct sh_err err = {0}, full = {0};
    int rc = SH_OK;

    if (!worker_end_model(w, d->handle, d->turn))
        return;
    if (would_serve(w))
        s->loaded_ns = w->compiled_ns;
    if (!m)
        return;
    if (d->rc)
        rc = SH_FAIL(&err, (int)d->rc, "%s", d->msg);
    if (d->rc == SH_E_TOOBIG)
        m->need_bytes = d->image_bytes;
    if (rc == SH_E_QUOTA && host_check(m, packed__stored(m, d), d->host_bytes, &full))
        err = full; /* it says of what there is no more */
    else if (rc == SH_E_QUOTA && m->phase == MODEL_BUILDING && d->host_bytes)
        return; /* there is room now */
    if (!rc && m->phase == MODEL_BUILDING)
        rc = host_check(m, packed__stored(m, d), d->host_bytes, &err);
    if (rc == SH_E_QUOTA && m->phase == MODEL_BUILDING && (m->base == m || m->is_asked) &&
        shapes__evict(s, NULL, m->is_short_of_tenant ? m : NULL)) {
        if (!d->rc)
            drop_in_worker(w, m->handle);
        return; /* a shape goes: there will be more room */
    }
    if (!rc)
        rc = worker_note_model(w, d->handle, &err);
    /* A shape that is going may have a run that waits for the first worker that has it. */
    if (!rc && (m->phase == MODEL_BUILDING || (m->base != m && !m->n_batches)))
        rc = m->base == m ? model__take_tables(m, d, fds, n_fds, &err)
                          : shapes__take_tables(m, d, &err);
    else if (!rc && m->base->has_image)
        rc = model__agree(m, d, &err);
    if (!rc && !had && m->phase != MODEL_BUILDING && m->base == m)
        tables__offer(m, w);
    if (rc) {
        if (!d->rc) /* it has it, and must not run it */
            drop_in_worker(w, m->handle);
        note_load_failure(s, m, &err);
        served__note(m);
        return;
    }
    m->program_bytes = SH_MAX(m->program_bytes, d->host_bytes);
    m->n_crashes = m->n_retries = 0;
    if (m->phase == MODEL_BUILDING)
        become_ready(s, w, m, d);
    else if (m->is_unkept && n_fds == 1)
        keep_made(m, w, d, fds[0]);
    served__note(m);
}

void store_on_worker_dead(struct store *s, int64_t preparing)
{
    struct model *m = preparing ? store_find(s, preparing) : NULL;
    struct sh_err err = {0};

    arrival__lose(s, preparing);
    served__note_all(s);
    /* A kill from outside looks the same as one for lack of memory, so every death counts. */
    if (!m || ++m->n_crashes < MODEL_MAX_CRASHES)
        return;
    SH_FAIL(&err, SH_E_UNSUPPORTED, "%u worker processes died while they compiled this model",
            m->n_crashes);
    note_load_failure(s, m, &err);
}
