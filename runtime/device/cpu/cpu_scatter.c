/* cpu_scatter.c - rows from indices of several numbers, and writes to rows.
 *
 * Indices come from a tenant's request: one that is out of range ends the run with SH_E_INVALID.
 * SCATTER goes through the updates in order, each thread for columns (or rows) of its own, so the
 * result does not depend on the split.
 */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"

/* ------------------------------------------------------------------ rows of indices */

static int64_t cell_number(const struct dev_tensor *t, const void *p, int64_t i)
{
    return t->dtype == SH_I64 ? ((const int64_t *)p)[i] : ((const int32_t *)p)[i];
}

/* p: indices rows */
static void locate_fn(const struct cpu_call *c)
{
    const struct dev_tensor *ix = &c->plan->base.g->tensors[c->op->in[0]];
    const struct dev_tensor *y = &c->plan->base.g->tensors[c->op->out[0]];
    const int64_t n = dev_tensor_elements(y), depth = c->op->u.locate.depth;
    int64_t *rows = c->p[1];

    for (int64_t i = 0; i < n; i++) {
        int64_t row = 0, rest = i;

        for (uint32_t a = y->rank; a-- > 0; rest /= y->dims[a])
            row += rest % y->dims[a] * c->op->u.locate.base[a];
        for (int64_t k = 0; k < depth; k++) {
            const int64_t v = cell_number(ix, c->p[0], i * depth + k);
            const int64_t size = c->op->u.locate.size[k];

            if (v < -size || v >= size) {
                SH_FAIL(
                    c->err, SH_E_INVALID,
                    "LOCATE (node \"%s\"): index %lld at position %lld is outside an axis of %lld",
                    c->op->name, (long long)v, (long long)(i * depth + k), (long long)size);
                return;
            }
            row += (v < 0 ? v + size : v) * c->op->u.locate.stride[k];
        }
        rows[i] = row;
    }
}

int cpu__locate(struct cpu_build *b)
{
    const struct dev_tensor *ix = cpu__t(b, b->op->in[0]), *y = cpu__t(b, b->op->out[0]);
    const uint32_t depth = b->op->u.locate.depth;

    if ((ix->dtype != SH_I64 && ix->dtype != SH_I32) || y->dtype != SH_I64)
        return cpu__refuse(b, SH_E_UNSUPPORTED, "indices are %s; I64 or I32 are supported",
                           sh_dtype_st(ix->dtype));
    if (depth < 1 || depth > SH_MAX_RANK ||
        dev_tensor_elements(ix) != dev_tensor_elements(y) * depth)
        return cpu__refuse(b, SH_E_BUG, "the shapes of indices and rows do not fit");
    return cpu__step_plain(b, locate_fn, NULL, 0);
}

/* ------------------------------------------------------------------ scatter */

struct scatter {
    int64_t rows, inner, n; /* of the data; updates */
    enum sh_dtype type;
    enum dev_scatter kind;
};

struct scatter_job {
    const struct scatter *s;
    const int64_t *at;
    const unsigned char *u;
    unsigned char *y;
};

/* Wraps like the device's other integers. */
#define COMBINE(TYPE, UTYPE)                                                                   \
    do {                                                                                       \
        TYPE *y = (TYPE *)j->y + row * s->inner;                                               \
        const TYPE *u = (const TYPE *)j->u + i * s->inner;                                     \
        for (int64_t k = from; k < to; k++)                                                    \
            y[k] = s->kind == DEV_SCATTER_ADD   ? (TYPE)((UTYPE)y[k] + (UTYPE)u[k])            \
                   : s->kind == DEV_SCATTER_MUL ? (TYPE)((UTYPE)y[k] * (UTYPE)u[k])            \
                   : s->kind == DEV_SCATTER_MAX ? (y[k] > u[k] || y[k] != y[k] ? y[k] : u[k])  \
                                                : (y[k] < u[k] || y[k] != y[k] ? y[k] : u[k]); \
    } while (0)

static void combine_columns(const struct scatter_job *j, int64_t i, int64_t from, int64_t to)
{
    const struct scatter *s = j->s;
    const int64_t row = j->at[i];
    const size_t size = sh_dtype_bytes(s->type);

    if (s->kind == DEV_SCATTER_SET)
        memcpy(j->y + (size_t)(row * s->inner + from) * size,
               j->u + (size_t)(i * s->inner + from) * size, (size_t)(to - from) * size);
    else if (s->type == SH_F32)
        COMBINE(float, float);
    else if (s->type == SH_I64)
        COMBINE(int64_t, uint64_t);
    else
        COMBINE(int32_t, uint32_t);
}

static void by_columns(void *ctx, int64_t from, int64_t to)
{
    const struct scatter_job *j = ctx;

    for (int64_t i = 0; i < j->s->n; i++)
        if (j->at[i] >= 0)
            combine_columns(j, i, from, to);
}

/* p: data rows updates y */
static void scatter_fn(const struct cpu_call *c)
{
    const struct scatter *s = c->aux;
    struct scatter_job j = {.s = s, .at = c->p[1], .u = c->p[2], .y = c->p[3]};

    memcpy(c->p[3], c->p[0], (size_t)(s->rows * s->inner) * sh_dtype_bytes(s->type));
    cpu__parallel(c->threads, s->inner, 256, by_columns, &j);
}

static int check_scatter(struct cpu_build *b, const struct scatter *s)
{
    const struct dev_op *op = b->op;
    const bool computes = s->type == SH_F32 || s->type == SH_I64 || s->type == SH_I32;

    if (cpu__t(b, op->in[2])->dtype != s->type || cpu__t(b, op->out[0])->dtype != s->type ||
        cpu__t(b, op->in[1])->dtype != SH_I64 || (!computes && s->kind != DEV_SCATTER_SET))
        return cpu__refuse(b, SH_E_UNSUPPORTED, "cannot write %s into %s",
                           sh_dtype_st(cpu__t(b, op->in[2])->dtype), sh_dtype_st(s->type));
    if (cpu__t(b, op->in[0])->rank < 1 || (unsigned)s->kind >= DEV_N_SCATTERS ||
        dev_tensor_elements(cpu__t(b, op->in[2])) != s->n * s->inner)
        return cpu__refuse(b, SH_E_BUG, "the shapes of data, rows and updates do not fit");
    return cpu__same_shape(b, op->in[0], op->out[0]);
}

int cpu__scatter(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const struct dev_tensor *x = cpu__t(b, op->in[0]);
    struct scatter s = {.rows = x->rank ? x->dims[0] : 1,
                        .n = dev_tensor_elements(cpu__t(b, op->in[1])),
                        .type = x->dtype,
                        .kind = op->u.scatter.kind};

    s.inner = dev_tensor_elements(x) / s.rows;
    check_scatter(b, &s);
    return cpu__step_plain(b, scatter_fn, &s, sizeof(s));
}
