/* otlp.c - see otlp.h: the queue, and its thread. */
#include "common/otlp.h"

#include "common/clock.h"
#include "common/http.h"
#include "common/io.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/otlp_json.h"
#include "common/thread.h"
#include "common/trace.h"
#include "common/units.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A wish is fulfilled in the turn after the one that took it: what a process records just after it
 * has answered an API is there by then, and the ring has not turned. */
#define TURN_NS SH_MS(250)
/* A run may outlast its request, which was late: what a wish lacks is looked for again. So is what
 * another process has, for nobody knows which; if there are too many, some are given up. */
#define KEEP_NS SH_S(30)
#define MOST_KEPT (SH_TRACE_WISHES / 2)
#define SEND_MS 10000
#define LAST_NS SH_S(1) /* for what is being sent when the process stops */
#define FIRST_PAUSE_NS SH_S(1)
#define LONGEST_PAUSE_NS SH_S(30)
#define LONGEST_ASKED_S 600 /* a collector cannot silence us for longer */
#define TRIES 5u
#define MAX_BODY ((size_t)4 << 20)
#define MAX_ANSWER ((size_t)64 << 10)
#define MAX_HEADERS_FILE 8192
#define N_HEADERS 3
#define SAY_EVERY_MS 60000

struct wanted { /* request */
    struct sh_trace_wish wish;
    int64_t until_ns;
    bool is_found, was_found; /* in this turn, or before */
    bool awaits_run;          /* which has not ended */
};

struct found_run { /* a run of which a wanted request is a part */
    uint64_t run, parent;
    struct wanted *of;
    bool is_executors;
};

struct sh_otlp {
    struct sh_http *http;
    char *headers_text, *headers[N_HEADERS]; /* OWNED; BORROWED from it */
    struct otlp_resource who;
    pthread_t thread;
    pthread_mutex_t lock; /* of stopping */
    pthread_cond_t wake;
    bool has_lock, stopping;
    atomic_bool give_up; /* not even what is being sent is waited for */
    /* Of the thread. */
    struct otlp_span *queue; /* a ring */
    size_t first, n;
    struct sh_trace_wish *taken;
    struct wanted *wanted; /* sorted by api, rid */
    size_t n_wanted;
    struct found_run *runs;
    size_t n_runs;
    int64_t to_wall_ns; /* what to add to the clock of spans */
    unsigned tries;     /* of the first batch */
    int64_t pause_ns, retry_at_ns;
    int64_t said_ns;
    uint64_t n_unsaid;
};

static void count_dropped(const char *reason, uint64_t n)
{
    if (n)
        sh_metric_add(M_shunt_otlp_dropped_spans_total, SH_LABELS(reason), (double)n);
}

/* ---------------------------------------------------------------- from the ring to the queue */

static struct otlp_span *add_queued(struct sh_otlp *o, const struct sh_trace_span *s,
                                    const struct sh_trace_wish *w)
{
    struct otlp_span *q = &o->queue[(o->first + o->n) % SH_OTLP_QUEUE];

    if (o->n == SH_OTLP_QUEUE) {
        count_dropped("full", 1);
        return NULL;
    }
    o->n++;
    *q = (struct otlp_span){.name = s->name,
                            .begin_ns = s->begin_ns + o->to_wall_ns,
                            .end_ns = SH_MAX(s->end_ns, s->begin_ns) + o->to_wall_ns,
                            .run = s->run,
                            .bytes = s->bytes,
                            .rc = s->rc,
                            .kind = OTLP_SERVER};
    memcpy(q->trace, w->trace, sizeof(q->trace));
    sh_strlcpy(q->what, s->what, sizeof(q->what));
    sh_strlcpy(q->request, s->id, sizeof(q->request));
    return q;
}

/* As sh_trace_render() shows them: each begins where the one before ends. */
static void add_stages(struct sh_otlp *o, const struct sh_trace_span *s,
                       const struct sh_trace_wish *w, uint64_t parent)
{
    struct sh_trace_span part = *s;

    part.bytes = 0;
    part.rc = SH_OK;
    part.what = part.id = "";
    for (unsigned i = 0; s->stages && i < SH_TRACE_STAGES && s->stages[i]; i++) {
        const bool is_last = i + 1 == SH_TRACE_STAGES || !s->stages[i + 1];
        const int64_t end = is_last ? s->end_ns : s->stage_ends_ns[i];
        struct otlp_span *q;

        part.name = s->stages[i];
        part.end_ns = SH_MIN(SH_MAX(end, part.begin_ns), s->end_ns);
        q = add_queued(o, &part, w);
        part.begin_ns = part.end_ns;
        if (!q)
            continue;
        q->id = sh_trace_stage_id(parent, i);
        q->parent = parent;
        q->kind = strcmp(q->name, "answer") == 0 ? OTLP_CLIENT : OTLP_INTERNAL;
    }
}

static int compare_wanted(const void *a, const void *b)
{
    const struct sh_trace_wish *x = &((const struct wanted *)a)->wish,
                               *y = &((const struct wanted *)b)->wish;

    if (x->api != y->api)
        return x->api < y->api ? -1 : 1;
    return x->rid < y->rid ? -1 : x->rid > y->rid;
}

static void note_run(struct sh_otlp *o, uint64_t run, uint64_t part, struct wanted *of)
{
    if (!run || o->n_runs == SH_TRACE_WISHES)
        return;
    o->runs[o->n_runs++] = (struct found_run){
        .run = run, .parent = part ? part : of->wish.parent, .of = of, .is_executors = part != 0};
    of->awaits_run = !part; /* an executor's is recorded before its parts */
}

static void on_request_span(const struct sh_trace_span *s, void *arg)
{
    struct sh_otlp *o = arg;
    const struct wanted key = {.wish = {.api = s->api, .rid = s->rid}};
    const bool is_part = strcmp(s->name, "part") == 0;
    struct otlp_span *q;
    struct wanted *w;
    uint64_t id = 0;

    if (!s->rid)
        return;
    w = bsearch(&key, o->wanted, o->n_wanted, sizeof(key), compare_wanted);
    if (!w)
        return;
    if (w->was_found) {
        if (!is_part)
            note_run(o, s->run, 0, w);
        return;
    }
    if (!w->is_found)
        id = w->wish.self;
    w->is_found = true;
    if (!id && sh_random(&id, sizeof(id), NULL))
        return;
    id = id ? id : 1;
    q = add_queued(o, s, &w->wish);
    if (!q)
        return;
    q->id = id;
    q->parent = w->wish.parent;
    add_stages(o, s, &w->wish, id);
    note_run(o, s->run, is_part ? id : 0, w);
}

static int compare_runs(const void *a, const void *b)
{
    const struct found_run *x = a, *y = b;

    return x->run < y->run ? -1 : x->run > y->run;
}

/* A run belongs to each of its requests: an executor's gives its stages to their parts, which are
 * as long; a scheduler's is beside their time in the queue. */
static void on_run_span(const struct sh_trace_span *s, void *arg)
{
    struct sh_otlp *o = arg;
    const struct found_run key = {.run = s->run};
    struct found_run *r;

    if (!s->run || s->rid || o->n_runs == 0)
        return;
    r = bsearch(&key, o->runs, o->n_runs, sizeof(key), compare_runs);
    while (r && r > o->runs && r[-1].run == s->run)
        r--;
    for (; r && r < o->runs + o->n_runs && r->run == s->run; r++) {
        struct otlp_span *q;
        uint64_t id = 0;

        if (r->is_executors) {
            add_stages(o, s, &r->of->wish, r->parent);
            continue;
        }
        r->of->awaits_run = false;
        q = sh_random(&id, sizeof(id), NULL) ? NULL : add_queued(o, s, &r->of->wish);
        if (!q)
            continue;
        q->id = id ? id : 1;
        q->parent = r->parent;
        q->kind = OTLP_CLIENT;
    }
}

/* Of those that are not fulfilled yet. */
static void keep_unfulfilled(struct sh_otlp *o)
{
    const int64_t now = sh_clock_ns();
    size_t n = 0;

    for (size_t i = 0; i < o->n_wanted; i++) {
        struct wanted w = o->wanted[i];

        w.was_found |= w.is_found;
        if (!w.was_found && w.wish.self) { /* it was here */
            count_dropped("overwritten", 1);
            continue;
        }
        if ((w.was_found && !w.awaits_run) || now >= w.until_ns)
            continue;
        w.is_found = false;
        o->wanted[n++] = w;
    }
    o->n_wanted = SH_MIN(n, MOST_KEPT);
    memmove(o->wanted, o->wanted + n - o->n_wanted, o->n_wanted * sizeof(*o->wanted)); /* newest */
}

static void take_wanted(struct sh_otlp *o)
{
    const int64_t until_ns = sh_clock_ns() + KEEP_NS;
    uint64_t n_lost = 0;
    size_t n = sh_trace_take_wishes(o->taken, SH_TRACE_WISHES - o->n_wanted, &n_lost);

    for (size_t i = 0; i < n; i++)
        o->wanted[o->n_wanted++] = (struct wanted){.wish = o->taken[i], .until_ns = until_ns};
    count_dropped("full", n_lost);
}

/* Fulfils the wishes of the turn before, then takes the next. */
static void collect_spans(struct sh_otlp *o)
{
    if (o->n_wanted) {
        o->to_wall_ns = sh_clock_wall_ns() - sh_clock_ns();
        qsort(o->wanted, o->n_wanted, sizeof(*o->wanted), compare_wanted);
        o->n_runs = 0;
        sh_trace_each(on_request_span, o);
        if (o->n_runs) {
            qsort(o->runs, o->n_runs, sizeof(*o->runs), compare_runs);
            sh_trace_each(on_run_span, o);
        }
        keep_unfulfilled(o);
    }
    take_wanted(o);
}

/* ---------------------------------------------------------------- from there to the collector */

static void unqueue_spans(struct sh_otlp *o, size_t n)
{
    o->first = (o->first + n) % SH_OTLP_QUEUE;
    o->n -= n;
    o->tries = 0;
}

static void warn_of_collector(struct sh_otlp *o, const char *event, const char *msg)
{
    char text[256];

    if (!sh_log_ratelimit(&o->said_ns, &o->n_unsaid, SAY_EVERY_MS))
        return;
    SH_WARN(event, "left_out=%" PRIu64 " msg=\"%s\"", o->n_unsaid,
            sh_log_quote(msg, text, sizeof(text)));
    o->n_unsaid = 0;
}

static void pause_sending(struct sh_otlp *o, size_t n, int64_t asked_s, const char *why)
{
    warn_of_collector(o, "otlp.unreachable", why);
    if (++o->tries >= TRIES) {
        count_dropped("unreachable", n);
        unqueue_spans(o, n);
    }
    o->pause_ns = o->pause_ns ? SH_MIN(2 * o->pause_ns, LONGEST_PAUSE_NS) : FIRST_PAUSE_NS;
    o->retry_at_ns = sh_clock_ns() +
                     (asked_s >= 0 ? SH_MAX(SH_S(SH_MIN(asked_s, LONGEST_ASKED_S)), FIRST_PAUSE_NS)
                                   : o->pause_ns);
}

static bool is_temporary(int status)
{
    return status == 429 || status == 502 || status == 503 || status == 504;
}

/* The answer to a batch of n. */
static void on_answer(struct sh_otlp *o, size_t n, const struct sh_http_reply *r)
{
    char why[160], status[48];
    uint64_t rejected;

    snprintf(status, sizeof(status), "the collector answers %d", r->status);
    if (is_temporary(r->status)) {
        pause_sending(o, n, r->retry_after_s, status);
        return;
    }
    o->pause_ns = 0;
    if (r->status < 200 || r->status > 299) {
        count_dropped("refused", n);
        warn_of_collector(o, "otlp.refused", status);
        unqueue_spans(o, n);
        return;
    }
    rejected = otlp_rejected(r->body, r->len, why, sizeof(why));
    rejected = SH_MIN(rejected, n);
    if (rejected || why[0])
        warn_of_collector(o, "otlp.rejected", why);
    count_dropped("rejected", rejected);
    sh_metric_add(M_shunt_otlp_sent_spans_total, NULL, (double)(n - rejected));
    unqueue_spans(o, n);
}

static void send_spans(struct sh_otlp *o)
{
    const size_t n = SH_MIN(o->n, SH_OTLP_BATCH);
    struct sh_http_req q = {.method = "POST",
                            .path = "/v1/traces",
                            .type = "application/json",
                            .stop = &o->give_up,
                            .max_reply = MAX_ANSWER,
                            .timeout_ms = SEND_MS};
    struct sh_http_reply r = {0};
    struct sh_err err = {0};
    struct sh_buf body;
    int rc;

    sh_buf_init(&body, MAX_BODY);
    for (size_t i = 0; i < N_HEADERS; i++)
        q.headers[i] = o->headers[i];
    rc = otlp_print(&o->who, o->queue, SH_OTLP_QUEUE, o->first, n, &body, &err);
    if (!rc) {
        q.body = body.data;
        q.body_len = body.len;
        rc = sh_http_call(o->http, &q, &r, &err);
    }
    if (!rc) {
        on_answer(o, n, &r);
    } else if (rc == SH_E_TOOBIG || rc == SH_E_NOMEM) { /* it may have them: not once more */
        count_dropped("refused", n);
        warn_of_collector(o, "otlp.refused", err.msg);
        unqueue_spans(o, n);
    } else if (rc != SH_E_CANCELLED) {
        pause_sending(o, n, -1, err.msg);
    }
    sh_http_reply_fini(&r);
    sh_buf_fini(&body);
}

/* ---------------------------------------------------------------- the thread */

/* False: the process stops. */
static bool sleep_a_turn(struct sh_otlp *o)
{
    const struct timespec until = sh_cond_deadline(TURN_NS);
    bool stopping;

    pthread_mutex_lock(&o->lock);
    while (!o->stopping && pthread_cond_timedwait(&o->wake, &o->lock, &until) == 0)
        ;
    stopping = o->stopping;
    pthread_mutex_unlock(&o->lock);
    return !stopping;
}

static void *otlp_main(void *arg)
{
    struct sh_otlp *o = arg;

    while (sleep_a_turn(o)) {
        const int64_t begin_ns = sh_clock_ns();

        collect_spans(o);
        for (int64_t now = begin_ns; o->n && now >= o->retry_at_ns && now < begin_ns + TURN_NS;
             now = sh_clock_ns())
            send_spans(o);
    }
    collect_spans(o); /* what was taken, and what there is now */
    collect_spans(o);
    while (o->n && !o->pause_ns && !atomic_load(&o->give_up))
        send_spans(o);
    count_dropped("stopped", o->n);
    return NULL;
}

/* Lines "Name: value", which the text is cut into. */
static int cut_headers(struct sh_otlp *o, struct sh_err *err)
{
    char *text = o->headers_text, *line;
    size_t n = 0;

    while ((line = strsep(&text, "\n"))) {
        line[strcspn(line, "\r")] = '\0';
        if (!line[0])
            continue;
        if (n == N_HEADERS)
            return SH_FAIL(err, SH_E_INVALID, "there are more than %d headers", N_HEADERS);
        if (line[0] == ':' || !strchr(line, ':') || strcspn(line, " \t") < strcspn(line, ":"))
            return SH_FAIL(err, SH_E_INVALID, "a line must be \"Name: value\"");
        o->headers[n++] = line;
    }
    return SH_OK;
}

static int read_headers(struct sh_otlp *o, const char *path, struct sh_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = SH_OK;
    struct stat st;
    ssize_t n = -1;

    o->headers_text = calloc(1, MAX_HEADERS_FILE + 1);
    if (!o->headers_text)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the headers");
    else if (fd < 0 || fstat(fd, &st) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_INVALID, "it could not be opened");
    else if (!S_ISREG(st.st_mode) || st.st_size > MAX_HEADERS_FILE)
        rc = SH_FAIL(err, SH_E_INVALID, "it must be a regular file of at most %d bytes",
                     MAX_HEADERS_FILE);
    else if (st.st_mode & (S_IRWXO | S_IWGRP | S_IXGRP))
        rc = SH_FAIL(err, SH_E_INVALID,
                     "its mode is %04o, and what is in it is secret: chmod 600 it (or 640)",
                     (unsigned)st.st_mode & 07777);
    if (!rc)
        n = sh_read_all(fd, o->headers_text, MAX_HEADERS_FILE);
    if (!rc && (n < 0 || strlen(o->headers_text) != (size_t)n))
        rc = SH_FAIL(err, SH_E_INVALID, "it could not be read, or is no text");
    if (fd >= 0)
        close(fd);
    return rc ? rc : cut_headers(o, err);
}

static int make_parts(struct sh_otlp *o, const struct sh_otlp_conf *c, struct sh_err *err)
{
    struct sh_err why = {0};
    int rc;

    if (strchr(c->endpoint, '@')) /* it is logged, as every option is */
        return SH_FAIL(err, SH_E_INVALID,
                       "otlp-endpoint: a user and a password belong into --otlp-headers-file");
    rc = sh_http_new(c->endpoint, NULL, &o->http, &why);

    if (rc)
        return SH_FAIL(err, rc, "otlp-endpoint: %s", why.msg);
    if (c->ca_file && c->ca_file[0] && (rc = sh_http_trust(o->http, c->ca_file, &why)))
        return SH_FAIL(err, rc, "otlp-ca-file: %s", why.msg);
    if (c->headers_file && c->headers_file[0] && (rc = read_headers(o, c->headers_file, &why)))
        return SH_FAIL(err, rc, "otlp-headers-file \"%.100s\": %s", c->headers_file, why.msg);
    o->queue = calloc(SH_OTLP_QUEUE, sizeof(*o->queue));
    o->taken = calloc(SH_TRACE_WISHES, sizeof(*o->taken));
    o->wanted = calloc(SH_TRACE_WISHES, sizeof(*o->wanted));
    o->runs = calloc(SH_TRACE_WISHES, sizeof(*o->runs));
    if (!o->queue || !o->taken || !o->wanted || !o->runs)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the queue of spans");
    return SH_OK;
}

static void otlp_free(struct sh_otlp *o)
{
    if (!o)
        return;
    if (o->has_lock) {
        pthread_cond_destroy(&o->wake);
        pthread_mutex_destroy(&o->lock);
    }
    sh_http_free(o->http);
    free(o->headers_text);
    free(o->queue);
    free(o->taken);
    free(o->wanted);
    free(o->runs);
    free(o);
}

static void init_lock(struct sh_otlp *o)
{
    sh_cond_init(&o->wake);
    pthread_mutex_init(&o->lock, NULL);
    o->has_lock = true;
}

int sh_otlp_start(const struct sh_otlp_conf *c, const char *service, const char *instance,
                  struct sh_otlp **out, struct sh_err *err)
{
    struct sh_otlp *o;
    int rc;

    *out = NULL;
    if (!c->endpoint || !c->endpoint[0])
        return SH_OK;
    o = calloc(1, sizeof(*o));
    if (!o)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the sender of spans");
    rc = make_parts(o, c, err);
    if (rc)
        goto out;
    sh_strlcpy(o->who.service, service, sizeof(o->who.service));
    sh_strlcpy(o->who.instance, instance, sizeof(o->who.instance));
    init_lock(o);
    sh_trace_set_wishing(true);
    if (sh_thread_start(&o->thread, otlp_main, o)) {
        sh_trace_set_wishing(false);
        rc = SH_FAIL(err, SH_E_NOMEM, "could not start the thread that sends spans");
        goto out;
    }
    *out = o;
    o = NULL;
out:
    otlp_free(o);
    return rc;
}

void sh_otlp_stop(struct sh_otlp *o)
{
    struct timespec until;

    if (!o)
        return;
    pthread_mutex_lock(&o->lock);
    o->stopping = true;
    pthread_cond_signal(&o->wake);
    pthread_mutex_unlock(&o->lock);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LAST_NS / SH_S(1);
    if (pthread_timedjoin_np(o->thread, NULL, &until) != 0) {
        atomic_store(&o->give_up, true);
        pthread_join(o->thread, NULL);
    }
    sh_trace_set_wishing(false);
    otlp_free(o);
}
