/* test_device_time.c - without it, a moment of a device's time could be billed twice or be
 * nobody's, and what tenants are billed could differ from what the dashboards show. */
/* uses: executor/report/device_time.o executor/report/energy.o executor/report/usage.o executor/report/ledger.o executor/report/recent.o */
#include "common/metrics.h"
#include "executor/report/device_time.h"
#include "executor/report/usage.h"
#include "tests/unit/sh_test.h"

static struct msg_usage_row sent[LEDGER_BATCH];
static size_t n_sent;
static struct msg_use_row uses[MSG_USE_ROWS];
static size_t n_uses, n_switches;

bool uplink_is_up(const struct uplink *u)
{
    return u != NULL;
}

void uplink_send(const struct uplink *u, const struct sh_msg *m)
{
    (void)u;
    if (m->type == MSG_EXEC_USE) {
        n_uses = m->u.exec_use.rows.len / sizeof(uses[0]);
        memcpy(uses, m->u.exec_use.rows.data, m->u.exec_use.rows.len);
        n_switches = m->u.exec_use.switches.len / sizeof(struct msg_switch);
        return;
    }
    n_sent = m->u.usage.rows.len / sizeof(sent[0]);
    memcpy(sent, m->u.usage.rows.data, m->u.usage.rows.len);
}

static void a_run_has_what_training_leaves(void **state)
{
    struct device_time t = {.at_ns = 1000};
    int64_t load, idle;

    (void)state;
    device_time_trains(&t, true, 1100);
    device_time_runs(&t, true, 1200);
    device_time_trains(&t, false, 1250); /* until here it drained */
    assert_int_equal(device_time_take_held(&t, 1300), 50);
    device_time_runs(&t, false, 1400);
    device_time_loads(&t, true, 1500);
    device_time_loads(&t, false, 1700);
    device_time_take_rest(&t, 1800, &load, &idle);
    assert_int_equal(load, 200);
    assert_int_equal(idle, 100 + 100 + 100);
    assert_int_equal(device_time_take_held(&t, 1900), 100); /* of the run that has ended */
    assert_int_equal(device_time_take_held(&t, 1900), 0);
}

static void every_moment_has_one_owner_in_any_order(void **state)
{
    uint32_t seed = 7;
    struct device_time t = {.at_ns = 0};
    int64_t now = 0, trained = 0, went = 0, held = 0, load_sum = 0, idle_sum = 0, load, idle;

    (void)state;
    for (int i = 0; i < 100000; i++) {
        const bool on = (seed = seed * 1664525u + 1013904223u) & 0x10000;

        now +=
            (int64_t)(seed >> 20) - 100; /* sometimes it goes back, as of two threads' readings */
        now = now < t.at_ns ? t.at_ns : now;
        switch ((seed >> 17) % 5) {
        case 0:
            trained += t.trains ? now - went : 0; /* as a job counts it */
            went = now;
            device_time_trains(&t, on, now);
            break;
        case 1:
            device_time_runs(&t, on, now);
            break;
        case 2:
            device_time_loads(&t, on, now);
            break;
        case 3:
            held += device_time_take_held(&t, now);
            break;
        default:
            device_time_take_rest(&t, now, &load, &idle);
            load_sum += load;
            idle_sum += idle;
        }
    }
    trained += t.trains ? now - went : 0;
    held += device_time_take_held(&t, now);
    device_time_take_rest(&t, now, &load, &idle);
    load_sum += load;
    idle_sum += idle;
    assert_true(trained > 0 && held > 0 && load_sum > 0 && idle_sum > 0);
    assert_int_equal(trained + held + load_sum + idle_sum, now);
}

/* What the metric says of a tenant's use, ns. */
static int64_t shown(const char *tenant, const char *use)
{
    struct sh_buf b;
    char line[128];
    const char *at;
    double s = 0;

    sh_buf_init(&b, 1u << 20);
    assert_ok(sh_metrics_render('e', &b, NULL));
    snprintf(line, sizeof(line),
             "\nshunt_device_seconds_total{executor=\"x\",tenant=\"%s\",use=\"%s\"} ", tenant, use);
    at = strstr(b.data, line);
    if (at)
        s = strtod(at + strlen(line), NULL);
    sh_buf_fini(&b);
    return (int64_t)(s * 1e9 + 0.5);
}

static int64_t billed(const char *tenant, int64_t id)
{
    int64_t ns = 0;

    for (size_t i = 0; i < n_sent; i++)
        if (strcmp(sent[i].tenant, tenant) == 0 && sent[i].id == id)
            ns += sent[i].gpu_ns;
    return ns;
}

static void bills_and_metrics_are_one_number(void **state)
{
    const struct uplink up = {.link = NULL};
    struct usage *u = NULL;
    struct sh_err err = {0};
    char dir[SH_TEST_DIR_BYTES];

    (void)state;
    sh_test_dir_make(dir);
    assert_ok_err(usage_new(dir, "x", &up, &u, &err), &err);
    usage_run(u, "ada", 3, 1500000, 1, 1);
    usage_run(u, "ada", 4, 2500000, 1, 1);
    usage_run(u, "bea", 3, 700000, 1, 1);
    usage_run(u, "bea", 3, 0, 1, 1);
    usage_run(u, "bea", 3, -5, 1, 1);
    usage_job(u, &(struct usage_job){.id = 9, .tenant = "bea", .use = MSG_USE_TRAINING}, 8000000, 3,
              8);
    usage_switch(u, "ada", 90000);
    usage_on_up(u);
    assert_int_equal(shown("ada", "inference"), billed("ada", 3) + billed("ada", 4));
    assert_int_equal(shown("ada", "inference"), 4000000);
    assert_int_equal(shown("bea", "inference"), billed("bea", 3));
    assert_int_equal(shown("bea", "training"), billed("", 9));
    assert_int_equal(billed("", 9), 8000000);
    assert_int_equal(shown("ada", "switch"), 90000);
    usage_free(u);
    sh_test_dir_remove(dir);
}

static int64_t said(const char *tenant, enum msg_use use)
{
    int64_t ns = 0;

    for (size_t i = 0; i < n_uses; i++)
        if (strcmp(uses[i].tenant, tenant) == 0 && uses[i].use == use)
            ns += uses[i].ns;
    return ns;
}

static void the_scheduler_hears_of_all_that_was_counted(void **state)
{
    const struct uplink up = {.link = NULL};
    int64_t named = 0;
    struct usage *u = NULL;
    struct sh_err err = {0};
    char dir[SH_TEST_DIR_BYTES], name[8];

    (void)state;
    sh_test_dir_make(dir);
    assert_ok_err(usage_new(dir, "x", &up, &u, &err), &err);
    usage_run(u, "ada", 3, 1500000, 1, 1);
    usage_run(u, "ada", 4, 2500000, 1, 1);
    usage_switch(u, "ada", 90000);
    for (int i = 0; i < 20; i++)
        usage_switched(u, &(struct msg_switch){.version_id = i});
    usage_second(u);
    assert_int_equal(said("ada", MSG_USE_INFERENCE), 4000000);
    assert_int_equal(said("ada", MSG_USE_SWITCH), 90000);
    assert_int_equal(n_switches, MSG_SWITCHES);
    for (int i = 0; i < 100; i++) { /* more tenants than it has rows */
        snprintf(name, sizeof(name), "t%d", i);
        usage_run(u, name, 3, 1000, 1, 1);
        usage_switch(u, name, 10);
    }
    usage_second(u);
    assert_true(n_uses <= MSG_USE_ROWS);
    for (size_t i = 0; i < n_uses; i++)
        named += uses[i].ns;
    assert_int_equal(named, 100 * 1010); /* nothing of what was said before, and all since */
    assert_int_equal(n_switches, 0);
    usage_free(u);
    sh_test_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_has_what_training_leaves),
        cmocka_unit_test(every_moment_has_one_owner_in_any_order),
        cmocka_unit_test(bills_and_metrics_are_one_number),
        cmocka_unit_test(the_scheduler_hears_of_all_that_was_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
