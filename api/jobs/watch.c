/* watch.c - see watch.h. One mutex protects the list and every stream in it; it is held only for
 * memory copies, never while the database is asked. */
#include "api/jobs/watch.h"

#include "api/api.h"
#include "api/cache/auth.h"
#include "api/jobs/look.h"
#include "api/request/front.h"
#include "api/store/store_event.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/thread.h"
#include "common/units.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#define ROUND_MS 250
#define PING_NS SH_S(15)
#define KEY_NS SH_S(1)                /* keys are looked at so often: in the cache, as a rule */
#define MAX_UNREAD ((size_t)64 << 10) /* a stream that has so much gets nothing more for now */
#define LOOK_NS SH_S(1)               /* from one look at an answer to the next */
#define LOOKS_NS SH_MS(100)           /* for all looks of a round */
#define MAX_STREAM_BYTES ((size_t)4 << 20)

struct stream { /* one open connection */
    struct watch *watch;
    struct api_req *q;
    int64_t tenant_id;
    int64_t job, after;       /* job: 0: of all */
    json_t *ask;              /* OWNED: what of all; NULL: one job's */
    struct store_place place; /* of what was looked at */
    struct look *look;        /* OWNED: whose answers are sent; NULL: events of jobs are */
    int64_t looked_ns;
    bool looking, closed; /* closed while it was looked at: the thread frees it */
    bool is_final;        /* when it was opened */
    bool ended;           /* nothing will be added */
    bool asleep;          /* its connection waits for req_wake() */
    int64_t said_ns;
    struct sh_buf buf;
    size_t sent; /* of buf */
    struct stream *next, *prev;
};

struct watch {
    struct api *api;
    struct db *db;
    pthread_t thread;
    bool has_thread, stop, is_due; /* is_due: a new stream does not wait for the round */
    pthread_mutex_t lock;
    pthread_cond_t work;
    int64_t keys_ns; /* of the thread: when keys were last looked at */
    struct stream *all;
    size_t n;
};

/* ---------------------------------------------------------------- streams; the lock is held */

static void wake_stream(struct stream *s)
{
    if (!s->asleep)
        return;
    s->asleep = false;
    req_wake(s->q);
}

static void stream_say(struct stream *s, const char *fmt, const char *a, const char *b)
{
    struct sh_err err = {0};

    if (s->sent == s->buf.len) {
        sh_buf_reset(&s->buf);
        s->sent = 0;
    }
    /* Without memory the client loses the connection and comes back with Last-Event-ID. */
    if (sh_buf_printf(&s->buf, &err, fmt, a, b))
        s->ended = true;
    s->said_ns = sh_clock_ns();
    wake_stream(s);
}

static const char ANSWER[] = "event: answer\ndata: %s%s\n\n";

static struct stream *stream_find(struct watch *w, const struct stream *at)
{
    struct stream *s = w->all;

    while (s && s != at)
        s = s->next;
    return s;
}

static size_t n_of_tenant(const struct watch *w, int64_t tenant_id)
{
    size_t n = 0;

    for (const struct stream *s = w->all; s; s = s->next)
        n += s->tenant_id == tenant_id;
    return n;
}

static void stream_free(struct stream *s)
{
    sh_buf_fini(&s->buf);
    json_decref(s->ask);
    look_free(s->look);
    free(s);
}

/* ---------------------------------------------------------------- what the connection calls */

static ssize_t stream_read(void *owner, char *buf, size_t max)
{
    struct stream *s = owner;
    struct watch *w = s->watch;
    ssize_t n = 0;

    pthread_mutex_lock(&w->lock);
    if (s->sent < s->buf.len) {
        n = (ssize_t)SH_MIN(max, s->buf.len - s->sent);
        memcpy(buf, s->buf.data + s->sent, (size_t)n);
        s->sent += (size_t)n;
    } else if (s->ended) {
        n = -1;
    } else {
        s->asleep = true;
    }
    pthread_mutex_unlock(&w->lock);
    return n;
}

static void stream_close(void *owner)
{
    struct stream *s = owner;
    struct watch *w = s->watch;
    bool looking;

    pthread_mutex_lock(&w->lock);
    if (s->prev)
        s->prev->next = s->next;
    else
        w->all = s->next;
    if (s->next)
        s->next->prev = s->prev;
    w->n--;
    sh_metric_set(M_shunt_http_streams, NULL, (double)w->n);
    looking = s->closed = s->looking;
    pthread_mutex_unlock(&w->lock);
    if (!looking)
        stream_free(s);
}

static int stream_add(struct watch *w, struct stream *s, struct sh_err *err)
{
    const struct api_conf *c = w->api->conf;
    int rc = SH_OK;

    pthread_mutex_lock(&w->lock);
    if (w->stop)
        rc = SH_FAIL(err, SH_E_UNAVAILABLE, "this server is shutting down; try another one");
    else if (w->n >= (size_t)SH_CONF_NOW(c->max_streams))
        rc = SH_FAIL(err, SH_E_QUEUEFULL, "%zu event streams are open, the limit", w->n);
    else if (n_of_tenant(w, s->tenant_id) >= (size_t)SH_CONF_NOW(c->max_tenant_streams))
        rc = SH_FAIL(err, SH_E_QUOTA,
                     "the tenant has %" PRId64 " event streams open, all that it may; close one",
                     SH_CONF_NOW(c->max_tenant_streams));
    if (!rc) {
        s->next = w->all;
        if (s->next)
            s->next->prev = s;
        w->all = s;
        w->n++;
        w->is_due = true;
        sh_metric_set(M_shunt_http_streams, NULL, (double)w->n);
        pthread_cond_signal(&w->work);
    }
    pthread_mutex_unlock(&w->lock);
    return rc;
}

/* TAKES s, which is filled but for what all streams have. answer: it begins with this; NULL: with
 * nothing. */
static int open_stream(struct watch *w, struct api_req *q, struct stream *s, const char *answer,
                       struct sh_err *err)
{
    static const char HELLO[] = "retry: 2000\n\n";
    int rc;

    s->watch = w;
    s->q = q;
    s->tenant_id = q->tenant_id;
    s->said_ns = sh_clock_ns();
    sh_buf_init(&s->buf, MAX_STREAM_BYTES);
    rc = sh_buf_append(&s->buf, HELLO, sizeof(HELLO) - 1, err);
    if (!rc && answer)
        rc = sh_buf_printf(&s->buf, err, ANSWER, answer, "");
    if (!rc)
        rc = stream_add(w, s, err);
    if (rc) {
        stream_free(s);
        return rc;
    }
    q->reply.stream = (struct api_stream){stream_read, stream_close, s};
    return SH_OK;
}

int watch_open(struct watch *w, struct api_req *q, int64_t job, int64_t after, bool is_final,
               struct sh_err *err)
{
    struct stream *s = calloc(1, sizeof(*s));

    if (!s)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a stream");
    s->job = job;
    s->after = after;
    s->is_final = is_final;
    return open_stream(w, q, s, NULL, err);
}

int watch_open_all(struct watch *w, struct api_req *q, const struct store_events *f,
                   const struct store_place *after, int64_t live, struct sh_err *err)
{
    struct stream *s = calloc(1, sizeof(*s));

    if (!s || !(s->ask = store_event_ask(f, live))) {
        free(s);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a stream");
    }
    s->place = *after;
    return open_stream(w, q, s, NULL, err);
}

int watch_open_answers(struct watch *w, struct api_req *q, struct sh_err *err)
{
    struct stream *s = calloc(1, sizeof(*s));
    char *text = NULL;
    int rc = s ? look_new(q, &s->look, &text, err)
               : SH_FAIL(err, SH_E_NOMEM, "could not allocate a stream");

    if (rc) {
        free(s);
        return rc;
    }
    s->looked_ns = sh_clock_ns();
    rc = open_stream(w, q, s, text, err);
    free(text);
    return rc;
}

/* ---------------------------------------------------------------- the round */

struct round { /* what one round asks for */
    struct asked {
        struct stream *s; /* may be closed meanwhile */
        bool is_final, has_rows;
    } * who;                  /* OWNED */
    struct store_watch *asks; /* OWNED */
    size_t n;
    struct stream **all; /* OWNED: those of all jobs, which may be closed meanwhile */
    json_t *all_asks;    /* OWNED: what each of them wants */
};

static int collect_all(struct round *r, struct stream *s)
{
    size_t n = json_array_size(r->all_asks);
    json_t *ask = json_copy(s->ask);
    char xid[24];

    snprintf(xid, sizeof(xid), "%" PRId64, s->place.xid);
    r->all[n] = s;
    if (!ask || json_object_set_new(ask, "place", json_integer((json_int_t)n)) ||
        json_object_set_new(ask, "xid", json_string(xid)) ||
        json_object_set_new(ask, "id", json_integer(s->place.id)) ||
        json_array_append(r->all_asks, ask)) {
        json_decref(ask);
        return -1;
    }
    json_decref(ask);
    return 0;
}

/* Those that have room for events. */
static int round_collect(struct watch *w, struct round *r, struct sh_err *err)
{
    size_t n = 0;

    r->who = calloc(w->n + 1, sizeof(*r->who));
    r->asks = calloc(w->n + 1, sizeof(*r->asks));
    r->all = calloc(w->n + 1, sizeof(*r->all));
    r->all_asks = json_array();
    if (!r->who || !r->asks || !r->all || !r->all_asks)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a round of streams");
    for (struct stream *s = w->all; s; s = s->next) {
        if (s->look || s->ended || s->buf.len - s->sent > MAX_UNREAD)
            continue;
        if (s->ask) {
            if (collect_all(r, s))
                return SH_FAIL(err, SH_E_NOMEM, "could not allocate a round of streams");
            continue;
        }
        r->who[n] = (struct asked){.s = s, .is_final = s->is_final};
        r->asks[n++] = (struct store_watch){s->job, s->after};
    }
    r->n = n;
    return SH_OK;
}

/* Rows: place in the round, id, data, is it the last one of the job. */
static void hand_out(struct watch *w, struct round *r, const struct db_res *res)
{
    for (size_t i = 0; i < db_rows(res); i++) {
        size_t at = (size_t)db_i64(res, i, 0, 0) - 1;
        struct stream *s = at < r->n ? stream_find(w, r->who[at].s) : NULL;
        int64_t id = db_i64(res, i, 1, 0);

        if (at < r->n)
            r->who[at].has_rows = true;
        if (!s || s->job != r->asks[at].job || id <= s->after)
            continue; /* closed, and perhaps another one at its address */
        s->after = id;
        stream_say(s, "id: %s\nevent: state\ndata: %s\n\n", db_text(res, i, 1), db_text(res, i, 2));
        if (db_bool(res, i, 3))
            s->ended = true;
    }
}

/* Rows: place in the round, xid, id, data or NULL. A stream that got as many as it may has
 * more waiting. */
static void hand_out_all(struct watch *w, struct round *r, const struct db_res *res)
{
    size_t n = 0, last = SIZE_MAX;

    for (size_t i = 0; i < db_rows(res); i++) {
        size_t at = (size_t)db_i64(res, i, 0, 0);
        struct store_place p = {db_i64(res, i, 1, 0), db_i64(res, i, 2, 0)};
        struct stream *s = at < json_array_size(r->all_asks) ? stream_find(w, r->all[at]) : NULL;
        const char *data = db_text(res, i, 3);
        char id[48];

        n = at == last ? n + 1 : 1;
        last = at;
        w->is_due |= n >= STORE_WATCH_EVENTS;
        if (!s || !s->ask || p.xid < s->place.xid || (p.xid == s->place.xid && p.id <= s->place.id))
            continue; /* closed, and perhaps another one at its address */
        s->place = p;
        snprintf(id, sizeof(id), "%" PRId64 "-%" PRId64, p.xid, p.id);
        if (data)
            stream_say(s, "id: %s\nevent: state\ndata: %s\n\n", id, data);
    }
}

/* A job that had ended when the stream was opened, and has nothing more to tell. */
static void round_finish(struct watch *w, const struct round *r)
{
    for (size_t k = 0; k < r->n; k++) {
        struct stream *s =
            r->who[k].is_final && !r->who[k].has_rows ? stream_find(w, r->who[k].s) : NULL;

        if (s && s->job == r->asks[k].job && s->is_final && !s->ended) {
            s->ended = true;
            wake_stream(s);
        }
    }
}

/* The one that has waited longest, of those whose turn it is; NULL: there is none. */
static struct stream *next_look(const struct watch *w, int64_t now)
{
    struct stream *next = NULL;

    for (struct stream *s = w->all; s; s = s->next)
        if (s->look && !s->ended && now - s->looked_ns >= LOOK_NS &&
            s->buf.len - s->sent <= MAX_UNREAD && (!next || s->looked_ns < next->looked_ns))
            next = s;
    return next;
}

/* A look that fails is tried again, unless what it looks at is gone. */
static void look_once(struct watch *w, struct stream *s)
{
    char *text = NULL;
    int rc = look_again(s->look, w->db, &text, NULL);
    bool closed;

    pthread_mutex_lock(&w->lock);
    s->looking = false;
    closed = s->closed;
    if (!closed && text)
        stream_say(s, ANSWER, text, "");
    if (!closed && (rc == SH_E_NOTFOUND || rc == SH_E_FORBIDDEN)) {
        s->ended = true;
        wake_stream(s);
    }
    pthread_mutex_unlock(&w->lock);
    if (closed)
        stream_free(s);
    free(text);
}

static void round_looks(struct watch *w)
{
    const int64_t end = sh_clock_ns() + LOOKS_NS;
    int64_t now;

    while ((now = sh_clock_ns()) < end) {
        struct stream *s;

        pthread_mutex_lock(&w->lock);
        s = next_look(w, now);
        if (s) {
            s->looking = true;
            s->looked_ns = now;
        }
        pthread_mutex_unlock(&w->lock);
        if (!s)
            return;
        look_once(w, s);
    }
}

static void ping(struct watch *w)
{
    int64_t now = sh_clock_ns();

    for (struct stream *s = w->all; s; s = s->next)
        if (!s->ended && now - s->said_ns >= PING_NS && s->buf.len - s->sent <= MAX_UNREAD)
            stream_say(s, "%s%s", ": ping\n", "\n");
}

static int round_once(struct watch *w, struct sh_err *err)
{
    struct round r = {0};
    struct db_res *res = NULL, *of_all = NULL;
    int rc;

    pthread_mutex_lock(&w->lock);
    w->is_due = false;
    rc = round_collect(w, &r, err);
    pthread_mutex_unlock(&w->lock);
    if (!rc && r.n > 0)
        rc = store_job_watch(w->db, r.asks, r.n, &res, err);
    if (!rc && json_array_size(r.all_asks) > 0)
        rc = store_event_watch(w->db, r.all_asks, &of_all, err);
    pthread_mutex_lock(&w->lock);
    if (!rc && r.n > 0) {
        hand_out(w, &r, res);
        round_finish(w, &r);
    }
    if (!rc)
        hand_out_all(w, &r, of_all);
    ping(w);
    pthread_mutex_unlock(&w->lock);
    db_res_free(res);
    db_res_free(of_all);
    json_decref(r.all_asks);
    free(r.all);
    free(r.who);
    free(r.asks);
    return rc;
}

/* Streams whose key was revoked, rotated away or has expired end; their clients hear why when they
 * come back. While the database is away the cache decides. */
static void check_keys(struct watch *w)
{
    struct held {
        struct stream *s;
        char key[AUTH_HEADER_BYTES];
    } * all;
    size_t n = 0;

    w->keys_ns = sh_clock_ns();
    pthread_mutex_lock(&w->lock);
    all = calloc(w->n + 1, sizeof(*all));
    for (struct stream *s = w->all; s && all; s = s->next) {
        all[n].s = s;
        n += sh_strlcpy(all[n].key, s->q->h.authorization, sizeof(all[n].key));
    }
    pthread_mutex_unlock(&w->lock);
    for (size_t i = 0; i < n; i++) {
        struct api_who who;
        struct stream *s;

        if (auth_check(w->api->auth, all[i].key, w->db, &who, NULL) != SH_E_UNAUTHENTICATED)
            continue;
        pthread_mutex_lock(&w->lock);
        s = stream_find(w, all[i].s);
        if (s && strcmp(s->q->h.authorization, all[i].key) == 0) {
            s->ended = true;
            wake_stream(s);
        }
        pthread_mutex_unlock(&w->lock);
    }
    free(all);
}

/* Sleeps until the next round; without streams, until there is one. False: the end. */
static bool rest_between_rounds(struct watch *w)
{
    const struct timespec until = sh_cond_deadline(SH_MS(ROUND_MS));
    bool stop;

    pthread_mutex_lock(&w->lock);
    while (!w->stop && w->n == 0)
        pthread_cond_wait(&w->work, &w->lock);
    while (!w->stop && !w->is_due && pthread_cond_timedwait(&w->work, &w->lock, &until) == 0)
        ;
    stop = w->stop;
    pthread_mutex_unlock(&w->lock);
    return !stop;
}

static void end_all(struct watch *w)
{
    pthread_mutex_lock(&w->lock);
    w->stop = true; /* none is opened any more */
    for (struct stream *s = w->all; s; s = s->next) {
        s->ended = true;
        wake_stream(s);
    }
    pthread_mutex_unlock(&w->lock);
}

static void *watch_thread_main(void *arg)
{
    struct watch *w = arg;
    bool was_down = false;

    while (rest_between_rounds(w) && !atomic_load(&w->api->stopping)) {
        struct sh_err err = {0};
        int rc = round_once(w, &err);

        if (!rc)
            round_looks(w);
        if (rc && !was_down)
            sh_log_err(SH_LOG_WARN, "watch.database", &err);
        was_down = rc != SH_OK;
        if (sh_clock_ns() - w->keys_ns >= KEY_NS)
            check_keys(w);
    }
    end_all(w);
    return NULL;
}

/* ---------------------------------------------------------------- life */

int watch_start(struct api *a, struct watch **out, struct sh_err *err)
{
    struct watch *w = calloc(1, sizeof(*w));
    int rc;

    *out = NULL;
    if (!w)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the event streams");
    w->api = a;
    sh_metric_set(M_shunt_http_streams, NULL, 0);
    pthread_mutex_init(&w->lock, NULL);
    sh_cond_init(&w->work);
    rc = db_new(a->conf->db_url, "shunt-api-watch", &w->db, err);
    if (!rc) {
        db_share(w->db, &a->db_news);
        w->has_thread = pthread_create(&w->thread, NULL, watch_thread_main, w) == 0;
        if (!w->has_thread)
            rc = SH_FAIL(err, SH_E_NOMEM, "could not start the thread of event streams");
    }
    if (rc) {
        watch_free(w);
        return rc;
    }
    *out = w;
    return SH_OK;
}

void watch_stop(struct watch *w)
{
    if (!w || !w->has_thread)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    w->has_thread = false;
}

void watch_free(struct watch *w)
{
    if (!w)
        return;
    watch_stop(w);
    db_free(w->db);
    pthread_cond_destroy(&w->work);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
