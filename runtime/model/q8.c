/* q8.c - see q8.h. */
#include "runtime/model/q8.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>

static int32_t q8_number(const struct q8 *q, const void *from, int64_t i)
{
    return q->dtype == SH_I8 ? (int32_t)((const int8_t *)from)[i]
                             : (int32_t)((const uint8_t *)from)[i];
}

static int32_t centred(const struct q8 *q, int64_t i)
{
    const int64_t c = i / q->inner % q->channels;

    return q8_number(q, q->x, i) - (q->zero ? q8_number(q, q->zero, q->one_zero ? 0 : c) : 0);
}

bool q8_fits(const struct q8 *q)
{
    const int64_t n = q->zero ? q->one_zero ? 1 : q->channels : 0;
    bool moved = q->dtype != SH_I8;

    for (int64_t c = 0; c < n; c++)
        moved |= q8_number(q, q->zero, c) != 0;
    for (int64_t i = 0; moved && i < q->n; i++)
        if (centred(q, i) < -128 || centred(q, i) > 127)
            return false;
    return true;
}

static void fill_floats(const void *ctx, void *to)
{
    const struct q8 *q = ctx;
    float *y = to;

    for (int64_t i = 0; i < q->n; i++)
        y[i] = (float)centred(q, i) * q->scale[q->one_scale ? 0 : i / q->inner % q->channels];
}

uint32_t q8_floats(struct ir *ir, const struct q8 *q, const struct dev_tensor *like,
                   const char *name)
{
    struct q8 *ctx = ir_alloc(ir, 1, sizeof(*ctx));

    if (ctx)
        *ctx = *q;
    return ir_later(ir, like, name, fill_floats, ctx);
}

const struct q8 *q8_of(const struct ir *ir, uint32_t t)
{
    const struct ir_info *info = ir_info(ir, ir_root(ir, t));

    return info->fill == fill_floats ? info->ctx : NULL;
}

/* ------------------------------------------------------------------ what products take */

struct part { /* ctx of a constant */
    struct q8 q;
    int64_t rows, terms; /* channels first */
    bool turned;
    int32_t times;
};

static int64_t q8_place(const struct part *p, int64_t row, int64_t k)
{
    return p->turned ? k * p->rows + row : row * p->terms + k;
}

static void fill_weight(const void *ctx, void *to)
{
    const struct part *p = ctx;
    int8_t *y = to;

    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t k = 0; k < p->terms; k++)
            y[r * p->terms + k] = (int8_t)centred(&p->q, q8_place(p, r, k));
}

static void fill_sums(const void *ctx, void *to)
{
    const struct part *p = ctx;
    int32_t *y = to;

    for (int64_t r = 0; r < p->rows; r++) {
        y[r] = 0;
        for (int64_t k = 0; k < p->terms; k++)
            y[r] += centred(&p->q, q8_place(p, r, k)) * p->times;
    }
}

static uint32_t make_q8_tensor(struct ir *ir, const struct q8 *q, const struct q8_shape *s,
                               int32_t times, const struct dev_tensor *like, const char *name,
                               ir_fill *fill)
{
    struct part *p = ir_alloc(ir, 1, sizeof(*p));

    if (p)
        *p = (struct part){.q = *q,
                           .rows = s->dims[0],
                           .terms = q->n / s->dims[0],
                           .turned = s->turned,
                           .times = times};
    return ir_later(ir, like, name, fill, p);
}

uint32_t q8_weight(struct ir *ir, const struct q8 *q, const struct q8_shape *s, const char *name)
{
    struct dev_tensor like = {.dtype = SH_I8, .rank = s->rank};

    for (uint32_t i = 0; i < s->rank; i++)
        like.dims[i] = s->dims[i];
    return make_q8_tensor(ir, q, s, 1, &like, ir_name(ir, "%s#i8", name), fill_weight);
}

uint32_t q8_sums(struct ir *ir, const struct q8 *q, const struct q8_shape *s, int32_t times,
                 const char *name)
{
    const struct dev_tensor like = {.dtype = SH_I32, .rank = 1, .dims = {s->dims[0]}};

    return make_q8_tensor(ir, q, s, times, &like, ir_name(ir, "%s#sums%d", name, times), fill_sums);
}

uint32_t q8_factor(struct ir *ir, const struct q8 *q, int64_t channels, double times,
                   const char *name)
{
    float *data = ir_alloc(ir, channels, sizeof(*data));
    bool is_sound = true;

    for (int64_t c = 0; data && c < channels; c++) {
        data[c] = (float)(times * (double)(q->scale ? q->scale[q->one_scale ? 0 : c] : 1.0f));
        is_sound = is_sound && data[c] > 0 && isfinite(data[c]);
    }
    if (is_sound)
        return ir_const(ir, ir_name(ir, "%s#factor%a", name, times), DEV_ROLE_WEIGHT, SH_F32, 1,
                        &channels, data);
    free(data);
    return DEV_NONE;
}
