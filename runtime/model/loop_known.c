/* loop_known.c - bodies of loops that are known, and what all their turns are together.
 *
 * A body is known by its text (loop_form.c), in which $1, $2, ... stand for the sizes of what the
 * loop adds a row to in each turn. It must take row i of the same number of rows everywhere, and
 * run for each row once.
 */
#include "common/mem.h"
#include "runtime/model/bounds.h"
#include "runtime/model/counted_int.h"
#include "runtime/model/loop_form.h"

#include <math.h>
#include <stdlib.h>

/* Column `at` of x, [n, k] -> [n, 1]. */
static uint32_t nth_column(struct shape_ctx *c, uint32_t x, int64_t at)
{
    return rw_slice(c, x, 1, at, at + 1, 1);
}

static uint32_t loop_number(struct shape_ctx *c, double v)
{
    return rw_number(c, SH_F32, v);
}

/* FP32 [1, n] or [n]: 0, 1, ... */
static uint32_t iota_places(struct shape_ctx *c, int64_t n, int rank)
{
    const int64_t dims[2] = {rank == 2 ? 1 : n, n};

    return rw_cast(c, rw_reshape(c, rw_iota(c, n), rank, dims), SH_F32);
}

static uint32_t with_last_axis(struct shape_ctx *c, uint32_t x)
{
    return rw2(c, "Unsqueeze", x, rw_list(c, (const int64_t[]){2}, 1));
}

/* ---------------------------------------------------------------- masks */

/* Along one axis of the picture, how much each of m elements of a mask is worth at each of `size`
 * places, [n, size, m]: the mask is stretched from place lo to hi, both [n, 1]. */
static uint32_t stretched_boxes(struct shape_ctx *c, uint32_t lo, uint32_t hi, int64_t size,
                                int64_t m)
{
    const uint32_t x = iota_places(c, size, 2);
    uint32_t length = rw2(c, "Add", rw2(c, "Sub", hi, lo), loop_number(c, 1)), at, w, in;

    length = rw2(c, "Max", length, loop_number(c, 1));
    at = rw2(c, "Add", rw2(c, "Sub", x, lo), loop_number(c, 0.5));
    at = rw2(c, "Div", rw2(c, "Mul", at, loop_number(c, (double)m)), length);
    at = rw2(c, "Sub", at, loop_number(c, 0.5));
    at = rw3(c, "Clip", at, loop_number(c, 0), loop_number(c, (double)m - 1));
    w = rw1(c, "Abs", rw2(c, "Sub", with_last_axis(c, at), iota_places(c, m, 1)));
    w = rw1(c, "Relu", rw2(c, "Sub", loop_number(c, 1), w));
    in = rw2(c, "And", rw2(c, "GreaterOrEqual", x, lo), rw2(c, "LessOrEqual", x, hi));
    return rw3(c, "Where", with_last_axis(c, in), w, loop_number(c, 0));
}

/* torchvision's paste_masks_in_image: A boxes [n, 4], B masks [n, 1, m, m]. */
static bool paste(struct shape_ctx *c, const struct loop_form *f, const int64_t size[2],
                  uint32_t *out)
{
    const struct graph_value b = *rw_v(c, f->given[0]), m = *rw_v(c, f->given[1]);
    uint32_t boxes, masks, wx, wy;

    if (b.rank != 2 || b.dims[1] != 4 || m.rank != 4 || m.dims[1] != 1 || m.dtype != SH_F32)
        return false;
    boxes = rw_cast(c, f->given[0], SH_F32);
    masks = rw2(c, "Squeeze", f->given[1], rw_list(c, (const int64_t[]){1}, 1));
    wy = stretched_boxes(c, nth_column(c, boxes, 1), nth_column(c, boxes, 3), size[0], m.dims[2]);
    wx = stretched_boxes(c, nth_column(c, boxes, 0), nth_column(c, boxes, 2), size[1], m.dims[3]);
    wx = rw_transpose(c, wx, (const int64_t[]){0, 2, 1}, 3);
    out[0] = rw2(c, "MatMul", rw2(c, "MatMul", wy, masks), wx);
    return true;
}

/* ---------------------------------------------------------------- keypoints */

#define CUBIC_A (-0.75)
#define MAX_SIDE 8192 /* of a region */

struct regions {
    uint32_t maps;               /* [n, k, s + 4, s + 4]: with two edges more on each side */
    uint32_t wy, wx, inside;     /* [n, h, s + 4], [n, s + 4, w], BOOL [n, h, w] */
    uint32_t scale[2], begin[2]; /* [n] of x, y: of a place of the map on the picture */
    int64_t h, w;
};

/* x with its first and its last element along an axis two times more. */
static uint32_t edged(struct shape_ctx *c, uint32_t x, int axis)
{
    const int64_t n = c->err->rc ? 1 : rw_v(c, x)->dims[axis];
    const uint32_t a = rw_slice(c, x, axis, 0, 1, 1), b = rw_slice(c, x, axis, n - 1, n, 1);

    return rw_concat(c, (const uint32_t[]){a, a, x, b, b}, 5, axis);
}

/* a x^3 + b x^2 + c x + d */
static uint32_t polynomial(struct shape_ctx *c, uint32_t x, const double p[4])
{
    uint32_t y = rw2(c, "Mul", x, loop_number(c, p[0]));

    for (int i = 1; i < 4; i++) {
        y = rw2(c, "Add", y, loop_number(c, p[i]));
        y = i < 3 ? rw2(c, "Mul", y, x) : y;
    }
    return y;
}

/* How much each of m elements, with edges, is worth at each of `most` places, [n, most, m + 4], of
 * which there are `sizes`, [n]. */
static uint32_t cubic(struct shape_ctx *c, uint32_t sizes, int64_t most, int64_t m)
{
    static const double NEAR[4] = {CUBIC_A + 2, -(CUBIC_A + 3), 0, 1},
                        FAR[4] = {CUBIC_A, -5 * CUBIC_A, 8 * CUBIC_A, -4 * CUBIC_A};
    uint32_t at = rw2(c, "Add", iota_places(c, most, 2), loop_number(c, 0.5)), d, near;

    sizes = rw2(c, "Unsqueeze", sizes, rw_list(c, (const int64_t[]){1}, 1));
    at = rw2(c, "Div", rw2(c, "Mul", at, loop_number(c, (double)m)), sizes);
    at = rw2(c, "Add", at, loop_number(c, 2 - 0.5)); /* two edges are before */
    d = rw1(c, "Abs", rw2(c, "Sub", with_last_axis(c, at), iota_places(c, m + 4, 1)));
    d = rw2(c, "Min", d, loop_number(c, 2));
    near = rw2(c, "LessOrEqual", d, loop_number(c, 1));
    return rw3(c, "Where", near, polynomial(c, d, NEAR), polynomial(c, d, FAR));
}

/* BOOL [n, most]: is there such a place? */
static uint32_t exist(struct shape_ctx *c, uint32_t sizes, int64_t most)
{
    sizes = rw2(c, "Unsqueeze", sizes, rw_list(c, (const int64_t[]){1}, 1));
    return rw2(c, "Less", iota_places(c, most, 2), sizes);
}

/* Keypoint k of all regions: x and y, [n, 2, 1], and its score, [n, 1]. */
static void keypoint(struct shape_ctx *c, const struct regions *r, int64_t k, uint32_t *xy,
                     uint32_t *score)
{
    const int64_t one = 1, last = 2;
    uint32_t map = rw_slice(c, r->maps, 1, k, k + 1, 1), at[2], parts[2];

    map = rw2(c, "Squeeze", map, rw_list(c, &one, 1));
    map = rw2(c, "MatMul", rw2(c, "MatMul", r->wy, map), r->wx);
    map = rw3(c, "Where", r->inside, map, loop_number(c, -INFINITY));
    map = rw1_with(c, "Flatten", map, RW_INT("axis", 1));
    *score = rw_reduce(c, "ReduceMax", map, &one, 1, true);
    map = rw1_with(c, "ArgMax", map, RW_INT("axis", 1)); /* [n, 1] */
    at[0] = rw2(c, "Mod", map, rw_number(c, SH_I64, (double)r->w));
    at[1] = rw2(c, "Div", map, rw_number(c, SH_I64, (double)r->w));
    for (int i = 0; i < 2; i++) {
        parts[i] = rw2(c, "Add", rw_cast(c, at[i], SH_F32), loop_number(c, 0.5));
        parts[i] = rw2(c, "Mul", parts[i], rw2(c, "Unsqueeze", r->scale[i], rw_list(c, &one, 1)));
        parts[i] = rw2(c, "Add", parts[i], rw2(c, "Unsqueeze", r->begin[i], rw_list(c, &one, 1)));
    }
    *xy = rw2(c, "Unsqueeze", rw_concat(c, parts, 2, 1), rw_list(c, &last, 1));
}

/* torchvision's heatmaps_to_keypoints: A maps [n, k, s, s], B and C heights and widths of
 * regions in places, D and F these as they are, E and G where they begin, all [n]. */
static bool keypoints(struct shape_ctx *c, const struct loop_form *f, const int64_t *size,
                      uint32_t *out)
{
    const struct graph_value m = *rw_v(c, f->given[0]);
    struct bounds h, w;
    struct regions r = {.begin = {f->given[4], f->given[6]}};
    uint32_t *xy, *scores, ones, h_of, w_of;

    if (bounds_of(c, f->given[1], &h) || bounds_of(c, f->given[2], &w) || m.rank != 4 ||
        m.dims[1] != size[1] || m.dtype != SH_F32 || size[0] != 3 ||
        !(h.hi >= 1 && h.hi <= MAX_SIDE && w.hi >= 1 && w.hi <= MAX_SIDE))
        return false;
    h_of = rw1(c, "Floor", f->given[1]); /* as the body casts them */
    w_of = rw1(c, "Floor", f->given[2]);
    r.h = (int64_t)h.hi;
    r.w = (int64_t)w.hi;
    r.maps = edged(c, edged(c, f->given[0], 2), 3);
    r.wy = cubic(c, h_of, r.h, m.dims[2]);
    r.wx = rw_transpose(c, cubic(c, w_of, r.w, m.dims[3]), (const int64_t[]){0, 2, 1}, 3);
    r.inside = rw2(c, "Unsqueeze", exist(c, w_of, r.w), rw_list(c, (const int64_t[]){1}, 1));
    r.inside = rw2(c, "And", with_last_axis(c, exist(c, h_of, r.h)), r.inside);
    r.scale[0] = rw2(c, "Div", f->given[3], f->given[2]);
    r.scale[1] = rw2(c, "Div", f->given[5], f->given[1]);
    xy = calloc((size_t)size[1] + 1, sizeof(*xy));
    scores = calloc((size_t)size[1] + 1, sizeof(*scores));
    if (!xy || !scores)
        SH_FAIL(c->err, SH_E_NOMEM, "could not allocate keypoints");
    for (int64_t k = 0; k < size[1] && c->err->rc == SH_OK; k++)
        keypoint(c, &r, k, &xy[k], &scores[k]);
    if (c->err->rc == SH_OK) {
        out[1] = rw_concat(c, scores, (uint32_t)size[1], 1);
        out[0] = rw_concat(c, xy, (uint32_t)size[1], 2);
        ones = rw_slice(c, out[0], 1, 0, 1, 1);
        ones = rw2(c, "Equal", ones, ones); /* of numbers: true */
        out[0] = rw_concat(c, (const uint32_t[]){out[0], rw_cast(c, ones, SH_F32)}, 2, 1);
    }
    free(xy);
    free(scores);
    return true;
}

/* ---------------------------------------------------------------- which are known */

typedef bool known_fn(struct shape_ctx *c, const struct loop_form *f, const int64_t *size,
                      uint32_t *out);

static const struct known {
    const char *text;
    uint32_t n_state;
    int rank; /* of the first state, whose axes from 1 on are $1, $2 */
    known_fn *fn;
} KNOWN[] = {
    {"true;Concat0(s2,Slice(Slice(Concat1(ConstantOfShape(Concat0(Gather0(Shape(Slice(Slice("
     "Concat0(ConstantOfShape(Concat0(ReduceMax(Concat0(Gather0(Gather0(A,i),1),0)),Gather0(Shape("
     "Slice(Slice(Gather0(Gather0(Resize-linear-half_pixel(Gather0(Gather0(B,i),0),,,Concat0(Slice("
     "Shape(#6),0,2,0),Concat0(ReduceMax(Concat0(Add(Sub(Gather0(#1,3),#2),1),1)),ReduceMax("
     "Concat0(Add(Sub(Gather0(#1,2),Gather0(#1,0)),1),1))))),0),0),Sub(#4,#2),Sub(ReduceMin("
     "Concat0(Add(#9,1),$1)),#2),0,1),Sub(ReduceMax(Concat0(#15,0)),#15),Sub(ReduceMin(Concat0("
     "Add(#14,1),$2)),#15),1,1)),1)),0),#38,ConstantOfShape(Concat0(Sub($1,#28),#40),0)),0,$1,0,1),"
     "0,end,1,1)),0),#32),0),#48,ConstantOfShape(Concat0(#50,Sub($2,#36)),0)),0,end,0,1),0,$2,1,1)"
     ")",
     1, 3, paste},
    {"true;Concat0(s2,Concat0(Add(Mul(Add(0.5,Mod(ArgMax1(Reshape(Gather1(Slice("
     "Resize-cubic-half_pixel--0.75(Unsqueeze1(Slice(Gather0(A,i),0,end,0,1)),,,Concat0(Slice("
     "Shape(#3),0,2,0),Cast(Concat0(Gather0(B,i),Gather0(C,i))))),0,end,0,1),0),Concat0($2,-1))),"
     "Gather0(Shape(#13),2))),Div(Gather0(D,i),#7)),Gather0(E,i)),Add(Mul(Add(0.5,Div(Sub(#16,#19),"
     "#18)),Div(Gather0(F,i),#6)),Gather0(G,i)),ConstantOfShape(Shape(#33),1)));Concat0(s3,Gather0("
     "Reshape(Gather2(Gather1(#13,#27),#19),-1),Mul(Range(0,$2,1),Add(Add(Mul($2,$2),$2),1))))",
     2, 3, keypoints},
};

/* Has each thing that a turn takes a row of as many rows as there are turns? */
static bool runs_by_row(const struct shape_ctx *c, const struct loop_form *f, uint32_t trips)
{
    const struct graph_number n = number__any(c, trips);

    for (uint32_t i = 0; i < f->n_given; i++) {
        const struct graph_value *v = &c->g->values[f->given[i]];
        struct graph_number rows;

        if (counted__axis(v) != 0)
            return false;
        rows = counted__of(c, f->given[i]);
        if (!number__same(c->g, &n, &rows))
            return false;
    }
    return f->n_given > 0;
}

static bool begins_empty(const struct shape_ctx *c, const struct loop_known *l)
{
    for (uint32_t s = 0; s < l->n_state; s++) {
        const struct graph_value *v =
            run__is_sequence(l->state[s]) ? NULL : &c->g->values[l->state[s]];

        if (!v || v->dtype != SH_F32 || v->rank < 1 || v->dims[0] != 0)
            return false;
    }
    return true;
}

bool loop_known(struct run *r, const struct loop_known *l)
{
    struct shape_ctx *c = &r->c;
    const struct graph_value *v;
    struct loop_form f = {0};
    bool is = false;

    if (l->n_state < 1 || !begins_empty(c, l) || loop_form_read(r, &l->of, &f) || !f.text) {
        free(f.text);
        return false;
    }
    v = &c->g->values[l->state[0]];
    for (size_t i = 0; i < SH_ARRAY_LEN(KNOWN) && !is; i++) {
        const struct known *k = &KNOWN[i];
        int64_t size[SH_MAX_RANK], none[LOOP_FORM_NUMBERS];

        if (l->n_state != k->n_state || v->rank != k->rank)
            continue;
        memcpy(size, v->dims + 1, sizeof(size) - sizeof(size[0]));
        is = loop_form_is(f.text, k->text, size, none) && runs_by_row(c, &f, l->trips) &&
             k->fn(c, &f, size, l->out);
    }
    free(f.text);
    return is;
}
