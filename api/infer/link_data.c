/* link_data.c - connections to executors: gives them the slab, receives results. */
#include "api/api.h"
#include "api/infer/link_int.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/units.h"

#include <stdlib.h>
#include <unistd.h>

#define CHUNK_BYTES ((size_t)1 << 20)
#define REACH_NS SH_S(2) /* who lives connects in far less */
#define UNCONFIRMED_NS SH_S(15)

static struct link_exec *find_exec(struct link *l, const char *name)
{
    for (size_t i = 0; i < l->n_execs; i++)
        if (strcmp(l->execs[i]->name, name) == 0)
            return l->execs[i];
    return NULL;
}

static bool has_outputs(const struct link_exec *e, const struct infer *i)
{
    uint64_t bytes = 0;

    for (size_t k = 0; k < i->v->n_outputs; k++)
        bytes += i->plan.run_out_bytes[k];
    return e->local || i->link.out_bytes >= bytes;
}

/* Its run may be over without a result for us. The scheduler answers only if it does not have the
 * request any more. */
static void ask_whether_it_runs(struct link *l, struct infer *i)
{
    i->link.moved = true;
    link__send(l, &(struct sh_msg){.type = MSG_INFER_AGAIN, .u.infer_again = {.rid = i->rid}});
}

bool link__take_early(struct link *l, struct infer *i)
{
    const struct link_exec *e = find_exec(l, i->link.executor);

    if (!i->link.early_from[0] || strcmp(i->link.early_from, i->link.executor) != 0)
        return false;
    if (i->link.early.rc == SH_OK && !i->link.over && !(e && has_outputs(e, i))) {
        i->link.early_from[0] = '\0';
        ask_whether_it_runs(l, i);
        return false;
    }
    i->link.early.compile_ns = i->link.compile_ns;
    link__end(l, i, &i->link.early, false);
    return true;
}

/* Only who was given a request ends it. The word of that comes from the scheduler, behind the
 * result perhaps; but outputs of one on another host were not taken then (take_chunk): it had been
 * there before, with its inputs, and came back. Where outputs have not come, or were refused, the
 * slot has what it had before: another's bytes. */
static void on_result(const struct link_exec *e, const struct msg_result *m)
{
    struct infer *i = link__find(e->link, m->rid);
    struct infer_result r = {.rc = m->rc > 0 ? SH_E_BUG : (int)m->rc,
                             .is_final = m->rc == SH_E_QUOTA || m->rc == SH_E_TOOBIG,
                             .run_batch = m->run_batch,
                             .queue_ns = m->queue_ns,
                             .copy_ns = m->copy_ns,
                             .compute_ns = m->compute_ns,
                             .total_ns = m->total_ns};

    if (!i)
        return;
    sh_strlcpy(r.msg, m->msg, sizeof(r.msg));
    if (r.rc == SH_E_CANCELLED) { /* not by us, who forget it then: its time is over */
        r.rc = SH_E_TIMEOUT;
        r.retry_after_ms = LINK_RETRY_MS;
        sh_strlcpy(r.msg, LINK_LATE_TEXT, sizeof(r.msg));
    }
    if (strcmp(i->link.executor, e->name) != 0) {
        i->link.early = r;
        sh_strlcpy(i->link.early_from, e->name, sizeof(i->link.early_from));
        return;
    }
    if (r.rc == SH_OK && !has_outputs(e, i)) {
        SH_WARN("executor.result", "executor=%s rid=%llu msg=\"a result without its outputs\"",
                e->name, (unsigned long long)i->rid);
        return;
    }
    r.compile_ns = i->link.compile_ns;
    link__end(e->link, i, &r, false);
}

/* Outputs from a remote executor. It may write only where this request expects outputs. */
static int take_chunk(struct link *l, const struct link_exec *e, const struct msg_data_chunk *m,
                      struct sh_err *err)
{
    struct infer *i = link__find(l, m->rid);
    uint64_t first;

    if (!i || !i->link.ready || strcmp(i->link.executor, e->name) != 0)
        return SH_OK; /* late: the request is over and forgotten */
    first = i->outputs->off;
    if (m->off < first || m->bytes.len > i->outputs->bytes ||
        m->off - first > i->outputs->bytes - m->bytes.len)
        return SH_FAIL(err, SH_E_PROTO, "a chunk lies outside the outputs of its request");
    i->link.out_bytes += m->bytes.len;
    if (!i->link.over)
        memcpy(slab_at(l->api->slab, m->off), m->bytes.data, m->bytes.len);
    return SH_OK;
}

/* Only the connection is known to be gone: the executor may still run them. */
static void ask_again_for_all_of(struct link *l, const char *executor)
{
    struct infer *next;

    for (struct infer *i = l->all; i; i = next) {
        next = i->link.next;
        if (i->link.over || !i->link.placed || strcmp(i->link.executor, executor) != 0)
            continue;
        if (i->link.orphan) { /* no scheduler knows of it */
            link__fail(l, i, SH_E_UNAVAILABLE, LINK_LOST_TEXT, true);
            continue;
        }
        i->link.placed = i->link.sent = false;
        i->link.out_bytes = 0;
        i->link.moved |= i->link.ready;
        link__send(l, &(struct sh_msg){.type = MSG_INFER_AGAIN,
                                       .u.infer_again = {i->rid, i->link.n_placed}});
    }
}

static void learn_run_time(struct link *l, uint64_t run_ms)
{
    int64_t ns = SH_MS(SH_MIN(run_ms, LINK_MAX_RUN_MS));

    l->run_ns = SH_MAX(l->run_ns, ns);
}

static void on_exec_msg(struct sh_wire *w, const struct sh_msg *m, int *fds, size_t n_fds,
                        void *arg)
{
    struct link_exec *e = arg;
    struct sh_err err = {0};

    (void)fds;
    (void)n_fds;
    switch (m->type) {
    case MSG_DATA_READY:
        e->ready = true;
        e->up_ns = sh_clock_ns();
        learn_run_time(e->link, m->u.data_ready.run_ms);
        SH_INFO("executor.up", "executor=%s local=%d", e->name, e->local);
        for (struct infer *i = e->link->all; i; i = i->link.next)
            link__send_inputs(e->link, i);
        break;
    case MSG_DATA_CHUNK:
        if (take_chunk(e->link, e, &m->u.data_chunk, &err))
            sh_log_err(SH_LOG_ERROR, "executor.chunk", &err);
        break;
    case MSG_DATA_END:
        break;
    case MSG_RESULT:
        on_result(e, &m->u.result);
        break;
    case MSG_PING:
        sh_wire_send(w, &(struct sh_msg){.type = MSG_PONG, .u.pong = {m->u.ping.cookie}}, NULL);
        break;
    default:
        SH_WARN("executor.message", "executor=%s type=%s msg=\"not for an API\"", e->name,
                sh_msg_name(m->type));
    }
}

static void on_exec_up(struct sh_wire *w, void *arg)
{
    struct link_exec *e = arg;
    struct slab *slab = e->link->api->slab;
    int fd = slab_fd(slab);
    struct sh_msg m = {.type = MSG_DATA_HELLO,
                       .u.data_hello = {.api_id = e->link->api_id,
                                        .name = e->link->api->conf->name,
                                        .slab_bytes = slab_bytes(slab)}};

    e->local = sh_wire_is_local(w);
    if (e->local)
        sh_wire_send_fds(w, &m, &fd, 1, NULL);
    else
        sh_wire_send(w, &m, NULL);
}

static void on_exec_down(struct sh_wire *w, const struct sh_err *why, void *arg)
{
    struct link_exec *e = arg;

    (void)w;
    if (e->ready)
        SH_WARN("executor.down", "executor=%s code=%s msg=\"%s\"", e->name, sh_rc_name(why->rc),
                why->msg);
    if (e->ready)
        e->down_ns = sh_clock_ns();
    e->ready = false;
    ask_again_for_all_of(e->link, e->name);
}

static void remove_exec(struct link *l, struct link_exec *e)
{
    for (size_t i = 0; i < l->n_execs; i++)
        if (l->execs[i] == e)
            l->execs[i] = l->execs[--l->n_execs];
    sh_link_free(e->wire);
    ask_again_for_all_of(l, e->name);
    free(e);
}

static int add_link_exec(struct link *l, const struct msg_exec_up *m, struct sh_err *err)
{
    struct link_exec *e;
    struct sh_link_handler h = {.on_up = on_exec_up,
                                .on_msg = on_exec_msg,
                                .on_down = on_exec_down,
                                .keys = l->api->link_keys};
    int rc;

    rc = sh_grow(&l->execs, &l->cap_execs, l->n_execs + 1, sizeof(*l->execs), SH_MAX_EXECUTORS,
                 "executors", err);
    if (rc)
        return rc;
    e = calloc(1, sizeof(*e));
    if (!e)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate an executor");
    e->link = l;
    e->down_ns = sh_clock_ns();
    e->confirmed = true;
    sh_strlcpy(e->name, m->executor, sizeof(e->name));
    sh_strlcpy(e->addr, m->data_addr, sizeof(e->addr));
    h.arg = e;
    rc = sh_link_new(l->loop, e->addr, &h, &e->wire, err);
    if (rc) {
        free(e);
        return rc;
    }
    l->execs[l->n_execs++] = e;
    return SH_OK;
}

void link__exec_up(struct link *l, const struct msg_exec_up *m)
{
    struct link_exec *e = find_exec(l, m->executor);
    struct sh_err err = {0};

    if (e && (!m->up || strcmp(e->addr, m->data_addr) != 0)) {
        remove_exec(l, e);
        e = NULL;
    }
    if (e)
        e->confirmed = true;
    else if (m->up && add_link_exec(l, m, &err))
        sh_log_err(SH_LOG_ERROR, "executor.add", &err);
}

/* Executors that the scheduler does not name any more after it came back. */
void link__exec_sweep(struct link *l)
{
    if (!atomic_load(&l->up) || sh_clock_ns() - l->welcome_ns < UNCONFIRMED_NS)
        return;
    for (size_t i = l->n_execs; i-- > 0;)
        if (!l->execs[i]->confirmed && !l->execs[i]->ready)
            remove_exec(l, l->execs[i]);
}

void link__send_to_all(struct link *l, const struct sh_msg *m)
{
    for (size_t k = 0; k < l->n_execs; k++) {
        struct sh_wire *w = l->execs[k]->ready ? sh_link_wire(l->execs[k]->wire) : NULL;

        if (w)
            sh_wire_send(w, m, NULL);
    }
}

void link__exec_free_all(struct link *l)
{
    while (l->n_execs > 0) {
        struct link_exec *e = l->execs[--l->n_execs];

        sh_link_free(e->wire);
        free(e);
    }
    free(l->execs);
    l->execs = NULL;
    l->cap_execs = 0;
}

static int send_input_span(struct link *l, struct sh_wire *w, const struct infer *i,
                           const char *data, size_t len)
{
    uint64_t off = (uint64_t)(data - (const char *)slab_at(l->api->slab, 0));
    int rc = SH_OK;

    for (size_t done = 0; !rc && done < len;) {
        size_t n = SH_MIN(len - done, CHUNK_BYTES);
        struct sh_msg m = {
            .type = MSG_DATA_CHUNK,
            .u.data_chunk = {.rid = i->rid, .off = off + done, .bytes = {data + done, n}}};

        rc = sh_wire_send(w, &m, NULL);
        done += n;
    }
    return rc;
}

/* The scheduler's own connection to it may be up, so the scheduler has no reason to move it. */
bool link__is_out_of_reach(struct link *l, const struct infer *i, int64_t now_ns)
{
    const struct link_exec *e;

    if (i->link.over || !i->link.ready || !i->link.placed || i->link.sent)
        return false;
    e = find_exec(l, i->link.executor);
    return !e || (!e->ready && now_ns - e->down_ns > REACH_NS);
}

void link__send_inputs(struct link *l, struct infer *i)
{
    struct sh_msg end = {.type = MSG_DATA_END, .u.data_end = {.rid = i->rid}};
    const struct link_exec *e;
    struct sh_wire *w;
    int rc = SH_OK;

    if (i->link.over || !i->link.ready || !i->link.placed || i->link.sent)
        return;
    e = find_exec(l, i->link.executor);
    w = e && e->ready ? sh_link_wire(e->wire) : NULL;
    if (!w) /* DATA_READY will call again; else link__is_out_of_reach() ends it */
        return;
    if (e->up_ns > i->link.ready_ns) /* its run may have ended while there was nobody to tell */
        ask_whether_it_runs(l, i);
    i->link.sent = true;
    if (e->local)
        return;
    for (size_t k = 0; !rc && k < i->v->n_inputs; k++)
        rc = send_input_span(l, w, i, i->plan.in[k].binary, i->plan.in[k].run_bytes);
    if (!rc)
        rc = sh_wire_send(w, &end, NULL);
    /* A connection that fails here is closed by the wire: on_exec_down ends the request. */
}
