/* executors.c - see executors.h: who is connected, and what each is told. */
#include "scheduler/peers/executors.h"

#include "common/hash.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "scheduler/peers/recent.h"
#include "scheduler/sched.h"

#include <stdlib.h>
#include <string.h>

void execs_fini(struct execs *x)
{
    for (size_t i = 0; i < x->n; i++) {
        sh_metric_drop(M_shunt_placement_load, SH_LABELS(x->items[i]->info.name));
        recent_free(x->items[i]->recent);
        sh_metric_drop(M_shunt_models_shut, SH_LABELS(x->items[i]->info.name));
        thrash_fini(&x->items[i]->thrash);
        free(x->items[i]);
    }
    free(x->items);
    idmap_fini(&x->by_name);
    *x = (struct execs){0};
    /* Of who does not lead they would count beside the leader's, and hide that it has none. */
    sh_metric_drop(M_shunt_executors, SH_LABELS("up"));
    sh_metric_drop(M_shunt_executors, SH_LABELS("down"));
}

struct exec *execs_find(const struct execs *x, const char *name)
{
    struct exec *e = idmap_get(&x->by_name, sh_hash_name(name));

    if (!e || strcmp(e->info.name, name) == 0)
        return e;
    for (size_t i = 0; i < x->n; i++)
        if (strcmp(x->items[i]->info.name, name) == 0)
            return x->items[i];
    return NULL;
}

int execs_rename(struct execs *x, struct exec *e, const char *name, struct sh_err *err)
{
    int rc = idmap_put(&x->by_name, sh_hash_name(name), e, err);

    if (rc)
        return rc;
    if (e->info.name[0] && strcmp(e->info.name, name) != 0) {
        idmap_del(&x->by_name, sh_hash_name(e->info.name));
        sh_metric_drop(M_shunt_placement_load, SH_LABELS(e->info.name));
        sh_metric_drop(M_shunt_models_shut, SH_LABELS(e->info.name));
    }
    sh_strlcpy(e->info.name, name, sizeof(e->info.name));
    return SH_OK;
}

void exec_changed(struct execs *x, struct exec *e)
{
    if (e->is_changed)
        return;
    e->is_changed = true;
    e->next_changed = x->changed;
    x->changed = e;
}

bool exec_is_up(const struct exec *e)
{
    return e->session && e->synced && !e->state.is_stopping;
}

uint64_t exec_image_bytes(const struct exec *e)
{
    return e->info.pool_bytes - SH_MIN(e->most_workspace, e->info.pool_bytes);
}

int64_t exec_busy_until_ns(const struct exec *e, int64_t now_ns, int64_t *slack)
{
    int64_t until = e->done_ns;

    *slack = 0;
    for (const struct run *r = e->runs; r; r = r->next) {
        until = SH_MAX(until, r->sent_ns) + r->predicted_ns;
        /* Of the one that is longer on its way than predicted nothing is known but that: it may
         * well take as long again. */
        if (r == e->runs && until < now_ns)
            until = now_ns + (now_ns - until);
        *slack = predict_slack(*slack, r->slack_ns);
    }
    return SH_MAX(until, now_ns);
}

static struct sh_msg exec_up(const struct exec *e, bool up)
{
    return (struct sh_msg){.type = MSG_EXEC_UP,
                           .u.exec_up = {.executor = e->info.name,
                                         .host_id = e->info.host_id,
                                         .data_addr = e->info.data_addr,
                                         .up = up}};
}

void execs_tell_apis(struct sched *s, const struct exec *e, bool up)
{
    struct sh_msg m = exec_up(e, up);

    for (size_t i = 0; i < s->sessions.n; i++) {
        if (s->sessions.items[i]->api)
            session_send(s->sessions.items[i], &m);
    }
}

void execs_tell_api(struct sched *s, struct session *api)
{
    for (size_t i = 0; i < s->execs.n; i++) {
        struct sh_msg m = exec_up(s->execs.items[i], true);

        if (s->execs.items[i]->session)
            session_send(api, &m);
    }
}

void exec_tell_memory(struct sched *s, struct exec *e)
{
    for (size_t i = 0; i < s->tenants.n; i++) {
        const struct tenant *t = s->tenants.items[i];

        if (t->memory_change > e->memory_told)
            session_send(
                e->session,
                &(struct sh_msg){.type = MSG_TENANT_MEMORY,
                                 .u.tenant_memory = {.epoch = s->epoch,
                                                     .tenant = t->name,
                                                     .min_bytes = t->memory.min_bytes,
                                                     .max_bytes = t->memory.max_bytes,
                                                     .share = t->memory.share,
                                                     .host_max_bytes = t->memory.host_max_bytes}});
    }
    e->memory_told = s->tenants.memory_changes;
}

void execs_tell_memory(struct sched *s)
{
    for (size_t i = 0; i < s->execs.n; i++)
        if (exec_is_up(s->execs.items[i]))
            exec_tell_memory(s, s->execs.items[i]);
}

void execs_metrics(struct sched *s)
{
    double up = 0;

    for (size_t i = 0; i < s->execs.n; i++)
        up += exec_is_up(s->execs.items[i]);
    sh_metric_set(M_shunt_executors, SH_LABELS("up"), up);
    sh_metric_set(M_shunt_executors, SH_LABELS("down"), (double)s->execs.n - up);
}
