/* http.c - the daemon: start, stop, wake-ups. */
#include "api/http.h"

#include "api/api.h"
#include "api/http_int.h"
#include "api/http_tls.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ADMIN_CONNECTIONS 256u /* and one thread: a few people and their scripts */
#define WINDOW_BYTES (4 << 20) /* a few images */

static void on_connection(void *cls, struct MHD_Connection *conn, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http *h = ((struct http_door *)cls)->http;
    const union MHD_ConnectionInfo *info;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
        *socket_context = info ? conns_open(&h->conns, (int)info->connect_fd) : NULL;
        tls_attach(h->tls, conn);
    } else { /* its descriptor is still open */
        conns_close(&h->conns, *socket_context);
        *socket_context = NULL;
    }
}

void http_sweep(struct http *h)
{
    conns_sweep(&h->conns, h->api->conf);
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

static void on_library_log(void *cls, const char *fmt, va_list ap)
{
    char text[512], safe[600];

    (void)cls;
    vsnprintf(text, sizeof(text), fmt, ap);
    text[strcspn(text, "\n")] = '\0';
    SH_DEBUG("http.library", "msg=\"%s\"", sh_log_quote(text, safe, sizeof(safe)));
}

static int start_daemon(struct http_door *d, int fd, struct sh_err *err)
{
    const struct api_conf *c = d->http->api->conf;
    unsigned threads = d->is_admin ? 1 : (unsigned)c->threads;
    unsigned limit = d->is_admin ? ADMIN_CONNECTIONS : (unsigned)c->max_connections;
    bool with_tls = d->http->tls;
    unsigned flags = MHD_USE_EPOLL | MHD_USE_INTERNAL_POLLING_THREAD | MHD_ALLOW_SUSPEND_RESUME |
                     MHD_USE_ERROR_LOG | MHD_USE_ITC | (with_tls ? MHD_USE_TLS : 0);
    struct MHD_OptionItem tls[] = {{MHD_OPTION_END, 0, NULL}, {MHD_OPTION_END, 0, NULL}};
    struct MHD_OptionItem pool[] = {
        {MHD_OPTION_THREAD_POOL_SIZE, (intptr_t)threads, NULL},
        {MHD_OPTION_END, 0, NULL},
    };

    if (with_tls)
        tls_option(&tls[0]);
    /* A pool of one thread is refused by the library: leave the option out then. The memory of a
     * connection: half of it takes a body's pieces, and all of it is cleared after each request. Of
     * less, a body of megabytes takes more calls; 1 MiB costs a small request 40 us. */
    d->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, http_on_request, d, MHD_OPTION_EXTERNAL_LOGGER, on_library_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, limit,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)c->max_connections_per_ip,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)c->idle_timeout_s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)128 << 10,
        MHD_OPTION_CONNECTION_MEMORY_INCREMENT, (size_t)16 << 10, MHD_OPTION_URI_LOG_CALLBACK,
        http_on_uri, d, MHD_OPTION_NOTIFY_COMPLETED, http_on_done, d, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, d, MHD_OPTION_ARRAY, tls, MHD_OPTION_ARRAY, threads > 1 ? pool : pool + 1,
        MHD_OPTION_END);
    if (!d->daemon)
        return SH_FAIL_ERRNO(err, SH_E_UNAVAILABLE, "could not start the HTTP server");
    return SH_OK;
}

static int open_door(struct http_door *d, const char *addr, struct sh_err *err)
{
    int fd = -1, rc = listen_on(addr, &fd, err);

    if (rc)
        return rc;
    d->port = sh_wire_port(fd);
    rc = start_daemon(d, fd, err);
    if (rc)
        close(fd);
    return rc;
}

int http_start(struct api *a, struct tls *tls, struct http **out, struct sh_err *err)
{
    const struct api_conf *c = a->conf;
    struct http *h = calloc(1, sizeof(*h));
    int rc;

    *out = NULL;
    if (!h)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the HTTP server");
    h->api = a;
    h->tls = tls;
    h->in_place = strncmp(MHD_get_version(), "0.9.", 4) == 0;
    h->front = (struct http_door){.http = h, .quiesced_fd = -1};
    h->admin = (struct http_door){.http = h, .quiesced_fd = -1, .is_admin = true};
    conns_init(&h->conns);
    rc = open_door(&h->front, c->listen, err);
    if (!rc && c->admin_listen && c->admin_listen[0])
        rc = open_door(&h->admin, c->admin_listen, err);
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

static void quiesce(struct http_door *d)
{
    if (!d->daemon)
        return;
    d->quiesced_fd = (int)MHD_quiesce_daemon(d->daemon);
    /* Not closed yet: the library's threads may still know the number. */
    if (d->quiesced_fd >= 0)
        shutdown(d->quiesced_fd, SHUT_RDWR);
}

void http_quiesce(struct http *h)
{
    quiesce(&h->front);
    quiesce(&h->admin);
}

int http_active(const struct http *h)
{
    return atomic_load(&((struct http *)h)->n_active);
}

static void close_door(struct http_door *d)
{
    if (d->daemon)
        MHD_stop_daemon(d->daemon);
    if (d->quiesced_fd >= 0)
        close(d->quiesced_fd);
}

void http_stop(struct http *h)
{
    if (!h)
        return;
    close_door(&h->front);
    close_door(&h->admin);
    conns_fini(&h->conns);
    free(h);
}

/* The handler suspends, then sets ASLEEP; we set DONE. Whoever comes second resumes, so that a
 * wake-up before the suspension is not lost and none happens twice. */
void http_wake(struct api_req *q)
{
    struct http_req *r = (struct http_req *)q;

    if (atomic_exchange(&r->wake, WAKE_DONE) == WAKE_ASLEEP)
        MHD_resume_connection(r->conn);
}

int http_fd(const struct api_req *q)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        ((const struct http_req *)q)->conn, MHD_CONNECTION_INFO_CONNECTION_FD);

    return info ? (int)info->connect_fd : -1;
}
