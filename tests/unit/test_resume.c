/* test_resume.c - what a job begins with, read from disk.
 *
 * Without it: the loop, and with it every request, could stand still while gigabytes are read; a
 * job could begin with half a checkpoint, with frozen weights of another one or none, or with
 * losses of steps that it has yet to do. */
/* uses: executor/training/resume.o executor/files/disk.o executor/files/disk_work.o executor/training/trials.o executor/training/job_life.o executor/training/job_state.o */
#include "common/clock.h"
#include "common/life.h"
#include "common/mem.h"
#include "executor/training/train_int.h"
#include "tests/unit/slow_disk.h"

#include <math.h>
#include <unistd.h>

#define N_VALUES 4

static bool is_unlockable; /* its memory */

struct rig {
    struct sh_loop *loop;
    struct files files;
    struct train_env env;
    struct job j;
    struct sh_st_tensor tensor;
    char dir[SH_TEST_DIR_BYTES];
    double losses[N_VALUES];
};

/* What the rest of the executor does. */
char *job_file(const struct job *j, const char *name)
{
    char *path = NULL;

    return sh_asprintf(NULL, &path, "%s/%s", j->dir, name) ? NULL : path;
}

char *job_ckpt_path(const struct job *j, int64_t step)
{
    char name[SH_CKPT_BYTES];

    sh_ckpt_name(name, step, "e0");
    return job_file(j, name);
}

void slots_keep_best(struct job *j, struct slot *s)
{
    (void)j;
    s->is_best = true;
}

void job_set_build(struct job *j, enum job_build to)
{
    j->build = (enum job_build)sh_life_step(&BUILD_LIFE, j->build, to, j->id);
}

void slots_lock(struct job *j, job_locked_fn *done)
{
    struct sh_err err = {0};

    assert_int_equal(j->build, JOB_READING);
    if (is_unlockable)
        SH_FAIL(&err, SH_E_NOMEM, "as the test wants it");
    done(j, is_unlockable ? &err : NULL);
}

void slots_begin(struct job *j)
{
    j->slots[0].state = COPY_WHOLE;
}

void train__fail(struct job *j, const struct sh_err *why)
{
    j->why = *why;
}

void job_report_checkpoint(struct job *j)
{
    (void)j;
}

void job_log_say(struct job_log *l, const char *fmt, ...)
{
    (void)l, (void)fmt;
}

static void rig_open(struct rig *r)
{
    *r = (struct rig){.tensor = {.name = "w", .dtype = SH_F32, .rank = 1, .dims = {N_VALUES}}};
    r->tensor.bytes = N_VALUES * sizeof(float);
    sh_test_dir_make(r->dir);
    assert_ok(sh_loop_new(&r->loop, NULL));
    assert_ok(disk_new(r->loop, &r->files.disk, NULL));
    r->env.files = &r->files;
    r->j = (struct job){.env = &r->env,
                        .id = 7,
                        .dir = r->dir,
                        .state_bytes = r->tensor.bytes,
                        .written_bytes = r->tensor.bytes,
                        .steps = N_VALUES,
                        .tensors = &r->tensor,
                        .n_tensors = 1,
                        .losses = r->losses,
                        .n_losses = N_VALUES,
                        .loss_stride = 1};
    r->j.table = json_pack("[{s:i}]", "off", 0);
    for (int i = 0; i < 2; i++)
        assert_ok(sh_shm_create("slot", r->tensor.bytes, &r->j.slots[i].mem, NULL));
    for (int i = 0; i < N_VALUES; i++)
        r->losses[i] = NAN;
}

static void rig_close(struct rig *r)
{
    disk_free(r->files.disk);
    sh_loop_free(r->loop);
    json_decref(r->j.table);
    for (int i = 0; i < 2; i++)
        sh_shm_fini(&r->j.slots[i].mem);
    free(r->j.resume);
    sh_test_dir_remove(r->dir);
}

static void write_checkpoint(struct rig *r, int step, float value)
{
    const char *meta[] = {"step", step == 2 ? "2" : "3", NULL};
    float data[N_VALUES] = {value, value, value, value};
    char *path = job_ckpt_path(&r->j, step);

    r->tensor.data = data;
    assert_ok(sh_st_write(path, &r->tensor, 1, meta, NULL));
    r->tensor.data = NULL;
    free(path);
}

/* Starts with an initial state of ones; wants the checkpoint of `step`, 0: none. */
static void start(struct rig *r, int step)
{
    struct sh_shm state;

    assert_ok(sh_shm_create("initial", r->tensor.bytes, &state, NULL));
    for (int i = 0; i < N_VALUES; i++)
        ((float *)state.base)[i] = 1;
    r->j.resume = step ? job_ckpt_path(&r->j, step) : NULL;
    r->j.resume_step = step;
    assert_ok(resume_start(&r->j, &state, NULL));
    assert_int_equal(state.fd, -1);
}

static void finish(struct rig *r)
{
    int64_t end = sh_clock_ns() + 120000000000;

    while (r->j.build == JOB_READING) {
        assert_true(sh_clock_ns() < end);
        assert_ok(sh_loop_once(r->loop, 10000000, NULL));
    }
}

static float first_value(const struct rig *r)
{
    return *(const float *)r->j.slots[0].mem.base;
}

static void the_loop_goes_on_while_the_disk_is_slow(void **state)
{
    struct slow_disk slow;
    struct rig r;

    (void)state;
    rig_open(&r);
    slow_disk_begin(&slow, r.files.disk);
    write_checkpoint(&r, 2, 5);
    start(&r, 2);
    for (int i = 0; i < 3; i++)
        assert_ok(sh_loop_once(r.loop, 1000000, NULL));
    assert_int_equal(r.j.build, JOB_READING);
    assert_int_not_equal(r.j.build, JOB_BUILT);
    assert_false(r.j.slots[0].state == COPY_WHOLE);
    slow_disk_end(&slow);
    finish(&r);
    assert_true(slow.is_through);
    assert_true(r.j.build == JOB_BUILT && r.j.slots[0].state == COPY_WHOLE);
    assert_true(first_value(&r) == 5);
    rig_close(&r);
}

static void without_a_checkpoint_it_is_the_initial_state(void **state)
{
    struct rig r;

    (void)state;
    rig_open(&r);
    start(&r, 0);
    finish(&r);
    assert_true(r.j.build == JOB_BUILT);
    assert_true(first_value(&r) == 1);
    rig_close(&r);
}

static void a_state_that_cannot_be_locked_fails_the_job(void **state)
{
    struct rig r;

    (void)state;
    rig_open(&r);
    is_unlockable = true;
    start(&r, 0);
    finish(&r);
    is_unlockable = false;
    assert_true(r.j.build == JOB_RAW && r.j.slots[0].state == COPY_EMPTY);
    assert_int_equal(r.j.why.rc, SH_E_NOMEM);
    rig_close(&r);
}

static void goes_on_from_the_newest(bool is_elsewhere)
{
    struct rig r;
    char *path;
    FILE *f;

    rig_open(&r);
    write_checkpoint(&r, 2, 5);
    write_checkpoint(&r, 3, 6);
    if (is_elsewhere) {
        char *from = job_ckpt_path(&r.j, 3), *to = job_file(&r.j, "ckpt-3-other.safetensors");

        assert_int_equal(rename(from, to), 0);
        free(from);
        free(to);
    }
    path = job_file(&r.j, "losses.json");
    f = fopen(path, "w");
    assert_non_null(f);
    fputs("[0.5,null,0.25,0.125]", f);
    fclose(f);
    free(path);
    start(&r, 1);
    finish(&r);
    assert_true(r.j.build == JOB_BUILT);
    assert_int_equal(r.j.resume_step, 3);
    assert_true(first_value(&r) == 6);
    assert_true(r.losses[0] == 0.5 && isnan(r.losses[1]) && r.losses[2] == 0.25);
    assert_true(isnan(r.losses[3])); /* of a step that is yet to come */
    assert_string_equal(r.j.disk_name,
                        is_elsewhere ? "ckpt-3-other.safetensors" : "ckpt-3-e0.safetensors");
    rig_close(&r);
}

static void the_newest_file_stands_in_for_one_that_is_gone(void **state)
{
    (void)state;
    goes_on_from_the_newest(false);
}

static void and_if_another_executor_wrote_it(void **state)
{
    (void)state;
    goes_on_from_the_newest(true);
}

static void a_checkpoint_of_another_job_fails_this_one(void **state)
{
    struct rig r;

    (void)state;
    rig_open(&r);
    write_checkpoint(&r, 2, 5);
    r.tensor.name = "other";
    start(&r, 2);
    finish(&r);
    assert_false(r.j.build == JOB_BUILT || r.j.slots[0].state == COPY_WHOLE);
    assert_int_equal(r.j.why.rc, SH_E_INVALID);
    rig_close(&r);
}

/* The best of step 1 beside the state of step 2; without its weights there is no going on. */
static void the_best_weights_come_back_and_what_was_said_of_them(void **state)
{
    static const char SAID[] = "{\"step\":2,\"loss\":0.5,\"best\":0.25,\"gained\":0.25,"
                               "\"best_step\":1,\"without_gain\":1,\"stopped\":false}";
    const char *meta[] = {"step", "2", "evaluation", SAID, NULL};
    float now[N_VALUES] = {5, 5, 5, 5}, best[N_VALUES] = {3, 3, 3, 3};
    char name[] = "w#best", *names[] = {name};

    (void)state;
    for (size_t n = 2; n > 0; n--) {
        struct rig r;
        struct sh_st_tensor t[2];
        char *path;

        rig_open(&r);
        r.j.trials = (struct trials){.every = 1, .best_by = TRAIN_BY_LOSS};
        r.j.best_names = names;
        t[0] = t[1] = r.tensor;
        t[0].data = now;
        t[1].data = best;
        t[1].name = names[0];
        path = job_ckpt_path(&r.j, 2);
        assert_ok(sh_st_write(path, t, n, meta, NULL));
        free(path);
        start(&r, 2);
        finish(&r);
        assert_int_equal(r.j.build, n == 2 ? JOB_BUILT : JOB_RAW);
        if (n == 2) {
            assert_true(first_value(&r) == 5 && *(const float *)r.j.slots[1].mem.base == 3);
            assert_true(r.j.slots[1].is_best && r.j.slots[1].state == COPY_EMPTY &&
                        !r.j.slots[0].is_best);
            assert_true(r.j.trials.best_step == 1 && r.j.trials.last.loss == 0.5);
        }
        rig_close(&r);
    }
}

/* What no step writes is as it was compiled, whether a file has it (earlier releases wrote it) or
 * not. Of the four values steps write the first two. */
static void what_no_step_writes_comes_with_the_compiled_job(void **state)
{
    const char *meta[] = {"step", "2", NULL};
    const float trained[2] = {5, 5}, other[2] = {9, 9};

    (void)state;
    for (int n = 0; n <= 2; n++) { /* tensors in the file; none: there is no file */
        struct sh_st_tensor t[2] = {{.name = "w", .dtype = SH_F32, .rank = 1, .dims = {2}},
                                    {.name = "frozen", .dtype = SH_F32, .rank = 1, .dims = {2}}};
        const float *slot, *fixed;
        struct rig r;

        rig_open(&r);
        t[0].bytes = t[1].bytes = sizeof(trained);
        r.j.tensors = t;
        r.j.n_tensors = 2;
        r.j.written_bytes = sizeof(trained);
        json_array_append_new(r.j.table, json_pack("{s:i}", "off", (int)sizeof(trained)));
        sh_shm_fini(&r.j.slots[0].mem);
        assert_ok(sh_shm_create("slot", sizeof(trained), &r.j.slots[0].mem, NULL));
        assert_ok(sh_shm_create("fixed", sizeof(other), &r.j.fixed, NULL));
        if (n > 0) {
            struct sh_st_tensor in_file[2] = {t[0], t[1]};
            char *path = job_ckpt_path(&r.j, 2);

            in_file[0].data = trained;
            in_file[1].data = other;
            assert_ok(sh_st_write(path, in_file, (size_t)n, meta, NULL));
            free(path);
        }
        start(&r, n > 0 ? 2 : 0);
        finish(&r);
        assert_int_equal(r.j.build, JOB_BUILT);
        slot = r.j.slots[0].mem.base;
        fixed = r.j.fixed.base;
        assert_true(slot[0] == (n > 0 ? 5 : 1) && slot[1] == slot[0]);
        assert_true(fixed[0] == 1 && fixed[1] == 1);
        sh_shm_fini(&r.j.fixed);
        rig_close(&r);
    }
}

static void write_losses(struct rig *r, const char *text)
{
    char *path = job_file(&r->j, "losses.json");

    sh_test_write_file(path, text, strlen(text));
    free(path);
}

static void what_a_checkpoint_says_of_itself_is_checked(void **state)
{
    static const struct {
        enum sh_dtype dtype;
        int64_t n; /* of values in the file */
        const char *step, *evaluation, *why;
    } CASES[] = {
        {SH_F32, N_VALUES, "2", NULL, NULL},
        {SH_F32, N_VALUES, NULL, NULL, NULL}, /* of an old executor: what the scheduler said */
        {SH_F32, N_VALUES, "x", NULL, "step of the checkpoint"},
        {SH_F32, N_VALUES, "5", NULL, "of step 5, the job has 4 steps"},
        {SH_I32, N_VALUES, "2", NULL, "does not hold \"w\""},
        {SH_F32, N_VALUES - 1, "2", NULL, "does not hold \"w\""},
        {SH_F32, N_VALUES, "2", "{", "JSON"},
        {SH_F32, N_VALUES, "2", "{\"step\":2,\"loss\":1}", NULL}, /* none was the best yet */
    };
    const int64_t data[N_VALUES] = {0};

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(CASES); i++) {
        const char *meta[5] = {NULL};
        struct sh_st_tensor t;
        size_t n = 0;
        struct rig r;
        char *path;

        rig_open(&r);
        r.j.trials = (struct trials){.every = 1, .best_by = TRAIN_BY_LOSS};
        t = r.tensor;
        t.dtype = CASES[i].dtype;
        t.dims[0] = CASES[i].n;
        t.bytes = (size_t)CASES[i].n * sizeof(float);
        t.data = data;
        if (CASES[i].step) {
            meta[n++] = "step";
            meta[n++] = CASES[i].step;
        }
        if (CASES[i].evaluation) {
            meta[n++] = "evaluation";
            meta[n++] = CASES[i].evaluation;
        }
        path = job_ckpt_path(&r.j, 2);
        assert_ok(sh_st_write(path, &t, 1, meta, NULL));
        free(path);
        write_losses(&r, i % 2 ? "[" : "[1,2,3,4,5,6]"); /* damaged, or of more steps */
        start(&r, 2);
        finish(&r);
        assert_int_equal(r.j.build, CASES[i].why ? JOB_RAW : JOB_BUILT);
        if (CASES[i].why)
            assert_has(r.j.why.msg, CASES[i].why);
        else
            assert_int_equal(r.j.resume_step, 2);
        rig_close(&r);
    }
}

static void without_any_file_it_is_said_what_is_missing(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct rig r;
        char *path = NULL, none[SH_TEST_DIR_BYTES + 8];

        rig_open(&r);
        snprintf(none, sizeof(none), "%s/none", r.dir);
        if (i == 1) /* its folder is gone */
            r.j.dir = none;
        if (i == 2) { /* something has its name */
            path = job_ckpt_path(&r.j, 2);
            assert_int_equal(mkdir(path, 0700), 0);
        }
        start(&r, 2);
        finish(&r);
        assert_int_equal(r.j.build, JOB_RAW);
        assert_int_equal(r.j.why.rc, i == 2 ? SH_E_INVALID : SH_E_NOTFOUND);
        if (path)
            rmdir(path);
        free(path);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loop_goes_on_while_the_disk_is_slow),
        cmocka_unit_test(without_a_checkpoint_it_is_the_initial_state),
        cmocka_unit_test(a_state_that_cannot_be_locked_fails_the_job),
        cmocka_unit_test(the_newest_file_stands_in_for_one_that_is_gone),
        cmocka_unit_test(and_if_another_executor_wrote_it),
        cmocka_unit_test(a_checkpoint_of_another_job_fails_this_one),
        cmocka_unit_test(the_best_weights_come_back_and_what_was_said_of_them),
        cmocka_unit_test(what_no_step_writes_comes_with_the_compiled_job),
        cmocka_unit_test(what_a_checkpoint_says_of_itself_is_checked),
        cmocka_unit_test(without_any_file_it_is_said_what_is_missing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
