/* data.c - see data.h. */
#include "executor/requests/data.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/shm.h"
#include "common/trace.h"
#include "common/units.h"
#include "common/wire.h"
#include "executor/requests/slabs.h"

#include <inttypes.h>
#include <stdlib.h>

#define MAX_SLAB_BYTES ((uint64_t)64 << 30)
#define MAX_QUEUED ((size_t)512 << 20)
#define UNKNOWN_NS SH_S(1) /* an API that lives connects in far less */
#define MAX_ENDED 65536u   /* requests whose input is here and whose run has not come */

struct peer {
    struct peer *next;
    struct data *d;
    struct sh_wire *wire;
    uint64_t api_id; /* 0: no DATA_HELLO yet */
    bool is_local;
    bool asks;          /* an executor, for images */
    struct sh_shm slab; /* the mirror; unset for a local peer */
    uint64_t *ended;    /* OWNED: rids, oldest first */
    size_t n_ended, cap_ended;
};

struct data {
    struct data_conf conf;
    struct slabs *slabs;
    struct sh_listen *listen;
    struct peer *peers;
    size_t n_peers;
};

static struct peer *find_peer(const struct data *d, uint64_t api_id)
{
    for (struct peer *p = d->peers; p; p = p->next)
        if (p->api_id == api_id)
            return p;
    return NULL;
}

/* Unlinks and frees; the wire is closed by the caller or is gone already. */
static void drop_peer(struct peer *p)
{
    struct data *d = p->d;

    for (struct peer **at = &d->peers; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            d->n_peers--;
            break;
        }
    if (p->api_id) {
        d->conf.on_gone(d->conf.arg, p->api_id);
        slabs_drop(d->slabs, p->api_id);
    }
    sh_shm_fini(&p->slab);
    free(p->ended);
    free(p);
}

static void refuse_peer(struct peer *p, const struct sh_err *why)
{
    struct sh_wire *w = p->wire;

    sh_log_err(SH_LOG_WARN, "api.refused", why);
    drop_peer(p);
    sh_wire_close(w);
}

/* ------------------------------------------------------------------ messages */

static int take_slab(struct peer *p, const struct msg_data_hello *m, const int *fds, size_t n_fds,
                     struct sh_err *err)
{
    int rc;

    if (m->slab_bytes == 0 || m->slab_bytes > MAX_SLAB_BYTES)
        return SH_FAIL(err, SH_E_INVALID, "a slab of %" PRIu64 " bytes", m->slab_bytes);
    if (!p->is_local) {
        rc = sh_shm_create("shunt-mirror", (size_t)m->slab_bytes, &p->slab, err);
        return rc ? rc : slabs_add(p->d->slabs, m->api_id, p->slab.fd, m->slab_bytes, err);
    }
    if (n_fds != 1)
        return SH_FAIL(err, SH_E_PROTO, "DATA_HELLO came without the slab");
    return slabs_add(p->d->slabs, m->api_id, fds[0], m->slab_bytes, err);
}

static int check_room_for_api(const struct data *d, struct sh_err *err)
{
    size_t n = 0;

    for (const struct peer *p = d->peers; p; p = p->next)
        n += p->api_id != 0;
    if (n >= d->conf.max_apis)
        return SH_FAIL(err, SH_E_QUEUEFULL,
                       "%zu API processes are connected, as many as max-apis allows", n);
    return SH_OK;
}

static int on_hello(struct peer *p, const struct msg_data_hello *m, int *fds, size_t n_fds,
                    struct sh_err *err)
{
    const struct data_conf *c = &p->d->conf;
    struct sh_msg ready = {.type = MSG_DATA_READY};
    struct peer *old = find_peer(p->d, m->api_id);
    int rc;

    if (p->api_id || m->api_id == 0)
        return SH_FAIL(err, SH_E_PROTO, "DATA_HELLO came twice or without a number");
    if (old) { /* it lost its connection before we noticed */
        struct sh_wire *w = old->wire;

        drop_peer(old);
        sh_wire_close(w);
    }
    rc = check_room_for_api(p->d, err);
    if (!rc)
        rc = take_slab(p, m, fds, n_fds, err);
    if (rc)
        return rc;
    p->api_id = m->api_id;
    SH_INFO("api.up", "api=%s id=%" PRIx64 " slab_bytes=%" PRIu64 " local=%d", m->name, m->api_id,
            m->slab_bytes, p->is_local);
    ready.u.data_ready = (struct msg_data_ready){
        .executor = c->executor, .incarnation = c->incarnation, .run_ms = c->run_ms};
    return sh_wire_send(p->wire, &ready, err);
}

static int on_chunk(struct peer *p, const struct msg_data_chunk *m, struct sh_err *err)
{
    if (!p->slab.base)
        return SH_FAIL(err, SH_E_PROTO, "DATA_CHUNK from an API that shares its slab");
    if (m->off > p->slab.bytes || m->bytes.len > p->slab.bytes - m->off)
        return SH_FAIL(err, SH_E_PROTO, "a chunk of %zu bytes at %" PRIu64 " leaves the slab",
                       m->bytes.len, m->off);
    memcpy((char *)p->slab.base + m->off, m->bytes.data, m->bytes.len);
    return SH_OK;
}

static int on_end(struct peer *p, uint64_t rid, struct sh_err *err)
{
    if (p->n_ended == MAX_ENDED) { /* the oldest was given up long ago */
        memmove(p->ended, p->ended + 1, (p->n_ended - 1) * sizeof(*p->ended));
        p->n_ended--;
    }
    if (sh_grow(&p->ended, &p->cap_ended, p->n_ended + 1, sizeof(*p->ended), MAX_ENDED,
                "requests of one API", err))
        return SH_E_NOMEM;
    p->ended[p->n_ended++] = rid;
    return SH_OK;
}

static int on_image_get(struct peer *p, const struct msg_image_get *m, struct sh_err *err)
{
    const struct data_conf *c = &p->d->conf;
    size_t n = 0;

    for (const struct peer *o = p->d->peers; o; o = o->next)
        n += o->asks;
    if (!p->asks && n >= DATA_MAX_ASKING)
        return SH_FAIL(err, SH_E_TOOBIG, "more than %u executors ask for images", DATA_MAX_ASKING);
    p->asks = true;
    c->on_image(c->arg, p->wire, m);
    return SH_OK;
}

static void on_msg(struct sh_wire *w, const struct sh_msg *m, int *fds, size_t n_fds, void *arg)
{
    struct peer *p = arg;
    struct sh_err err = {0};
    int rc;

    (void)w;
    switch (m->type) {
    case MSG_IMAGE_GET:
        rc = on_image_get(p, &m->u.image_get, &err);
        break;
    case MSG_DATA_HELLO:
        rc = on_hello(p, &m->u.data_hello, fds, n_fds, &err);
        break;
    case MSG_DATA_CHUNK:
        rc = on_chunk(p, &m->u.data_chunk, &err);
        break;
    case MSG_DATA_END:
        rc = on_end(p, m->u.data_end.rid, &err);
        break;
    case MSG_SPANS_WANTED:
        sh_trace_wish_all(p->api_id, &m->u.spans_wanted);
        rc = SH_OK;
        break;
    default:
        rc = SH_FAIL(&err, SH_E_PROTO, "%s is no message for an executor's data port",
                     sh_msg_name(m->type));
    }
    if (rc)
        refuse_peer(p, &err);
}

static void on_close(struct sh_wire *w, const struct sh_err *why, void *arg)
{
    struct peer *p = arg;

    (void)w;
    if (p->api_id)
        SH_INFO("api.down", "id=%" PRIx64 " msg=\"%s\"", p->api_id, why->msg);
    drop_peer(p);
}

/* ------------------------------------------------------------------ results */

bool data_has(const struct data *d, uint64_t api_id, uint64_t rid)
{
    const struct peer *p = d ? find_peer(d, api_id) : NULL;

    if (!p || p->is_local)
        return p != NULL;
    for (size_t i = p->n_ended; i-- > 0;) /* at the front lie those that were cancelled */
        if (p->ended[i] == rid)
            return true;
    return false;
}

bool data_is_complete(const struct data *d, uint64_t api_id, uint64_t rid, int64_t came_ns)
{
    if (d && find_peer(d, api_id))
        return data_has(d, api_id, rid);
    return sh_clock_ns() - came_ns > UNKNOWN_NS;
}

static void forget_ended(struct peer *p, uint64_t rid)
{
    for (size_t i = p->n_ended; i-- > 0;)
        if (p->ended[i] == rid) {
            memmove(p->ended + i, p->ended + i + 1, (p->n_ended - i - 1) * sizeof(*p->ended));
            p->n_ended--;
            return;
        }
}

static int send_output_span(struct peer *p, uint64_t rid, const struct msg_span *s,
                            struct sh_err *err)
{
    if (s->off > p->slab.bytes || s->len > p->slab.bytes - s->off)
        return SH_FAIL(err, SH_E_PROTO, "an output leaves the slab");
    for (uint64_t at = 0; at < s->len; at += DATA_CHUNK_BYTES) {
        struct sh_msg m = {.type = MSG_DATA_CHUNK};
        size_t n = (size_t)SH_MIN(s->len - at, (uint64_t)DATA_CHUNK_BYTES);
        int rc;

        m.u.data_chunk = (struct msg_data_chunk){
            .rid = rid, .off = s->off + at, .bytes = {(const char *)p->slab.base + s->off + at, n}};
        rc = sh_wire_send(p->wire, &m, err);
        if (rc)
            return rc;
    }
    return SH_OK;
}

void data_result(struct data *d, const struct run_part *part, const struct msg_result *r)
{
    struct peer *p = find_peer(d, part->api_id);
    struct sh_msg m = {.type = MSG_RESULT, .u.result = *r};
    struct sh_err err = {0};
    int rc = SH_OK;

    if (!p)
        return;
    if (!p->is_local && part->is_cut && r->rc == 0) { /* the outputs lie in a mirror that is gone */
        m.u.result.rc = SH_E_UNAVAILABLE;
        m.u.result.msg = "the connection to the executor was lost during the run; try again";
    }
    if (!p->is_local) {
        forget_ended(p, part->rid);
        for (size_t i = 0; !rc && m.u.result.rc == 0 && i < part->n_out; i++)
            rc = send_output_span(p, part->rid, &part->out[i], &err);
    }
    if (!rc)
        rc = sh_wire_send(p->wire, &m, &err);
    if (rc)
        sh_log_err(SH_LOG_WARN, "api.send", &err);
}

/* Not one on another host, to which outputs go, too: those would be copied to wait. */
void data_cork(struct data *d)
{
    for (struct peer *p = d->peers; p; p = p->next)
        if (p->is_local)
            sh_wire_cork(p->wire);
}

void data_uncork(struct data *d)
{
    for (struct peer *p = d->peers; p; p = p->next)
        if (p->is_local)
            sh_wire_uncork(p->wire);
}

/* ------------------------------------------------------------------ life */

static int add_peer(struct data *d, struct sh_wire *w, struct peer **out, struct sh_err *err)
{
    struct peer *p;

    if (d->n_peers >= d->conf.max_apis + DATA_MAX_ASKING)
        return SH_FAIL(err, SH_E_TOOBIG, "%zu connections (max-apis)", d->n_peers);
    p = calloc(1, sizeof(*p));
    if (!p)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a connection");
    p->d = d;
    p->slab.fd = -1;
    p->wire = w;
    p->is_local = sh_wire_is_local(w);
    p->next = d->peers;
    d->peers = p;
    d->n_peers++;
    *out = p;
    return SH_OK;
}

static bool on_peer(struct sh_wire *w, struct sh_wire_handler *h, void *arg)
{
    struct peer *p = NULL;
    struct sh_err err = {0};

    if (add_peer(arg, w, &p, &err)) {
        sh_log_err(SH_LOG_WARN, "api.refused", &err);
        return false;
    }
    *h = (struct sh_wire_handler){
        .on_msg = on_msg, .on_close = on_close, .arg = p, .max_queued_bytes = MAX_QUEUED};
    return true;
}

int data_new(const struct data_conf *c, struct sh_loop *loop, struct slabs *slabs,
             struct data **out, struct sh_err *err)
{
    struct data *d = calloc(1, sizeof(*d));
    struct sh_listen_handler h = {.on_peer = on_peer, .arg = d, .keys = c->keys};
    int rc;

    *out = NULL;
    if (!d)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the data port");
    d->conf = *c;
    d->slabs = slabs;
    rc = sh_listen_new(loop, c->addr, &h, &d->listen, err);
    if (rc) {
        data_free(d);
        return rc;
    }
    *out = d;
    return SH_OK;
}

void data_close(struct data *d)
{
    while (d->peers) {
        struct sh_wire *w = d->peers->wire;

        drop_peer(d->peers);
        sh_wire_close(w);
    }
    sh_listen_free(d->listen);
    d->listen = NULL;
}

void data_free(struct data *d)
{
    if (!d)
        return;
    data_close(d);
    free(d);
}
