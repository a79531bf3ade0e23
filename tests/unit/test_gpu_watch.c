/* test_gpu_watch.c - without it, dashboards for DCGM's names would stay empty beside Shunt, a host
 * without the driver could fail to start, and tenants' shares of the energy would not add up. */
/* uses: executor/report/gpu_watch.o executor/report/energy.o */
/* link: -lmicrohttpd -ldl */
#include "common/mem.h"
#include "common/metrics.h"
#include "executor/report/energy.h"
#include "executor/report/gpu_watch.h"
#include "tests/unit/sh_test.h"

#include <limits.h>
#include <math.h>
#include <sched.h>

#define LABELS "{gpu=\"3\",UUID=\"GPU-fake\",device=\"nvidia3\",modelName=\"Fake GPU\"} "

static const char *library(void)
{
    static char path[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);

    assert_true(n > 0);
    path[n] = '\0';
    *strrchr(path, '/') = '\0';
    sh_strlcpy(strrchr(path, '/'), "/nvml/libnvidia-ml.so.1", 64);
    return path;
}

/* OWNED, free(). */
static char *page(void)
{
    struct sh_buf b;

    sh_buf_init(&b, 1u << 20);
    assert_ok(sh_buf_puts(&b, "", NULL));
    assert_ok(sh_metrics_render('e', &b, NULL));
    return sh_buf_take(&b);
}

static void what_the_driver_says_has_the_names_of_dcgm(void **state)
{
    static const char *const WANT[] = {
        "DCGM_FI_DEV_GPU_UTIL" LABELS "87\n",          "DCGM_FI_DEV_MEM_COPY_UTIL" LABELS "31\n",
        "DCGM_FI_DEV_POWER_USAGE" LABELS "300\n",      "DCGM_FI_DEV_GPU_TEMP" LABELS "55\n",
        "DCGM_FI_DEV_SM_CLOCK" LABELS "1980\n",        "DCGM_FI_DEV_MEM_CLOCK" LABELS "3201\n",
        "DCGM_FI_DEV_FB_USED" LABELS "41984\n",        "DCGM_FI_DEV_FB_FREE" LABELS "102400\n",
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER" LABELS "0\n"};
    struct gpu_watch *g = NULL;
    struct sh_err err = {0};
    double first, joules;
    char *text;

    (void)state;
    assert_false(gpu_watch_joules(NULL, &joules));
    assert_ok_err(gpu_watch_start("0000:41:00.0", library(), &g, &err), &err);
    while (!gpu_watch_joules(g, &first))
        sched_yield();
    assert_true(first >= 5000 && first < 5000 + 300 * 60);
    do
        assert_true(gpu_watch_joules(g, &joules));
    while (joules <= first);
    for (text = page(); !strstr(text, "PCIE_REPLAY"); text = page())
        free(text);
    free(text); /* the last reading was set while it was written, so others may be missing */
    text = page();
    for (size_t i = 0; i < SH_ARRAY_LEN(WANT); i++)
        assert_has(text, WANT[i]);
    assert_has(text, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" LABELS "50");
    free(text);
    gpu_watch_stop(g);
}

static void where_there_is_no_such_device_or_library_nothing_is_shown(void **state)
{
    struct gpu_watch *g = NULL;
    struct sh_err err = {0};

    (void)state;
    assert_fails(gpu_watch_start("0000:99:00.0", library(), &g, &err), SH_E_UNSUPPORTED, &err,
                 "0000:99:00.0");
    assert_null(g);
    err = (struct sh_err){0};
    assert_fails(gpu_watch_start("0000:41:00.0", "libnone.so.1", &g, &err), SH_E_UNSUPPORTED, &err,
                 "libnone");
    assert_null(g);
}

/* 100 W, then 700 W, read at odd times; time is counted late, in pieces of different lengths. */
static void shares_of_energy_add_up_to_what_was_read(void **state)
{
    struct energy e = {0};
    const int64_t ms = 1000000;
    double given = 0, used = 0, late = 0;

    (void)state;
    for (int64_t t = 0; t < 120000; t += 10) {
        used += (t < 60000 ? 100 : 700) * 0.01;
        late += 0.01;
        if (t % 130 == 0)
            energy_note(&e, 4000 + used, t * ms);
        if (t % 70 == 0 || (t / 1000) % 5 == 0) {
            given += energy_take(&e, (int64_t)(late * 1e9));
            late = 0;
        }
    }
    assert_true(fabs(given - used) < 0.01 * used);
    energy_note(&e, 3, 130000 * ms); /* the driver was loaded again */
    assert_true(energy_take(&e, 1000 * ms) == 0);
    energy_note(&e, 3 + 50, 131000 * ms);
    assert_true(fabs(energy_take(&e, 1000 * ms) - 50) < 51);
}

/* A run's time is counted when it ends, and what trained before it, or nobody, has its own. */
static void a_long_run_has_the_energy_of_its_time_and_no_more(void **state)
{
    const int64_t ms = 1000000, run_s = 60;
    struct energy e = {0};
    double run = 0, rest = 0;

    (void)state;
    for (int64_t t = 0; t <= 100000; t += 100) {
        const bool runs = t > 10000 && t <= 10000 + run_s * 1000;

        energy_note(&e, 0.3 * (double)t, t * ms);
        if (t == 10000 + run_s * 1000)
            run = energy_take(&e, run_s * 1000 * ms);
        else if (t && !runs)
            rest += energy_take(&e, 100 * ms);
    }
    assert_float_equal(run, 300.0 * (double)run_s, 300);
    assert_float_equal(rest, 300.0 * (double)(100 - run_s), 300);
}

/* Nobody reads the counter any more: what is not known is not counted. */
static void without_readings_energy_ends(void **state)
{
    const int64_t ms = 1000000;
    struct energy e = {0};
    double given = 0;

    (void)state;
    for (int64_t t = 0; t <= 10000; t += 100) {
        energy_note(&e, 0.3 * (double)t, t * ms);
        given += t ? energy_take(&e, 100 * ms) : 0;
    }
    for (int i = 0; i < 36000; i++)
        given += energy_take(&e, 100 * ms);
    assert_true(given < 300 * 25);
    for (int64_t t = 3610000; t <= 3700000; t += 100) { /* it is read again */
        energy_note(&e, 0.3 * (double)t, t * ms);
        assert_true(energy_take(&e, 100 * ms) < 40);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_driver_says_has_the_names_of_dcgm),
        cmocka_unit_test(where_there_is_no_such_device_or_library_nothing_is_shown),
        cmocka_unit_test(shares_of_energy_add_up_to_what_was_read),
        cmocka_unit_test(a_long_run_has_the_energy_of_its_time_and_no_more),
        cmocka_unit_test(without_readings_energy_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
