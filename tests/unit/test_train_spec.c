/* test_train_spec.c - Without it: a typo in a job's spec would train with a default instead of what
 * was asked for, and nobody would know why the result differs from PyTorch's. */
/* uses: runtime/model/order.o */
#include "common/json.h"
#include "common/mem.h"
#include "common/train_spec.h"
#include "runtime/model/order.h"
#include "tests/unit/sh_test.h"

#include <math.h>

static int read_spec(const char *text, struct train_spec *t, struct sh_err *err)
{
    json_t *j = NULL;
    int rc;

    assert_ok(sh_json_parse(text, strlen(text), 4096, &j, NULL));
    rc = train_spec_read(j, t, err);
    json_decref(j);
    return rc;
}

static void defaults_are_pytorch_s(void **state)
{
    struct sh_err err = {0};
    struct train_spec t;

    (void)state;
    assert_ok_err(read_spec("{\"optimizer\":{\"name\":\"adamw\"},\"steps\":10}", &t, &err), &err);
    assert_int_equal(t.optimizer, TRAIN_ADAMW);
    assert_true(t.lr == 1e-3 && t.beta1 == 0.9 && t.beta2 == 0.999 && t.eps == 1e-8);
    assert_true(t.weight_decay == 1e-2);
    assert_int_equal(t.heads[0].loss, TRAIN_LOSS_XENT);
    assert_string_equal(t.heads[0].labels, "label");
    assert_int_equal(t.precision, DEV_FP32);
    assert_ok_err(read_spec("{\"optimizer\":{\"name\":\"sgd\"},\"epochs\":2}", &t, &err), &err);
    assert_true(t.momentum == 0 && t.weight_decay == 0 && !t.nesterov);
}

static void every_field_is_read(void **state)
{
    struct sh_err err = {0};
    struct train_spec t;

    (void)state;
    assert_ok_err(
        read_spec("{\"loss\":\"mse\",\"optimizer\":{\"name\":\"sgd\",\"lr\":0.5,"
                  "\"momentum\":0.9,\"weight_decay\":0.1,\"nesterov\":true},\"batch\":7,"
                  "\"steps\":3,\"seed\":11,\"labels\":\"y\",\"precision\":\"tf32\","
                  "\"shuffle\":false,\"shuffle_window\":77,\"checkpoint_interval_ms\":250}",
                  &t, &err),
        &err);
    assert_int_equal(t.heads[0].loss, TRAIN_LOSS_MSE);
    assert_true(t.lr == 0.5 && t.momentum == 0.9 && t.weight_decay == 0.1 && t.nesterov);
    assert_true(t.batch == 7 && t.steps == 3 && t.epochs == 0 && t.seed == 11 && !t.shuffle &&
                t.shuffle_window == 77);
    assert_string_equal(t.heads[0].labels, "y");
    assert_int_equal(t.precision, DEV_TF32);
    assert_int_equal(t.checkpoint_interval_ms, 250);
}

#define LOSS(loss) "{\"optimizer\":{\"name\":\"sgd\"},\"steps\":1,\"loss\":" loss "}"

static void a_loss_has_options(void **state)
{
    struct train_spec t;

    (void)state;
    assert_ok(read_spec(LOSS("\"l1\""), &t, NULL));
    assert_int_equal(t.heads[0].loss, TRAIN_LOSS_L1);
    assert_int_equal(t.heads[0].ignore_index, -100);
    assert_ok(read_spec(LOSS("{\"name\":\"cross-entropy\",\"ignore_index\":255,\"class_axis\":-1,"
                             "\"label_smoothing\":0.1}"),
                        &t, NULL));
    assert_true(t.heads[0].ignore_index == 255 && t.heads[0].class_axis == -1 &&
                t.heads[0].label_smoothing == 0.1);
    assert_ok(read_spec(LOSS("{\"name\":\"huber\",\"delta\":0.5}"), &t, NULL));
    assert_true(t.heads[0].loss == TRAIN_LOSS_HUBER && t.heads[0].delta == 0.5);
}

static void several_losses_have_outputs_labels_and_weights(void **state)
{
    struct sh_err err = {0};
    struct train_spec t;

    (void)state;
    assert_ok_err(
        read_spec("{\"optimizer\":{\"name\":\"sgd\"},\"steps\":1,\"labels\":\"l\",\"loss\":["
                  "{\"name\":\"huber\",\"delta\":3,\"output\":\"a\",\"weight\":0.5},"
                  "{\"name\":\"cross-entropy\",\"output\":\"b\",\"labels\":\"m\"}],"
                  "\"evaluation\":{\"every\":1,\"best\":\"f1\",\"output\":\"b\"}}",
                  &t, &err),
        &err);
    assert_int_equal(t.n_heads, 2);
    assert_true(t.heads[0].loss == TRAIN_LOSS_HUBER && t.heads[0].delta == 3);
    assert_string_equal(t.heads[0].output, "a");
    assert_string_equal(t.heads[0].labels, "l");
    assert_true(t.heads[0].weight == 0.5 && t.heads[1].weight == 1);
    assert_true(t.heads[1].loss == TRAIN_LOSS_XENT && t.heads[1].delta == 1);
    assert_string_equal(t.heads[1].output, "b");
    assert_string_equal(t.heads[1].labels, "m");
    assert_int_equal(t.evaluation.head, 1);
}

#define SCALED(fields) "{\"optimizer\":{\"name\":\"sgd\"},\"steps\":1," fields "}"

static void fp16_alone_is_scaled_unless_said_otherwise(void **state)
{
    struct sh_err err = {0};
    struct train_spec t;

    (void)state;
    assert_ok(read_spec(SCALED("\"precision\":\"fp16\""), &t, NULL));
    assert_true(t.scale.init == 65536 && t.scale.growth == 2 && t.scale.backoff == 0.5);
    assert_int_equal(t.scale.interval, 2000);
    assert_ok(read_spec(SCALED("\"precision\":\"bf16\""), &t, NULL));
    assert_true(t.scale.init == 0);
    assert_ok(read_spec(SCALED("\"precision\":\"fp16\",\"loss_scale\":0"), &t, NULL));
    assert_true(t.scale.init == 0);
    assert_ok(read_spec(SCALED("\"loss_scale\":128"), &t, NULL));
    assert_true(t.scale.init == 128 && t.scale.growth == 1 && t.scale.backoff == 1);
    assert_ok(read_spec(SCALED("\"loss_scale\":{\"interval\":7}"), &t, NULL));
    assert_true(t.scale.init == 65536 && t.scale.growth == 2 && t.scale.interval == 7);
    assert_fails(read_spec(SCALED("\"loss_scale\":-1"), &t, &err), SH_E_INVALID, &err,
                 "\"spec.loss_scale\" must be 0 (none), a number from");
    err = (struct sh_err){0};
    assert_fails(read_spec(SCALED("\"loss_scale\":{\"backoff\":2}"), &t, &err), SH_E_INVALID, &err,
                 "spec.loss_scale.backoff");
    err = (struct sh_err){0};
    assert_fails(read_spec(SCALED("\"loss_scale\":{\"growth_factor\":2}"), &t, &err), SH_E_INVALID,
                 &err, "growth_factor");
    err = (struct sh_err){0};
    assert_fails(read_spec(SCALED("\"loss_scale\":true"), &t, &err), SH_E_INVALID, &err,
                 "\"spec.loss_scale\" must be");
}

#define SCHEDULE(schedule) \
    "{\"optimizer\":{\"name\":\"sgd\",\"lr\":0.4},\"steps\":10,\"schedule\":" schedule "}"
#define WARM_UP "\"warmup_steps\":3,\"warmup_start\":0.25"

/* The numbers are those of PyTorch's LinearLR, CosineAnnealingLR, StepLR, behind a LinearLR by
 * SequentialLR, and of OneCycleLR. */
static void rates_are_pytorch_s(void **state)
{
    static const struct {
        const char *spec;
        double rates[10];
    } CASES[] = {
        {SCHEDULE("\"constant\""), {0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4}},
        {SCHEDULE("{\"name\":\"constant\"," WARM_UP "}"),
         {0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4}},
        {SCHEDULE("{\"name\":\"linear\",\"end\":0.1}"),
         {0.4, 0.364, 0.328, 0.292, 0.256, 0.22, 0.184, 0.148, 0.112, 0.076}},
        {SCHEDULE("{\"name\":\"cosine\",\"end\":0.1," WARM_UP "}"),
         {0.1, 0.2, 0.3, 0.4, 0.382174396222, 0.332228164335, 0.260053768112, 0.179946231888,
          0.107771835665, 0.0578256037776}},
        {SCHEDULE("{\"name\":\"step\",\"every\":3,\"gamma\":0.5," WARM_UP "}"),
         {0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.2, 0.2, 0.2, 0.1}},
        {SCHEDULE("\"one-cycle\""),
         {0.016, 0.208, 0.4, 0.380193852805, 0.32469826158, 0.244504808775, 0.155496791225,
          0.0753033384201, 0.0198077471946, 1.6e-06}},
        {SCHEDULE("{\"name\":\"one-cycle\",\"peak_at\":0.45,\"divide\":10,\"end_divide\":100}"),
         {0.04, 0.107771835665, 0.260053768112, 0.382174396222, 0.391906696128, 0.331041174642,
          0.228634504687, 0.117200080402, 0.0321175441403, 0.0004}},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct sh_err err = {0};
        struct train_spec t;

        assert_ok_err(read_spec(CASES[i].spec, &t, &err), &err);
        for (int64_t k = 0; k < 10; k++)
            if (!(fabs(train_rate(&t, k, 10) - CASES[i].rates[k]) < 1e-12))
                fail_msg("%s: the rate of step %d is %.12g, not %.12g", CASES[i].spec, (int)k,
                         train_rate(&t, k, 10), CASES[i].rates[k]);
    }
}

/* One step, a peak at either end, a warm-up as long as all: a rate between 0 and lr each time. */
static void rates_of_odd_schedules_are_numbers(void **state)
{
    static const char *const SPECS[] = {
        SCHEDULE("\"one-cycle\""),
        SCHEDULE("{\"name\":\"one-cycle\",\"peak_at\":0}"),
        SCHEDULE("{\"name\":\"one-cycle\",\"peak_at\":1}"),
        SCHEDULE("{\"name\":\"cosine\",\"warmup_steps\":10}"),
        SCHEDULE("\"linear\""),
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(SPECS); i++) {
        struct train_spec t;

        assert_ok(read_spec(SPECS[i], &t, NULL));
        for (int64_t steps = 1; steps <= 10; steps++)
            for (int64_t k = 0; k < steps; k++)
                assert_true(train_rate(&t, k, steps) >= 0 && train_rate(&t, k, steps) <= 0.4);
    }
}

#define WITH(fields) "{\"optimizer\":{\"name\":\"sgd\"},\"steps\":8," fields "}"

static void names_of_parameters_are_globs(void **state)
{
    json_t *one = json_string("*.bias"), *list = json_loads("[\"fc?.*\",\"norm\"]", 0, NULL);
    struct train_spec t;
    json_t *j = NULL;

    (void)state;
    assert_true(train_names(one, "layer1.0.bias") && !train_names(one, "bias2"));
    assert_true(train_names(list, "fc1.weight") && train_names(list, "norm"));
    assert_true(!train_names(list, "norm.weight") && !train_names(NULL, "x"));
    assert_ok(read_spec(WITH("\"no_decay\":true,\"frozen\":null"), &t, NULL));
    assert_true(t.no_decay_vectors && !t.no_decay && !t.frozen);
    j = json_loads(WITH("\"no_decay\":[\"a\",\"b\"],\"frozen\":\"c\""), 0, NULL);
    assert_ok(train_spec_read(j, &t, NULL));
    assert_true(!t.no_decay_vectors && train_names(t.no_decay, "b") && train_names(t.frozen, "c"));
    json_decref(j);
    json_decref(one);
    json_decref(list);
}

static void steps_are_grouped_to_updates_and_the_rest_is_one(void **state)
{
    static const int64_t WANT[8][2] = {{0, 3}, {0, 3}, {0, 3}, {3, 3},
                                       {3, 3}, {3, 3}, {6, 2}, {6, 2}};
    struct train_spec t;

    (void)state;
    assert_ok(read_spec(WITH("\"accumulate\":3,\"clip_norm\":1,\"ema\":0.5"), &t, NULL));
    assert_true(t.clip_norm == 1 && t.clip_value == 0 && t.ema == 0.5);
    for (int64_t i = 0; i < 8; i++) {
        int64_t first, n;

        train_group(&t, i, 8, &first, &n);
        assert_true(first == WANT[i][0] && n == WANT[i][1]);
    }
}

/* Which axis of an output holds the classes, by its shape and that of the labels. */
static void the_axis_of_the_classes_follows_the_labels(void **state)
{
    static const struct {
        int64_t class_axis;
        uint32_t rank, label_rank;
        int64_t dims[4], labels[4];
        uint32_t want; /* 0: none fits */
    } CASES[] = {
        {0, 2, 0, {4, 10}, {0}, 1},
        {0, 2, 1, {4, 10}, {99}, 1},
        {0, 3, 0, {4, 7, 10}, {0}, 2},
        {0, 3, 2, {4, 7, 10}, {99, 7}, 2},
        {0, 3, 2, {4, 10, 7}, {99, 7}, 1},
        {0, 3, 2, {4, 7, 7}, {99, 7}, 1},
        {-1, 3, 2, {4, 7, 7}, {99, 7}, 2},
        {0, 4, 0, {4, 21, 8, 9}, {0}, 1},
        {0, 4, 3, {4, 21, 8, 9}, {99, 8, 9}, 1},
        {0, 4, 3, {4, 8, 9, 21}, {99, 8, 9}, 3},
        {0, 4, 3, {4, 21, 8, 9}, {99, 9, 8}, 0},
        {1, 3, 2, {4, 7, 10}, {99, 7}, 0},
        {3, 3, 0, {4, 7, 10}, {0}, 0},
        {0, 1, 0, {4}, {0}, 0},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        struct train_head t = {.class_axis = CASES[i].class_axis,
                               .label_rank = CASES[i].label_rank};
        uint32_t axis;
        int rc;

        memcpy(t.label_dims, CASES[i].labels, sizeof(CASES[i].labels));
        rc = train_class_axis(&t, "y", CASES[i].rank, CASES[i].dims, &axis, NULL);
        assert_int_equal(rc, CASES[i].want ? SH_OK : SH_E_INVALID);
        if (CASES[i].want)
            assert_int_equal(axis, CASES[i].want);
    }
}

static void what_is_wrong_is_named(void **state)
{
    static const char *const BAD[][2] = {
        {"{\"steps\":1}", "optimizer"},
        {"{\"optimizer\":{\"name\":\"lion\"},\"steps\":1}", "optimizer.name"},
        {"{\"optimizer\":{\"name\":\"sgd\"}}", "either \"spec.steps\" or \"spec.epochs\""},
        {"{\"optimizer\":{\"name\":\"sgd\"},\"steps\":1,\"epochs\":1}", "either \"spec.steps\""},
        {"{\"optimizer\":{\"name\":\"sgd\"},\"steps\":0}", "steps"},
        {"{\"optimizer\":{\"name\":\"sgd\",\"beta1\":0.5},\"steps\":1}", "optimizer.beta1"},
        {"{\"optimizer\":{\"name\":\"adam\",\"momentum\":0.5},\"steps\":1}", "optimizer.momentum"},
        {"{\"optimizer\":{\"name\":\"sgd\",\"nesterov\":true},\"steps\":1}", "momentum above 0"},
        {"{\"optimizer\":{\"name\":\"sgd\",\"lr\":-1},\"steps\":1}", "optimizer.lr"},
        {"{\"optimizer\":{\"name\":\"sgd\"},\"steps\":1,\"stpes\":2}", "stpes"},
        {"{\"optimizer\":{\"name\":\"sgd\"},\"steps\":1,\"loss\":\"hinge\"}", "cross-entropy"},
        {"{\"optimizer\":{\"name\":\"sgd\"},\"steps\":1,\"precision\":\"int8\"}", "int8"},
        {"{\"optimizer\":{\"name\":\"sgd\"},\"steps\":1,\"batch\":0}", "batch"},
        {LOSS("7"), "a name or an object"},
        {LOSS("[]"), "1 to 8 losses"},
        {LOSS("[\"mse\"]"), "\"spec.loss[0]\" must be an object"},
        {LOSS("[{\"name\":\"mse\",\"output\":\"a\"},{\"name\":\"mse\"}]"),
         "\"spec.loss[1].output\" is missing"},
        {LOSS("[{\"name\":\"mse\",\"delta\":1}]"), "\"spec.loss[0].delta\" does not belong"},
        {LOSS("{\"name\":\"mse\",\"weight\":0}"), "\"spec.loss.weight\" must be above 0"},
        {WITH("\"evaluation\":{\"every\":2,\"output\":\"y\"}"), "no loss is of that output"},
        {LOSS("{\"delta\":1}"), "spec.loss.name"},
        {LOSS("{\"name\":\"mse\",\"delta\":1}"), "\"spec.loss.delta\" does not belong to \"mse\""},
        {LOSS("{\"name\":\"huber\",\"delta\":0}"), "above 0"},
        {LOSS("{\"name\":\"cross-entropy\",\"colour\":0}"),
         "known here: name, output, labels, weight, ignore_index"},
        {LOSS("{\"name\":\"cross-entropy\",\"label_smoothing\":1.5}"), "label_smoothing"},
        {LOSS("{\"name\":\"cross-entropy\",\"class_weights\":[1,-1]}"), "element 1"},
        {LOSS("{\"name\":\"cross-entropy\",\"class_weights\":[0]}"), "nothing above 0"},
        {LOSS("{\"name\":\"binary-cross-entropy\",\"pos_weight\":\"x\"}"), "pos_weight"},
        {SCHEDULE("1"), "a name or an object"},
        {SCHEDULE("\"step\""), "\"every\":STEPS"},
        {SCHEDULE("{\"name\":\"step\"}"), "after how many steps"},
        {SCHEDULE("{\"name\":\"warm\"}"), "constant, linear, cosine, step, one-cycle"},
        {SCHEDULE("{\"name\":\"one-cycle\",\"warmup_steps\":1}"), "does not belong"},
        {SCHEDULE("{\"name\":\"linear\",\"gamma\":1}"), "\"spec.schedule.gamma\" does not belong"},
        {SCHEDULE("{\"name\":\"linear\",\"end\":2}"), "spec.schedule.end"},
        {SCHEDULE("{\"name\":\"linear\",\"warmup_steps\":11}"), "more than the 10"},
        {WITH("\"accumulate\":4,\"schedule\":{\"name\":\"linear\",\"warmup_steps\":3}"),
         "more than the 2 updates"},
        {WITH("\"accumulate\":0"), "spec.accumulate"},
        {WITH("\"ema\":1"), "spec.ema"},
        {WITH("\"clip_norm\":-1"), "spec.clip_norm"},
        {WITH("\"clip_norm\":1,\"clip_value\":1"), "either \"spec.clip_norm\""},
        {WITH("\"frozen\":true"), "spec.frozen"},
        {WITH("\"init\":\"zero\""), "\"spec.init\" must be \"version\""},
        {WITH("\"init\":{\"random\":[]}"), "spec.init.random"},
        {WITH("\"init\":{\"ones\":\"a\"}"), "\"spec.init\" must be"},
        {WITH("\"frozen\":[]"), "an array of 1 to 64"},
        {WITH("\"no_decay\":[\"a\",1]"), "spec.no_decay"},
        {WITH("\"no_decay\":\"\""), "spec.no_decay"},
        {WITH("\"publish_as\":\"No. 1\""), "\"spec.publish_as\" must be an alias"},
        {WITH("\"publish_as\":\"canary\",\"publish\":false"), "says not to make"},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        struct sh_err err = {0};
        struct train_spec t;

        assert_fails(read_spec(BAD[i][0], &t, &err), SH_E_INVALID, &err, BAD[i][1]);
    }
}

static void draw(const struct order *o, int64_t epoch, uint32_t *out)
{
    uint32_t runs[512];

    assert_true(order_n_runs(o) <= 512);
    order_draw_runs(o, epoch, runs);
    order_draw(o, epoch, runs, out);
}

static void an_epoch_s_order_is_a_permutation_of_its_own(void **state)
{
    struct order o = order_of(7, true, 0, 100, 8);
    uint32_t a[100], b[100];
    bool seen[100] = {false};
    int moved = 0, same = 0;

    (void)state;
    draw(&o, 3, a);
    draw(&o, 3, b);
    assert_memory_equal(a, b, sizeof(a));
    draw(&o, 4, b);
    for (uint32_t i = 0; i < 100; i++) {
        assert_true(a[i] < 100 && !seen[a[i]]);
        seen[a[i]] = true;
        moved += a[i] != i;
        same += a[i] == b[i];
    }
    assert_true(moved > 80 && same < 20);
    o = order_of(7, false, 0, 100, 8);
    draw(&o, 3, a);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(a[i], i);
}

/* Long stretches of the file, each window of other ones, and all of it mixed. */
static void a_large_dataset_is_mixed_window_by_window(void **state)
{
    static uint32_t a[1003], b[1003];
    struct order o = order_of(7, true, 256, 1003, 8);
    bool seen[1003] = {false};
    int same = 0, near = 0;

    (void)state;
    assert_true(o.window == 256 && o.run == 4 && order_n_runs(&o) == 251);
    draw(&o, 3, a);
    draw(&o, 4, b);
    for (int64_t w = 0; w < 1003; w += 256) {
        const int64_t n = w + 256 > 1003 ? 1003 - w : 256;
        bool used[251] = {false};
        int runs = 0;

        for (int64_t i = w; i < w + n; i++) {
            assert_true(a[i] < 1003 && !seen[a[i]]);
            seen[a[i]] = true;
            runs += !used[a[i] / 4];
            used[a[i] / 4] = true;
            same += a[i] == b[i];
            near += i > w && a[i] == a[i - 1] + 1;
        }
        assert_true(runs <= n / 4 + 2);
    }
    assert_true(same < 20 && near < 20);
    /* By its bytes: 4 GiB are mixed as a whole, more by windows of 1 GiB. */
    o = order_of(1, true, 0, 4096, 1 << 20);
    assert_true(o.window == 4096 && order_n_runs(&o) == 1);
    o = order_of(1, true, 0, 4097, 1 << 20);
    assert_true(o.window == 1024 && o.run == 16 && order_n_runs(&o) == 257);
    o = order_of(1, false, 128, 1003, 8);
    draw(&o, 3, a);
    for (uint32_t i = 0; i < 1003; i++)
        assert_int_equal(a[i], i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_pytorch_s),
        cmocka_unit_test(every_field_is_read),
        cmocka_unit_test(a_loss_has_options),
        cmocka_unit_test(several_losses_have_outputs_labels_and_weights),
        cmocka_unit_test(fp16_alone_is_scaled_unless_said_otherwise),
        cmocka_unit_test(rates_are_pytorch_s),
        cmocka_unit_test(rates_of_odd_schedules_are_numbers),
        cmocka_unit_test(names_of_parameters_are_globs),
        cmocka_unit_test(steps_are_grouped_to_updates_and_the_rest_is_one),
        cmocka_unit_test(the_axis_of_the_classes_follows_the_labels),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(an_epoch_s_order_is_a_permutation_of_its_own),
        cmocka_unit_test(a_large_dataset_is_mixed_window_by_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
