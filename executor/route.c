/* route.c - see route.h. */
#include "executor/route.h"

#include "executor/models/fetch.h"
#include "executor/models/tables.h"
#include "executor/requests/slabs.h"
#include "executor/runs/payload.h"
#include "executor/training/train.h"

/* ------------------------------------------------------------------ workers */

static bool on_worker_msg(void *arg, struct worker *w, const struct sh_msg *m, int *fds,
                          size_t n_fds)
{
    struct exec *x = arg;

    switch (m->type) {
    case MSG_WK_MODEL_DONE:
        store_on_model_done(x->store, w, &m->u.wk_model_done, fds, n_fds);
        return true;
    case MSG_WK_TABLES_DONE:
        store_on_tables(x->store, w, &m->u.wk_tables_done);
        return true;
    case MSG_WK_PART_FAILED:
        switch_on_part_failed(x->sw, w, &m->u.wk_part_failed);
        return true;
    case MSG_WK_RUN_DONE:
        switch_on_run_done(x->sw, w, &m->u.wk_run_done);
        return true;
    case MSG_WK_TRAIN_READY:
        train_on_ready(x->train, w, &m->u.wk_train_ready, fds, n_fds);
        return true;
    case MSG_WK_TRAIN_STOPPED:
        train_on_stopped(x->train, w, &m->u.wk_train_stopped);
        return true;
    case MSG_WK_TRAIN_LOSSES:
        train_on_losses(x->train, w, &m->u.wk_train_losses);
        return true;
    case MSG_WK_TRAIN_EVAL:
        train_on_eval(x->train, w, &m->u.wk_train_eval);
        return true;
    case MSG_WK_TRAIN_CKPT:
        train_on_ckpt(x->train, w, &m->u.wk_train_ckpt);
        return true;
    default:
        return false;
    }
}

static void on_worker_ready(void *arg, struct worker *w)
{
    struct exec *x = arg;

    slabs_greet(x->slabs, w);
}

static void on_worker_dead(void *arg, struct worker *w, int64_t preparing)
{
    struct exec *x = arg;

    payload_forget(w);
    store_on_worker_dead(x->store, preparing);
    switch_on_worker_dead(x->sw, w);
    train_on_worker_dead(x->train, w);
}

struct pool_handler route_of_workers(struct exec *x)
{
    return (struct pool_handler){
        .on_msg = on_worker_msg, .on_ready = on_worker_ready, .on_dead = on_worker_dead, .arg = x};
}

void route_api_gone(void *arg, uint64_t api_id)
{
    struct exec *x = arg;

    switch_on_api_gone(x->sw, api_id);
}

void route_image(void *arg, struct sh_wire *w, const struct msg_image_get *m)
{
    const struct exec *x = arg;

    fetch_answer(x->store, w, m);
}

/* ------------------------------------------------------------------ models ask */

static void give_up_runs(void *arg, const struct model *m, const struct sh_err *why)
{
    struct exec *x = arg;

    switch_give_up(x->sw, m, why);
}

static bool has_waiting(void *arg, const struct model *m)
{
    const struct exec *x = arg;

    return switch_has_waiting(x->sw, m);
}

static bool is_switch_quiet(void *arg)
{
    const struct exec *x = arg;

    return switch_is_quiet(x->sw);
}

static bool is_switch_idle(void *arg)
{
    struct exec *x = arg;

    return switch_is_idle(x->sw);
}

static bool wants_memory(void *arg)
{
    const struct exec *x = arg;

    return switch_wants_memory(x->sw);
}

static void pause_training(void *arg, struct worker *w)
{
    struct exec *x = arg;

    train_pause_for_compile(x->train, w);
}

static bool is_training_torn(void *arg, const struct worker *w)
{
    const struct exec *x = arg;

    return train_is_torn(x->train, w);
}

static const struct worker *trainer(void *arg)
{
    const struct exec *x = arg;

    return train_active(x->train);
}

struct store_users route_of_models(struct exec *x)
{
    return (struct store_users){.give_up = give_up_runs,
                                .has_waiting = has_waiting,
                                .is_quiet = is_switch_quiet,
                                .is_idle = is_switch_idle,
                                .wants_memory = wants_memory,
                                .pause_training = pause_training,
                                .is_torn = is_training_torn,
                                .trainer = trainer,
                                .arg = x};
}

/* ------------------------------------------------------------------ runs ask */

static void yield(void *arg, enum stop_way way)
{
    struct exec *x = arg;

    train_yield(x->train, way);
}

static bool has_yielded(void *arg, enum stop_way way)
{
    const struct exec *x = arg;

    return train_has_yielded(x->train, way);
}

static size_t ranges(void *arg, enum stop_way way, struct space_range out[static 2])
{
    const struct exec *x = arg;

    return train_ranges(x->train, way, out);
}

static struct switch_wish training_wants(void *arg)
{
    const struct exec *x = arg;

    return train_wants(x->train);
}

struct switch_rival route_of_runs(struct exec *x)
{
    return (struct switch_rival){.wants = training_wants,
                                 .yield = yield,
                                 .has_yielded = has_yielded,
                                 .ranges = ranges,
                                 .arg = x};
}
