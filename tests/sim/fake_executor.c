/* fake_executor.c - see fake_executor.h: its life, the scheduler, models, and what was used. */
#include "tests/sim/fake_executor.h"

#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"
#include "tests/sim/fake_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define POOL_BYTES (8192 * MIB)
#define SMALL_BYTES (1024 * MIB) /* of every fourth */
#define HOST_BYTES (1800 * MIB)  /* for images of models */
#define SILENCE_MS 2500
#define MAX_FAKES 64
#define LINK_BYTES_PER_S 25e9

static struct fake *fakes[MAX_FAKES];
static size_t n_fakes;
static struct fake_used *used;
static size_t n_used, cap_used;

/* ------------------------------------------------------------------ what was used */

static struct fake_used *used_of(const struct msg_usage_row *r)
{
    bool is_job = r->kind == MSG_USAGE_JOB;

    for (size_t i = 0; i < n_used; i++)
        if (used[i].is_job == is_job && used[i].id == r->id &&
            strcmp(used[i].tenant, is_job ? "" : r->tenant) == 0)
            return &used[i];
    sim_grow(&used, &cap_used, n_used + 1, sizeof(*used));
    used[n_used] = (struct fake_used){.is_job = is_job, .id = r->id};
    if (!is_job)
        sh_strlcpy(used[n_used].tenant, r->tenant, sizeof(used[n_used].tenant));
    return &used[n_used++];
}

const struct fake_used *fake_used(size_t *n)
{
    *n = n_used;
    return used;
}

void fake__count(struct fake *f, const struct msg_usage_row *r)
{
    struct fake_durable *d = &f->disk;
    struct fake_used *u = used_of(r);
    struct msg_usage_row *row = NULL;

    u->gpu_ns += r->gpu_ns;
    u->requests += r->requests;
    u->samples += r->kind == MSG_USAGE_JOB ? 0 : r->samples;
    u->step = SH_MAX(u->step, r->step);
    u->step_samples = r->samples;
    for (size_t i = 0; i < d->n_rows && !row; i++)
        if (d->rows[i].kind == r->kind && d->rows[i].id == r->id &&
            strcmp(d->rows[i].tenant, r->tenant) == 0)
            row = &d->rows[i];
    if (!row) {
        SIM_CHECK("simulator", d->n_rows < MSG_USAGE_ROWS, "too much is used");
        d->rows[d->n_rows++] = *r;
        return;
    }
    row->gpu_ns += r->gpu_ns;
    row->requests += r->requests;
    row->samples = r->kind == MSG_USAGE_JOB ? r->samples : row->samples + r->samples;
    row->step = SH_MAX(row->step, r->step);
}

/* The batch that is not known to be stored, or the next one. */
static void send_usage(struct fake *f)
{
    struct fake_durable *d = &f->disk;

    if (!d->n_batch && d->n_rows) {
        memcpy(d->batch, d->rows, d->n_rows * sizeof(d->rows[0]));
        d->n_batch = d->n_rows;
        d->n_rows = 0;
        d->number++;
    }
    if (d->n_batch)
        fake__send(
            f, &(struct sh_msg){.type = MSG_USAGE,
                                .u.usage = {.source = d->source,
                                            .number = d->number,
                                            .rows = {d->batch, d->n_batch * sizeof(d->batch[0])}}});
}

static void on_stored(struct fake *f, const struct msg_usage_stored *m)
{
    if (strcmp(m->source, f->disk.source) == 0 && m->number == f->disk.number)
        f->disk.n_batch = 0;
}

bool fake_all_stored(void)
{
    for (size_t i = 0; i < n_fakes; i++)
        if (fakes[i]->disk.n_batch || fakes[i]->disk.n_rows)
            return false;
    return true;
}

/* ------------------------------------------------------------------ models */

uint64_t fake__image_bytes(int64_t version_id)
{
    return (40 + (uint64_t)version_id * 37 % 300) * MIB;
}

int64_t fake__slowed(const struct fake *f, int64_t ns)
{
    return sim_now() < f->slow_until_ns ? ns * f->slow_times : ns;
}

struct fake_model *fake__model(struct fake *f, int64_t id)
{
    for (size_t i = 0; i < FAKE_MODELS; i++)
        if (f->now.models[i].id == id && f->now.models[i].phase != FAKE_ABSENT)
            return &f->now.models[i];
    return NULL;
}

static void model_state(struct fake *f, const struct fake_model *m)
{
    static const uint32_t PHASES[] = {[FAKE_ABSENT] = MSG_MODEL_GONE,
                                      [FAKE_LOADING] = MSG_MODEL_LOADING,
                                      [FAKE_READY] = MSG_MODEL_READY,
                                      [FAKE_FAILED] = MSG_MODEL_FAILED,
                                      [FAKE_GOING] = MSG_MODEL_GONE};
    const struct msg_profile profile[] = {{.batch = 1, .compute_ns = 2e6, .tail_ns = 4e5},
                                          {.batch = 8, .compute_ns = 5e6, .tail_ns = 4e5}};
    bool ready = m->phase == FAKE_READY;
    uint64_t bytes = fake__image_bytes(m->id);

    fake__send(f, &(struct sh_msg){
                      .type = MSG_MODEL_STATE,
                      .u.model_state = {
                          .version_id = m->id,
                          .state = PHASES[m->phase],
                          .rc = m->phase == FAKE_FAILED ? m->rc : 0,
                          .msg = m->phase == FAKE_FAILED ? "it was to fail" : "",
                          .image_bytes = ready ? bytes : 0,
                          .resident_bytes = ready && sim_now() < m->resident_until_ns ? bytes : 0,
                          .profile = {profile, ready ? sizeof(profile) : 0},
                          .step = "build",
                          .total = 3,
                          .left_ns = SH_MS(200),
                          .short_bytes = m->phase == FAKE_FAILED ? m->short_bytes : 0}});
}

static uint64_t host_bytes(const struct fake *f)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < FAKE_MODELS; i++)
        if (f->now.models[i].phase == FAKE_READY || f->now.models[i].phase == FAKE_GOING)
            sum += fake__image_bytes(f->now.models[i].id);
    return sum;
}

static void finish_load(struct fake *f, struct fake_model *m)
{
    uint64_t after = host_bytes(f) + fake__image_bytes(m->id);

    m->phase = FAKE_READY;
    m->resident_until_ns = 0;
    if (f->now.fail_loads) {
        f->now.fail_loads--;
        m->rc = f->now.fail_rc;
        m->phase = FAKE_FAILED;
    } else if (after > HOST_BYTES) {
        m->rc = SH_E_QUOTA;
        m->short_bytes = after - HOST_BYTES;
        m->phase = FAKE_FAILED;
    }
    model_state(f, m);
}

static void on_loaded(void *arg, uint64_t turn)
{
    struct fake *f = arg;

    for (size_t i = 0; i < FAKE_MODELS; i++) {
        struct fake_model *m = &f->now.models[i];

        if (m->phase == FAKE_ABSENT || m->turn != turn)
            continue;
        if (m->phase == FAKE_GOING) {
            fake__forget_shapes(f, m->id);
            model_state(f, m);
            m->phase = FAKE_ABSENT;
        } else if (m->phase == FAKE_LOADING) {
            finish_load(f, m);
        }
    }
}

static void turn_later(struct fake *f, struct fake_model *m, int64_t ns)
{
    static uint64_t turns;

    m->turn = ++turns;
    sim_after(f->proc, ns, on_loaded, f, m->turn);
}

static void on_load(struct fake *f, const struct msg_model_load *l)
{
    struct fake_model *m = fake__model(f, l->version_id);

    if (m && m->phase == FAKE_GOING) { /* it says GONE, and gets it then */
        const struct fake_model busy = {.id = m->id, .phase = FAKE_FAILED, .rc = SH_E_CONFLICT};

        model_state(f, &busy);
        return;
    }
    if (m && m->phase != FAKE_FAILED) {
        model_state(f, m);
        return;
    }
    for (size_t i = 0; i < FAKE_MODELS && !m; i++)
        if (f->now.models[i].phase == FAKE_ABSENT)
            m = &f->now.models[i];
    SIM_CHECK("simulator", m, "too many models");
    *m = (struct fake_model){.id = l->version_id, .phase = FAKE_LOADING, .max_batch = l->max_batch};
    model_state(f, m);
    turn_later(f, m, fake__slowed(f, sim_between(SH_MS(20), SH_MS(600))));
}

static void on_unload(struct fake *f, int64_t version_id)
{
    struct fake_model *m = fake__model(f, version_id);

    if (!m) {
        const struct fake_model gone = {.id = version_id};

        model_state(f, &gone);
        return;
    }
    m->phase = FAKE_GOING;
    turn_later(f, m, sim_between(SH_MS(1), SH_MS(80)));
}

static void on_prepare(struct fake *f, const struct msg_prepare *p)
{
    struct fake_model *m = fake__model(f, p->version_id);
    uint64_t bytes = fake__image_bytes(p->version_id);
    int64_t copy_ns = (int64_t)((double)bytes / LINK_BYTES_PER_S * 1e9);

    if (!m || m->phase != FAKE_READY || sim_now() < m->resident_until_ns)
        return;
    m->resident_until_ns = sim_now() + sim_between(SH_MS(100), SH_S(3));
    fake__send(f, &(struct sh_msg){.type = MSG_MODEL_PLACE,
                                   .u.model_place = {.version_id = m->id,
                                                     .device_bytes = bytes,
                                                     .host_bytes = bytes,
                                                     .arrives_ns = copy_ns,
                                                     .idle_ns = -1}});
}

/* ------------------------------------------------------------------ the scheduler */

void fake__send(struct fake *f, const struct sh_msg *m)
{
    struct sh_wire *w = f->now.link ? sh_link_wire(f->now.link) : NULL;

    if (w)
        sh_wire_send(w, m, NULL);
}

static bool is_current(struct fake *f, uint64_t epoch)
{
    f->now.epoch = SH_MAX(f->now.epoch, epoch);
    return epoch >= f->now.epoch;
}

static void on_up(struct sh_wire *w, void *arg)
{
    struct fake *f = arg;

    sh_wire_send(w,
                 &(struct sh_msg){.type = MSG_EXEC_HELLO,
                                  .u.exec_hello = {.executor = sim_proc_name(f->proc),
                                                   .host_id = "host",
                                                   .data_addr = f->addr,
                                                   .device = "fake",
                                                   .pool_bytes = f->pool_bytes,
                                                   .n_workers = 4,
                                                   .incarnation = f->now.incarnation}},
                 NULL);
    sh_wire_send(w,
                 &(struct sh_msg){.type = MSG_EXEC_STATE,
                                  .u.exec_state = {.device_name = "fake",
                                                   .device_bytes = f->pool_bytes,
                                                   .link_bytes_per_s = LINK_BYTES_PER_S,
                                                   .host_limit = HOST_BYTES,
                                                   .fences_why = ""}},
                 NULL);
    f->now.n_loose = 0;
    for (size_t i = 0; i < FAKE_MODELS; i++)
        if (f->now.models[i].phase != FAKE_ABSENT && f->now.models[i].phase != FAKE_GOING)
            model_state(f, &f->now.models[i]);
    fake__report_shapes(f);
    fake__report_jobs(f);
    sh_wire_send(w,
                 &(struct sh_msg){.type = MSG_EXEC_SYNCED,
                                  .u.exec_synced = {.incarnation = f->now.incarnation}},
                 NULL);
    send_usage(f);
}

static void on_down(struct sh_wire *w, const struct sh_err *why, void *arg)
{
    struct fake *f = arg;

    (void)w, (void)why;
    f->now.synced_epoch = 0;
}

static void on_order(struct fake *f, const struct sh_msg *m)
{
    const struct msg_job_start *j = &m->u.job_start;
    const struct msg_batch_start *b = &m->u.batch_start;

    if (m->type == MSG_JOB_START && is_current(f, j->epoch))
        fake__on_start(f, &(struct fake_order){j->job, j->resume_step, j->attempt, j->epoch, false,
                                               j->spec, j->resume});
    if (m->type == MSG_BATCH_START && is_current(f, b->epoch))
        fake__on_start(f, &(struct fake_order){b->job, b->resume_step, b->attempt, b->epoch, true,
                                               b->spec, ""});
    if (m->type == MSG_JOB_STOP && is_current(f, m->u.job_stop.epoch))
        fake__on_stop(f, &m->u.job_stop);
    if (m->type == MSG_JOB_SAVE && is_current(f, m->u.job_save.epoch))
        fake__on_save(f, &m->u.job_save);
    if (m->type == MSG_MODEL_LOAD && is_current(f, m->u.model_load.epoch))
        on_load(f, &m->u.model_load);
    if (m->type == MSG_MODEL_UNLOAD && is_current(f, m->u.model_unload.epoch))
        on_unload(f, m->u.model_unload.version_id);
    if (m->type == MSG_PREPARE && is_current(f, m->u.prepare.epoch))
        on_prepare(f, &m->u.prepare);
    if (m->type == MSG_SHAPE_LOAD && is_current(f, m->u.shape_load.epoch))
        fake__on_shape_load(f, &m->u.shape_load);
}

static void on_msg(struct sh_wire *w, const struct sh_msg *m, int *fds, size_t n_fds, void *arg)
{
    struct fake *f = arg;

    (void)fds, (void)n_fds;
    switch (m->type) {
    case MSG_WELCOME:
        fake__heard_leader(f, m->u.welcome.epoch, m->u.welcome.name);
        if (is_current(f, m->u.welcome.epoch))
            f->now.synced_epoch = m->u.welcome.epoch;
        break;
    case MSG_PING:
        sh_wire_send(w, &(struct sh_msg){.type = MSG_PONG, .u.pong = {m->u.ping.cookie}}, NULL);
        break;
    case MSG_USAGE_STORED:
        on_stored(f, &m->u.usage_stored);
        break;
    case MSG_RUN_PART:
        fake__on_part(f, &m->u.run_part);
        break;
    case MSG_RUN:
        fake__on_run(f, &m->u.run, !is_current(f, m->u.run.epoch));
        break;
    case MSG_RUN_CANCEL:
        fake__on_cancel(f, &m->u.run_cancel);
        break;
    default:
        on_order(f, m);
    }
}

/* An epoch has one leader. */
void fake__heard_leader(const struct fake *f, uint64_t epoch, const char *name)
{
    static struct {
        uint64_t epoch;
        char name[64];
    } * leaders;
    static size_t n, cap;

    for (size_t i = 0; i < n; i++)
        if (leaders[i].epoch == epoch) {
            SIM_CHECK("one-leader", strcmp(leaders[i].name, name) == 0,
                      "%s hears that %s leads in epoch %" PRIu64 ", in which %s led",
                      sim_proc_name(f->proc), name, epoch, leaders[i].name);
            return;
        }
    sim_grow(&leaders, &cap, n + 1, sizeof(*leaders));
    leaders[n].epoch = epoch;
    sh_strlcpy(leaders[n++].name, name, sizeof(leaders[0].name));
}

/* ------------------------------------------------------------------ life */

static void on_second(struct sh_loop *l, void *arg)
{
    struct fake *f = arg;

    (void)l;
    send_usage(f);
}

static void run(void *arg)
{
    struct fake *f = arg;
    const struct sh_link_handler h = {.on_up = on_up,
                                      .on_msg = on_msg,
                                      .on_down = on_down,
                                      .arg = f,
                                      .max_silence_ms = SILENCE_MS};
    struct sh_timer *t;
    struct sh_loop *l;
    struct sh_err err = {0};

    f->now = (struct fake_now){.incarnation = sim_random()};
    if (sh_loop_new(&l, &err) || fake__listen(f, l, &err) ||
        sh_link_new(l, f->schedulers, &h, &f->now.link, &err) ||
        sh_timer_add(l, SH_S(1), SH_S(1), on_second, f, &t, &err))
        sim_broken("simulator", "an executor cannot begin: %s", err.msg);
    fake__jobs_begin(f);
}

struct fake *fake_new(const char *name, unsigned host, const char *schedulers, bool is_local)
{
    struct fake *f = calloc(1, sizeof(*f));

    if (!f || n_fakes == MAX_FAKES)
        sim_broken("simulator", "too many executors");
    f->proc = sim_proc_new(name, host);
    f->schedulers = schedulers;
    f->is_local = is_local;
    f->index = n_fakes;
    f->pool_bytes = n_fakes % 4 == 3 ? SMALL_BYTES : POOL_BYTES;
    snprintf(f->addr, sizeof(f->addr), is_local ? "unix:%s" : "tcp:%s:1", name);
    snprintf(f->disk.source, sizeof(f->disk.source), "%032zx", n_fakes + 1);
    fakes[n_fakes++] = f;
    return f;
}

void fake_start(struct fake *f)
{
    sim_proc_start(f->proc, NULL, run, f);
}

struct sim_proc *fake_proc(const struct fake *f)
{
    return f->proc;
}

void fake_fail_loads(struct fake *f, int rc, unsigned n)
{
    f->now.fail_rc = rc;
    f->now.fail_loads = n;
}

void fake_slow(struct fake *f, int64_t times, int64_t for_ns)
{
    f->slow_times = times;
    f->slow_until_ns = sim_now() + for_ns;
}

uint64_t fake_synced_with(const struct fake *f)
{
    return sim_proc_is_alive(f->proc) ? f->now.synced_epoch : 0;
}

size_t fake_n_runs(const struct fake *f)
{
    return sim_proc_is_alive(f->proc) ? f->now.n_runs : 0;
}
