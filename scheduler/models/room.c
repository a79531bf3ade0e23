/* room.c - see room.h. */
#include "scheduler/models/room.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/units.h"
#include "scheduler/models/homes.h"
#include "scheduler/route.h"
#include "scheduler/sched.h"

#include <string.h>

#define AGAIN_NS SH_S(1) /* for who waits, should no word come */

/* When somebody last asked for it, or it came to e. */
static int64_t asked_ns(const struct model *m, const struct exec *e, int64_t now_ns)
{
    const struct model_on *on = &m->on[e->index];
    int64_t used_ns = 0;

    if (on->place.last_use_ms)
        used_ns = now_ns - SH_MS(sh_clock_wall_ms() - on->place.last_use_ms);
    return SH_MAX(SH_MAX(m->asked_ns, on->ready_ns), used_ns);
}

/* By a job of batch inference that e has; NULL: that any executor has. */
static bool is_model_used(const struct sched *s, const struct model *m, const struct exec *e)
{
    for (size_t i = 0; i < s->jobs.n; i++) {
        const struct job *j = s->jobs.items[i];

        if (j->is_batch && j->version_id == m->version_id && j->executor[0] &&
            (!e || strcmp(j->executor, e->info.name) == 0))
            return true;
    }
    return false;
}

static bool is_model_idle(const struct sched *s, const struct model *m, const struct exec *e,
                          int64_t now_ns)
{
    return m->state == MODEL_READY && m->on[e->index].phase == MODEL_ON_READY && !m->pinned &&
           m->n_requests == 0 && !is_model_used(s, m, NULL) &&
           now_ns - asked_ns(m, e, now_ns) > ROOM_IDLE_NS;
}

static bool is_leaving(const struct model *m, const struct exec *e)
{
    return m->on[e->index].phase == MODEL_ON_UNLOADING && m->on[e->index].is_aside;
}

static bool goes(const struct model *m, const struct exec *e)
{
    return is_leaving(m, e) || m->on[e->index].is_chosen;
}

/* On e; stays: without what goes. */
static uint64_t held_by_tenant(const struct sched *s, const struct exec *e, int64_t tenant_id,
                               bool stays)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < s->models.n; i++) {
        const struct model *m = s->models.items[i];

        if (m->tenant_id == tenant_id && !(stays && goes(m, e)))
            sum += m->on[e->index].place.host_bytes;
    }
    return sum;
}

/* a before b? */
static bool goes_first(const struct model *a, const struct model *b, const struct exec *e,
                       int64_t now_ns)
{
    const bool a_there = a->on[e->index].resident_bytes > 0;
    const bool b_there = b->on[e->index].resident_bytes > 0;

    if (a_there != b_there)
        return b_there;
    return asked_ns(a, e, now_ns) < asked_ns(b, e, now_ns);
}

/* The next to go for m; NULL: there is none. */
static struct model *choose_leaver(const struct sched *s, const struct model *m,
                                   const struct exec *e, bool of_tenant)
{
    const int64_t now = sh_clock_ns();
    const uint64_t own = held_by_tenant(s, e, m->tenant_id, true);
    struct model *best = NULL;

    for (size_t i = 0; i < s->models.n; i++) {
        struct model *v = s->models.items[i];
        const bool is_own = v->tenant_id == m->tenant_id;

        if (v == m || v->on[e->index].is_chosen || (of_tenant && !is_own) ||
            v->on[e->index].place.host_bytes == 0 || !is_model_idle(s, v, e, now) ||
            (best && !goes_first(v, best, e, now)) ||
            (!is_own && held_by_tenant(s, e, v->tenant_id, true) <= own))
            continue;
        best = v;
    }
    return best;
}

static void put_aside(struct sched *s, struct model *v, const struct model *m, struct exec *e)
{
    SH_INFO("model.aside", "executor=%s tenant=%s model=%s version=%u for=%s/%s:%u rule=Aside",
            e->info.name, v->tenant, v->name, v->version, m->tenant, m->name, m->version);
    sched_count("evict", "Aside");
    models__leave(s, v, e);
    v->on[e->index].is_aside = true;
    s->models.changed = true;
}

/* Of a tenant's versions on e, all that share something. Which of them share the same is not known:
 * then no more is expected than comes. */
static bool go_all_that_share(const struct sched *s, const struct exec *e, int64_t tenant_id)
{
    for (size_t i = 0; i < s->models.n; i++) {
        const struct model *v = s->models.items[i];

        if (v->tenant_id == tenant_id && v->on[e->index].shared_bytes && !goes(v, e))
            return false;
    }
    return true;
}

/* By what goes from e, or what of it is of m's tenant. */
static uint64_t freed_soon(const struct sched *s, const struct model *m, const struct exec *e,
                           bool of_tenant)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < s->models.n; i++) {
        const struct model *v = s->models.items[i];
        const struct model_on *on = &v->on[e->index];

        if (!goes(v, e) || (of_tenant && v->tenant_id != m->tenant_id))
            continue;
        sum += on->place.host_bytes;
        if (on->shared_bytes && !go_all_that_share(s, e, v->tenant_id))
            sum -= on->shared_bytes;
    }
    return sum;
}

/* Enough, or nobody goes. */
static bool make_exec_room(struct sched *s, struct model *m, struct exec *e, uint64_t bytes,
                           bool of_tenant)
{
    uint64_t freed = freed_soon(s, m, e, of_tenant);
    struct model *v;

    while (freed < bytes && (v = choose_leaver(s, m, e, of_tenant))) {
        v->on[e->index].is_chosen = true;
        freed = freed_soon(s, m, e, of_tenant);
    }
    for (size_t i = 0; i < s->models.n; i++) {
        v = s->models.items[i];
        if (v->on[e->index].is_chosen && freed >= bytes)
            put_aside(s, v, m, e);
        v->on[e->index].is_chosen = false;
    }
    return freed >= bytes;
}

/* What m takes of e's host memory, or more: beside what was left, so much was missing. */
static uint64_t least_load_bytes(const struct sched *s, const struct model *m, const struct exec *e,
                                 const struct msg_model_state *msg)
{
    const struct tenant *t = tenants_by_id(&s->tenants, m->tenant_id);
    const struct exec_state *x = &e->state;
    uint64_t limit = x->host_limit, taken = x->host_images + x->host_programs;

    if (msg->short_of_tenant) {
        limit = t && t->memory.host_max_bytes ? t->memory.host_max_bytes : x->host_limit / 2;
        taken = held_by_tenant(s, e, m->tenant_id, false);
    }
    return (limit > taken ? limit - taken : 0) + msg->short_bytes;
}

static bool is_held_anywhere(const struct sched *s, const struct model *m)
{
    for (size_t i = 0; i < s->execs.n; i++)
        if (exec_is_up(s->execs.items[i]) && m->on[i].phase == MODEL_ON_READY)
            return true;
    return false;
}

bool room_on_full(struct sched *s, struct model *m, struct exec *e,
                  const struct msg_model_state *msg)
{
    struct model_on *on = &m->on[e->index];
    const bool is_wanted = m->state != MODEL_READY || m->n_requests || is_model_used(s, m, NULL);

    if (msg->rc != SH_E_QUOTA || !msg->short_bytes)
        return false;
    m->host_bytes = SH_MAX(m->host_bytes, least_load_bytes(s, m, e, msg));
    if (!is_model_used(s, m, e) && homes_elsewhere(s, m, e)) {
        models__leave(s, m, e);
        return true;
    }
    if (is_wanted && make_exec_room(s, m, e, msg->short_bytes, msg->short_of_tenant != 0)) {
        models__go(s, m, e->index, MODEL_ON_FAILED);
        on->waits_for_room = true;
        on->retry_ns = sh_clock_ns() + AGAIN_NS;
        return true;
    }
    if (m->state != MODEL_READY)
        return false;
    models__reset(s, m, e->index, MODEL_ON_ASIDE);
    on->is_aside = true;
    if (!is_held_anywhere(s, m))
        s->route->on_model_away(s, m, SH_E_QUOTA, msg->msg);
    return true;
}

/* Those that wait for room on e try again when all have gone that were to go. */
static void try_loads_again(struct sched *s, struct exec *e)
{
    for (size_t i = 0; i < s->models.n; i++)
        if (is_leaving(s->models.items[i], e))
            return;
    for (size_t i = 0; i < s->models.n; i++) {
        struct model_on *on = &s->models.items[i]->on[e->index];

        if (on->phase == MODEL_ON_FAILED && on->waits_for_room)
            models__load(s, s->models.items[i], e);
    }
}

void room_on_gone(struct sched *s, struct model *m, struct exec *e)
{
    struct model_on *on = &m->on[e->index];
    const bool is_wanted = on->is_urgent;

    models__reset(s, m, e->index, MODEL_ON_ASIDE);
    on->is_aside = true;
    if (is_wanted)
        models__load(s, m, e);
    try_loads_again(s, e);
}
