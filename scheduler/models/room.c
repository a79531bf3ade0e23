/* room.c - see room.h. */
#include "scheduler/models/room.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/units.h"
#include "scheduler/models/homes.h"
#include "scheduler/route.h"
#include "scheduler/sched.h"

#include <stdlib.h>
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

static uint64_t held_by_tenant(const struct sched *s, const struct exec *e, int64_t tenant_id)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < s->models.n; i++)
        if (s->models.items[i]->tenant_id == tenant_id)
            sum += s->models.items[i]->on[e->index].place.host_bytes;
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

/* ------------------------------------------------------------------ who goes */

struct holder { /* a tenant that has something in host memory of an executor */
    int64_t tenant_id;
    uint64_t stays, goes;    /* bytes */
    size_t n_sharing;        /* versions that share something, and stay */
    uint64_t shared_of_gone; /* bytes that those that go share */
};

struct held { /* a version there */
    struct model *model;
    struct holder *holder;
    bool may_go, goes;
};

struct search { /* for room for m on e */
    struct exec *e;
    int64_t now_ns;
    struct held *held;      /* OWNED */
    struct holder *holders; /* OWNED, by tenant */
    size_t n_held, n_holders;
    struct holder *own; /* of m's tenant */
    bool of_tenant;     /* what goes is to be of that one */
};

static int compare_holders(const void *a, const void *b)
{
    const int64_t x = ((const struct holder *)a)->tenant_id;
    const int64_t y = ((const struct holder *)b)->tenant_id;

    return (x > y) - (x < y);
}

static struct holder *find_holder(const struct search *r, int64_t tenant_id)
{
    const struct holder key = {.tenant_id = tenant_id};

    return bsearch(&key, r->holders, r->n_holders, sizeof(key), compare_holders);
}

/* The tenants of what is there, and m's: each once. */
static void list_holders(struct search *r, const struct model *m)
{
    size_t n = 0;

    for (size_t i = 0; i < r->n_held; i++)
        r->holders[i].tenant_id = r->held[i].model->tenant_id;
    r->holders[r->n_held].tenant_id = m->tenant_id;
    qsort(r->holders, r->n_held + 1, sizeof(*r->holders), compare_holders);
    for (size_t i = 0; i <= r->n_held; i++)
        if (n == 0 || r->holders[n - 1].tenant_id != r->holders[i].tenant_id)
            r->holders[n++] = r->holders[i];
    r->n_holders = n;
    r->own = find_holder(r, m->tenant_id);
}

static void let_go(struct search *r, struct held *h)
{
    const struct model_on *on = &h->model->on[r->e->index];

    h->goes = true;
    h->holder->stays -= on->place.host_bytes;
    h->holder->goes += on->place.host_bytes;
    if (on->shared_bytes) {
        h->holder->n_sharing--;
        h->holder->shared_of_gone += on->shared_bytes;
    }
}

static bool begin_search(struct search *r, const struct sched *s, const struct model *m)
{
    r->held = calloc(s->models.n + 1, sizeof(*r->held));
    r->holders = calloc(s->models.n + 1, sizeof(*r->holders));
    if (!r->held || !r->holders)
        return false;
    for (size_t i = 0; i < s->models.n; i++) {
        struct model *v = s->models.items[i];
        const struct model_on *on = &v->on[r->e->index];

        if (on->place.host_bytes || on->shared_bytes)
            r->held[r->n_held++] = (struct held){.model = v,
                                                 .may_go = v != m && on->place.host_bytes &&
                                                           is_model_idle(s, v, r->e, r->now_ns)};
    }
    list_holders(r, m);
    for (size_t i = 0; i < r->n_held; i++) {
        struct held *h = &r->held[i];
        const struct model_on *on = &h->model->on[r->e->index];

        h->holder = find_holder(r, h->model->tenant_id);
        h->holder->stays += on->place.host_bytes;
        h->holder->n_sharing += on->shared_bytes > 0;
    }
    for (size_t i = 0; i < r->n_held; i++)
        if (is_leaving(r->held[i].model, r->e))
            let_go(r, &r->held[i]);
    return true;
}

/* The next to go; NULL: there is none. Of others only who holds more than m's tenant. */
static struct held *choose_leaver(const struct search *r)
{
    struct held *best = NULL;

    for (size_t i = 0; i < r->n_held; i++) {
        struct held *h = &r->held[i];

        if (!h->may_go || h->goes ||
            (h->holder != r->own && (r->of_tenant || h->holder->stays <= r->own->stays)) ||
            (best && !goes_first(h->model, best->model, r->e, r->now_ns)))
            continue;
        best = h;
    }
    return best;
}

/* By what goes. Which of a tenant's versions share the same is not known: what they share counts
 * when all of them go, so that no more is expected than comes. */
static uint64_t freed_soon(const struct search *r)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < r->n_holders; i++) {
        const struct holder *h = &r->holders[i];

        if (!r->of_tenant || h == r->own)
            sum += h->goes - (h->n_sharing ? h->shared_of_gone : 0);
    }
    return sum;
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

/* Enough, or nobody goes. */
static bool make_exec_room(struct sched *s, struct model *m, struct exec *e, uint64_t bytes,
                           bool of_tenant)
{
    struct search r = {.e = e, .now_ns = sh_clock_ns(), .of_tenant = of_tenant};
    bool is_enough = begin_search(&r, s, m);
    struct held *h;

    while (is_enough && freed_soon(&r) < bytes) {
        h = choose_leaver(&r);
        is_enough = h != NULL;
        if (h)
            let_go(&r, h);
    }
    for (size_t i = 0; is_enough && i < r.n_held; i++)
        if (r.held[i].goes && !is_leaving(r.held[i].model, e))
            put_aside(s, r.held[i].model, m, e);
    free(r.held);
    free(r.holders);
    return is_enough;
}

/* ------------------------------------------------------------------ when it is full */

/* What m takes of e's host memory, or more: beside what was left, so much was missing. */
static uint64_t least_load_bytes(const struct sched *s, const struct model *m, const struct exec *e,
                                 const struct msg_model_state *msg)
{
    const struct tenant *t = tenants_by_id(&s->tenants, m->tenant_id);
    const struct exec_state *x = &e->state;
    uint64_t limit = x->host_limit, taken = x->host_images + x->host_programs;

    if (msg->short_of_tenant) {
        limit = t && t->memory.host_max_bytes ? t->memory.host_max_bytes : x->host_limit / 2;
        taken = held_by_tenant(s, e, m->tenant_id);
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
