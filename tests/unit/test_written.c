/* test_written.c - which part of its state a step writes, by what its program says and by what is
 * there after some steps.
 *
 * Without it: a program could write what it says that it only reads. No checkpoint has that, so a
 * job would go on from one with weights of two steps, and end as another job than it was. */
/* uses: libmodel.a libdevice.a */
/* link: -ldl */
#include "tests/unit/graph_text.h"
#include "tests/unit/train_bench.h"

#define N_STEPS 5 /* the last update has one step alone, where two make one */
#define WIDTH 6

/* A body, a norm, a table of constants, and a head. */
static struct graph *body_and_head(void)
{
    struct graph *g = text_graph("MatMul", "f[4,6] p[6,6]", "", 1);
    const int64_t width = WIDTH;
    uint32_t x = g->outputs[0], norm[5] = {x}, factor;
    float *factors = calloc((size_t)width, sizeof(*factors));

    assert_non_null(factors);
    for (int64_t i = 0; i < width; i++)
        factors[i] = 1 + 0.25f * (float)i;
    norm[1] = some_weight(g, "norm.scale", 1, &width);
    norm[2] = some_weight(g, "norm.bias", 1, &width);
    norm[3] = some_weight(g, "norm.mean", 1, &width);
    norm[4] = some_weight(g, "norm.var", 1, &width);
    x = some_node(g, "BatchNormalization", "norm", norm, 5);
    assert_ok(graph_add_const(g, "factors", SH_F32, 1, &width, factors, &factor, NULL));
    x = some_node(g, "Mul", "scaled", (uint32_t[]){x, factor}, 2);
    x = some_node(g, "MatMul", "head",
                  (uint32_t[]){x, some_weight(g, "head.w", 2, (int64_t[]){width, 3})}, 2);
    g->outputs[0] =
        some_node(g, "Add", "y", (uint32_t[]){x, some_weight(g, "head.b", 1, (int64_t[]){3})}, 2);
    return g;
}

static void train(struct bench *b, const struct train_spec *t)
{
    float *label = some_label(b), *x;
    const struct program_io *in = program_input(b->p, 0);
    uint64_t seed = 3;

    x = calloc(1, in->bytes);
    assert_non_null(x);
    put_state(b, b->state);
    for (int i = 0; i < N_STEPS; i++) {
        for (size_t k = 0; k < in->bytes / sizeof(float); k++)
            x[k] = (float)(uniform(&seed) - 0.5);
        b->bases.step = i;
        program_turn(t, i, N_STEPS, &b->bases);
        assert_ok(dev_upload(b->dev, b->bases.workspace + in->offset, x, in->bytes, NULL));
        assert_ok(dev_upload(b->dev, b->bases.workspace + program_label(b->p, 0)->offset, label,
                             program_label(b->p, 0)->bytes, NULL));
        assert_ok(program_run(b->p, &b->bases, 0, program_n_ops(b->p), NULL));
        assert_ok(dev_sync(b->dev, NULL));
    }
    get(b, b->bases.state, b->probe, program_state_bytes(b->p));
    free(x);
    free(label);
}

static bool has_changed(const struct bench *b, size_t off, size_t bytes)
{
    return memcmp((const char *)b->state + off, (const char *)b->probe + off, bytes) != 0;
}

/* Nothing behind written_bytes has changed, all entries before it have; and what learns is there,
 * what is frozen is not. Returns the bytes of entries that are not. */
static size_t check_written(const struct bench *b, const json_t *frozen, const char *what)
{
    const size_t written = program_written_bytes(b->p), all = program_state_bytes(b->p);
    size_t kept = 0;

    assert_true(written > 0 && written % DEV_PAGE == 0 && written < all);
    if (has_changed(b, written, all - written))
        fail_msg("%s: a step writes behind the %zu bytes that it says", what, written);
    for (size_t i = 0; i < program_n_state(b->p); i++) {
        const struct program_state_entry *e = program_state(b->p, i);
        const bool is_frozen = e->kind == PROGRAM_STATE_PARAM && train_names(frozen, e->name);

        assert_true(e->offset >= written || e->offset + e->bytes <= written);
        if ((e->offset >= written) != is_frozen)
            fail_msg("%s: \"%s\" is in the wrong part", what, e->name);
        if (!is_frozen && !has_changed(b, e->offset, e->bytes))
            fail_msg("%s: \"%s\" does not learn", what, e->name);
        kept += is_frozen ? e->bytes : 0;
    }
    return kept;
}

/* It reads the state, and constants of its own behind it, which are there already. */
static void check_evaluation(struct bench *b, const struct train_spec *t)
{
    const size_t trained = program_state_bytes(b->p);
    struct sh_err err = {0};
    struct program *p;
    size_t all;
    char *before, *after;

    assert_ok_err(program_evaluate(b->dev, b->g, t, b->p, &p, &err), &err);
    all = program_state_bytes(p);
    assert_true(all >= trained);
    assert_int_equal(program_written_bytes(p), program_written_bytes(b->p));
    before = calloc(1, all);
    after = calloc(1, all);
    assert_true(before && after);
    assert_ok(program_write_state(p, before, NULL));
    memcpy(before, b->probe, trained);
    b->bases.workspace = SH_ALIGN_UP(all, DEV_BLOCK);
    assert_ok(dev_upload(b->dev, b->bases.state, before, all, NULL));
    assert_ok(program_run(p, &b->bases, 0, program_n_ops(p), NULL));
    get(b, b->bases.state, after, all);
    assert_memory_equal(before, after, all);
    free(before);
    free(after);
    program_free(p);
}

static void a_step_writes_what_its_program_says_and_nothing_else(void **state)
{
    static const struct {
        const char *what;
        enum train_optim optimizer;
        double momentum, clip_norm, ema, scale;
        int64_t accumulate;
    } CASES[] = {
        {"sgd", TRAIN_SGD, 0, 0, 0, 0, 1},
        {"momentum", TRAIN_SGD, 0.9, 0, 0, 0, 1},
        {"momentum and all", TRAIN_SGD, 0.9, 0.5, 0.9, 8, 2},
        {"adam", TRAIN_ADAM, 0, 0, 0, 0, 1},
        {"adam with means", TRAIN_ADAM, 0, 0, 0.9, 0, 1},
        {"adamw and all", TRAIN_ADAMW, 0, 0.5, 0.9, 8, 2},
    };
    static const struct {
        const char *name;
        size_t bytes; /* of what is called so */
    } FROZEN[] = {
        {NULL, 0}, {"in1", 4 * WIDTH * WIDTH}, {"norm.*", (size_t)4 * 2 * WIDTH}, {"head.b", 12}};
    static const enum dev_precision PRECISIONS[] = {DEV_FP32, DEV_TF32, DEV_FP64};
    struct bench *b = *state;

    for (size_t i = 0; i < SH_ARRAY_LEN(CASES) * SH_ARRAY_LEN(FROZEN); i++) {
        const size_t c = i / SH_ARRAY_LEN(FROZEN), f = i % SH_ARRAY_LEN(FROZEN);
        json_t *frozen = FROZEN[f].name ? json_string(FROZEN[f].name) : NULL;
        struct train_spec t = {.heads = {{.loss = TRAIN_LOSS_MSE, .weight = 1, .labels = "label"}},
                               .n_heads = 1,
                               .optimizer = CASES[c].optimizer,
                               .lr = 0.1,
                               .momentum = CASES[c].momentum,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .eps = 1e-8,
                               .clip_norm = CASES[c].clip_norm,
                               .ema = CASES[c].ema,
                               .accumulate = CASES[c].accumulate,
                               .scale = {CASES[c].scale, 2, 0.5, 2},
                               .batch = 4,
                               .precision = PRECISIONS[i % SH_ARRAY_LEN(PRECISIONS)],
                               .frozen = frozen};
        char what[80];

        snprintf(what, sizeof(what), "%s, %s frozen", CASES[c].what,
                 FROZEN[f].name ? FROZEN[f].name : "nothing");
        compile(b, body_and_head(), 0.5, 1, &t);
        train(b, &t);
        assert_int_equal(check_written(b, frozen, what), FROZEN[f].bytes);
        check_evaluation(b, &t);
        clear(b);
        json_decref(frozen);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_writes_what_its_program_says_and_nothing_else),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
