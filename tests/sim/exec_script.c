/* exec_script.c - see exec_script.h: models, runs and their results. */
#include "tests/sim/exec_script.h"

#include "common/mem.h"
#include "common/shm.h"
#include "common/units.h"
#include "common/wire.h"
#include "tests/sim/oracles_exec.h"
#include "tests/sim/shortage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SCHED_ADDR "tcp:sched:1"
#define N_TENANTS 3u
#define N_VERSIONS 8u
#define N_SLOTS 96u
#define SLOT_BYTES ((size_t)160 << 10)
#define TICK_NS SH_MS(15)
#define LOST_NS SH_S(150) /* nobody writes to the slab of a lost request any more */
#define MAX_PARTS 4u
#define MAX_RUNS 256u
#define BUDGET_MAX_NS SH_S(20)
#define SETTLE_NS SH_S(15) /* from the last fault to the time when runs should be done */
#define MANY_RUNS 60u
#define OWN_SIZE 4u     /* of what some leave open */
#define MOST_SIZE 1000u /* more than a worker takes (worker_load.c) */

struct script script;

struct version {
    int64_t id;
    struct sim_package package;
    char path[96];
    const struct sim_model *model;
    uint32_t max_batch;
    bool is_asked, is_ready, has_failed;
    int64_t said_ns;
};

enum request_state { REQ_FREE, REQ_OPEN, REQ_LOST };

struct request { /* and its place in the slab */
    enum request_state state;
    uint64_t rid;
    size_t version;
    uint32_t batch;
    int64_t lost_ns;
    uint64_t n_short; /* sim_shortage_n() when it was sent */
};

struct run {
    uint64_t id; /* 0: none */
    int64_t sent_ns, budget_ns;
    bool is_old;  /* of an old epoch: it must be refused */
    bool is_late; /* sent when all was well again */
};

static struct {
    struct sh_loop *loop;
    struct sh_listen *listen;
    struct sh_wire *wire; /* of the executor; NULL: not there */
    bool is_synced;
    uint64_t epoch, next_run;
    uint64_t first_run; /* of this connection; those before it may be done, too */
    struct run runs[MAX_RUNS];
    uint64_t n_sent, n_good, n_late, n_late_good;
} sched;

static struct {
    struct sh_link *link;
    struct sh_shm slab;
    bool is_known; /* DATA_READY came */
    uint64_t id, next_rid;
    struct request requests[N_SLOTS];
} api;

static struct version versions[N_VERSIONS];

/* ------------------------------------------------------------------ the scheduler's side */

void script__send(const struct sh_msg *m)
{
    struct sh_err err = {0};

    if (sched.wire)
        sh_wire_send(sched.wire, m, &err);
}

uint64_t script__epoch(void)
{
    return sched.epoch;
}

uint64_t script__api_id(void)
{
    return api.id;
}

const struct sim_package *script__package(size_t i, char path[static 96])
{
    if (i >= N_VERSIONS)
        return NULL;
    sh_strlcpy(path, versions[i].path, 96);
    return &versions[i].package;
}

int64_t script__version_id(size_t i)
{
    return versions[i].id;
}

const char *script__tenant_name(unsigned tenant)
{
    static const char *const NAMES[] = {"?", "ann", "ben", "cyd"};

    return NAMES[tenant];
}

static void load(struct version *v)
{
    struct sh_msg m = {.type = MSG_MODEL_LOAD};

    m.u.model_load = (struct msg_model_load){.epoch = sched.epoch,
                                             .version_id = v->id,
                                             .tenant = script__tenant_name(v->package.tenant),
                                             .model = v->package.model,
                                             .package = v->path,
                                             .max_batch = v->max_batch,
                                             .precision = "fp32",
                                             .wanted = (double)sim_below(100) / 100};
    v->is_asked = true;
    v->said_ns = sim_now();
    script__send(&m);
}

static void unload(struct version *v)
{
    struct sh_msg m = {.type = MSG_MODEL_UNLOAD};

    m.u.model_unload = (struct msg_model_unload){.epoch = sched.epoch, .version_id = v->id};
    v->is_asked = v->is_ready = v->has_failed = false;
    v->said_ns = sim_now();
    script__send(&m);
}

static void on_model_state(const struct msg_model_state *m)
{
    for (size_t i = 0; i < N_VERSIONS; i++)
        if (versions[i].id == m->version_id) {
            versions[i].is_ready = m->state == MSG_MODEL_READY;
            versions[i].has_failed = m->state == MSG_MODEL_FAILED;
        }
}

static struct run *run_of(uint64_t id)
{
    for (size_t i = 0; i < MAX_RUNS; i++)
        if (sched.runs[i].id == id)
            return &sched.runs[i];
    return NULL;
}

static void on_run_done(const struct msg_run_done *m)
{
    struct run *r = m->run_id ? run_of(m->run_id) : NULL;

    if (!r && m->run_id <= sched.first_run)
        return;
    SIM_CHECK("runs", r, "run %" PRIu64 " is done, and nobody waits for it", m->run_id);
    SIM_CHECK("epoch", !r->is_old || m->rc, "a run of an old epoch was done");
    SIM_CHECK("runs", m->total_ns >= 0 && m->copy_ns >= 0 && m->compute_ns >= 0 && m->busy_ns >= 0,
              "run %" PRIu64 " took a negative time", m->run_id);
    sched.n_good += m->rc == 0;
    sched.n_late_good += m->rc == 0 && r->is_late;
    r->id = 0;
}

static void on_usage(const struct msg_usage *m)
{
    struct sh_msg r = {.type = MSG_USAGE_STORED};

    r.u.usage_stored = (struct msg_usage_stored){.source = m->source, .number = m->number};
    if (sim_below(4))
        script__send(&r);
}

static void greet(void)
{
    struct sh_msg m = {.type = MSG_WELCOME};

    m.u.welcome = (struct msg_welcome){.epoch = sched.epoch, .name = "sched"};
    script__send(&m);
    script__bad_hello();
    script__jobs_hello();
}

static void say_quotas(void)
{
    for (unsigned t = 1; t <= N_TENANTS; t++) {
        struct sh_msg m = {.type = MSG_TENANT_MEMORY};

        m.u.tenant_memory = (struct msg_tenant_memory){
            .epoch = sched.epoch,
            .tenant = script__tenant_name(t),
            .min_bytes = sim_below(3) ? 0 : sim_below(60) * DEV_BLOCK,
            .max_bytes = sim_below(4) ? 0 : (80 + sim_below(1200)) * DEV_BLOCK,
            .share = 1,
            .host_max_bytes = sim_below(3) ? 0 : (1 + sim_below(40)) * 50000};
        script__send(&m);
        oracles_exec_told(script.e, t, &m.u.tenant_memory);
    }
}

static void on_synced(void)
{
    sched.is_synced = true;
    if (sim_below(2))
        say_quotas();
    for (size_t i = 0; i < N_VERSIONS; i++)
        if (versions[i].is_asked && !versions[i].has_failed)
            load(&versions[i]); /* said again: it may know */
    script__jobs_synced();
}

static void on_exec_msg(struct sh_wire *w, const struct sh_msg *m, int *fds, size_t n_fds,
                        void *arg)
{
    struct sh_msg pong = {.type = MSG_PONG};

    (void)fds, (void)n_fds, (void)arg;
    if (w != sched.wire || script__bad_on(m))
        return;
    switch (m->type) {
    case MSG_PING:
        pong.u.pong.cookie = m->u.ping.cookie;
        script__send(&pong);
        return;
    case MSG_EXEC_HELLO:
        for (size_t i = 0; i < N_VERSIONS; i++)
            versions[i].is_ready = versions[i].has_failed = false;
        greet();
        return;
    case MSG_EXEC_SYNCED:
        on_synced();
        return;
    case MSG_MODEL_STATE:
        on_model_state(&m->u.model_state);
        return;
    case MSG_RUN_DONE:
        on_run_done(&m->u.run_done);
        return;
    case MSG_USAGE:
        on_usage(&m->u.usage);
        return;
    default:
        script__jobs_on(m);
    }
}

static void lose_requests(void);

/* What it was asked is not known any more: it may have got all of a run, or not. */
static void forget_executor(void)
{
    sched.wire = NULL;
    sched.is_synced = false;
    oracles_exec_told_nothing();
    sched.first_run = sched.next_run;
    memset(sched.runs, 0, sizeof(sched.runs));
    lose_requests();
}

static void on_exec_close(struct sh_wire *w, const struct sh_err *why, void *arg)
{
    (void)why, (void)arg;
    if (w == sched.wire)
        forget_executor();
}

/* One that is lost may connect anew before it is noticed. */
static bool on_exec(struct sh_wire *w, struct sh_wire_handler *h, void *arg)
{
    (void)arg;
    if (sched.wire)
        sh_wire_close(sched.wire);
    forget_executor();
    sched.wire = w;
    *h = (struct sh_wire_handler){.on_msg = on_exec_msg, .on_close = on_exec_close};
    return true;
}

/* ------------------------------------------------------------------ the API's side */

static char *slot(size_t i)
{
    return (char *)api.slab.base + i * SLOT_BYTES;
}

static size_t in_bytes(const struct request *r)
{
    return r->batch * versions[r->version].model->in_bytes;
}

static struct msg_span in_span(size_t i)
{
    return (struct msg_span){i * SLOT_BYTES, in_bytes(&api.requests[i])};
}

static struct msg_span out_span(size_t i)
{
    const struct request *r = &api.requests[i];

    return (struct msg_span){i * SLOT_BYTES + in_bytes(r),
                             r->batch * versions[r->version].model->out_bytes};
}

/* Its payload, to an executor that does not see the slab. */
static void bring(size_t i)
{
    struct sh_wire *w = sh_link_wire(api.link);
    struct sh_msg chunk = {.type = MSG_DATA_CHUNK}, end = {.type = MSG_DATA_END};

    if (script.is_local || !w)
        return;
    chunk.u.data_chunk = (struct msg_data_chunk){
        .rid = api.requests[i].rid, .off = i * SLOT_BYTES, .bytes = {slot(i), in_span(i).len}};
    end.u.data_end.rid = api.requests[i].rid;
    sh_wire_send(w, &chunk, NULL);
    sh_wire_send(w, &end, NULL);
}

static void on_bring(void *arg, uint64_t i)
{
    (void)arg;
    if (api.requests[i].state == REQ_OPEN)
        bring(i);
}

/* SIZE_MAX: there is no room for it. */
static size_t open_request(size_t version, uint32_t batch)
{
    for (size_t i = 0; i < N_SLOTS; i++) {
        struct request *r = &api.requests[i];

        if (r->state == REQ_LOST && sim_now() - r->lost_ns > LOST_NS)
            r->state = REQ_FREE;
        if (r->state != REQ_FREE)
            continue;
        *r = (struct request){REQ_OPEN, ++api.next_rid, version, batch, 0, sim_shortage_n()};
        if (in_bytes(r) + out_span(i).len > SLOT_BYTES) {
            r->state = REQ_FREE;
            return SIZE_MAX;
        }
        for (uint32_t k = 0; k < batch; k++)
            sim_fill_input(versions[version].package.tenant, (r->rid << 8) + k,
                           slot(i) + k * versions[version].model->in_bytes,
                           versions[version].model->in_bytes);
        memset(slot(i) + in_bytes(r), 0xee, out_span(i).len);
        sim_after(script.api, sim_between(0, SH_MS(3)), on_bring, NULL, i);
        return i;
    }
    return SIZE_MAX;
}

static void check_output(size_t i)
{
    const struct request *r = &api.requests[i];
    const struct sim_model *m = versions[r->version].model;
    char want[8192];

    for (uint32_t k = 0; k < r->batch; k++) {
        sim_fill_output(&versions[r->version].package, slot(i) + k * m->in_bytes, m->in_bytes, want,
                        m->out_bytes);
        SIM_CHECK("results",
                  memcmp(want, slot(i) + in_bytes(r) + k * m->out_bytes, m->out_bytes) == 0,
                  "request %" PRIu64 " has a wrong result in sample %u", r->rid, k);
    }
}

static void on_result(const struct msg_result *m)
{
    for (size_t i = 0; i < N_SLOTS; i++) {
        struct request *r = &api.requests[i];

        if (r->state == REQ_FREE || r->rid != m->rid)
            continue;
        /* One that is lost may have been asked for again: a result is right all the same. */
        if (m->rc == 0)
            check_output(i);
        if (r->state == REQ_OPEN)
            r->state = REQ_FREE;
        return;
    }
    SIM_CHECK("answers", m->rc && m->rid > SCRIPT_BAD_RID,
              "request %" PRIu64 " is answered, and nobody waits for it", m->rid);
}

static void on_data_msg(struct sh_wire *w, const struct sh_msg *m, int *fds, size_t n_fds,
                        void *arg)
{
    (void)w, (void)fds, (void)n_fds, (void)arg;
    switch (m->type) {
    case MSG_DATA_READY:
        api.is_known = true;
        return;
    case MSG_RESULT:
        on_result(&m->u.result);
        return;
    case MSG_DATA_CHUNK:
        SIM_CHECK("results",
                  m->u.data_chunk.off <= api.slab.bytes &&
                      m->u.data_chunk.bytes.len <= api.slab.bytes - m->u.data_chunk.off,
                  "a chunk leaves the slab");
        for (size_t i = 0; i < N_SLOTS; i++)
            if (api.requests[i].rid == m->u.data_chunk.rid && api.requests[i].state != REQ_FREE)
                memcpy((char *)api.slab.base + m->u.data_chunk.off, m->u.data_chunk.bytes.data,
                       m->u.data_chunk.bytes.len);
        return;
    default:
        SIM_CHECK("answers", false, "an API got %s", sh_msg_name(m->type));
    }
}

static void on_data_up(struct sh_wire *w, void *arg)
{
    struct sh_msg m = {.type = MSG_DATA_HELLO};

    (void)arg;
    m.u.data_hello =
        (struct msg_data_hello){.api_id = api.id, .name = "api", .slab_bytes = api.slab.bytes};
    sh_wire_send_fds(w, &m, script.is_local ? &api.slab.fd : NULL, script.is_local, NULL);
}

static void lose_requests(void)
{
    for (size_t i = 0; i < N_SLOTS; i++)
        if (api.requests[i].state == REQ_OPEN) {
            api.requests[i].state = REQ_LOST;
            api.requests[i].lost_ns = sim_now();
        }
}

static void on_data_down(struct sh_wire *w, const struct sh_err *why, void *arg)
{
    (void)w, (void)why, (void)arg;
    api.is_known = false;
    lose_requests();
}

static void api_main(void *arg)
{
    const struct sh_link_handler h = {
        .on_up = on_data_up, .on_msg = on_data_msg, .on_down = on_data_down};
    struct sh_loop *l;
    struct sh_err err = {0};

    (void)arg;
    memset(api.requests, 0, sizeof(api.requests));
    api.is_known = false;
    api.id = sim_random() | UINT64_C(1) << 63;
    api.slab.fd = -1;
    if (sh_loop_new(&l, &err) || sh_shm_create("slab", N_SLOTS * SLOT_BYTES, &api.slab, &err) ||
        sh_link_new(l, script.e->data_addr, &h, &api.link, &err))
        sim_broken("world", "an API: %s", err.msg);
}

/* Is it to be answered? Without memory for a word of it an executor cannot; its run has an end all
 * the same. */
static bool is_waiting(const struct request *r)
{
    return r->state == REQ_OPEN && r->n_short == sim_shortage_n();
}

/* ------------------------------------------------------------------ runs */

static struct run *free_run(void)
{
    return run_of(0);
}

static void send_part(uint64_t run, size_t i)
{
    const struct msg_span in = in_span(i), out = out_span(i);
    struct sh_msg m = {.type = MSG_RUN_PART};

    m.u.run_part = (struct msg_run_part){.run_id = run,
                                         .rid = api.requests[i].rid,
                                         .api_id = api.id,
                                         .batch = api.requests[i].batch,
                                         .in_spans = {&in, sizeof(in)},
                                         .out_spans = {&out, sizeof(out)}};
    script__send(&m);
}

static void load_shape(int64_t version, uint32_t size)
{
    struct sh_msg m = {.type = MSG_SHAPE_LOAD};

    m.u.shape_load = (struct msg_shape_load){
        .epoch = sched.epoch, .version_id = version, .sizes = {&size, sizeof(size)}};
    script__send(&m);
}

static void send_run(struct run *r, size_t version, bool is_old)
{
    const struct version *v = &versions[version];
    struct sh_msg m = {.type = MSG_RUN}, cancel = {.type = MSG_RUN_CANCEL};
    uint32_t left = v->max_batch, n = (uint32_t)sim_between(1, MAX_PARTS), sent = 0;
    const uint32_t size = 1 + (uint32_t)sim_below(sim_below(8) ? 12 : MOST_SIZE);
    size_t last = 0;

    *r = (struct run){.id = ++sched.next_run,
                      .sent_ns = sim_now(),
                      .budget_ns = sim_between(SH_MS(2), BUDGET_MAX_NS),
                      .is_old = is_old,
                      .is_late = script.calm_ns && sim_now() > script.calm_ns + SETTLE_NS &&
                                 v->package.own_size == 0}; /* a shape may have no room */
    for (; sent < n && left > 0; sent++) {
        const uint32_t batch = (uint32_t)sim_between(1, left);
        const size_t i = open_request(version, batch);

        if (i == SIZE_MAX)
            break;
        send_part(r->id, last = i);
        left -= batch;
    }
    if (sent == 0) {
        r->id = 0;
        return;
    }
    m.u.run = (struct msg_run){.epoch = sched.epoch - is_old,
                               .run_id = r->id,
                               .version_id = v->id,
                               .tenant = script__tenant_name(v->package.tenant),
                               .batch = v->max_batch - left,
                               .n_parts = sent,
                               .budget_ns = r->budget_ns};
    if (v->package.own_size)
        m.u.run.sizes = (struct sh_blob){&size, sizeof(size)};
    if (v->package.own_size && sim_below(3) == 0)
        load_shape(v->id, size);
    script__send(&m);
    sched.n_sent++;
    sched.n_late += r->is_late;
    cancel.u.run_cancel = (struct msg_run_cancel){
        .run_id = r->id, .api_id = api.id, .rid = sim_below(2) ? api.requests[last].rid : 0};
    if (sim_below(12) == 0)
        script__send(&cancel);
}

static void begin_run(void)
{
    const size_t i = sim_below(N_VERSIONS);
    struct run *r = free_run();

    if (r && versions[i].is_ready && api.is_known)
        send_run(r, i, sched.epoch > 1 && sim_below(50) == 0);
}

static void prepare(void)
{
    struct sh_msg m = {.type = MSG_PREPARE};

    m.u.prepare = (struct msg_prepare){.epoch = sched.epoch,
                                       .rid = 1,
                                       .version_id = versions[sim_below(N_VERSIONS)].id,
                                       .evict = sim_below(3)};
    script__send(&m);
    if (sim_below(2)) /* what comes ahead is given up for it */
        begin_run();
}

static void pin(void)
{
    struct sh_msg m = {.type = MSG_MODEL_PIN};

    m.u.model_pin = (struct msg_model_pin){.epoch = sched.epoch,
                                           .version_id = versions[sim_below(N_VERSIONS)].id,
                                           .pinned = sim_below(3) == 0};
    script__send(&m);
}

static void change_models(void)
{
    struct version *v = &versions[sim_below(N_VERSIONS)];

    if (sim_now() - v->said_ns < SH_S(1))
        return;
    if (!v->is_asked || v->has_failed)
        load(v);
    if (v->has_failed || sim_below(12) == 0)
        unload(v);
}

/* Each run has an end: what it may wait, and what two workers may take for it. */
static void check_runs(void)
{
    const int64_t limit = 3 * SH_MS(script.e->conf.run_ms) + SH_S(30);

    for (size_t i = 0; i < MAX_RUNS; i++) {
        struct run *r = &sched.runs[i];

        SIM_CHECK("waits",
                  r->id == 0 || sim_proc_is_paused(script.e->proc) ||
                      sim_now() - r->sent_ns < r->budget_ns + limit,
                  "run %" PRIu64 " is not done after %.3f s", r->id,
                  (double)(sim_now() - r->sent_ns) / 1e9);
    }
}

static void on_tick(struct sh_loop *l, void *arg)
{
    (void)l, (void)arg;
    if (!sched.wire || !sched.is_synced)
        return;
    check_runs();
    script__jobs_tick();
    if (script.is_ending)
        return;
    script__bad_tick();
    for (uint64_t n = sim_below(3); n > 0; n--)
        begin_run();
    if (sim_below(10) == 0)
        prepare();
    if (sim_below(40) == 0)
        pin();
    if (sim_below(10) == 0)
        change_models();
    if (sim_below(400) == 0)
        say_quotas();
}

static void sched_main(void *arg)
{
    const struct sh_listen_handler h = {.on_peer = on_exec};
    struct sh_timer *t;
    struct sh_err err = {0};

    (void)arg;
    forget_executor();
    sched.epoch++;
    if (sh_loop_new(&sched.loop, &err) ||
        sh_listen_new(sched.loop, SCHED_ADDR, &h, &sched.listen, &err) ||
        sh_timer_add(sched.loop, TICK_NS, TICK_NS, on_tick, NULL, &t, &err))
        sim_broken("world", "a scheduler: %s", err.msg);
}

/* ------------------------------------------------------------------ the whole */

/* Some differ from an earlier one from some layer on only. */
static void be_sibling(struct version *v, const struct version *of, size_t i)
{
    v->model = of->model;
    v->package = of->package;
    v->package.id = sim_stem(&of->package) + (unsigned)i * SIM_SIBLING;
}

static void make_versions(const struct sim_profile *p)
{
    for (size_t i = 0; i < N_VERSIONS; i++) {
        struct version *v = &versions[i];

        v->id = 100 + (int64_t)i;
        v->model = &p->models[sim_below(p->n_models)];
        v->package =
            (struct sim_package){.tenant = 1 + (unsigned)sim_below(N_TENANTS), .id = (unsigned)i};
        v->package.own_size = i % 4 == 3 ? OWN_SIZE : 0;
        sh_strlcpy(v->package.model, v->model->name, sizeof(v->package.model));
        if (i && sim_below(2))
            be_sibling(v, &versions[sim_below(i)], i);
        v->max_batch = v->model->sizes[v->model->n_sizes - 1].batch;
        sim_package_make(script.e->state_dir, &v->package, v->path);
        v->is_asked = sim_below(3) > 0;
    }
}

void script_begin(struct sim_exec *e, const struct sim_profile *profile, bool is_local,
                  bool is_remote)
{
    e->scheduler = SCHED_ADDR;
    script =
        (struct script){.e = e, .profile = profile, .is_local = is_local, .is_remote = is_remote};
    script.sched = sim_proc_new("sched", SCRIPT_SCHED_HOST);
    script.api = sim_proc_new("api", is_local ? e->host : SCRIPT_API_HOST);
    sched.next_run = 1;
    make_versions(profile);
    script__jobs_begin();
    script__bad_begin();
}

void script_start_sched(void)
{
    if (!sim_proc_is_alive(script.sched))
        sim_proc_start(script.sched, NULL, sched_main, NULL);
}

void script_start_api(void)
{
    if (!sim_proc_is_alive(script.api))
        sim_proc_start(script.api, NULL, api_main, NULL);
}

void script_begin_end(void)
{
    script.is_ending = true;
    script__jobs_ending();
}

bool script_is_through(void)
{
    for (size_t i = 0; i < MAX_RUNS; i++)
        if (sched.runs[i].id)
            return false;
    for (size_t i = 0; i < N_SLOTS; i++)
        if (is_waiting(&api.requests[i]))
            return false;
    return script__jobs_are_through() && script__bad_are_through(false);
}

void script_check_end(void)
{
    size_t open = 0, runs = 0;

    for (size_t i = 0; i < N_SLOTS; i++)
        open += is_waiting(&api.requests[i]);
    for (size_t i = 0; i < MAX_RUNS; i++)
        runs += sched.runs[i].id != 0;
    SIM_CHECK("waits", sched.wire && sched.is_synced, "the executor is not back");
    SIM_CHECK("waits", runs == 0, "%zu runs were never done", runs);
    SIM_CHECK("waits", open == 0, "%zu requests were never answered", open);
    SIM_CHECK("waits", script__jobs_are_through(), "the job does not get on");
    script__bad_are_through(true);
    SIM_CHECK("serves", sched.n_late < MANY_RUNS || sched.n_late_good * 8 > sched.n_late,
              "of %" PRIu64 " runs since all is well %" PRIu64 " were done", sched.n_late,
              sched.n_late_good);
    sim_trace("runs=%" PRIu64 " good=%" PRIu64, sched.n_sent, sched.n_good);
}
