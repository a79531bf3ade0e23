/* test_parts.c - Without it: experts that get consecutive rows, as many as the data decide, would
 * get others' rows, or be refused; and a file whose numbers of rows do not fit would be taken. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl */
#include "tests/unit/graph_nodes.h"

#define ROWS 6

static uint32_t some(struct graph *g, const char *op, const char *name, const uint32_t *in,
                     uint32_t n_in, uint32_t n_out, uint32_t *out)
{
    uint32_t at;
    char own[32];

    for (uint32_t k = 0; k < n_out; k++) {
        snprintf(own, sizeof(own), "%s%u", name, k);
        assert_ok(graph_add_value(g, own, SH_F32, -1, NULL, &out[k], NULL));
    }
    assert_ok(graph_add_node(g, name, op, in, n_in, out, n_out, &at, NULL));
    assert_ok(graph_set_int(&g->nodes[at], "axis", 0, NULL));
    return at;
}

/* Rows of x go to three experts, `sizes` to each, which multiply by a number of their own. */
static struct graph *experts(void)
{
    struct graph *g = new_graph();
    const uint32_t x = input(g, "x", 2, (int64_t[]){ROWS, 4});
    uint32_t in[3], part[3], joined[3], sizes, y;
    char name[16];

    assert_ok(graph_add_value(g, "sizes", SH_F32, 1, (int64_t[]){3}, &sizes, NULL));
    assert_ok(graph_add_input(g, sizes, NULL));
    in[0] = x;
    in[1] = NODE(g, "Cast", "whole", sizes);
    assert_ok(graph_set_int(&g->nodes[g->n_nodes - 1], "to", 7, NULL));
    some(g, "Split", "part", in, 2, 3, part);
    for (uint32_t k = 0; k < 3; k++) {
        snprintf(name, sizeof(name), "w%u", k);
        in[1] = param(g, name, 2, (int64_t[]){4, 4});
        for (uint32_t i = 0; i < 16; i++)
            ((float *)g->values[in[1]].data)[i] = i % 5 ? 0 : (float)(k + 1);
        snprintf(name, sizeof(name), "y%u", k);
        in[0] = part[k];
        joined[k] = node(g, "MatMul", name, in, 2);
    }
    some(g, "Concat", "all", joined, 3, 1, &y);
    assert_ok(graph_add_output(g, y, NULL));
    return g;
}

/* factors: by row; NULL: there are no numbers */
static void expect(const float sizes[3], const float *factors)
{
    struct dev_lib *l;
    struct dev *d = open_cpu(&l);
    struct graph *g = experts();
    struct dev_bases b = {0};
    struct program *p = NULL;
    struct sh_err err = {0};
    float x[ROWS * 4], *y;
    void *image;

    assert_ok_err(
        program_infer(d, g, &(struct graph_sizes){.batch = ROWS}, DEV_FP32, NULL, &p, &err), &err);
    assert_true(program_nan_hint(p)[0]); /* else who trains it would change the rate */
    b.workspace = SH_ALIGN_UP(program_image_bytes(p), DEV_BLOCK);
    image = calloc(1, program_image_bytes(p) + 1);
    assert_non_null(image);
    for (int i = 0; i < ROWS * 4; i++)
        x[i] = (float)(i + 1);
    assert_ok(program_write_image(p, image, NULL));
    assert_ok(dev_upload(d, 0, image, program_image_bytes(p), NULL));
    assert_ok(dev_upload(d, b.workspace + program_input(p, 0)->offset, x, sizeof(x), NULL));
    assert_ok(
        dev_upload(d, b.workspace + program_input(p, 1)->offset, sizes, 3 * sizeof(float), NULL));
    assert_ok_err(program_run(p, &b, 0, program_n_ops(p), &err), &err);
    assert_int_equal(program_output(p, 0)->bytes, sizeof(x));
    y = malloc(sizeof(x));
    assert_non_null(y);
    assert_ok(dev_download(d, y, b.workspace + program_output(p, 0)->offset, sizeof(x), NULL));
    assert_ok(dev_sync(d, NULL));
    for (int i = 0; i < ROWS * 4; i++) {
        if (factors)
            assert_float_equal(y[i], factors[i / 4] * x[i], 1e-4);
        else
            assert_true(isnan(y[i]));
    }
    free(y);
    free(image);
    program_free(p);
    graph_free(g);
    dev_close(d);
    dev_lib_close(l);
}

static void each_part_gets_its_own_rows(void **state)
{
    (void)state;
    expect((const float[]){1, 0, 5}, (const float[]){1, 3, 3, 3, 3, 3});
    expect((const float[]){2, 2, 2}, (const float[]){1, 1, 2, 2, 3, 3});
    expect((const float[]){0, 6, 0}, (const float[]){2, 2, 2, 2, 2, 2});
}

/* ONNX would stop there. */
static void rows_that_do_not_add_up_give_no_numbers(void **state)
{
    (void)state;
    expect((const float[]){1, 1, 1}, NULL);
    expect((const float[]){4, 4, 4}, NULL);
    expect((const float[]){-1, 4, 3}, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_part_gets_its_own_rows),
        cmocka_unit_test(rows_that_do_not_add_up_give_no_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
