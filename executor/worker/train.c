/* train.c - one training job in this worker: compile, run, stop between operations, commit.
 *
 * A step is the whole list of operations of the program. It commits when the last one is done: only
 * then does `step` in the control page grow. Before program_update_begin() nothing changes the
 * state, so a step can be abandoned there without a trace; from there on it can only be paused or
 * finished (executor/worker_ctl.h). Two things happen on the threshold: the loss is read, and a
 * loss that is not a number ends the job with the state of the last commit intact; and the copy of
 * a checkpoint that is still leaving the device is waited for.
 */
#include "common/clock.h"
#include "common/json.h"
#include "common/mem.h"
#include "executor/model/package.h"
#include "executor/worker/worker.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define SPEC_MAX_BYTES (1u << 20)
#define LOSSES_MAX 256
#define LOSSES_EVERY_NS 200000000
#define MAX_IN_FLIGHT 8 /* operations queued on the device: bounds the time from stop to drained */

struct wk_train {
    int64_t job;
    struct graph *graph;
    struct program *program;
    struct data *data;
    struct train_spec spec;
    uint32_t op;       /* next operation of the current step */
    bool is_loaded;    /* the current step's batch is in the workspace */
    bool ckpt_pending; /* the update must wait for (ckpt_slot, ckpt_value) */
    double loss;       /* of the current step */
    double losses[LOSSES_MAX];
    int64_t losses_first; /* step of losses[0] */
    size_t n_losses;
    int64_t losses_sent_ns;
};

static void free_train(struct wk_train *t)
{
    if (!t)
        return;
    program_free(t->program);
    graph_free(t->graph);
    data_close(t->data);
    free(t);
}

void train_on_drop(struct worker *w, int64_t job)
{
    if (!w->train || (job >= 0 && w->train->job != job))
        return;
    free_train(w->train);
    w->train = NULL;
}

static int compile(struct worker *w, const struct msg_wk_train *m, struct wk_train **out,
                   struct sh_err *err)
{
    struct wk_train *t = calloc(1, sizeof(*t));
    json_t *spec = NULL;
    int rc;

    *out = NULL;
    if (!t)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a training job");
    t->job = m->job;
    rc = sh_json_parse(m->spec, strlen(m->spec), SPEC_MAX_BYTES, &spec, err);
    if (!rc)
        rc = train_spec_read(spec, &t->spec, err);
    if (!rc)
        rc = package_read(m->package, &t->graph, err);
    if (!rc)
        rc = program_train(w->dev, t->graph, &t->spec, &t->program, err);
    if (!rc)
        rc = data_open(m->dataset, t->program, &t->spec, &t->data, err);
    json_decref(spec);
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
};

/* The state's layout for the executor, which writes checkpoints and knows nothing of models. */
static int state_table(const struct program *p, char **out, struct sh_err *err)
{
    json_t *table = json_array();
    int rc = SH_OK;

    for (size_t i = 0; table && i < program_n_state(p); i++) {
        const struct program_state_entry *e = program_state(p, i);
        json_t *shape = json_array();

        for (uint32_t k = 0; k < e->rank; k++)
            json_array_append_new(shape, json_integer(e->dims[k]));
        if (json_array_append_new(table, json_pack("{s:s,s:s,s:s,s:o,s:I,s:I}", "name", e->name,
                                                   "dtype", "F32", "kind", STATE_KIND[e->kind],
                                                   "shape", shape, "off", (json_int_t)e->offset,
                                                   "bytes", (json_int_t)e->bytes)))
            rc = SH_FAIL(err, SH_E_NOMEM, "could not describe the state");
    }
    if (!table)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not describe the state");
    if (!rc)
        rc = sh_json_dump(table, out, err);
    json_decref(table);
    return rc;
}

int train_on_train(struct worker *w, const struct msg_wk_train *m, struct sh_err *err)
{
    struct sh_msg r = {.type = MSG_WK_TRAIN_READY};
    struct msg_wk_train_ready *d = &r.u.wk_train_ready;
    struct sh_shm state = {.fd = -1};
    struct wk_train *t = NULL;
    struct sh_err why = {0};
    char *table = NULL;
    int rc;

    train_on_drop(w, -1);
    rc = compile(w, m, &t, &why);
    if (!rc)
        rc = state_table(t->program, &table, &why);
    if (!rc && m->build)
        rc = sh_shm_create("shunt-state", SH_MAX(program_state_bytes(t->program), (size_t)1),
                           &state, &why);
    if (!rc && m->build)
        rc = program_write_state(t->program, state.base, &why);
    *d = (struct msg_wk_train_ready){.job = m->job, .rc = rc, .msg = why.msg};
    if (!rc) {
        d->state_bytes = program_state_bytes(t->program);
        d->ws_bytes = program_workspace_bytes(t->program);
        d->steps = data_steps(t->data);
        d->batch = (uint32_t)t->spec.batch;
        d->table = table;
        w->train = t;
        t = NULL;
    }
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

static int note_loss(struct worker *w, struct wk_train *t, int64_t step, struct sh_err *err)
{
    if (t->n_losses == 0)
        t->losses_first = step;
    t->losses[t->n_losses++] = t->loss;
    if (t->n_losses == LOSSES_MAX || sh_clock_ns() - t->losses_sent_ns > LOSSES_EVERY_NS)
        return send_losses(w, t, err);
    return SH_OK;
}

/* On the threshold of the update; see the top. */
static int before_update(struct worker *w, struct wk_train *t, const struct msg_wk_train_go *go,
                         int64_t step, struct sh_err *err)
{
    float loss;
    int rc;

    rc = dev_download(w->dev, &loss, go->ws_off + program_loss_offset(t->program), sizeof(loss),
                      err);
    if (!rc)
        rc = dev_sync(w->dev, err);
    if (rc)
        return rc;
    if (!isfinite(loss))
        return SH_FAIL(err, SH_E_NAN,
                       "the loss of step %" PRId64
                       " is not a finite number; try a smaller learning rate, and check the data",
                       step + 1);
    t->loss = loss;
    if (t->ckpt_pending) {
        rc = dev_wait(w->dev, w->ckpt_slot, w->ckpt_value, WORKER_TICKET_TIMEOUT_MS, err);
        t->ckpt_pending = false;
    }
    return rc;
}

static int commit(struct worker *w, struct wk_train *t, int64_t step, struct sh_err *err)
{
    struct worker_ctl *c = w->ctl;
    uint32_t wanted = atomic_load(&c->ckpt_wanted);
    uint64_t bits;
    int rc = dev_sync(w->dev, err);

    if (rc)
        return rc;
    memcpy(&bits, &t->loss, sizeof(bits));
    atomic_store(&c->loss_bits, bits);
    atomic_store(&c->step, step);
    t->op = 0;
    t->is_loaded = false;
    rc = note_loss(w, t, step - 1, err);
    if (!rc && wanted != atomic_load(&c->ckpt_ack)) {
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

static bool must_stop(const struct worker *w, bool in_update)
{
    if (atomic_load(&w->ctl->stop) == atomic_load(&w->ctl->stop_ack))
        return false;
    return !in_update || !atomic_load(&w->ctl->stop_finish);
}

/* Runs until a stop, the end or a failure. *step: committed steps. */
static int run_steps(struct worker *w, struct wk_train *t, const struct msg_wk_train_go *go,
                     int64_t *step, struct sh_err *err)
{
    const uint32_t n_ops = program_n_ops(t->program), update = program_update_begin(t->program);

    while (*step < data_steps(t->data)) {
        struct dev_bases b = {.state = go->state_off, .workspace = go->ws_off, .step = *step};
        int rc = SH_OK;

        if (must_stop(w, t->op > update))
            return SH_OK;
        if (!t->is_loaded) {
            rc = data_load(t->data, w->dev, go->ws_off, *step, err);
            t->is_loaded = true;
        }
        if (!rc && t->op == update)
            rc = before_update(w, t, go, *step, err);
        if (!rc)
            rc = program_run(t->program, &b, t->op, t->op + 1, err);
        if (!rc)
            rc = dev_throttle(w->dev, MAX_IN_FLIGHT, err);
        if (rc)
            return rc;
        atomic_fetch_add(&w->ctl->progress, 1);
        if (++t->op == n_ops) {
            rc = commit(w, t, *step + 1, err);
            if (rc)
                return rc;
            ++*step;
        }
    }
    return SH_OK;
}

static int answer_stopped(struct worker *w, struct wk_train *t, int64_t step,
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
    r.u.wk_train_stopped = (struct msg_wk_train_stopped){
        .job = t->job, .step = step, .at = at, .op = t->op, .rc = why->rc, .msg = why->msg};
    atomic_store(&w->ctl->stop_drained_ns, sh_clock_ns());
    atomic_store(&w->ctl->stop_ack, stop);
    return worker_send(w, &r, NULL, 0, err);
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
        t->is_loaded = false;
    }
    rc = dev_wait(w->dev, go->ticket_slot, go->ticket_value, WORKER_TICKET_TIMEOUT_MS, &why);
    if (!rc)
        rc = run_steps(w, t, go, &step, &why);
    if (!rc)
        rc = dev_sync(w->dev, &why);
    if (send_losses(w, t, err) || answer_stopped(w, t, step, &why, err))
        return err->rc;
    return rc == SH_E_DEVLOST ? sh_err_copy(err, &why) : SH_OK;
}
