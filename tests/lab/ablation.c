/* ablation.c - leaves out one of the things that make a switch fast (lab.h). */
#include "common/log.h"
#include "common/mem.h"
#include "executor/models/store.h"
#include "executor/pool/pool.h"
#include "executor/training/train.h"
#include "runtime/pack/layers.h"
#include "tests/lab/lab.h"

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

static int add_step(struct lab *l, const char *name, enum lab_mode mode, struct sh_err *err)
{
    int what = ABLATION_NONE;

    if (l->n_steps == LAB_MAX_STEPS)
        return SH_FAIL(err, SH_E_TOOBIG, "debug-ablation names more than %d steps", LAB_MAX_STEPS);
    if (lab_mode_parse(name, &mode, NULL)) {
        while (what < ABLATION_N && strcmp(name, NAME[what]) != 0)
            what++;
        if (what == ABLATION_N)
            return SH_FAIL(err, SH_E_INVALID,
                           "debug-ablation \"%.32s\" is unknown; use none, no-daemon, ipc, "
                           "pageable, one-process, two-processes, new-process, or a "
                           "debug-switch-mode",
                           name);
    }
    l->steps[l->n_steps].what = (enum ablation)what;
    l->steps[l->n_steps].mode = mode;
    l->n_steps++;
    return SH_OK;
}

static void hang_up(void *arg)
{
    struct lab *l = arg;

    l->must_step = l->n_steps > 1;
}

static bool is_per_run(enum ablation a)
{
    return a == ABLATION_TWO_PROCESSES || a == ABLATION_NEW_PROCESS;
}

/* Its workers copy images themselves, or end with what they have unpacked and mapped, or it takes
 * images out of page-locked memory. */
static bool needs_plain_images(enum ablation a)
{
    return a != ABLATION_NONE && a != ABLATION_IPC;
}

static void lock_images(struct exec *x, bool lock)
{
    for (struct model *m = store_next(x->store, NULL); m; m = store_next(x->store, m)) {
        struct sh_err err = {0};

        if (!m->has_image)
            continue;
        if (!lock)
            model_unlock(m);
        else if (model_lock(m, &err))
            sh_log_err(SH_LOG_ERROR, "ablation.lock", &err);
    }
}

static bool images_travel(struct exec *x)
{
    for (struct model *m = store_next(x->store, NULL); m; m = store_next(x->store, m))
        if (tx_image_busy(&m->tx))
            return true;
    return false;
}

/* Lets a worker that is held start now: its process, or with another WK_INIT what it waits for. */
static void release(struct lab *l, struct worker *w)
{
    struct sh_err err = {0};

    l->workers[w->index].is_held = false;
    if (w->state == WORKER_DEAD) {
        sh_timer_set(w->restart, 0);
    } else if (w->wire && pool_send_init(w, &err)) {
        sh_log_err(SH_LOG_ERROR, "worker.spawn", &err);
        worker_kill(w, WORKER_KILL_SOCKET);
    }
}

static void before_run(void *arg)
{
    struct lab *l = arg;

    if (!l->must_step || images_travel(l->x))
        return;
    l->must_step = false;
    l->at = (l->at + 1) % l->n_steps;
    l->now = l->steps[l->at].what;
    l->cleaned = NULL;
    lab_set_mode(l->x->tx, l->steps[l->at].mode);
    lock_images(l->x, l->now != ABLATION_PAGEABLE);
    for (size_t i = 0; !is_per_run(l->now) && i < pool_size(l->x->pool); i++) {
        struct worker *w = pool_at(l->x->pool, i);

        if (l->workers[i].is_for_one && !l->workers[i].is_held)
            worker_kill(w, WORKER_KILL_ONE_RUN); /* it would refuse other batches */
        l->workers[i].is_for_one = false;
        if (l->workers[i].is_held)
            release(l, w);
    }
    SH_INFO("ablation.step", "now=%s mode=%s", NAME[l->now], lab_mode_name(l->steps[l->at].mode));
}

/* ------------------------------------------------------------------ which worker, and when */

static bool frees_worker(void *arg, const struct model *m)
{
    const struct lab *l = arg;
    struct worker *trainer = train_worker(l->x->train);

    if (l->now == ABLATION_ONE_PROCESS)
        return trainer && worker_is_alive(trainer) && worker_has_model(trainer, m->handle);
    for (size_t i = 0; is_per_run(l->now) && i < pool_size(l->x->pool); i++)
        if (l->workers[i].is_held)
            return true;
    return false;
}

static bool may_run(void *arg, const struct worker *w)
{
    const struct lab *l = arg;

    return l->now != ABLATION_ONE_PROCESS || !l->cleaned || l->cleaned == w;
}

static bool is_held(void *arg, const struct worker *w)
{
    const struct lab *l = arg;

    return l->workers[w->index].is_held;
}

static void fill_init(void *arg, const struct worker *w, struct msg_wk_init *m)
{
    const struct lab *l = arg;

    m->hold = l->workers[w->index].is_held;
    m->for_one = l->workers[w->index].is_for_one;
}

static void finds_no_worker(void *arg)
{
    struct lab *l = arg;
    struct worker *held = NULL;

    if (!is_per_run(l->now))
        return;
    for (size_t i = 0; i < pool_size(l->x->pool); i++) {
        if (l->workers[i].is_held)
            held = pool_at(l->x->pool, i);
        else if (pool_at(l->x->pool, i)->state == WORKER_STARTING)
            return; /* one is on its way */
    }
    if (held)
        release(l, held);
}

static bool wants_swap(void *arg)
{
    struct lab *l = arg;

    if (l->now != ABLATION_ONE_PROCESS)
        return false;
    l->cleaned = train_worker(l->x->train);
    return true;
}

static void has_swapped(void *arg)
{
    const struct lab *l = arg;
    struct worker *w = l->cleaned;

    if (l->now == ABLATION_ONE_PROCESS && w)
        worker_drop_job(w, w->job);
}

static void on_run_done(void *arg, struct worker *w)
{
    struct lab *l = arg;

    if (is_per_run(l->now)) {
        l->workers[w->index].is_for_one = true;
        worker_kill(w, WORKER_KILL_ONE_RUN);
    }
}

static int64_t restart_ns(void *arg, struct worker *w, int64_t wait_ns)
{
    struct lab *l = arg;

    if (!l->workers[w->index].is_for_one)
        return wait_ns;
    l->workers[w->index].is_held = true;
    return l->now == ABLATION_NEW_PROCESS ? -1 : 0;
}

/* ------------------------------------------------------------------ a run in memory of its own */

/* As if nothing of the image were there, which is so: the same groups as the executor's copies. */
static int make_groups(const struct lab *l, const struct model *m, uint32_t batch,
                       struct msg_group **out, size_t *n_out, struct sh_err *err)
{
    const enum lab_mode mode = l->steps[l->at].mode;
    uint64_t *missing = calloc(m->n_layers + 1u, sizeof(*missing));
    const struct links_way link = {tx_alpha_ns(l->x->tx), tx_beta_ns(l->x->tx)};
    const double *layer_ns = NULL;
    uint32_t *ends = NULL, n = 0;
    int rc = SH_OK;

    if (!missing)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the grouping");
    for (uint32_t i = 0; i < m->n_layers; i++)
        missing[i] = layer_bytes(m->layer_ends, i);
    model_batch(m, batch, &layer_ns);
    if (mode == LAB_OPTIMUM)
        rc = tx_group(&link, 1, missing, layer_ns, m->n_layers, &ends, &n, err);
    else
        rc = lab_group(mode, missing, m->n_layers, &ends, &n, err);
    if (!rc && !(*out = calloc(n, sizeof(**out))))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate %u groups", n);
    for (uint32_t i = 0; !rc && i < n; i++)
        (*out)[i] = (struct msg_group){.end_layer = ends[i], .ticket_slot = TX_NO_TICKET};
    *n_out = n;
    free(missing);
    free(ends);
    return rc;
}

static void fill_run(void *arg, const struct model *model, struct msg_wk_run *m,
                     struct hook_send *out)
{
    const struct lab *l = arg;
    struct sh_err err = {0};
    size_t n = 0;
    int rc = SH_OK;

    *out = (struct hook_send){.n_fds = 0};
    if (l->now == ABLATION_IPC) {
        m->memory = MSG_RUN_MAP_ANEW;
        rc = dev_mem_export(l->x->mem, out->fds, &out->n_fds, &err);
    } else if (l->now == ABLATION_NO_DAEMON) {
        m->memory = MSG_RUN_PRIVATE;
        m->image_off = 0;
        m->ws_off = SH_ALIGN_UP(model->image_bytes, DEV_BLOCK);
        out->fds[out->n_fds++] = model->image.fd;
        rc = make_groups(l, model, m->batch, &out->groups, &n, &err);
        if (!rc)
            m->groups = (struct sh_blob){out->groups, n * sizeof(*out->groups)};
    }
    if (rc) /* the run goes on: in one group, or it is refused by the worker */
        sh_log_err(SH_LOG_ERROR, "ablation.run", &err);
}

/* ------------------------------------------------------------------ hooks */

static bool locks_images(void *arg)
{
    const struct lab *l = arg;

    return l->now != ABLATION_PAGEABLE;
}

/* As in a release: packed, with tables that are read in place. An image is made once, for all steps
 * of the list. */
static bool maps_images(void *arg)
{
    const struct lab *l = arg;
    size_t i = 0;

    while (i < l->n_steps && !needs_plain_images(l->steps[i].what))
        i++;
    return i == l->n_steps;
}

static bool has_memory(void *arg)
{
    const struct lab *l = arg;

    return l->now != ABLATION_NO_DAEMON;
}

static bool sends_inputs(void *arg)
{
    const struct lab *l = arg;

    return l->now == ABLATION_NONE;
}

void ablation_fill(struct exec_hooks *h)
{
    h->hang_up = hang_up;
    h->pool.may_run = may_run;
    h->pool.is_held = is_held;
    h->pool.fill_init = fill_init;
    h->pool.restart_ns = restart_ns;
    h->models.locks_images = locks_images;
    h->models.maps_images = maps_images;
    h->models.has_memory = has_memory;
    h->runs.has_memory = has_memory;
    h->runs.sends_inputs = sends_inputs;
    h->runs.before_run = before_run;
    h->runs.frees_worker = frees_worker;
    h->runs.finds_no_worker = finds_no_worker;
    h->runs.wants_swap = wants_swap;
    h->runs.has_swapped = has_swapped;
    h->runs.fill_run = fill_run;
    h->runs.on_run_done = on_run_done;
}

int ablation_parse(struct lab *l, const char *list, enum lab_mode mode, struct sh_err *err)
{
    char *copy = NULL, *rest, *name;
    int rc = sh_strdup(list, &copy, err);

    if (rc)
        return rc;
    for (rest = copy; !rc && (name = strsep(&rest, ","));)
        rc = add_step(l, name, mode, err);
    free(copy);
    l->now = l->steps[0].what;
    return rc;
}
