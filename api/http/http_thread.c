/* http_thread.c - a thread and the library's daemon that it runs: accepts connections, runs turns,
 * ends.
 *
 * All daemons of a door listen on one socket, each with a descriptor of its own, which the library
 * may close. Whoever is first takes a connection and keeps it.
 *
 * The library could create such threads itself, but ours can poll. For --busy-poll-us after an
 * inference request a thread looks for events without sleeping, unless too many others do: waking
 * up is slow, and a request would pay for that two or three times (docs/decisions/0018).
 *
 * The library has no thread of its own here, so it cannot wake ours: wake_fd does. It is in the
 * library's epoll set, which ignores an event without data; since only edges are reported, nobody
 * reads it.
 */
#include "api/api.h"
#include "api/http/http_int.h"
#include "api/http/http_tls.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/relax.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_IDLE_TURNS 1000u
#define NAP_MS 10
#define MAX_DEFERRED 8u /* requests, each of which costs the others some 20 us */

/* ---------------------------------------------------------------- the library's calls */

static void drop_admitted(struct http_thread *t)
{
    peers_leave(&t->door->http->api->peers, t->admitted);
    t->admitted = NULL;
}

static enum MHD_Result on_accept(void *cls, const struct sockaddr *from, socklen_t len)
{
    struct http_thread *t = cls;
    struct api *a = t->door->http->api;

    (void)len;
    drop_admitted(t); /* of one that the library could not open after all */
    if (peers_admit(&a->peers, t->door->is_admin, from, a->conf->max_connections_per_ip,
                    &t->admitted))
        return MHD_YES;
    sh_metric_add(M_shunt_http_refused_connections_total, NULL, 1);
    return MHD_NO;
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http_thread *t = cls;
    struct http *h = t->door->http;
    const union MHD_ConnectionInfo *info;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
        if (info) {
            *socket_context = conns_open(&h->conns, t, (int)info->connect_fd, t->admitted);
            t->admitted = NULL;
        }
        tls_attach(h->tls, conn);
        atomic_store(&t->stopped_accepting, false);
    } else { /* its descriptor is still open */
        conns_close(&h->conns, *socket_context);
        *socket_context = NULL;
        atomic_store(&t->stopped_accepting, false);
    }
}

static void on_library_log(void *cls, const char *fmt, va_list ap)
{
    char text[512], safe[600];

    if (strstr(fmt, "Content-Length"))
        http_on_bad_length(cls);
    if (strstr(fmt, "limit at FIRST connection"))
        ((struct http_thread *)cls)->is_out = true;
    if (((struct http_thread *)cls)->is_out || strstr(fmt, "temporarily suspending accept"))
        atomic_store(&((struct http_thread *)cls)->stopped_accepting, true);
    vsnprintf(text, sizeof(text), fmt, ap);
    text[strcspn(text, "\n")] = '\0';
    SH_DEBUG("http.library", "msg=\"%s\"", sh_log_quote(text, safe, sizeof(safe)));
}

/* ---------------------------------------------------------------- the thread */

static void stop_polling(struct http_thread *t)
{
    if (t->polls)
        atomic_fetch_sub(&t->door->http->n_polling, 1);
    t->polls = false;
}

static bool shall_poll(struct http_thread *t)
{
    struct http *h = t->door->http;
    unsigned n;

    if (h->busy_ns == 0)
        return false;
    if (sh_clock_ns() >= t->awake_until_ns) {
        stop_polling(t);
        return false;
    }
    n = atomic_load(&h->n_polling);
    while (!t->polls && n < h->max_polling)
        t->polls = atomic_compare_exchange_weak(&h->n_polling, &n, n + 1);
    return t->polls;
}

/* Where a chunk begins with a line longer than the connection's memory, threads of the library end
 * the connection; a daemon without them asks for its next turn at once, in which nothing happens,
 * until the connection is too slow. */
static bool is_stuck(struct http_thread *t)
{
    MHD_UNSIGNED_LONG_LONG ms = 1;

    if (t->n_chunked == 0 || MHD_get_timeout(t->daemon, &ms) != MHD_YES || ms > 0)
        t->n_idle = 0;
    else
        t->n_idle++;
    return t->n_idle > MAX_IDLE_TURNS;
}

static int events_fd(const struct http_thread *t)
{
    return MHD_get_daemon_info(t->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
}

static void turn_daemon(struct http_thread *t)
{
    bool poll_now = shall_poll(t);
    enum MHD_Result done;

    /* Before the library looks, under a lock, for what was resumed: who resumes later sees it. */
    atomic_store(&t->rests, !poll_now);
    t->was_called = false;
    done = MHD_run_wait(t->daemon, poll_now ? 0 : -1);
    http_thread_settle(t);
    drop_admitted(t);
    if (t->is_out) { /* who waits to be accepted would wake it all the time */
        t->is_out = false;
        poll(NULL, 0, NAP_MS);
    }
    if (done != MHD_YES || is_stuck(t)) {
        struct pollfd p = {.fd = events_fd(t), .events = POLLIN};

        poll(&p, 1, NAP_MS);
    } else if (poll_now && !t->was_called) {
        sh_relax();
    }
}

static void leave_door(struct http_thread *t)
{
    int fd = t->has_left ? -1 : (int)MHD_quiesce_daemon(t->daemon);

    t->has_left = true;
    if (fd >= 0)
        close(fd);
}

static void *http_main(void *arg)
{
    struct http_thread *t = arg;
    struct http *h = t->door->http;

    while (!atomic_load(&h->stopped)) {
        if (atomic_load(&h->quiesced))
            leave_door(t);
        turn_daemon(t);
    }
    stop_polling(t);
    return NULL;
}

/* ---------------------------------------------------------------- start, stop, wake-ups */

static int start_http_daemon(struct http_thread *t, struct sh_err *err)
{
    const struct http *h = t->door->http;
    const struct api_conf *c = h->api->conf;
    unsigned flags =
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | (h->tls ? MHD_USE_TLS : 0);
    struct MHD_OptionItem tls[TLS_N_OPTIONS + 1] = {{MHD_OPTION_END, 0, NULL}};
    int fd = fcntl(t->door->fd, F_DUPFD_CLOEXEC, 0);

    if (fd < 0)
        return SH_FAIL_ERRNO(err, SH_E_UNAVAILABLE, "could not share the HTTP socket");
    tls[TLS_N_OPTIONS] = tls[0];
    if (h->tls)
        tls_options(h->tls, tls);
    /* The memory of a connection: half of it takes a body's pieces, and all of it is cleared after
     * each request. Of less, a body of megabytes takes more calls; 1 MiB costs a small request
     * 40 us. The program ignores SIGPIPE. */
    t->daemon = MHD_start_daemon(
        flags, 0, on_accept, t, http_on_request, t, MHD_OPTION_EXTERNAL_LOGGER, on_library_log, t,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
        MHD_OPTION_CONNECTION_LIMIT, t->room.max, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)c->idle_timeout_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)128 << 10,
        MHD_OPTION_CONNECTION_MEMORY_INCREMENT, (size_t)16 << 10, MHD_OPTION_URI_LOG_CALLBACK,
        http_on_uri, t, MHD_OPTION_NOTIFY_COMPLETED, http_on_done, t, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, t, MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
    if (!t->daemon) /* which has closed fd, as a rule: better a lost one than another's closed */
        return SH_FAIL_ERRNO(err, SH_E_UNAVAILABLE, "could not start the HTTP server");
    return SH_OK;
}

void http_thread_init(struct http_thread *t, struct http_door *door, unsigned max_connections)
{
    t->door = door;
    t->wake_fd = -1;
    peer_room_init(&t->room, max_connections, M_shunt_http_evicted_connections_total);
}

int http_thread_start(struct http_thread *t, struct sh_err *err)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL};
    int rc = start_http_daemon(t, err);

    if (rc)
        return rc;
    t->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->wake_fd < 0 || epoll_ctl(events_fd(t), EPOLL_CTL_ADD, t->wake_fd, &ev))
        return SH_FAIL_ERRNO(err, SH_E_UNAVAILABLE, "could not make a wake-up of an HTTP thread");
    t->has_thread = pthread_create(&t->id, NULL, http_main, t) == 0;
    if (!t->has_thread)
        return SH_FAIL(err, SH_E_NOMEM, "could not start an HTTP thread");
    pthread_setname_np(t->id, "http");
    return SH_OK;
}

void http_thread_wake(struct http_thread *t)
{
    if (t->wake_fd >= 0)
        eventfd_write(t->wake_fd, 1);
}

bool http_thread_resumed(struct http_thread *t)
{
    return atomic_exchange(&t->rests, false); /* the first is enough */
}

void http_thread_called(struct http_thread *t, bool more_is_near)
{
    atomic_store_explicit(&t->rests, false, memory_order_relaxed); /* another turn will come */
    t->was_called = true;
    t->n_idle = 0;
    if (more_is_near && t->door->http->busy_ns > 0)
        t->awake_until_ns = sh_clock_ns() + t->door->http->busy_ns;
}

/* A handshake takes a millisecond, and we are not told when one begins. */
bool http_thread_defers(struct http_thread *t)
{
    if (t->door->http->tls)
        return false;
    if (t->n_deferred == MAX_DEFERRED)
        http_thread_settle(t);
    t->n_deferred++;
    return true;
}

void http_thread_settle(struct http_thread *t)
{
    const struct http *h = t->door->http;

    if (t->n_deferred > 0)
        h->steps->turn(h->api);
    t->n_deferred = 0;
}

void http_thread_stop(struct http_thread *t)
{
    if (t->has_thread) {
        http_thread_wake(t);
        pthread_join(t->id, NULL);
    }
    if (t->daemon) {
        leave_door(t);
        MHD_stop_daemon(t->daemon);
    }
    if (t->wake_fd >= 0)
        close(t->wake_fd);
}
