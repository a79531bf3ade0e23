#include "scheduler/usage.h"

#include "common/log.h"
#include "common/mem.h"
#include "scheduler/sched.h"

#include <stdlib.h>

void usage_fini(struct usage *u)
{
    free(u->rows);
    *u = (struct usage){0};
}

void usage_count(struct usage *u, const struct store_usage_row *row)
{
    struct sh_err err = {0};

    for (size_t i = 0; i < u->n; i++) {
        struct store_usage_row *r = &u->rows[i];

        if (r->tenant_id == row->tenant_id && r->model_id == row->model_id &&
            r->training == row->training) {
            r->gpu_ns += row->gpu_ns;
            r->requests += row->requests;
            r->samples += row->samples;
            return;
        }
    }
    if (sh_grow(&u->rows, &u->cap, u->n + 1, sizeof(u->rows[0]), USAGE_MAX_ROWS, "usage rows",
                &err)) {
        u->dropped++;
        return;
    }
    u->rows[u->n++] = *row;
}

static void on_flushed(void *ctx, void *arg, int rc, const struct sh_err *err)
{
    struct sched *s = ctx;

    (void)arg;
    s->usage.flushing = false;
    sched_op_ok(s, "usage.flush", rc, err);
}

void usage_flush(struct sched *s)
{
    static const struct sched_op OP = {"usage.flush", store_usage_add, on_flushed, store_usage_free,
                                       DBOP_ANY_ORDER};
    struct usage *u = &s->usage;
    struct store_usage *flush;
    struct sh_err err = {0};

    if (u->dropped) {
        SH_WARN("usage.dropped", "records=%llu msg=\"too many tenants and models at once\"",
                (unsigned long long)u->dropped);
        u->dropped = 0;
    }
    if (u->flushing || u->n == 0)
        return;
    flush = calloc(1, sizeof(*flush));
    if (!flush)
        return; /* the sums stay and go with the next flush */
    *flush =
        (struct store_usage){.fence = sched_fence(s), .seq = ++u->seq, .rows = u->rows, .n = u->n};
    u->rows = NULL;
    u->n = u->cap = 0;
    u->flushing = true;
    if (sched_submit(s, &OP, flush, &err))
        u->flushing = false;
}
