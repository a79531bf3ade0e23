/* grpc.c - the gRPC server: threads, the listening socket, wake-ups. See grpc.h. */
#include "api/grpc/grpc.h"

#include "api/api.h"
#include "api/grpc/grpc_int.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"
#include "common/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define TICK_NS SH_MS(200)
#define ACCEPTS_AT_ONCE 16u

/* ---------------------------------------------------------------- wake-ups */

/* Who comes first finds the list empty, and wakes for all that come before it is taken. */
static void *grpc_resume(struct api_req *q)
{
    struct grpc_call *c = (struct grpc_call *)q;
    struct grpc_thread *t = c->t;
    bool is_first;

    pthread_mutex_lock(&t->lock);
    is_first = !t->woken;
    c->next_woken = t->woken;
    t->woken = c;
    pthread_mutex_unlock(&t->lock);
    return is_first ? t : NULL;
}

static void grpc_rouse(void *thread)
{
    struct grpc_thread *t = thread;

    sh_loop_wake(t->loop);
}

static void grpc_wake(struct api_req *q)
{
    void *t = grpc_resume(q);

    if (t)
        grpc_rouse(t);
}

/* The session knows when a client leaves a call: RST_STREAM, or the end of its connection. */
static int grpc_fd(const struct api_req *q)
{
    (void)q;
    return -1;
}

static bool grpc_defers(struct api_req *q)
{
    (void)q;
    return false;
}

static void grpc_catch_up(struct api_req *q)
{
    (void)q; /* nothing was deferred */
}

const struct api_front GRPC_FRONT = {.wake = grpc_wake,
                                     .resume = grpc_resume,
                                     .rouse = grpc_rouse,
                                     .fd = grpc_fd,
                                     .defers = grpc_defers,
                                     .catch_up = grpc_catch_up};

static void run_woken(struct grpc_thread *t)
{
    struct grpc_call *list, *next, *first = NULL;

    pthread_mutex_lock(&t->lock);
    list = t->woken;
    t->woken = NULL;
    pthread_mutex_unlock(&t->lock);
    for (; list; list = next) { /* the newest is in front: turn it round */
        next = list->next_woken;
        list->next_woken = first;
        first = list;
    }
    for (; first; first = next) {
        next = first->next_woken;
        call_woken(first);
    }
}

/* ---------------------------------------------------------------- the thread */

void grpc_leave(struct grpc_thread *t)
{
    sh_io_del(t->listener);
    t->listener = NULL;
}

static void on_wake(struct sh_loop *l, void *arg)
{
    struct grpc_thread *t = arg;

    (void)l;
    run_woken(t);
    if (!t->leaves && atomic_load(&t->g->quiesced)) {
        t->leaves = true;
        grpc_leave(t);
        conn_drain_all(t);
    }
}

static void on_tick(struct sh_loop *l, void *arg)
{
    struct grpc_thread *t = arg;

    (void)l;
    if (t->rests && t->listener && !sh_io_set(t->listener, SH_IO_READ, NULL))
        t->rests = false;
    conn_sweep(t);
}

/* Nothing can be accepted now, and who waits to be would wake us all the time. */
static void rest_from_accepting(struct grpc_thread *t)
{
    struct grpc *g = t->g;
    struct peers *peers = &g->api->peers;
    const int64_t now = sh_clock_ns();

    if (sh_io_set(t->listener, 0, NULL))
        return;
    t->rests = true;
    pthread_mutex_lock(&peers->lock);
    /* Its descriptor is free then. All threads see the one that waits: one has to go, not many. */
    if (g->room.n_cut == 0 && now - g->spared_ns >= TICK_NS && peer_make_room(&g->room, NULL, 0))
        g->spared_ns = now;
    pthread_mutex_unlock(&peers->lock);
}

/* All threads listen on one socket; whoever is first takes a connection and keeps it. */
static void on_connect(struct sh_loop *l, int fd, unsigned events, void *arg)
{
    (void)l;
    (void)events;
    for (unsigned i = 0; i < ACCEPTS_AT_ONCE; i++) {
        struct sockaddr_storage from = {0};
        socklen_t len = sizeof(from);
        int conn = accept4(fd, (struct sockaddr *)&from, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (conn < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
            rest_from_accepting(arg);
        if (conn < 0)
            return;
        conn_accept(arg, conn, (const struct sockaddr *)&from);
    }
}

static void *grpc_main(void *arg)
{
    struct grpc_thread *t = arg;
    struct sh_err err = {0};

    if (sh_loop_run(t->loop, &err))
        sh_log_err(SH_LOG_ERROR, "grpc.loop", &err);
    return NULL;
}

static int grpc_start_thread(struct grpc_thread *t, struct sh_err *err)
{
    int rc = sh_loop_new(&t->loop, err);

    if (rc)
        return rc;
    sh_loop_on_wake(t->loop, on_wake, t);
    rc = sh_io_add(t->loop, t->g->fd, SH_IO_READ, on_connect, t, &t->listener, err);
    if (!rc)
        rc = sh_timer_add(t->loop, TICK_NS, TICK_NS, on_tick, t, &t->tick, err);
    if (rc)
        return rc;
    t->has_thread = pthread_create(&t->id, NULL, grpc_main, t) == 0;
    if (!t->has_thread)
        return SH_FAIL(err, SH_E_NOMEM, "could not start a gRPC thread");
    pthread_setname_np(t->id, "grpc");
    return SH_OK;
}

static void stop_thread(struct grpc_thread *t)
{
    if (t->has_thread) {
        sh_loop_stop(t->loop);
        pthread_join(t->id, NULL);
    }
    if (t->loop) {
        run_woken(t);
        conn_end_all(t);
        run_woken(t); /* those whose client has left only now, too */
        grpc_leave(t);
        sh_timer_del(t->tick);
        sh_loop_free(t->loop);
    }
    pthread_mutex_destroy(&t->lock);
}

/* ---------------------------------------------------------------- start and stop */

static int grpc_listen_on(const char *addr, int *fd, struct sh_err *err)
{
    char *tcp = NULL;
    int rc = sh_asprintf(err, &tcp, "tcp:%s", addr);

    if (!rc)
        rc = sh_wire_listen(tcp, fd, err);
    free(tcp);
    return rc;
}

static int grpc_start_threads(struct grpc *g, size_t n, struct sh_err *err)
{
    int rc = SH_OK;

    g->threads = calloc(n, sizeof(*g->threads));
    if (!g->threads)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate gRPC threads");
    while (!rc && g->n_threads < n) {
        struct grpc_thread *t = &g->threads[g->n_threads++];

        t->g = g;
        TAILQ_INIT(&t->conns);
        pthread_mutex_init(&t->lock, NULL);
        rc = grpc_start_thread(t, err);
    }
    return rc;
}

int grpc_start(struct api *a, const struct api_steps *steps, struct tls *tls, struct grpc **out,
               struct sh_err *err)
{
    const char *addr = a->conf->grpc_listen;
    struct grpc *g;
    int rc;

    *out = NULL;
    if (!addr || !addr[0])
        return SH_OK;
    g = calloc(1, sizeof(*g));
    if (!g)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the gRPC server");
    g->api = a;
    g->steps = steps;
    g->tls = tls;
    g->fd = -1;
    peer_room_init(&g->room, (unsigned)a->conf->grpc_max_connections,
                   M_shunt_grpc_evicted_connections_total);
    rc = grpc_listen_on(addr, &g->fd, err);
    if (!rc) {
        g->port = sh_wire_port(g->fd);
        rc = grpc_start_threads(g, (size_t)a->conf->threads, err);
    }
    if (rc) {
        grpc_stop(g);
        return rc;
    }
    *out = g;
    return SH_OK;
}

int grpc_port(const struct grpc *g)
{
    return g ? g->port : 0;
}

void grpc_quiesce(struct grpc *g)
{
    if (!g)
        return;
    atomic_store(&g->quiesced, true);
    shutdown(g->fd, SHUT_RDWR);
    for (size_t i = 0; i < g->n_threads; i++)
        sh_loop_wake(g->threads[i].loop);
}

int grpc_active(const struct grpc *g)
{
    return g ? atomic_load(&((struct grpc *)(uintptr_t)g)->n_active) : 0;
}

void grpc_stop(struct grpc *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->n_threads; i++)
        stop_thread(&g->threads[i]);
    free(g->threads);
    if (g->fd >= 0)
        close(g->fd);
    free(g);
}
