/* sched_world.c - see sched_world.h. */
#include "tests/unit/sched_world.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "scheduler/database/dbthread.h"

#include <math.h>
#include <sys/socket.h>
#include <sys/un.h>

struct world w;

static void own(bool begins)
{
    if (w.own)
        w.own(begins);
}

/* Zeroed; free(). By a name that no test lets fail. */
static void *alloc(size_t n, size_t bytes)
{
    void *p = reallocarray(NULL, n, bytes);

    assert_non_null(p);
    return memset(p, 0, n * bytes);
}

/* ------------------------------------------------------------------ the database */

size_t *world_count(const char *name)
{
    size_t i = 0;

    while (w.op_names[i] && strcmp(w.op_names[i], name) != 0)
        i++;
    assert_true(i + 1 < SH_ARRAY_LEN(w.op_names));
    w.op_names[i] = name;
    return &w.n_ops[i];
}

int dbthread_new(struct sh_loop *l, const char *db_url, const char *app, size_t max_queued,
                 struct dbthread **out, struct sh_err *err)
{
    (void)l, (void)db_url, (void)max_queued, (void)err;
    *out = strcmp(app, "shunt-scheduler") == 0 ? &w.main : &w.sweep;
    (*out)->sweeps = *out == &w.sweep;
    return SH_OK;
}

void dbthread_free(struct dbthread *t, int64_t wait_ms)
{
    struct world_op *next;

    (void)wait_ms;
    for (struct world_op *o = t == &w.main ? w.ops : NULL; o; o = next) {
        next = o->next;
        o->op.free_arg(o->op.arg);
        free(o);
    }
    if (t == &w.main)
        w.ops = NULL;
}

int dbthread_submit(struct dbthread *t, const struct dbop *op, struct sh_err *err)
{
    struct world_op *o, **at = &w.ops;

    if (w.is_full)
        return SH_FAIL(err, SH_E_QUEUEFULL, "too many operations wait for the database");
    if (t->sweeps) {
        op->free_arg(op->arg);
        return SH_OK;
    }
    o = alloc(1, sizeof(*o));
    o->op = *op;
    while (*at)
        at = &(*at)->next;
    *at = o;
    return SH_OK;
}

void dbthread_collect(struct dbthread *t, const uint64_t *generation)
{
    struct world_op **at = &w.ops;

    while (!t->sweeps && *at) {
        struct world_op *o = *at;
        struct sh_err err = {0};

        if (!o->is_done) {
            at = &o->next;
            continue;
        }
        *at = o->next;
        if (o->rc)
            SH_FAIL(&err, o->rc, "the database refused \"%s\"", o->op.name);
        if (o->op.done && (!o->op.generation || o->op.generation == *generation))
            o->op.done(o->op.ctx, o->op.arg, o->rc, &err);
        o->op.free_arg(o->op.arg);
        free(o);
        at = &w.ops;
    }
}

void dbthread_drop(struct dbthread *t, uint64_t generation)
{
    (void)t, (void)generation; /* done is not called for them */
}

void dbthread_hear(struct dbthread *t)
{
    (void)t;
}

bool dbthread_is_up(struct dbthread *t)
{
    (void)t;
    return !w.is_down;
}

struct store_job *world_job(int64_t id)
{
    for (size_t i = 0; i < w.n_jobs; i++)
        if (w.jobs[i].id == id)
            return &w.jobs[i];
    return NULL;
}

void world_set_job(int64_t id, enum job_state state, const char *executor)
{
    struct store_job *row = world_job(id);

    if (!row)
        return;
    row->state = job_state_name(state);
    row->executor = w.executor[row - w.jobs];
    sh_strlcpy(w.executor[row - w.jobs], executor, sizeof(w.executor[0]));
}

/* A copy: OWNED, the view's. */
static void *world_copy(const void *rows, size_t n, size_t bytes)
{
    void *p = alloc(n + 1, bytes);

    if (n)
        memcpy(p, rows, n * bytes);
    return p;
}

static bool ended(const struct store_job *row)
{
    enum job_state s;

    return !row->gone && !job_state_parse(row->state, &s, NULL) && job_state_is_final(s);
}

static void world_look(struct store_view *v)
{
    const struct store_view *x = &w.look;

    w.asked = *v;
    w.asked_first = v->n_asked ? v->asked[0] : (struct store_place){0};
    v->full = v->full || x->is_anew;
    v->is_anew = x->is_anew;
    v->is_busy_cut = x->is_busy_cut;
    v->window = x->window ? x->window : lines_window(0, v->most.lines);
    v->now = (struct store_seen){.xmin = 10 + w.s->n_polls, .xmax = 11 + w.s->n_polls};
    v->now.open = strdup("{}");
    v->with_tenants = v->with_models = !w.says_little;
    v->n_tenants = w.says_little ? 0 : SH_MIN(w.n_tenants, v->most.tenants);
    v->tenants = world_copy(w.tenants, v->n_tenants, sizeof(w.tenants[0]));
    v->n_models = w.says_little ? 0
                  : x->n_models ? x->n_models
                                : SH_MIN(w.n_models, v->most.versions);
    v->models = world_copy(x->n_models ? x->models : w.models, v->n_models, sizeof(w.models[0]));
    for (size_t i = v->n_models; i-- > 0;) /* executors have nothing to do with these */
        if (strcmp(v->models[i].state, "UNLOADED") == 0 ||
            strcmp(v->models[i].state, "FAILED") == 0)
            v->models[i] = v->models[--v->n_models];
    v->n_jobs = w.n_jobs;
    v->jobs = world_copy(w.jobs, w.n_jobs, sizeof(w.jobs[0]));
    for (size_t i = v->n_jobs; v->full && i-- > x->n_told;) /* it reads those that have not ended */
        if (ended(&v->jobs[i]))
            v->jobs[i] = v->jobs[--v->n_jobs];
    v->n_told = v->full && !v->is_anew ? x->n_told : v->n_jobs;
#define COPY(what)                                                  \
    v->what = world_copy(x->what, x->n_##what, sizeof(x->what[0])); \
    v->n_##what = x->n_##what
    COPY(queues);
    COPY(versions);
    COPY(arrays);
    COPY(places);
    COPY(counts);
    COPY(totals);
#undef COPY
    v->usage_tenant = world_copy(x->usage_tenant, x->n_usage, sizeof(int64_t));
    v->usage_ns = world_copy(x->usage_ns, x->n_usage, sizeof(double));
    v->n_usage = x->n_usage;
    w.look = (struct store_view){0};
}

static void world_start(struct store_start *a)
{
    static const struct job_progress NO_PROGRESS = {.loss = NAN, .samples_per_s = NAN};

    *a->out = w.start_out ? *w.start_out
                          : (struct store_start_out){.state = JOB_STARTING, .base = NO_PROGRESS};
#define TEXT(what, is) \
    a->out->what = strdup(w.start_out && w.start_out->what ? w.start_out->what : is)
    TEXT(tenant, "t");
    TEXT(model, "m");
    TEXT(package, "/packages/m");
    TEXT(dataset, "/datasets/d");
    TEXT(eval_dataset, "");
    TEXT(spec, "{}");
    TEXT(resume, "");
    TEXT(inputs, "[]");
    TEXT(outputs, "[]");
    TEXT(resume_digest, "");
    TEXT(about, "");
#undef TEXT
    world_set_job(a->job, a->out->state, a->out->state == JOB_STARTING ? a->executor : "");
}

static void world_write(struct store_write *a)
{
    const struct store_job *row = world_job(a->job);

    w.wrote = *a;
    a->out->conflict = w.conflict;
    w.conflict = false;
    if (a->n_changes && !a->out->conflict) {
        const enum job_state to = a->changes[a->n_changes - 1].to;
        const bool suspends = to == JOB_QUEUED && row && strcmp(row->wish, "SUSPEND") == 0;

        world_set_job(a->job, suspends ? JOB_SUSPENDED : to,
                      job_state_has_executor(to) ? a->executor : "");
        if (!job_state_has_executor(to) && row)
            world_job(a->job)->wish = "NONE";
        if (row && to == JOB_QUEUED)
            world_job(a->job)->not_before_s = a->backoff_ms ? (double)a->backoff_ms / 1e3 : NAN;
        if (row && to == JOB_QUEUED)
            world_job(a->job)->attempt = a->attempt;
        if (row && to == JOB_QUEUED)
            world_job(a->job)->place.line_us = row->queued_us + a->handicap_us;
    }
    row = world_job(a->job);
    if (row)
        job_state_parse(row->state, &a->out->state, NULL);
    if (a->version.digest)
        a->out->version_id = 77;
}

static void world_model(const struct store_model_state *a)
{
    w.model_wrote = *a;
    for (size_t i = 0; i < w.n_models; i++) {
        const char *was = w.models[i].state;
        const bool may = strcmp(a->state, "UNLOADED") == 0
                             ? strcmp(was, "UNLOADING") == 0
                             : strcmp(was, "REGISTERED") == 0 || strcmp(was, "LOADING") == 0;

        if (w.models[i].version_id == a->version_id && may)
            w.models[i].state = a->state;
    }
}

static void world_answer(struct world_op *o)
{
    void *a = o->op.arg;
    const char *name = o->op.name;

    o->is_done = true;
    ++*world_count(name);
    if (w.n_fails && w.failing && strcmp(w.failing, name) == 0) {
        w.n_fails--;
        o->rc = w.fail_rc;
    } else if (strcmp(name, "lease") == 0) {
        *(struct store_lease *)a = (struct store_lease){.held = true, .fence.epoch = 1};
    } else if (strcmp(name, "poll") == 0) {
        world_look(a);
        w.held = w.one_look ? "poll" : w.held;
        w.one_look = false;
    } else if (strcmp(name, "job.start") == 0) {
        world_start(a);
    } else if (strcmp(name, "job.write") == 0) {
        world_write(a);
    } else if (strcmp(name, "model.state") == 0) {
        world_model(a);
    } else if (strcmp(name, "share.put") == 0) {
        const struct store_shares *x = a;

        w.n_shares = x->n;
        memcpy(w.shares, x->rows, x->n * sizeof(x->rows[0]));
    } else if (strcmp(name, "report") == 0) {
        const struct store_report *r = a;

        w.n_places += r->places != NULL;
        w.n_slices += r->arrivals != NULL;
        w.n_arrivals += r->arrivals ? r->n_arrivals : 0;
        w.arrived_s = r->arrivals ? r->arrived_s : w.arrived_s;
    } else if (strcmp(name, "changes.forget") == 0) {
        struct store_forget *f = a;

        f->n_rows = w.forgets_all ? 0 : f->batch;
        f->last = f->from + 1;
    }
}

void db_fail(const char *name, int rc, int n)
{
    w.failing = name;
    w.fail_rc = rc;
    w.n_fails = n;
}

/* ------------------------------------------------------------------ time */

void turn(void)
{
    struct sh_err err = {0};

    for (int i = 0; i < 12; i++) {
        assert_ok_err(sh_loop_once(w.loop, 0, &err), &err);
        for (struct world_op *o = w.ops; o; o = o->next)
            if (!o->is_done && !(w.held && strcmp(w.held, o->op.name) == 0)) {
                world_answer(o);
                sh_loop_wake(w.loop);
            }
    }
    if (w.s->epoch && w.s->loaded) {
        jobs_sync(w.s);
        assert_true(requests_are_timed(w.s));
        if (jobs_pool_fault(w.s))
            fail_msg("the pool of jobs does not know of a change: %s", jobs_pool_fault(w.s));
    }
}

void advance(int64_t ns)
{
    while (ns > 0) {
        const int64_t step = SH_MIN(ns, 250 * MS);

        sh_clock_advance(step);
        turn();
        ns -= step;
    }
}

void look_again(void)
{
    sched_poll(w.s);
    turn();
}

void look_at_all(void)
{
    w.s->jobs.full_ns = INT64_MIN / 2;
    look_again();
}

/* ------------------------------------------------------------------ peers */

void peer_open(struct peer *p)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t i = 0;

    *p = (struct peer){.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_true(p->fd >= 0);
    sh_buf_init(&p->buf, SH_WIRE_MAX_FRAME);
    p->ahead = (struct sh_wire_ahead){0};
    while (w.peers[i])
        assert_true(++i < SH_ARRAY_LEN(w.peers));
    w.peers[i] = p;
    sh_strlcpy(a.sun_path, w.listen + strlen("unix:"), sizeof(a.sun_path));
    assert_int_equal(connect(p->fd, (struct sockaddr *)&a, sizeof(a)), 0);
}

void peer_close(struct peer *p)
{
    if (p->fd >= 0)
        close(p->fd);
    for (size_t i = 0; i < SH_ARRAY_LEN(w.peers); i++)
        if (w.peers[i] == p)
            w.peers[i] = NULL;
    p->fd = -1;
    sh_buf_fini(&p->buf);
    turn();
}

void say(struct peer *p, const struct sh_msg *m)
{
    struct sh_err err = {0};

    own(true);
    if (sh_wire_write_blocking(p->fd, m, NULL, 0, &err) && !w.own)
        fail_msg("%s: %s", sh_msg_name(m->type), err.msg);
    own(false);
    turn();
}

const struct sh_msg *heard(struct peer *p, enum sh_msg_type type)
{
    bool is_there = false;

    own(true);
    while (!is_there && (sh_wire_has_ahead(&p->ahead) || sh_wire_has_input(p->fd)) &&
           !sh_wire_read_ahead(p->fd, &p->ahead, &p->buf, &p->msg, NULL, NULL, NULL))
        is_there = p->msg.type == type || type == ANY_MSG;
    own(false);
    return is_there ? &p->msg : NULL;
}

const struct sh_msg *hear(struct peer *p, enum sh_msg_type type)
{
    const struct sh_msg *m = heard(p, type);

    if (!m)
        fail_msg("no %s has come", sh_msg_name(type));
    return m;
}

void forget_heard(struct peer *p)
{
    heard(p, (enum sh_msg_type)0);
}

void stay(int64_t ns)
{
    for (; ns > 0; ns -= SECOND) {
        advance(SH_MIN(ns, SECOND));
        for (size_t i = 0; i < SH_ARRAY_LEN(w.peers); i++)
            if (w.peers[i])
                say(w.peers[i], &(struct sh_msg){.type = MSG_PONG});
    }
}

bool is_closed(struct peer *p)
{
    char c;

    forget_heard(p);
    return recv(p->fd, &c, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

void api_hello(struct peer *p, uint64_t id)
{
    peer_open(p);
    say(p, &(struct sh_msg){.type = MSG_API_HELLO, .u.api_hello = {.api_id = id, .name = "api"}});
    hear(p, MSG_WELCOME);
}

void exec_hello(struct peer *p, const char *name, uint64_t incarnation)
{
    peer_open(p);
    say(p, &(struct sh_msg){.type = MSG_EXEC_HELLO,
                            .u.exec_hello = {.executor = name,
                                             .host_id = "host",
                                             .data_addr = "unix:/x",
                                             .device = "cpu",
                                             .pool_bytes = 1 << 30,
                                             .n_workers = 2,
                                             .incarnation = incarnation}});
    hear(p, MSG_WELCOME);
}

struct exec *exec_synced(struct peer *p, const char *name)
{
    struct exec *e = execs_find(&w.s->execs, name);

    say(p, &(struct sh_msg){.type = MSG_EXEC_SYNCED});
    assert_true(e && exec_is_up(e));
    return e;
}

struct exec *exec_up(struct peer *p, const char *name)
{
    exec_hello(p, name, 1);
    return exec_synced(p, name);
}

void model_said(struct peer *p, struct msg_model_state m)
{
    const struct sh_msg said = {.type = MSG_MODEL_STATE, .u.model_state = m};

    say(p, &said);
}

void model_ready(struct peer *p, int64_t version_id)
{
    model_said(p, (struct msg_model_state){.version_id = version_id,
                                           .state = MSG_MODEL_READY,
                                           .image_bytes = 1 << 20,
                                           .resident_bytes = 1 << 20});
}

void infer_open(struct peer *api, uint64_t rid, int64_t version_id, bool has_sizes)
{
    say(api, &(struct sh_msg){.type = MSG_INFER_OPEN,
                              .u.infer_open = {.rid = rid,
                                               .tenant = "t",
                                               .model = "m",
                                               .version_id = version_id,
                                               .has_sizes = has_sizes}});
}

void infer_ready(struct peer *api, uint64_t rid, const uint32_t *sizes, size_t n_sizes)
{
    static const struct msg_span SPAN = {0, 4};

    say(api, &(struct sh_msg){.type = MSG_INFER_READY,
                              .u.infer_ready = {.rid = rid,
                                                .batch = 1,
                                                .in_spans = {&SPAN, sizeof(SPAN)},
                                                .out_spans = {&SPAN, sizeof(SPAN)},
                                                .sizes = {sizes, n_sizes * sizeof(*sizes)}}});
}

uint64_t run_sent(struct peer *x)
{
    return hear(x, MSG_RUN)->u.run.run_id;
}

void run_done(struct peer *x, uint64_t run_id, int rc)
{
    say(x, &(struct sh_msg){.type = MSG_RUN_DONE,
                            .u.run_done = {.run_id = run_id,
                                           .rc = rc,
                                           .total_ns = MS,
                                           .compute_ns = MS,
                                           .busy_ns = MS,
                                           .resident_bytes = 1 << 20}});
}

/* ------------------------------------------------------------------ rows */

struct store_tenant *add_tenant(int64_t id, const char *name)
{
    w.tenants[w.n_tenants] = (struct store_tenant){.id = id,
                                                   .name = name,
                                                   .active = true,
                                                   .max_gpus = -1,
                                                   .weight = 1,
                                                   .lending_limit = -1,
                                                   .max_running_jobs = 16,
                                                   .max_concurrent_requests = 64,
                                                   .memory.share = 1};
    return &w.tenants[w.n_tenants++];
}

struct store_model *add_model(int64_t version_id, const char *name)
{
    w.models[w.n_models] = (struct store_model){.version_id = version_id,
                                                .model_id = version_id,
                                                .tenant_id = 1,
                                                .tenant = "t",
                                                .model = name,
                                                .state = "READY",
                                                .package = "/packages/m",
                                                .precision = "fp32",
                                                .version = 1,
                                                .max_batch = 8,
                                                .image_bytes = 1 << 20,
                                                .slo_percentile = 99,
                                                .on_miss = "best_effort"};
    return &w.models[w.n_models++];
}

struct store_job *add_job(int64_t id)
{
    w.jobs[w.n_jobs] = (struct store_job){
        .id = id,
        .line = {.tenant_id = 1, .queue_id = 1, .version_id = 1, .gpus = 1, .preemptible = true},
        .queued_us = id,
        .place = {.line_us = id, .id = id},
        .model_id = 1,
        .tenant = "t",
        .model = "m",
        .state = "QUEUED",
        .queue_state = "OPEN",
        .version_state = "READY",
        .executor = "",
        .reason = "",
        .wish = "NONE",
        .deadline_s = NAN,
        .not_before_s = NAN,
        .attempt = 1,
        .max_attempts = 3,
        .step_samples = 32,
        .progress = {.loss = NAN, .samples_per_s = NAN}};
    return &w.jobs[w.n_jobs++];
}

struct job *job_of(int64_t id)
{
    return idmap_get(&w.s->jobs.by_id, (uint64_t)id);
}

double metric(const char *name)
{
    struct sh_buf text;
    struct sh_err err = {0};
    const char *at;
    char line[128];
    double v;

    snprintf(line, sizeof(line), "\n%s ", name);
    sh_buf_init(&text, 1 << 22);
    assert_ok_err(sh_metrics_render('s', &text, &err), &err);
    at = text.data ? strstr(text.data, line) : NULL; /* NULL: nothing was ever counted */
    v = at ? strtod(at + strlen(line), NULL) : 0;
    sh_buf_fini(&text);
    return v;
}

double decided(const char *decision, const char *rule)
{
    char name[112];

    snprintf(name, sizeof(name), "shunt_decisions_total{decision=\"%s\",rule=\"%s\"}", decision,
             rule);
    return metric(name);
}

/* ------------------------------------------------------------------ begin and end */

int world_begin(void **state)
{
    char program[] = "test", *argv[] = {program, NULL};
    enum sh_conf_action action;
    struct sh_err err = {0};

    (void)state;
    w = (struct world){0};
    sh_log_set_level(SH_LOG_ERROR);
    sh_clock_fake(1000 * SECOND, 1700000000000);
    sh_test_dir_make(w.dir);
    snprintf(w.listen, sizeof(w.listen), "unix:%s/s", w.dir);
    assert_ok_err(sh_conf_load(&SCHED_CONF, &w.defaults, 1, argv, NULL, NULL, &action, &err), &err);
    w.conf = w.defaults;
    w.conf.listen = w.listen;
    w.conf.name = w.listen + strlen("unix:/tmp/"); /* some name */
    w.conf.poll_ms = 60000;                        /* looks come when they are asked for */
    w.conf.full_look_ms = 86400000;
    w.conf.max_requests = 64;
    w.conf.max_model_requests = 32;
    w.conf.max_sessions = 8;
    add_tenant(1, "t");
    add_model(1, "m");
    assert_ok_err(sh_loop_new(&w.loop, &err), &err);
    assert_ok_err(sched_new(&w.conf, w.loop, &w.s, &err), &err);
    return 0;
}

void world_lead(void)
{
    turn();
    assert_true(w.s->epoch && w.s->loaded);
}

int world_lead_at_once(void **state)
{
    world_begin(state);
    world_lead();
    return 0;
}

int world_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(w.peers); i++)
        if (w.peers[i])
            peer_close(w.peers[i]);
    w.is_down = true; /* nothing is waited for */
    sched_free(w.s);
    sh_loop_free(w.loop);
    sh_conf_free(&SCHED_CONF, &w.defaults);
    sh_test_dir_remove(w.dir);
    sh_clock_real();
    return 0;
}
