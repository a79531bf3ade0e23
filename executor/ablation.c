/* ablation.c - see ablation.h. */
#include "executor/ablation.h"

#include "common/log.h"
#include "common/mem.h"
#include "executor/hooks.h"
#include "executor/runs/switch_int.h"
#include "executor/training/train.h"

#include <stdlib.h>

static const char *const NAME[ABLATION_N] = {
    [ABLATION_NONE] = "none",
    [ABLATION_NO_DAEMON] = "no-daemon",
    [ABLATION_IPC] = "ipc",
    [ABLATION_PAGEABLE] = "pageable",
    [ABLATION_ONE_PROCESS] = "one-process",
    [ABLATION_TWO_PROCESSES] = "two-processes",
    [ABLATION_NEW_PROCESS] = "new-process",
};

/* ------------------------------------------------------------------ the list */

static int add_step(struct exec *x, const char *name, struct sh_err *err)
{
    struct ablations *a = &x->ablations;
    enum tx_mode mode = x->mode;
    int what = ABLATION_NONE;

    if (a->n_steps == ABLATION_MAX_STEPS)
        return SH_FAIL(err, SH_E_TOOBIG, "debug-ablation names more than %d steps",
                       ABLATION_MAX_STEPS);
    if (tx_mode_parse(name, &mode, NULL)) {
        while (what < ABLATION_N && strcmp(name, NAME[what]) != 0)
            what++;
        if (what == ABLATION_N)
            return SH_FAIL(err, SH_E_INVALID,
                           "debug-ablation \"%.32s\" is unknown; use none, no-daemon, ipc, "
                           "pageable, one-process, two-processes, new-process, or a switch-mode",
                           name);
    }
    a->steps[a->n_steps].what = (enum ablation)what;
    a->steps[a->n_steps].mode = mode;
    a->n_steps++;
    return SH_OK;
}

void ablation_step(struct exec *x)
{
    x->ablations.must_step = x->ablations.n_steps > 1;
}

static bool is_per_run(enum ablation a)
{
    return a == ABLATION_TWO_PROCESSES || a == ABLATION_NEW_PROCESS;
}

static void lock_images(struct exec *x, bool lock)
{
    for (struct model *m = store_next(x->store, NULL); m; m = store_next(x->store, m)) {
        struct sh_err err = {0};

        if (!m->has_image || m->is_locked == lock)
            continue;
        if (!lock)
            dev_mem_host_unlock(x->mem, m->image.base);
        else if (dev_mem_host_lock(x->mem, m->image.base, m->image.bytes, &err))
            sh_log_err(SH_LOG_ERROR, "ablation.lock", &err);
        m->is_locked = lock && !err.rc;
    }
}

static bool images_travel(struct exec *x)
{
    for (struct model *m = store_next(x->store, NULL); m; m = store_next(x->store, m))
        if (tx_image_busy(&m->tx))
            return true;
    return false;
}

static void before_run(struct exec *x)
{
    struct ablations *a = &x->ablations;

    if (!a->must_step || images_travel(x))
        return;
    a->must_step = false;
    a->at = (a->at + 1) % a->n_steps;
    a->now = a->steps[a->at].what;
    a->cleaned = NULL;
    tx_set_mode(x->tx, a->steps[a->at].mode);
    lock_images(x, a->now != ABLATION_PAGEABLE);
    for (size_t i = 0; !is_per_run(a->now) && i < pool_size(x->pool); i++) {
        struct worker *w = pool_at(x->pool, i);

        if (w->is_for_one && !w->is_held)
            worker_kill(w, "one-run"); /* it would refuse other batches */
        w->is_for_one = false;
        if (w->is_held)
            pool_release(w);
    }
    SH_INFO("ablation.step", "now=%s mode=%s", NAME[a->now], tx_mode_name(a->steps[a->at].mode));
}

/* ------------------------------------------------------------------ which worker, and when */

static bool frees_worker(const struct exec *x, const struct model *m)
{
    struct worker *trainer = train_worker(x->train);

    if (x->ablations.now == ABLATION_ONE_PROCESS)
        return trainer && worker_is_alive(trainer) && worker_has_model(trainer, m->handle);
    for (size_t i = 0; is_per_run(x->ablations.now) && i < pool_size(x->pool); i++)
        if (pool_at(x->pool, i)->is_held)
            return true;
    return false;
}

static bool may_run(const struct worker *w)
{
    const struct ablations *a = &w->x->ablations;

    return a->now != ABLATION_ONE_PROCESS || !a->cleaned || a->cleaned == w;
}

static void finds_no_worker(struct exec *x)
{
    struct worker *held = NULL;

    if (!is_per_run(x->ablations.now))
        return;
    for (size_t i = 0; i < pool_size(x->pool); i++) {
        struct worker *w = pool_at(x->pool, i);

        if (w->is_held)
            held = w;
        else if (w->state == WORKER_STARTING)
            return; /* one is on its way */
    }
    if (held)
        pool_release(held);
}

static bool wants_swap(struct exec *x)
{
    if (x->ablations.now != ABLATION_ONE_PROCESS)
        return false;
    x->ablations.cleaned = train_worker(x->train);
    return true;
}

static void has_swapped(struct exec *x)
{
    struct worker *w = x->ablations.cleaned;
    struct sh_msg m = {.type = MSG_WK_TRAIN_DROP};

    if (x->ablations.now != ABLATION_ONE_PROCESS || !w || !w->job)
        return;
    m.u.wk_train_drop.job = w->job;
    worker_send(w, &m, NULL, 0);
    w->job = 0;
}

static void on_run_done(struct worker *w)
{
    if (is_per_run(w->x->ablations.now)) {
        w->is_for_one = true;
        worker_kill(w, "one-run");
    }
}

static int64_t restart_ns(struct worker *w, int64_t wait_ns)
{
    if (!w->is_for_one)
        return wait_ns;
    w->is_held = true;
    return w->x->ablations.now == ABLATION_NEW_PROCESS ? -1 : 0;
}

/* ------------------------------------------------------------------ a run in memory of its own */

/* As if nothing of the image were there, which is so: the same groups as the executor's copies. */
static int make_groups(const struct run *r, struct msg_group **out, size_t *n_out,
                       struct sh_err *err)
{
    const struct model *m = r->model;
    uint64_t *missing = calloc(m->n_layers + 1u, sizeof(*missing));
    const double *layer_ns = NULL;
    uint32_t *ends = NULL, n = 0;
    int rc = SH_OK;

    if (!missing)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the grouping");
    for (uint32_t i = 0; i < m->n_layers; i++)
        missing[i] = m->layer_ends[i] - (i ? m->layer_ends[i - 1] : 0);
    model_batch(m, r->batch, &layer_ns);
    rc = tx_group(r->x->ablations.steps[r->x->ablations.at].mode, tx_alpha_ns(r->x->tx),
                  tx_beta_ns(r->x->tx), missing, layer_ns, m->n_layers, &ends, &n, err);
    if (!rc && !(*out = calloc(n, sizeof(**out))))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate %u groups", n);
    for (uint32_t i = 0; !rc && i < n; i++)
        (*out)[i] = (struct msg_group){.end_layer = ends[i], .ticket_slot = TX_NO_TICKET};
    *n_out = n;
    free(missing);
    free(ends);
    return rc;
}

static void fill_run(const struct run *r, struct msg_wk_run *m, struct hook_send *out)
{
    struct sh_err err = {0};
    size_t n = 0;
    int rc = SH_OK;

    *out = (struct hook_send){.n_fds = 0};
    if (r->x->ablations.now == ABLATION_IPC) {
        m->memory = MSG_RUN_MAP_ANEW;
        rc = dev_mem_export(r->x->mem, out->fds, &out->n_fds, &err);
    } else if (r->x->ablations.now == ABLATION_NO_DAEMON) {
        m->memory = MSG_RUN_PRIVATE;
        m->image_off = 0;
        m->ws_off = SH_ALIGN_UP(r->model->image_bytes, DEV_BLOCK);
        out->fds[out->n_fds++] = r->model->image.fd;
        rc = make_groups(r, &out->groups, &n, &err);
        if (!rc)
            m->groups = (struct sh_blob){out->groups, n * sizeof(*out->groups)};
    }
    if (rc) /* the run goes on: in one group, or it is refused by the worker */
        sh_log_err(SH_LOG_ERROR, "ablation.run", &err);
}

/* ------------------------------------------------------------------ hooks */

static bool locks_images(const struct exec *x)
{
    return x->ablations.now != ABLATION_PAGEABLE;
}

static bool maps_images(const struct exec *x)
{
    return x->ablations.now == ABLATION_NONE && x->ablations.n_steps == 1;
}

static bool has_memory(const struct exec *x)
{
    return x->ablations.now != ABLATION_NO_DAEMON;
}

static bool sends_inputs(const struct exec *x)
{
    return x->ablations.now == ABLATION_NONE;
}

static const struct exec_hooks HOOKS = {
    .may_run = may_run,
    .restart_ns = restart_ns,
    .locks_images = locks_images,
    .maps_images = maps_images,
    .has_memory = has_memory,
    .sends_inputs = sends_inputs,
    .before_run = before_run,
    .frees_worker = frees_worker,
    .finds_no_worker = finds_no_worker,
    .wants_swap = wants_swap,
    .has_swapped = has_swapped,
    .fill_run = fill_run,
    .on_run_done = on_run_done,
};

int ablation_parse(struct exec *x, const char *list, struct sh_err *err)
{
    struct ablations *a = &x->ablations;
    char *copy = NULL, *rest, *name;
    int rc = sh_strdup(list, &copy, err);

    if (rc)
        return rc;
    for (rest = copy; !rc && (name = strsep(&rest, ","));)
        rc = add_step(x, name, err);
    free(copy);
    if (rc)
        return rc;
    a->now = a->steps[0].what;
    if (a->n_steps > 1 || a->now != ABLATION_NONE || a->steps[0].mode != x->mode)
        x->hooks = &HOOKS;
    x->mode = a->steps[0].mode;
    return SH_OK;
}
