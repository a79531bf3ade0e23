/* fake_runs.c - the simple executor's data port and runs: one at a time, in the order they came. */
#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"
#include "tests/sim/database.h"
#include "tests/sim/fake_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define RUN_MS 60000
/* As executor/requests/data.c: an API that lives connects in far less. */
#define UNKNOWN_NS SH_S(1)
#define LOOK_NS SH_MS(1)

static void go_on(struct fake *f);

/* ------------------------------------------------------------------ APIs */

static struct fake_peer *find_peer(struct fake *f, uint64_t api_id)
{
    for (size_t i = 0; i < FAKE_PEERS; i++)
        if (f->now.peers[i].wire && f->now.peers[i].api_id == api_id)
            return &f->now.peers[i];
    return NULL;
}

static void drop_peer(struct fake_peer *p)
{
    if (p->is_local && p->slab)
        munmap(p->slab, p->bytes);
    else
        free(p->slab);
    *p = (struct fake_peer){.fake = p->fake};
}

static void drop_parts(struct fake *f, uint64_t run_id, uint64_t api_id, uint64_t rid);

static void on_hello(struct fake_peer *p, const struct msg_data_hello *m, int *fds, size_t n_fds)
{
    struct fake_peer *old = find_peer(p->fake, m->api_id);

    if (old && old != p) {
        sh_wire_close(old->wire);
        drop_peer(old);
    }
    p->api_id = m->api_id;
    p->bytes = m->slab_bytes;
    SIM_CHECK("hello", !p->is_local || n_fds == 1, "an API came without its slab");
    p->slab = p->is_local ? mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0)
                          : calloc(1, p->bytes);
    if (!p->slab || p->slab == MAP_FAILED)
        sim_broken("memory", "a slab cannot be mapped");
    sh_wire_send(p->wire,
                 &(struct sh_msg){.type = MSG_DATA_READY,
                                  .u.data_ready = {.executor = sim_proc_name(p->fake->proc),
                                                   .incarnation = p->fake->now.incarnation,
                                                   .run_ms = RUN_MS}},
                 NULL);
}

static void on_peer_msg(struct sh_wire *w, const struct sh_msg *m, int *fds, size_t n_fds,
                        void *arg)
{
    struct fake_peer *p = arg;
    const struct msg_data_chunk *c = &m->u.data_chunk;

    (void)w;
    if (m->type == MSG_DATA_HELLO) {
        on_hello(p, &m->u.data_hello, fds, n_fds);
    } else if (m->type == MSG_DATA_CHUNK) {
        SIM_CHECK("chunk", p->slab && !p->is_local && c->off + c->bytes.len <= p->bytes,
                  "a chunk leaves the slab");
        memcpy(p->slab + c->off, c->bytes.data, c->bytes.len);
    } else if (m->type == MSG_DATA_END) {
        p->ended[p->n_ended++ % SH_ARRAY_LEN(p->ended)] = m->u.data_end.rid;
    }
    go_on(p->fake);
}

static void on_peer_gone(struct sh_wire *w, const struct sh_err *why, void *arg)
{
    struct fake_peer *p = arg;
    struct fake *f = p->fake;
    uint64_t api_id = p->api_id;

    (void)w, (void)why;
    drop_peer(p);
    if (api_id)
        drop_parts(f, 0, api_id, 0);
}

static bool on_peer(struct sh_wire *w, struct sh_wire_handler *h, void *arg)
{
    struct fake *f = arg;

    for (size_t i = 0; i < FAKE_PEERS; i++) {
        struct fake_peer *p = &f->now.peers[i];

        if (p->wire)
            continue;
        *p = (struct fake_peer){.fake = f, .wire = w, .is_local = sh_wire_is_local(w)};
        *h = (struct sh_wire_handler){.on_msg = on_peer_msg, .on_close = on_peer_gone, .arg = p};
        return true;
    }
    return false;
}

int fake__listen(struct fake *f, struct sh_loop *l, struct sh_err *err)
{
    const struct sh_listen_handler h = {.on_peer = on_peer, .arg = f};
    struct sh_listen *listen;

    return sh_listen_new(l, f->addr, &h, &listen, err);
}

/* ------------------------------------------------------------------ results */

static void send_result(struct fake *f, const struct fake_run *r, const struct fake_part *part,
                        int rc, int64_t took_ns)
{
    struct fake_peer *p = find_peer(f, part->api_id);

    if (!p)
        return;
    for (size_t i = 0; i < part->n_out && rc == 0 && !p->is_local; i++)
        sh_wire_send(
            p->wire,
            &(struct sh_msg){.type = MSG_DATA_CHUNK,
                             .u.data_chunk = {part->rid,
                                              part->out[i].off,
                                              {p->slab + part->out[i].off, part->out[i].len}}},
            NULL);
    sh_wire_send(p->wire,
                 &(struct sh_msg){.type = MSG_RESULT,
                                  .u.result = {.rid = part->rid,
                                               .rc = rc,
                                               .msg = rc ? sh_rc_name(rc) : "",
                                               .run_batch = r->batch,
                                               .queue_ns = sim_now() - r->recv_ns,
                                               .compute_ns = took_ns,
                                               .total_ns = took_ns}},
                 NULL);
}

void fake_lie(struct fake *f, uint64_t api_id, uint64_t rid)
{
    const struct fake_peer *p = find_peer(f, api_id);

    if (!p || p->is_local)
        return;
    sim_trace("lies about request %" PRIu64, rid);
    sh_wire_send(p->wire, &(struct sh_msg){.type = MSG_RESULT, .u.result = {.rid = rid, .msg = ""}},
                 NULL);
}

static void end_run(struct fake *f, struct fake_run *r, int rc, int64_t took_ns, bool is_cold)
{
    uint64_t bytes = fake__image_bytes(r->version_id);

    for (size_t i = 0; i < r->n_parts; i++)
        send_result(f, r, &r->parts[i], rc, took_ns);
    fake__send(f, &(struct sh_msg){.type = MSG_RUN_DONE,
                                   .u.run_done = {.run_id = r->id,
                                                  .rc = rc,
                                                  .msg = rc ? sh_rc_name(rc) : "",
                                                  .total_ns = took_ns,
                                                  .compute_ns = took_ns,
                                                  .busy_ns = took_ns,
                                                  .resident_bytes = bytes,
                                                  .cold = is_cold}});
    f->now.n_runs--;
    free(r);
}

static bool is_here(const struct fake_peer *p, uint64_t rid)
{
    for (size_t i = 0; i < SH_ARRAY_LEN(p->ended) && !p->is_local; i++)
        if (p->ended[i] == rid)
            return true;
    return p->is_local;
}

/* False: its input is not there, or no more: its API was lost, and may have come back without. */
static bool write_outputs(struct fake *f, const struct fake_run *r, const struct fake_part *part)
{
    struct fake_peer *p = find_peer(f, part->api_id);
    const struct database_version *v = &database.versions[r->version_id - 1];

    if (!p || !p->slab || !is_here(p, part->rid))
        return false;
    for (uint32_t k = 0; k < part->batch; k++)
        sim_fill_output(&v->content, p->slab + part->in[0].off + k * part->in[0].len / part->batch,
                        part->in[0].len / part->batch,
                        p->slab + part->out[0].off + k * part->out[0].len / part->batch,
                        part->out[0].len / part->batch);
    return true;
}

/* ------------------------------------------------------------------ the queue */

static bool has_input(struct fake *f, const struct fake_run *r, const struct fake_part *part)
{
    const struct fake_peer *p = find_peer(f, part->api_id);

    return p ? is_here(p, part->rid) : sim_now() - r->recv_ns > UNKNOWN_NS;
}

static bool is_complete(struct fake *f, const struct fake_run *r)
{
    for (size_t i = 0; i < r->n_parts; i++)
        if (!has_input(f, r, &r->parts[i]))
            return false;
    return true;
}

static void on_look(void *arg, uint64_t n)
{
    struct fake *f = arg;

    (void)n;
    f->now.is_looking = false;
    go_on(f);
}

/* Its part of the run's time is its part of the samples. */
static void count_part(struct fake *f, const struct fake_run *r, const struct fake_part *p,
                       int64_t took_ns, bool is_answered)
{
    struct msg_usage_row used = {.kind = MSG_USAGE_RUNS,
                                 .id = r->version_id,
                                 .gpu_ns = took_ns * p->batch / r->batch,
                                 .requests = is_answered,
                                 .samples = is_answered ? p->batch : 0};

    sh_strlcpy(used.tenant, *p->tenant ? p->tenant : r->tenant, sizeof(used.tenant));
    fake__count(f, &used);
}

static void on_done(void *arg, uint64_t took_ns)
{
    struct fake *f = arg;
    struct fake_run *r = f->now.current;

    f->now.current = NULL;
    for (size_t i = 0; i < r->n_parts; i++) {
        const bool is_written = write_outputs(f, r, &r->parts[i]);

        count_part(f, r, &r->parts[i], (int64_t)took_ns, is_written); /* before anybody hears */
        if (is_written)
            continue;
        send_result(f, r, &r->parts[i], SH_E_UNAVAILABLE, (int64_t)took_ns);
        r->parts[i--] = r->parts[--r->n_parts];
    }
    end_run(f, r, SH_OK, (int64_t)took_ns, false);
    fake__on_run_ended(f);
    go_on(f);
}

static void start_run(struct fake *f, struct fake_run *r)
{
    struct fake_model *m = fake__model(f, r->version_id);
    int64_t ns = SH_US(500) + r->version_id % 5 * SH_MS(1) + r->batch * SH_US(200);

    if (sh_clock_ns() > r->deadline_ns) {
        end_run(f, r, SH_E_TIMEOUT, 0, false);
        return;
    }
    if (!m || m->phase != FAKE_READY || !r->has_shape) {
        end_run(f, r, SH_E_UNAVAILABLE, 0, false);
        return;
    }
    SIM_CHECK("batch", r->batch <= m->max_batch, "a run of %u samples, at most %u", r->batch,
              m->max_batch);
    if (sim_now() >= m->resident_until_ns) /* what it copies meanwhile */
        ns += (int64_t)(fake__image_bytes(m->id) / 25);
    m->resident_until_ns = sim_now() + sim_between(SH_MS(100), SH_S(3));
    ns = fake__slowed(f, ns + sim_between(0, ns / 4));
    f->now.current = r;
    fake__on_run_began(f);
    sim_after(f->proc, ns, on_done, f, (uint64_t)ns);
}

/* Whoever waits for inputs that never come gives up in time. */
static void expire(struct fake *f)
{
    struct fake_run **at = &f->now.queue;

    while (*at) {
        struct fake_run *r = *at;

        if (sh_clock_ns() <= r->deadline_ns) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        end_run(f, r, SH_E_TIMEOUT, 0, false);
    }
}

static void go_on(struct fake *f)
{
    expire(f);
    while (!f->now.current && f->now.queue) {
        struct fake_run **at = &f->now.queue, *r;

        while (*at && !is_complete(f, *at))
            at = &(*at)->next;
        r = *at;
        if (!r && !f->now.is_looking)
            sim_after(f->proc, LOOK_NS, on_look, f, 0);
        f->now.is_looking |= !r;
        if (!r)
            return;
        *at = r->next;
        start_run(f, r);
    }
}

/* Of runs that have not begun: one request of a run, or all of an API. */
/* run_id 0: all of what the API waits for. */
static void drop_parts(struct fake *f, uint64_t run_id, uint64_t api_id, uint64_t rid)
{
    struct fake_run **at = &f->now.queue;

    while (*at) {
        struct fake_run *r = *at;

        for (size_t i = r->n_parts; i-- > 0;) {
            struct fake_part *p = &r->parts[i];

            if (p->api_id != api_id || (run_id && (r->id != run_id || p->rid != rid)))
                continue;
            send_result(f, r, p, SH_E_CANCELLED, 0);
            *p = r->parts[--r->n_parts];
        }
        if (r->n_parts) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        end_run(f, r, SH_E_CANCELLED, 0, false);
    }
}

/* ------------------------------------------------------------------ orders */

static size_t take_spans(const struct sh_blob *b, struct msg_span out[FAKE_SPANS])
{
    size_t n = b->len / sizeof(out[0]);

    SIM_CHECK("simulator", n <= FAKE_SPANS, "%zu spans", n);
    memcpy(out, b->data, n * sizeof(out[0]));
    return n;
}

void fake__on_part(struct fake *f, const struct msg_run_part *m)
{
    struct fake_part *p = &f->now.loose[f->now.n_loose++];

    SIM_CHECK("parts", f->now.n_loose <= SH_ARRAY_LEN(f->now.loose),
              "parts come without their runs");
    *p = (struct fake_part){.run_id = m->run_id, .rid = m->rid, .api_id = m->api_id};
    sh_strlcpy(p->tenant, m->tenant, sizeof(p->tenant));
    p->batch = m->batch;
    p->n_in = take_spans(&m->in_spans, p->in);
    p->n_out = take_spans(&m->out_spans, p->out);
}

static struct fake_run *collect(struct fake *f, const struct msg_run *m)
{
    struct fake_run *r = calloc(1, sizeof(*r));
    size_t kept = 0;

    r->id = m->run_id;
    r->version_id = m->version_id;
    r->batch = m->batch;
    r->has_shape = fake__has_shape(f, m->version_id, &m->sizes);
    r->recv_ns = sim_now();
    r->deadline_ns = sh_clock_ns() + m->budget_ns;
    sh_strlcpy(r->tenant, m->tenant, sizeof(r->tenant));
    for (size_t i = 0; i < f->now.n_loose; i++) {
        if (f->now.loose[i].run_id == m->run_id && r->n_parts < FAKE_PARTS)
            r->parts[r->n_parts++] = f->now.loose[i];
        else
            f->now.loose[kept++] = f->now.loose[i];
    }
    f->now.n_loose = kept;
    SIM_CHECK("parts", r->n_parts == m->n_parts, "a run of %u requests came with %zu", m->n_parts,
              r->n_parts);
    return r;
}

void fake__on_run(struct fake *f, const struct msg_run *m, bool is_stale)
{
    struct fake_run *r = collect(f, m), **at = &f->now.queue;
    uint32_t batch = 0;

    f->now.n_runs++;
    for (size_t i = 0; i < r->n_parts; i++)
        batch += r->parts[i].batch;
    SIM_CHECK("batch", batch == r->batch, "a run of %u samples has %u", r->batch, batch);
    sim_trace("run %" PRIu64 " version=%" PRId64 " parts=%zu%s", r->id & 0xffffffffff,
              r->version_id, r->n_parts, is_stale ? " stale" : "");
    if (is_stale) {
        end_run(f, r, SH_E_UNAVAILABLE, 0, false);
        return;
    }
    while (*at)
        at = &(*at)->next;
    *at = r;
    go_on(f);
}

void fake__on_cancel(struct fake *f, const struct msg_run_cancel *m)
{
    drop_parts(f, m->run_id, m->api_id, m->rid);
}
