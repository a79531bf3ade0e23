/* db_test.h - what the tests with a database share: statements that run once, an empty schema.
 *
 * They need DATABASE_URL of a throw-away PostgreSQL: `make db-tests`, or tests/pg.sh run BINARY.
 */
#ifndef SH_TESTS_DB_DB_TEST_H
#define SH_TESTS_DB_DB_TEST_H

#include "common/db_int.h"
#include "common/mem.h"
#include "tests/unit/sh_test.h"

/* A machine that is busy is no failure: the usual limits are for tests of the limits alone. */
#define PATIENCE 60

static inline struct db *open_db(const char *name)
{
    const char *url = getenv("DATABASE_URL");
    struct db *db = NULL;

    assert_non_null(url);
    assert_ok(db_new(url, name, &db, NULL));
    db__be_patient(db, PATIENCE);
    return db;
}

/* *out: OWNED, db_res_free(). A statement is kept by its connection, so it has to stay. */
static inline struct db_res *query(struct db *db, const char *sql)
{
    static struct db_stmt kept[512];
    static char names[SH_ARRAY_LEN(kept)][16];
    static size_t n;
    struct db_res *r = NULL;
    struct sh_err err = {0};

    assert_true(n < SH_ARRAY_LEN(kept));
    snprintf(names[n], sizeof(names[n]), "once%zu", n);
    kept[n] = (struct db_stmt){names[n], sql, 0};
    assert_ok_err(db_exec(db, &kept[n], NULL, &r, &err), &err);
    n++;
    return r;
}

static inline void run(struct db *db, const char *sql)
{
    db_res_free(query(db, sql));
}

/* The first column of the first row; -1: there is no row. */
static inline int64_t number(struct db *db, const char *sql)
{
    struct db_res *r = query(db, sql);
    int64_t v = db_rows(r) ? db_i64(r, 0, 0, -1) : -1;

    db_res_free(r);
    return v;
}

static inline void make_empty(struct db *db)
{
    run(db, "DROP SCHEMA public CASCADE");
    run(db, "CREATE SCHEMA public");
}

static inline void migrate(struct db *db)
{
    struct sh_err err = {0};
    int applied = 0;

    assert_ok_err(db_migrate(db, "migrations", &applied, &err), &err);
}

#endif
