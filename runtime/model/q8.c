/* q8.c - see q8.h. */
#include "runtime/model/q8.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>

static int32_t number(const struct q8 *q, const void *from, int64_t i)
{
    return q->dtype == SH_I8 ? (int32_t)((const int8_t *)from)[i]
                             : (int32_t)((const uint8_t *)from)[i];
}

static int32_t centred(const struct q8 *q, int64_t i)
{
    const int64_t c = i / q->inner % q->channels;

    return number(q, q->x, i) - (q->zero ? number(q, q->zero, q->one_zero ? 0 : c) : 0);
}

bool q8_fits(const struct q8 *q)
{
    const int64_t n = q->zero ? q->one_zero ? 1 : q->channels : 0;
    bool moved = q->dtype != SH_I8;

    for (int64_t c = 0; c < n; c++)
        moved |= number(q, q->zero, c) != 0;
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

int q8_floats(struct ir *ir, const struct q8 *q, const struct dev_tensor *like, const char *name,
              uint32_t *out, struct sh_err *err)
{
    struct q8 *ctx = malloc(sizeof(*ctx));
    int rc;

    if (!ctx)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a constant");
    *ctx = *q;
    rc = ir_later(ir, like, name, fill_floats, ctx, out, err);
    if (rc)
        free(ctx);
    return rc;
}

const struct q8 *q8_of(const struct ir *ir, uint32_t t)
{
    const struct ir_info *info = &ir->info[ir_root(ir, t)];

    return info->fill == fill_floats ? info->ctx : NULL;
}

/* ------------------------------------------------------------------ what products take */

struct part { /* ctx of a constant */
    struct q8 q;
    int64_t rows, terms; /* channels first */
    bool turned;
    int32_t times;
};

static int64_t place(const struct part *p, int64_t row, int64_t k)
{
    return p->turned ? k * p->rows + row : row * p->terms + k;
}

static void fill_weight(const void *ctx, void *to)
{
    const struct part *p = ctx;
    int8_t *y = to;

    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t k = 0; k < p->terms; k++)
            y[r * p->terms + k] = (int8_t)centred(&p->q, place(p, r, k));
}

static void fill_sums(const void *ctx, void *to)
{
    const struct part *p = ctx;
    int32_t *y = to;

    for (int64_t r = 0; r < p->rows; r++) {
        y[r] = 0;
        for (int64_t k = 0; k < p->terms; k++)
            y[r] += centred(&p->q, place(p, r, k)) * p->times;
    }
}

static int make(struct ir *ir, const struct q8 *q, const struct q8_shape *s, int32_t times,
                const struct dev_tensor *like, const char *name, ir_fill *fill, uint32_t *out,
                struct sh_err *err)
{
    struct part *p = malloc(sizeof(*p));
    int rc;

    if (!p)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a constant");
    *p = (struct part){.q = *q, .rows = s->dims[0], .turned = s->turned, .times = times};
    p->terms = q->n / p->rows;
    rc = ir_later(ir, like, name, fill, p, out, err);
    if (rc)
        free(p);
    return rc;
}

int q8_weight(struct ir *ir, const struct q8 *q, const struct q8_shape *s, const char *name,
              uint32_t *out, struct sh_err *err)
{
    struct dev_tensor like = {.dtype = SH_I8, .rank = s->rank};
    const char *own;
    int rc = ir_name(ir, &own, err, "%s#i8", name);

    for (uint32_t i = 0; i < s->rank; i++)
        like.dims[i] = s->dims[i];
    return rc ? rc : make(ir, q, s, 1, &like, own, fill_weight, out, err);
}

int q8_sums(struct ir *ir, const struct q8 *q, const struct q8_shape *s, int32_t times,
            const char *name, uint32_t *out, struct sh_err *err)
{
    const struct dev_tensor like = {.dtype = SH_I32, .rank = 1, .dims = {s->dims[0]}};
    const char *own;
    int rc = ir_name(ir, &own, err, "%s#sums%d", name, times);

    return rc ? rc : make(ir, q, s, times, &like, own, fill_sums, out, err);
}

int q8_factor(struct ir *ir, const struct q8 *q, int64_t channels, double times, const char *name,
              uint32_t *out, bool *sound, struct sh_err *err)
{
    float *data = malloc((size_t)channels * sizeof(*data));
    const char *own;
    int rc = data ? ir_name(ir, &own, err, "%s#factor%a", name, times)
                  : SH_FAIL(err, SH_E_NOMEM, "could not allocate a constant");

    *sound = true;
    for (int64_t c = 0; c < channels && !rc; c++) {
        data[c] = (float)(times * (double)(q->scale ? q->scale[q->one_scale ? 0 : c] : 1.0f));
        *sound = *sound && data[c] > 0 && isfinite(data[c]);
    }
    if (!rc && *sound)
        rc = ir_const(ir, own, DEV_ROLE_WEIGHT, SH_F32, 1, &channels, data, out, err);
    if (rc || !*sound)
        free(data);
    return rc;
}
