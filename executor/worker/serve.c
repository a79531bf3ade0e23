/* serve.c - a worker's start and its loop. */
#include "common/buf.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/spawn.h"
#include "common/units.h"
#include "common/wire.h"
#include "executor/worker/tables.h"
#include "executor/worker/worker.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define LET_GO_MS 20

static int start_worker(struct worker *w, const struct msg_wk_init *m, int *fds, size_t n_fds,
                        struct sh_err *err)
{
    struct sh_msg ready = {.type = MSG_WK_READY};
    char identity[WORKER_IDENTITY_BYTES];
    struct dev_conf conf = {.ordinal = m->ordinal,
                            .threads = m->threads,
                            .arena_bytes = m->arena_bytes,
                            .deterministic = m->deterministic != 0,
                            .verify_launches = m->verify_launches != 0};
    char tune[64];
    int rc = SH_OK;

    if (w->dev || n_fds < 2 || m->ticket_slot >= DEV_N_TICKETS)
        return SH_FAIL(err, SH_E_PROTO, "WK_INIT came twice or without its descriptors");
    if (!w->hooks && (m->hold || m->for_one))
        return SH_FAIL(err, SH_E_PROTO, "WK_INIT asks for what only the laboratory's worker does");
    if (m->log_level < SH_LOG_N_LEVELS)
        sh_log_set_level((enum sh_log_level)m->log_level);
    if (!w->has_init)
        rc = confine_files(w, m, err);
    w->has_init = true;
    if (!rc && !w->lib)
        rc = dev_lib_open(m->device, &w->lib, err);
    if (rc || m->hold)
        return rc;
    rc = sh_shm_map(fds[0], WORKER_CTL_BYTES, true, &w->ctl_shm, err);
    if (rc)
        return rc;
    fds[0] = -1;
    w->ctl = w->ctl_shm.base;
    w->id = m->worker;
    HOOK_TELL(w->hooks, on_init, m);
    w->ckpt_slot = m->ticket_slot;
    w->ckpt_value = m->ticket_value;
    w->stop_bound_ns = (double)m->stop_bound_us * 1e3;
    w->busy_poll_ns = SH_US(m->busy_poll_us);
    w->arena_bytes = m->arena_bytes;
    conf.fds = fds + 1;
    conf.n_fds = n_fds - 1;
    /* By its descriptor: the user that this becomes may not get through the folders above it. */
    snprintf(tune, sizeof(tune), "/proc/self/fd/%d/tune", w->kernels_fd);
    if (w->kernels_fd >= 0)
        conf.tune_path = tune;
    rc = dev_open(w->lib, &conf, &w->dev, err); /* keeps its own mapping */
    if (!rc)
        rc = dev_task(w->dev, NULL, 0, err);
    if (!rc) {
        dev_identity(w->dev, identity, sizeof(identity));
        rc = confine(w, err);
    }
    if (rc)
        return rc;
    ready.u.wk_ready = (struct msg_wk_ready){.worker = w->id,
                                             .pid = (uint32_t)getpid(),
                                             .uid = (uint32_t)geteuid(),
                                             .fences = w->fences,
                                             .why = w->unfenced,
                                             .identity = identity};
    return worker_send(w, &ready, NULL, 0, err);
}

/* The executor learns why this process ends. */
static int on_init(struct worker *w, const struct msg_wk_init *m, int *fds, size_t n_fds,
                   struct sh_err *err)
{
    struct sh_msg unfit = {.type = MSG_WK_UNFIT};
    int rc = start_worker(w, m, fds, n_fds, err);

    if (!rc)
        return rc;
    unfit.u.wk_unfit = (struct msg_wk_unfit){.rc = rc, .msg = err->msg};
    worker_send(w, &unfit, NULL, 0, NULL);
    return rc;
}

static int on_slab(struct worker *w, const struct msg_wk_slab *m, int *fd, struct sh_err *err)
{
    struct sh_err why = {0};
    struct sh_shm shm;
    int rc;

    if (worker_slab(w, m->api_id) || w->n_slabs == WORKER_MAX_SLABS)
        return SH_FAIL(err, SH_E_PROTO, "slab %llu came twice, or there are too many",
                       (unsigned long long)m->api_id);
    rc = sh_shm_map(*fd, m->bytes, true, &shm, err);
    if (rc)
        return rc;
    *fd = -1;
    w->slabs[w->n_slabs++] = (struct wk_slab){.api_id = m->api_id, .shm = shm};
    if (dev_host_lock(w->dev, shm.base, shm.bytes, &why))
        sh_log_err(SH_LOG_WARN, "slab.lock", &why); /* copies are slower, nothing else */
    return SH_OK;
}

static void on_slab_gone(struct worker *w, uint64_t api_id)
{
    struct wk_slab *s = worker_slab(w, api_id);

    if (!s)
        return;
    dev_host_unlock(w->dev, s->shm.base);
    sh_shm_fini(&s->shm);
    *s = w->slabs[--w->n_slabs];
}

/* What a message left of its descriptors. */
static void close_all(const int *fds, size_t n_fds)
{
    for (size_t i = 0; i < n_fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static int n_fds_of(const struct sh_msg *m)
{
    switch (m->type) {
    case MSG_WK_SLAB:
        return 1;
    default:
        return -1; /* any number: the handler knows */
    }
}

/* The executor does not ask for a second thing that takes long. */
static bool is_for_idle(const struct sh_msg *m)
{
    return m->type == MSG_WK_MODEL || m->type == MSG_WK_TRAIN || m->type == MSG_WK_TRAIN_GO;
}

/* What it keeps of fds it sets to -1. */
static int dispatch_msg(struct worker *w, const struct sh_msg *m, int *fds, size_t n_fds,
                        struct sh_err *err)
{
    const int want = n_fds_of(m);

    if (want >= 0 && n_fds != (size_t)want)
        return SH_FAIL(err, SH_E_PROTO, "%s came with %zu descriptors, not %d",
                       sh_msg_name(m->type), n_fds, want);
    if (m->type != MSG_WK_INIT && !w->dev)
        return SH_FAIL(err, SH_E_PROTO, "%s came before WK_INIT", sh_msg_name(m->type));
    if (w->is_loading && is_for_idle(m))
        return SH_FAIL(err, SH_E_PROTO, "%s came while a model was loaded", sh_msg_name(m->type));
    switch (m->type) {
    case MSG_WK_INIT:
        return on_init(w, &m->u.wk_init, fds, n_fds, err);
    case MSG_WK_SLAB:
        return on_slab(w, &m->u.wk_slab, fds, err);
    case MSG_WK_SLAB_GONE:
        on_slab_gone(w, m->u.wk_slab_gone.api_id);
        return SH_OK;
    case MSG_WK_MODEL:
        return infer_on_model(w, &m->u.wk_model, fds, n_fds, err);
    case MSG_WK_MODEL_DROP:
        infer_on_model_drop(w, m->u.wk_model_drop.handle);
        return SH_OK;
    case MSG_WK_TABLES:
        return tables_on_message(w, &m->u.wk_tables, fds, n_fds, err);
    case MSG_WK_PART:
        return infer_on_part(w, &m->u.wk_part, err);
    case MSG_WK_RUN:
        return infer_on_run(w, &m->u.wk_run, fds, n_fds, err);
    case MSG_WK_TRAIN:
        return train_on_train(w, &m->u.wk_train, fds, n_fds, err);
    case MSG_WK_TRAIN_GO:
        return train_on_go(w, &m->u.wk_train_go, err);
    case MSG_WK_TRAIN_DROP:
        train_on_drop(w, m->u.wk_train_drop.job);
        return SH_OK;
    default:
        return SH_FAIL(err, SH_E_PROTO, "%s is no message for a worker", sh_msg_name(m->type));
    }
}

static void worker_fini(struct worker *w)
{
    train_on_drop(w, -1);
    infer_free_all(w);
    while (w->n_slabs)
        on_slab_gone(w, w->slabs[0].api_id);
    dev_close(w->dev);
    dev_lib_close(w->lib);
    if (w->ctl)
        sh_shm_fini(&w->ctl_shm);
    if (w->kernels_fd >= 0)
        close(w->kernels_fd);
}

/* What the last task had goes out of reach when no other one has come for a while: the next is
 * often the same, and the change costs what it may then spare. */
static int let_task_go(struct worker *w, struct sh_err *err)
{
    if (!w->has_task || worker_has_input(w, LET_GO_MS))
        return SH_OK;
    w->has_task = false;
    return dev_task(w->dev, NULL, 0, err);
}

void worker_log_replay(const struct program *p, int64_t version, int64_t job)
{
    const enum dev_replay r = program_replay(p);

    if (r == DEV_REPLAY_LAUNCHES || r == DEV_REPLAY_RESULTS)
        SH_WARN("replay.off", "version=%" PRId64 " job=%" PRId64 " reason=%s", version, job,
                dev_replay_name(r));
}

static void show_worker_counts(struct worker *w)
{
    atomic_store(&w->ctl->n_prepared, dev_n_prepared(w->dev));
    for (int r = 0; r < DEV_N_REPLAYS; r++)
        atomic_store(&w->ctl->n_replay[r], dev_n_replay(w->dev, (enum dev_replay)r));
}

/* Waits for a message if none is there. */
static int serve_msgs(struct worker *w, struct sh_buf *buf, struct sh_err *err)
{
    int fds[SH_WIRE_MAX_FDS];
    size_t n_fds = SH_WIRE_MAX_FDS;
    struct sh_msg m;
    int rc = sh_wire_read_ahead(WORKER_FD, &w->ahead, buf, &m, fds, &n_fds, err);

    if (rc)
        return rc;
    rc = dispatch_msg(w, &m, fds, n_fds, err);
    close_all(fds, n_fds);
    if (w->ctl && w->dev)
        show_worker_counts(w);
    if (w->ctl)
        atomic_fetch_add(&w->ctl->progress, 1);
    return rc;
}

void worker_serve_waiting(struct worker *w)
{
    int rc = w->end.rc;

    w->is_loading = true;
    while (!rc && worker_has_input(w, 0))
        rc = serve_msgs(w, &w->between, &w->end);
    w->is_loading = false;
    if (!rc && w->has_task) /* what is loaded is not that task's */
        dev_task(w->dev, NULL, 0, &w->end);
    w->has_task = false;
}

int worker_main(const struct worker_hooks *hooks)
{
    struct worker w = {.hooks = hooks, .ctl_shm = {.fd = -1}, .kernels_fd = -1};
    struct sh_err err = {0};
    struct sh_buf buf;
    int rc;

    sh_log_init("shunt-worker", SH_LOG_INFO);
    sh_buf_init(&buf, SH_WIRE_MAX_FRAME + 64);
    sh_buf_init(&w.between, SH_WIRE_MAX_FRAME + 64);
    rc = sh_spawn_child_init(&err);
    /* A signal to the whole group is for the executor: it still needs its workers to stop what
     * trains, and ends them by closing the socket. */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    while (!rc) {
        if (!sh_wire_has_ahead(&w.ahead))
            sh_wire_busy_poll(WORKER_FD, w.busy_poll_ns);
        rc = let_task_go(&w, &err);
        if (!rc)
            rc = serve_msgs(&w, &buf, &err);
    }
    /* The executor closing the socket is the normal end. */
    if (rc != SH_E_UNAVAILABLE)
        sh_log_err(SH_LOG_ERROR, "worker.exit", &err);
    worker_fini(&w);
    sh_buf_fini(&w.between);
    sh_buf_fini(&buf);
    return rc == SH_E_UNAVAILABLE ? 0 : rc == SH_E_DEVLOST ? WORKER_EXIT_DEVLOST : 1;
}
