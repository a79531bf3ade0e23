/* sessions.c - see sessions.h. */
#include "scheduler/peers/sessions.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "scheduler/route.h"
#include "scheduler/sched.h"

#include <stdlib.h>
#include <string.h>

/* Tells the part that used the session; it has no user afterwards. */
static void detach_session(struct session *x, const char *why)
{
    struct sched *s = x->sched;

    s->route->on_close(s, x, why);
    x->api = NULL;
    x->exec = NULL;
}

/* Only those that are sent something are touched: there may be ten thousand others. */
static void cork(struct session *x)
{
    struct sessions *ss = &x->sched->sessions;
    struct session **first = &ss->corked[x->exec ? 0 : 1];

    if (!ss->corks || x->corked_at)
        return;
    sh_wire_cork(x->wire);
    x->next_corked = *first;
    x->corked_at = first;
    if (x->next_corked)
        x->next_corked->corked_at = &x->next_corked;
    *first = x;
}

static void uncork(struct session *x)
{
    if (!x->corked_at)
        return;
    *x->corked_at = x->next_corked;
    if (x->next_corked)
        x->next_corked->corked_at = x->corked_at;
    x->corked_at = NULL;
}

static void session_free(struct session *x)
{
    struct sessions *ss = &x->sched->sessions;
    struct session *last = ss->items[ss->n - 1];

    uncork(x);
    ss->items[x->index] = last;
    last->index = x->index;
    ss->n--;
    free(x);
}

static void on_close(struct sh_wire *w, const struct sh_err *why, void *arg)
{
    struct session *x = arg;

    (void)w;
    detach_session(x, why->msg);
    session_free(x);
}

void session_end(struct session *x, const char *why)
{
    if (x->ending)
        return;
    x->ending = true;
    SH_INFO("session.end", "serial=%llu why=\"%s\"", (unsigned long long)x->serial, why);
    detach_session(x, why);
    sh_wire_finish(x->wire);
}

void session_send(struct session *x, const struct sh_msg *m)
{
    if (!x || x->ending)
        return;
    cork(x);
    sh_wire_send(x->wire, m, NULL);
}

void session_refuse(struct session *x, uint64_t rid, int rc, int64_t retry_after_ms,
                    int64_t predicted_ms, const char *msg)
{
    session_send(x, &(struct sh_msg){.type = MSG_INFER_REFUSED,
                                     .u.infer_refused = {.rid = rid,
                                                         .rc = rc,
                                                         .retry_after_ms = retry_after_ms,
                                                         .msg = msg,
                                                         .predicted_ms = predicted_ms}});
}

void sessions_cork(struct sched *s)
{
    s->sessions.corks = true;
}

void sessions_uncork(struct sched *s)
{
    struct sessions *ss = &s->sessions;
    struct session *x;

    ss->corks = false;
    while ((x = ss->corked[0] ? ss->corked[0] : ss->corked[1])) {
        uncork(x);
        sh_wire_uncork(x->wire);
    }
}

static void welcome(struct session *x)
{
    struct sched *s = x->sched;

    session_send(x, &(struct sh_msg){.type = MSG_WELCOME,
                                     .u.welcome = {.epoch = s->epoch, .name = s->conf->name}});
}

static void on_first(struct session *x, const struct sh_msg *m)
{
    struct sched *s = x->sched;
    struct sh_err err = {0};

    if (s->route->on_hello(s, x, m, &err)) {
        sh_log_err(SH_LOG_WARN, "session.refused", &err);
        session_end(x, err.msg);
        return;
    }
    welcome(x);
    s->route->on_welcomed(s, x);
}

static void on_msg(struct sh_wire *w, const struct sh_msg *m, int *fds, size_t n_fds, void *arg)
{
    struct session *x = arg;

    (void)w, (void)fds, (void)n_fds;
    x->heard_ns = sh_clock_ns();
    if (m->type == MSG_PING)
        session_send(x, &(struct sh_msg){.type = MSG_PONG, .u.pong = {.cookie = m->u.ping.cookie}});
    else if (m->type == MSG_PONG)
        return;
    else if (x->api || x->exec)
        x->sched->route->on_msg(x->sched, x, m);
    else
        on_first(x, m);
}

static int session_new(struct sched *s, struct sh_wire *w, struct session **out, struct sh_err *err)
{
    struct sessions *ss = &s->sessions;
    struct session *x = NULL;
    int rc;

    if (ss->n >= (size_t)s->conf->max_sessions)
        return SH_FAIL(err, SH_E_QUEUEFULL, "there are %zu connections already; see --max-sessions",
                       ss->n);
    rc = sh_grow(&ss->items, &ss->cap, ss->n + 1, sizeof(ss->items[0]), 1u << 20, "sessions", err);
    if (rc)
        return rc;
    x = calloc(1, sizeof(*x));
    if (!x)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a session");
    *x = (struct session){.sched = s, .wire = w, .serial = ++ss->last_serial, .index = ss->n};
    x->opened_ns = x->heard_ns = x->pinged_ns = sh_clock_ns();
    ss->items[ss->n++] = x;
    *out = x;
    return SH_OK;
}

static bool on_peer(struct sh_wire *w, struct sh_wire_handler *h, void *arg)
{
    struct sched *s = arg;
    struct session *x = NULL;
    struct sh_err err = {0};

    if (!session_new(s, w, &x, &err)) {
        *h = (struct sh_wire_handler){.on_msg = on_msg, .on_close = on_close, .arg = x};
        return true;
    }
    if (sh_log_ratelimit(&s->sessions.warned_ns, &s->sessions.warned_left, 5000)) {
        sh_log_err(SH_LOG_WARN, "session.refused", &err);
        s->sessions.warned_left = 0;
    }
    return false;
}

static int listen_one(struct sched *s, const char *addr, struct sh_err *err)
{
    struct sessions *ss = &s->sessions;
    size_t i = ss->n_listen;
    int rc;

    if (i == SESSION_MAX_LISTEN)
        return SH_FAIL(err, SH_E_INVALID, "--listen takes at most %d addresses",
                       SESSION_MAX_LISTEN);
    rc = sh_listen_new(
        s->loop, addr,
        &(struct sh_listen_handler){.on_peer = on_peer, .arg = s, .keys = s->link_keys},
        &ss->listen[i], err);
    if (rc)
        return rc;
    ss->n_listen++;
    SH_INFO("sched.listen", "addr=%s", addr);
    return SH_OK;
}

int sessions_listen(struct sched *s, struct sh_err *err)
{
    const char *at = s->conf->listen;
    size_t n = 0;
    int rc = SH_OK;

    while (*at && !rc) {
        size_t len = strcspn(at, ",");
        char addr[256];

        if (len >= sizeof(addr))
            return SH_FAIL(err, SH_E_INVALID, "an address in --listen is longer than 255 bytes");
        memcpy(addr, at, len);
        addr[len] = '\0';
        if (len && n++ >= s->sessions.n_listen)
            rc = listen_one(s, addr, err);
        at += len + (at[len] == ',');
    }
    return rc;
}

void sessions_end_all(struct sched *s, const char *why)
{
    struct sessions *ss = &s->sessions;

    while (ss->n_listen > 0)
        sh_listen_free(ss->listen[--ss->n_listen]);
    for (size_t i = ss->n; i-- > 0;)
        session_end(ss->items[i], why);
}

void sessions_fini(struct sched *s)
{
    struct sessions *ss = &s->sessions;

    sessions_end_all(s, "the scheduler ends");
    while (ss->n > 0) {
        sh_wire_close(ss->items[ss->n - 1]->wire);
        session_free(ss->items[ss->n - 1]);
    }
    free(ss->items);
    *ss = (struct sessions){0};
}

void sessions_second(struct sched *s)
{
    struct sessions *ss = &s->sessions;
    int64_t now = sh_clock_ns();

    for (size_t i = ss->n; i-- > 0;) {
        struct session *x = ss->items[i];

        if (x->ending)
            continue;
        if (!x->api && !x->exec && now - x->opened_ns > SESSION_HELLO_NS)
            session_end(x, "it did not say hello");
        else if (now - x->heard_ns > SESSION_DEAD_NS)
            session_end(x, "it did not answer for 10 s");
        else if (now - x->heard_ns > SESSION_PING_NS && now - x->pinged_ns > SESSION_PING_NS) {
            x->pinged_ns = now;
            session_send(x, &(struct sh_msg){.type = MSG_PING, .u.ping = {.cookie = x->serial}});
        }
    }
}
