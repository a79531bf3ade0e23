/* core.c - see core.h. */
#include "simulate/core.h"

#include "common/clock.h"
#include "common/conf.h"
#include "common/mem.h"
#include "common/tree.h"
#include "scheduler/leader.h"
#include "scheduler/models/homes.h"
#include "scheduler/models/serving.h"
#include "scheduler/route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void __wrap_session_send(struct session *x, const struct sh_msg *m);
void __wrap_session_refuse(struct session *x, uint64_t rid, int rc, int64_t retry,
                           int64_t predicted, const char *msg);
void __wrap_sched_count(const char *decision, const char *rule);
bool __wrap_dbthread_is_up(struct dbthread *db);
bool __wrap_jobs_train_on(const struct sched *s, const struct exec *e);

/* The rule of the refusal that follows at once. */
static const char *refused_by;

static struct core_hooks *hooks_of(const struct sched *s)
{
    return &SH_TREE_OF(s, struct core, s)->hooks;
}

void __wrap_session_send(struct session *x, const struct sh_msg *m)
{
    const struct core_hooks *h = x ? hooks_of(x->sched) : NULL;

    if (h && x->exec && h->send)
        h->send(h->ctx, x->exec->index, m);
}

void __wrap_session_refuse(struct session *x, uint64_t rid, int rc, int64_t retry,
                           int64_t predicted, const char *msg)
{
    const struct core_hooks *h = hooks_of(x->sched);

    (void)rc, (void)retry, (void)predicted, (void)msg;
    if (h->refuse)
        h->refuse(h->ctx, rid, refused_by);
}

void __wrap_sched_count(const char *decision, const char *rule)
{
    if (strcmp(decision, "refuse") == 0)
        refused_by = rule;
}

bool __wrap_dbthread_is_up(struct dbthread *db)
{
    (void)db;
    return true;
}

bool __wrap_jobs_train_on(const struct sched *s, const struct exec *e)
{
    const struct core_hooks *h = hooks_of(s);

    return h->trains && h->trains(h->ctx, e->index);
}

static int add_core_exec(struct core *c, uint32_t i, uint64_t pool_bytes, struct sh_err *err)
{
    struct session *x = &c->sessions[i];
    struct msg_exec_hello hello = {.host_id = "here",
                                   .data_addr = "unix:/nowhere",
                                   .device = "fake",
                                   .pool_bytes = pool_bytes,
                                   .n_workers = 3};
    char name[32];
    int rc;

    snprintf(name, sizeof(name), "gpu%u", i);
    hello.executor = name;
    x->serial = i + 1;
    x->sched = &c->s;
    rc = execs_on_hello(&c->s, x, &hello, err);
    if (!rc)
        x->exec->synced = true;
    return rc;
}

int core_init(struct core *c, const struct core_hooks *hooks, uint32_t n_execs, uint64_t pool_bytes,
              struct sh_err *err)
{
    char *argv[] = {(char *)"core", NULL};
    enum sh_conf_action action;
    int rc;

    *c = (struct core){.n_execs = n_execs};
    rc = sh_conf_load(&SCHED_CONF, &c->conf, 1, argv, NULL, NULL, &action, err);
    if (rc)
        return rc;
    c->conf.max_requests = c->conf.max_model_requests = INT32_MAX;
    c->conf.max_executors = SH_MAX_EXECUTORS;
    c->conf.max_versions = INT32_MAX / 2;
    c->s.conf = &c->conf;
    c->s.route = &SCHED_ROUTE;
    c->s.loaded = true;
    c->s.tenants.half_life_s = 3600;
    c->s.tenants.most = SIZE_MAX / 2;
    c->api.session = &c->api_session;
    c->api_session.sched = &c->s;
    homes_begin(&c->s); /* before there are executors */
    c->sessions = calloc(n_execs, sizeof(*c->sessions));
    if (!c->sessions)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %u executors", n_execs);
    for (uint32_t i = 0; !rc && i < n_execs; i++)
        rc = add_core_exec(c, i, pool_bytes, err);
    c->hooks = *hooks;
    return rc;
}

void core_fini(struct core *c)
{
    struct sched *s = &c->s;

    c->hooks = (struct core_hooks){0};
    while (s->requests.n)
        requests_refuse(s, s->requests.items[0], SH_E_UNAVAILABLE, 0, "the replay is over");
    requests_fini(s);
    models_fini(s);
    arrivals_fini(&s->arrivals);
    traffics_fini(&s->traffics);
    pass_fini(&s->pass);
    execs_fini(&s->execs);
    tenants_fini(&s->tenants);
    idmap_fini(&c->api.requests);
    free(c->sessions);
    sh_conf_free(&SCHED_CONF, &c->conf);
}

int core_models(struct core *c, const struct store_model *rows, size_t n, struct sh_err *err)
{
    struct store_view v = {.models = (struct store_model *)rows, .n_models = n};

    return models_merge(&c->s, &v, err);
}

void core_loaded(struct core *c, uint32_t exec, int64_t version_id, uint64_t image_bytes,
                 uint64_t resident_bytes, const struct msg_profile *profile, size_t n_profile)
{
    const struct msg_model_state m = {.version_id = version_id,
                                      .state = MSG_MODEL_READY,
                                      .image_bytes = image_bytes,
                                      .resident_bytes = resident_bytes,
                                      .profile = {profile, n_profile * sizeof(*profile)}};

    models_on_state(&c->s, c->sessions[exec].exec, &m);
}

int core_tenant(struct core *c, const char *name, struct sh_err *err)
{
    struct tenant *t;
    int rc = tenants_get(&c->s.tenants, name, &t, err);

    if (rc)
        return rc;
    t->active = true;
    t->max_requests = UINT32_MAX;
    return SH_OK;
}

int core_tenants(struct core *c, const struct store_tenant *rows, size_t n, struct sh_err *err)
{
    struct store_view v = {
        .tenants = (struct store_tenant *)rows, .n_tenants = n, .with_tenants = true};

    return tenants_merge(&c->s.tenants, &v, 1, sh_clock_ns(), err);
}

void core_decide_by(struct core *c, const struct sched_conf *conf)
{
    struct sched_conf from = *conf;

    for (const char *const *o = SCHED_DECIDES_BY; *o; o++)
        *sched_conf_int(&c->conf, *o) = *sched_conf_int(&from, *o);
}

void core_gone(struct core *c, uint32_t exec, int64_t version_id)
{
    models_on_state(&c->s, c->sessions[exec].exec,
                    &(struct msg_model_state){.version_id = version_id, .state = MSG_MODEL_GONE});
}

void core_open(struct core *c, uint64_t rid, const char *tenant, int64_t version_id,
               int64_t budget_ns)
{
    const struct msg_infer_open m = {.rid = rid,
                                     .tenant = tenant,
                                     .model = "m",
                                     .version_id = version_id,
                                     .budget_ns = budget_ns};

    requests_on_open(&c->s, &c->api, &m);
}

void core_ready(struct core *c, uint64_t rid, uint32_t batch)
{
    requests_on_ready(&c->s, &c->api, &(struct msg_infer_ready){.rid = rid, .batch = batch});
}

void core_run_done(struct core *c, uint32_t exec, const struct msg_run_done *m)
{
    requests_on_run_done(&c->s, c->sessions[exec].exec, m);
}
