/* api.c - see api.h. */
#include "tests/sim/api.h"

#include "api/api.h"
#include "api/cache/waiters.h"
#include "api/infer/link.h"
#include "api/infer/link_int.h"
#include "api/infer/serving.h"
#include "api/infer/traffic.h"
#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_BYTES ((size_t)4 << 20)
#define TENANT_PERCENT 50
#define SILENCE_MS 2500
#define TIMEOUT_MS 5000
#define MAX_INFLIGHT 512
#define MAX_OPEN 4096
#define BIG_BODY 40000u
#define MAX_SAMPLE 65536
#define LATE_NS SH_MS(400) /* the link's timer, a message, a pause of the loop */
#define REACH_NS SH_MS(500)

struct sim_api {
    struct sim_proc *proc;
    struct sim_api *next;
    const char *schedulers;
    double per_s;
    struct api *api; /* of the process that lives */
    size_t n_open;
    bool is_drawing; /* the next request has its time */
};

struct asked { /* a request of a client */
    struct infer infer;
    struct sim_api *a;
    uint64_t generation; /* of its process */
    struct cat_version version;
    struct sim_package content;
    size_t in_bytes, out_bytes; /* of a sample */
    uint64_t key;               /* of its inputs */
    int64_t opened_ns, limit_ns;
    bool is_settled;                    /* it came when all was well */
    bool is_answered, is_good, is_gone; /* gone: its client is */
};

static struct sim_api_counts counts;
static struct sim_api *first_api;
static struct asked *open_ones[MAX_OPEN];
static size_t n_open;
static bool is_settled;

/* ------------------------------------------------------------------ what the link needs */

void serving_clear(struct serving *s)
{
    (void)s;
}

void serving_note(struct serving *s, const struct msg_model_up *m)
{
    (void)s, (void)m;
}

void serving_count(struct serving *s, const struct msg_serving *m)
{
    (void)s, (void)m;
}

void traffic_clear(struct traffic *t)
{
    (void)t;
}

void traffic_note(struct traffic *t, const struct msg_model_traffic *m)
{
    (void)t, (void)m;
}

void waiters_wake(struct waiters *w)
{
    (void)w;
}

int sim_thread(pthread_t *t, const pthread_attr_t *attr, void *(*main)(void *), void *arg)
{
    (void)t, (void)attr, (void)main, (void)arg;
    return 0;
}

/* ------------------------------------------------------------------ the life of a request */

static void fill_inputs(struct asked *q)
{
    char *p = slab_at(q->a->api->slab, q->infer.body->off);

    q->infer.plan.in[0].binary = p;
    for (int64_t k = 0; k < q->infer.plan.batch; k++)
        sim_fill_input(q->content.tenant, q->key + (uint64_t)k, p + (size_t)k * q->in_bytes,
                       q->in_bytes);
    memset(slab_at(q->a->api->slab, q->infer.outputs->off), 0xee, q->infer.plan.run_out_bytes[0]);
}

static void check_outputs(const struct asked *q, const char *when)
{
    static char in[MAX_SAMPLE], want[MAX_SAMPLE];
    const char *got = slab_at(q->a->api->slab, q->infer.outputs->off);

    for (int64_t k = 0; k < q->infer.plan.batch; k++) {
        sim_fill_input(q->content.tenant, q->key + (uint64_t)k, in, q->in_bytes);
        sim_fill_output(&q->content, in, q->in_bytes, want, q->out_bytes);
        SIM_CHECK("outputs", memcmp(want, got + (size_t)k * q->out_bytes, q->out_bytes) == 0,
                  "request %" PRIu64 " of %s has the outputs of another one in sample %" PRId64
                  " of %" PRId64 ", %s",
                  q->infer.rid, sim_proc_name(q->a->proc), k, q->infer.plan.batch, when);
    }
}

static void close_one(struct asked *q)
{
    for (size_t i = 0; i < n_open; i++)
        if (open_ones[i] == q)
            open_ones[i] = open_ones[--n_open];
}

struct infer *infer_ref(struct infer *i)
{
    atomic_fetch_add(&i->refs, 1);
    return i;
}

void infer_unref(struct infer *i)
{
    struct asked *q = (struct asked *)i;

    if (atomic_fetch_sub(&i->refs, 1) != 1)
        return;
    SIM_CHECK("answered", q->is_answered || q->is_gone,
              "request %" PRIu64 " is forgotten without an answer", i->rid);
    slab_release(q->a->api->slab, i->body);
    slab_release(q->a->api->slab, i->outputs);
    q->a->n_open--;
    free(q);
}

/* The client has read the reply. */
static void on_read(void *arg, uint64_t n)
{
    struct asked *q = arg;

    (void)n;
    if (q->is_good)
        check_outputs(q, "when they are sent");
    infer_unref(&q->infer);
}

struct api_req *infer_complete(struct infer *i, const struct infer_result *r)
{
    struct asked *q = (struct asked *)i;

    SIM_CHECK("once", !q->is_answered, "request %" PRIu64 " is answered twice", i->rid);
    q->is_answered = true;
    if (q->is_gone)
        return NULL;
    q->is_good = r->rc == SH_OK;
    sim_trace("answer %" PRIu64 " version=%" PRId64 " rc=%d %s", i->rid, q->version.id, r->rc,
              r->msg);
    if (q->is_settled && i->link.placed && (q->is_good || r->rc == SH_E_TIMEOUT)) {
        const int64_t late_ns = sim_now() - q->opened_ns - q->limit_ns;

        counts.settled++;
        counts.settled_late += !q->is_good || late_ns > 0;
        if (late_ns > 0)
            sim_trace("late %" PRIu64 " version=%" PRId64 " by %.3f ms", i->rid, q->version.id,
                      (double)late_ns / 1e6);
    }
    if (q->is_good) {
        check_outputs(q, "when it is answered");
        counts.good++;
        counts.late += sim_now() > q->opened_ns + q->limit_ns;
    } else {
        counts.refused++;
        counts.by_rc[SH_MIN((size_t)-r->rc, SH_ARRAY_LEN(counts.by_rc) - 1)]++;
    }
    close_one(q);
    sim_after(q->a->proc, sim_between(0, SH_MS(3)), on_read, q, 0);
    return NULL;
}

static void on_body(void *arg, uint64_t n)
{
    struct asked *q = arg;

    (void)n;
    if (!q->is_answered && !q->is_gone) { /* refused before it was there, or never to come */
        fill_inputs(q);
        link_ready(q->a->api->link, &q->infer, false);
    }
    infer_unref(&q->infer);
}

static void on_gone(void *arg, uint64_t n)
{
    struct asked *q = arg;

    (void)n;
    if (!q->is_answered) {
        q->is_gone = true;
        close_one(q);
        counts.gone++;
        link_cancel(q->a->api->link, &q->infer);
        infer_unref(&q->infer);
    }
    infer_unref(&q->infer);
}

/* A client that asks for more than there is room for, or for nothing that is there. */
static const struct database_version *draw_version(void)
{
    size_t n = 0, at;

    for (size_t i = 0; i < database.n_versions; i++)
        n += strcmp(database.versions[i].state, "READY") == 0;
    if (n == 0)
        return NULL;
    at = (size_t)sim_below(n);
    for (size_t i = 0; i < database.n_versions; i++)
        if (strcmp(database.versions[i].state, "READY") == 0 && at-- == 0)
            return &database.versions[i];
    return NULL;
}

static struct asked *new_request(struct sim_api *a, const struct database_version *v)
{
    const struct database_tenant *t = &database.tenants[v->tenant_id - 1];
    const struct database_model *m = &database.models[v->model_id - 1];
    struct asked *q = calloc(1, sizeof(*q));
    struct infer *i = &q->infer;

    q->a = a;
    q->generation = sim_proc_generation(a->proc);
    q->version = (struct cat_version){.id = v->id,
                                      .model_id = v->model_id,
                                      .version = v->version,
                                      .max_batch = v->max_batch,
                                      .n_inputs = 1,
                                      .n_outputs = 1};
    if (m->own_size) {
        q->version.symbols.n = 1;
        i->plan.run =
            (struct sh_sizes){.v = {m->own_size << sim_below(sim_chance(0.9) ? 3 : 16)}, .n = 1};
    }
    sh_strlcpy(q->version.model, m->name, sizeof(q->version.model));
    sh_strlcpy(i->tenant, t->name, sizeof(i->tenant));
    atomic_init(&i->refs, 1);
    i->api = a->api;
    i->v = &q->version;
    i->fd = -1;
    i->begin_ns = sh_clock_ns();
    i->plan.batch = 1 + (int64_t)sim_below(sim_chance(0.2) ? v->max_batch : 1);
    q->content = v->content;
    q->in_bytes = m->in_bytes;
    q->out_bytes = m->out_bytes;
    q->key = sim_random() << 8;
    i->plan.in[0].run_bytes = (size_t)i->plan.batch * q->in_bytes;
    i->plan.run_out_bytes[0] = (size_t)i->plan.batch * q->out_bytes;
    i->plan.priority = sim_chance(0.1) ? (uint32_t)sim_below(50) : 0;
    i->plan.timeout_us = sim_chance(0.5) ? sim_between(20000, 800000) : 0;
    q->limit_ns = i->plan.timeout_us ? i->plan.timeout_us * 1000 : SH_MS(TIMEOUT_MS);
    return q;
}

static void open_request(struct sim_api *a)
{
    const struct database_version *v = draw_version();
    struct asked *q = v ? new_request(a, v) : NULL;
    struct infer *i = q ? &q->infer : NULL;
    bool is_big = sim_chance(0.2);

    if (!q || n_open == MAX_OPEN)
        return;
    i->body_bytes = is_big ? BIG_BODY : i->plan.in[0].run_bytes;
    if (slab_take(a->api->slab, i->tenant, is_big ? BIG_BODY : i->plan.in[0].run_bytes, &i->body,
                  NULL) ||
        slab_take(a->api->slab, i->tenant, i->plan.run_out_bytes[0], &i->outputs, NULL) ||
        link_open(a->api->link, i, NULL)) { /* refused at once */
        slab_release(a->api->slab, i->body);
        slab_release(a->api->slab, i->outputs);
        free(q);
        return;
    }
    a->n_open++;
    q->is_settled = is_settled;
    q->opened_ns = sim_now();
    open_ones[n_open++] = q;
    counts.opened++;
    infer_ref(i);
    sim_after(a->proc, is_big ? sim_between(0, SH_MS(30)) : 0, on_body, q, 0);
    if (sim_chance(0.05)) {
        infer_ref(i);
        sim_after(a->proc, sim_between(0, SH_MS(60)), on_gone, q, 0);
    }
}

static void on_arrival(void *arg, uint64_t n);

static void draw_next(struct sim_api *a)
{
    a->is_drawing = a->per_s > 0;
    if (a->is_drawing)
        sim_after(a->proc, sim_between(0, (int64_t)(2e9 / a->per_s)), on_arrival, a, 0);
}

static void on_arrival(void *arg, uint64_t n)
{
    struct sim_api *a = arg;

    (void)n;
    if (a->per_s > 0)
        open_request(a);
    draw_next(a);
}

void sim_api_rate(struct sim_api *a, double per_s)
{
    a->per_s = per_s;
    if (!a->is_drawing && sim_proc_is_alive(a->proc))
        draw_next(a);
}

/* ------------------------------------------------------------------ life */

static void on_reached(void *arg, struct database_call *c, int rc)
{
    struct sim_api *a = arg;

    (void)c;
    if (!rc)
        link_hint(a->api->link, "reached");
    free(c);
}

/* Somebody wants to know why a job waits, or a version again that could not be loaded. */
static void on_told(void *arg)
{
    struct link_ask *q = arg;

    free(q->text);
    free(q);
}

static void ask(struct sim_api *a)
{
    struct link_ask *q = calloc(1, sizeof(*q));

    *q = (struct link_ask){
        .job = (int64_t)sim_below(database.n_jobs + 1) + 1, .done = on_told, .arg = q};
    link_ask(a->api->link, q);
    if (a->per_s > 0) /* at rest nobody asks for a version */
        link_hint_load(a->api->link, (int64_t)sim_below(database.n_versions) + 1);
}

/* As api/refresh.c: a commit of its own, and who does not reach the database hears of it. */
static void on_second(void *arg, uint64_t n)
{
    struct sim_api *a = arg;
    struct database_call *c = calloc(1, sizeof(*c));

    (void)n;
    c->kind = DATABASE_NOTHING;
    database_call(a->proc, c, on_reached, a);
    ask(a);
    sim_after(a->proc, SH_S(1), on_second, a, 0);
}

static void run(void *arg)
{
    struct sim_api *a = arg;
    struct api_conf *conf = calloc(1, sizeof(*conf));
    struct sh_err err = {0};

    a->api = calloc(1, sizeof(*a->api));
    a->n_open = 0;
    conf->name = (char *)sim_proc_name(a->proc);
    conf->scheduler = (char *)a->schedulers;
    conf->scheduler_silence_ms = SILENCE_MS;
    conf->infer_timeout_ms = TIMEOUT_MS;
    conf->max_inflight = MAX_INFLIGHT;
    a->api->conf = conf;
    if (slab_new(SLAB_BYTES, SLAB_BYTES / 100 * TENANT_PERCENT, &a->api->slab, &err) ||
        link_start(a->api, &a->api->link, &err))
        sim_broken("simulator", "an API cannot begin: %s", err.msg);
    on_second(a, 0);
    draw_next(a);
}

struct sim_api *sim_api_new(const char *name, unsigned host, const char *schedulers)
{
    struct sim_api *a = calloc(1, sizeof(*a));

    a->proc = sim_proc_new(name, host);
    a->schedulers = schedulers;
    a->next = first_api;
    first_api = a;
    return a;
}

/* The clients of one that has died know that it has. */
static void forget_the_dead(void)
{
    for (size_t i = n_open; i-- > 0;) {
        const struct asked *q = open_ones[i];

        if (sim_proc_generation(q->a->proc) == q->generation)
            continue;
        counts.lost++;
        open_ones[i] = open_ones[--n_open];
    }
}

void sim_api_start(struct sim_api *a)
{
    forget_the_dead();
    sim_proc_start(a->proc, NULL, run, a);
}

struct sim_proc *sim_api_proc(const struct sim_api *a)
{
    return a->proc;
}

void sim_api_hint(struct sim_api *a, const char *what)
{
    link_hint(a->api->link, what);
}

const struct sim_api_counts *sim_api_counts(void)
{
    return &counts;
}

void sim_api_settled(void)
{
    is_settled = true;
}

size_t sim_api_n_open(void)
{
    forget_the_dead();
    return n_open;
}

int64_t sim_api_waits_ns(void)
{
    int64_t longest = 0;

    forget_the_dead();
    for (size_t i = 0; i < n_open; i++)
        longest = SH_MAX(longest, sim_now() - open_ones[i]->opened_ns);
    return longest;
}

bool sim_api_placed(const char *name, bool is_there, uint64_t r, uint64_t *api_id, uint64_t *rid)
{
    forget_the_dead();
    for (size_t i = 0; i < n_open; i++) {
        const struct asked *q = open_ones[(r + i) % n_open];

        if (!q->infer.link.placed || (strcmp(q->infer.link.executor, name) == 0) != is_there)
            continue;
        *api_id = q->infer.api->link->api_id;
        *rid = q->infer.rid;
        return true;
    }
    return false;
}

/* As far as the net goes. */
static bool reaches(const struct link *l, const char *name)
{
    for (size_t i = 0; i < l->n_execs; i++)
        if (strcmp(l->execs[i]->name, name) == 0)
            return l->execs[i]->ready && !sim_wire_is_cut(sh_link_wire(l->execs[i]->wire));
    return false;
}

const struct sim_proc *sim_api_ended(uint64_t api_id, uint64_t rid)
{
    const struct sim_api *a = first_api;

    while (a && (!sim_proc_is_alive(a->proc) || a->api->link->api_id != api_id))
        a = a->next;
    forget_the_dead();
    for (size_t i = 0; i < n_open && a; i++)
        if (open_ones[i]->a == a && open_ones[i]->infer.rid == rid)
            return NULL;
    return a ? a->proc : NULL;
}

void sim_api_each_waiting(sim_api_waits_fn *fn)
{
    forget_the_dead();
    for (size_t i = 0; i < n_open; i++) {
        const struct asked *q = open_ones[i];
        const struct infer_link *k = &q->infer.link;
        const struct link *l = q->infer.api->link;

        if (k->over || !link_is_up(l) || !(k->placed ? k->ready && !k->orphan : k->moved) ||
            (k->placed && !reaches(l, k->executor)))
            continue;
        fn(q->a->proc, l->api_id, q->infer.rid, k->placed ? k->executor : "");
    }
}
