/* http.c - the server: start, stop, wake-ups. */
#include "api/http/http.h"

#include "api/api.h"
#include "api/http/http_int.h"
#include "common/mem.h"
#include "common/spawn.h"
#include "common/units.h"
#include "common/wire.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ADMIN_CONNECTIONS 256u /* and one thread: a few people and their scripts */
#define WINDOW_BYTES (4 << 20) /* a few images */
#define POLL_CORES 8u          /* for each thread that may poll: docs/decisions/0018 */

void http_sweep(struct http *h)
{
    const struct http_door *doors[] = {&h->front, &h->admin};

    conns_sweep(&h->conns, h->api->conf);
    for (size_t i = 0; i < SH_ARRAY_LEN(doors); i++)
        for (unsigned k = 0; k < doors[i]->n_threads; k++)
            conns_make_room(&h->conns, &doors[i]->threads[k]);
}

/* What a client may send ahead of us, for each connection from its start. By itself the kernel goes
 * up from 64 KiB to less than a MiB, because we take what comes faster than it comes, and a client
 * that sends megabytes from the same host sleeps every time that is full. Later it helps less: much
 * of a body is sent before its headers are read. Where the kernel has a lower limit
 * (net.core.rmem_max) it may still give more by itself; one that could not any longer, before Linux
 * 5.15, is left alone. Memory is taken for what has come and was not read; the kernel has a limit
 * for all of that (net.ipv4.tcp_mem). */
static void widen_window(int listener)
{
    int bytes = WINDOW_BYTES, locks = 0;
    socklen_t len = sizeof(locks);

    if (getsockopt(listener, SOL_SOCKET, SO_BUF_LOCK, &locks, &len))
        return;
    setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    setsockopt(listener, SOL_SOCKET, SO_BUF_LOCK, &locks, sizeof(locks));
}

static int listen_on(const char *addr, int *fd_out, struct sh_err *err)
{
    char *tcp = NULL;
    int rc = sh_asprintf(err, &tcp, "tcp:%s", addr);

    if (!rc)
        rc = sh_wire_listen(tcp, fd_out, err);
    if (!rc)
        widen_window(*fd_out);
    free(tcp);
    return rc;
}

static int open_door(struct http_door *d, const char *addr, struct sh_err *err)
{
    int rc = listen_on(addr, &d->fd, err);

    if (!rc)
        d->port = sh_wire_port(d->fd);
    return rc;
}

/* The connections are shared out: a thread that has its part takes no more, others do. */
static int start_threads(struct http_door *d, unsigned n_threads, unsigned max_connections,
                         struct sh_err *err)
{
    unsigned n = SH_MIN(n_threads, max_connections);
    int rc = SH_OK;

    if (d->fd < 0)
        return SH_OK;
    d->threads = calloc(n, sizeof(*d->threads));
    if (!d->threads)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate HTTP threads");
    for (unsigned i = 0; i < n; i++)
        http_thread_init(&d->threads[i], d, max_connections / n + (i < max_connections % n));
    d->n_threads = n; /* each looks at all of them from its first connection on */
    for (unsigned i = 0; !rc && i < n; i++)
        rc = http_thread_start(&d->threads[i], err);
    return rc;
}

int http_start(struct api *a, const struct api_steps *steps, struct tls *tls, struct http **out,
               struct sh_err *err)
{
    const struct api_conf *c = a->conf;
    struct http *h = calloc(1, sizeof(*h));
    int rc;

    *out = NULL;
    if (!h)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the HTTP server");
    h->api = a;
    h->steps = steps;
    h->tls = tls;
    h->in_place = strncmp(MHD_get_version(), "0.9.", 4) == 0;
    h->busy_ns = SH_US(c->busy_poll_us);
    h->max_polling = SH_MAX(sh_cores() / POLL_CORES, 1u);
    h->front = (struct http_door){.http = h, .fd = -1};
    h->admin = (struct http_door){.http = h, .fd = -1, .is_admin = true};
    conns_init(&h->conns, &a->peers);
    rc = open_door(&h->front, c->listen, err);
    if (!rc && c->admin_listen && c->admin_listen[0])
        rc = open_door(&h->admin, c->admin_listen, err);
    if (!rc)
        rc = start_threads(&h->front, (unsigned)c->threads, (unsigned)c->max_connections, err);
    if (!rc)
        rc = start_threads(&h->admin, 1, ADMIN_CONNECTIONS, err);
    if (rc) {
        http_stop(h);
        return rc;
    }
    *out = h;
    return SH_OK;
}

int http_port(const struct http *h)
{
    return h->front.port;
}

int http_admin_port(const struct http *h)
{
    return h->admin.port;
}

void http_quiesce(struct http *h)
{
    const struct http_door *doors[] = {&h->front, &h->admin};

    atomic_store(&h->quiesced, true);
    for (size_t i = 0; i < SH_ARRAY_LEN(doors); i++) {
        if (doors[i]->fd >= 0)
            shutdown(doors[i]->fd, SHUT_RDWR);
        for (unsigned k = 0; k < doors[i]->n_threads; k++)
            http_thread_wake(&doors[i]->threads[k]);
    }
}

int http_active(const struct http *h)
{
    return atomic_load(&((struct http *)h)->n_active);
}

static void close_door(struct http_door *d)
{
    for (unsigned i = 0; i < d->n_threads; i++)
        http_thread_stop(&d->threads[i]);
    free(d->threads);
    if (d->fd >= 0)
        close(d->fd);
}

void http_stop(struct http *h)
{
    if (!h)
        return;
    atomic_store(&h->stopped, true);
    close_door(&h->front);
    close_door(&h->admin);
    conns_fini(&h->conns);
    free(h);
}

/* The handler suspends, then sets ASLEEP; we set DONE. Whoever comes second resumes, so that a
 * wake-up before the suspension is not lost and none happens twice. */
static void *http_resume(struct api_req *q)
{
    struct http_req *r = (struct http_req *)q;
    struct http_thread *t = r->thread;

    if (atomic_exchange(&r->wake, WAKE_DONE) != WAKE_ASLEEP)
        return NULL;
    MHD_resume_connection(r->conn);
    return http_thread_resumed(t) ? t : NULL;
}

static void http_rouse(void *thread)
{
    http_thread_wake(thread);
}

static void http_wake(struct api_req *q)
{
    void *t = http_resume(q);

    if (t)
        http_rouse(t);
}

static bool http_defers(struct api_req *q)
{
    return http_thread_defers(((struct http_req *)q)->thread);
}

static void http_catch_up(struct api_req *q)
{
    http_thread_settle(((struct http_req *)q)->thread);
}

static int http_fd(const struct api_req *q)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        ((const struct http_req *)q)->conn, MHD_CONNECTION_INFO_CONNECTION_FD);

    return info ? (int)info->connect_fd : -1;
}

const struct api_front HTTP_FRONT = {.wake = http_wake,
                                     .resume = http_resume,
                                     .rouse = http_rouse,
                                     .fd = http_fd,
                                     .defers = http_defers,
                                     .catch_up = http_catch_up};
