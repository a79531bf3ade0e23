/* test_recent.c - without it, a broken executor could make the scheduler write names without an end
 * or uses that do not exist, a minute could grow without a limit, and what is shown of a cell could
 * be that of another one. */
/* uses: scheduler/peers/recent.o */
#include "common/mem.h"
#include "scheduler/peers/recent.h"
#include "tests/unit/sh_test.h"

#define MS 1000000

static struct recent *r;

static void add(const struct msg_use_row *rows, size_t n, const struct msg_switch *s, size_t n_s,
                int64_t now_ms)
{
    const struct msg_exec_use m = {.rows = {rows, n * sizeof(*rows)},
                                   .switches = {s, n_s * sizeof(*s)}};

    recent_add(r, &m, now_ms);
}

static void add_one(const char *tenant, uint32_t use, int64_t ns)
{
    struct msg_use_row row = {.use = use, .ns = ns};

    sh_strlcpy(row.tenant, tenant, sizeof(row.tenant));
    add(&row, 1, NULL, 0, 0);
}

static json_t *show(int64_t now_ms)
{
    json_t *j = recent_show(r, now_ms);

    assert_non_null(j);
    return j;
}

static const json_t *parts_of(const json_t *j, size_t cell)
{
    return json_object_get(json_array_get(json_object_get(j, "cells"), cell), "parts");
}

static void assert_json_equal(const json_t *j, const char *text)
{
    json_t *want = json_loads(text, JSON_DECODE_ANY, NULL);

    assert_non_null(want);
    if (!json_equal(j, want)) {
        char *got = json_dumps(j, JSON_ENCODE_ANY);

        fail_msg("%s, not %s", got ? got : "nothing", text);
    }
    json_decref(want);
}

static int setup(void **state)
{
    (void)state;
    return recent_new(&r, NULL);
}

static int teardown(void **state)
{
    (void)state;
    recent_free(r);
    return 0;
}

static void a_cell_has_what_was_said_since_the_last_one(void **state)
{
    json_t *j;

    (void)state;
    json_decref(show(1000)); /* nobody knows when the first one began */
    add_one("ada", MSG_USE_TRAINING, 700 * MS);
    add_one("ada", MSG_USE_TRAINING, 300 * MS);
    add_one("bea", MSG_USE_INFERENCE, 200 * MS);
    add_one("", MSG_USE_IDLE, 800 * MS);
    json_decref(show(3000));
    add_one("bea", MSG_USE_SWITCH, 5 * MS);
    j = show(5100);
    assert_int_equal(json_array_size(json_object_get(j, "cells")), 2);
    assert_json_equal(parts_of(j, 0),
                      "[{\"tenant\": \"ada\", \"use\": \"training\", \"us\": 1000000},"
                      " {\"tenant\": \"bea\", \"use\": \"inference\", \"us\": 200000},"
                      " {\"tenant\": null, \"use\": \"idle\", \"us\": 800000}]");
    assert_json_equal(parts_of(j, 1), "[{\"tenant\": \"bea\", \"use\": \"switch\", \"us\": 5000}]");
    assert_json_equal(json_object_get(json_array_get(json_object_get(j, "cells"), 1), "ms"),
                      "2100");
    json_decref(j);
}

static void what_makes_no_sense_is_left_out(void **state)
{
    struct msg_use_row rows[4] = {{.use = MSG_USE_IDLE, .ns = 1 * MS},
                                  {.use = MSG_N_USES, .ns = 1 * MS},
                                  {.use = MSG_USE_IDLE, .ns = -1},
                                  {.use = MSG_USE_IDLE, .ns = 1 * MS}};
    struct msg_switch s[2] = {{.age_ns = -1}, {.age_ns = 1}};
    json_t *j;

    (void)state;
    memset(rows[3].tenant, 'a', sizeof(rows[3].tenant)); /* no end */
    memset(s[1].tenant, 'a', sizeof(s[1].tenant));
    json_decref(show(1000));
    add(rows, 4, s, 2, 1500);
    j = show(2000);
    assert_json_equal(parts_of(j, 0), "[{\"tenant\": null, \"use\": \"idle\", \"us\": 1000}]");
    assert_json_equal(json_object_get(j, "switches"), "[]");
    json_decref(j);
}

static void it_keeps_the_last_minute_and_the_last_switches(void **state)
{
    json_t *j, *list;
    char name[8];

    (void)state;
    for (int i = 0; i < 2 * RECENT_CELLS; i++) {
        for (int k = 0; k < 100; k++) { /* more than a cell holds */
            snprintf(name, sizeof(name), "t%d", k);
            add_one(name, MSG_USE_BATCH, MS);
        }
        add(NULL, 0, &(struct msg_switch){.version_id = i, .age_ns = 500 * MS}, 1, 1000 * i);
        json_decref(show(1000 * (i + 1)));
    }
    j = show(999000);
    list = json_object_get(j, "cells");
    assert_int_equal(json_array_size(list), RECENT_CELLS);
    assert_true(json_array_size(parts_of(j, 0)) < 100);
    assert_json_equal(json_object_get(json_array_get(list, RECENT_CELLS - 1), "at"), "999000");
    list = json_object_get(j, "switches");
    assert_int_equal(json_array_size(list), RECENT_SWITCHES);
    assert_json_equal(json_object_get(json_array_get(list, RECENT_SWITCHES - 1), "version"), "59");
    assert_json_equal(json_object_get(json_array_get(list, RECENT_SWITCHES - 1), "at"), "58500");
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_cell_has_what_was_said_since_the_last_one, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_makes_no_sense_is_left_out, setup, teardown),
        cmocka_unit_test_setup_teardown(it_keeps_the_last_minute_and_the_last_switches, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
