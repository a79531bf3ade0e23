/* http.c - the daemon: start, stop, wake-ups. */
#include "api/http.h"

#include "api/api.h"
#include "api/http_int.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_PEM (1 << 20)

static void on_connection(void *cls, struct MHD_Connection *conn, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http *h = cls;
    const union MHD_ConnectionInfo *info;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
        *socket_context = info ? conns_open(&h->conns, (int)info->connect_fd) : NULL;
    } else { /* its descriptor is still open */
        conns_close(&h->conns, *socket_context);
        *socket_context = NULL;
    }
}

void http_sweep(struct http *h)
{
    conns_sweep(&h->conns, h->api->conf);
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

    /* A pool of one thread is refused by the library: leave the option out then. The memory of a
     * connection: half of it takes a body's pieces, and all of it is cleared after each request. Of
     * less, a body of megabytes takes more calls; 1 MiB costs a small request 40 us. */
    h->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, http_on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_library_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)c->max_connections,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)c->max_connections_per_ip,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)c->idle_timeout_s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)128 << 10,
        MHD_OPTION_CONNECTION_MEMORY_INCREMENT, (size_t)16 << 10, MHD_OPTION_URI_LOG_CALLBACK,
        http_on_uri, h, MHD_OPTION_NOTIFY_COMPLETED, http_on_done, h, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, h, MHD_OPTION_ARRAY, h->tls_cert ? tls : tls + 2, MHD_OPTION_ARRAY,
        c->threads > 1 ? pool : pool + 1, MHD_OPTION_END);
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
    h->in_place = strncmp(MHD_get_version(), "0.9.", 4) == 0;
    conns_init(&h->conns);
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
    conns_fini(&h->conns);
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
