/* train.c - one training job in this worker: compile, run, stop between operations, commit.
 *
 * A step is the program's whole list of operations. It commits when the last one is done: only then
 * does `step` in the control page grow. A device with a queue need not wait for that; there it
 * grows as late as the loss of the next step.
 *
 * Nothing changes the state before program_update_begin(), so until then a step can be dropped
 * without a trace; after it, it can only be paused or finished (executor/pool/worker_ctl.h). Two
 * things happen at that point. The loss is read, and one that is not a number ends the job with the
 * state of the last commit intact; it has been on its way since the end of the forward pass, so the
 * device need not have finished the backward pass. And the host waits for a checkpoint that is
 * still being copied from the device; a stop ends the wait, and the copy goes on.
 */
#include "common/clock.h"
#include "common/importer.h"
#include "common/json.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/units.h"
#include "executor/worker/evaluate.h"
#include "executor/worker/portion.h"
#include "executor/worker/worker.h"
#include "runtime/model/package.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#define SPEC_MAX_BYTES (1u << 20)
#define LOSSES_MAX 256
#define LOSSES_EVERY_NS SH_MS(200)
#define CKPT_POLL_NS SH_US(20)

struct wk_train {
    int64_t job;
    struct graph *graph;
    struct program *program;
    struct data *data;
    struct evaluation *evaluation; /* NULL: there is none between steps */
    json_t *spec_json;             /* spec borrows from it */
    struct train_spec spec;
    uint32_t op;              /* next operation of the current step */
    bool is_loaded;           /* the current step's batch is in the workspace */
    bool has_asked;           /* its loss is on its way, or there: in `arrived` */
    float arrived;            /* written by the device */
    float scaler[DEV_SCALER]; /* likewise; as before the step. op.h */
    bool has_scaler;
    size_t scaler_off; /* in the state */
    bool ckpt_pending; /* the update must wait for (ckpt_slot, ckpt_value), which has not come */
    double loss;       /* of the step that updates, or did so last */
    int64_t unsaid;    /* steps committed, when the control page does not say so yet; else 0 */
    double *op_ns;     /* OWNED f64[n_ops]: what each operation takes; zeros: not known */
    bool has_op_ns;
    struct portions portions;
    double losses[LOSSES_MAX];
    int64_t losses_first; /* step of losses[0] */
    size_t n_losses;
    int64_t losses_sent_ns;
};

static void free_train(struct wk_train *t)
{
    if (!t)
        return;
    evaluation_close(t->evaluation);
    program_free(t->program);
    graph_free(t->graph);
    data_close(t->data);
    json_decref(t->spec_json);
    free(t->op_ns);
    free(t);
}

void train_on_drop(struct worker *w, int64_t job)
{
    if (!w->train || (job >= 0 && w->train->job != job))
        return;
    free_train(w->train);
    w->train = NULL;
}

#define N_LONGEST 5

/* An operation that has begun goes on to its end: the longest ones say how late a stop may be. */
static void log_longest(const struct wk_train *t)
{
    uint32_t top[N_LONGEST], n_top = 0;
    double sum = 0;

    for (uint32_t i = 0; i < program_n_ops(t->program); i++) {
        uint32_t at = n_top;

        sum += t->op_ns[i];
        for (; at > 0 && t->op_ns[top[at - 1]] < t->op_ns[i]; at--)
            if (at < N_LONGEST)
                top[at] = top[at - 1];
        if (at < N_LONGEST)
            top[at] = i;
        n_top = SH_MIN(n_top + 1, (uint32_t)N_LONGEST);
    }
    for (uint32_t i = 0; i < n_top; i++)
        SH_DEBUG("train.longest", "job=%" PRId64 " step_us=%.0f op=%u us=%.1f name=\"%s\"", t->job,
                 sum / 1e3, top[i], t->op_ns[top[i]] / 1e3, program_op_label(t->program, top[i]));
}

/* A device that cannot try the program out is still good for it; only the first step is slower. */
static int warm_training(struct wk_train *t, struct sh_err *err)
{
    uint32_t n = program_n_ops(t->program);
    struct sh_err why = {0};
    int rc;

    t->op_ns = calloc(n + 1u, sizeof(*t->op_ns));
    if (!t->op_ns)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the times of %u operations", n);
    rc = program_warm(t->program, t->op_ns, &why);
    worker_log_replay(t->program, 0, t->job);
    if (rc == SH_E_DEVLOST)
        return sh_err_copy(err, &why);
    if (rc) {
        sh_err_detail(&why, "the first step is slow, and a stop may exceed stop-bound-us");
        sh_log_err(SH_LOG_WARN, "train.warm", &why);
    }
    for (uint32_t i = 0; i < n && !rc; i++)
        t->has_op_ns |= t->op_ns[i] > 0;
    if (t->has_op_ns)
        log_longest(t);
    return SH_OK;
}

/* What the model's file leaves open is as large as in the dataset, for the whole job. */
static int take_dataset_sizes(const struct graph *g, int dataset, struct sh_sizes *out,
                              struct sh_err *err)
{
    struct sh_st *file = NULL;
    int rc = g->symbols.n ? sh_st_open_fd(dataset, &file, err) : SH_OK;

    out->n = (uint32_t)g->symbols.n;
    for (uint32_t i = 0; !rc && file && i < g->n_inputs; i++) {
        const struct graph_value *v = &g->values[g->inputs[i]];
        const struct sh_st_tensor *t = sh_st_find(file, v->name);
        struct sh_dim axes[SH_MAX_RANK];

        graph_axes(v, axes);
        if (t) /* else data_open() says what is missing */
            rc = sh_sizes_take(axes, (size_t)v->rank, t, out, err);
    }
    sh_st_close(file);
    return rc;
}

static int open_evaluation(struct worker *w, struct wk_train *t, const int *fds, size_t n_fds,
                           struct sh_err *err)
{
    const struct evaluation_conf c = {
        .dev = w->dev, .graph = t->graph, .train = &t->spec, .trained = t->program};

    if (!t->spec.evaluation.every)
        return SH_OK;
    if (n_fds < 4)
        return SH_FAIL(err, SH_E_INVALID,
                       "\"spec.evaluation\" needs an evaluation dataset, and the job names none");
    return evaluation_open(fds[3], &c, &t->evaluation, err);
}

static size_t state_bytes(const struct wk_train *t)
{
    return program_state_bytes(t->evaluation ? evaluation_program(t->evaluation) : t->program);
}

static size_t ws_bytes(const struct wk_train *t)
{
    const size_t own = data_ws_bytes(t->data);

    return t->evaluation ? SH_MAX(own, program_workspace_bytes(evaluation_program(t->evaluation)))
                         : own;
}

static int write_training_state(struct wk_train *t, void *state, struct sh_err *err)
{
    int rc = t->evaluation ? evaluation_write_state(t->evaluation, state, err) : SH_OK;

    return rc ? rc : program_write_state(t->program, state, err);
}

static int compile_training(struct worker *w, const struct msg_wk_train *m, const int *fds,
                            size_t n_fds, struct wk_train **out, struct sh_err *err)
{
    struct wk_train *t = calloc(1, sizeof(*t));
    int rc;

    *out = NULL;
    if (!t)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a training job");
    t->job = m->job;
    rc = sh_json_parse(m->spec, strlen(m->spec), SPEC_MAX_BYTES, &t->spec_json, err);
    if (!rc)
        rc = train_spec_read(t->spec_json, &t->spec, err);
    if (!rc)
        rc = package_read_fds(fds[0], fds[1], &t->graph, err);
    if (!rc && t->graph->importer != SH_IMPORTER) /* a job that waited while we were renewed */
        rc = SH_FAIL(err, SH_E_UNSUPPORTED,
                     "the model was imported by another release, which may have found other "
                     "parameters in its file; push the file again and train the new version");
    if (!rc)
        rc = data_note(fds[2], t->graph, &t->spec, err);
    if (!rc)
        rc = take_dataset_sizes(t->graph, fds[2], &t->spec.sizes, err);
    if (!rc)
        rc = program_train(w->dev, t->graph, &t->spec, &t->program, err);
    if (!rc)
        t->has_scaler = program_scaler(t->program, &t->scaler_off);
    if (!rc && t->spec.draws)
        SH_INFO("train.init", "job=%" PRId64 " drawn=%u kept=%u first_kept=\"%s\"", t->job,
                program_drawn(t->program)->drawn, program_drawn(t->program)->kept,
                program_drawn(t->program)->first_kept);
    if (!rc)
        rc = warm_training(t, err);
    if (!rc)
        rc = data_open(fds[2], t->program, &t->spec, w->dev, &t->data, err);
    if (!rc)
        rc = open_evaluation(w, t, fds, n_fds, err);
    if (!rc && t->evaluation)
        worker_log_replay(evaluation_program(t->evaluation), 0, t->job);
    if (rc) {
        free_train(t);
        return rc;
    }
    *out = t;
    return SH_OK;
}

static const char *const STATE_KIND[] = {
    [PROGRAM_STATE_PARAM] = "param",
    [PROGRAM_STATE_STAT] = "stat",
    [PROGRAM_STATE_OPTIM] = "optim",
    [PROGRAM_STATE_EMA] = "ema",
};

/* The state's layout for the executor, which writes checkpoints and knows nothing of models. */
static int state_table(const struct wk_train *t, char **out, struct sh_err *err)
{
    const struct program *p = t->program;
    json_t *table = json_array();
    int rc = SH_OK;

    for (size_t i = 0; table && i < program_n_state(p); i++) {
        const struct program_state_entry *e = program_state(p, i);
        const uint32_t v =
            e->kind == PROGRAM_STATE_PARAM ? graph_find(t->graph, e->name) : GRAPH_NONE;
        json_t *shape = json_array(), *row;

        for (uint32_t k = 0; k < e->rank; k++)
            json_array_append_new(shape, json_integer(e->dims[k]));
        row = json_pack("{s:s,s:s,s:s,s:o,s:I,s:I}", "name", e->name, "dtype", "F32", "kind",
                        STATE_KIND[e->kind], "shape", shape, "off", (json_int_t)e->offset, "bytes",
                        (json_int_t)e->bytes);
        if (v != GRAPH_NONE && t->graph->values[v].is_assumed &&
            !train_names(t->spec.frozen, e->name) &&
            !(t->graph->values[v].of && train_names(t->spec.frozen, t->graph->values[v].of)))
            json_object_set_new(row, "assumed", json_true());
        if (json_array_append_new(table, row))
            rc = SH_FAIL(err, SH_E_NOMEM, "could not describe the state");
    }
    if (!table)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not describe the state");
    if (!rc)
        rc = sh_json_dump(table, out, err);
    json_decref(table);
    return rc;
}

int train_on_train(struct worker *w, const struct msg_wk_train *m, const int *fds, size_t n_fds,
                   struct sh_err *err)
{
    struct sh_msg r = {.type = MSG_WK_TRAIN_READY};
    struct msg_wk_train_ready *d = &r.u.wk_train_ready;
    struct sh_shm state = {.fd = -1};
    struct wk_train *t = NULL;
    struct sh_err why = {0};
    char *table = NULL;
    int rc;

    if (n_fds != 3 && n_fds != 4)
        return SH_FAIL(err, SH_E_PROTO, "WK_TRAIN came with %zu descriptors, not 3 or 4", n_fds);
    train_on_drop(w, -1);
    rc = compile_training(w, m, fds, n_fds, &t, &why);
    if (!rc) /* before the state is written: that much memory may not be on the host either */
        rc = dev_check_fits(w->arena_bytes, state_bytes(t), ws_bytes(t), t->spec.batch, true, &why);
    if (!rc)
        rc = state_table(t, &table, &why);
    if (!rc && m->build)
        rc = sh_shm_create("shunt-state", SH_MAX(state_bytes(t), (size_t)1), &state, &why);
    if (!rc && m->build)
        rc = write_training_state(t, state.base, &why);
    if (rc)
        rc = worker_settle(w, &why); /* what a library could not do may be the device's end */
    *d = (struct msg_wk_train_ready){.job = m->job, .turn = m->turn, .rc = rc, .msg = why.msg};
    if (t && (!rc || rc == SH_E_TOOBIG)) {
        d->state_bytes = state_bytes(t);
        d->written_bytes = program_written_bytes(t->program);
        d->ws_bytes = ws_bytes(t);
    }
    if (!rc) {
        d->steps = data_steps(t->data);
        d->batch = (uint32_t)t->spec.batch;
        d->table = table;
        w->train = t;
        t = NULL;
    }
    if (why.rc == SH_E_DEVLOST)
        rc = sh_err_copy(err, &why);
    else
        rc = worker_send(w, &r, state.fd >= 0 ? &state.fd : NULL, state.fd >= 0 ? 1 : 0, err);
    free_train(t);
    free(table);
    sh_shm_fini(&state);
    return rc;
}

static int send_losses(struct worker *w, struct wk_train *t, struct sh_err *err)
{
    struct sh_msg m = {.type = MSG_WK_TRAIN_LOSSES};

    if (t->n_losses == 0)
        return SH_OK;
    m.u.wk_train_losses =
        (struct msg_wk_train_losses){.job = t->job,
                                     .first_step = t->losses_first,
                                     .losses = {t->losses, t->n_losses * sizeof(t->losses[0])}};
    t->n_losses = 0;
    t->losses_sent_ns = sh_clock_ns();
    return worker_send(w, &m, NULL, 0, err);
}

/* The device has done what it was given up to the last commit: says so. */
static int publish(struct worker *w, struct wk_train *t, struct sh_err *err)
{
    int64_t step = t->unsaid;
    uint64_t bits;

    if (step == 0)
        return SH_OK;
    t->unsaid = 0;
    memcpy(&bits, &t->loss, sizeof(bits));
    atomic_store(&w->ctl->loss_bits, bits);
    atomic_store(&w->ctl->step, step);
    if (t->n_losses == 0)
        t->losses_first = step - 1;
    t->losses[t->n_losses++] = t->loss;
    if (t->n_losses == LOSSES_MAX || sh_clock_ns() - t->losses_sent_ns > LOSSES_EVERY_NS)
        return send_losses(w, t, err);
    return SH_OK;
}

static int ask_scaler(struct worker *w, struct wk_train *t, const struct msg_wk_train_go *go,
                      struct sh_err *err)
{
    return t->has_scaler ? dev_download(w->dev, t->scaler, go->state_off + t->scaler_off,
                                        sizeof(t->scaler), err)
                         : SH_OK;
}

/* The device is done with what was asked. */
static void note_worker_scaler(struct worker *w, const struct wk_train *t)
{
    const double scale = (double)t->scaler[0];
    uint64_t bits;

    if (!t->has_scaler)
        return;
    memcpy(&bits, &scale, sizeof(bits));
    atomic_store(&w->ctl->scale_bits, bits);
    atomic_store(&w->ctl->skipped, (int64_t)t->scaler[2]);
}

/* Updates that are skipped one after the other do not end by themselves. */
static int check_worker_scaler(const struct wk_train *t, int64_t step, struct sh_err *err)
{
    if (!t->has_scaler || t->scaler[3] < TRAIN_MAX_SKIPPED)
        return SH_OK;
    return SH_FAIL(err, SH_E_NAN,
                   "the gradients of the last %d updates before step %" PRId64
                   " were not finite, and the loss scale is down to %g; try a smaller learning "
                   "rate, another precision or \"spec.loss_scale\"",
                   TRAIN_MAX_SKIPPED, step + 1, (double)t->scaler[0]);
}

static int ask_loss(struct worker *w, struct wk_train *t, const struct msg_wk_train_go *go,
                    struct sh_err *err)
{
    int rc = dev_download(w->dev, &t->arrived, go->ws_off + program_loss_offset(t->program),
                          sizeof(t->arrived), err);

    t->has_asked = true;
    if (!rc)
        rc = ask_scaler(w, t, go, err);
    return rc ? rc : dev_mark(w->dev, err);
}

static bool must_stop(const struct worker *w, bool in_update)
{
    if (!worker_must_stop(w))
        return false;
    return !in_update || !atomic_load(&w->ctl->stop_finish);
}

/* Until the state of the last checkpoint has left the device, or a stop is asked. */
static int wait_for_ckpt(struct worker *w, struct wk_train *t, struct sh_err *err)
{
    const struct timespec pause = {.tv_nsec = CKPT_POLL_NS};
    const int64_t end = sh_clock_ns() + SH_MS(WORKER_TICKET_TIMEOUT_MS);

    while (t->ckpt_pending && !must_stop(w, false)) {
        if (dev_has_ticket(w->dev, w->ckpt_slot, w->ckpt_value))
            t->ckpt_pending = false;
        else if (sh_clock_ns() > end)
            return SH_FAIL(err, SH_E_TIMEOUT,
                           "the state of a checkpoint did not leave the device within %d s",
                           WORKER_TICKET_TIMEOUT_MS / 1000);
        else
            nanosleep(&pause, NULL);
    }
    return SH_OK;
}

#define NO_LABELS ": a batch whose labels are all \"ignore_index\" or of weight 0 has no loss"

/* May a batch have no label that counts? */
static bool may_lack_labels(const struct train_spec *t)
{
    bool is = false;

    for (uint32_t i = 0; i < t->n_heads; i++)
        is |= t->heads[i].loss == TRAIN_LOSS_XENT;
    return is;
}

/* On the threshold of the update; see the top. Leaves ckpt_pending where a stop came first. */
static int before_update(struct worker *w, struct wk_train *t, int64_t step, struct sh_err *err)
{
    int rc = dev_sync_mark(w->dev, err);

    if (!rc)
        rc = publish(w, t, err); /* of the step before, which lies before the mark */
    if (rc)
        return rc;
    if (!isfinite(t->arrived))
        return SH_FAIL(
            err, SH_E_NAN,
            "the loss of step %" PRId64
            " is not a finite number; try a smaller learning rate, and check the data%s%s",
            step + 1, may_lack_labels(&t->spec) ? NO_LABELS : "", program_nan_hint(t->program));
    t->loss = t->arrived;
    note_worker_scaler(w, t);
    rc = check_worker_scaler(t, step, err);
    return rc ? rc : wait_for_ckpt(w, t, err);
}

static int commit_step(struct worker *w, struct wk_train *t, int64_t step, struct sh_err *err)
{
    struct worker_ctl *c = w->ctl;
    uint32_t wanted = atomic_load(&c->ckpt_wanted);
    bool has_ckpt = wanted != atomic_load(&c->ckpt_ack);
    int rc;

    t->op = 0;
    t->is_loaded = t->has_asked = false;
    t->unsaid = step;
    if (dev_is_queued(w->dev) && !has_ckpt)
        return SH_OK; /* see the top */
    rc = dev_sync(w->dev, err);
    if (!rc)
        rc = publish(w, t, err);
    if (!rc && has_ckpt) {
        struct sh_msg m = {.type = MSG_WK_TRAIN_CKPT};

        t->ckpt_pending = true;
        m.u.wk_train_ckpt = (struct msg_wk_train_ckpt){.job = t->job,
                                                       .step = step,
                                                       .ticket_slot = w->ckpt_slot,
                                                       .ticket_value = ++w->ckpt_value};
        atomic_store(&c->ckpt_ack, wanted);
        /* Steps that a checkpoint holds are not done again, so their losses must go first. */
        rc = send_losses(w, t, err);
        if (!rc)
            rc = worker_send(w, &m, NULL, 0, err);
    }
    return rc;
}

static uint32_t may_queue(const struct worker *w, struct wk_train *t, double ns)
{
    return t->has_op_ns ? portions_add(&t->portions, ns, w->stop_bound_ns) : PORTIONS_FEW;
}

/* For measurements: at debug level alone the first operations after a start are waited for, so that
 * the log can say when training went on. */
static int log_start(struct worker *w, const struct wk_train *t, int64_t step, struct sh_err *err)
{
    int rc;

    if (sh_log_get_level() < SH_LOG_DEBUG)
        return SH_OK;
    rc = dev_throttle(w->dev, 0, err);
    SH_DEBUG("train.continue", "job=%" PRId64 " step=%" PRId64 " op=%u ns=%" PRId64, t->job, step,
             t->op, sh_clock_ns());
    return rc;
}

/* Runs until a stop, the end or a failure. *step: committed steps. */
static int run_steps(struct worker *w, struct wk_train *t, const struct msg_wk_train_go *go,
                     int64_t *step, struct sh_err *err)
{
    const uint32_t n_ops = program_n_ops(t->program), update = program_update_begin(t->program);
    const uint32_t loss_end = program_loss_end(t->program);
    const int64_t steps = data_steps(t->data), until = go->until ? go->until : steps;
    bool is_first = true;

    while (*step < SH_MIN(steps, until)) {
        struct dev_bases b = {.state = go->state_off, .workspace = go->ws_off};
        double ns;
        const uint32_t end = portion_end(t->has_op_ns ? t->op_ns : NULL, t->op,
                                         t->op < update ? update : n_ops, &ns);
        int rc = SH_OK;

        program_turn(&t->spec, *step, steps, &b);
        if (portions_apart(&t->portions, ns, w->stop_bound_ns))
            rc = dev_throttle(w->dev, 0, err);
        if (rc || must_stop(w, t->op > update))
            return rc;
        if (!t->is_loaded) {
            rc = data_load(t->data, go->ws_off, *step, err);
            t->is_loaded = true;
        }
        if (!rc && !t->has_asked && t->op >= loss_end)
            rc = ask_loss(w, t, go, err);
        if (!rc && t->op == update)
            rc = before_update(w, t, *step, err);
        if (!rc && t->op == update && t->ckpt_pending)
            return SH_OK; /* told to stop meanwhile */
        if (!rc)
            rc = program_run(t->program, &b, t->op, end, err);
        if (!rc)
            rc = data_prefetch(t->data, go->ws_off, err);
        if (!rc)
            rc = dev_throttle(w->dev, may_queue(w, t, ns), err);
        if (!rc && is_first)
            rc = log_start(w, t, *step, err);
        is_first = false;
        if (rc)
            return rc;
        atomic_fetch_add(&w->ctl->progress, 1);
        t->op = end;
        if (t->op == n_ops) {
            rc = commit_step(w, t, *step + 1, err);
            if (rc)
                return rc;
            ++*step;
        }
    }
    return ask_scaler(w, t, go, err); /* as the last update left it */
}

static int answer_stopped(struct worker *w, struct wk_train *t, int64_t step, uint64_t turn,
                          const struct sh_err *why, struct sh_err *err)
{
    struct sh_msg r = {.type = MSG_WK_TRAIN_STOPPED};
    uint32_t stop = atomic_load(&w->ctl->stop), at = MSG_TRAIN_AT_BOUNDARY;

    if (step >= data_steps(t->data))
        at = MSG_TRAIN_AT_END;
    else if (t->op > program_update_begin(t->program))
        at = MSG_TRAIN_AT_UPDATE;
    else if (t->op > 0 || t->is_loaded)
        at = MSG_TRAIN_AT_STEP;
    r.u.wk_train_stopped = (struct msg_wk_train_stopped){.job = t->job,
                                                         .turn = turn,
                                                         .step = step,
                                                         .at = at,
                                                         .op = t->op,
                                                         .rc = why->rc,
                                                         .msg = why->msg};
    atomic_store(&w->ctl->stop_drained_ns, sh_clock_ns());
    atomic_store(&w->ctl->stop_ack, stop);
    return worker_send(w, &r, NULL, 0, err);
}

static int reach_training(struct worker *w, const struct wk_train *t,
                          const struct msg_wk_train_go *go, struct sh_err *err)
{
    const size_t written = go->evaluate ? 0 : program_written_bytes(t->program);
    const struct dev_reach task[] = {{go->state_off, written, true},
                                     {go->state_off + written, state_bytes(t) - written, false},
                                     {go->ws_off, ws_bytes(t), true}};

    w->has_task = true;
    return dev_task(w->dev, task, SH_ARRAY_LEN(task), err);
}

/* The state of the last commit; the workspace is left to the evaluation. */
static int evaluate_training(struct worker *w, struct wk_train *t, const struct msg_wk_train_go *go,
                             struct sh_err *err)
{
    struct sh_msg m = {.type = MSG_WK_TRAIN_EVAL};
    struct train_scores s;
    bool done;
    int rc;

    if (!t->evaluation || t->op || t->is_loaded)
        return SH_FAIL(err, SH_E_PROTO, "WK_TRAIN_GO evaluates what it cannot");
    data_forget(t->data);
    rc = evaluation_run(w, t->evaluation, go, &s, &done, err);
    if (rc || !done)
        return rc;
    m.u.wk_train_eval = (struct msg_wk_train_eval){.job = t->job,
                                                   .step = go->step,
                                                   .n_samples = s.n_samples,
                                                   .loss = s.loss,
                                                   .accuracy = s.accuracy,
                                                   .top5 = s.top5,
                                                   .f1 = s.f1,
                                                   .perplexity = s.perplexity};
    return worker_send(w, &m, NULL, 0, err);
}

int train_on_go(struct worker *w, const struct msg_wk_train_go *go, struct sh_err *err)
{
    struct wk_train *t = w->train;
    struct sh_err why = {0};
    int64_t step = go->step;
    int rc;

    if (!t || t->job != go->job)
        return SH_FAIL(err, SH_E_PROTO, "WK_TRAIN_GO for a job that was not compiled here");
    if (!go->resume) {
        t->op = 0;
        t->is_loaded = t->has_asked = false;
        data_forget(t->data);
    }
    if (!go->evaluate)
        evaluation_forget(t->evaluation);
    rc = reach_training(w, t, go, &why);
    if (!rc)
        rc = dev_wait(w->dev, go->ticket_slot, go->ticket_value, WORKER_TICKET_TIMEOUT_MS, &why);
    if (!rc)
        rc = go->evaluate ? evaluate_training(w, t, go, &why) : run_steps(w, t, go, &step, &why);
    if (worker_settle(w, &why))
        rc = why.rc;
    if (!rc)
        note_worker_scaler(w, t);
    if (rc != SH_E_DEVLOST && publish(w, t, err))
        return err->rc;
    if (send_losses(w, t, err) || answer_stopped(w, t, step, go->turn, &why, err))
        return err->rc;
    return rc == SH_E_DEVLOST ? sh_err_copy(err, &why) : SH_OK;
}
