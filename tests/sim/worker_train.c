/* worker_train.c - a training job in a simulated worker; as executor/worker/train.c: a step is a
 * list of operations, a stop is seen between two of them, the update at its end changes the state
 * piece by piece and may be paused, not abandoned.
 *
 * A step looks at the whole state when it begins, and an operation of the update at its piece: they
 * must be of the step before. In the workspace each operation leaves a word that the next one must
 * find. */
#include "common/clock.h"
#include "common/json.h"
#include "common/mem.h"
#include "common/train_spec.h"
#include "common/units.h"
#include "tests/sim/worker_int.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define SPEC_MAX (1u << 20)
#define LOSSES_MAX 256
#define LOSSES_EVERY_NS SH_MS(200)
#define POLL_NS SH_US(100)
#define LOAD_NS SH_US(20)
#define N_EVALUATIONS 12 /* batches of the evaluation dataset */
#define N_TENSORS 6

struct worker_train {
    int64_t job, steps;
    uint32_t batch;
    bool by_loss; /* what is best; then there are no classes either */
    struct sim_package package;
    const struct sim_model *model;
    struct msg_wk_train_go go;
    int64_t step; /* committed ones */
    uint32_t op;
    bool is_loaded;
    bool ckpt_pending;
    int64_t ckpt_since_ns;
    int64_t unsaid; /* steps committed, when the control page does not say so yet; else 0 */
    double loss;
    struct sh_err why;
    int64_t evaluated_step; /* -1: none is being evaluated */
    uint32_t n_evaluated;
    double losses[LOSSES_MAX];
    int64_t losses_first, losses_sent_ns;
    size_t n_losses;
};

#define TRAIN_CHECK(cond, ...) SIM_CHECK("training", cond, __VA_ARGS__)

void worker__drop_train(struct sim_worker *w, int64_t job)
{
    if (!w->train || (job >= 0 && w->train->job != job))
        return;
    free(w->train);
    w->train = NULL;
}

/* ------------------------------------------------------------------ compile */

struct compiling {
    struct worker_train *t;
    int64_t job;
    uint64_t turn;
    bool builds;
    struct sh_err why;
};

/* Parameters that some jobs freeze come last. */
static const char *const KINDS[N_TENSORS] = {"param", "ema", "optim", "stat", "param", "param"};
static const char *const NAMES[N_TENSORS] = {"t0", "t0#ema", "t1", "t2", "t3", "t4"};
static const size_t CUTS[N_TENSORS + 1] = {0, 1, 2, 3, 4, 10, SIM_STATE_PARTS};

static size_t words_of(const struct worker_train *t)
{
    return t->model->state_bytes / sizeof(uint64_t);
}

static size_t written_of(const struct worker_train *t)
{
    return sim_state_written(t->job, words_of(t));
}

/* The state's layout: some tensors of whole words. */
static char *table(const struct sim_model *m)
{
    const size_t words = m->state_bytes / sizeof(uint64_t);
    json_t *list = json_array();
    char *text = NULL;

    for (size_t i = 0; i < N_TENSORS; i++) {
        const size_t from = words * CUTS[i] / SIM_STATE_PARTS;
        const size_t to = words * CUTS[i + 1] / SIM_STATE_PARTS;

        json_array_append_new(
            list, json_pack("{s:s,s:s,s:s,s:[I],s:I,s:I}", "name", NAMES[i], "dtype", "F32", "kind",
                            KINDS[i], "shape", (json_int_t)(2 * (to - from)), "off",
                            (json_int_t)(8 * from), "bytes", (json_int_t)(8 * (to - from))));
    }
    if (sh_json_dump(list, &text, NULL))
        abort();
    json_decref(list);
    return text;
}

static void fill_state(const struct worker_train *t, struct sh_shm *state)
{
    const size_t written = written_of(t);
    struct sh_err err = {0};

    if (sh_shm_create("shunt-state", t->model->state_bytes, state, &err))
        sim_broken("world", "a state: %s", err.msg);
    sim_state_fill(t->package.tenant, t->job, 0, state->base, 0, written);
    sim_state_fill(t->package.tenant, t->job, SIM_FIXED, (uint64_t *)state->base + written, written,
                   words_of(t) - written);
}

static void on_compiled(void *arg, uint64_t n)
{
    struct sim_worker *w = arg;
    struct compiling *c = (struct compiling *)(uintptr_t)n;
    struct worker_train *t = c->t;
    struct sh_msg r = {.type = MSG_WK_TRAIN_READY};
    struct msg_wk_train_ready *d = &r.u.wk_train_ready;
    struct sh_shm state = {.fd = -1};
    char *text = NULL;

    *d = (struct msg_wk_train_ready){
        .job = c->job, .turn = c->turn, .rc = c->why.rc, .msg = c->why.msg};
    if (c->why.rc == SH_OK || c->why.rc == SH_E_TOOBIG) {
        d->state_bytes = t->model->state_bytes;
        d->written_bytes = written_of(t) * sizeof(uint64_t);
        d->ws_bytes = t->model->train_ws_bytes;
        if (!c->builds && sim_below(3) == 0) /* other kernels than the first has chosen */
            d->ws_bytes += DEV_BLOCK;
    }
    if (c->why.rc == SH_OK) {
        d->steps = t->steps;
        d->batch = t->batch;
        d->table = text = table(t->model);
        if (c->builds)
            fill_state(t, &state);
        w->train = t;
    } else {
        free(t);
    }
    worker__send(w, &r, &state.fd, state.fd >= 0 ? 1 : 0);
    sh_shm_fini(&state);
    free(text);
    free(c);
    worker__done(w);
}

static void read_spec(struct worker_train *t, const char *text)
{
    json_t *json = NULL;
    struct train_spec spec;
    struct sh_err err = {0};

    if (sh_json_parse(text, strlen(text), SPEC_MAX, &json, &err) ||
        train_spec_read(json, &spec, &err))
        sim_broken("worker-protocol", "WK_TRAIN has a spec that is none: %s", err.msg);
    t->steps = spec.steps;
    t->by_loss = spec.evaluation.best == TRAIN_BY_LOSS;
    t->batch = (uint32_t)spec.batch;
    json_decref(json);
}

void worker__on_train(struct sim_worker *w, const struct msg_wk_train *m, const int *fds,
                      size_t n_fds)
{
    struct compiling *c = calloc(1, sizeof(*c));
    struct worker_train *t = calloc(1, sizeof(*t));

    WORKER_CHECK(n_fds == 3 || n_fds == 4, "WK_TRAIN came with %zu descriptors", n_fds);
    worker__drop_train(w, -1);
    if (!c || !t)
        abort();
    *c = (struct compiling){.t = t, .job = m->job, .turn = m->turn, .builds = m->build != 0};
    t->job = m->job;
    t->evaluated_step = -1;
    WORKER_CHECK(sim_package_read(fds[0], &t->package), "WK_TRAIN came without a package");
    t->model = sim_profile_model(w->profile, t->package.model);
    WORKER_CHECK(t->model && t->model->n_ops, "the profile cannot train %s", t->package.model);
    read_spec(t, m->spec);
    if (worker__fault(sim_worker_faults.refuse))
        SH_FAIL(&c->why, SH_E_UNSUPPORTED, "the simulated worker does not train it");
    else if (t->model->state_bytes + t->model->train_ws_bytes > w->arena_bytes)
        SH_FAIL(&c->why, SH_E_TOOBIG, "the job does not fit into the simulated device");
    worker__after(w, t->model->train_compile_ns, on_compiled, (uint64_t)(uintptr_t)c);
}

/* ------------------------------------------------------------------ what it finds */

static uint64_t *state_of(const struct sim_worker *w)
{
    const struct worker_train *t = w->train;
    char *p = sim_device_at(w->device, t->go.state_off, t->model->state_bytes);

    TRAIN_CHECK(p, "job %" PRId64 ": its state lies outside of the arena", t->job);
    return (uint64_t *)(void *)p;
}

static uint64_t *workspace_of(const struct sim_worker *w)
{
    const struct worker_train *t = w->train;
    char *p = sim_device_at(w->device, t->go.ws_off, t->model->train_ws_bytes);

    TRAIN_CHECK(p, "job %" PRId64 ": its workspace lies outside of the arena", t->job);
    return (uint64_t *)(void *)p;
}

/* Words of the state that an operation of the update changes. */
static size_t piece(const struct worker_train *t, uint32_t op)
{
    return written_of(t) * (op - t->model->update) / (t->model->n_ops - t->model->update);
}

static void check_state(const struct sim_worker *w, size_t from, size_t to, int64_t step)
{
    const struct worker_train *t = w->train;
    const uint64_t *at = state_of(w);
    const size_t i =
        from + sim_state_look(t->package.tenant, t->job, step, at + from, from, to - from);

    TRAIN_CHECK(i == to,
                "job %" PRId64 ": word %zu of its state is %016llx (step %" PRId64
                ") and not of step %" PRId64 " (operation %u)",
                t->job, i, (unsigned long long)at[i], sim_state_step(at[i]), step, t->op);
}

/* Up to this operation of its update. */
static void check_whole_state(const struct sim_worker *w)
{
    const struct worker_train *t = w->train;
    const size_t written = written_of(t);
    const size_t done = t->op > t->model->update ? piece(t, t->op) : 0;

    check_state(w, 0, done, t->step + 1);
    check_state(w, done, written, t->step);
    check_state(w, written, words_of(t), SIM_FIXED);
}

static uint64_t mark_of(const struct worker_train *t, uint32_t op)
{
    return sim_word(t->package.tenant, SIM_WORK,
                    sim_mix((uint64_t)t->job << 32 | (uint64_t)t->step, op));
}

static void check_marks(const struct sim_worker *w)
{
    const struct worker_train *t = w->train;
    const uint64_t *at = workspace_of(w);
    const size_t words = t->model->train_ws_bytes / sizeof(*at);

    for (uint32_t op = 0; op < t->op; op++)
        TRAIN_CHECK(at[(op * 977u) % words] == mark_of(t, op),
                    "job %" PRId64 ": what operation %u of step %" PRId64
                    " left in the workspace is %016llx",
                    t->job, op, t->step, (unsigned long long)at[(op * 977u) % words]);
}

static void check_go(const struct sim_worker *w)
{
    const struct worker_train *t = w->train;
    const uint64_t *ws = workspace_of(w);
    size_t at = 0;

    check_whole_state(w);
    if (t->go.resume && !t->go.evaluate)
        check_marks(w);
    TRAIN_CHECK(sim_is_of(t->package.tenant, ws, t->model->train_ws_bytes, &at),
                "job %" PRId64 " of tenant %u finds %016llx of another one in its workspace",
                t->job, t->package.tenant, (unsigned long long)ws[at]);
}

/* ------------------------------------------------------------------ what it says */

static void send_losses(struct sim_worker *w)
{
    struct worker_train *t = w->train;
    struct sh_msg m = {.type = MSG_WK_TRAIN_LOSSES};

    if (t->n_losses == 0)
        return;
    m.u.wk_train_losses =
        (struct msg_wk_train_losses){.job = t->job,
                                     .first_step = t->losses_first,
                                     .losses = {t->losses, t->n_losses * sizeof(t->losses[0])}};
    t->n_losses = 0;
    t->losses_sent_ns = sh_clock_ns();
    worker__send(w, &m, NULL, 0);
}

static void publish(struct sim_worker *w)
{
    struct worker_train *t = w->train;
    uint64_t bits;

    if (t->unsaid == 0)
        return;
    memcpy(&bits, &t->loss, sizeof(bits));
    atomic_store(&w->ctl->loss_bits, bits);
    atomic_store(&w->ctl->step, t->unsaid);
    if (t->n_losses == 0)
        t->losses_first = t->unsaid - 1;
    t->losses[t->n_losses++] = t->loss;
    t->unsaid = 0;
    if (t->n_losses == LOSSES_MAX || sh_clock_ns() - t->losses_sent_ns > LOSSES_EVERY_NS)
        send_losses(w);
}

static enum msg_train_at where(const struct worker_train *t)
{
    if (t->step >= t->steps)
        return MSG_TRAIN_AT_END;
    if (t->op > t->model->update)
        return MSG_TRAIN_AT_UPDATE;
    return t->op > 0 || t->is_loaded ? MSG_TRAIN_AT_STEP : MSG_TRAIN_AT_BOUNDARY;
}

static void answer(struct sim_worker *w)
{
    struct worker_train *t = w->train;
    const uint32_t stop = atomic_load(&w->ctl->stop);
    struct sh_msg r = {.type = MSG_WK_TRAIN_STOPPED};

    publish(w);
    send_losses(w);
    r.u.wk_train_stopped = (struct msg_wk_train_stopped){.job = t->job,
                                                         .turn = t->go.turn,
                                                         .step = t->step,
                                                         .at = where(t),
                                                         .op = t->op,
                                                         .rc = t->why.rc,
                                                         .msg = t->why.msg};
    atomic_store(&w->ctl->stop_drained_ns, sh_clock_ns());
    atomic_store(&w->ctl->stop_ack, stop);
    worker__send(w, &r, NULL, 0);
    worker__done(w);
}

/* ------------------------------------------------------------------ steps */

static bool must_stop(const struct sim_worker *w, bool in_update)
{
    const struct worker_ctl *c = w->ctl;

    if (atomic_load(&c->stop) == atomic_load(&c->stop_ack))
        return false;
    return !in_update || !atomic_load(&c->stop_finish);
}

static void ask_checkpoint(struct sim_worker *w, uint32_t wanted)
{
    struct worker_train *t = w->train;
    struct sh_msg m = {.type = MSG_WK_TRAIN_CKPT};

    t->ckpt_pending = true;
    m.u.wk_train_ckpt = (struct msg_wk_train_ckpt){.job = t->job,
                                                   .step = t->step,
                                                   .ticket_slot = w->ckpt_slot,
                                                   .ticket_value = ++w->ckpt_value};
    atomic_store(&w->ctl->ckpt_ack, wanted);
    send_losses(w);
    worker__send(w, &m, NULL, 0);
}

static void commit(struct sim_worker *w)
{
    struct worker_train *t = w->train;
    const uint32_t wanted = atomic_load(&w->ctl->ckpt_wanted);
    const bool has_ckpt = wanted != atomic_load(&w->ctl->ckpt_ack);

    t->step++;
    t->op = 0;
    t->is_loaded = false;
    t->unsaid = t->step;
    if (w->is_queued && !has_ckpt)
        return; /* the device is not waited for */
    publish(w);
    if (has_ckpt)
        ask_checkpoint(w, wanted);
}

static void go_on(struct sim_worker *w);

static void update_piece(struct sim_worker *w)
{
    const struct worker_train *t = w->train;
    const size_t from = piece(t, t->op), to = piece(t, t->op + 1);

    check_state(w, from, to, t->step);
    sim_state_fill(t->package.tenant, t->job, t->step + 1, state_of(w) + from, from, to - from);
}

static void on_op(void *arg, uint64_t op)
{
    struct sim_worker *w = arg;
    struct worker_train *t = w->train;
    uint64_t *ws = workspace_of(w);

    if (op >= t->model->update)
        update_piece(w);
    ws[((uint32_t)op * 977u) % (t->model->train_ws_bytes / sizeof(*ws))] = mark_of(t, (uint32_t)op);
    t->op++;
    if (t->op == t->model->n_ops) {
        check_marks(w);
        commit(w);
    }
    go_on(w);
}

static void on_poll(void *arg, uint64_t n)
{
    (void)n;
    go_on(arg);
}

/* On the threshold of the update. True: it goes on. */
static bool before_update(struct sim_worker *w)
{
    struct worker_train *t = w->train;

    publish(w);
    t->loss = 1.0 / (double)(t->step + 2);
    if (worker__fault(sim_worker_faults.nan)) {
        SH_FAIL(&t->why, SH_E_NAN, "the loss of step %" PRId64 " is not a finite number",
                t->step + 1);
        answer(w);
        return false;
    }
    if (t->ckpt_pending && sim_device_has(w->device, w->ckpt_slot, w->ckpt_value))
        t->ckpt_pending = false;
    if (!t->ckpt_pending)
        return true;
    if (!t->ckpt_since_ns)
        t->ckpt_since_ns = sh_clock_ns();
    if (must_stop(w, false)) {
        answer(w);
    } else if (sh_clock_ns() - t->ckpt_since_ns > WORKER_TICKET_NS) {
        SH_FAIL(&t->why, SH_E_TIMEOUT, "the state of a checkpoint did not leave the device");
        answer(w);
    } else {
        sim_after(w->proc, POLL_NS, on_poll, w, 0);
    }
    return false;
}

/* The next operation, or the end. */
static void go_on(struct sim_worker *w)
{
    struct worker_train *t = w->train;
    const int64_t until = t->go.until ? t->go.until : t->steps;

    if (t->step >= SH_MIN(t->steps, until) || must_stop(w, t->op > t->model->update)) {
        answer(w);
        return;
    }
    if (!t->is_loaded) {
        t->is_loaded = true;
        check_whole_state(w);
        worker__after(w, LOAD_NS, on_poll, 0);
        return;
    }
    if (t->op == t->model->update) {
        if (!before_update(w))
            return;
        t->ckpt_since_ns = 0;
    }
    worker__after(w, t->model->op_ns[t->op], on_op, t->op);
}

/* ------------------------------------------------------------------ evaluation */

static void say_evaluated(struct sim_worker *w)
{
    struct worker_train *t = w->train;
    struct sh_msg m = {.type = MSG_WK_TRAIN_EVAL};
    /* Up and down, so that a best one and patience have something to do; of the step alone. */
    const bool is_nan = worker__fault(sim_worker_faults.nan);
    const double wave = (double)(sim_mix((uint64_t)t->job, (uint64_t)t->step) % 1000) / 1000;

    m.u.wk_train_eval = (struct msg_wk_train_eval){.job = t->job,
                                                   .step = t->go.step,
                                                   .n_samples = N_EVALUATIONS * t->batch,
                                                   .loss = is_nan ? NAN : 1 + wave,
                                                   .accuracy = is_nan || t->by_loss ? NAN : wave,
                                                   .top5 = NAN,
                                                   .f1 = NAN,
                                                   .perplexity = NAN};
    t->evaluated_step = -1;
    worker__send(w, &m, NULL, 0);
}

static void evaluate_next(void *arg, uint64_t n)
{
    struct sim_worker *w = arg;
    struct worker_train *t = w->train;

    (void)n;
    check_whole_state(w);
    if (t->n_evaluated == N_EVALUATIONS) {
        say_evaluated(w);
        answer(w);
    } else if (must_stop(w, false)) {
        answer(w);
    } else {
        t->n_evaluated++;
        workspace_of(w)[t->n_evaluated] = mark_of(t, t->n_evaluated);
        worker__after(w, t->model->op_ns[0], evaluate_next, 0);
    }
}

static void on_state(void *arg, uint64_t n)
{
    struct sim_worker *w = arg;
    struct worker_train *t = w->train;

    (void)n;
    if (w->waited_long) {
        SH_FAIL(&t->why, SH_E_TIMEOUT, "the state did not come");
        answer(w);
        return;
    }
    check_go(w);
    if (!t->go.evaluate) {
        go_on(w);
        return;
    }
    WORKER_CHECK(t->op == 0 && !t->is_loaded, "WK_TRAIN_GO evaluates what it cannot");
    if (t->evaluated_step != t->go.step)
        t->n_evaluated = 0;
    t->evaluated_step = t->go.step;
    evaluate_next(w, 0);
}

/* Of a precision whose gradients are scaled. */
static void set_scale(struct sim_worker *w)
{
    const double scale = 1024;
    uint64_t bits;

    memcpy(&bits, &scale, sizeof(bits));
    atomic_store(&w->ctl->scale_bits, bits);
}

void worker__on_go(struct sim_worker *w, const struct msg_wk_train_go *m)
{
    struct worker_train *t = w->train;

    WORKER_CHECK(t && t->job == m->job, "WK_TRAIN_GO for job %" PRId64 ", which is not here",
                 m->job);
    if (t->job % 2)
        set_scale(w);
    t->go = *m;
    t->step = m->step;
    t->why = (struct sh_err){0};
    t->ckpt_since_ns = 0;
    if (!m->resume) {
        t->op = 0;
        t->is_loaded = false;
    }
    if (!m->evaluate)
        t->evaluated_step = -1;
    worker__when(w, m->ticket_slot, m->ticket_value, on_state);
}
