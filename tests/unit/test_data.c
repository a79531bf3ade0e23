/* test_data.c - the batches of a training run: whose samples a step gets, and on which way.
 *
 * Without it: a batch that travels ahead could be read before it is there, be overwritten while it
 * is read, or be that of a step that was dropped; training would go on with wrong samples, and only
 * a comparison of whole runs would show it.
 *
 * The program is a fake of this file. The device's second stream is as late as it may be: what is
 * prefetched arrives when the first one joins it. */
/* uses: executor/worker/data.o executor/worker/ahead.o runtime/model/order.o tests/device/fake/fake_mem.o tests/device/fake/fake_dev.o libdevice.a */
#include "common/clock.h"
#include "common/mem.h"
#include "executor/worker/worker.h"
#include "runtime/model/order.h"
#include "tests/device/fake/fake.h"
#include "tests/unit/sh_test.h"

#include <fcntl.h>
#include <sched.h>

#define BATCH 2
#define SAMPLES 7
#define WIDTH 300000 /* a batch has more bytes than a piece */
#define STEPS 8
#define SEED 5
#define ARENA ((size_t)24 << 20)
#define WS_BYTES ((size_t)5 << 20) /* of the program, and then some: not aligned */
#define WAIT_NS INT64_C(120000000000)
#define MAX_LATE 16

struct program {
    struct program_io x, label, y;
};

static struct program prog = {
    .x = {"x", SH_F32, 2, {BATCH, WIDTH}, 4096, BATCH *WIDTH * sizeof(float)},
    .label = {"label", SH_I64, 1, {BATCH}, 512, BATCH * sizeof(int64_t)},
    .y = {"y", SH_F32, 2, {BATCH, 10}, 0, 0},
};

size_t program_n_inputs(const struct program *p)
{
    (void)p;
    return 1;
}

const struct program_io *program_input(const struct program *p, size_t i)
{
    return i == 0 ? &p->x : NULL;
}

int64_t program_n_classes(const struct program *p, size_t head)
{
    (void)head;
    return p->y.dims[1];
}

const struct program_io *program_label(const struct program *p, size_t head)
{
    (void)head;
    return &p->label;
}

size_t program_workspace_bytes(const struct program *p)
{
    (void)p;
    return WS_BYTES - 100;
}

/* ------------------------------------------------------------------ the late device */

static struct {
    struct {
        size_t off, bytes;
        const void *host;
    } late[MAX_LATE];
    size_t n_late, sent;
    size_t lowest; /* where a prefetch wrote */
    bool is_fenced;
} dev_seen;

static int late_prefetch(struct dev *d, size_t off, const void *host, size_t n, struct sh_err *err)
{
    (void)d;
    if (!dev_seen.is_fenced || dev_seen.n_late == MAX_LATE)
        return SH_FAIL(err, SH_E_BUG, "a prefetch without a fence, or too many");
    dev_seen.late[dev_seen.n_late].off = off;
    dev_seen.late[dev_seen.n_late].bytes = n;
    dev_seen.late[dev_seen.n_late++].host = host;
    dev_seen.sent += n;
    dev_seen.lowest = SH_MIN(dev_seen.lowest, off);
    return SH_OK;
}

static int late_fence(struct dev *d, struct sh_err *err)
{
    (void)d;
    (void)err;
    dev_seen.is_fenced = true;
    return SH_OK;
}

static int late_join(struct dev *d, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; i < dev_seen.n_late && !rc; i++)
        rc = shunt_dev_ops.stream->upload(d, dev_seen.late[i].off, dev_seen.late[i].host,
                                          dev_seen.late[i].bytes, err);
    dev_seen.n_late = 0;
    return rc;
}

static int moves_unfence(struct dev *d, size_t dst, size_t src, size_t n, struct sh_err *err)
{
    dev_seen.is_fenced = false;
    return shunt_dev_ops.stream->move(d, dst, src, n, err);
}

/* ------------------------------------------------------------------ fixture */

struct rig {
    struct dev_ops ops;
    struct dev_stream_ops stream;
    struct dev_lib *lib;
    struct dev *dev;
    struct data *data;
    char dir[SH_TEST_DIR_BYTES];
    float *x; /* of the dataset: sample i holds i + 1, and its place */
    int64_t *labels;
    unsigned char *got;
};

static void write_dataset(struct rig *r, char *path, size_t size)
{
    struct sh_st_tensor t[2] = {
        {.name = "x", .dtype = SH_F32, .rank = 2, .dims = {SAMPLES, WIDTH}},
        {.name = "target", .dtype = SH_I64, .rank = 1, .dims = {SAMPLES}},
    };

    r->x = calloc((size_t)SAMPLES * WIDTH, sizeof(*r->x));
    r->labels = calloc(SAMPLES, sizeof(*r->labels));
    assert_non_null(r->x);
    assert_non_null(r->labels);
    for (size_t i = 0; i < (size_t)SAMPLES * WIDTH; i++)
        r->x[i] = (float)(i / WIDTH + 1) + (float)(i % WIDTH) / (2 * WIDTH);
    for (int64_t i = 0; i < SAMPLES; i++)
        r->labels[i] = i % 10;
    t[0].data = r->x;
    t[0].bytes = (size_t)SAMPLES * WIDTH * sizeof(*r->x);
    t[1].data = r->labels;
    t[1].bytes = SAMPLES * sizeof(*r->labels);
    sh_test_dir_make(r->dir);
    snprintf(path, size, "%s/data.safetensors", r->dir);
    assert_ok(sh_st_write(path, t, 2, NULL, NULL));
}

static int open_data(struct rig *r, struct program *p, struct data **out, struct sh_err *err)
{
    const struct train_spec spec = {.heads = {{.loss = TRAIN_LOSS_XENT,
                                               .ignore_index = TRAIN_IGNORE_INDEX,
                                               .weight = 1,
                                               .labels = "target"}},
                                    .n_heads = 1,
                                    .batch = BATCH,
                                    .steps = STEPS,
                                    .seed = SEED,
                                    .shuffle = true};
    char path[SH_TEST_DIR_BYTES + 32];
    int fd, rc;

    snprintf(path, sizeof(path), "%s/data.safetensors", r->dir);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    rc = data_open(fd, p, &spec, r->dev, out, err);
    close(fd);
    return rc;
}

static int setup(void **state)
{
    const struct dev_conf conf = {.arena_bytes = ARENA};
    struct rig *r = calloc(1, sizeof(*r));
    char path[SH_TEST_DIR_BYTES + 32];
    struct sh_err err = {0};

    assert_non_null(r);
    memset(&dev_seen, 0, sizeof(dev_seen));
    dev_seen.lowest = SIZE_MAX;
    r->ops = shunt_dev_ops;
    r->stream = *shunt_dev_ops.stream;
    r->ops.stream = &r->stream;
    r->stream.prefetch = late_prefetch;
    r->stream.prefetch_fence = late_fence;
    r->stream.prefetch_join = late_join;
    r->stream.move = moves_unfence;
    assert_ok(dev_lib_wrap(&r->ops, &r->lib, NULL));
    assert_ok(dev_open(r->lib, &conf, &r->dev, NULL));
    r->got = malloc(prog.x.bytes);
    assert_non_null(r->got);
    write_dataset(r, path, sizeof(path));
    assert_ok_err(open_data(r, &prog, &r->data, &err), &err);
    assert_int_equal(data_steps(r->data), STEPS);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    data_close(r->data);
    dev_close(r->dev);
    dev_lib_close(r->lib);
    sh_test_dir_remove(r->dir);
    free(r->x);
    free(r->labels);
    free(r->got);
    free(r);
    return 0;
}

static void load(struct rig *r, size_t ws, int64_t step)
{
    struct sh_err err = {0};

    assert_ok_err(data_load(r->data, ws, step, &err), &err);
}

/* Until `bytes` more are on their way: the thread may still be collecting. */
static void prefetch(struct rig *r, size_t ws, size_t bytes)
{
    int64_t end = sh_clock_ns() + WAIT_NS;
    size_t want = dev_seen.sent + bytes;
    struct sh_err err = {0};

    while (dev_seen.sent < want && sh_clock_ns() < end) {
        assert_ok_err(data_prefetch(r->data, ws, &err), &err);
        sched_yield();
    }
    assert_true(dev_seen.sent >= want);
}

static void assert_holds(struct rig *r, size_t ws, int64_t step)
{
    const int64_t per_epoch = SAMPLES / BATCH;
    const struct order o = order_of(SEED, true, 0, SAMPLES, 1);
    uint32_t order[SAMPLES], whole = 0;
    int64_t label;

    order_draw(&o, step / per_epoch, &whole, order);
    assert_ok(dev_download(r->dev, r->got, ws + prog.x.offset, prog.x.bytes, NULL));
    for (int64_t k = 0; k < BATCH; k++) {
        uint32_t sample = order[step % per_epoch * BATCH + k];

        assert_memory_equal(r->got + (size_t)k * WIDTH * sizeof(float), r->x + sample * WIDTH,
                            WIDTH * sizeof(float));
        assert_ok(dev_download(r->dev, &label, ws + prog.label.offset + (size_t)k * sizeof(label),
                               sizeof(label), NULL));
        assert_int_equal(label, r->labels[sample]);
    }
}

static size_t batch_bytes(const struct rig *r)
{
    return data_ws_bytes(r->data) - SH_ALIGN_UP(WS_BYTES - 100, (size_t)DEV_ALIGN);
}

/* ------------------------------------------------------------------ tests */

static void a_step_gets_its_samples_however_much_of_them_was_prefetched(void **state)
{
    struct rig *r = *state;
    const size_t ws = 2 * DEV_BLOCK;

    for (int64_t step = 0; step < STEPS; step++) {
        load(r, ws, step);
        assert_holds(r, ws, step);
        if (step + 1 < STEPS && step % 3) /* nothing, one piece, all */
            prefetch(r, ws, step % 3 == 1 ? 1 : batch_bytes(r));
        assert_holds(r, ws, step);
    }
    /* Only the first one came on the long way; the program's part was left alone meanwhile. */
    assert_int_equal(dev_seen.sent, (STEPS - 1) * batch_bytes(r));
    assert_true(dev_seen.lowest >= ws + WS_BYTES - 100);
    assert_ok(data_prefetch(r->data, ws, NULL)); /* nothing is behind the last step */
    assert_int_equal(dev_seen.sent, (STEPS - 1) * batch_bytes(r));
}

static void pieces_are_small(void **state)
{
    struct rig *r = *state;

    load(r, 0, 0);
    prefetch(r, 0, 1);
    assert_int_equal(dev_seen.n_late, 1);
    assert_int_equal(dev_seen.sent, (size_t)1 << 20);
}

/* The device stops, and others have the memory. */
static void drop(struct rig *r)
{
    assert_ok(r->stream.prefetch_join(r->dev, NULL));
    assert_ok(dev_fill(r->dev, 0, 0xEE, ARENA, NULL));
    data_forget(r->data);
}

static void after_a_drop_nothing_of_the_tail_is_used(void **state)
{
    struct rig *r = *state;

    load(r, 0, 3);
    prefetch(r, 0, batch_bytes(r));
    drop(r);
    load(r, DEV_BLOCK, 3); /* the step that was given up */
    assert_holds(r, DEV_BLOCK, 3);
    prefetch(r, DEV_BLOCK, 1);
    drop(r);
    load(r, 0, 4); /* step 3 had committed */
    assert_holds(r, 0, 4);
    load(r, 0, 5);
    assert_holds(r, 0, 5);
}

static void after_a_pause_prefetching_goes_on_where_it_was(void **state)
{
    struct rig *r = *state;
    const size_t to = 6 * DEV_BLOCK;
    size_t sent;

    load(r, 0, 3);
    prefetch(r, 0, 1);
    sent = dev_seen.sent;
    assert_ok(r->stream.prefetch_join(r->dev, NULL)); /* the stop */
    assert_ok(dev_move(r->dev, to, 0, data_ws_bytes(r->data), NULL));
    dev_seen.is_fenced = true; /* that was not the worker's move */
    assert_ok(dev_fill(r->dev, 0, 0xEE, to, NULL));
    load(r, to, 4);
    assert_holds(r, to, 4);
    assert_int_equal(dev_seen.sent, batch_bytes(r));
    assert_true(sent < batch_bytes(r));
}

/* Rows that no sample has would be zeros, and nobody would know. */
static void an_input_that_is_not_whole_samples_is_refused(void **state)
{
    struct rig *r = *state;
    struct program odd = prog;
    struct data *d = NULL;
    struct sh_err err = {0};

    odd.x.bytes++;
    assert_fails(open_data(r, &odd, &d, &err), SH_E_INVALID, &err, "a sample of \"x\" has");
    assert_null(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_step_gets_its_samples_however_much_of_them_was_prefetched,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(pieces_are_small, setup, teardown),
        cmocka_unit_test_setup_teardown(after_a_drop_nothing_of_the_tail_is_used, setup, teardown),
        cmocka_unit_test_setup_teardown(after_a_pause_prefetching_goes_on_where_it_was, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_input_that_is_not_whole_samples_is_refused, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
