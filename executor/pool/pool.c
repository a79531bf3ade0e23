/* pool.c - see pool.h. */
#include "executor/pool/pool.h"

#include "common/clock.h"
#include "common/io.h"
#include "common/life.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/spawn.h"
#include "common/units.h"
#include "executor/pool/kernels_dir.h"
#include "executor/pool/waits.h"
#include "executor/pool/worker_log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WATCH_NS SH_MS(200)
#define FAST_DEATH_NS SH_S(10)
#define BACKOFF_MIN_NS SH_MS(50)
#define BACKOFF_MAX_NS SH_S(10)
#define GIVE_UP_AFTER 4u /* deaths at the start, of all workers */

#define MAX_WHY 256
#define MET_MANY UINT32_MAX /* no tag */

struct pool {
    struct pool_conf conf;
    struct sh_loop *loop;
    struct dev_mem *mem;
    bool is_stopping; /* this process ends */
    struct worker *workers;
    size_t n;
    struct pool_handler h;
    struct sh_timer *watch;
    bool was_ready; /* a worker; the next two: see note_start() */
    uint32_t n_no_start, attempt;
    uint32_t fences;        /* of all workers; 0: none has been ready */
    char unfenced[MAX_WHY]; /* why one is not there; "" */
    char *kernels_dir;      /* OWNED: what workers of a GPU measured of their kernels; "": no GPU */
};

static void update_gauge(const struct pool *p, enum worker_state state)
{
    int n = 0;

    for (size_t i = 0; i < p->n; i++)
        n += p->workers[i].state == state;
    sh_metric_set(M_shunt_workers, SH_LABELS(p->conf.executor, WORKER_LIFE.names[state]), n);
}

/* Adds what the worker's process has warmed up since the last time. */
static void count_replay(struct worker *w)
{
    const struct worker_ctl *c = worker_page(w);

    for (int r = DEV_REPLAY_NONE + 1; c && r < DEV_N_REPLAYS; r++) {
        const uint32_t n = atomic_load(&c->n_replay[r]);

        if (n > w->n_replay[r]) /* the page is the worker's: it could say anything */
            sh_metric_add(M_shunt_replay_programs_total,
                          SH_LABELS(w->pool->conf.executor, dev_replay_name((enum dev_replay)r)),
                          n - w->n_replay[r]);
        w->n_replay[r] = n;
    }
}

static void update_pool_metrics(struct pool *p)
{
    uint64_t n = 0;

    for (enum worker_state state = 0; state < WORKER_N_STATES; state++)
        update_gauge(p, state);
    for (size_t i = 0; i < p->n; i++)
        count_replay(&p->workers[i]);
    for (size_t i = 0; i < p->n; i++) {
        const struct worker_ctl *c = worker_page(&p->workers[i]);

        n += c ? atomic_load(&c->n_prepared) : 0;
    }
    sh_metric_set(M_shunt_prepared_ranges, SH_LABELS(p->conf.executor), (double)n);
}

void pool_second(struct pool *p)
{
    update_pool_metrics(p);
    if (!kernels_dir_was_full(p->kernels_dir, KERNELS_DIR_MAX_BYTES))
        return;
    for (size_t i = 0; i < p->n; i++)
        worker_kill(&p->workers[i], WORKER_KILL_DISK);
}

/* Work begins: the heartbeat's time starts again. */
static void worker_busy(struct worker *w)
{
    w->progress_ns = sh_clock_ns();
}

/* How long it may be silent. */
static int64_t patience_ns(const struct worker *w)
{
    const struct pool_conf *c = &w->pool->conf;

    if (HOOK_ASK(w->pool->conf.hooks, is_held, false, w))
        return 0;
    /* In a load too: its run holds the device until it comes to it. */
    if (w->state == WORKER_ACTIVE)
        return SH_MS(c->hang_ms) + w->grace_ns;
    if (w->preparing || w->job_compiling || !w->is_ready)
        return SH_MS(c->compile_ms);
    return 0; /* nothing to do: silence is right */
}

/* A run may come in the middle of a piece of a load, after a silence that was right. */
static int64_t silent_since_ns(const struct worker *w)
{
    return w->state == WORKER_ACTIVE && w->preparing ? SH_MAX(w->progress_ns, w->state_ns)
                                                     : w->progress_ns;
}

/* Where it had work before, the time of its silence goes on. */
void pool_set_state(struct worker *w, enum worker_state to)
{
    const bool was_watched = patience_ns(w) > 0;
    const enum worker_state from = w->state;

    if (from == to)
        return;
    SH_DEBUG("worker.state", "worker=%u from=%s to=%s", w->index, WORKER_LIFE.names[from],
             WORKER_LIFE.names[to]);
    w->state = (enum worker_state)sh_life_step(&WORKER_LIFE, from, to, w->index);
    w->state_ns = sh_clock_ns();
    w->grace_ns = 0;
    if (!was_watched)
        worker_busy(w);
    update_gauge(w->pool, from);
    update_gauge(w->pool, to);
}

size_t pool_size(const struct pool *p)
{
    return p->n;
}

bool pool_compiles(const struct pool *p)
{
    bool any = false;

    for (size_t i = 0; i < p->n; i++)
        any |= p->workers[i].preparing || p->workers[i].job_compiling;
    return any;
}

struct worker *pool_at(struct pool *p, size_t i)
{
    return &p->workers[i];
}

bool worker_is_alive(const struct worker *w)
{
    return w->pid > 0 && w->wire && w->is_ready && w->state != WORKER_DEAD && !w->kill;
}

/* Idle, or loading a model: a run can go between two pieces of a load. */
bool worker_may_run(const struct worker *w)
{
    return worker_is_alive(w) && w->state == WORKER_STANDBY && !w->job_compiling;
}

bool worker_is_idle(const struct worker *w)
{
    return worker_may_run(w) && !w->preparing;
}

bool worker_has_model(const struct worker *w, int64_t handle)
{
    for (size_t i = 0; i < w->n_models; i++)
        if (w->models[i] == handle)
            return true;
    return false;
}

struct worker *pool_find(struct pool *p, int64_t handle)
{
    const int64_t now = sh_clock_ns();
    struct worker *best = NULL;

    for (size_t i = 0; i < p->n; i++) {
        struct worker *w = &p->workers[i];

        if (worker_may_run(w) && worker_has_model(w, handle) && !waits_is_stuck(w, now) &&
            HOOK_ASK(p->conf.hooks, may_run, true, w) && (!best || !worker_is_idle(best)))
            best = w;
    }
    return best;
}

void worker_forget_model(struct worker *w, int64_t handle)
{
    for (size_t i = 0; i < w->n_models; i++)
        if (w->models[i] == handle) {
            w->models[i] = w->models[--w->n_models];
            w->n_model_changes++;
            return;
        }
}

int worker_note_model(struct worker *w, int64_t handle, struct sh_err *err)
{
    int rc;

    if (worker_has_model(w, handle))
        return SH_OK;
    rc = sh_grow(&w->models, &w->cap_models, w->n_models + 1, sizeof(*w->models),
                 w->pool->conf.max_models, "models of one worker", err);
    if (rc)
        return rc;
    w->models[w->n_models++] = handle;
    w->n_model_changes++;
    return SH_OK;
}

uint64_t worker_next_turn(struct worker *w)
{
    return ++w->n_turns;
}

uint64_t worker_begin_steps(struct worker *w)
{
    return w->work_turn = worker_next_turn(w);
}

uint64_t worker_begin_model(struct worker *w, int64_t handle)
{
    w->preparing = handle;
    worker_busy(w);
    return w->work_turn = worker_next_turn(w);
}

bool worker_end_model(struct worker *w, int64_t handle, uint64_t turn)
{
    if (!w->preparing || w->preparing != handle || w->work_turn != turn) {
        worker_kill_stray(w, MSG_WK_MODEL_DONE);
        return false;
    }
    w->preparing = 0;
    w->compiled_ns = sh_clock_ns();
    return true;
}

uint64_t worker_begin_job(struct worker *w)
{
    w->job = 0; /* a worker keeps one job */
    w->job_compiling = true;
    worker_busy(w);
    return w->work_turn = worker_next_turn(w);
}

bool worker_end_job(struct worker *w, int64_t job, uint64_t turn)
{
    if (!w->job_compiling || w->work_turn != turn) {
        worker_kill_stray(w, MSG_WK_TRAIN_READY);
        return false;
    }
    w->job_compiling = false;
    if (job)
        w->job = job;
    return true;
}

void worker_drop_job(struct worker *w, int64_t job)
{
    struct sh_msg m = {.type = MSG_WK_TRAIN_DROP};

    if (!job || w->job != job)
        return;
    m.u.wk_train_drop.job = job;
    worker_send(w, &m, NULL, 0);
    w->job = 0;
}

void worker_note_ticket(struct worker *w, uint32_t value)
{
    w->ckpt_value = value;
}

void worker_grant(struct worker *w, int64_t ns)
{
    w->grace_ns = ns;
}

void worker_renew(struct worker *w)
{
    w->is_renewed = true;
    worker_kill(w, WORKER_KILL_RENEW);
}

void worker_end_renewal(struct worker *w)
{
    w->is_renewed = false;
}

void worker_meet(struct worker *w, uint32_t tag)
{
    w->met = w->met == 0 || w->met == tag ? tag : MET_MANY;
}

bool worker_met_only(const struct worker *w, uint32_t tag)
{
    return w->met == 0 || w->met == tag;
}

void worker_kill(struct worker *w, enum worker_kill why)
{
    if (w->pid <= 0 || w->kill)
        return;
    w->kill = why;
    kill(w->pid, SIGKILL);
}

void worker_kill_stray(struct worker *w, enum sh_msg_type type)
{
    SH_ERROR("worker.message.bug", "worker=%u type=%s", w->index, sh_msg_name(type));
    worker_kill(w, WORKER_KILL_PROTOCOL);
}

void worker_send(struct worker *w, const struct sh_msg *m, const int *fds, size_t n_fds)
{
    struct sh_err err = {0};

    if (!w->wire || w->kill) /* it would hear of this without what was lost before it */
        return;
    if (sh_wire_send_fds(w->wire, m, fds, n_fds, &err)) {
        sh_log_err(SH_LOG_WARN, "worker.send", &err);
        worker_kill(w, WORKER_KILL_SOCKET);
    }
}

void worker_cork(struct worker *w)
{
    if (w->wire)
        sh_wire_cork(w->wire);
}

void worker_uncork(struct worker *w)
{
    if (w->wire)
        sh_wire_uncork(w->wire);
}

/* ------------------------------------------------------------------ messages */

static void note_pool_fences(struct pool *p, const struct msg_wk_ready *m)
{
    const uint32_t old = p->was_ready ? p->fences : MSG_FENCES;

    /* A worker that is gone counts: what it could do another one will, too. */
    p->fences = old & m->fences;
    if (m->why[0] && old != p->fences)
        sh_strlcpy(p->unfenced, m->why, sizeof(p->unfenced));
    for (int i = 0; i < MSG_N_FENCES; i++)
        sh_metric_set(M_shunt_worker_fences, SH_LABELS(p->conf.executor, SH_MSG_FENCE_NAME[i]),
                      (p->fences & (1u << i)) != 0);
}

uint32_t pool_fences(const struct pool *p, const char **why)
{
    *why = p->fences == MSG_FENCES ? "" : p->unfenced;
    return p->fences;
}

static void on_ready(struct worker *w, const struct msg_wk_ready *m)
{
    struct pool *p = w->pool;
    char fences[SH_MSG_FENCES_TEXT];

    note_pool_fences(p, m);
    w->is_ready = p->was_ready = true;
    sh_strlcpy(w->identity, m->identity, sizeof(w->identity));
    p->h.on_ready(p->h.arg, w);
    sh_msg_fences_text(m->fences, fences);
    SH_INFO("worker.ready", "worker=%u pid=%d start_ms=%lld uid=%u fences=%s", w->index,
            (int)w->pid, (long long)((sh_clock_ns() - w->started_ns) / SH_MS(1)), m->uid, fences);
}

static void on_msg(struct sh_wire *wire, const struct sh_msg *m, int *fds, size_t n_fds, void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;

    (void)wire;
    if (w->kill) /* perhaps for what it said: nothing more of it counts */
        return;
    worker_busy(w);
    if (m->type == MSG_WK_READY && !w->is_ready) { /* once: it would be greeted again */
        on_ready(w, &m->u.wk_ready);
    } else if (m->type == MSG_WK_UNFIT) {
        w->unfit = (struct sh_err){0};
        SH_FAIL(&w->unfit, (int)m->u.wk_unfit.rc, "%s", m->u.wk_unfit.msg);
    } else if (!p->h.on_msg(p->h.arg, w, m, fds, n_fds)) {
        worker_kill_stray(w, m->type);
    }
}

static void on_close(struct sh_wire *wire, const struct sh_err *why, void *arg)
{
    struct worker *w = arg;

    (void)wire, (void)why;
    w->wire = NULL; /* the process is ending, or must: its death does the rest */
    worker_kill(w, WORKER_KILL_SOCKET);
}

/* ------------------------------------------------------------------ life */

static int spawn(struct worker *w, struct sh_err *err);

static void on_restart(struct sh_loop *l, void *arg)
{
    struct worker *w = arg;
    struct sh_err err = {0};

    (void)l;
    if (w->pool->is_stopping || w->state != WORKER_DEAD)
        return;
    if (spawn(w, &err)) {
        sh_log_err(SH_LOG_ERROR, "worker.spawn", &err);
        sh_timer_set(w->restart, BACKOFF_MAX_NS);
    }
}

static int64_t backoff_ns(struct worker *w)
{
    int64_t ns = BACKOFF_MIN_NS;

    if (sh_clock_ns() - w->started_ns > FAST_DEATH_NS)
        w->n_fast_deaths = 0;
    for (uint32_t i = 0; i < w->n_fast_deaths && ns < BACKOFF_MAX_NS; i++)
        ns *= 2;
    w->n_fast_deaths++;
    return SH_MIN(ns, BACKOFF_MAX_NS);
}

static const char *const KILL_CAUSES[WORKER_N_KILLS] = {
    [WORKER_KILL_PROTOCOL] = "protocol", [WORKER_KILL_HANG] = "hang",
    [WORKER_KILL_RUN_TIME] = "run-time", [WORKER_KILL_DISK] = "disk",
    [WORKER_KILL_RENEW] = "renew",       [WORKER_KILL_ONE_RUN] = "one-run",
};

/* NULL: how it ended says why. Whoever ends closes its socket, of which we often hear before its
 * end: that is no reason. */
static const char *kill_cause(const struct worker *w)
{
    return KILL_CAUSES[w->kill];
}

static const char *cause_of(const struct worker *w, int status)
{
    if (kill_cause(w))
        return kill_cause(w);
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        return "crash";
    if (WIFSIGNALED(status))
        return "killed";
    if (WEXITSTATUS(status) == WORKER_EXIT_DEVLOST)
        return "device";
    return WEXITSTATUS(status) == 0 ? "exit" : "error";
}

static void forget_process(struct worker *w)
{
    sh_wire_close(w->wire);
    w->wire = NULL;
    w->pid = 0;
    w->is_ready = false;
    w->n_models = 0;
    w->n_model_changes++;
    w->preparing = 0;
    w->job = 0;
    w->job_compiling = false;
    w->met = 0;
    w->kill = WORKER_KILL_NONE;
}

/* A GPU's driver is not ours, and may want more at its start than a worker keeps. Workers then
 * start without one fence, the one whose loss costs least first, or without several. Where none of
 * it helps the fences were not the reason. */
static const uint32_t ATTEMPTS[] = {
    MSG_FENCES,
    MSG_FENCES & ~MSG_FENCE_FILES,
    MSG_FENCES & ~MSG_FENCE_USER,
    MSG_FENCES & ~(MSG_FENCE_FILES | MSG_FENCE_USER),
    MSG_FENCE_CALLS,
};

/* Only root has a user and capabilities to give up. */
static uint32_t next_attempt(uint32_t at)
{
    const uint32_t matters = geteuid() == 0 ? MSG_FENCES : MSG_FENCE_FILES | MSG_FENCE_CALLS;
    const uint32_t now = ATTEMPTS[at] & matters;

    for (at++; at < SH_ARRAY_LEN(ATTEMPTS); at++)
        if ((ATTEMPTS[at] & matters) != now)
            return at;
    return 0;
}

/* Could a fence be why it ended? A driver that may not do what it wants says so, or ends its
 * process. Want of memory is no matter of fences, nor is who was killed: by the kernel for memory,
 * by a person, by us. */
static bool may_be_fence(const struct worker *w, int status)
{
    if (w->unfit.rc)
        return w->unfit.rc != SH_E_DEVMEM && w->unfit.rc != SH_E_NOMEM;
    return !kill_cause(w) && (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL);
}

/* Before any worker of this executor has been ready no tenant has had anything to do with their
 * deaths. */
static void note_start(struct worker *w, const char *cause, int status)
{
    struct pool *p = w->pool;
    const char *why = w->unfit.rc ? w->unfit.msg : cause;
    char fences[SH_MSG_FENCES_TEXT];

    if (w->is_ready || p->was_ready || w->pool->is_stopping || !p->kernels_dir[0] ||
        !may_be_fence(w, status) || ++p->n_no_start < GIVE_UP_AFTER)
        return;
    if (p->attempt == 0)
        snprintf(p->unfenced, sizeof(p->unfenced), "workers with all of them ended: %.200s", why);
    p->n_no_start = 0;
    p->attempt = next_attempt(p->attempt);
    sh_msg_fences_text(ATTEMPTS[p->attempt], fences);
    SH_ERROR("pool.fences", "next=%s msg=\"%u workers ended before their device was open: %s\"",
             fences, GIVE_UP_AFTER, why);
}

static void on_death(struct sh_loop *l, pid_t pid, int status, void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    const char *cause = cause_of(w, status);
    int64_t preparing = w->preparing, wait_ns;

    (void)l;
    wait_ns = backoff_ns(w);
    SH_WARN("worker.exit", "worker=%u pid=%d state=%s cause=%s status=0x%x restart_ms=%lld",
            w->index, (int)pid, WORKER_LIFE.names[w->state], cause, (unsigned)status,
            (long long)(wait_ns / SH_MS(1)));
    sh_metric_add(M_shunt_worker_exits_total, SH_LABELS(p->conf.executor, cause), 1);
    w->exit_cause = cause;
    note_start(w, cause, status);
    worker_log_close(w->log);
    w->log = NULL;
    forget_process(w);
    pool_set_state(w, WORKER_DEAD);
    p->h.on_dead(p->h.arg, w, preparing);
    count_replay(w);
    memset(w->n_replay, 0, sizeof(w->n_replay));
    sh_shm_fini(&w->ctl_shm);
    if (!p->is_stopping)
        sh_timer_set(w->restart, HOOK_ASK(p->conf.hooks, restart_ns, wait_ns, w, wait_ns));
}

int pool_send_init(struct worker *w, struct sh_err *err)
{
    const struct pool *p = w->pool;
    const struct pool_conf *c = &p->conf;
    struct sh_msg m = {.type = MSG_WK_INIT};
    int fds[1 + DEV_MAX_FDS] = {w->ctl_shm.fd};
    size_t n = 0;
    int rc = dev_mem_export(p->mem, fds + 1, &n, err);

    if (rc)
        return rc;
    m.u.wk_init = (struct msg_wk_init){.worker = w->index,
                                       .device = c->device,
                                       .ordinal = c->ordinal,
                                       .arena_bytes = dev_mem_bytes(p->mem),
                                       .threads = c->threads,
                                       .executor = c->executor,
                                       .deterministic = c->deterministic,
                                       .verify_launches = c->verify_launches,
                                       .ticket_slot = TX_SLOT_WORKER + w->index,
                                       .ticket_value = w->ckpt_value,
                                       .log_level = (uint32_t)sh_log_get_level(),
                                       .kernels_dir = p->kernels_dir,
                                       .uid = c->uid,
                                       .fences = ATTEMPTS[p->attempt],
                                       .stop_bound_us = c->stop_bound_us,
                                       .busy_poll_us = c->busy_poll_us};
    HOOK_TELL(c->hooks, fill_init, w, &m.u.wk_init);
    return sh_wire_send_fds(w->wire, &m, fds, n + 1, err);
}

/* What it prints comes through a pipe (worker_log.h). */
static int spawn_process(struct worker *w, int child_fd, struct sh_err *err)
{
    const char *const argv[] = {"shunt-worker", NULL};
    const char *const env[] = {"OMP_WAIT_POLICY=passive",
                               dev_spins(w->pool->conf.n_workers, w->pool->conf.threads), NULL};
    struct sh_spawn s = {.path = "shunt-worker",
                         .argv = argv,
                         .keep = SH_ENV_SYSTEM,
                         .env = env,
                         .fds = &child_fd,
                         .n_fds = 1};
    int log, rc;

    rc = worker_log_open(w->pool->loop, w->index, STDERR_FILENO, &w->log, &log, err);
    if (rc)
        return rc;
    s.stdout_fd = s.stderr_fd = log;
    rc = sh_spawn(&s, &w->pid, err);
    close(log);
    return rc;
}

static int watch_process(struct worker *w, struct sh_err *err)
{
    int rc = sh_loop_child(w->pool->loop, w->pid, on_death, w, err);

    if (rc) { /* nobody would hear of its end */
        kill(w->pid, SIGKILL);
        waitpid(w->pid, NULL, 0);
        w->pid = 0;
    }
    return rc;
}

static int spawn(struct worker *w, struct sh_err *err)
{
    struct sh_wire_handler h = {.on_msg = on_msg, .on_close = on_close, .arg = w};
    int sv[2] = {-1, -1};
    int rc;

    sh_shm_fini(&w->ctl_shm);
    rc = sh_shm_create("shunt-ctl", WORKER_CTL_BYTES, &w->ctl_shm, err);
    if (rc)
        goto out;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not make a socket for a worker");
        goto out;
    }
    w->started_ns = sh_clock_ns();
    w->unfit = (struct sh_err){0};
    rc = sh_wire_new(w->pool->loop, sv[0], &h, &w->wire, err);
    if (rc)
        goto out;
    sv[0] = -1;
    rc = spawn_process(w, sv[1], err);
    if (!rc)
        rc = watch_process(w, err);
    if (!rc)
        rc = pool_send_init(w, err);
    if (rc)
        goto out;
    w->progress = 0;
    worker_busy(w);
    pool_set_state(w, WORKER_STARTING);
out:
    for (int i = 0; i < 2; i++)
        if (sv[i] >= 0)
            close(sv[i]);
    if (rc && w->pid > 0)
        kill(w->pid, SIGKILL);
    if (rc) {
        sh_wire_close(w->wire);
        w->wire = NULL;
    }
    if (w->pid <= 0) { /* else on_death() */
        worker_log_close(w->log);
        w->log = NULL;
    }
    return rc;
}

/* ------------------------------------------------------------------ heartbeat */

static void on_watch(struct sh_loop *l, void *arg)
{
    struct pool *p = arg;

    (void)l;
    for (size_t i = 0; i < p->n; i++) {
        struct worker *w = &p->workers[i];
        int64_t patience = patience_ns(w);
        uint64_t seen;

        if (!worker_page(w) || w->pid <= 0 || patience == 0)
            continue;
        seen = atomic_load(&worker_page(w)->progress);
        if (seen != w->progress) {
            w->progress = seen;
            worker_busy(w);
        } else if (sh_clock_ns() - silent_since_ns(w) > patience) {
            SH_ERROR("worker.hang", "worker=%u state=%s ms=%lld", w->index,
                     WORKER_LIFE.names[w->state], (long long)(patience / SH_MS(1)));
            worker_kill(w, WORKER_KILL_HANG);
        }
    }
}

/* ------------------------------------------------------------------ pool */

int pool_new(const struct pool_conf *c, struct sh_loop *loop, struct dev_mem *mem,
             const struct pool_handler *h, struct pool **out, struct sh_err *err)
{
    const struct kernels_dir_conf kernels = {
        .executor = c->executor, .device = c->device, .state_dir = c->state_dir, .uid = c->uid};
    struct pool *p = calloc(1, sizeof(*p));
    int rc = SH_OK;

    *out = NULL;
    if (p)
        p->workers = calloc(c->n_workers, sizeof(*p->workers));
    if (!p || !p->workers) {
        free(p);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the worker pool");
    }
    p->conf = *c;
    p->loop = loop;
    p->mem = mem;
    p->h = *h;
    p->n = c->n_workers;
    rc = kernels_dir_make(&kernels, &p->kernels_dir, err);
    for (size_t i = 0; i < p->n; i++)
        p->workers[i] = (struct worker){.pool = p,
                                        .index = (uint32_t)i,
                                        .state = WORKER_DEAD,
                                        .ctl_shm = {.fd = -1},
                                        .payload = {.mem = {.fd = -1}}};
    for (size_t i = 0; !rc && i < p->n; i++)
        rc = sh_timer_add(loop, -1, 0, on_restart, &p->workers[i], &p->workers[i].restart, err);
    if (!rc)
        rc = sh_timer_add(loop, WATCH_NS, WATCH_NS, on_watch, p, &p->watch, err);
    if (rc) {
        pool_free(p);
        return rc;
    }
    *out = p;
    return SH_OK;
}

int pool_start(struct pool *p, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; !rc && i < p->n; i++)
        rc = spawn(&p->workers[i], err);
    return rc;
}

void pool_stop(struct pool *p)
{
    p->is_stopping = true;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n; i++) {
        struct worker *w = &p->workers[i];

        /* A worker ends when its socket closes; PDEATHSIG ends the one that does not look. */
        sh_wire_close(w->wire);
        worker_log_close(w->log);
        sh_shm_fini(&w->ctl_shm);
        sh_shm_fini(&w->payload.mem);
        sh_timer_del(w->restart);
        free(w->models);
    }
    sh_timer_del(p->watch);
    free(p->kernels_dir);
    free(p->workers);
    free(p);
}
