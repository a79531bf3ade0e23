/* test_tables.c - GATHER reads a TABLE where a run says that it is: on the device, or in host
 * memory that a mapping of this process may only read. All give the bits of a WEIGHT, also when
 * launches are recorded or prepared; an index outside reads nothing.
 *
 * Without it: rows could come from the place of an earlier run, or an index of a request could
 * choose what of the host's memory it reads. */
#include "common/mem.h"
#include "common/shm.h"
#include "tests/device/dev_test.h"

#include <sys/mman.h>

#define WIDE 40
#define PLACES 4

struct world {
    struct t_graph t;
    struct dev_plan *plan;
    uint32_t ix, weight, table, want, got;
    size_t tables, workspace; /* bytes */
    int64_t rows;
};

static const struct dev_bases HERE = {.workspace = (size_t)1 << 20};

static void make(struct world *w, int64_t rows, int64_t n)
{
    size_t image = 0;

    *w = (struct world){.rows = rows};
    t_init(&w->t);
    w->ix = t_index(&w->t, DIMS(n), rows);
    w->weight = t_add(&w->t, DEV_ROLE_WEIGHT, SH_F32, DIMS(rows, WIDE));
    w->table = t_add(&w->t, DEV_ROLE_TABLE, SH_F32, DIMS(rows, WIDE));
    memcpy(w->t.plain[w->table], w->t.plain[w->weight], (size_t)rows * WIDE * sizeof(float));
    w->want = t_add(&w->t, DEV_ROLE_OUTPUT, SH_F32, DIMS(n, WIDE));
    w->got = t_add(&w->t, DEV_ROLE_OUTPUT, SH_F32, DIMS(n, WIDE));
    t_op(&w->t, DEV_OP_GATHER, IN(w->weight, w->ix), OUT(w->want));
    t_op(&w->t, DEV_OP_GATHER, IN(w->table, w->ix), OUT(w->got));
    assert_ok(dev_plan_new(t_dev(), &w->t.g, strcmp(t_kind(), "cuda") == 0 ? DEV_FP16 : DEV_FP32,
                           NULL, &w->plan, NULL));
    for (uint32_t i = 0; i < w->t.g.n_tensors; i++) {
        struct dev_tensor *t = &w->t.tensors[i];
        size_t *at = t->role == DEV_ROLE_WEIGHT  ? &image
                     : t->role == DEV_ROLE_TABLE ? &w->tables
                                                 : &w->workspace;

        t->offset = *at;
        *at += SH_ALIGN_UP(t->bytes, (size_t)DEV_ALIGN);
    }
    for (uint32_t i = 0; i < w->t.g.n_ops; i++) {
        dev_plan_set_scratch(w->plan, i, w->workspace);
        w->workspace += SH_ALIGN_UP(dev_plan_scratch_bytes(w->plan, i), (size_t)DEV_ALIGN);
    }
    dev_plan_set_keep(w->plan, w->workspace);
    assert_ok(dev_plan_finish(w->plan, NULL));
    assert_int_equal(w->t.tensors[w->table].bytes, w->t.tensors[w->weight].bytes);
}

static void drop(struct world *w)
{
    dev_plan_free(w->plan);
    t_fini(&w->t);
}

static void put(const struct world *w, uint32_t tensor, size_t at)
{
    const size_t bytes = w->t.tensors[tensor].bytes;
    void *stored = calloc(1, bytes);

    assert_non_null(stored);
    assert_ok(dev_plan_pack(w->plan, tensor, w->t.plain[tensor], stored, NULL));
    assert_ok(dev_upload(t_dev(), at + w->t.tensors[tensor].offset, stored, bytes, NULL));
    assert_ok(dev_sync(t_dev(), NULL));
    free(stored);
}

/* A mapping that may be read alone, as that of a worker. */
static void map(const struct world *w, struct sh_shm *out)
{
    assert_ok(sh_shm_create("test-tables", w->tables, out, NULL));
    assert_ok(dev_plan_pack(w->plan, w->table, w->t.plain[w->table], out->base, NULL));
    assert_int_equal(mprotect(out->base, out->bytes, PROT_READ), 0);
}

static int run_at(const struct world *w, const struct dev_bases *b, struct sh_err *err)
{
    int rc;

    assert_ok(dev_fill(t_dev(), b->workspace, 0x4b, w->workspace, NULL));
    put(w, w->ix, b->workspace);
    put(w, w->weight, b->image);
    rc = dev_plan_run(w->plan, b, 0, w->t.g.n_ops, err);
    return rc ? rc : dev_sync(t_dev(), err);
}

static void same_rows(const struct world *w, const struct dev_bases *b, const char *where)
{
    const size_t bytes = w->t.tensors[w->got].bytes;
    unsigned char *want = malloc(bytes), *got = malloc(bytes);

    assert_true(want && got);
    assert_ok(
        dev_download(t_dev(), want, b->workspace + w->t.tensors[w->want].offset, bytes, NULL));
    assert_ok(dev_download(t_dev(), got, b->workspace + w->t.tensors[w->got].offset, bytes, NULL));
    assert_ok(dev_sync(t_dev(), NULL));
    if (memcmp(want, got, bytes) != 0)
        fail_msg("rows differ with the table %s", where);
    free(want);
    free(got);
}

static void rows_are_read_where_the_run_says(void **state)
{
    struct dev_bases b = HERE, places[PLACES];
    struct sh_shm host[2];
    struct sh_err err = {0};
    struct world w;

    (void)state;
    make(&w, 3000, 77);
    assert_true(dev_can_reach_host(t_dev()));
    for (int i = 0; i < PLACES; i++) {
        places[i] = b;
        places[i].tables = (size_t)(2 + i) << 20;
        if (i >= 2) {
            map(&w, &host[i - 2]);
            assert_ok_err(
                dev_reach_host(t_dev(), host[i - 2].base, w.tables, &places[i].host_tables, &err),
                &err);
            places[i].host_bytes = w.tables;
        }
    }
    for (int round = 0; round < 4; round++) { /* as it is; recorded; prepared; and once more */
        if (round == 1)
            assert_ok(dev_plan_warm(w.plan, NULL, NULL));
        for (int i = 0; i < PLACES; i++) {
            if (i < 2) {
                put(&w, w.table, places[i].tables);
                assert_ok(dev_fill(t_dev(), places[!i].tables, 0x4b, w.tables, NULL));
            }
            if (round == 2)
                dev_plan_prepare(w.plan, &places[i], 0, w.t.g.n_ops, NULL);
            assert_ok_err(run_at(&w, &places[i], &err), &err);
            same_rows(&w, &places[i], i < 2 ? "on the device" : "in host memory");
        }
    }
    for (int i = 0; i < 2; i++) {
        dev_leave_host(t_dev(), host[i].base);
        sh_shm_fini(&host[i]);
    }
    drop(&w);
}

static void an_index_outside_reads_nothing(void **state)
{
    struct dev_bases b = HERE;
    struct sh_shm host;
    struct world w;

    (void)state;
    make(&w, 100, 9);
    map(&w, &host);
    assert_ok(dev_reach_host(t_dev(), host.base, w.tables, &b.host_tables, NULL));
    b.host_bytes = w.tables;
    for (int i = 0; i < 3; i++) {
        static const int64_t BAD[] = {100, -101, (int64_t)1 << 40};
        struct sh_err err = {0};

        ((int64_t *)w.t.plain[w.ix])[4] = BAD[i];
        assert_fails(run_at(&w, &b, &err), SH_E_INVALID, &err, "is outside the table");
    }
    ((int64_t *)w.t.plain[w.ix])[4] = 99;
    assert_ok(run_at(&w, &b, NULL)); /* the device is as good as before */
    same_rows(&w, &b, "in host memory");
    dev_leave_host(t_dev(), host.base);
    sh_shm_fini(&host);
    drop(&w);
}

static void memory_that_is_too_short_is_refused(void **state)
{
    struct dev_bases b = HERE;
    struct sh_err err = {0};
    struct sh_shm host;
    struct world w;

    (void)state;
    make(&w, 100, 9);
    map(&w, &host);
    assert_ok(dev_reach_host(t_dev(), host.base, w.tables, &b.host_tables, NULL));
    b.host_bytes = w.tables - DEV_ALIGN;
    assert_fails(run_at(&w, &b, &err), SH_E_BUG, &err, "host memory");
    dev_leave_host(t_dev(), host.base);
    sh_shm_fini(&host);
    drop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_read_where_the_run_says),
        cmocka_unit_test(an_index_outside_reads_nothing),
        cmocka_unit_test(memory_that_is_too_short_is_refused),
    };

    return cmocka_run_group_tests(tests, t_setup, t_teardown);
}
