/* test_room.c - the tries by which a run gets its memory. Without it: a tenant could be told that
 * device memory is short when it was the host's memory, or a device that recovers, that ended the
 * last try; or what was prepared could be given up although there was room. */
/* uses: executor/runs/room.o */
#include "common/mem.h"
#include "executor/models/apart.h"
#include "executor/models/tables.h"
#include "executor/runs/inputs.h"
#include "executor/runs/switch_int.h"
#include "tests/unit/sh_test.h"

#define MAX_TRIES 4

/* What the memory manager, the models and the copies answer here, try by try. */
static int place_rc[MAX_TRIES];
static int n_tries;
static enum space_way way_of[MAX_TRIES]; /* in which each try was made */
static bool fits;                        /* both in one piece */
static bool has_kept;                    /* an image that was only prepared */

int space_alloc_beside(struct space *s, uint32_t image, size_t bytes, enum space_way way,
                       const struct residency_need *need, struct space_range *out,
                       struct sh_err *err)
{
    (void)s, (void)image, (void)bytes, (void)need, (void)err;
    assert_true(n_tries < MAX_TRIES);
    way_of[n_tries] = way;
    *out = (struct space_range){.must_wait = false};
    return SH_OK;
}

int space_find_way(struct space *s, uint32_t image, size_t ws_bytes,
                   const struct residency_need *need, const struct space_if *x,
                   enum space_way *way_out, struct sh_err *err)
{
    (void)s, (void)image, (void)ws_bytes, (void)need, (void)x;
    *way_out = SPACE_TOGETHER;
    return fits ? SH_OK : SH_FAIL(err, SH_E_DEVMEM, "no way");
}

int model_place(struct model *m, uint64_t *hit_out, struct sh_err *err)
{
    const int rc = place_rc[n_tries++];

    (void)m;
    *hit_out = 0;
    return rc ? SH_FAIL(err, rc, "try %d", n_tries) : SH_OK;
}

bool model_yield_apart(struct model *m)
{
    (void)m;
    return false;
}

bool model_hold_apart(struct model *m)
{
    assert_false(m->apart.is_source);
    return false;
}

bool store_unkeep_all(struct store *s)
{
    const bool had = has_kept;

    (void)s;
    has_kept = false;
    return had;
}

void run__give_back(struct run *r)
{
    r->has_ws = false;
}

const struct msg_batch *model_batch(const struct model *m, uint32_t batch, const double **layer_ns)
{
    static const struct msg_batch ROW = {.batch = 1, .ws_bytes = 1};

    (void)m, (void)batch;
    *layer_ns = NULL;
    return &ROW;
}

int inputs_send(struct run *r, struct sh_err *err)
{
    (void)r, (void)err;
    return SH_OK;
}

int model_transmit_begin(struct model *m, const double *layer_ns, struct sh_err *err)
{
    (void)m, (void)layer_ns, (void)err;
    return SH_OK;
}

struct residency *space_residency(struct space *s)
{
    (void)s;
    return NULL;
}

void residency_pin(struct residency *r, uint32_t image)
{
    (void)r, (void)image;
}

void model_unkeep(struct model *m, int64_t now_ns)
{
    (void)m, (void)now_ns;
}

void store_note_use(struct model *version, struct model *shape)
{
    (void)version, (void)shape;
}

uint64_t model_run_bytes(const struct model *m)
{
    return m->image_bytes;
}

uint64_t model_resident_bytes(const struct model *m)
{
    (void)m;
    return 0;
}

static int take(const int (*rcs)[MAX_TRIES], bool would_fit, bool is_kept, struct run *r,
                struct sh_err *err)
{
    static struct switcher sw;
    static struct model m;

    memcpy(place_rc, *rcs, sizeof(place_rc));
    n_tries = 0;
    fits = would_fit;
    has_kept = is_kept;
    *r = (struct run){.sw = &sw, .model = &m, .shape = &m, .batch = 1};
    return room__take(r, err);
}

static void the_last_try_says_why_there_is_no_memory(void **state)
{
    static const int SECOND[] = {SH_E_UNAVAILABLE, SH_E_NOMEM};
    struct run r;

    (void)state;
    for (size_t i = 0; i < sizeof(SECOND) / sizeof(SECOND[0]); i++) {
        const int rcs[MAX_TRIES] = {SH_E_DEVMEM, SECOND[i]};
        struct sh_err other_way = {0}, unkept = {0};

        assert_fails(take(&rcs, true, false, &r, &other_way), SECOND[i], &other_way, "try 2");
        assert_int_equal(way_of[1], SPACE_TOGETHER);
        assert_fails(take(&rcs, false, true, &r, &unkept), SECOND[i], &unkept, "try 2");
        assert_int_equal(way_of[1], SPACE_FREE);
        assert_int_equal(take(&rcs, true, false, &r, NULL), SECOND[i]);
        assert_int_equal(n_tries, 2);
        assert_false(r.has_ws);
    }
}

static void what_was_prepared_goes_only_if_there_is_no_other_way(void **state)
{
    static const int SHORT[MAX_TRIES] = {SH_E_DEVMEM, SH_E_DEVMEM, SH_E_DEVMEM, SH_E_DEVMEM};
    static const int SECOND[MAX_TRIES] = {SH_E_DEVMEM, SH_OK};
    static const int LAST[MAX_TRIES] = {SH_E_DEVMEM, SH_E_DEVMEM, SH_E_DEVMEM, SH_OK};
    struct sh_err err = {0};
    struct run r;

    (void)state;
    assert_ok(take(&SECOND, true, true, &r, &err));
    assert_true(has_kept && r.has_pin);
    assert_int_equal(err.rc, SH_OK);
    assert_ok(take(&LAST, true, true, &r, &err));
    assert_false(has_kept);
    assert_int_equal(err.rc, SH_OK);
    assert_fails(take(&SHORT, true, true, &r, &err), SH_E_DEVMEM, &err, "try 4");
    assert_false(r.has_ws || r.has_pin);
    err = (struct sh_err){0};
    assert_fails(take(&SHORT, false, false, &r, &err), SH_E_DEVMEM, &err, "no way");
    assert_int_equal(n_tries, 1); /* what would not do is not tried */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_try_says_why_there_is_no_memory),
        cmocka_unit_test(what_was_prepared_goes_only_if_there_is_no_other_way),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
