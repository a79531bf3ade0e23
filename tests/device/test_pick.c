/* test_pick.c - what the data choose: elements that are not 0, boxes that no better one covers.
 *
 * Without it a result could have elements that are not there, or lack some, and only on one device:
 * the number of boxes in an answer follows from these alone. References are direct loops.
 */
#include "common/mem.h"
#include "tests/device/dev_test.h"

#include <math.h>
#include <stdlib.h>

static int64_t *i64(struct t_graph *t, uint32_t tensor)
{
    return t->plain[tensor];
}

/* ------------------------------------------------------------------ what is not 0 */

static void set_one(struct t_graph *t, uint32_t x, int64_t i, bool on)
{
    switch (t->tensors[x].dtype) {
    case SH_F32:
        t_f(t, x)[i] = !on ? (i % 2 ? -0.0f : 0.0f) : i % 5 ? -2.5f : NAN;
        break;
    case SH_I64:
        i64(t, x)[i] = on ? INT64_MIN : 0;
        break;
    case SH_I32:
        ((int32_t *)t->plain[x])[i] = on ? 1 << 30 : 0;
        break;
    default:
        ((uint8_t *)t->plain[x])[i] = on;
    }
}

static void one_nonzero(enum sh_dtype type, int64_t n, int64_t every)
{
    struct t_graph t;
    uint32_t x, places, count;
    int64_t found = 0;

    t_init(&t);
    x = t_add(&t, DEV_ROLE_INPUT, type, DIMS(n));
    places = t_add(&t, DEV_ROLE_OUTPUT, SH_I64, DIMS(n));
    count = t_add(&t, DEV_ROLE_OUTPUT, SH_I64, SCALAR);
    for (int64_t i = 0; i < n; i++)
        set_one(&t, x, i, every && i * 7919 % 1009 % every == 0);
    t_op(&t, DEV_OP_NONZERO, IN(x), OUT(places, count));
    t_run(&t);
    for (int64_t i = 0; i < n; i++)
        if (every && i * 7919 % 1009 % every == 0)
            assert_int_equal(i64(&t, places)[found++], i);
    assert_int_equal(*i64(&t, count), found);
    while (found < n)
        assert_int_equal(i64(&t, places)[found++], 0);
    t_fini(&t);
}

static void what_is_not_zero_is_found_in_order(void **state)
{
    static const enum sh_dtype TYPES[] = {SH_F32, SH_I64, SH_I32, SH_BOOL};

    (void)state;
    for (size_t k = 0; k < SH_ARRAY_LEN(TYPES); k++) {
        one_nonzero(TYPES[k], 1, 1);
        one_nonzero(TYPES[k], 7, 0);
        one_nonzero(TYPES[k], 1024, 1);
        one_nonzero(TYPES[k], 1025, 3);
        one_nonzero(TYPES[k], 70001, 2);
        one_nonzero(TYPES[k], 70001, 500);
    }
}

static void a_mask_is_true_up_to_the_count(void **state)
{
    static const int64_t COUNTS[] = {0, 1, 999, 1500, 1501, -4};

    (void)state;
    for (size_t k = 0; k < SH_ARRAY_LEN(COUNTS); k++) {
        struct t_graph t;
        uint32_t count, y;

        t_init(&t);
        count = t_add(&t, DEV_ROLE_INPUT, SH_I64, SCALAR);
        y = t_add(&t, DEV_ROLE_OUTPUT, SH_BOOL, DIMS(3, 500));
        *i64(&t, count) = COUNTS[k];
        t_op(&t, DEV_OP_MASK, IN(count), OUT(y));
        t_run(&t);
        for (int64_t i = 0; i < 1500; i++)
            assert_int_equal(((uint8_t *)t.plain[y])[i], i < COUNTS[k]);
        t_fini(&t);
    }
}

/* ------------------------------------------------------------------ boxes */

struct boxes {
    int64_t batch, classes, n;
    struct dev_nms how;
};

static double side(const float *b, bool centred, int axis, bool high)
{
    const double a = (double)b[axis], c = (double)b[axis + 2];

    if (centred) { /* x, y, width, height */
        const double middle = (double)b[1 - axis], half = (double)b[3 - axis] / 2;

        return high ? middle + half : middle - half;
    }
    return high ? fmax(a, c) : fmin(a, c);
}

static bool covers(const struct boxes *s, const float *a, const float *b)
{
    double both = 1, one = 1, other = 1;

    for (int axis = 0; axis < 2; axis++) {
        const double lo_a = side(a, s->how.is_centred, axis, false),
                     hi_a = side(a, s->how.is_centred, axis, true),
                     lo_b = side(b, s->how.is_centred, axis, false),
                     hi_b = side(b, s->how.is_centred, axis, true);

        both *= fmax(0, fmin(hi_a, hi_b) - fmax(lo_a, lo_b));
        one *= hi_a - lo_a;
        other *= hi_b - lo_b;
    }
    return both > 0 && both / (one + other - both) > (double)s->how.overlap;
}

/* The best that is left, until none is. */
static int64_t pick(const struct boxes *s, const float *boxes, const float *scores, int64_t *out)
{
    bool *gone = calloc((size_t)s->n, sizeof(*gone));
    int64_t k = 0;

    for (int64_t i = 0; i < s->n; i++)
        gone[i] = !(s->how.any_score ? !isnan(scores[i]) : scores[i] > s->how.score);
    while (k < s->how.most) {
        int64_t best = -1;

        for (int64_t i = 0; i < s->n; i++)
            if (!gone[i] && (best < 0 || scores[i] > scores[best]))
                best = i;
        if (best < 0)
            break;
        out[k++] = best;
        gone[best] = true;
        for (int64_t i = 0; i < s->n; i++)
            gone[i] = gone[i] || covers(s, boxes + 4 * best, boxes + 4 * i);
    }
    free(gone);
    return k;
}

static void one_nms(const struct boxes *s)
{
    int64_t *want = calloc((size_t)s->n, sizeof(*want)), found = 0;
    struct t_graph t;
    uint32_t boxes, scores, picked, count;

    t_init(&t);
    boxes = t_add(&t, DEV_ROLE_INPUT, SH_F32, DIMS(s->batch, s->n, 4));
    scores = t_add(&t, DEV_ROLE_INPUT, SH_F32, DIMS(s->batch, s->classes, s->n));
    picked = t_add(&t, DEV_ROLE_OUTPUT, SH_I64, DIMS(s->batch * s->classes * s->how.most, 3));
    count = t_add(&t, DEV_ROLE_OUTPUT, SH_I64, DIMS(1));
    for (int64_t i = 0; i < s->batch * s->n; i++) { /* sums and products of these are exact */
        float *b = t_f(&t, boxes) + 4 * i;

        b[0] = (float)(i * 37 % 61);
        b[1] = (float)(i * 53 % 67);
        b[2] = b[0] + (float)(i * 29 % 21 - (s->how.is_centred ? 0 : 6));
        b[3] = b[1] + (float)(i * 31 % 23 - (s->how.is_centred ? 0 : 6));
    }
    for (int64_t i = 0; i < s->batch * s->classes * s->n; i++) /* many are equal */
        t_f(&t, scores)[i] = i % 11 == 3 ? NAN : i % 13 == 5 ? -INFINITY : (float)(i * 7 % 16) / 16;
    t_op(&t, DEV_OP_NMS, IN(boxes, scores), OUT(picked, count))->u.nms = s->how;
    t_run(&t);
    for (int64_t c = 0; c < s->batch * s->classes; c++) {
        const int64_t b = c / s->classes,
                      n = pick(s, t_f(&t, boxes) + b * s->n * 4, t_f(&t, scores) + c * s->n, want);

        for (int64_t k = 0; k < n; k++, found++) {
            assert_int_equal(i64(&t, picked)[3 * found], b);
            assert_int_equal(i64(&t, picked)[3 * found + 1], c % s->classes);
            assert_int_equal(i64(&t, picked)[3 * found + 2], want[k]);
        }
    }
    assert_int_equal(*i64(&t, count), found);
    for (int64_t i = 3 * found; i < 3 * s->batch * s->classes * s->how.most; i++)
        assert_int_equal(i64(&t, picked)[i], 0);
    t_fini(&t);
    free(want);
}

static void the_best_boxes_stay_and_ties_go_by_place(void **state)
{
    (void)state;
    for (int k = 0; k < 16; k++) {
        struct boxes s = {.batch = 1, .classes = 1, .n = 1};

        s.how = (struct dev_nms){.most = 1,
                                 .score = k & 4 ? 0.3f : -1,
                                 .overlap = k & 8 ? 0.5f : 0,
                                 .any_score = k & 1,
                                 .is_centred = k & 2};
        one_nms(&s);
        s = (struct boxes){.batch = 2, .classes = 3, .n = 40, .how = s.how};
        s.how.most = 40;
        one_nms(&s);
        s = (struct boxes){.batch = 1, .classes = 2, .n = 3000, .how = s.how};
        s.how.most = 200;
        one_nms(&s);
    }
}

/* ------------------------------------------------------------------ writes to no row */

static void updates_of_no_row_are_left_out(void **state)
{
    (void)state;
    for (int kind = 0; kind < DEV_N_SCATTERS; kind++) {
        static const int64_t ROWS[] = {-1, 2, -1, 0, 2, -1};
        struct t_graph t;
        uint32_t data, rows, u, y;

        t_init(&t);
        data = t_add(&t, DEV_ROLE_INPUT, SH_F32, DIMS(4, 3));
        rows = t_add(&t, DEV_ROLE_INPUT, SH_I64, DIMS(6));
        u = t_add(&t, DEV_ROLE_INPUT, SH_F32, DIMS(6, 3));
        y = t_add(&t, DEV_ROLE_OUTPUT, SH_F32, DIMS(4, 3));
        memcpy(t.plain[rows], ROWS, sizeof(ROWS));
        t_op(&t, DEV_OP_SCATTER, IN(data, rows, u), OUT(y))->u.scatter.kind =
            (enum dev_scatter)kind;
        t_run(&t);
        for (int64_t i = 0; i < 3; i++) {
            assert_memory_equal(&t_f(&t, y)[3 + i], &t_f(&t, data)[3 + i], sizeof(float));
            assert_memory_equal(&t_f(&t, y)[9 + i], &t_f(&t, data)[9 + i], sizeof(float));
        }
        if (kind == DEV_SCATTER_SET)
            assert_memory_equal(&t_f(&t, y)[6], &t_f(&t, u)[12], 3 * sizeof(float));
        t_fini(&t);
    }
}

/* The same refusals on every device: they stand in one place before it. */
static void what_does_not_fit_is_refused_before_a_device_sees_it(void **state)
{
    struct sh_err err = {0};
    struct t_graph t;
    uint32_t boxes, scores, picked, count, mask;

    (void)state;
    t_init(&t);
    boxes = t_add(&t, DEV_ROLE_INPUT, SH_F32, DIMS(2, 6, 4));
    scores = t_add(&t, DEV_ROLE_INPUT, SH_F32, DIMS(2, 3, 6));
    picked = t_add(&t, DEV_ROLE_OUTPUT, SH_I64, DIMS(2 * 3 * 5, 3));
    count = t_add(&t, DEV_ROLE_OUTPUT, SH_I64, SCALAR);
    mask = t_add(&t, DEV_ROLE_OUTPUT, SH_BOOL, DIMS(8));
    t_op(&t, DEV_OP_NMS, IN(boxes, scores), OUT(picked, count))->u.nms.most = 4;
    assert_fails(t_plan_fails(&t, DEV_FP32, &err), SH_E_BUG, &err, "number of boxes");
    t.ops[0].u.nms.most = 7; /* more than there are */
    err = (struct sh_err){0};
    assert_fails(t_plan_fails(&t, DEV_FP32, &err), SH_E_BUG, &err, "number of boxes");
    t.ops[0].u.nms.most = 5;
    t.tensors[scores].dims[2] = 5;
    err = (struct sh_err){0};
    assert_fails(t_plan_fails(&t, DEV_FP32, &err), SH_E_BUG, &err, "do not fit");
    t.ops[0].out[1] = picked;
    err = (struct sh_err){0};
    assert_fails(t_plan_fails(&t, DEV_FP32, &err), SH_E_BUG, &err, "one number of I64");
    t.ops[0] = (struct dev_op){.kind = DEV_OP_NONZERO, .name = "node", .n_in = 1, .n_out = 2};
    t.ops[0].in[0] = boxes;
    t.ops[0].out[0] = mask;
    t.ops[0].out[1] = count;
    err = (struct sh_err){0};
    assert_fails(t_plan_fails(&t, DEV_FP32, &err), SH_E_BUG, &err, "places");
    t.ops[0] = (struct dev_op){.kind = DEV_OP_MASK, .name = "node", .n_in = 1, .n_out = 1};
    t.ops[0].in[0] = count;
    t.ops[0].out[0] = picked;
    err = (struct sh_err){0};
    assert_fails(t_plan_fails(&t, DEV_FP32, &err), SH_E_BUG, &err, "not BOOL");
    t_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_zero_is_found_in_order),
        cmocka_unit_test(a_mask_is_true_up_to_the_count),
        cmocka_unit_test(the_best_boxes_stay_and_ties_go_by_place),
        cmocka_unit_test(updates_of_no_row_are_left_out),
        cmocka_unit_test(what_does_not_fit_is_refused_before_a_device_sees_it),
    };

    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
