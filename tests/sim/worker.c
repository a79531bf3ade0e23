/* worker.c - see worker.h: the process, its messages, its faults. */
#include "common/clock.h"
#include "common/idmap.h"
#include "common/mem.h"
#include "common/units.h"
#include "tests/sim/worker_int.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define SERVE_MIN_NS SH_US(2)
#define SERVE_MAX_NS SH_US(25)
#define INIT_MIN_NS SH_MS(5)
#define INIT_MAX_NS SH_MS(400)
#define HANG_MAX_NS SH_S(30)
#define SLOW_MAX 30
#define EXIT(status) ((status) << 8) /* as waitpid() says it */

struct sim_worker_faults sim_worker_faults;

/* ------------------------------------------------------------------ what is known of a process */

/* Noted here as it is, whatever the control page says. */
struct known {
    int64_t hung_ns;  /* 0: it does not stand still */
    int64_t piece_ns; /* when its present piece began; 0: none */
    struct sim_pieces pieces;
};
static struct idmap known; /* by pid */

static struct known *known_of(pid_t pid)
{
    return idmap_get(&known, (uint64_t)pid);
}

static struct known *know(const struct sim_worker *w)
{
    const pid_t pid = sim_proc_pid(w->proc);
    struct known *k = known_of(pid);

    if (k)
        return k;
    k = calloc(1, sizeof(*k));
    if (!k || idmap_put(&known, (uint64_t)pid, k, NULL))
        abort();
    return k;
}

int64_t sim_worker_hung_ns(pid_t pid)
{
    const struct known *k = known_of(pid);

    return k ? k->hung_ns : 0;
}

void worker__begin_piece(struct sim_worker *w)
{
    worker_ctl_begin_piece(w->ctl, sh_clock_ns());
    know(w)->piece_ns = sim_now();
}

void worker__end_piece(struct sim_worker *w)
{
    struct known *k = know(w);

    worker_ctl_end_piece(w->ctl, sh_clock_ns());
    k->pieces.last_ns = sim_now() - k->piece_ns;
    k->pieces.longest_ns = SH_MAX(k->pieces.longest_ns, k->pieces.last_ns);
    k->piece_ns = 0;
}

struct sim_pieces sim_worker_pieces(pid_t pid)
{
    const struct known *k = known_of(pid);
    struct sim_pieces p = {0};

    if (!k)
        return p;
    p = k->pieces;
    p.present_ns = k->piece_ns ? sim_now() - k->piece_ns : 0;
    p.longest_ns = SH_MAX(p.longest_ns, p.present_ns);
    return p;
}

bool worker__fault(double chance)
{
    return chance > 0 && sim_chance(chance);
}

static void serve_next(void *arg, uint64_t n);

/* ------------------------------------------------------------------ time */

/* True: it is dead, and nothing of it may be touched. */
static bool may_have_died(struct sim_worker *w)
{
    static const int WAYS[] = {SIGSEGV, SIGKILL, SIGBUS, EXIT(1), EXIT(WORKER_EXIT_DEVLOST)};

    if (!worker__fault(sim_worker_faults.die))
        return false;
    sim_proc_kill(w->proc, WAYS[sim_below(SH_ARRAY_LEN(WAYS))]);
    return true;
}

void worker__after(struct sim_worker *w, int64_t ns, sim_event_fn *fn, uint64_t n)
{
    w->is_busy = true;
    if (w->ctl)
        atomic_fetch_add(&w->ctl->progress, 1);
    if (may_have_died(w))
        return;
    if (worker__fault(sim_worker_faults.slow))
        ns *= sim_between(2, SLOW_MAX);
    if (worker__fault(sim_worker_faults.hang)) {
        if (sim_chance(0.5)) {
            know(w)->hung_ns = sim_now();
            return;
        }
        ns += sim_between(0, HANG_MAX_NS);
    }
    sim_after(w->proc, ns, fn, w, n);
}

static void on_ticket(void *arg, uint64_t n)
{
    struct sim_worker *w = arg;
    sim_event_fn *fn = w->waited;

    if (w->wait != n || !fn)
        return;
    w->waited = NULL;
    fn(w, n);
}

static void on_waited_long(void *arg, uint64_t n)
{
    struct sim_worker *w = arg;

    if (w->wait != n || !w->waited)
        return;
    w->waited_long = true;
    on_ticket(w, n);
}

void worker__when(struct sim_worker *w, uint32_t slot, uint32_t value, sim_event_fn *fn)
{
    w->is_busy = true;
    w->waited_long = false;
    w->waited = fn;
    w->wait++;
    if (slot >= DEV_N_TICKETS || sim_device_has(w->device, slot, value)) {
        on_ticket(w, w->wait);
        return;
    }
    sim_device_when(w->device, slot, value, w->proc, on_ticket, w, w->wait);
    sim_after(w->proc, WORKER_TICKET_NS, on_waited_long, w, w->wait);
}

/* ------------------------------------------------------------------ messages */

void worker__send(struct sim_worker *w, const struct sh_msg *m, const int *fds, size_t n_fds)
{
    struct sh_msg said = *m, stray;
    struct sh_err err = {0};

    if (worker__fault(sim_worker_faults.lie))
        worker__lie(w, &said, &n_fds);
    if (w->wire && worker__fault(sim_worker_faults.lie / 6)) {
        stray = worker__stray(&said);
        sh_wire_send_fds(w->wire, &stray, fds, n_fds, &err);
    }
    if (w->wire)
        sh_wire_send_fds(w->wire, &said, fds, n_fds, &err);
    worker__note_end(w, &said);
}

/* It has the next thing to do, and says once more that the last has ended. */
static void repeat_end(struct sim_worker *w)
{
    struct sh_err err = {0};

    if (w->wire && w->ended.type && worker__fault(sim_worker_faults.lie))
        sh_wire_send(w->wire, &w->ended, &err);
}

struct worker_slab *worker__slab(struct sim_worker *w, uint64_t api_id)
{
    for (size_t i = 0; i < w->n_slabs; i++)
        if (w->slabs[i].api_id == api_id)
            return &w->slabs[i];
    return NULL;
}

static void on_slab(struct sim_worker *w, const struct msg_wk_slab *m, int *fd)
{
    struct worker_slab *s = &w->slabs[w->n_slabs];
    struct sh_err err = {0};

    WORKER_CHECK(!worker__slab(w, m->api_id) && w->n_slabs < WORKER_MAX_SLABS,
                 "slab %llx came twice, or there are too many", (unsigned long long)m->api_id);
    *s = (struct worker_slab){.api_id = m->api_id, .shm = {.fd = -1}};
    WORKER_CHECK(!sh_shm_map(*fd, m->bytes, true, &s->shm, &err), "slab: %s", err.msg);
    *fd = -1;
    w->n_slabs++;
}

static void on_slab_gone(struct sim_worker *w, uint64_t api_id)
{
    struct worker_slab *s = worker__slab(w, api_id);

    if (!s)
        return;
    sh_shm_fini(&s->shm);
    *s = w->slabs[--w->n_slabs];
}

static void say_ready(void *arg, uint64_t n)
{
    struct sim_worker *w = arg;
    struct sh_msg m = {.type = MSG_WK_READY};

    (void)n;
    m.u.wk_ready = (struct msg_wk_ready){.worker = w->id,
                                         .pid = (uint32_t)sim_proc_pid(w->proc),
                                         .uid = 65520,
                                         .fences = MSG_FENCES,
                                         .why = "",
                                         .identity = "sim"};
    worker__send(w, &m, NULL, 0);
    worker__done(w);
}

static void end_unfit(void *arg, uint64_t n)
{
    struct sim_worker *w = arg;

    (void)n;
    sim_proc_kill(w->proc, EXIT(1));
}

static void on_init(struct sim_worker *w, const struct msg_wk_init *m, int *fds, size_t n_fds)
{
    struct sh_msg unfit = {.type = MSG_WK_UNFIT};
    struct sh_err err = {0};

    WORKER_CHECK(!w->device && n_fds >= 2 && m->ticket_slot < DEV_N_TICKETS && !m->hold,
                 "WK_INIT came twice or without its descriptors");
    WORKER_CHECK(!sh_shm_map(fds[0], WORKER_CTL_BYTES, true, &w->ctl_shm, &err), "control page: %s",
                 err.msg);
    fds[0] = -1;
    w->ctl = w->ctl_shm.base;
    w->id = m->worker;
    w->ckpt_slot = m->ticket_slot;
    w->ckpt_value = m->ticket_value;
    w->arena_bytes = m->arena_bytes;
    w->device = sim_device_of(fds[1]);
    WORKER_CHECK(w->device, "WK_INIT came with descriptor %d, which is of no device", fds[1]);
    w->profile = sim_device_conf(w->device)->profile;
    w->is_queued = sim_device_conf(w->device)->is_queued;
    if (!worker__fault(sim_worker_faults.unfit)) {
        worker__after(w, sim_between(INIT_MIN_NS, INIT_MAX_NS), say_ready, 0);
        return;
    }
    unfit.u.wk_unfit = (struct msg_wk_unfit){.rc = sim_below(2) ? SH_E_DEVMEM : SH_E_DEVLOST,
                                             .msg = "the simulated device cannot be opened"};
    if (sim_below(4))
        worker__send(w, &unfit, NULL, 0);
    worker__after(w, SH_MS(1), end_unfit, 0);
}

static bool is_for_idle(uint16_t type)
{
    return type == MSG_WK_MODEL || type == MSG_WK_TRAIN || type == MSG_WK_TRAIN_GO;
}

/* What takes time sets is_busy. */
static void dispatch(struct sim_worker *w, const struct sh_msg *m, int *fds, size_t n_fds)
{
    WORKER_CHECK(m->type == MSG_WK_INIT || w->device, "%s came before WK_INIT",
                 sh_msg_name(m->type));
    WORKER_CHECK(!w->load || !is_for_idle((uint16_t)m->type), "%s came while a model was loaded",
                 sh_msg_name(m->type));
    switch (m->type) {
    case MSG_WK_INIT:
        on_init(w, &m->u.wk_init, fds, n_fds);
        return;
    case MSG_WK_SLAB:
        WORKER_CHECK(n_fds == 1, "WK_SLAB came with %zu descriptors", n_fds);
        on_slab(w, &m->u.wk_slab, fds);
        return;
    case MSG_WK_SLAB_GONE:
        on_slab_gone(w, m->u.wk_slab_gone.api_id);
        return;
    case MSG_WK_MODEL:
        worker__on_model(w, &m->u.wk_model, fds, n_fds);
        return;
    case MSG_WK_MODEL_DROP:
        worker__drop_model(w, m->u.wk_model_drop.handle);
        return;
    case MSG_WK_TABLES:
        worker__on_tables(w, &m->u.wk_tables, fds, n_fds);
        return;
    case MSG_WK_PART:
        worker__on_part(w, &m->u.wk_part);
        return;
    case MSG_WK_RUN:
        repeat_end(w);
        worker__on_run(w, &m->u.wk_run);
        return;
    case MSG_WK_TRAIN:
        worker__on_train(w, &m->u.wk_train, fds, n_fds);
        return;
    case MSG_WK_TRAIN_GO:
        repeat_end(w);
        worker__on_go(w, &m->u.wk_train_go);
        return;
    case MSG_WK_TRAIN_DROP:
        worker__drop_train(w, m->u.wk_train_drop.job);
        return;
    default:
        WORKER_CHECK(false, "%s is no message for a worker", sh_msg_name(m->type));
    }
}

static void free_msg(struct worker_msg *q)
{
    if (!q)
        return;
    for (size_t i = 0; i < q->n_fds; i++)
        if (q->fds[i] >= 0)
            close(q->fds[i]);
    sh_buf_fini(&q->frame);
    free(q);
}

static void serve(struct sim_worker *w)
{
    struct worker_msg *q = w->queue;
    struct sh_err err = {0};
    struct sh_msg m;

    w->queue = q->next;
    if (!w->queue)
        w->tail = &w->queue;
    WORKER_CHECK(!sh_msg_decode(q->type, q->frame.data, q->frame.len, &m, &err), "%s", err.msg);
    dispatch(w, &m, q->fds, q->n_fds);
    free_msg(q);
    if (w->ctl)
        atomic_fetch_add(&w->ctl->progress, 1);
}

/* One message after the other until one takes time; between two pieces of a load likewise. */
static void serve_next(void *arg, uint64_t n)
{
    struct sim_worker *w = arg;
    void (*then)(struct sim_worker *) = w->then;

    (void)n;
    w->is_busy = false;
    while (w->queue && !w->is_busy && sim_proc_is_alive(w->proc))
        serve(w);
    if (w->is_busy || !sim_proc_is_alive(w->proc) || !then)
        return;
    w->then = NULL;
    w->is_busy = true;
    worker__begin_piece(w);
    then(w);
}

void worker__done(struct sim_worker *w)
{
    worker__after(w, sim_between(SERVE_MIN_NS, SERVE_MAX_NS), serve_next, 0);
}

void worker__pause(struct sim_worker *w, void (*next)(struct sim_worker *w))
{
    worker__end_piece(w);
    w->then = next;
    worker__done(w);
}

/* The message's views end with the call. */
static void on_msg(struct sh_wire *wire, const struct sh_msg *m, int *fds, size_t n_fds, void *arg)
{
    struct sim_worker *w = arg;
    struct worker_msg *q = calloc(1, sizeof(*q));
    struct sh_err err = {0};

    (void)wire;
    if (!q)
        abort();
    q->type = (uint16_t)m->type;
    sh_buf_init(&q->frame, SH_WIRE_MAX_FRAME + 64);
    if (sh_msg_encode(m, &q->frame, &err))
        sim_broken("world", "a message could not be kept: %s", err.msg);
    for (; q->n_fds < n_fds; q->n_fds++) {
        q->fds[q->n_fds] = fds[q->n_fds];
        fds[q->n_fds] = -1;
    }
    *w->tail = q;
    w->tail = &q->next;
    if (!w->is_busy)
        worker__done(w);
}

static void on_gone(void *arg, uint64_t n)
{
    struct sim_worker *w = arg;

    (void)n;
    sim_proc_kill(w->proc, 0);
}

/* It looks when it is through with what it does. */
static void on_close(struct sh_wire *wire, const struct sh_err *why, void *arg)
{
    struct sim_worker *w = arg;

    (void)wire, (void)why;
    w->wire = NULL;
    sim_after(w->proc, sim_between(0, SH_MS(5)), on_gone, w, 0);
}

void sim_worker_main(void *arg)
{
    struct sim_worker *w = calloc(1, sizeof(*w));
    const struct sh_wire_handler h = {.on_msg = on_msg, .on_close = on_close, .arg = w};
    struct sh_err err = {0};

    (void)arg;
    if (!w)
        abort();
    w->proc = sim_self();
    w->tail = &w->queue;
    w->ctl_shm.fd = -1;
    if (sh_loop_new(&w->loop, &err) ||
        sh_wire_new(w->loop, sim_spawned()->fds[0], &h, &w->wire, &err))
        sim_broken("world", "a worker did not start: %s", err.msg);
}
