/* test_eval.c - a trained model over a dataset on disk.
 *
 * Without it: the loop, and with it every request, could stand still while a large dataset is read;
 * a job that ends meanwhile could take away what is being read into; accuracies could be wrong. */
/* uses: executor/training/eval.o executor/files/disk.o executor/files/disk_work.o */
#include "common/clock.h"
#include "common/mem.h"
#include "executor/requests/slabs.h"
#include "executor/runs/switch.h"
#include "executor/training/eval.h"
#include "tests/unit/slow_disk.h"

#include <math.h>
#include <unistd.h>

#define N_SAMPLES 5
#define N_CLASSES 2
#define MAX_BATCH 4

struct rig {
    struct sh_loop *loop;
    struct disk *disk;
    struct model model;
    json_t *meta;
    char dir[SH_TEST_DIR_BYTES], path[SH_TEST_DIR_BYTES + 16];
    struct eval *eval;
    struct sh_shm slab; /* as a worker sees it; unset: there is none */
    /* the run that waits for its worker */
    struct run_part part;
    run_done_fn *run_done;
    void *run_arg;
    int n_runs, n_ends;
    size_t width; /* floats of a sample */
    struct train_spec train;
    int64_t busy_ns;
    struct train_scores result, heads[TRAIN_MAX_HEADS];
    struct sh_err why;
};

static struct rig *the_rig;

/* What the rest of the executor does. */
uint64_t slabs_own_id(struct slabs *s)
{
    (void)s;
    return 7;
}

int slabs_add(struct slabs *s, uint64_t api_id, int fd, uint64_t bytes, struct sh_err *err)
{
    (void)s, (void)api_id;
    return sh_shm_map(fcntl(fd, F_DUPFD_CLOEXEC, 3), (size_t)bytes, true, &the_rig->slab, err);
}

void slabs_drop(struct slabs *s, uint64_t api_id)
{
    (void)s, (void)api_id;
    sh_shm_fini(&the_rig->slab);
}

static void drop_run(struct rig *r)
{
    free(r->part.in);
    free(r->part.out);
    r->part = (struct run_part){0};
    r->run_done = NULL;
}

int switch_submit(struct switcher *sw, struct model *m, const struct sh_sizes *sizes,
                  const struct run_part *part, run_done_fn *fn, void *arg, struct sh_err *err)
{
    (void)sw, (void)m, (void)err;
    assert_int_equal(sizes->n, 0);
    assert_null(the_rig->run_done);
    the_rig->part = *part;
    the_rig->run_done = fn;
    the_rig->run_arg = arg;
    the_rig->n_runs++;
    return SH_OK;
}

void switch_withdraw(struct switcher *sw, const void *arg)
{
    (void)sw, (void)arg;
    drop_run(the_rig);
}

static void rig_open(struct rig *r)
{
    *r = (struct rig){.model = {.max_batch = MAX_BATCH}, .slab = {.fd = -1}, .width = N_CLASSES};
    the_rig = r;
    sh_test_dir_make(r->dir);
    snprintf(r->path, sizeof(r->path), "%s/eval", r->dir);
    assert_ok(sh_loop_new(&r->loop, NULL));
    assert_ok(disk_new(r->loop, &r->disk, NULL));
    r->meta = json_pack("{s:[{s:s,s:s,s:[i,i]}],s:[{s:s,s:s,s:[i,i]}]}", "inputs", "name", "x",
                        "datatype", "FP32", "shape", -1, N_CLASSES, "outputs", "name", "y",
                        "datatype", "FP32", "shape", -1, N_CLASSES);
    assert_non_null(r->meta);
}

static void rig_close(struct rig *r)
{
    eval_free(r->eval);
    disk_free(r->disk);
    sh_loop_free(r->loop);
    json_decref(r->meta);
    assert_int_equal(r->slab.fd, -1);
    sh_test_dir_remove(r->dir);
}

/* Samples that the model, which gives back its input, takes for classes 0 1 0 1 0. */
static void write_dataset(struct rig *r, const struct sh_st_tensor *labels)
{
    float x[N_SAMPLES][N_CLASSES];
    struct sh_st_tensor t[] = {{.name = "x", .dtype = SH_F32, .rank = 2, .bytes = sizeof(x)},
                               *labels};

    for (int i = 0; i < N_SAMPLES; i++) {
        x[i][i % 2] = 1;
        x[i][1 - i % 2] = 0;
    }
    t[0].dims[0] = N_SAMPLES;
    t[0].dims[1] = N_CLASSES;
    t[0].data = x;
    assert_ok(sh_st_write(r->path, t, SH_ARRAY_LEN(t), NULL, NULL));
}

static void write_classes(struct rig *r, const int64_t labels[static N_SAMPLES])
{
    const struct sh_st_tensor t = {.name = "label",
                                   .dtype = SH_I64,
                                   .rank = 1,
                                   .dims = {N_SAMPLES},
                                   .data = labels,
                                   .bytes = N_SAMPLES * sizeof(*labels)};

    write_dataset(r, &t);
}

static void on_end(void *arg, const struct eval_result *res, const struct sh_err *why)
{
    struct rig *r = arg;

    r->result = res->all;
    memcpy(r->heads, res->heads, sizeof(r->heads));
    r->why = *why;
    r->n_ends++;
    eval_free(r->eval);
    r->eval = NULL;
}

static struct train_head head_of(const char *output, const char *labels, bool is_xent)
{
    struct train_head h = {.loss = is_xent ? TRAIN_LOSS_XENT : TRAIN_LOSS_MSE,
                           .ignore_index = TRAIN_IGNORE_INDEX,
                           .weight = 1};

    sh_strlcpy(h.output, output, sizeof(h.output));
    sh_strlcpy(h.labels, labels, sizeof(h.labels));
    return h;
}

static void start_with(struct rig *r)
{
    const struct eval_conf c = {.disk = r->disk,
                                .model = &r->model,
                                .dataset = r->path,
                                .train = &r->train,
                                .meta = r->meta,
                                .busy_ns = &r->busy_ns};

    assert_ok(eval_start(&c, on_end, r, &r->eval, NULL));
}

static void start(struct rig *r, bool is_xent)
{
    r->train = (struct train_spec){.heads = {head_of("", "label", is_xent)}, .n_heads = 1};
    start_with(r);
}

static void turn(struct rig *r, int n)
{
    for (int i = 0; i < n; i++)
        assert_ok(sh_loop_once(r->loop, 1000000, NULL));
}

static void turn_until(struct rig *r, int n_runs, int n_ends)
{
    int64_t end = sh_clock_ns() + 120000000000;

    while (r->n_runs < n_runs || r->n_ends < n_ends) {
        assert_true(sh_clock_ns() < end);
        turn(r, 1);
    }
    assert_int_equal(r->n_runs, n_runs);
    assert_int_equal(r->n_ends, n_ends);
}

/* What a worker does: the outputs are the inputs. */
static void do_run(struct rig *r, uint32_t batch)
{
    const struct run_result ok = {.batch = batch};
    run_done_fn *fn = r->run_done;
    char *base = r->slab.base;

    assert_non_null(fn);
    assert_int_equal(r->part.batch, batch);
    assert_int_equal(r->part.in[0].len, batch * r->width * sizeof(float));
    for (size_t i = 0; i < r->part.n_out; i++)
        memcpy(base + r->part.out[i].off, base + r->part.in[0].off, (size_t)r->part.out[i].len);
    drop_run(r);
    fn(r->run_arg, &ok);
}

/* Puts zeroes over those of the first batch, in place: a mapping of the file shows them. */
static void forget_labels(const struct rig *r)
{
    const int64_t zeroes[MAX_BATCH] = {0};
    int fd = open(r->path, O_WRONLY | O_CLOEXEC);
    off_t end = lseek(fd, 0, SEEK_END);

    assert_int_equal(pwrite(fd, zeroes, sizeof(zeroes), end - N_SAMPLES * (off_t)sizeof(int64_t)),
                     sizeof(zeroes));
    close(fd);
}

static const int64_t LABELS[N_SAMPLES] = {0, 1, 0, 1, 1}; /* four of five as the model says */

static void the_loop_goes_on_while_the_disk_is_slow(void **state)
{
    const double right = log(1 + exp(-1)), wrong = log(1 + exp(1));
    struct slow_disk slow;
    struct rig r;

    (void)state;
    rig_open(&r);
    write_classes(&r, LABELS);
    slow_disk_begin(&slow, r.disk);
    start(&r, true);
    turn(&r, 3);
    assert_int_equal(r.slab.fd, -1); /* not even opened */
    slow_disk_end(&slow);
    turn_until(&r, 1, 0);
    assert_true(slow.is_through);
    forget_labels(&r); /* they were read with the batch, and are not looked at again */
    slow_disk_begin(&slow, r.disk);
    do_run(&r, MAX_BATCH);
    turn(&r, 3);
    assert_int_equal(r.n_runs, 1); /* the next batch is not read */
    slow_disk_end(&slow);
    turn_until(&r, 2, 0);
    do_run(&r, N_SAMPLES - MAX_BATCH);
    turn_until(&r, 2, 1);
    assert_int_equal(r.why.rc, SH_OK);
    assert_int_equal(r.result.n_samples, N_SAMPLES);
    assert_true(r.result.accuracy == 4.0 / 5);
    assert_true(fabs(r.result.loss - (4 * right + wrong) / 5) < 1e-6);
    assert_true(fabs(r.result.perplexity - exp(r.result.loss)) < 1e-9);
    /* answers 0 1 0 1 0: of class 0 two right, one too many; of class 1 two right, one missing */
    assert_true(fabs(r.result.f1 - (4.0 / 5 + 4.0 / 5) / 2) < 1e-12);
    assert_true(isnan(r.result.top5));
    rig_close(&r);
}

/* Seven classes; the larger the number of a class, the larger its output. */
static void five_largest_and_f1_are_of_the_classes(void **state)
{
    const int64_t labels[N_SAMPLES] = {6, 2, 1, 6, 0}; /* 6 is always the answer */
    float x[N_SAMPLES][7];
    struct sh_st_tensor t[] = {
        {.name = "x", .dtype = SH_F32, .rank = 2, .dims = {N_SAMPLES, 7}, .bytes = sizeof(x)},
        {.name = "label",
         .dtype = SH_I64,
         .rank = 1,
         .dims = {N_SAMPLES},
         .bytes = sizeof(labels)}};
    struct rig r;

    (void)state;
    rig_open(&r);
    r.width = 7;
    json_decref(r.meta);
    r.meta = json_pack("{s:[{s:s,s:s,s:[i,i]}],s:[{s:s,s:s,s:[i,i]}]}", "inputs", "name", "x",
                       "datatype", "FP32", "shape", -1, 7, "outputs", "name", "y", "datatype",
                       "FP32", "shape", -1, 7);
    for (int i = 0; i < N_SAMPLES; i++)
        for (int k = 0; k < 7; k++)
            x[i][k] = (float)k;
    t[0].data = x;
    t[1].data = labels;
    assert_ok(sh_st_write(r.path, t, SH_ARRAY_LEN(t), NULL, NULL));
    start(&r, true);
    turn_until(&r, 1, 0);
    do_run(&r, MAX_BATCH);
    turn_until(&r, 2, 0);
    do_run(&r, N_SAMPLES - MAX_BATCH);
    assert_int_equal(r.why.rc, SH_OK);
    assert_true(r.result.accuracy == 2.0 / 5);
    assert_true(r.result.top5 == 3.0 / 5); /* 6 to 2 are the five largest */
    /* of 6: 2 both, 2 labels, 5 answers; 0, 1 and 2: none right; 3, 4, 5 do not occur */
    assert_true(fabs(r.result.f1 - (4.0 / 7) / 4) < 1e-12);
    rig_close(&r);
}

static void values_are_compared_with_the_labels_of_their_batch(void **state)
{
    float want[N_SAMPLES][N_CLASSES];
    struct sh_st_tensor t = {.name = "label", .dtype = SH_F32, .rank = 2, .bytes = sizeof(want)};
    struct rig r;

    (void)state;
    rig_open(&r);
    for (int i = 0; i < N_SAMPLES; i++) {
        want[i][i % 2] = i == N_SAMPLES - 1 ? 3 : 1;
        want[i][1 - i % 2] = 0;
    }
    t.dims[0] = N_SAMPLES;
    t.dims[1] = N_CLASSES;
    t.data = want;
    write_dataset(&r, &t);
    start(&r, false);
    turn_until(&r, 1, 0);
    do_run(&r, MAX_BATCH);
    turn_until(&r, 2, 0);
    do_run(&r, N_SAMPLES - MAX_BATCH);
    assert_int_equal(r.n_ends, 1);
    assert_int_equal(r.why.rc, SH_OK);
    assert_true(isnan(r.result.accuracy) && isnan(r.result.f1) && isnan(r.result.perplexity));
    assert_true(r.result.loss == 4.0 / (N_SAMPLES * N_CLASSES));
    rig_close(&r);
}

static void what_is_wrong_with_the_dataset_is_told_from_the_loop(void **state)
{
    const int64_t bad[N_SAMPLES] = {0, 1, 0, 1, N_CLASSES};
    struct rig r;

    (void)state;
    rig_open(&r);
    start(&r, true); /* there is none */
    turn_until(&r, 0, 1);
    assert_int_equal(r.why.rc, SH_E_NOTFOUND);
    write_classes(&r, bad);
    start(&r, true);
    turn_until(&r, 0, 2);
    assert_int_equal(r.why.rc, SH_E_INVALID);
    assert_has(r.why.msg, "label 2 of sample 4");
    rig_close(&r);
}

#define IO(name, type, shape) \
    "{\"name\":\"" name "\",\"datatype\":\"" type "\",\"shape\":[-1," shape "]}"
#define META(in, out) "{\"inputs\":[" in "],\"outputs\":[" out "]}"
#define X IO("x", "FP32", "2")
#define Y IO("y", "FP32", "2")

static json_t *parse(const char *text)
{
    json_t *j = json_loads(text, 0, NULL);

    assert_non_null(j);
    return j;
}

/* All zeroes. */
static struct sh_st_tensor zeroes(const char *name, enum sh_dtype type, size_t rank, int64_t n,
                                  int64_t width)
{
    static const char data[1024];
    struct sh_st_tensor t = {
        .name = name, .dtype = type, .rank = rank, .dims = {n, width}, .data = data};

    t.bytes = sh_dtype_bytes(type) * (size_t)(rank > 0 ? n : 1) * (size_t)(rank > 1 ? width : 1);
    return t;
}

static const struct {
    const char *meta;
    struct {
        const char *name;
        enum sh_dtype type;
        size_t rank;
        int64_t n, width;
    } t[3]; /* x, label, another */
    const char *output, *second;
    int rc;
    const char *why;
} BAD[] = {
#define FINE_X               \
    {                        \
        "x", SH_F32, 2, 5, 2 \
    }
#define FINE_LABEL               \
    {                            \
        "label", SH_I64, 1, 5, 0 \
    }
#define NEEDS SH_E_INVALID
    {META(X, Y), {FINE_X}, "", "", NEEDS, "no tensor \"label\""},
    {META(X, Y), {FINE_X, {"label", SH_I64, 0, 0, 0}}, "", "", NEEDS, "no tensor \"label\""},
    {META(X, Y), {FINE_X, {"label", SH_I64, 1, 0, 0}}, "", "", NEEDS, "no tensor \"label\""},
    {META(X, Y),
     {FINE_X, FINE_LABEL, {"few", SH_I64, 1, 3, 0}},
     "y",
     "few",
     NEEDS,
     "\"few\" of the evaluation dataset has 3 samples, \"label\" 5"},
    {META(X, Y), {FINE_X, FINE_LABEL}, "z", "", NEEDS, "no output \"z\""},
    {META(X, Y), {FINE_X, {"label", SH_I64, 2, 5, 3}}, "", "", NEEDS, "label"},
    {META(X, Y), {{"w", SH_F32, 2, 5, 2}, FINE_LABEL}, "", "", NEEDS, "no tensor \"x\""},
    {META(X, Y), {{"x", SH_F32, 0, 0, 0}, FINE_LABEL}, "", "", NEEDS, "no tensor \"x\""},
    {META(X, Y), {{"x", SH_F32, 2, 4, 2}, FINE_LABEL}, "", "", NEEDS, "5 samples of 8 bytes"},
    {META(X, Y), {{"x", SH_F32, 2, 5, 3}, FINE_LABEL}, "", "", NEEDS, "5 samples of 8 bytes"},
    {META(X, Y), {{"x", SH_I32, 2, 5, 2}, FINE_LABEL}, "", "", NEEDS, "is INT32, the model"},
    {META(IO("x", "FP32", "3,4,4"), Y),
     {{"x", SH_U8, 2, 5, 47}, FINE_LABEL},
     "",
     "",
     NEEDS,
     "5 samples of 48 bytes"},
    {META(X, ""), {FINE_X, FINE_LABEL}, "", "", SH_E_UNSUPPORTED, "this many tensors"},
    {META("{}", Y), {FINE_X, FINE_LABEL}, "", "", SH_E_UNSUPPORTED, "has no batch"},
    {META(X, "{}"), {FINE_X, FINE_LABEL}, "", "", SH_E_UNSUPPORTED, "has no batch"},
    {META(X, Y "," IO("z", "FP32", "900000000")),
     {FINE_X, FINE_LABEL},
     "",
     "",
     SH_E_TOOBIG,
     "more than 4096 MiB"},
    {META(X,
          Y "," IO("z", "FP32", "268435456") "," IO("z2", "FP32", "2") "," IO("z3", "FP32", "2")),
     {FINE_X, FINE_LABEL},
     "",
     "",
     SH_E_TOOBIG,
     "more than 4096 MiB"},
};

static void each_thing_that_does_not_suit_is_named(void **state)
{
    struct rig r;

    (void)state;
    for (size_t i = 0; i < SH_ARRAY_LEN(BAD); i++) {
        struct sh_st_tensor t[3];
        size_t n = 0;

        rig_open(&r);
        json_decref(r.meta);
        r.meta = parse(BAD[i].meta);
        for (; n < 3 && BAD[i].t[n].name; n++)
            t[n] = zeroes(BAD[i].t[n].name, BAD[i].t[n].type, BAD[i].t[n].rank, BAD[i].t[n].n,
                          BAD[i].t[n].width);
        assert_ok(sh_st_write(r.path, t, n, NULL, NULL));
        r.train =
            (struct train_spec){.heads = {head_of(BAD[i].output, "label", true)}, .n_heads = 1};
        if (BAD[i].second[0])
            r.train.heads[r.train.n_heads++] = head_of("y", BAD[i].second, true);
        start_with(&r);
        turn_until(&r, 0, 1);
        if (r.why.rc != BAD[i].rc || !strstr(r.why.msg, BAD[i].why))
            fail_msg("case %zu: %s \"%s\", not \"%s\"", i, sh_rc_name(r.why.rc), r.why.msg,
                     BAD[i].why);
        rig_close(&r);
    }
}

static void heads_are_scored_apart(void **state)
{
    const int64_t other[N_SAMPLES] = {1, 1, 1, 1, 0}; /* three of five as the model says */
    struct sh_st_tensor more = {.name = "other",
                                .dtype = SH_I64,
                                .rank = 1,
                                .dims = {N_SAMPLES},
                                .data = other,
                                .bytes = sizeof(other)};
    struct sh_st_tensor t[3];
    float x[N_SAMPLES][N_CLASSES] = {{1, 0}, {0, 1}, {1, 0}, {0, 1}, {1, 0}};
    struct rig r;

    (void)state;
    rig_open(&r);
    json_decref(r.meta);
    r.meta = parse(META(X, Y "," IO("z", "FP32", "2")));
    t[0] = zeroes("x", SH_F32, 2, N_SAMPLES, N_CLASSES);
    t[0].data = x;
    t[1] = zeroes("label", SH_I64, 1, N_SAMPLES, 0);
    t[1].data = LABELS;
    t[2] = more;
    assert_ok(sh_st_write(r.path, t, 3, NULL, NULL));
    r.train = (struct train_spec){
        .heads = {head_of("z", "label", true), head_of("y", "other", true)}, .n_heads = 2};
    start_with(&r);
    turn_until(&r, 1, 0);
    do_run(&r, MAX_BATCH);
    turn_until(&r, 2, 0);
    do_run(&r, N_SAMPLES - MAX_BATCH);
    assert_int_equal(r.why.rc, SH_OK);
    assert_true(r.heads[0].accuracy == 4.0 / 5);
    assert_true(r.heads[1].accuracy == 3.0 / 5);
    rig_close(&r);
}

/* Pictures as they are in the dataset, and as the model takes them. */
static void check_pictures(bool is_byte, bool normalises, const float want[static 4])
{
    const uint8_t bytes[N_SAMPLES][4] = {{0, 51, 102, 255}};
    const float floats[N_SAMPLES][4] = {{0, 1, 2, 5}};
    struct sh_st_tensor t[2];
    struct rig r;

    rig_open(&r);
    json_decref(r.meta);
    r.meta = parse(META(IO("x", "FP32", "1,2,2"), Y));
    t[0] = zeroes("x", is_byte ? SH_U8 : SH_F32, 2, N_SAMPLES, 4);
    t[0].data = is_byte ? (const void *)bytes : floats;
    t[1] = zeroes("label", SH_I64, 1, N_SAMPLES, 0);
    assert_ok(sh_st_write(r.path, t, 2, NULL, NULL));
    r.train = (struct train_spec){
        .heads = {head_of("", "label", true)},
        .n_heads = 1,
        .augment = {.normalises = normalises, .mean = {1}, .std = {2}},
    };
    start_with(&r);
    turn_until(&r, 1, 0);
    for (int i = 0; i < 4; i++)
        if (fabsf(((float *)r.slab.base)[i] - want[i]) > 1e-6f)
            fail_msg("pixel %d is %g, not %g", i, (double)((float *)r.slab.base)[i],
                     (double)want[i]);
    rig_close(&r);
}

static void pictures_are_as_in_training(void **state)
{
    (void)state;
    check_pictures(true, false, (const float[]){0, 0.2f, 0.4f, 1});
    check_pictures(true, true, (const float[]){-0.5f, -0.4f, -0.3f, 0});
    check_pictures(false, false, (const float[]){0, 1, 2, 5});
    check_pictures(false, true, (const float[]){-0.5f, 0, 0.5f, 2});
}

/* The job may be cancelled at any time. */
static void it_may_be_freed_while_it_is_read(void **state)
{
    int n_fds = sh_test_open_fds();
    struct slow_disk slow;
    struct rig r;

    (void)state;
    for (int n_runs = 0; n_runs < 2; n_runs++) { /* before the opening; before a batch */
        rig_open(&r);
        write_classes(&r, LABELS);
        if (n_runs == 0)
            slow_disk_begin(&slow, r.disk);
        start(&r, true);
        if (n_runs == 1) {
            turn_until(&r, 1, 0);
            slow_disk_begin(&slow, r.disk);
            do_run(&r, MAX_BATCH);
        }
        eval_free(r.eval);
        r.eval = NULL;
        json_decref(r.meta);
        r.meta = NULL;
        assert_int_equal(r.slab.fd, -1);
        slow_disk_end(&slow);
        while (!slow.is_through)
            turn(&r, 1);
        rig_close(&r); /* the thread ends what it has */
        assert_int_equal(r.n_runs, n_runs);
        assert_int_equal(r.n_ends, 0);
    }
    assert_int_equal(sh_test_open_fds(), n_fds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loop_goes_on_while_the_disk_is_slow),
        cmocka_unit_test(five_largest_and_f1_are_of_the_classes),
        cmocka_unit_test(values_are_compared_with_the_labels_of_their_batch),
        cmocka_unit_test(what_is_wrong_with_the_dataset_is_told_from_the_loop),
        cmocka_unit_test(each_thing_that_does_not_suit_is_named),
        cmocka_unit_test(heads_are_scored_apart),
        cmocka_unit_test(pictures_are_as_in_training),
        cmocka_unit_test(it_may_be_freed_while_it_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
