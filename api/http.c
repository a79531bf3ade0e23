/* http.c - the daemon: start, connections, sweep, stop. */
#include "api/http.h"

#include "api/api.h"
#include "api/http_int.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)
#define MAX_PEM (1 << 20)

static void conn_open(struct http *h, struct MHD_Connection *conn, void **socket_context)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct http_conn *c = calloc(1, sizeof(*c));

    if (!c || !info) { /* it only escapes the sweep; the idle time-out still holds */
        free(c);
        return;
    }
    *socket_context = c;
    c->fd = (int)info->connect_fd;
    c->reads = true;
    c->since_ns = sh_clock_ns();
    pthread_mutex_lock(&h->lock);
    c->next = h->conns;
    if (c->next)
        c->next->prev = c;
    h->conns = c;
    h->n_conns++;
    pthread_mutex_unlock(&h->lock);
}

static void conn_close(struct http *h, void **socket_context)
{
    struct http_conn *c = *socket_context;

    *socket_context = NULL;
    if (!c)
        return;
    pthread_mutex_lock(&h->lock);
    if (c->prev)
        c->prev->next = c->next;
    else if (h->conns == c)
        h->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    h->n_conns--;
    pthread_mutex_unlock(&h->lock);
    free(c);
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        conn_open(cls, conn, socket_context);
    else
        conn_close(cls, socket_context);
}

/* The library is told once of data and of the end behind it. When it takes the data and leaves the
 * end for later, no later comes: a client that left in the middle of its body would keep its memory
 * and its place until the idle time-out. */
static bool has_ended(const struct http_conn *c)
{
    char byte;

    return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

void http_sweep(struct http *h)
{
    int64_t limit = sh_clock_ns() - h->api->conf->header_timeout_s * NS_PER_S;
    size_t n;

    pthread_mutex_lock(&h->lock);
    for (struct http_conn *c = h->conns; c; c = c->next) {
        bool end = c->reads && has_ended(c);

        if ((end && c->saw_end) || (!c->in_request && c->since_ns < limit))
            shutdown(c->fd, SHUT_RDWR); /* the library sees the end and closes it */
        c->saw_end = end;
    }
    n = h->n_conns;
    pthread_mutex_unlock(&h->lock);
    sh_metric_set(M_shunt_http_connections, NULL, (double)n);
}

static int read_pem(const char *path, char **out, struct sh_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = NULL;
    ssize_t n;
    int rc = SH_OK;

    if (fd < 0)
        return SH_FAIL_ERRNO(err, SH_E_NOTFOUND, "could not open the PEM file \"%s\"", path);
    text = malloc(MAX_PEM + 1);
    n = text ? read(fd, text, MAX_PEM) : 0;
    if (!text)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a PEM file");
    else if (n <= 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not read the PEM file \"%s\"", path);
    else
        text[n] = '\0';
    close(fd);
    if (rc) {
        free(text);
        return rc;
    }
    *out = text;
    return SH_OK;
}

static int listen_on(const char *addr, int *fd_out, struct sh_err *err)
{
    char *tcp = NULL;
    int rc = sh_asprintf(err, &tcp, "tcp:%s", addr);

    if (!rc)
        rc = sh_wire_listen(tcp, fd_out, err);
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

static int start_daemon(struct http *h, int fd, struct sh_err *err)
{
    const struct api_conf *c = h->api->conf;
    unsigned flags = MHD_USE_EPOLL | MHD_USE_INTERNAL_POLLING_THREAD | MHD_ALLOW_SUSPEND_RESUME |
                     MHD_USE_ERROR_LOG | MHD_USE_ITC | (h->tls_cert ? MHD_USE_TLS : 0);
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, h->tls_cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, h->tls_key},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_OptionItem pool[] = {
        {MHD_OPTION_THREAD_POOL_SIZE, (intptr_t)c->threads, NULL},
        {MHD_OPTION_END, 0, NULL},
    };

    /* A pool of one thread is refused by the library: leave the option out then. */
    h->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, http_on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_library_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)c->max_connections,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)c->max_connections_per_ip,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)c->idle_timeout_s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)128 << 10,
        MHD_OPTION_CONNECTION_MEMORY_INCREMENT, (size_t)16 << 10, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_URI_LOG_CALLBACK, http_on_uri, h, MHD_OPTION_NOTIFY_COMPLETED, http_on_done, h,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_ARRAY,
        h->tls_cert ? tls : tls + 2, MHD_OPTION_ARRAY, c->threads > 1 ? pool : pool + 1,
        MHD_OPTION_END);
    if (!h->daemon)
        return SH_FAIL_ERRNO(err, SH_E_UNAVAILABLE,
                             h->tls_cert ? "could not start the HTTPS server: is the key the "
                                           "certificate's?"
                                         : "could not start the HTTP server");
    return SH_OK;
}

int http_start(struct api *a, struct http **out, struct sh_err *err)
{
    struct http *h = calloc(1, sizeof(*h));
    int fd = -1, rc = SH_OK;

    *out = NULL;
    if (!h)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the HTTP server");
    h->api = a;
    h->quiesced_fd = -1;
    pthread_mutex_init(&h->lock, NULL);
    if (a->conf->tls_cert && a->conf->tls_cert[0]) {
        rc = read_pem(a->conf->tls_cert, &h->tls_cert, err);
        if (!rc)
            rc = read_pem(a->conf->tls_key, &h->tls_key, err);
    }
    if (!rc)
        rc = listen_on(a->conf->listen, &fd, err);
    if (!rc) {
        h->port = sh_wire_port(fd);
        rc = start_daemon(h, fd, err);
    }
    if (rc) {
        if (fd >= 0)
            close(fd);
        http_stop(h);
        return rc;
    }
    *out = h;
    return SH_OK;
}

int http_port(const struct http *h)
{
    return h->port;
}

void http_quiesce(struct http *h)
{
    h->quiesced_fd = (int)MHD_quiesce_daemon(h->daemon);
    /* Not closed yet: the library's threads may still know the number. */
    if (h->quiesced_fd >= 0)
        shutdown(h->quiesced_fd, SHUT_RDWR);
}

int http_active(const struct http *h)
{
    return atomic_load(&((struct http *)h)->n_active);
}

void http_stop(struct http *h)
{
    if (!h)
        return;
    if (h->daemon)
        MHD_stop_daemon(h->daemon);
    if (h->quiesced_fd >= 0)
        close(h->quiesced_fd);
    pthread_mutex_destroy(&h->lock);
    free(h->tls_cert);
    free(h->tls_key);
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
