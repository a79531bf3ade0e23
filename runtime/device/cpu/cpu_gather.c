/* cpu_gather.c - rows of a table by index, and the gradient of the table.
 *
 * Indices come from a tenant's request: one that is out of range ends the run with SH_E_INVALID.
 */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"

#define GRAIN_BYTES 65536

struct gather {
    int64_t outer, n, inner; /* the table as [outer, n, inner] around the axis */
    int64_t n_index;
    size_t size;
    bool wide; /* I64, else I32 */
};

static int64_t gather_index_at(const struct gather *g, const void *indices, int64_t i)
{
    int64_t v = g->wide ? ((const int64_t *)indices)[i] : ((const int32_t *)indices)[i];

    return v < 0 ? v + g->n : v;
}

static bool check_indices(const struct cpu_call *c, const struct gather *g, const void *indices)
{
    for (int64_t i = 0; i < g->n_index; i++) {
        int64_t v = gather_index_at(g, indices, i);

        if (v < 0 || v >= g->n) {
            SH_FAIL(
                c->err, SH_E_INVALID,
                "GATHER (node \"%s\"): index %lld at position %lld is outside the table of %lld",
                c->op->name, (long long)(v < 0 ? v - g->n : v), (long long)i, (long long)g->n);
            return false;
        }
    }
    return true;
}

struct gather_ctx {
    const struct gather *g;
    const unsigned char *table;
    const void *indices;
    unsigned char *y;
};

static void gather_range(void *ctx, int64_t from, int64_t to)
{
    const struct gather_ctx *c = ctx;
    const size_t row = (size_t)c->g->inner * c->g->size;

    for (int64_t r = from; r < to; r++) {
        int64_t o = r / c->g->n_index, v = gather_index_at(c->g, c->indices, r % c->g->n_index);

        memcpy(c->y + (size_t)r * row, c->table + (size_t)(o * c->g->n + v) * row, row);
    }
}

/* p: table indices y */
static void gather_fn(const struct cpu_call *c)
{
    struct gather_ctx g = {.g = c->aux, .table = c->p[0], .indices = c->p[1], .y = c->p[2]};
    int64_t row = g.g->inner * (int64_t)g.g->size;

    if (check_indices(c, g.g, g.indices))
        cpu__parallel(c->threads, g.g->outer * g.g->n_index, SH_MAX(1, GRAIN_BYTES / row),
                      gather_range, &g);
}

/* table: the tensor that is indexed (or its gradient); y: what comes out (or its gradient). */
static int gather_step(struct cpu_build *b, cpu_fn *fn, uint32_t table, uint32_t indices,
                       uint32_t y)
{
    const struct dev_tensor *t = cpu__t(b, table), *ti = cpu__t(b, indices), *ty = cpu__t(b, y);
    uint32_t axis;
    int rc = cpu__axis(b, table, b->op->u.axis.axis, &axis);
    struct gather g = {.n_index = dev_tensor_elements(ti),
                       .size = sh_dtype_bytes(t->dtype),
                       .wide = ti->dtype == SH_I64};

    if (rc)
        return rc;
    if (ti->dtype != SH_I64 && ti->dtype != SH_I32)
        return cpu__refuse(b, SH_E_UNSUPPORTED, "indices are %s; I64 or I32 are supported",
                           sh_dtype_st(ti->dtype));
    g.outer = dev_axes_elements(t, 0, axis);
    g.n = t->dims[axis];
    g.inner = dev_axes_elements(t, axis + 1, t->rank);
    if (t->dtype != ty->dtype || dev_tensor_elements(ty) != g.outer * g.n_index * g.inner)
        return cpu__refuse(b, SH_E_BUG, "the shapes of table, indices and result do not fit");
    return cpu__step_plain(b, fn, &g, sizeof(g));
}

int cpu__gather(struct cpu_build *b)
{
    return gather_step(b, gather_fn, b->op->in[0], b->op->in[1], b->op->out[0]);
}

struct bwd_ctx {
    const struct gather *g;
    const void *indices;
    const float *dy;
    float *dt;
};

/* Columns [from, to) of the inner axis: every thread adds all indices in order, so the result does
 * not depend on the split. */
static void bwd_columns(void *ctx, int64_t from, int64_t to)
{
    const struct bwd_ctx *c = ctx;
    const struct gather *g = c->g;

    for (int64_t r = 0; r < g->outer * g->n; r++)
        memset(c->dt + r * g->inner + from, 0, (size_t)(to - from) * sizeof(float));
    for (int64_t r = 0; r < g->outer * g->n_index; r++) {
        int64_t v = gather_index_at(g, c->indices, r % g->n_index);
        float *t = c->dt + (r / g->n_index * g->n + v) * g->inner;

        for (int64_t k = from; k < to; k++)
            t[k] += c->dy[r * g->inner + k];
    }
}

/* p: indices d_y d_table */
static void gather_bwd_fn(const struct cpu_call *c)
{
    struct bwd_ctx b = {.g = c->aux, .indices = c->p[0], .dy = c->p[1], .dt = c->p[2]};

    if (check_indices(c, b.g, b.indices))
        cpu__parallel(c->threads, b.g->inner, 32, bwd_columns, &b);
}

int cpu__gather_bwd(struct cpu_build *b)
{
    const struct dev_op *op = b->op;

    cpu__need_f32(b, (const uint32_t[]){op->in[1], op->out[0]}, 2);
    return gather_step(b, gather_bwd_fn, op->out[0], op->in[0], op->in[1]);
}
