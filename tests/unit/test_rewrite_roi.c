/* test_rewrite_roi.c - Without it: what pools regions, finds determinants and puts maxima back is
 * put together from other operators, and could pick a pixel beside the right one, where ONNX's own
 * tests, one or two of each, do not look. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl */
#include "tests/unit/graph_nodes.h"
#include "tests/unit/graph_text.h"

#include <math.h>

/* Runs the only node of a graph with one input x. OWNED. */
static float *result(struct graph *g, const float *x, size_t *bytes)
{
    const struct graph_sizes at = {.batch = graph_some_batch(g)};
    struct sh_err err = {0};
    struct program *p = NULL;
    struct dev_lib *lib;
    struct dev *d = open_cpu(&lib);
    float *y;

    assert_ok_err(program_infer(d, g, &at, DEV_FP32, NULL, &p, &err), &err);
    y = run(d, p, x, bytes);
    program_free(p);
    dev_close(d);
    dev_lib_close(lib);
    graph_free(g);
    return y;
}

static void fill(float *x, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / (float)(1 << 23) - 1.0f;
    }
}

/* ---------------------------------------------------------------- regions */

enum { C = 2, H = 5, W = 6, N = 2, R = 5 };

static const float BOXES[R][4] = {
    {0, 0, 3, 3}, {1.3f, 0.2f, 5.9f, 4.4f}, {-2, -1, 2, 9}, {2, 2, 2.1f, 2.1f}, {4, 3, 40, 30}};
static const int64_t IMAGE[R] = {0, 1, 1, 0, 1};

/* One sample, by the words of ONNX: the four shares are added, or the largest is taken. */
static double sample(const float *plane, double y, double x, bool is_max)
{
    int y0, x0, y1, x1;
    double ly, lx, v[4];

    if (y < -1 || y > H || x < -1 || x > W)
        return 0;
    y = fmax(y, 0);
    x = fmax(x, 0);
    y0 = SH_MIN((int)y, H - 1);
    x0 = SH_MIN((int)x, W - 1);
    y1 = SH_MIN(y0 + 1, H - 1);
    x1 = SH_MIN(x0 + 1, W - 1);
    ly = y0 == H - 1 ? 0 : y - y0;
    lx = x0 == W - 1 ? 0 : x - x0;
    v[0] = (1 - ly) * (1 - lx) * (double)plane[y0 * W + x0];
    v[1] = (1 - ly) * lx * (double)plane[y0 * W + x1];
    v[2] = ly * (1 - lx) * (double)plane[y1 * W + x0];
    v[3] = ly * lx * (double)plane[y1 * W + x1];
    return is_max ? fmax(fmax(v[0], v[1]), fmax(v[2], v[3])) : v[0] + v[1] + v[2] + v[3];
}

static double align(const float *plane, const float *box, int by, int bx, bool is_max, bool half)
{
    enum { BINS_Y = 2, BINS_X = 3, SAMPLES = 2 };
    const double scale = 0.75, off = half ? 0.5 : 0;
    const double x0 = (double)box[0] * scale - off, y0 = (double)box[1] * scale - off;
    double w = (double)box[2] * scale - off - x0, h = (double)box[3] * scale - off - y0;
    double sum = 0, max = -INFINITY;

    if (!half) {
        w = fmax(w, 1);
        h = fmax(h, 1);
    }
    for (int i = 0; i < SAMPLES; i++)
        for (int j = 0; j < SAMPLES; j++) {
            const double v = sample(plane, y0 + (by + (i + 0.5) / SAMPLES) * h / BINS_Y,
                                    x0 + (bx + (j + 0.5) / SAMPLES) * w / BINS_X, is_max);

            sum += v;
            max = fmax(max, v);
        }
    return is_max ? max : sum / (SAMPLES * SAMPLES);
}

static struct graph *regions(const char *op, const char *attrs, bool image_first)
{
    char in[512];
    size_t n = (size_t)snprintf(in, sizeof(in), "f[%d,%d,%d,%d] c[%d,%d]", N, C, H, W, R,
                                image_first ? 5 : 4);

    for (int i = 0; i < R; i++) {
        if (image_first)
            n += (size_t)snprintf(in + n, sizeof(in) - n, "%c%lld", i ? ',' : '=',
                                  (long long)IMAGE[i]);
        for (int k = 0; k < 4; k++)
            n += (size_t)snprintf(in + n, sizeof(in) - n, "%c%g", i || k || image_first ? ',' : '=',
                                  (double)BOXES[i][k]);
    }
    for (int i = 0; i < R && !image_first; i++)
        n += (size_t)snprintf(in + n, sizeof(in) - n, "%s%lld",
                              i ? "," : " i[5]=", (long long)IMAGE[i]);
    return text_graph(op, in, attrs, 1);
}

static void regions_are_aligned_as_the_standard_says(void **state)
{
    float x[N * C * H * W];
    (void)state;

    fill(x, SH_ARRAY_LEN(x), 1);
    for (int k = 0; k < 4; k++) {
        const bool is_max = k & 1, half = k & 2;
        char attrs[256];
        size_t bytes;
        float *y;

        snprintf(attrs, sizeof(attrs),
                 "output_height=2 output_width=3 sampling_ratio=2 spatial_scale~0.75 mode:%s "
                 "coordinate_transformation_mode:%s",
                 is_max ? "max" : "avg", half ? "half_pixel" : "output_half_pixel");
        y = result(regions("RoiAlign", attrs, false), x, &bytes);
        assert_int_equal(bytes, R * C * 6 * sizeof(*y));
        for (int i = 0; i < R * C * 6; i++) {
            const int r = i / (C * 6), c = i / 6 % C;
            const float *plane = x + (IMAGE[r] * C + c) * H * W;

            assert_float_equal((double)y[i], align(plane, BOXES[r], i % 6 / 3, i % 3, is_max, half),
                               2e-5);
        }
        free(y);
    }
}

static void bins_hold_the_largest_pixel(void **state)
{
    enum { BINS = 2 };
    float x[N * C * H * W], *y;
    size_t bytes;
    (void)state;

    fill(x, SH_ARRAY_LEN(x), 2);
    y = result(regions("MaxRoiPool", "pooled_shape=2,2, spatial_scale~0.75", true), x, &bytes);
    assert_int_equal(bytes, R * C * BINS * BINS * sizeof(*y));
    for (int i = 0; i < R * C * BINS * BINS; i++) {
        const int r = i / (C * BINS * BINS), c = i / (BINS * BINS) % C;
        const int bin[2] = {i / BINS % BINS, i % BINS}, size[2] = {H, W};
        const float *plane = x + (IMAGE[r] * C + c) * H * W;
        int from[2], to[2];
        float want = -INFINITY;

        for (int a = 0; a < 2; a++) {
            const int low = (int)round((double)BOXES[r][1 - a] * 0.75),
                      high = (int)round((double)BOXES[r][3 - a] * 0.75);
            const double each = (double)SH_MAX(high - low + 1, 1) / BINS;

            from[a] = SH_MIN(SH_MAX((int)floor(bin[a] * each) + low, 0), size[a]);
            to[a] = SH_MIN(SH_MAX((int)ceil((bin[a] + 1) * each) + low, 0), size[a]);
        }
        for (int h = from[0]; h < to[0]; h++)
            for (int w = from[1]; w < to[1]; w++)
                want = fmaxf(want, plane[h * W + w]);
        assert_float_equal(y[i], isinf(want) ? 0 : want, 1e-6);
    }
    free(y);
}

/* ---------------------------------------------------------------- determinants */

static double det(const float *x, int n)
{
    double a[36], d = 1;

    for (int i = 0; i < n * n; i++)
        a[i] = (double)x[i];
    for (int k = 0; k < n; k++) {
        int p = k;

        for (int i = k + 1; i < n; i++)
            p = fabs(a[i * n + k]) > fabs(a[p * n + k]) ? i : p;
        for (int j = 0; j < n && p != k; j++) {
            const double t = a[k * n + j];

            a[k * n + j] = a[p * n + j];
            a[p * n + j] = t;
        }
        d *= p != k ? -a[k * n + k] : a[k * n + k];
        for (int i = k + 1; i < n && a[k * n + k] != 0; i++)
            for (int j = n; j-- > k;)
                a[i * n + j] -= a[i * n + k] / a[k * n + k] * a[k * n + j];
    }
    return d;
}

static void determinants_are_those_of_an_elimination(void **state)
{
    (void)state;
    for (int n = 1; n <= 6; n++) {
        float x[3 * 36], *y;
        char in[32];
        size_t bytes;

        snprintf(in, sizeof(in), "f[3,%d,%d]", n, n);
        fill(x, SH_ARRAY_LEN(x), (uint32_t)n);
        for (int i = 0; i < n; i++) { /* the second one is singular, the third needs exchanges */
            x[n * n + i] = 0;
            x[2 * n * n + i * n + i] = 0;
        }
        y = result(text_graph("Det", in, "", 1), x, &bytes);
        assert_int_equal(bytes, 3 * sizeof(*y));
        for (int k = 0; k < 3; k++)
            assert_float_equal((double)y[k], det(x + k * n * n, n), 1e-4);
        free(y);
    }
}

/* ---------------------------------------------------------------- maxima */

/* Maxima and their places go through MaxUnpool: each largest pixel of its window stays. */
static void maxima_go_back_to_where_they_were(void **state)
{
    const int64_t dims[] = {2, 3, 6, 8};
    struct graph *g = new_graph();
    const uint32_t x = input(g, "x", 4, dims);
    uint32_t two[2], y = GRAPH_NONE, at;
    float data[2 * 3 * 6 * 8], *got;
    size_t bytes;
    (void)state;

    for (int i = 0; i < 2; i++)
        assert_ok(graph_add_value(g, i ? "places" : "max", SH_F32, -1, NULL, &two[i], NULL));
    assert_ok(graph_add_node(g, "pool", "MaxPool", &x, 1, two, 2, &at, NULL));
    for (int k = 0; k < 2; k++) {
        if (k)
            y = NODE(g, "MaxUnpool", "y", two[0], two[1]);
        assert_ok(
            graph_set_ints(&g->nodes[g->n_nodes - 1], "kernel_shape", (int64_t[]){2, 2}, 2, NULL));
        assert_ok(graph_set_ints(&g->nodes[g->n_nodes - 1], "strides", (int64_t[]){2, 2}, 2, NULL));
    }
    assert_ok(graph_add_output(g, y, NULL));
    fill(data, SH_ARRAY_LEN(data), 7);
    got = result(g, data, &bytes);
    assert_int_equal(bytes, sizeof(data));
    for (int i = 0; i < 2 * 3 * 6 * 8; i++) {
        const int w = i % 8, h = i / 8 % 6, corner = i - (w & 1) - (h & 1) * 8;
        const float max =
            fmaxf(fmaxf(data[corner], data[corner + 1]), fmaxf(data[corner + 8], data[corner + 9]));

        assert_float_equal(got[i], data[i] == max ? max : 0, 0);
    }
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_are_aligned_as_the_standard_says),
        cmocka_unit_test(bins_hold_the_largest_pixel),
        cmocka_unit_test(determinants_are_those_of_an_elimination),
        cmocka_unit_test(maxima_go_back_to_where_they_were),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
