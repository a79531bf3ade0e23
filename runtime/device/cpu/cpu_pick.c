/* cpu_pick.c - what the data choose: elements that are not 0, boxes that no better one covers. */
#include "common/mem.h"
#include "runtime/device/cpu/cpu.h"

#include <stdlib.h>

/* ------------------------------------------------------------------ what is not 0 */

#define PLACES_OF(NAME, TYPE)                                         \
    static int64_t NAME(const void *data, int64_t n, int64_t *places) \
    {                                                                 \
        const TYPE *x = data;                                         \
        int64_t count = 0;                                            \
                                                                      \
        for (int64_t i = 0; i < n; i++)                               \
            if (x[i] != 0)                                            \
                places[count++] = i;                                  \
        return count;                                                 \
    }

PLACES_OF(places_f32, float)
PLACES_OF(places_64, int64_t)
PLACES_OF(places_32, int32_t)
PLACES_OF(places_16, int16_t)
PLACES_OF(places_8, uint8_t)

/* p: x places count */
static void nonzero_fn(const struct cpu_call *c)
{
    const struct dev_tensor *x = &c->plan->base.g->tensors[c->op->in[0]];
    const int64_t n = dev_tensor_elements(x);
    const size_t unit = sh_dtype_bytes(x->dtype);
    int64_t *places = c->p[1];
    const int64_t count = x->dtype == SH_F32 ? places_f32(c->p[0], n, places)
                          : unit == 8        ? places_64(c->p[0], n, places)
                          : unit == 4        ? places_32(c->p[0], n, places)
                          : unit == 2        ? places_16(c->p[0], n, places)
                                             : places_8(c->p[0], n, places);

    memset(places + count, 0, (size_t)(n - count) * sizeof(*places));
    memcpy(c->p[2], &count, sizeof(count));
}

int cpu__nonzero(struct cpu_build *b)
{
    return cpu__step_plain(b, nonzero_fn, NULL, 0);
}

/* p: count y */
static void pick_mask_fn(const struct cpu_call *c)
{
    const int64_t n = dev_tensor_elements(&c->plan->base.g->tensors[c->op->out[0]]);
    int64_t count;

    memcpy(&count, c->p[0], sizeof(count));
    count = SH_MAX(SH_MIN(count, n), 0);
    memset(c->p[1], 1, (size_t)count);
    memset((char *)c->p[1] + count, 0, (size_t)(n - count));
}

int cpu__mask(struct cpu_build *b)
{
    return cpu__step_plain(b, pick_mask_fn, NULL, 0);
}

/* ------------------------------------------------------------------ boxes */

struct nms {
    struct dev_nms how;
    int64_t batch, classes, n;
};

struct candidate {
    float score;
    int32_t at;
};

struct corners {
    float y[2], x[2];
};

struct nms_job {
    const struct nms *s;
    const float *boxes, *scores;
    struct candidate *of;      /* [batch, classes, n] */
    int64_t *n_picked;         /* [batch, classes]; the first of `of` are those */
    struct corners *of_picked; /* [batch, classes, most] */
};

/* Best first, of equal ones the first. */
static int by_score(const void *a, const void *b)
{
    const struct candidate *p = a, *q = b;

    return p->score != q->score ? (p->score < q->score) - (p->score > q->score)
                                : (p->at > q->at) - (p->at < q->at);
}

static struct corners corners_of(const struct nms *s, const float *b)
{
    if (s->how.is_centred) {
        const float w = b[2] / 2, h = b[3] / 2;

        return (struct corners){.y = {b[1] - h, b[1] + h}, .x = {b[0] - w, b[0] + w}};
    }
    return (struct corners){.y = {SH_MIN(b[0], b[2]), SH_MAX(b[0], b[2])},
                            .x = {SH_MIN(b[1], b[3]), SH_MAX(b[1], b[3])}};
}

/* The part of what both cover that each of them covers. Not a number where coordinates are none. */
static float overlap(const struct corners *a, const struct corners *b)
{
    const float h = SH_MIN(a->y[1], b->y[1]) - SH_MAX(a->y[0], b->y[0]);
    const float w = SH_MIN(a->x[1], b->x[1]) - SH_MAX(a->x[0], b->x[0]);
    const float both = h * w, one = (a->y[1] - a->y[0]) * (a->x[1] - a->x[0]);
    const float other = (b->y[1] - b->y[0]) * (b->x[1] - b->x[0]), all = one + other - both;

    return h <= 0 || w <= 0 || both <= 0 || one <= 0 || other <= 0 || all <= 0 ? 0 : both / all;
}

static bool is_box_covered(const struct nms *s, const struct corners *picked, int64_t n,
                           const struct corners *b)
{
    for (int64_t k = 0; k < n; k++)
        if (overlap(&picked[k], b) > s->how.overlap)
            return true;
    return false;
}

static void pick_range(void *ctx, int64_t from, int64_t to)
{
    const struct nms_job *j = ctx;
    const struct nms *s = j->s;

    for (int64_t c = from; c < to; c++) {
        struct corners *picked = j->of_picked + c * s->how.most;
        struct candidate *of = j->of + c * s->n;
        const float *boxes = j->boxes + c / s->classes * s->n * 4, *scores = j->scores + c * s->n;
        int64_t n = 0, n_picked = 0;

        for (int64_t i = 0; i < s->n; i++)
            if (s->how.any_score ? scores[i] == scores[i] : scores[i] > s->how.score)
                of[n++] = (struct candidate){.score = scores[i], .at = (int32_t)i};
        qsort(of, (size_t)n, sizeof(*of), by_score);
        for (int64_t i = 0; i < n && n_picked < s->how.most; i++) {
            const struct corners b = corners_of(s, boxes + 4 * (int64_t)of[i].at);

            if (is_box_covered(s, picked, n_picked, &b))
                continue;
            picked[n_picked] = b;
            of[n_picked++] = of[i];
        }
        j->n_picked[c] = n_picked;
    }
}

/* p: boxes scores picked count candidates n_picked of_picked */
static void nms_fn(const struct cpu_call *c)
{
    const struct nms *s = c->aux;
    const struct nms_job j = {.s = s,
                              .boxes = c->p[0],
                              .scores = c->p[1],
                              .of = c->p[4],
                              .n_picked = c->p[5],
                              .of_picked = c->p[6]};
    int64_t *row = c->p[2], count = 0;

    cpu__parallel(c->threads, s->batch * s->classes, 1, pick_range, (void *)(uintptr_t)&j);
    for (int64_t k = 0; k < s->batch * s->classes; k++)
        for (int64_t i = 0; i < j.n_picked[k]; i++, count++, row += 3) {
            row[0] = k / s->classes;
            row[1] = k % s->classes;
            row[2] = j.of[k * s->n + i].at;
        }
    memset(row, 0, (size_t)(s->batch * s->classes * s->how.most - count) * 3 * sizeof(*row));
    memcpy(c->p[3], &count, sizeof(count));
}

int cpu__nms(struct cpu_build *b)
{
    const struct dev_tensor *scores = cpu__t(b, b->op->in[1]);
    const int64_t rows = scores->dims[0] * scores->dims[1];
    const struct nms s = {.how = b->op->u.nms,
                          .batch = scores->dims[0],
                          .classes = scores->dims[1],
                          .n = scores->dims[2]};
    struct cpu_ref refs[7];
    uint32_t n = cpu__all_plain(b, refs);

    refs[n++] = cpu__scratch(b, (size_t)(rows * s.n) * sizeof(struct candidate));
    refs[n++] = cpu__scratch(b, (size_t)rows * sizeof(int64_t));
    refs[n++] = cpu__scratch(b, (size_t)(rows * s.how.most) * sizeof(struct corners));
    return cpu__step_fn(b, nms_fn, refs, n, &s, sizeof(s));
}
