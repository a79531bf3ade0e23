/* transfer.c - see transfer.h. */
#include "executor/files/transfer.h"

#include "common/clock.h"
#include "common/http.h"
#include "common/io.h"
#include "common/json.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/safetensors.h"
#include "common/units.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define STILL_MS 20000 /* a transfer without a byte for so long is given up and tried again */
#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 5000
#define MAX_DAMAGED 3
#define KEY_MAX 128
#define PROBLEM_MAX ((size_t)64 << 10)

static const int N_LINES[TRANSFER_N_WAYS] = {[TRANSFER_IN] = 2, [TRANSFER_OUT] = 1};
#define ALL_LINES 3

struct transfer_line {
    struct transfers *h;
    enum transfer_way way;
    struct sh_http *http;
    pthread_t thread;
    bool is_started;
    struct transfer_task *task; /* under the mutex */
};

struct transfers {
    struct transfer_conf conf;
    struct sh_loop *loop;
    struct sh_io *io;
    int event; /* the loop's wake-up is the disk thread's */
    char key[KEY_MAX];
    struct transfer_line lines[ALL_LINES];
    /* Protects the lists and the lines' tasks; nothing is called while it is held. */
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    struct transfer_task *todo[TRANSFER_N_WAYS], **todo_tail[TRANSFER_N_WAYS], *done, **done_tail;
    atomic_bool stop; /* raised under the mutex */
};

/* ------------------------------------------------------------------ one answer */

/* Why the API does not do it. */
static int reply_refusal(const struct sh_http_reply *r, const char *path, struct sh_err *err)
{
    const char *text;
    json_t *j = NULL;
    int rc = r->status == 404   ? SH_E_NOTFOUND /* HEAD has no body */
             : r->status == 401 ? SH_E_UNAUTHENTICATED
             : r->status == 403 ? SH_E_FORBIDDEN
             : r->status >= 500 ? SH_E_UNAVAILABLE
                                : SH_E_PROTO;

    if (r->body)
        sh_json_parse(r->body, r->len, PROBLEM_MAX, &j, NULL);
    rc = sh_json_refusal(j, rc, &text);
    SH_FAIL(err, rc, "the API answered %d: %s", r->status, text ? text : sh_rc_text(rc));
    sh_err_detail(err, "path %s", path);
    json_decref(j);
    return rc;
}

static int call(struct transfer_line *l, struct sh_http_req *q, struct sh_http_reply *r,
                struct sh_err *err)
{
    int rc;

    q->stop = &l->task->stop;
    q->timeout_ms = STILL_MS;
    rc = sh_http_call(l->http, q, r, err);
    return rc || r->status < 300 ? rc : reply_refusal(r, q->path, err);
}

/* ------------------------------------------------------------------ again and again */

static bool is_passing(const struct sh_err *e)
{
    return e->rc == SH_E_UNAVAILABLE || e->rc == SH_E_TIMEOUT || e->rc == SH_E_QUEUEFULL ||
           e->rc == SH_E_DBDOWN || e->rc == SH_E_DBSOFT || e->rc == SH_E_QUOTA ||
           e->rc == SH_E_NOMEM;
}

static void count_transfer(const struct transfer_line *l, const char *result)
{
    sh_metric_add(M_shunt_blob_transfers_total,
                  SH_LABELS(l->h->conf.executor, l->way == TRANSFER_IN ? "in" : "out", result), 1);
}

static void wait_a_while(struct transfer_line *l, int64_t ms)
{
    int64_t end = sh_clock_ns() + SH_MS(ms);

    while (sh_clock_ns() < end && !atomic_load(&l->task->stop))
        usleep(20000);
}

struct attempts {
    int64_t first_ns, pause_ms, moved; /* first_ns: of those since the last byte */
};

/* True: try once more. moved: bytes that are there now; more than before is a new beginning. */
static bool again(struct transfer_line *l, struct attempts *a, int64_t moved, struct sh_err *one)
{
    int64_t now = sh_clock_ns(), most_ns = SH_S(l->h->conf.retry_s);

    if (atomic_load(&l->task->stop)) {
        *one = (struct sh_err){0};
        SH_FAIL(one, SH_E_CANCELLED, "the transfer was stopped");
        return false;
    }
    if (a->first_ns == 0 || moved > a->moved) {
        a->first_ns = now;
        a->pause_ms = PAUSE_MIN_MS;
        a->moved = moved;
    }
    if (!is_passing(one) || now - a->first_ns >= most_ns)
        return false;
    count_transfer(l, "retry");
    SH_WARN("blob.retry", "code=%s ms=%" PRId64 " msg=\"%s\"", sh_rc_name(one->rc), a->pause_ms,
            one->msg);
    wait_a_while(l, a->pause_ms);
    a->pause_ms = SH_MIN(a->pause_ms * 2, (int64_t)PAUSE_MAX_MS);
    *one = (struct sh_err){0};
    return true;
}

static int settle_try(const struct transfer_line *l, const struct sh_err *one, uint64_t bytes,
                      struct sh_err *err)
{
    count_transfer(l, one->rc ? sh_rc_name(one->rc) : "ok");
    if (one->rc)
        return sh_err_copy(err, one);
    sh_metric_add(M_shunt_blob_bytes_total,
                  SH_LABELS(l->h->conf.executor, l->way == TRANSFER_IN ? "in" : "out"),
                  (double)bytes);
    return SH_OK;
}

/* ------------------------------------------------------------------ in */

int transfer_size(struct transfer_line *l, const char *path, uint64_t *bytes, struct sh_err *err)
{
    struct sh_http_req q = {.method = "HEAD", .path = path};
    struct attempts a = {0};
    struct sh_err one = {0};

    *bytes = 0;
    do {
        struct sh_http_reply r = {0};

        if (!call(l, &q, &r, &one) && r.content_bytes < 0)
            SH_FAIL(&one, SH_E_PROTO, "the API's answer lacks the size of a blob");
        *bytes = one.rc ? 0 : (uint64_t)r.content_bytes;
        sh_http_reply_fini(&r);
    } while (one.rc && again(l, &a, 0, &one));
    return one.rc ? settle_try(l, &one, 0, err) : SH_OK;
}

struct incoming {
    const char *path, *part;
    int fd;
    char etag[72]; /* of what lies in the part; "" = unknown */
};

static int get_once(struct transfer_line *l, struct incoming *in, struct sh_err *err)
{
    struct sh_http_req q = {.method = "GET", .path = in->path, .out_fd = in->fd};
    struct sh_http_reply r = {0};
    int64_t had = lseek(in->fd, 0, SEEK_END);
    char range[64], if_range[96];
    int rc;

    if (had > 0 && in->etag[0]) {
        snprintf(range, sizeof(range), "Range: bytes=%" PRId64 "-", had);
        snprintf(if_range, sizeof(if_range), "If-Range: %s", in->etag);
        q.headers[0] = range;
        q.headers[1] = if_range;
    }
    rc = call(l, &q, &r, err);
    if (r.status == 416) { /* it is all there, or more than that: the digest will tell */
        *err = (struct sh_err){0};
        rc = SH_OK;
    } else if (r.etag[0]) {
        memcpy(in->etag, r.etag, sizeof(in->etag));
    }
    sh_http_reply_fini(&r);
    return rc;
}

/* digest: NULL: the ETag's. A part that is wrong is emptied. */
static int check_received(struct incoming *in, const char *digest, uint64_t *bytes,
                          struct sh_err *err)
{
    char hex[SH_SHA256_HEX], want[80];
    int rc = SH_OK;

    snprintf(want, sizeof(want), digest ? "\"%s\"" : "%s", digest ? digest : in->etag);
    if (lseek(in->fd, 0, SEEK_SET) < 0 || fsync(in->fd))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write a blob to disk");
    if (!rc)
        rc = sh_sha256_fd(in->fd, hex, bytes, err);
    if (rc || (strlen(want) == SH_SHA256_HEX + 1 && strncmp(want + 1, hex, strlen(hex)) == 0))
        return rc;
    in->etag[0] = '\0';
    if (ftruncate(in->fd, 0))
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not empty a part of a blob");
    return SH_FAIL(err, SH_E_IO, "a blob of %" PRIu64 " bytes came damaged: its SHA-256 is wrong",
                   *bytes);
}

static void get_all(struct transfer_line *l, struct incoming *in, const char *digest,
                    uint64_t *bytes, struct sh_err *one)
{
    struct attempts a = {0};
    int n_damaged = 0;

    for (;;) {
        if (get_once(l, in, one)) {
            if (again(l, &a, lseek(in->fd, 0, SEEK_END), one))
                continue;
            return;
        }
        if (!check_received(in, digest, bytes, one) || one->rc != SH_E_IO ||
            ++n_damaged == MAX_DAMAGED)
            return;
        SH_WARN("blob.damaged", "path=%s msg=\"%s\"", in->path, one->msg);
        *one = (struct sh_err){0};
    }
}

int transfer_get(struct transfer_line *l, const char *path, const char *digest, const char *part,
                 const char *to, struct sh_err *err)
{
    struct incoming in = {.path = path, .part = part};
    struct sh_err one = {0};
    uint64_t bytes = 0;

    in.fd = open(part, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (in.fd < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not make a file for a blob");
    get_all(l, &in, digest, &bytes, &one);
    if (!one.rc && rename(part, to))
        SH_FAIL_ERRNO(&one, SH_E_IO, "could not put a blob in its place");
    if (!one.rc)
        sh_sync_folder(to, &one);
    close(in.fd);
    if (one.rc)
        unlink(part); /* it counts nowhere */
    return settle_try(l, &one, bytes, err);
}

/* ------------------------------------------------------------------ out */

struct outgoing {
    const char *path;
    int fd;
    int64_t bytes;
    char digest[128]; /* a header: the API compares */
};

static int open_outgoing(struct outgoing *o, const char *from, struct sh_err *err)
{
    uint8_t sha[SH_SHA256_BYTES];
    char hex[SH_SHA256_HEX];
    uint64_t bytes;
    int rc;

    o->fd = open(from, O_RDONLY | O_CLOEXEC);
    if (o->fd < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not open a file that is to be sent");
    rc = sh_sha256_fd(o->fd, hex, &bytes, err);
    if (!rc)
        rc = sh_unhex(hex, sha, sizeof(sha), err);
    if (!rc)
        sh_http_digest_header(sha, o->digest, sizeof(o->digest));
    o->bytes = (int64_t)bytes;
    return rc;
}

static int put_once(struct transfer_line *l, const struct outgoing *o, struct sh_err *err)
{
    struct sh_http_req q = {.method = "PUT",
                            .path = o->path,
                            .type = "application/octet-stream",
                            .headers = {o->digest},
                            .file_fd = o->fd,
                            .file_bytes = o->bytes};
    struct sh_http_reply r = {0};
    int rc;

    if (lseek(o->fd, 0, SEEK_SET) < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not read a file that is sent");
    rc = call(l, &q, &r, err);
    sh_http_reply_fini(&r);
    return rc;
}

int transfer_put(struct transfer_line *l, const char *path, const char *from, struct sh_err *err)
{
    struct outgoing o = {.path = path};
    struct attempts a = {0};
    struct sh_err one = {0};
    int n_damaged = 0;

    if (open_outgoing(&o, from, &one) == SH_OK)
        while (put_once(l, &o, &one)) {
            if (one.rc == SH_E_INVALID && ++n_damaged < MAX_DAMAGED) {
                SH_WARN("blob.damaged", "path=%s msg=\"%s\"", path, one.msg);
                one = (struct sh_err){0};
            } else if (!again(l, &a, 0, &one)) {
                break;
            }
        }
    if (o.fd >= 0)
        close(o.fd);
    return settle_try(l, &one, (uint64_t)o.bytes, err);
}

/* ------------------------------------------------------------------ threads */

static struct transfer_task *take_transfer(struct transfers *h, enum transfer_way way)
{
    struct transfer_task *t = h->todo[way];

    if (!t)
        return NULL;
    h->todo[way] = t->next;
    if (!h->todo[way])
        h->todo_tail[way] = &h->todo[way];
    return t;
}

const atomic_bool *transfer_ends(const struct transfer_line *l)
{
    return &l->h->stop;
}

static void *transfer_main(void *arg)
{
    struct transfer_line *l = arg;
    struct transfers *h = l->h;

    pthread_mutex_lock(&h->mutex);
    while (!atomic_load(&h->stop)) {
        l->task = take_transfer(h, l->way);
        if (!l->task) {
            pthread_cond_wait(&h->cond, &h->mutex);
            continue;
        }
        pthread_mutex_unlock(&h->mutex);
        l->task->work(l->task, l, &l->task->err);
        pthread_mutex_lock(&h->mutex);
        l->task->next = NULL;
        *h->done_tail = l->task;
        h->done_tail = &l->task->next;
        l->task = NULL;
        eventfd_write(h->event, 1);
    }
    pthread_mutex_unlock(&h->mutex);
    return NULL;
}

static void on_event(struct sh_loop *loop, int fd, unsigned events, void *arg)
{
    struct transfers *h = arg;
    eventfd_t n;

    (void)loop, (void)events;
    eventfd_read(fd, &n);
    for (;;) {
        struct transfer_task *t;

        pthread_mutex_lock(&h->mutex);
        t = h->done;
        if (t) {
            h->done = t->next;
            if (!h->done)
                h->done_tail = &h->done;
        }
        pthread_mutex_unlock(&h->mutex);
        if (!t)
            return;
        t->done(t);
    }
}

void transfer_submit(struct transfers *h, enum transfer_way way, struct transfer_task *t)
{
    t->next = NULL;
    pthread_mutex_lock(&h->mutex);
    *h->todo_tail[way] = t;
    h->todo_tail[way] = &t->next;
    pthread_cond_broadcast(&h->cond);
    pthread_mutex_unlock(&h->mutex);
}

/* ------------------------------------------------------------------ life */

static int read_push_key(struct transfers *h, const char *path, struct sh_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, h->key, sizeof(h->key) - 1) : -1;
    int rc = n > 0 ? SH_OK
                   : SH_FAIL_ERRNO(err, SH_E_INVALID,
                                   "could not read --api-key-file \"%s\", which --api needs: it is "
                                   "the file that the API writes with --executor-key-file",
                                   path);

    h->key[n > 0 ? n : 0] = '\0';
    h->key[strcspn(h->key, "\r\n")] = '\0';
    if (fd >= 0)
        close(fd);
    return rc;
}

static int start_lines(struct transfers *h, struct sh_err *err)
{
    size_t n = 0;

    for (int way = 0; way < TRANSFER_N_WAYS; way++)
        for (int i = 0; i < N_LINES[way]; i++, n++) {
            struct transfer_line *l = &h->lines[n];
            const char *ca = h->conf.ca_file;
            int rc = sh_http_new(h->conf.api, h->key, &l->http, err), native;

            if (!rc && ca && ca[0])
                rc = sh_http_trust(l->http, ca, err);
            if (rc)
                return rc;
            l->h = h;
            l->way = (enum transfer_way)way;
            native = pthread_create(&l->thread, NULL, transfer_main, l);
            if (native)
                return SH_FAIL(err, SH_E_NOMEM, "could not start a thread for blobs (error %d)",
                               native);
            l->is_started = true;
        }
    return SH_OK;
}

int transfers_new(const struct transfer_conf *c, struct sh_loop *loop, struct transfers **out,
                  struct sh_err *err)
{
    struct transfers *h = calloc(1, sizeof(*h));
    int rc;

    *out = NULL;
    if (!h)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the threads for blobs");
    h->conf = *c;
    h->loop = loop;
    for (int way = 0; way < TRANSFER_N_WAYS; way++)
        h->todo_tail[way] = &h->todo[way];
    h->done_tail = &h->done;
    pthread_mutex_init(&h->mutex, NULL);
    pthread_cond_init(&h->cond, NULL);
    h->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rc = h->event < 0 ? SH_FAIL_ERRNO(err, SH_E_IO, "could not make a wake-up for blobs") : SH_OK;
    if (!rc)
        rc = sh_io_add(loop, h->event, SH_IO_READ, on_event, h, &h->io, err);
    if (!rc)
        rc = read_push_key(h, c->key_file, err);
    if (!rc)
        rc = start_lines(h, err);
    if (rc) {
        transfers_free(h);
        return rc;
    }
    *out = h;
    return SH_OK;
}

bool transfers_end(const struct transfers *h)
{
    return atomic_load(&h->stop);
}

void transfers_free(struct transfers *h)
{
    if (!h)
        return;
    pthread_mutex_lock(&h->mutex);
    atomic_store(&h->stop, true);
    for (int i = 0; i < ALL_LINES; i++)
        if (h->lines[i].task)
            atomic_store(&h->lines[i].task->stop, true);
    pthread_cond_broadcast(&h->cond);
    pthread_mutex_unlock(&h->mutex);
    for (int i = 0; i < ALL_LINES; i++)
        if (h->lines[i].is_started)
            pthread_join(h->lines[i].thread, NULL);
    if (h->event >= 0)
        on_event(h->loop, h->event, 0, h);
    for (int way = 0; way < TRANSFER_N_WAYS; way++)
        for (struct transfer_task *t; (t = take_transfer(h, (enum transfer_way)way));) {
            SH_FAIL(&t->err, SH_E_CANCELLED,
                    "the executor stopped before the file was transferred");
            t->done(t);
        }
    for (int i = 0; i < ALL_LINES; i++)
        sh_http_free(h->lines[i].http);
    sh_io_del(h->io);
    if (h->event >= 0)
        close(h->event);
    pthread_cond_destroy(&h->cond);
    pthread_mutex_destroy(&h->mutex);
    free(h);
}
