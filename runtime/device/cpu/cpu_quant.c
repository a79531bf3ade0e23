/* cpu_quant.c - to integers of 8 bits and back, element by element. */
#include "runtime/device/cpu/cpu_quant.h"

#include "common/mem.h"

#include <math.h>

#define CHUNK 1024 /* elements that pass through a buffer */

int32_t cpu__to8(float v, const struct dev_quant *q, enum sh_dtype t)
{
    int32_t lo, hi;

    dev_range8(t, &lo, &hi);
    return (int32_t)fminf(fmaxf(nearbyintf(v / q->scale), (float)(lo - q->zero)),
                          (float)(hi - q->zero)) +
           q->zero;
}

float cpu__number(const struct cpu_number *n, int64_t i)
{
    if (n->type == SH_F32)
        return ((const float *)n->p)[i];
    return n->q.scale * (float)((n->type == SH_I8 ? (int32_t)((const int8_t *)n->p)[i]
                                                  : (int32_t)((const uint8_t *)n->p)[i]) -
                                n->q.zero);
}

/* ------------------------------------------------------------------ rows */

SH_VECTORISE static void from_i8(const int8_t *x, int64_t n, struct dev_quant q, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = q.scale * (float)((int32_t)x[i] - q.zero);
}

SH_VECTORISE static void from_u8(const uint8_t *x, int64_t n, struct dev_quant q, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = q.scale * (float)((int32_t)x[i] - q.zero);
}

/* Added to a number up to 2^22 it leaves no place for digits behind the point: it is rounded. */
#define ROUNDER 12582912.0f

/* The low byte is the same for both types. */
SH_VECTORISE static void to_8(const float *x, int64_t n, struct dev_quant q, float lo, float hi,
                              uint8_t *y)
{
    for (int64_t i = 0; i < n; i++) {
        float v = x[i] / q.scale;

        v = v > lo ? v : lo; /* NaN too */
        v = v < hi ? v : hi;
        y[i] = (uint8_t)((int32_t)((v + ROUNDER) - ROUNDER) + q.zero);
    }
}

SH_VECTORISE static void quant_add_row(const float *x, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

SH_VECTORISE static void relu_row(int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = y[i] < 0 ? 0 : y[i];
}

static void load_numbers(const struct cpu_number *x, int64_t at, int64_t n, float *to)
{
    if (x->type == SH_F32)
        memcpy(to, (const float *)x->p + at, (size_t)n * sizeof(float));
    else if (x->type == SH_I8)
        from_i8((const int8_t *)x->p + at, n, x->q, to);
    else
        from_u8((const uint8_t *)x->p + at, n, x->q, to);
}

void cpu__row_to8(const float *x, int64_t n, const struct dev_quant *q, enum sh_dtype t, uint8_t *y)
{
    int32_t lo = 0, hi = 0;

    dev_range8(t, &lo, &hi);
    to_8(x, n, *q, (float)(lo - q->zero), (float)(hi - q->zero), y);
}

static void store_numbers(const float *from, int64_t at, int64_t n, const struct cpu_number *y)
{
    if (dev_is8(y->type))
        cpu__row_to8(from, n, &y->q, y->type, (uint8_t *)y->p + at);
    else
        memcpy((float *)y->p + at, from, (size_t)n * sizeof(float));
}

struct work {
    int64_t n;
    struct cpu_number x, add, y; /* add.p NULL: none */
    bool relu;
};

static void some(void *ctx, int64_t from, int64_t to)
{
    const struct work *w = ctx;
    float a[CHUNK], b[CHUNK];

    for (int64_t i = from; i < to; i += CHUNK) {
        const int64_t n = SH_MIN((int64_t)CHUNK, to - i);

        load_numbers(&w->x, i, n, a);
        if (w->add.p) {
            load_numbers(&w->add, i, n, b);
            quant_add_row(b, n, a);
        }
        if (w->relu)
            relu_row(n, a);
        store_numbers(a, i, n, &w->y);
    }
}

/* p: x y [add] */
static void work_fn(const struct cpu_call *c)
{
    struct work w = *(const struct work *)c->aux;

    w.x.p = c->p[0];
    w.y.p = c->p[1];
    w.add.p = w.add.p ? c->p[2] : NULL;
    cpu__parallel(c->threads, w.n, 4 * CHUNK, some, &w);
}

static int add_quant_step(struct cpu_build *b, const struct work *w, const struct cpu_ref refs[3])
{
    return cpu__step_fn(b, work_fn, refs, w->add.p ? 3 : 2, w, sizeof(*w));
}

int cpu__round_step(struct cpu_build *b, struct cpu_ref from, struct cpu_ref to, int64_t n,
                    enum sh_dtype t, const struct dev_quant *q)
{
    const struct work w = {.n = n, .x = {.type = SH_F32}, .y = {.type = t, .q = *q}};
    const struct cpu_ref refs[3] = {from, to};

    return add_quant_step(b, &w, refs);
}

/* ------------------------------------------------------------------ QUANTIZE */

/* All operands in one layout: channels-last if x is stored in one of oneDNN's. */
static int common_md(struct cpu_build *b, uint32_t tensor, bool is_last, dnnl_memory_desc_t *md)
{
    const struct dev_tensor *t = cpu__t(b, tensor);
    dnnl_data_type_t type;
    dnnl_dims_t dims = {1};

    if (!cpu__type(t->dtype, &type))
        return cpu__refuse(b, SH_E_BUG, "tensor \"%s\" has no type of oneDNN's", t->name);
    if (!is_last)
        return cpu__md_plain(t->rank, t->dims, type, md)
                   ? cpu__refuse(b, SH_E_BUG, "no row-major form of tensor \"%s\"", t->name)
                   : b->err->rc;
    for (uint32_t i = 0; i < t->rank; i++)
        dims[i] = t->dims[i];
    return cpu__status(b, dnnl_memory_desc_init_by_tag(md, 4, dims, type, dnnl_nhwc),
                       "quantisation");
}

static bool is_blocked(const struct cpu_build *b, uint32_t t)
{
    return t != DEV_NONE && b->plan->tensors[t].is_fixed && b->plan->tensors[t].is_blocked;
}

static struct cpu_ref take_quant_operand(struct cpu_build *b, uint32_t t, bool is_last)
{
    dnnl_memory_desc_t md;

    common_md(b, t, is_last, &md);
    return cpu__in(b, t, NULL, &md);
}

int cpu__quantize(struct cpu_build *b)
{
    const struct dev_op *op = b->op;
    const struct dev_quantize *q = &op->u.quant;
    const uint32_t x = op->in[0], add = cpu__opt_in(op, 1), y = op->out[0];
    const bool is_last = cpu__t(b, y)->rank == 4 && (is_blocked(b, x) || is_blocked(b, add));
    const bool late = op->act != DEV_ACT_NONE && op->act != DEV_ACT_RELU;
    const int64_t n = dev_tensor_elements(cpu__t(b, y));
    struct work w = {.n = n,
                     .x = {.type = cpu__t(b, x)->dtype, .q = q->x},
                     .y = {.type = late ? SH_F32 : cpu__t(b, y)->dtype, .q = q->y},
                     .relu = op->act == DEV_ACT_RELU};
    struct cpu_ref refs[3], to;
    dnnl_memory_desc_t md;

    refs[0] = take_quant_operand(b, x, is_last);
    if (add != DEV_NONE) {
        w.add = (struct cpu_number){&w, cpu__t(b, add)->dtype, q->add};
        refs[2] = take_quant_operand(b, add, is_last);
    }
    if (common_md(b, y, is_last, &md))
        return b->err->rc;
    to = cpu__out(b, y, &md, true);
    refs[1] =
        late && cpu__t(b, y)->dtype != SH_F32 ? cpu__scratch(b, (size_t)n * sizeof(float)) : to;
    if (add_quant_step(b, &w, refs) || !late)
        return b->err->rc;
    md.data_type = dnnl_f32;
    cpu__act_in_place(b, refs[1], &md);
    return cpu__t(b, y)->dtype == SH_F32
               ? b->err->rc
               : cpu__round_step(b, refs[1], to, n, cpu__t(b, y)->dtype, &q->y);
}
