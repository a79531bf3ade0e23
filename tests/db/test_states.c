/* test_states.c - the states that code knows are those that the tables take. Without it a state of
 * common/states.h or job_state.h could be refused by the first row that gets it, or a row have one
 * that no code knows.
 *
 * Needs DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY. */
/* link: -lpq */
#include "common/job_state.h"
#include "common/states.h"
#include "tests/db/db_test.h"

static const struct {
    const char *table, *states;
} LISTS[] = {
    {"job", SH_JOB_STATES(SH_JOB_TEXT, ",")},
    {"model_version", SH_VERSION_STATES(SH_STATE_TEXT, ",")},
    {"placement", SH_PLACEMENT_STATES(SH_STATE_TEXT, ",")},
    {"dataset", SH_DATASET_STATES(SH_STATE_TEXT, ",")},
    {"tenant", SH_TENANT_STATES(SH_STATE_TEXT, ",")},
    {"queue", SH_QUEUE_STATES(SH_STATE_TEXT, ",")},
    {"executor", SH_EXECUTOR_STATES(SH_STATE_TEXT, ",")},
};

/* The words of the CHECK that lists the states, and of nothing else; sorted, as ours. */
static const struct db_stmt WORDS = {
    "words",
    "SELECT (SELECT string_agg(w, ',' ORDER BY w) FROM regexp_matches(pg_get_constraintdef(c.oid), "
    "'''([A-Z]+)''', 'g') m(a), unnest(a) w), (SELECT string_agg(w, ',' ORDER BY w) FROM "
    "unnest(string_to_array($2, ',')) w) FROM pg_constraint c WHERE c.conrelid = $1::regclass AND "
    "c.contype = 'c' AND pg_get_constraintdef(c.oid) LIKE 'CHECK ((state = ANY (ARRAY[%'",
    2};

static void the_states_of_code_are_those_of_the_tables(void **state)
{
    struct db *db = open_db("test_states");

    (void)state;
    make_empty(db);
    migrate(db);
    for (size_t i = 0; i < SH_ARRAY_LEN(LISTS); i++) {
        const char *const params[] = {LISTS[i].table, LISTS[i].states};
        struct db_res *r = NULL;

        assert_ok(db_exec(db, &WORDS, params, &r, NULL));
        if (db_rows(r) != 1)
            fail_msg("%s has %d CHECKs of its states", LISTS[i].table, (int)db_rows(r));
        if (strcmp(db_text(r, 0, 0), db_text(r, 0, 1)) != 0)
            fail_msg("%s takes %s, code knows %s", LISTS[i].table, db_text(r, 0, 0),
                     db_text(r, 0, 1));
        db_res_free(r);
    }
    db_free(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_states_of_code_are_those_of_the_tables),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
