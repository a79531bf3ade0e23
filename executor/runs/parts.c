/* parts.c - parts of runs whose RUN message has not come yet. */
#include "common/clock.h"
#include "common/log.h"
#include "executor/runs/switch_int.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LOOSE_PARTS 4096u

struct loose {
    struct loose *next;
    uint64_t run_id;
    int64_t since_ns;
    struct run_part part;
};

static int copy_part_spans(struct sh_blob b, struct msg_span **out, size_t *n, struct sh_err *err)
{
    if (b.len % sizeof(**out) || b.len / sizeof(**out) > RUN_MAX_SPANS)
        return SH_FAIL(err, SH_E_PROTO, "a part with %zu bytes of spans", b.len);
    *n = b.len / sizeof(**out);
    *out = malloc(b.len + 1);
    if (!*out)
        return SH_FAIL(err, SH_E_NOMEM, "could not keep the spans of a run");
    if (b.len)
        memcpy(*out, b.data, b.len);
    return SH_OK;
}

static int copy_part(const struct msg_run_part *m, struct run_part *out, struct sh_err *err)
{
    int rc;

    *out = (struct run_part){.rid = m->rid, .api_id = m->api_id, .batch = m->batch};
    rc = copy_part_spans(m->in_spans, &out->in, &out->n_in, err);
    if (!rc)
        rc = copy_part_spans(m->out_spans, &out->out, &out->n_out, err);
    if (!rc && m->tenant && *m->tenant)
        rc = sh_strdup(m->tenant, &out->tenant, err);
    if (!rc && m->batch == 0)
        rc = SH_FAIL(err, SH_E_PROTO, "a part of a run with no samples");
    if (rc)
        run__free_part(out);
    return rc;
}

int parts__add(struct loose_parts *ls, const struct msg_run_part *m, struct sh_err *err)
{
    struct loose *l = NULL;
    int rc = SH_OK;

    if (ls->n >= MAX_LOOSE_PARTS)
        rc = SH_FAIL(err, SH_E_QUEUEFULL, "%u parts wait for their runs; try again",
                     MAX_LOOSE_PARTS);
    else if (!(l = calloc(1, sizeof(*l))))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a part of a run");
    if (!rc)
        rc = copy_part(m, &l->part, err);
    if (rc) {
        ls->short_of = m->run_id;
        free(l);
        return rc;
    }
    l->run_id = m->run_id;
    l->since_ns = sh_clock_ns();
    l->next = ls->first;
    ls->first = l;
    ls->n++;
    return SH_OK;
}

static void free_loose(struct loose_parts *ls, struct loose **at)
{
    struct loose *l = *at;

    *at = l->next;
    ls->n--;
    run__free_part(&l->part);
    free(l);
}

bool parts__take(struct loose_parts *ls, uint64_t run_id, struct run_part *out)
{
    struct loose **p = &ls->first;

    while (*p && (*p)->run_id != run_id)
        p = &(*p)->next;
    if (!*p)
        return false;
    *out = (*p)->part;
    (*p)->part = (struct run_part){0};
    free_loose(ls, p);
    return true;
}

int parts__collect(struct loose_parts *ls, struct run *r, uint32_t n, struct sh_err *err)
{
    uint64_t batch = 0;

    if (n > SWITCH_MAX_PARTS)
        return SH_FAIL(err, SH_E_TOOBIG, "a run of %u parts; the most is %u", n, SWITCH_MAX_PARTS);
    r->parts = calloc((size_t)n + 1, sizeof(*r->parts));
    if (!r->parts)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the parts of a run");
    for (; r->n_parts < n && parts__take(ls, r->id, &r->parts[r->n_parts]); r->n_parts++)
        batch += r->parts[r->n_parts].batch;
    for (size_t i = 0; i < r->n_parts; i++)
        r->is_mixed |= r->parts[i].tenant != NULL;
    for (size_t i = 0; i < r->n_parts / 2; i++) { /* newest first, so turn round */
        struct run_part t = r->parts[i];

        r->parts[i] = r->parts[r->n_parts - 1 - i];
        r->parts[r->n_parts - 1 - i] = t;
    }
    if (ls->short_of == r->id)
        return SH_FAIL(err, SH_E_NOMEM, "there was no room for a part of the run; try again");
    if (r->n_parts != n || n == 0 || batch != r->batch)
        return SH_FAIL(err, SH_E_PROTO,
                       "%zu of %u parts of the run came, %" PRIu64 " samples of %u", r->n_parts, n,
                       batch, r->batch);
    return SH_OK;
}

void parts__expire(struct loose_parts *ls, int64_t before_ns)
{
    for (struct loose **p = &ls->first; *p;) {
        if ((*p)->since_ns < before_ns)
            free_loose(ls, p);
        else
            p = &(*p)->next;
    }
}
