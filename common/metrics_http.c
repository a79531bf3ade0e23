/* metrics_http.c - GET /metrics and GET /healthz, for Prometheus and for container health checks;
 * GET /trace?seconds=S&detail=S, for `shunt trace`.
 * One thread, few connections, short time limits: a scraper that hangs does no harm. */
#include "common/mem.h"
#include "common/metrics.h"
#include "common/trace.h"
#include "common/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_CONNECTIONS 16
#define MAX_OF_ADDRESS 8 /* whoever idles there leaves room for others */
#define TIMEOUT_S 10
#define CONNECTION_BYTES ((size_t)16 << 10)
#define MAX_TEXT_BYTES ((size_t)64 << 20)

struct sh_metrics_http {
    struct MHD_Daemon *daemon;
    int port;
    char proc;
};

/* Resident set of this process from /proc; the old value stays if it cannot be read. */
static void measure_resident(void)
{
    char text[128];
    long long total, resident;
    ssize_t n;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return;
    text[n] = '\0';
    if (sscanf(text, "%lld %lld", &total, &resident) == 2)
        sh_metric_set(M_shunt_process_resident_bytes, NULL,
                      (double)resident * (double)sysconf(_SC_PAGESIZE));
}

/* TAKES text (free()). */
static enum MHD_Result reply_text(struct MHD_Connection *c, unsigned status, char *text, size_t len,
                                  const char *type)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
    enum MHD_Result ok;

    if (!r) {
        free(text);
        return MHD_NO;
    }
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, MHD_HTTP_METHOD_GET);
    ok = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return ok;
}

static enum MHD_Result reply_line(struct MHD_Connection *c, unsigned status, const char *line)
{
    char *text = NULL;

    if (sh_strdup(line, &text, NULL))
        return MHD_NO;
    return reply_text(c, status, text, strlen(text), "text/plain; charset=utf-8");
}

static enum MHD_Result reply_metrics(struct MHD_Connection *c, char proc)
{
    struct sh_buf b;
    size_t len;
    int rc;

    sh_buf_init(&b, MAX_TEXT_BYTES);
    measure_resident();
    rc = sh_metrics_render(proc, &b, NULL);
    if (rc) {
        sh_buf_fini(&b);
        return reply_line(c, MHD_HTTP_SERVICE_UNAVAILABLE, "could not write the metrics\n");
    }
    len = b.len;
    return reply_text(c, MHD_HTTP_OK, sh_buf_take(&b), len,
                      "text/plain; version=0.0.4; charset=utf-8");
}

/* A number of the query; 0: none that can be read. */
static double asked(struct MHD_Connection *c, const char *name)
{
    const char *text = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, name);
    const double x = text ? strtod(text, NULL) : 0;

    return x > 0 ? x : 0; /* NaN too */
}

/* What ended in the last `seconds`; from now on, for `detail` seconds, in more detail. */
static enum MHD_Result reply_trace(struct MHD_Connection *c)
{
    const double detail = asked(c, "detail");
    struct sh_buf b;
    size_t len;

    if (detail > 0)
        sh_trace_detail(detail);
    sh_buf_init(&b, MAX_TEXT_BYTES);
    if (sh_trace_render(asked(c, "seconds"), &b, NULL) != SH_OK) {
        sh_buf_fini(&b);
        return reply_line(c, MHD_HTTP_SERVICE_UNAVAILABLE, "could not write the trace\n");
    }
    len = b.len;
    return reply_text(c, MHD_HTTP_OK, sh_buf_take(&b), len, "application/json");
}

/* Called first with *state NULL when the headers are there, then for each piece of a body, then
 * once more at its end: only that last call may answer, or the connection could not be kept. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_bytes, void **state)
{
    const struct sh_metrics_http *h = arg;
    const bool is_metrics = strcmp(url, "/metrics") == 0, is_trace = strcmp(url, "/trace") == 0,
               is_ready = strcmp(url, "/readyz") == 0;

    (void)version;
    (void)upload;
    if (!*state) {
        *state = arg;
        return MHD_YES;
    }
    if (*upload_bytes > 0) {
        *upload_bytes = 0;
        return MHD_YES;
    }
    if (!is_metrics && !is_trace && !is_ready && strcmp(url, "/healthz") != 0)
        return reply_line(c, MHD_HTTP_NOT_FOUND,
                          "not found: only /metrics, /trace, /healthz and /readyz are here\n");
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0)
        return reply_line(c, MHD_HTTP_METHOD_NOT_ALLOWED, "method not allowed: use GET\n");
    if (is_trace)
        return reply_trace(c);
    if (is_ready && !sh_metrics_is_ready())
        return reply_line(c, MHD_HTTP_SERVICE_UNAVAILABLE, "not ready\n");
    return is_metrics ? reply_metrics(c, h->proc) : reply_line(c, MHD_HTTP_OK, "ok\n");
}

/* Its threads must not take the signals meant for the event loop. TAKES fd. */
static struct MHD_Daemon *start_daemon(struct sh_metrics_http *h, int fd)
{
    struct MHD_Daemon *d;
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    d = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC, 0, NULL, NULL, on_request, h,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)MAX_CONNECTIONS,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)MAX_OF_ADDRESS, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_BYTES, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return d;
}

int sh_metrics_http_start(char proc, const char *addr, struct sh_metrics_http **out,
                          struct sh_err *err)
{
    struct sh_metrics_http *h = NULL;
    char tcp[300];
    int fd = -1, rc;

    *out = NULL;
    if (snprintf(tcp, sizeof(tcp), "tcp:%s", addr) >= (int)sizeof(tcp)) {
        rc = SH_FAIL(err, SH_E_INVALID, "the address of the metrics is too long");
        goto out;
    }
    h = calloc(1, sizeof(*h));
    if (!h) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the metrics server");
        goto out;
    }
    h->proc = proc;
    rc = sh_wire_listen(tcp, &fd, err);
    if (rc)
        goto out;
    h->port = sh_wire_port(fd);
    h->daemon = start_daemon(h, fd);
    if (!h->daemon) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not start the metrics server on %s", addr);
        goto out;
    }
    fd = -1; /* the daemon's, which closes it */
    *out = h;
    h = NULL;
out:
    if (fd >= 0)
        close(fd);
    free(h);
    return rc;
}

int sh_metrics_http_port(const struct sh_metrics_http *h)
{
    return h->port;
}

void sh_metrics_http_stop(struct sh_metrics_http *h)
{
    if (!h)
        return;
    MHD_stop_daemon(h->daemon);
    free(h);
}
