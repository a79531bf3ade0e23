/* test_failover.c - what an API keeps of a database whose successor lacks its last commits.
 *
 * Without it: after a failover that loses commits, the numbers that rows have are given again, and
 * an API could go on with what the lost commit had said for as long as nobody changes anything.
 *
 * Needs DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY. */
/* uses: libapi.a */
/* link: -lmicrohttpd -lpq -lz */
#include "api/cache/catalog.h"
#include "api/cache/live.h"
#include "tests/db/db_test.h"

#include <sys/wait.h>
#include <unistd.h>

/* A copy of the primary as it is now, in $1, which follows nothing. */
static const char MAKE_STANDBY[] =
    "set -e; . tests/pg.sh; mkdir \"$1\"; [ \"$(id -u)\" -ne 0 ] || chown \"$(pg_as_user id -u)\" "
    "\"$1\"; "
    "cd \"$1\"; pg_as_user \"$SHUNT_PG_BIN/pg_basebackup\" -d \"$DATABASE_URL\" -D \"$1/data\" -X "
    "stream "
    "-c fast; pg_as_user touch \"$1/data/standby.signal\"; pg_as_user \"$SHUNT_PG_BIN/pg_ctl\" -D "
    "\"$1/data\" -l \"$1/log\" -w -t 60 -s -o \"-c listen_addresses='' -c "
    "unix_socket_directories='$1' -c fsync=off -c hot_standby=on\" start";
static const char PROMOTE[] =
    "set -e; . tests/pg.sh; cd \"$1\"; pg_as_user \"$SHUNT_PG_BIN/pg_ctl\" -D "
    "\"$1/data\" -w -t 60 -s promote";
static const char REMOVE[] = ". tests/pg.sh; (cd \"$1\"; pg_as_user \"$SHUNT_PG_BIN/pg_ctl\" -D "
                             "\"$1/data\" -m immediate -w -s stop); rm -rf \"$1\"";

static void shell(const char *script, const char *dir)
{
    const pid_t child = fork();
    int status = -1;

    if (child == 0) {
        execlp("bash", "bash", "-c", script, "bash", dir, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

struct world {
    struct db *old, *new; /* servers */
    char dir[64], url[128];
    struct catalog *catalog;
    struct api_conf conf;
    struct live *live;
};

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    w->old = open_db("test_failover");
    make_empty(w->old);
    migrate(w->old);
    run(w->old, "INSERT INTO tenant (name) VALUES ('research')");
    run(w->old, "INSERT INTO model (tenant_id, name) VALUES (1, 'digits')");
    run(w->old,
        "INSERT INTO model_version (model_id, version, state, digest, package) SELECT 1, v, "
        "'READY', repeat('a', 64), 'p' FROM generate_series(1, 3) AS v");
    run(w->old,
        "INSERT INTO model_alias (model_id, name, targets, changed_by) VALUES (1, 'stable', "
        "'[{\"version\": 1, \"weight\": 1}]', 'k')");
    assert_ok(catalog_new(0, &w->catalog, NULL));
    assert_ok(live_new(&API_CONF_TABLE, &w->conf, &w->live, NULL));
    snprintf(w->dir, sizeof(w->dir), "/tmp/shunt-failover.%d", (int)getpid());
    shell(MAKE_STANDBY, w->dir);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    shell(REMOVE, w->dir);
    catalog_free(w->catalog);
    live_free(w->live);
    db_free(w->old);
    db_free(w->new);
    free(w);
    return 0;
}

/* The version that the alias stands for, as the API has it after a look at db. */
static int64_t stands_for(struct world *w, struct db *db)
{
    struct cat_table *t;
    int64_t version;

    assert_ok(catalog_refresh(w->catalog, db, NULL));
    t = catalog_get(w->catalog);
    version = cat_alias(t, "research", "digits", "stable")->now.list[0].version;
    catalog_put(t);
    return version;
}

static int64_t limit_now(struct world *w, struct db *db)
{
    assert_ok(live_refresh(w->live, db, NULL));
    return w->conf.max_connections_per_key;
}

static void change(struct db *db, const char *version, const char *limit)
{
    char sql[256];

    snprintf(sql, sizeof(sql),
             "UPDATE model_alias SET row_version = row_version + 1, targets = '[{\"version\": %s, "
             "\"weight\": 1}]'",
             version);
    run(db, sql);
    snprintf(sql, sizeof(sql),
             "INSERT INTO config (name, value) VALUES ('max-connections-per-key', '%s') ON "
             "CONFLICT (name) DO UPDATE SET value = excluded.value",
             limit);
    run(db, sql);
    run(db, "UPDATE config_version SET row_version = row_version + 1");
}

/* The copy leads from now on; w->new is connected to it. */
static void promote(struct world *w)
{
    shell(PROMOTE, w->dir);
    snprintf(w->url, sizeof(w->url), "postgresql://shunt@/postgres?host=%s", w->dir);
    assert_ok(db_new(w->url, "test_failover", &w->new, NULL));
    db__be_patient(w->new, PATIENCE);
}

static void what_a_lost_commit_said_is_forgotten(void **state)
{
    struct world *w = *state;

    change(w->old, "2", "22"); /* the copy lacks it */
    assert_int_equal(stands_for(w, w->old), 2);
    assert_int_equal(limit_now(w, w->old), 22);
    promote(w);
    /* The same numbers as the lost ones. */
    change(w->new, "3", "33");
    assert_int_equal(stands_for(w, w->new), 3);
    assert_int_equal(limit_now(w, w->new), 33);
    /* One of our connections may still be with the old one. */
    assert_int_equal(stands_for(w, w->old), 2);
    assert_int_equal(stands_for(w, w->new), 3);
}

static void numbers_that_went_back_are_believed(void **state)
{
    struct world *w = *state;

    change(w->old, "2", "22");
    change(w->old, "1", "11");
    assert_int_equal(stands_for(w, w->old), 1);
    assert_int_equal(limit_now(w, w->old), 11);
    promote(w);
    change(w->new, "3", "33");
    assert_int_equal(stands_for(w, w->new), 3);
    assert_int_equal(limit_now(w, w->new), 33);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_a_lost_commit_said_is_forgotten, set_up, tear_down),
        cmocka_unit_test_setup_teardown(numbers_that_went_back_are_believed, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
