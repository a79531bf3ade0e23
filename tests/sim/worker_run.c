/* worker_run.c - a run in a simulated worker; as executor/worker/infer.c.
 *
 * In the workspace lie the inputs of all samples, then their outputs, then what was computed on the
 * way. */
#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"
#include "runtime/pack/layers.h"
#include "tests/sim/worker_int.h"

#include <stdlib.h>

#define TAKE_NS SH_US(6) /* inputs */
#define GIVE_NS SH_US(5) /* outputs */

struct worker_run {
    struct msg_wk_run m;      /* its blob is gone */
    struct msg_group *groups; /* OWNED */
    size_t n_groups, group;
    struct worker_model *model;
    uint32_t at;   /* which of its sizes */
    uint32_t size; /* samples of that */
    uint32_t layer;
    uint32_t n_layers; /* that it waits for: without tables that it reads in host memory */
    bool is_garbage;   /* a ticket was forced: what it computes is wrong, and the executor knows */
    struct worker_unpack unpack;
    struct sh_err why;
    int64_t start_ns, first_ns, asked_ns, wait_ns;
};

#define RUN_CHECK(cond, ...) SIM_CHECK("run", cond, __VA_ARGS__)

/* ------------------------------------------------------------------ parts */

static void drop_parts(struct sim_worker *w)
{
    for (size_t i = 0; i < w->n_parts; i++) {
        free(w->parts[i].in);
        free(w->parts[i].out);
    }
    w->n_parts = 0;
}

static struct msg_span *spans(struct sh_blob b, size_t *n)
{
    struct msg_span *s = malloc(b.len + 1);

    WORKER_CHECK(b.len % sizeof(*s) == 0, "spans of %zu bytes", b.len);
    if (!s)
        abort();
    if (b.len)
        memcpy(s, b.data, b.len);
    *n = b.len / sizeof(*s);
    return s;
}

void worker__on_part(struct sim_worker *w, const struct msg_wk_part *m)
{
    struct worker_part *p;

    if (w->n_parts > 0 && w->parts[0].run_id != m->run_id)
        drop_parts(w); /* the run they belonged to was given up before it was sent */
    WORKER_CHECK(w->n_parts < WORKER_MAX_PARTS, "a run of more than %d parts", WORKER_MAX_PARTS);
    p = &w->parts[w->n_parts++];
    *p = (struct worker_part){.run_id = m->run_id, .api_id = m->api_id, .batch = m->batch};
    p->in = spans(m->in_spans, &p->n_in);
    p->out = spans(m->out_spans, &p->n_out);
}

static bool fits(const struct worker_slab *s, const struct msg_span *span, size_t n, uint64_t want)
{
    return n == 1 && span->len == want && span->off <= s->shm.bytes &&
           span->len <= s->shm.bytes - span->off;
}

/* Can this part run? */
static int check_part(struct sim_worker *w, const struct worker_run *r, const struct worker_part *p,
                      struct sh_err *err)
{
    const struct worker_slab *s = worker__slab(w, p->api_id);

    if (!s)
        return SH_FAIL(err, SH_E_UNAVAILABLE, "the client's API process is gone");
    if (!fits(s, p->in, p->n_in, p->batch * r->model->model->in_bytes) ||
        !fits(s, p->out, p->n_out, p->batch * r->model->model->out_bytes))
        return SH_FAIL(err, SH_E_INVALID, "the tensors do not suit the model");
    if (worker__fault(sim_worker_faults.bad_part))
        return SH_FAIL(err, SH_E_INVALID, "an index of the input is out of range");
    return SH_OK;
}

static uint32_t check_parts(struct sim_worker *w, const struct worker_run *r)
{
    uint32_t batch = 0, n_fit = 0;

    for (uint32_t i = 0; i < w->n_parts; i++) {
        struct worker_part *p = &w->parts[i];
        struct sh_msg m = {.type = MSG_WK_PART_FAILED};
        struct sh_err why = {0};

        WORKER_CHECK(p->batch <= r->m.batch - batch, "the parts of a run exceed its batch");
        batch += p->batch;
        p->is_out = check_part(w, r, p, &why) != SH_OK;
        n_fit += !p->is_out;
        m.u.wk_part_failed =
            (struct msg_wk_part_failed){.turn = r->m.turn,
                                        .part = i,
                                        .rc = why.rc,
                                        .msg = why.msg,
                                        .sample = (int64_t)sim_below(p->batch + 1) - 1};
        if (p->is_out)
            worker__send(w, &m, NULL, 0);
    }
    return n_fit;
}

/* ------------------------------------------------------------------ the answer */

static enum msg_packed settle(struct worker_run *r)
{
    const struct worker_unpack *u = &r->unpack;

    if (!u->is_damaged)
        return u->has_failed ? MSG_PACKED_UNSURE : MSG_PACKED_KNOWN;
    r->why = (struct sh_err){0};
    SH_FAIL(&r->why, SH_E_IO, "packed weights are damaged");
    return MSG_PACKED_DAMAGED;
}

/* What a failed call has done is not known, and what it was told of damage is of no use. */
static uint32_t unpacked(const struct worker_unpack *u)
{
    if (u->is_damaged || !u->link_ends)
        return 0;
    return u->has_failed ? u->said : u->at;
}

static void answer(struct sim_worker *w)
{
    struct worker_run *r = w->run;
    struct sh_msg m = {.type = MSG_WK_RUN_DONE};
    const enum msg_packed packed = settle(r);

    drop_parts(w);
    m.u.wk_run_done = (struct msg_wk_run_done){.turn = r->m.turn,
                                               .rc = r->why.rc,
                                               .msg = r->why.msg,
                                               .start_ns = r->start_ns,
                                               .first_ns = r->first_ns,
                                               .end_ns = sh_clock_ns(),
                                               .wait_ns = r->wait_ns,
                                               .unpacked = unpacked(&r->unpack),
                                               .packed = packed};
    worker__send(w, &m, NULL, 0);
    worker__end_unpacking(&r->unpack);
    w->unpack = NULL;
    free(r->groups);
    free(r);
    w->run = NULL;
    worker__done(w);
}

/* ------------------------------------------------------------------ in the workspace */

static char *workspace(const struct sim_worker *w, size_t off, size_t bytes)
{
    const struct worker_run *r = w->run;
    char *p = sim_device_at(w->device, r->m.ws_off + off, bytes);

    RUN_CHECK(p, "run %llu: its workspace lies outside of the arena",
              (unsigned long long)r->m.run_id);
    return p;
}

static size_t work_at(const struct worker_run *r) /* behind inputs and outputs */
{
    return r->size * (r->model->model->in_bytes + r->model->model->out_bytes);
}

static uint64_t work_word(const struct worker_run *r, size_t i)
{
    return sim_word(r->model->package.tenant, SIM_WORK, sim_mix(r->m.run_id, i));
}

static void fill_work(const struct sim_worker *w)
{
    const struct worker_run *r = w->run;
    const size_t from = work_at(r), to = r->model->ws_bytes[r->at];
    uint64_t *at = (uint64_t *)(void *)workspace(w, from, to - from);

    for (size_t i = 0; i < (to - from) / sizeof(*at); i++)
        at[i] = work_word(r, i);
}

static void check_work(const struct sim_worker *w)
{
    const struct worker_run *r = w->run;
    const size_t from = work_at(r), to = r->model->ws_bytes[r->at];
    const uint64_t *at = (uint64_t *)(void *)workspace(w, from, to - from);

    for (size_t i = 0; i < (to - from) / sizeof(*at); i++)
        RUN_CHECK(at[i] == work_word(r, i),
                  "run %llu: somebody wrote %016llx to word %zu of its workspace",
                  (unsigned long long)r->m.run_id, (unsigned long long)at[i], i);
}

/* What earlier owners left must be gone before it begins. */
static void check_clean(const struct sim_worker *w)
{
    const struct worker_run *r = w->run;
    const size_t bytes = r->model->ws_bytes[r->at];
    const char *ws = workspace(w, 0, bytes);
    size_t at = 0;

    RUN_CHECK(r->is_garbage || sim_is_of(r->model->package.tenant, ws, bytes, &at),
              "run %llu of tenant %u finds %016llx of another one in its workspace, word %zu",
              (unsigned long long)r->m.run_id, r->model->package.tenant,
              ((unsigned long long *)(void *)(uintptr_t)ws)[at], at);
}

static void take_inputs(struct sim_worker *w)
{
    const struct worker_run *r = w->run;
    const size_t sample = r->model->model->in_bytes;
    uint32_t first = 0;

    for (size_t i = 0; i < w->n_parts; i++) {
        const struct worker_part *p = &w->parts[i];
        char *to = workspace(w, first * sample, p->batch * sample);

        first += p->batch;
        if (p->is_out)
            memset(to, 0, p->batch * sample);
        else if (r->m.inputs != MSG_INPUTS_COME)
            memcpy(to, (char *)worker__slab(w, p->api_id)->shm.base + p->in->off, p->in->len);
    }
    memset(workspace(w, first * sample, (r->size - first) * sample), 0, (r->size - first) * sample);
}

/* Each sample by itself: what is computed of it does not depend on the others. */
static void compute(struct sim_worker *w)
{
    const struct worker_run *r = w->run;
    const struct sim_model *m = r->model->model;
    uint32_t first = 0;

    for (size_t i = 0; i < w->n_parts; i++) {
        const struct worker_part *p = &w->parts[i];
        const char *in = workspace(w, first * m->in_bytes, p->batch * m->in_bytes);
        char *out =
            workspace(w, r->size * m->in_bytes + first * m->out_bytes, p->batch * m->out_bytes);
        const struct worker_slab *s = worker__slab(w, p->api_id);

        first += p->batch;
        if (p->is_out)
            continue;
        RUN_CHECK(r->is_garbage || memcmp(in, (char *)s->shm.base + p->in->off, p->in->len) == 0,
                  "run %llu: the inputs of part %zu are not those of its request",
                  (unsigned long long)r->m.run_id, i);
        for (uint32_t k = 0; k < p->batch; k++)
            sim_fill_output(&r->model->package, in + k * m->in_bytes, m->in_bytes,
                            out + k * m->out_bytes, m->out_bytes);
        memcpy((char *)s->shm.base + p->out->off, out, p->out->len);
    }
}

/* ------------------------------------------------------------------ groups */

static void check_weights(const struct sim_worker *w, uint32_t from, uint32_t to)
{
    const struct worker_run *r = w->run;
    const struct sim_model *m = r->model->model;
    const size_t begin = layer_begin(m->layer_ends, from), end = m->layer_ends[to - 1];
    const uint64_t *at =
        (uint64_t *)(void *)sim_device_at(w->device, r->m.image_off + begin, end - begin);
    const size_t n = (end - begin) / sizeof(*at);
    size_t i;

    RUN_CHECK(at, "run %llu: its image lies outside of the arena", (unsigned long long)r->m.run_id);
    i = sim_image_look(&r->model->package, at, begin / sizeof(*at), n);
    RUN_CHECK(i == n,
              "run %llu: word %zu of its image is %016llx, which is not what package %u has",
              (unsigned long long)r->m.run_id, begin / sizeof(*at) + i, (unsigned long long)at[i],
              r->model->package.id);
}

static void on_given(void *arg, uint64_t n)
{
    struct sim_worker *w = arg;
    struct worker_run *r = w->run;

    (void)n;
    check_work(w);
    if (worker__fault(sim_worker_faults.bad_part))
        SH_FAIL(&r->why, SH_E_INVALID, "an index is out of range");
    else
        compute(w);
    answer(w);
}

static void next_group(struct sim_worker *w);

static void on_computed(void *arg, uint64_t to)
{
    struct sim_worker *w = arg;

    if (!w->run->is_garbage && to > w->run->layer)
        check_weights(w, w->run->layer, (uint32_t)to);
    w->run->layer = SH_MAX(w->run->layer, (uint32_t)to);
    next_group(w);
}

static void on_layers(void *arg, uint64_t n)
{
    struct sim_worker *w = arg;
    struct worker_run *r = w->run;
    const struct msg_group *g = &r->groups[r->group++];
    const uint32_t to = SH_MIN(g->end_layer, r->n_layers);
    double ns = 0;

    (void)n;
    if (r->unpack.has_failed) {
        SH_FAIL(&r->why, SH_E_DEVMEM, "the simulated device has no memory for a command");
        answer(w);
        return;
    }
    if (r->group == 1)
        r->first_ns = sh_clock_ns();
    else if (r->wait_ns >= 0)
        r->wait_ns += sh_clock_ns() - r->asked_ns;
    if (!r->is_garbage && to > r->layer)
        check_weights(w, r->layer, to); /* when it begins with them, and again when it ends */
    for (uint32_t i = r->layer; i < to; i++)
        ns += (double)r->model->model->layer_ns[i] * r->model->times[r->at];
    worker__after(w, (int64_t)ns, on_computed, to);
}

static void on_group(void *arg, uint64_t n)
{
    struct sim_worker *w = arg;
    struct worker_run *r = w->run;
    const struct msg_group *g = &r->groups[r->group];

    (void)n;
    if (w->waited_long) {
        SH_FAIL(&r->why, SH_E_TIMEOUT, "weights did not come");
        answer(w);
        return;
    }
    if (g->ticket_slot < DEV_N_TICKETS)
        r->is_garbage |= sim_device_was_forced(w->device, g->ticket_slot, g->ticket_value);
    worker__unpack(w, &r->unpack, g->end_layer, r->is_garbage, on_layers);
}

static void next_group(struct sim_worker *w)
{
    struct worker_run *r = w->run;

    if (atomic_load(&w->ctl->give_up)) {
        SH_FAIL(&r->why, SH_E_CANCELLED, "cancelled while it ran");
        answer(w);
        return;
    }
    if (r->group == r->n_groups) {
        RUN_CHECK(r->layer == r->n_layers, "run %llu: its groups end at layer %u",
                  (unsigned long long)r->m.run_id, r->layer);
        worker__after(w, GIVE_NS, on_given, 0);
        return;
    }
    r->asked_ns = sh_clock_ns();
    worker__when(w, r->groups[r->group].ticket_slot, r->groups[r->group].ticket_value, on_group);
}

static void on_tables(void *arg, uint64_t n)
{
    (void)n;
    next_group(arg);
}

/* Tables on the device: the first operation reads them. */
static void on_taken(void *arg, uint64_t n)
{
    struct sim_worker *w = arg;
    const struct worker_run *r = w->run;
    const struct msg_group *last = &r->groups[r->n_groups - 1];

    (void)n;
    if (r->n_layers == r->model->model->n_layers && r->model->n_tables)
        worker__when(w, last->ticket_slot, last->ticket_value, on_tables);
    else
        next_group(w);
}

static void on_inputs(void *arg, uint64_t n)
{
    struct sim_worker *w = arg;
    struct worker_run *r = w->run;

    (void)n;
    if (w->waited_long) {
        SH_FAIL(&r->why, SH_E_TIMEOUT, "inputs did not come");
        answer(w);
        return;
    }
    RUN_CHECK(r->m.inputs == MSG_INPUTS_COME ||
                  sim_device_was_forced(w->device, r->m.ticket_slot, r->m.ticket_value) ||
                  !sim_device_will_write(w->device, 1u << SIM_LANE_IN, r->m.ws_off,
                                         r->size * r->model->model->in_bytes),
              "run %llu brings its inputs, and others are on their way to their place",
              (unsigned long long)r->m.run_id);
    if (r->m.inputs != MSG_INPUTS_BRING)
        r->is_garbage |= sim_device_was_forced(w->device, r->m.ticket_slot, r->m.ticket_value);
    check_clean(w);
    take_inputs(w);
    fill_work(w);
    worker__after(w, TAKE_NS, on_taken, 0);
}

static bool is_cold(const struct sim_worker *w)
{
    const struct worker_run *r = w->run;
    const struct msg_group *last = &r->groups[r->n_groups - 1];

    return last->ticket_slot < DEV_N_TICKETS &&
           !sim_device_has(w->device, last->ticket_slot, last->ticket_value);
}

/* In host memory they are those of its package; on the device each run looks, as at all layers. */
static void check_place_of_tables(struct sim_worker *w)
{
    struct worker_run *r = w->run;
    const struct sim_model *m = r->model->model;
    const uint32_t n = r->model->n_tables;

    r->n_layers = m->n_layers;
    if (n == 0)
        return;
    if (r->m.tables == MSG_TABLES_IN_HOST) {
        worker__check_tables(worker__base(w, r->model));
        r->n_layers -= n;
        return;
    }
    RUN_CHECK(worker__base(w, r->model)->has_lied ||
                  r->m.tables_off == r->m.image_off + layer_begin(m->layer_ends, m->n_layers - n),
              "run %llu: its tables lie at %llu", (unsigned long long)r->m.run_id,
              (unsigned long long)r->m.tables_off);
}

static void begin(struct sim_worker *w)
{
    struct worker_run *r = w->run;

    while (r->at < r->model->n_sizes && r->model->batch[r->at] < r->m.batch)
        r->at++;
    WORKER_CHECK(r->m.batch > 0 && r->at < r->model->n_sizes,
                 "run %llu: there is no program for a batch of %u", (unsigned long long)r->m.run_id,
                 r->m.batch);
    r->size = r->model->batch[r->at];
    WORKER_CHECK(w->n_parts == r->m.n_parts &&
                     (w->n_parts == 0 || w->parts[0].run_id == r->m.run_id),
                 "run %llu: %zu of %u parts came", (unsigned long long)r->m.run_id, w->n_parts,
                 r->m.n_parts);
    if (check_parts(w, r) == 0) {
        answer(w);
        return;
    }
    if (w->is_queued && is_cold(w))
        r->wait_ns = -1;
    check_place_of_tables(w);
    worker__when(w, r->m.inputs == MSG_INPUTS_BRING ? NO_TICKET : r->m.ticket_slot,
                 r->m.ticket_value, on_inputs);
}

static void on_begin(void *arg, uint64_t n)
{
    (void)n;
    begin(arg);
}

void worker__on_run(struct sim_worker *w, const struct msg_wk_run *m)
{
    struct worker_run *r = calloc(1, sizeof(*r));

    WORKER_CHECK(!w->run && m->memory == MSG_RUN_ARENA, "WK_RUN %llu is no plain run",
                 (unsigned long long)m->run_id);
    if (!r)
        abort();
    r->m = *m;
    r->start_ns = r->first_ns = sh_clock_ns();
    r->n_groups = m->groups.len / sizeof(*r->groups);
    r->groups = malloc(m->groups.len + 1);
    r->model = worker__model(w, m->handle);
    WORKER_CHECK(r->model, "run %llu: this worker does not have version %lld",
                 (unsigned long long)m->run_id, (long long)m->handle);
    if (!r->groups || r->n_groups == 0)
        sim_broken("worker-protocol", "run %llu has no groups", (unsigned long long)m->run_id);
    memcpy(r->groups, m->groups.data, m->groups.len);
    worker__begin_unpacking(&r->unpack, r->model, m);
    w->run = r;
    worker__after(w, SH_US(3), on_begin, 0);
}
