/* test_jobspec.c - what a job asks for, and whether model and dataset fit.
 *
 * Without it a typing error would cost a queue's waiting time and fail on the device.
 */
/* uses: api/spec/jobspec.o api/spec/batchspec.o api/request/noun.o api/request/req.o api/request/base64.o api/request/cursor.o api/request/uri.o */
#include "api/request/noun.h"
#include "api/spec/jobspec.h"
#include "common/importer.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

#define SPEC "\"spec\":{\"optimizer\":{\"name\":\"sgd\",\"lr\":0.1,\"momentum\":0.9},\"steps\":5}"
#define JOB(rest) "{\"kind\":\"training\",\"model\":\"m\",\"dataset\":\"d\"," rest "}"

#define BATCH(rest) "{\"kind\":\"batch_inference\",\"model\":\"m\",\"dataset\":\"d\"," rest "}"

#define TEXT_OF(x) #x
#define IMPORTER(x) "\"importer\":" TEXT_OF(x)
#define OURS IMPORTER(SH_IMPORTER)

static const char VERSION[] =
    "{\"version\":1,\"state\":\"READY\",\"max_batch\":8,\"meta\":{\"trainable\":true," OURS "},"
    "\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,1,8,8]}],"
    "\"outputs\":[{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[-1,10]}]}";
static const char DATASET[] =
    "{\"state\":\"READY\",\"n_samples\":100,\"max_storage_bytes\":4000,\"tensors\":["
    "{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[100,1,8,8]},"
    "{\"name\":\"bad\",\"datatype\":\"FP32\",\"shape\":[100]},"
    "{\"name\":\"y2\",\"datatype\":\"FP32\",\"shape\":[100,10]},"
    "{\"name\":\"label\",\"datatype\":\"INT64\",\"shape\":[100]}]}";

static int read_job(const char *text, json_t **body, struct jobspec *s, struct sh_err *err)
{
    *err = (struct sh_err){0};
    *body = json_loads(text, 0, NULL);
    assert_non_null(*body);
    return jobspec_read(*body, s, err);
}

static void a_job_has_defaults(void **state)
{
    struct jobspec s;
    struct sh_err err;
    json_t *j;

    (void)state;
    assert_ok_err(read_job(JOB(SPEC), &j, &s, &err), &err);
    assert_string_equal(s.queue, "default");
    assert_int_equal(s.train.heads[0].loss, TRAIN_LOSS_XENT);
    assert_string_equal(s.train.heads[0].labels, "label");
    assert_int_equal(s.batch, 32);
    assert_int_equal(s.max_attempts, 5);
    assert_true(s.preemptible);
    assert_int_equal(s.gpus, 1);
    assert_false(s.hold);
    assert_null(s.deadline);
    json_decref(j);
}

static void a_change_is_checked_like_a_job(void **state)
{
    static const struct {
        const char *patch, *error; /* NULL: it is right */
    } CASES[] = {
        {"{\"priority\":-1000}", NULL},
        {"{\"labels\":{\"team/x\":\"a\",\"old\":null}}", NULL},
        {"{\"deadline\":null}", NULL},
        {"{\"deadline\":\"2999-01-31T12:00:00.5+02:00\"}", NULL},
        {"{}", "nothing to change"},
        {"{\"labels\":null}", "can be removed"},
        {"{\"priority\":null,\"deadline\":null}", "can be removed"},
        {"{\"state\":\"HELD\"}", "state"},
        {"{\"priority\":1001}", "priority"},
        {"{\"labels\":{\"-\":\"a\"}}", "label"},
        {"{\"deadline\":\"2999-01-31T12:00:00\"}", "deadline"},
        {"{\"deadline\":\"2999-01-31T12:00:00+2:00\"}", "deadline"},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        json_t *j = json_loads(CASES[i].patch, 0, NULL);
        struct sh_err err = {0};
        int rc = jobspec_read_patch(j, &err);

        if ((rc != SH_OK) != (CASES[i].error != NULL) || (rc && !strstr(err.msg, CASES[i].error)))
            fail_msg("%s -> %s \"%s\"", CASES[i].patch, sh_rc_name(rc), err.msg);
        json_decref(j);
    }
}

static void a_label_has_as_many_characters_as_described(void **state)
{
    static const struct {
        const char *character;
        size_t n;
        bool taken;
    } CASES[] = {
        {"a", 128, true}, {"a", 129, false}, {"\xc3\xa4", 128, true}, {"\xc3\xa4", 129, false}};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        char value[512] = "";
        size_t len = strlen(CASES[i].character);
        struct sh_err err = {0};
        json_t *j;

        for (size_t k = 0; k < CASES[i].n; k++)
            memcpy(value + k * len, CASES[i].character, len + 1);
        j = json_pack("{s:{s:s}}", "labels", "team", value);
        assert_non_null(j);
        if ((jobspec_read_patch(j, &err) == SH_OK) != CASES[i].taken)
            fail_msg("%zu times \"%s\": %s", CASES[i].n, CASES[i].character, err.msg);
        json_decref(j);
    }
}

static void every_mistake_names_its_field(void **state)
{
    static const struct {
        const char *job;
        int rc;
        const char *text;
    } BAD[] = {
        {"{}", SH_E_INVALID, "\"kind\" is missing"},
        {BATCH(SPEC), SH_E_INVALID, "optimizer"},
        {BATCH("\"spec\":{},\"eval_dataset\":\"e\""), SH_E_INVALID, "eval_dataset"},
        {BATCH("\"spec\":{\"batch\":0}"), SH_E_INVALID, "spec.batch"},
        {BATCH("\"spec\":{\"inputs\":{\"x\":1}}"), SH_E_INVALID, "spec.inputs.x"},
        {BATCH("\"spec\":{\"outputs\":[]}"), SH_E_INVALID, "spec.outputs"},
        {BATCH("\"spec\":{\"outputs\":[1]}"), SH_E_INVALID, "names"},
        {BATCH("\"spec\":{\"outputs\":[\"y\",\"y\"]}"), SH_E_INVALID, "twice"},
        {JOB("\"spec\":{\"optimizer\":{\"name\":\"sgd\"},\"steps\":1,\"publish\":1}"), SH_E_INVALID,
         "spec.publish"},
        {"{\"kind\":\"cooking\",\"model\":\"m\",\"dataset\":\"d\"," SPEC "}", SH_E_INVALID,
         "batch_inference"},
        {JOB(SPEC ",\"colour\":1"), SH_E_INVALID, "colour"},
        {JOB(SPEC ",\"priority\":1001"), SH_E_INVALID, "priority"},
        {JOB(SPEC ",\"labels\":{\"\":\"x\"}"), SH_E_INVALID, "label \"\""},
        {JOB(SPEC ",\"labels\":{\"a b\":\"x\"}"), SH_E_INVALID, "label \"a b\""},
        {JOB(SPEC ",\"labels\":{\"a\":1}"), SH_E_INVALID, "text"},
        {JOB(SPEC ",\"labels\":{\"a\":null}"), SH_E_INVALID, "text"},
        {JOB(SPEC ",\"deadline\":\"tomorrow\""), SH_E_INVALID, "2027-01-31T00:00:00Z"},
        {JOB(SPEC ",\"deadline\":\"2001-01-31T00:00:00Z\""), SH_E_INVALID, "passed"},
        {JOB(SPEC ",\"deadline\":\"2999-02-30T00:00:00Z\""), SH_E_INVALID, "must be a time"},
        {JOB(SPEC ",\"min_runtime_ms\":-1"), SH_E_INVALID, "min_runtime_ms"},
        {JOB(SPEC ",\"gpus\":0"), SH_E_INVALID, "gpus"},
        {JOB(SPEC ",\"gpus\":1025"), SH_E_INVALID, "gpus"},
        {JOB(SPEC ",\"gpus\":1.5"), SH_E_INVALID, "gpus"},
        {JOB(SPEC ",\"gpus\":2"), SH_E_MULTIGPU, "at most 1 GPU"},
        {BATCH("\"spec\":{},\"gpus\":2"), SH_E_MULTIGPU, "at most 1 GPU"},
        {JOB(SPEC ",\"gpus\":2,\"queue\":\"A\""), SH_E_INVALID, "queue"},
        {JOB(SPEC ",\"queue\":\"A\""), SH_E_INVALID, "queue"},
        {JOB("\"spec\":{\"steps\":1}"), SH_E_INVALID, "spec.optimizer"},
        {JOB("\"spec\":{\"optimizer\":{\"name\":\"sgd\"}}"), SH_E_INVALID, "spec.epochs"},
        {JOB("\"spec\":{\"optimizer\":{\"name\":\"sgd\"},\"steps\":1,\"epochs\":1}"), SH_E_INVALID,
         "spec.epochs"},
        {JOB("\"spec\":{\"optimizer\":{\"name\":\"sgd\"},\"steps\":0}"), SH_E_INVALID,
         "spec.steps"},
        {JOB("\"spec\":{\"optimizer\":{\"name\":\"lion\"},\"steps\":1}"), SH_E_INVALID, "adamw"},
        {JOB("\"spec\":{\"optimizer\":{\"name\":\"adam\",\"momentum\":1},\"steps\":1}"),
         SH_E_INVALID, "does not belong"},
        {JOB("\"spec\":{\"optimizer\":{\"name\":\"sgd\",\"eps\":1},\"steps\":1}"), SH_E_INVALID,
         "does not belong"},
        {JOB("\"spec\":{\"optimizer\":{\"name\":\"sgd\",\"nesterov\":true},\"steps\":1}"),
         SH_E_INVALID, "momentum"},
        {JOB("\"spec\":{\"optimizer\":{\"name\":\"sgd\",\"lr\":-1},\"steps\":1}"), SH_E_INVALID,
         "spec.optimizer.lr"},
        {JOB("\"spec\":{\"optimizer\":{\"name\":\"sgd\"},\"steps\":1,\"loss\":\"hinge\"}"),
         SH_E_INVALID, "spec.loss"},
        {JOB("\"spec\":{\"optimizer\":{\"name\":\"sgd\"},\"steps\":1,\"batch\":1.5}"), SH_E_INVALID,
         "spec.batch"},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        struct jobspec s;
        struct sh_err err;
        json_t *j;
        int rc = read_job(BAD[i].job, &j, &s, &err);

        if (rc != BAD[i].rc || !strstr(err.msg, BAD[i].text))
            fail_msg("%s -> %s \"%s\"", BAD[i].job, sh_rc_name(rc), err.msg);
        json_decref(j);
    }
}

/* A job of an array is copied for each index, and a body of 64 KiB had room for thousands. */
static void no_more_inputs_are_named_than_a_model_may_have(void **state)
{
    (void)state;
    for (int n = 64; n <= 65; n++) {
        struct sh_err err = {0};
        struct jobspec s;
        json_t *map = json_object();
        json_t *j = json_pack("{s:s, s:s, s:s, s:{s:o}}", "kind", "batch_inference", "model", "m",
                              "dataset", "d", "spec", "inputs", map);

        assert_non_null(j);
        for (int i = 0; i < n; i++) {
            char name[16];

            snprintf(name, sizeof(name), "x%d", i);
            assert_int_equal(json_object_set_new(map, name, json_string("y")), 0);
        }
        if (n == 64)
            assert_ok_err(jobspec_read(j, &s, &err), &err);
        else
            assert_fails(jobspec_read(j, &s, &err), SH_E_INVALID, &err, "at most 64 members");
        json_decref(j);
    }
}

/* Replaces the first `from` in a text of at most 1000 bytes. */
static json_t *changed(const char *text, const char *from, const char *to)
{
    char out[1200];
    const char *at = strstr(text, from);
    json_t *j;

    assert_non_null(at);
    snprintf(out, sizeof(out), "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    j = json_loads(out, 0, NULL);
    assert_non_null(j);
    return j;
}

static void model_and_dataset_must_fit(void **state)
{
    static const struct {
        bool version; /* which of the two is changed */
        const char *from, *to;
        int rc;
        const char *text;
    } CASES[] = {
        {true, "READY", "READY", SH_OK, ""},
        {true, "READY", "FAILED", SH_E_CONFLICT, "FAILED"},
        {true, "true", "false", SH_E_UNSUPPORTED, "cannot be trained"},
        {true, OURS, "\"importer\":0", SH_E_CONFLICT, "imported by another release"},
        {true, "\"trainable\":true," OURS, "\"trainable\":false", SH_E_CONFLICT,
         "push the file again"}, /* this release may find that it can be trained */
        {true, "," OURS, "", SH_E_CONFLICT, "shunt push model m FILE"},
        {true, "[-1,10]", "[-1]", SH_E_UNSUPPORTED, "cross-entropy"},
        {true, "[-1,10]", "[-1,10,2]", SH_E_INVALID, "[*], the job wants [*, 2]"},
        {true, "\"x\"", "\"z\"", SH_E_INVALID, "it has: x, bad, y2, label. An input of the model"},
        {true, "FP32", "FP64", SH_E_INVALID, "FP32, the job wants FP64"},
        {true, "8,8", "8,9", SH_E_INVALID, "[*, 1, 8, 8], the job wants [*, 1, 8, 9]"},
        {false, "READY", "UPLOADING", SH_E_CONFLICT, "upload its file"},
        {false, "\"label\"", "\"lable\"", SH_E_INVALID, "no tensor \"label\""},
        {false, "INT64", "INT32", SH_E_INVALID, "INT32, the job wants INT64"},
        {false, "\"n_samples\":100", "\"n_samples\":31", SH_E_INVALID, "one batch of 32"},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        const char *from = CASES[i].from, *to = CASES[i].to;
        json_t *v = CASES[i].version ? changed(VERSION, from, to) : json_loads(VERSION, 0, NULL);
        json_t *d = CASES[i].version ? json_loads(DATASET, 0, NULL) : changed(DATASET, from, to);
        struct jobspec s;
        struct sh_err err;
        json_t *j;
        int rc;

        assert_ok(read_job(JOB(SPEC), &j, &s, &err));
        rc = jobspec_fits_model(&s, v, &err);
        if (!rc)
            rc = jobspec_fits_dataset(&s, true, v, "d", d, &err);
        if (rc != CASES[i].rc || !strstr(err.msg, CASES[i].text))
            fail_msg("%s -> %s: %s \"%s\"", from, to, sh_rc_name(rc), err.msg);
        json_decref(v);
        json_decref(d);
        json_decref(j);
    }
}

static void labels_of_mse_have_the_shape_of_the_output(void **state)
{
    static const char *const NAMES[] = {"y2", "bad", "label"};
    static const int WANT[] = {SH_OK, SH_E_INVALID, SH_E_INVALID};
    json_t *v = json_loads(VERSION, 0, NULL), *d = json_loads(DATASET, 0, NULL);

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(NAMES); i++) {
        char job[512];
        struct jobspec s;
        struct sh_err err;
        json_t *j;

        snprintf(job, sizeof(job),
                 JOB("\"spec\":{\"optimizer\":{\"name\":\"adam\"},\"steps\":1,\"loss\":\"mse\","
                     "\"labels\":\"%s\"}"),
                 NAMES[i]);
        assert_ok_err(read_job(job, &j, &s, &err), &err);
        assert_int_equal(jobspec_fits_dataset(&s, true, v, "d", d, &err), WANT[i]);
        json_decref(j);
    }
    json_decref(v);
    json_decref(d);
}

#define TWO                                                      \
    "[{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[-1,10]}," \
    "{\"name\":\"z\",\"datatype\":\"FP32\",\"shape\":[-1,5]}]"
#define OF_Y "{\"name\":\"cross-entropy\",\"output\":\"y\"}"

static void each_loss_is_of_an_output_with_labels_that_fit(void **state)
{
    static const struct {
        const char *loss, *evaluation; /* evaluation: "" or members behind "every" */
        int rc;
        const char *text;
    } CASES[] = {
        {OF_Y, NULL, SH_OK, ""},
        {"\"mse\"", NULL, SH_E_INVALID, "has 2 outputs (y, z): name the one to train"},
        {"[" OF_Y ",{\"name\":\"mse\",\"output\":\"y\",\"labels\":\"y2\"}]", NULL, SH_OK, ""},
        {"[" OF_Y ",{\"name\":\"mse\",\"output\":\"z\",\"labels\":\"y2\"}]", NULL, SH_E_INVALID,
         "shape [*, 10], the job wants [*, 5]"},
        {"[" OF_Y ",{\"name\":\"mse\",\"output\":\"w\"}]", NULL, SH_E_INVALID,
         "no output \"w\"; it has: y, z"},
        {"[" OF_Y ",{\"name\":\"cross-entropy\",\"output\":\"z\"}]",
         "\"best\":\"top5\",\"output\":\"y\"", SH_OK, ""},
        {"[" OF_Y ",{\"name\":\"cross-entropy\",\"output\":\"z\"}]",
         "\"best\":\"top5\",\"output\":\"z\"", SH_E_INVALID, "the model has 5 classes"},
    };
    json_t *v = changed(VERSION, "[{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[-1,10]}]", TWO);
    json_t *d = json_loads(DATASET, 0, NULL);

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        char job[1024], evaluation[128] = "";
        struct jobspec s;
        struct sh_err err;
        json_t *j;
        int rc;

        if (CASES[i].evaluation)
            snprintf(evaluation, sizeof(evaluation), ",\"evaluation\":{\"every\":1,%s}",
                     CASES[i].evaluation);
        snprintf(job, sizeof(job),
                 JOB("\"eval_dataset\":\"d\",\"spec\":{\"optimizer\":{\"name\":\"adam\"},"
                     "\"steps\":1,\"loss\":%s%s}"),
                 CASES[i].loss, evaluation);
        assert_ok_err(read_job(job, &j, &s, &err), &err);
        rc = jobspec_fits_model(&s, v, &err);
        if (!rc)
            rc = jobspec_fits_dataset(&s, true, v, "d", d, &err);
        if (rc != CASES[i].rc || !strstr(err.msg, CASES[i].text))
            fail_msg("case %zu: %s -> %s \"%s\"", i, CASES[i].loss, sh_rc_name(rc), err.msg);
        json_decref(j);
    }
    json_decref(v);
    json_decref(d);
}

/* Masked tokens make labels while a job trains; an evaluation takes those of its dataset, even if
 * it is the same one. */
static void an_evaluation_needs_labels_that_training_makes(void **state)
{
    json_t *v = changed(VERSION, "{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,1,8,8]}",
                        "{\"name\":\"ids\",\"datatype\":\"INT64\",\"shape\":[-1,10]}");
    json_t *d = json_loads("{\"state\":\"READY\",\"n_samples\":100,\"tensors\":[{\"name\":\"ids\","
                           "\"datatype\":\"INT64\",\"shape\":[100,10]}]}",
                           0, NULL);
    struct jobspec s;
    struct sh_err err;
    json_t *j;

    (void)state;
    assert_ok_err(read_job(JOB("\"eval_dataset\":\"d\",\"spec\":{\"optimizer\":{\"name\":"
                               "\"adam\"},\"steps\":1,\"augment\":[{\"name\":\"mask-tokens\","
                               "\"input\":\"ids\",\"mask\":1,\"vocabulary\":9}]}"),
                           &j, &s, &err),
                  &err);
    assert_ok_err(jobspec_fits_dataset(&s, true, v, "d", d, &err), &err);
    assert_int_equal(jobspec_fits_dataset(&s, false, v, "d", d, &err), SH_E_INVALID);
    assert_non_null(strstr(err.msg, "\"label\""));
    json_decref(j);
    json_decref(v);
    json_decref(d);
}

static void batch_inference_must_fit(void **state)
{
    static const struct {
        const char *spec;
        const char *version_from, *version_to, *dataset_from, *dataset_to; /* NULL: as it is */
        int rc;
        const char *text;
    } CASES[] = {
        {"{}", NULL, NULL, NULL, NULL, SH_OK, ""}, /* 100 samples of 40 bytes: just so much room */
        {"{\"batch\":8,\"outputs\":[\"y\"],\"inputs\":{}}", "true", "false", NULL, NULL, SH_OK, ""},
        {"{\"inputs\":{\"x\":\"other\"}}", NULL, NULL, "\"x\"", "\"other\"", SH_OK, ""},
        {"{\"batch\":9}", NULL, NULL, NULL, NULL, SH_E_INVALID, "max_batch is 8"},
        {"{\"outputs\":[\"z\"]}", NULL, NULL, NULL, NULL, SH_E_INVALID, "no output"},
        {"{\"inputs\":{\"z\":\"x\"}}", NULL, NULL, NULL, NULL, SH_E_INVALID, "no input"},
        {"{\"inputs\":{\"x\":\"z\"}}", NULL, NULL, NULL, NULL, SH_E_INVALID, "no tensor \"z\""},
        {"{\"inputs\":{\"x\":\"label\"}}", NULL, NULL, NULL, NULL, SH_E_INVALID, "INT64"},
        {"{}", NULL, NULL, "\"x\"", "\"other\"", SH_E_INVALID, "no tensor \"x\""},
        {"{}", "READY", "UPLOADING", NULL, NULL, SH_E_CONFLICT, "UPLOADING"},
        {"{}", NULL, NULL, "READY", "UPLOADING", SH_E_CONFLICT, "upload its file"},
        {"{}", "[-1,1,8,8]", "[-1,1,-1,8]", NULL, NULL, SH_E_UNSUPPORTED, "axis 2"},
        {"{}", "[-1,10]", "[]", NULL, NULL, SH_E_UNSUPPORTED, "no batch"},
        {"{}", NULL, NULL, "\"n_samples\":100", "\"n_samples\":0", SH_E_INVALID, "no samples"},
        {"{}", NULL, NULL, "4000", "3999", SH_E_TOOBIG, "max_storage_bytes"},
        {"{}", "[-1,10]", "[-1,4611686018427387904]", NULL, NULL, SH_E_TOOBIG, ""},
    };

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        const char *vf = CASES[i].version_from, *df = CASES[i].dataset_from;
        json_t *v = vf ? changed(VERSION, vf, CASES[i].version_to) : json_loads(VERSION, 0, NULL);
        json_t *d = df ? changed(DATASET, df, CASES[i].dataset_to) : json_loads(DATASET, 0, NULL);
        char job[512];
        struct jobspec s;
        struct sh_err err;
        json_t *j;
        int rc;

        snprintf(job, sizeof(job), BATCH("\"spec\":%s"), CASES[i].spec);
        assert_ok_err(read_job(job, &j, &s, &err), &err);
        rc = jobspec_fits_model(&s, v, &err);
        if (!rc)
            rc = jobspec_fits_dataset(&s, true, v, "d", d, &err);
        if (rc != CASES[i].rc || !strstr(err.msg, CASES[i].text))
            fail_msg("case %zu: %s -> %s \"%s\"", i, CASES[i].spec, sh_rc_name(rc), err.msg);
        json_decref(v);
        json_decref(d);
        json_decref(j);
    }
}

static void of_many_tensors_the_first_are_named(void **state)
{
    const struct jobspec_want want = {.dataset = "d", .tensor = "y"};
    struct sh_err err = {0};
    json_t *list = json_array();
    (void)state;

    for (int i = 0; i < 100; i++)
        json_array_append_new(list, json_pack("{s:o}", "name", json_sprintf("t%02d", i)));
    assert_fails(jobspec_check_tensor(list, &want, &err), SH_E_INVALID, &err, "it has: t00, t01,");
    assert_string_equal(err.msg + strlen(err.msg) - 5, ", ...");
    json_decref(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_has_defaults),
        cmocka_unit_test(a_change_is_checked_like_a_job),
        cmocka_unit_test(a_label_has_as_many_characters_as_described),
        cmocka_unit_test(every_mistake_names_its_field),
        cmocka_unit_test(no_more_inputs_are_named_than_a_model_may_have),
        cmocka_unit_test(model_and_dataset_must_fit),
        cmocka_unit_test(of_many_tensors_the_first_are_named),
        cmocka_unit_test(labels_of_mse_have_the_shape_of_the_output),
        cmocka_unit_test(each_loss_is_of_an_output_with_labels_that_fit),
        cmocka_unit_test(an_evaluation_needs_labels_that_training_makes),
        cmocka_unit_test(batch_inference_must_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
