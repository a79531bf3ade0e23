/* test_worker_settle.c - how a run ends on the device, whatever ended it on the host.
 *
 * Without it: weights that the device found damaged would count as unpacked if the run was given up
 * meanwhile, and the next run would compute with what lies in their place. */
/* uses: executor/worker/worker.o */
#include "executor/worker/worker.h"
#include "tests/unit/sh_test.h"

static struct {
    int late_rc;
    bool is_damaged;
    enum msg_packed packed;
} T;

int dev_sync(struct dev *d, struct sh_err *err)
{
    (void)d;
    return T.late_rc ? SH_FAIL(err, T.late_rc, "of the device") : SH_OK;
}

bool dev_take_damage(struct dev *d)
{
    const bool is = T.is_damaged;

    (void)d;
    T.is_damaged = false;
    return is;
}

static int settled(int before, int late, bool is_damaged)
{
    struct worker w = {.packed = MSG_PACKED_DAMAGED};
    struct sh_err why = {0};
    int rc;

    if (before)
        SH_FAIL(&why, before, "of the host");
    T.late_rc = late;
    T.is_damaged = is_damaged;
    rc = worker_settle(&w, &why);
    T.packed = w.packed;
    return rc;
}

static void damage_is_not_lost_behind_another_failure(void **state)
{
    (void)state;
    assert_int_equal(settled(SH_OK, SH_E_IO, true), SH_E_IO);
    assert_int_equal(T.packed, MSG_PACKED_DAMAGED);
    assert_int_equal(settled(SH_E_CANCELLED, SH_E_IO, true), SH_E_IO);
    assert_int_equal(T.packed, MSG_PACKED_DAMAGED);
    assert_int_equal(settled(SH_E_IO, SH_OK, true), SH_E_IO); /* where calls are not queued */
    assert_int_equal(T.packed, MSG_PACKED_DAMAGED);
    assert_int_equal(settled(SH_E_CANCELLED, SH_E_BUG, true), SH_E_BUG);
    assert_int_equal(T.packed, MSG_PACKED_DAMAGED);
}

/* An error of the driver that looks the same is no reason to load a version anew. */
static void other_failures_are_no_damage(void **state)
{
    (void)state;
    assert_int_equal(settled(SH_E_CANCELLED, SH_OK, false), SH_E_CANCELLED);
    assert_int_equal(T.packed, MSG_PACKED_KNOWN);
    assert_int_equal(settled(SH_OK, SH_E_IO, false), SH_E_IO);
    assert_int_equal(T.packed, MSG_PACKED_UNSURE);
    assert_int_equal(settled(SH_E_CANCELLED, SH_E_IO, false), SH_E_CANCELLED);
    assert_int_equal(T.packed, MSG_PACKED_UNSURE);
    assert_int_equal(settled(SH_OK, SH_E_INVALID, false), SH_E_INVALID); /* a bad index */
    assert_int_equal(T.packed, MSG_PACKED_KNOWN);
    assert_int_equal(settled(SH_E_CANCELLED, SH_E_DEVLOST, false), SH_E_DEVLOST);
    assert_int_equal(settled(SH_OK, SH_OK, false), SH_OK);
    assert_int_equal(T.packed, MSG_PACKED_KNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_is_not_lost_behind_another_failure),
        cmocka_unit_test(other_failures_are_no_damage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
