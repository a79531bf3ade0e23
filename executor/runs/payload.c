/* payload.c - see payload.h. */
#include "executor/runs/payload.h"

#include "common/log.h"
#include "common/mem.h"
#include "executor/requests/data.h"
#include "executor/requests/slabs.h"
#include "executor/runs/switch_int.h"

#include <fcntl.h>
#include <stdlib.h>

#define MIN_BYTES ((uint64_t)1 << 20)
#define KEEP_BYTES ((uint64_t)64 << 20)  /* more than that goes after the run */
#define CLEAR_BYTES ((uint64_t)16 << 20) /* more than that gives its pages back */
#define MAX_BYTES ((uint64_t)64 << 30)   /* as of a slab */
#define ALIGN 64u
#define NO_SLAB 0 /* no API has this number */

bool payload_has_part(const struct run *r, const struct run_part *p)
{
    return r->is_own || data_has(r->sw->env.data, p->api_id, p->rid);
}

/* ------------------------------------------------------------------ where what lies */

/* The same whether its API is still there or not. What is no length at all is refused later. */
static uint64_t span_room(uint64_t len)
{
    return len > MAX_BYTES ? 0 : SH_ALIGN_UP(len, (uint64_t)ALIGN);
}

static uint64_t place_spans(const struct msg_span *from, size_t n, uint64_t at, struct msg_span *to)
{
    for (size_t i = 0; i < n; i++) {
        if (to)
            to[i] = (struct msg_span){.off = at, .len = from[i].len};
        at += span_room(from[i].len);
    }
    return at;
}

static bool lie_in(const struct msg_span *s, size_t n, const struct sh_shm *slab)
{
    for (size_t i = 0; i < n; i++)
        if (s[i].off > slab->bytes || s[i].len > slab->bytes - s[i].off)
            return false;
    return true;
}

/* NULL: its API is gone, or it is no slab of its spans. The worker finds that too, and says so of
 * this part alone: it gets the part as it is, and knows no such slab. */
static const struct sh_shm *slab_of(const struct run *r, const struct run_part *p)
{
    const struct sh_shm *slab = slabs_find(r->sw->env.slabs, p->api_id);

    return slab && lie_in(p->in, p->n_in, slab) && lie_in(p->out, p->n_out, slab) ? slab : NULL;
}

/* Between the slabs and the worker's memory: inputs to it, or outputs from it. A part that failed
 * has none: what it said of the slab may be wrong. */
static void copy_payload(const struct run *r, const struct payload *m, bool in)
{
    uint64_t at = 0;

    for (size_t k = 0; k < r->n_parts; k++) {
        const struct run_part *p = &r->parts[k];
        const bool goes = in ? payload_has_part(r, p) : !p->rc;
        const struct sh_shm *slab = goes ? slab_of(r, p) : NULL;
        const uint64_t outs = place_spans(p->in, p->n_in, at, NULL);
        uint64_t here = in ? at : outs;

        for (size_t i = 0; slab && i < (in ? p->n_in : p->n_out); i++) {
            const struct msg_span *s = in ? &p->in[i] : &p->out[i];
            char *ours = (char *)m->mem.base + here, *theirs = (char *)slab->base + s->off;

            memcpy(in ? ours : theirs, in ? theirs : ours, s->len);
            here += span_room(s->len);
        }
        at = place_spans(p->out, p->n_out, outs, NULL);
    }
}

/* ------------------------------------------------------------------ the memory */

static void drop_payload(struct worker *w)
{
    struct sh_msg m = {.type = MSG_WK_SLAB_GONE};

    if (!w->payload.mem.base)
        return;
    m.u.wk_slab_gone.api_id = w->payload.id;
    worker_send(w, &m, NULL, 0);
    payload_forget(w);
}

void payload_forget(struct worker *w)
{
    if (w->payload.mem.base)
        sh_shm_fini(&w->payload.mem);
    w->payload = (struct payload){.mem = {.fd = -1}};
}

static int make_payload_room(struct slabs *slabs, struct worker *w, uint64_t bytes,
                             struct sh_err *err)
{
    struct sh_msg m = {.type = MSG_WK_SLAB};
    uint64_t size = MIN_BYTES;
    int rc;

    if (w->payload.mem.base && w->payload.mem.bytes >= bytes)
        return SH_OK;
    drop_payload(w);
    while (size < bytes)
        size *= 2;
    rc = sh_shm_create("shunt-payload", (size_t)size, &w->payload.mem, err);
    if (rc)
        return rc;
    w->payload.id = slabs_own_id(slabs);
    m.u.wk_slab = (struct msg_wk_slab){.api_id = w->payload.id, .bytes = w->payload.mem.bytes};
    worker_send(w, &m, &w->payload.mem.fd, 1);
    return SH_OK;
}

/* What the run had is nothing to the next one. To write zeros takes a small part of what new
 * pages take, which the next run and its worker would touch first. */
static void clear_payload(struct worker *w)
{
    struct payload *m = &w->payload;

    if (m->mem.bytes > KEEP_BYTES)
        drop_payload(w);
    else if (m->used <= CLEAR_BYTES)
        memset(m->mem.base, 0, m->used);
    else if (fallocate(m->mem.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                       (off_t)SH_ALIGN_UP(m->used, (uint64_t)4096)) != 0)
        drop_payload(w);
    w->payload.used = 0;
}

/* ------------------------------------------------------------------ a run */

int payload_lend(const struct run *r, struct worker *w, struct sh_err *err)
{
    uint64_t bytes = 0;
    int rc;

    if (!slabs_are_hidden(r->sw->env.slabs))
        return SH_OK;
    for (size_t k = 0; k < r->n_parts; k++) {
        const struct run_part *p = &r->parts[k];

        bytes = place_spans(p->in, p->n_in, bytes, NULL);
        bytes = place_spans(p->out, p->n_out, bytes, NULL);
        if (bytes > MAX_BYTES)
            return SH_FAIL(err, SH_E_TOOBIG, "the requests of a run have more than %u GiB",
                           (unsigned)(MAX_BYTES >> 30));
    }
    rc = make_payload_room(r->sw->env.slabs, w, bytes, err);
    if (rc)
        return rc;
    w->payload.used = bytes;
    copy_payload(r, &w->payload, true);
    return SH_OK;
}

void payload_send_parts(const struct run *r, struct worker *w)
{
    const bool is_lent = slabs_are_hidden(r->sw->env.slabs);
    struct msg_span spans[2 * RUN_MAX_SPANS];
    uint64_t at = 0;

    for (size_t i = 0; i < r->n_parts; i++) {
        const struct run_part *p = &r->parts[i];
        const bool is_here = payload_has_part(r, p), is_ours = is_lent && is_here && slab_of(r, p);
        struct sh_msg m = {.type = MSG_WK_PART};

        if (is_lent) {
            at = place_spans(p->in, p->n_in, at, spans);
            at = place_spans(p->out, p->n_out, at, spans + p->n_in);
        }
        m.u.wk_part = (struct msg_wk_part){
            .run_id = r->id,
            .api_id = is_ours   ? w->payload.id
                      : is_here ? p->api_id
                                : NO_SLAB,
            .batch = p->batch,
            .in_spans = {is_lent ? spans : p->in, p->n_in * sizeof(*p->in)},
            .out_spans = {is_lent ? spans + p->n_in : p->out, p->n_out * sizeof(*p->out)}};
        worker_send(w, &m, NULL, 0);
    }
}

void payload_take_back(const struct run *r, struct worker *w, bool is_good)
{
    if (!slabs_are_hidden(r->sw->env.slabs) || !w->payload.mem.base)
        return;
    if (is_good)
        copy_payload(r, &w->payload, false);
    clear_payload(w);
}
