/* db.h - the only user of libpq: connections, named statements, transactions.
 *
 * All SQL is in store files. Values are passed only as parameters, as text; statements are never
 * built from strings. A struct db belongs to one thread. Failures are SOFT (SH_E_DBSOFT: 40001,
 * 40P01: repeat), DOWN (SH_E_DBDOWN: unreachable, or connection lost; the next call reconnects) or
 * hard (SH_E_CONFLICT for unique and foreign keys, SH_E_INVALID for check constraints and bad
 * values, SH_E_BUG otherwise).
 *
 * No call takes longer than 2 s. A statement that exceeds its time limit, or waits too long for a
 * lock, fails with SH_E_TIMEOUT. After a failed connect further calls fail at once for a moment
 * (but see db_share). Inside a transaction a lost connection is not re-established: the rest of the
 * body fails.
 *
 * If a connection is lost during COMMIT the outcome is unknown: writes that a client can repeat
 * carry a token with a unique index.
 */
#ifndef SH_COMMON_DB_H
#define SH_COMMON_DB_H

#include "common/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct db;
struct db_res; /* the rows of one statement */

/* Does not connect yet. url: libpq URI or keyword string. app: application_name. */
int db_new(const char *url, const char *app, struct db **out, struct sh_err *err);
void db_free(struct db *db);
struct db_news { /* zeroed: no news */
    _Atomic int64_t reached_ns;
};
/* Connections that share news belong to one database: once one has connected, none of them goes on
 * failing at once. KEEPS news. */
void db_share(struct db *db, struct db_news *news);
/* Plans of its statements take an index wherever there is one: they are kept as long as the
 * connection, and one that was made while a table was nearly empty would read all of it for each
 * row that is looked for, until its statistics are gathered again. Before it connects. */
void db_by_index(struct db *db);
/* Connects if needed (at most 2 s) and checks the schema version (if schema_want > 0). Fails:
 * SH_E_CONFLICT: an unknown schema. */
int db_ready(struct db *db, int schema_want, struct sh_err *err);
int db_fd(const struct db *db); /* socket for LISTEN, -1 if not connected */
/* Increases with each new connection: after a change, LISTEN again and watch the new db_fd(). */
uint64_t db_generation(const struct db *db);
/* The next notification already received; false: none. channel and payload hold at least 64 bytes.
 * Call it after every statement too, whose answer may have brought one. Never blocks; notices a
 * lost connection (db_fd is then -1). */
bool db_notification(struct db *db, char *channel, char *payload);

/* A statement and its unique name (for metrics and errors). Prepared on first use in each
 * connection. KEPT, so make it static. */
struct db_stmt {
    const char *name, *sql;
    int n_params;
};

/* params: text, or NULL. *out: OWNED, db_res_free(); may be NULL if no rows are wanted. */
int db_exec(struct db *db, const struct db_stmt *s, const char *const *params, struct db_res **out,
            struct sh_err *err);
void db_res_free(struct db_res *r); /* NULL is allowed */
size_t db_rows(const struct db_res *r);
/* BORROWED until db_res_free; NULL for SQL NULL. */
const char *db_text(const struct db_res *r, size_t row, size_t col);
int64_t db_i64(const struct db_res *r, size_t row, size_t col, int64_t if_null);
double db_f64(const struct db_res *r, size_t row, size_t col, double if_null);
bool db_bool(const struct db_res *r, size_t row, size_t col);
size_t db_affected(const struct db_res *r);

/* Reads rows into structs by column names. `at`: offset in the struct. */
enum db_type { DB_I64, DB_I32, DB_U32, DB_U64, DB_F64, DB_BOOL, DB_TEXT };
struct db_field {
    const char *column;
    enum db_type type; /* DB_TEXT: const char *, BORROWED from the result; NULL for SQL NULL */
    size_t at;
    double if_null; /* for a number */
};
#define DB_MAX_FIELDS 64
/* Fills rows[db_rows(r)], each of row_bytes; leaves other members alone. Fails: SH_E_BUG: the
 * result has no such column. */
int db_read_rows(const struct db_res *r, const struct db_field *f, size_t n, size_t row_bytes,
                 void *rows, struct sh_err *err);

/* Runs fn inside a transaction; repeats it on SH_E_DBSOFT (5 tries, back-off). Because fn may run
 * again it must not reply, log success, or touch memory that outlives a rollback; hence the const.
 * COMMIT of an aborted transaction reports success with the tag ROLLBACK; db_tx() checks that. */
typedef int db_tx_fn(struct db *db, const void *arg, struct sh_err *err);
int db_tx(struct db *db, const char *name, db_tx_fn *fn, const void *arg, struct sh_err *err);
/* The same for an fn of which one statement writes, and nothing behind it may undo that: every
 * statement is a transaction by itself. Saves two round trips, during which the rows would stay
 * locked. */
int db_tx_alone(struct db *db, const char *name, db_tx_fn *fn, const void *arg, struct sh_err *err);

/* As db_tx(); a db_tx() inside fn is part of it and is not repeated by itself. */
int db_tx_around(struct db *db, const char *name, db_tx_fn *fn, const void *arg,
                 struct sh_err *err);

/* A rehearsal: everything executed from db_rehearse() to db_undo() happens in one transaction that
 * is always undone. A db_tx() in between is part of it and is not repeated; after a failed
 * statement the others fail with its code. db_undo() without a rehearsal does nothing. */
int db_rehearse(struct db *db, struct sh_err *err);
void db_undo(struct db *db);

/* Is a transaction of db_tx(), db_tx_around() or db_rehearse() open and healthy? */
bool db_in_transaction(const struct db *db);

/* Migrations: applies the files NNNN_name.sql of dir, in order, each in one transaction, under an
 * advisory lock, and records their SHA-256. Refuses if an applied file has changed or is missing.
 * *applied: how many ran. Only this function may take longer than 2 s. */
int db_migrate(struct db *db, const char *dir, int *applied, struct sh_err *err);

/* The environment that PostgreSQL's programs need to connect as db_new() does (command lines can be
 * read by everybody): "NAME=value", ending with NULL. OWNED: db_environment_free(). */
#define DB_ENV_MAX 48
int db_environment(const char *url, char *out[static DB_ENV_MAX], struct sh_err *err);
void db_environment_free(char *out[static DB_ENV_MAX]);

/* A macro's number as text, for a statement. */
#define DB_NUMBER(n) DB_NUMBER_(n)
#define DB_NUMBER_(n) #n

/* The schema that these programs know: the number of files in migrations/ when they were built. */
extern const int DB_SCHEMA_VERSION;

#endif
