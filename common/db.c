/* db.c - connections, statements and transactions over libpq's non-blocking calls.
 *
 * The blocking calls of libpq have no time limit: a stopped server or a lost host would hold the
 * caller for minutes. So every exchange is "send, then poll() until the deadline". A missed
 * deadline leaves the connection in an unknown state, so it is closed.
 */
#include "common/db.h"

#include "common/clock.h"
#include "common/db_int.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CALL_MS 2000
/* The server's own limits end first, with room for a busy host, so that a slow statement does not
 * cost the connection. GMT is the zone that PostgreSQL knows without a time zone database. Our
 * statements take milliseconds; compiling one that looks dear because it names many partitions
 * takes hundreds. */
#define STATEMENT_MS 1500
#define LOCK_MS 1000
#define SESSION_SETUP                                                             \
    "SET statement_timeout = %d; SET lock_timeout = %d; "                         \
    "SET idle_in_transaction_session_timeout = 10000; SET TimeZone = 'GMT'; "     \
    "SET DateStyle = 'ISO'; SET client_min_messages = 'warning'; SET jit = off; " \
    "SET enable_seqscan = %s"
#define RETRY_MIN_MS 100
#define RETRY_MAX_MS 2000
#define TX_TRIES 5
#define MAX_STATEMENTS 4096

struct db {
    PGconn *conn; /* NULL if not connected */
    char *url, *app;
    const struct db_stmt **prepared; /* on this connection */
    size_t n_prepared, prepared_cap;
    uint64_t generation;
    int64_t limit_ms;
    int patience;                  /* times all limits; 1 but in tests */
    int64_t tried_ns;              /* the last attempt to connect began */
    int64_t retry_at_ns, retry_ms; /* no new attempt before; see must_pause() */
    char down_detail[256];         /* why the last attempt failed */
    struct db_news *news;          /* BORROWED; NULL: none */
    char sqlstate[6];
    bool by_index; /* db_by_index() */
    bool in_tx;
    bool rehearses; /* inside db_rehearse() and db_undo(); in_tx is set too */
    bool is_around; /* inside db_tx_around(); in_tx is set too */
    int tx_rc;      /* the failure that aborted the transaction on the server */
};

/* ---------------------------------------------------------------- connection */

static void ignore_notice(void *arg, const PGresult *r)
{
    (void)arg;
    (void)r;
}

static void disconnect(struct db *db)
{
    PQfinish(db->conn); /* NULL is allowed */
    db->conn = NULL;
    db->n_prepared = 0;
}

static int lost(struct db *db, struct sh_err *err, const char *detail)
{
    int rc = SH_FAIL(err, SH_E_DBDOWN, "the connection to the database is lost");

    if (err && err->rc == rc && !err->detail[0])
        sh_err_detail(err, "%s", detail);
    disconnect(db);
    return rc;
}

/* Waits until the socket is ready for `events`. Returns 0 when the time is over. */
static int wait_socket(PGconn *conn, short events, int64_t end_ns)
{
    struct pollfd p = {.fd = PQsocket(conn), .events = events};
    int64_t left_ns;
    int n;

    do {
        left_ns = sh_clock_until(end_ns);
        n = poll(&p, 1, (int)SH_MIN(sh_ms_up(left_ns), INT64_C(3600000)));
    } while (n < 0 && errno == EINTR);
    return n;
}

/* Returns false with the reason in db->down_detail. */
static bool finish_connect(struct db *db, PGconn *conn, int64_t end_ns)
{
    PostgresPollingStatusType s = PGRES_POLLING_WRITING;

    while (s == PGRES_POLLING_WRITING || s == PGRES_POLLING_READING) {
        if (wait_socket(conn, s == PGRES_POLLING_READING ? POLLIN : POLLOUT, end_ns) <= 0) {
            sh_strlcpy(db->down_detail, "no answer in time", sizeof(db->down_detail));
            return false;
        }
        s = PQconnectPoll(conn);
    }
    if (s == PGRES_POLLING_OK && PQsetnonblocking(conn, 1) == 0)
        return true;
    sh_strlcpy(db->down_detail, PQerrorMessage(conn), sizeof(db->down_detail));
    return false;
}

static PGconn *open_connection(struct db *db, int64_t end_ns)
{
    const char *const keys[] = {"dbname", "application_name", "client_encoding", NULL};
    const char *const values[] = {db->url, db->app, "UTF8", NULL};
    PGconn *conn = PQconnectStartParams(keys, values, 1);

    db->down_detail[0] = '\0';
    if (conn && PQstatus(conn) != CONNECTION_BAD && finish_connect(db, conn, end_ns)) {
        PQsetNoticeReceiver(conn, ignore_notice, NULL);
        return conn;
    }
    if (!db->down_detail[0])
        sh_strlcpy(db->down_detail, conn ? PQerrorMessage(conn) : "no memory for a connection",
                   sizeof(db->down_detail));
    PQfinish(conn);
    return NULL;
}

static int fail_down(struct db *db, struct sh_err *err)
{
    int rc = SH_FAIL(err, SH_E_DBDOWN, "the database is not reachable");

    if (err && err->rc == rc && !err->detail[0])
        sh_err_detail(err, "%s", db->down_detail);
    return rc;
}

static int run_script(struct db *db, const char *what, const char *sql, int64_t end_ns,
                      struct sh_err *err);

/* Where another one has connected since the last attempt there is no reason to wait: else a thread
 * would say that the database cannot be reached while the next one serves from it. */
static bool must_pause(const struct db *db, int64_t now_ns)
{
    return now_ns < db->retry_at_ns &&
           (!db->news || atomic_load(&db->news->reached_ns) <= db->tried_ns);
}

static int connect_now(struct db *db, int64_t end_ns, struct sh_err *err)
{
    int64_t now_ns = sh_clock_ns();
    char setup[sizeof(SESSION_SETUP) + 32];
    int rc;

    if (must_pause(db, now_ns))
        return fail_down(db, err);
    db->tried_ns = now_ns;
    snprintf(setup, sizeof(setup), SESSION_SETUP, STATEMENT_MS * db->patience,
             LOCK_MS * db->patience, db->by_index ? "off" : "on");
    db->conn = open_connection(db, SH_MIN(end_ns, now_ns + SH_MS(CALL_MS * db->patience)));
    rc = db->conn ? run_script(db, "session settings", setup, end_ns, err) : fail_down(db, err);
    if (rc) {
        disconnect(db);
        db->retry_ms = SH_MAX(SH_MIN(db->retry_ms * 2, RETRY_MAX_MS), RETRY_MIN_MS);
        db->retry_at_ns = sh_clock_ns() + SH_MS(db->retry_ms);
        return rc;
    }
    db->retry_ms = 0;
    db->generation++;
    if (db->news)
        atomic_store(&db->news->reached_ns, sh_clock_ns());
    return SH_OK;
}

/* A server that was restarted since the last call said goodbye and closed the socket. Seen here, it
 * costs a new connection and no failure. Two reads: first the goodbye, then the end of file. */
static bool is_conn_stale(struct db *db)
{
    for (int i = 0; i < 2 && wait_socket(db->conn, POLLIN, 0) > 0; i++)
        if (!PQconsumeInput(db->conn) || PQstatus(db->conn) == CONNECTION_BAD)
            return true;
    return false;
}

static int ensure_connected(struct db *db, int64_t end_ns, struct sh_err *err)
{
    if (db->conn && is_conn_stale(db)) {
        if (db->in_tx)
            return lost(db, err, PQerrorMessage(db->conn));
        disconnect(db);
    }
    if (db->conn)
        return SH_OK;
    if (db->in_tx)
        return SH_FAIL(err, SH_E_DBDOWN,
                       "the connection to the database was lost inside the transaction");
    return connect_now(db, end_ns, err);
}

/* ---------------------------------------------------------------- failures */

static int classify(const char *state)
{
    static const struct {
        const char *prefix;
        int rc;
    } MAP[] = {
        {"40001", SH_E_DBSOFT}, /* serialization failure */
        {"40P01", SH_E_DBSOFT}, /* deadlock */
        {"23505", SH_E_CONFLICT}, {"23503", SH_E_CONFLICT},    {"23001", SH_E_CONFLICT},
        {"23P01", SH_E_CONFLICT}, {"23514", SH_E_INVALID},     {"23502", SH_E_INVALID},
        {"22", SH_E_INVALID},    /* a value that does not fit its type */
        {"55P03", SH_E_TIMEOUT}, /* lock_timeout */
        {"57014", SH_E_TIMEOUT}, /* statement_timeout */
        {"53100", SH_E_DISKFULL}, {"53200", SH_E_UNAVAILABLE}, {"08", SH_E_DBDOWN},
        {"57P", SH_E_DBDOWN},     {"53300", SH_E_DBDOWN}, /* too many connections */
        {"25P03", SH_E_DBDOWN}, /* idle in transaction: the server hung up */
        {"25006", SH_E_DBDOWN}, /* read only: this server is no longer the primary */
        {"SH001", SH_E_QUOTA},  /* ours, as all of SH: see fail_result() */
        {"SH002", SH_E_CONFLICT},
    };

    for (size_t i = 0; i < SH_ARRAY_LEN(MAP); i++)
        if (strncmp(state, MAP[i].prefix, strlen(MAP[i].prefix)) == 0)
            return MAP[i].rc;
    return SH_E_BUG;
}

static const char *words_of_rc(int rc)
{
    switch (rc) {
    case SH_E_DBSOFT:
        return "the database could not order two transactions, try again";
    case SH_E_CONFLICT:
        return "the database refused the change: it conflicts with a row that exists or is missing";
    case SH_E_INVALID:
        return "the database refused a value";
    case SH_E_TIMEOUT:
        return "the database did not finish in time";
    case SH_E_DBDOWN:
        return "the database is not available";
    case SH_E_DISKFULL:
        return "the database has no space left";
    case SH_E_UNAVAILABLE:
        return "the database is out of memory";
    default:
        return "the database rejected a statement";
    }
}

/* 0 if the server gave no position. */
static int error_line(const PGresult *r, const char *sql)
{
    const char *pos = PQresultErrorField(r, PG_DIAG_STATEMENT_POSITION);
    int64_t n = 0;
    int line = 1;

    if (!pos || sh_parse_i64(pos, 1, INT32_MAX, "position", &n, NULL))
        return 0;
    for (; --n > 0 && *sql; sql++) /* counts bytes where the server counts characters: close */
        line += *sql == '\n';
    return line;
}

static const char *error_field(const PGresult *r, int code)
{
    const char *s = PQresultErrorField(r, code);

    return s ? s : "";
}

static int fail_result(struct db *db, const char *what, const char *sql, const PGresult *r,
                       struct sh_err *err)
{
    const char *state = error_field(r, PG_DIAG_SQLSTATE);
    int rc;

    if (!state[0] || PQstatus(db->conn) == CONNECTION_BAD) {
        sh_strlcpy(db->sqlstate, state, sizeof(db->sqlstate));
        return lost(db, err, PQerrorMessage(db->conn));
    }
    rc = classify(state);
    sh_strlcpy(db->sqlstate, state, sizeof(db->sqlstate));
    if (!err || err->rc == SH_OK) {
        /* What our triggers raise says it in words for people. */
        SH_FAIL(err, rc, "%s",
                strncmp(state, "SH", 2) == 0 ? error_field(r, PG_DIAG_MESSAGE_PRIMARY)
                                             : words_of_rc(rc));
        sh_err_detail(err, "%s line %d: SQLSTATE %s: %s; %s", what, error_line(r, sql), state,
                      error_field(r, PG_DIAG_MESSAGE_PRIMARY),
                      error_field(r, PG_DIAG_MESSAGE_DETAIL));
    }
    if (db->in_tx && db->tx_rc == SH_OK)
        db->tx_rc = rc;
    if (rc == SH_E_DBDOWN)
        disconnect(db);
    return rc;
}

/* ---------------------------------------------------------------- one exchange */

static int fail_deadline(struct db *db, const char *what, struct sh_err *err)
{
    char detail[128];

    snprintf(detail, sizeof(detail), "%s: no answer within %lld ms", what, (long long)db->limit_ms);
    return lost(db, err, detail);
}

/* Sends what libpq has buffered and waits until a result can be taken without blocking. */
static int wait_result(struct db *db, const char *what, int64_t end_ns, struct sh_err *err)
{
    for (;;) {
        int unsent = PQflush(db->conn);

        if (unsent < 0)
            return lost(db, err, PQerrorMessage(db->conn));
        if (!unsent && !PQisBusy(db->conn))
            return SH_OK;
        if (wait_socket(db->conn, (short)(POLLIN | (unsent ? POLLOUT : 0)), end_ns) <= 0)
            return fail_deadline(db, what, err);
        if (!PQconsumeInput(db->conn))
            return lost(db, err, PQerrorMessage(db->conn));
    }
}

/* Takes all results of what was sent; *out (may be NULL) is the last one. After a failure of the
 * statement the connection is still usable, unless db->conn is NULL. */
static int collect_result(struct db *db, const char *what, const char *sql, int64_t end_ns,
                          PGresult **out, struct sh_err *err)
{
    PGresult *last = NULL, *r;
    int rc = SH_OK, wait_rc;

    for (;;) {
        wait_rc = wait_result(db, what, end_ns, err);
        if (wait_rc) {
            PQclear(last);
            return wait_rc;
        }
        r = PQgetResult(db->conn);
        if (!r)
            break;
        PQclear(last);
        last = r;
        switch (PQresultStatus(r)) {
        case PGRES_COMMAND_OK:
        case PGRES_TUPLES_OK:
        case PGRES_EMPTY_QUERY:
            break;
        case PGRES_FATAL_ERROR:
            rc = fail_result(db, what, sql, r, err);
            break;
        default: /* COPY: nobody here would feed it */
            rc = SH_FAIL(err, SH_E_BUG, "a database statement is of an unexpected kind");
            disconnect(db);
        }
        if (!db->conn)
            break;
    }
    if (rc || !out)
        PQclear(last);
    else
        *out = last;
    return rc;
}

static int64_t deadline(const struct db *db)
{
    return sh_clock_ns() + SH_MS(db->limit_ms);
}

static int run_script(struct db *db, const char *what, const char *sql, int64_t end_ns,
                      struct sh_err *err)
{
    if (!PQsendQuery(db->conn, sql))
        return lost(db, err, PQerrorMessage(db->conn));
    return collect_result(db, what, sql, end_ns, NULL, err);
}

int db__script(struct db *db, const char *what, const char *sql, struct sh_err *err)
{
    int64_t end_ns = deadline(db);
    int rc = ensure_connected(db, end_ns, err);

    return rc ? rc : run_script(db, what, sql, end_ns, err);
}

static int prepare_stmt(struct db *db, const struct db_stmt *s, int64_t end_ns, struct sh_err *err)
{
    int rc;

    for (size_t i = 0; i < db->n_prepared; i++)
        if (db->prepared[i] == s)
            return SH_OK;
    rc = sh_grow(&db->prepared, &db->prepared_cap, db->n_prepared + 1, sizeof(*db->prepared),
                 MAX_STATEMENTS, "prepared statements", err);
    if (rc)
        return rc;
    if (!PQsendPrepare(db->conn, s->name, s->sql, s->n_params, NULL))
        return lost(db, err, PQerrorMessage(db->conn));
    rc = collect_result(db, s->name, s->sql, end_ns, NULL, err);
    if (!rc)
        db->prepared[db->n_prepared++] = s;
    return rc;
}

static int exec_once(struct db *db, const struct db_stmt *s, const char *const *params,
                     PGresult **out, struct sh_err *err)
{
    int64_t end_ns = deadline(db);
    int rc = ensure_connected(db, end_ns, err);

    if (!rc)
        rc = prepare_stmt(db, s, end_ns, err);
    if (rc)
        return rc;
    if (!PQsendQueryPrepared(db->conn, s->name, s->n_params, params, NULL, NULL, 0))
        return lost(db, err, PQerrorMessage(db->conn));
    return collect_result(db, s->name, s->sql, end_ns, out, err);
}

int db_exec(struct db *db, const struct db_stmt *s, const char *const *params, struct db_res **out,
            struct sh_err *err)
{
    int64_t start_ns = sh_clock_ns();
    struct db_res *res = NULL;
    PGresult *r = NULL;
    int rc;

    if (out)
        *out = NULL;
    db->sqlstate[0] = '\0';
    /* Behind a failed statement the server refuses everything; the cause is the earlier failure. */
    if (db->in_tx && db->tx_rc)
        return SH_FAIL(err, db->tx_rc, "the transaction has already failed: %s",
                       words_of_rc(db->tx_rc));
    if (out) {
        res = calloc(1, sizeof(*res));
        if (!res)
            return SH_FAIL(err, SH_E_NOMEM, "could not allocate a database result");
    }
    rc = exec_once(db, s, params, &r, err);
    sh_metric_observe(M_shunt_db_query_seconds, SH_LABELS(s->name),
                      (double)(sh_clock_ns() - start_ns) / 1e9);
    if (rc || !out) {
        PQclear(r);
        free(res);
        return rc;
    }
    res->r = r;
    *out = res;
    return SH_OK;
}

/* ---------------------------------------------------------------- transactions */

static int begin_tx(struct db *db, struct sh_err *err)
{
    int rc = db__script(db, "BEGIN", "BEGIN", err);

    db->in_tx = !rc;
    db->tx_rc = SH_OK;
    return rc;
}

/* COMMIT after an error reports success with the tag ROLLBACK, so look. */
static int commit_tx(struct db *db, const char *name, struct sh_err *err)
{
    int64_t end_ns = deadline(db);
    PGresult *r = NULL;
    int rc = ensure_connected(db, end_ns, err);

    if (rc)
        return rc;
    if (!PQsendQuery(db->conn, "COMMIT"))
        return lost(db, err, PQerrorMessage(db->conn));
    rc = collect_result(db, "COMMIT", "COMMIT", end_ns, &r, err);
    if (!rc && strcmp(PQcmdStatus(r), "COMMIT") != 0) {
        rc = db->tx_rc ? db->tx_rc : SH_E_BUG;
        SH_FAIL(err, rc, "the transaction was undone: %s", words_of_rc(rc));
        sh_err_detail(err, "transaction %s: COMMIT of an aborted transaction (tag %s)", name,
                      PQcmdStatus(r));
    }
    PQclear(r);
    return rc;
}

static void rollback(struct db *db)
{
    bool was_in_tx = db->in_tx;

    db->in_tx = false;
    db->tx_rc = SH_OK;
    if (!was_in_tx || !db->conn || PQtransactionStatus(db->conn) == PQTRANS_IDLE)
        return;
    if (run_script(db, "ROLLBACK", "ROLLBACK", deadline(db), NULL))
        disconnect(db); /* ends the transaction too */
}

/* 1, 2, 4 ... ms and as much again at random, so that two losers do not meet again. */
static void back_off_tx(int attempt)
{
    int64_t base_ns = SH_MS(1) << attempt;
    struct timespec t = {.tv_nsec = (long)(base_ns + sh_clock_ns() % base_ns)};

    nanosleep(&t, NULL);
}

/* Once. alone: without BEGIN and COMMIT. */
static int try_tx(struct db *db, const char *name, bool alone, db_tx_fn *fn, const void *arg,
                  struct sh_err *err)
{
    int rc = alone ? SH_OK : begin_tx(db, err);

    if (!rc)
        rc = fn(db, arg, err);
    if (!rc && !alone)
        rc = commit_tx(db, name, err);
    if (rc && !alone)
        rollback(db);
    db->in_tx = false;
    return rc;
}

static int repeat_tx(struct db *db, const char *name, bool alone, db_tx_fn *fn, const void *arg,
                     struct sh_err *err)
{
    struct sh_err one = {0};
    int rc = SH_E_DBSOFT;

    if (db->rehearses || (db->is_around && db->in_tx))
        return fn(db, arg, err);
    if (db->in_tx)
        return SH_FAIL(err, SH_E_BUG, "transaction %s began inside another one", name);
    for (int attempt = 0; rc == SH_E_DBSOFT && attempt < TX_TRIES; attempt++) {
        one = (struct sh_err){0}; /* each attempt has its own first failure */
        if (attempt > 0)
            back_off_tx(attempt - 1);
        rc = try_tx(db, name, alone, fn, arg, &one);
    }
    if (!rc)
        return SH_OK;
    if (one.rc == SH_OK) /* the body failed without saying why */
        SH_FAIL(&one, rc, "transaction %s failed: %s", name, sh_rc_text(rc));
    sh_err_copy(err, &one);
    return rc;
}

int db_tx(struct db *db, const char *name, db_tx_fn *fn, const void *arg, struct sh_err *err)
{
    return repeat_tx(db, name, false, fn, arg, err);
}

int db_tx_alone(struct db *db, const char *name, db_tx_fn *fn, const void *arg, struct sh_err *err)
{
    return repeat_tx(db, name, true, fn, arg, err);
}

int db_tx_around(struct db *db, const char *name, db_tx_fn *fn, const void *arg, struct sh_err *err)
{
    int rc;

    db->is_around = true;
    rc = db_tx(db, name, fn, arg, err);
    db->is_around = false;
    return rc;
}

int db_rehearse(struct db *db, struct sh_err *err)
{
    int rc = begin_tx(db, err);

    db->rehearses = !rc;
    return rc;
}

void db_undo(struct db *db)
{
    if (!db->rehearses)
        return;
    db->rehearses = false;
    rollback(db);
}

bool db_in_transaction(const struct db *db)
{
    return db->conn && PQtransactionStatus(db->conn) == PQTRANS_INTRANS;
}

/* ---------------------------------------------------------------- life */

int db_new(const char *url, const char *app, struct db **out, struct sh_err *err)
{
    PQconninfoOption *parsed = NULL;
    struct db *db = NULL;
    int rc = SH_OK;

    *out = NULL;
    parsed = PQconninfoParse(url, NULL); /* its message may quote a password: not passed on */
    if (!parsed) {
        rc = SH_FAIL(err, SH_E_INVALID,
                     "the database address is not \"postgresql://user@host/name\" or a list of "
                     "keyword=value");
        goto out;
    }
    db = calloc(1, sizeof(*db));
    if (!db) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a database connection");
        goto out;
    }
    db__be_patient(db, 1);
    rc = sh_strdup(url, &db->url, err);
    if (!rc)
        rc = sh_strdup(app, &db->app, err);
    if (rc)
        goto out;
    *out = db;
    db = NULL;
out:
    db_free(db);
    PQconninfoFree(parsed);
    return rc;
}

void db_share(struct db *db, struct db_news *news)
{
    db->news = news;
}

void db_by_index(struct db *db)
{
    db->by_index = true;
}

void db_free(struct db *db)
{
    if (!db)
        return;
    disconnect(db);
    free(db->prepared);
    free(db->url);
    free(db->app);
    free(db);
}

void db__set_limit(struct db *db, int64_t limit_ms)
{
    db->limit_ms = limit_ms > 0 ? limit_ms : CALL_MS * db->patience;
}

void db__be_patient(struct db *db, int factor)
{
    db->patience = factor;
    db__set_limit(db, 0);
    disconnect(db);
}

void db__disconnect(struct db *db)
{
    disconnect(db);
}

static int check_schema(struct db *db, int want, struct sh_err *err)
{
    static const struct db_stmt VERSION = {
        "schema_version", "SELECT coalesce(max(version), 0) FROM schema_migration", 0};
    struct sh_err one = {0};
    struct db_res *r = NULL;
    int64_t have = 0;
    int rc = db_exec(db, &VERSION, NULL, &r, &one);

    if (rc && strcmp(db->sqlstate, "42P01") != 0) /* 42P01: no such table, so version 0 */
        return sh_err_copy(err, &one);
    have = db_i64(r, 0, 0, 0);
    db_res_free(r);
    if (have < want)
        return SH_FAIL(err, SH_E_CONFLICT,
                       "the database schema has version %lld, this program needs %d: run the "
                       "migration first (shunt-scheduler --migrate-only)",
                       (long long)have, want);
    if (have > want)
        return SH_FAIL(err, SH_E_CONFLICT,
                       "the database schema has version %lld, this program knows %d: install the "
                       "newer release",
                       (long long)have, want);
    return SH_OK;
}

int db_ready(struct db *db, int schema_want, struct sh_err *err)
{
    static const struct db_stmt PING = {"ping", "SELECT 1", 0};

    if (schema_want > 0)
        return check_schema(db, schema_want, err);
    return db_exec(db, &PING, NULL, NULL, err);
}

int db_fd(const struct db *db)
{
    return db->conn ? PQsocket(db->conn) : -1;
}

uint64_t db_generation(const struct db *db)
{
    return db->generation;
}

bool db_notification(struct db *db, char *channel, char *payload)
{
    PGnotify *n;

    if (!db->conn)
        return false;
    n = PQnotifies(db->conn);
    if (!n && (!PQconsumeInput(db->conn) || PQstatus(db->conn) == CONNECTION_BAD)) {
        lost(db, NULL, "");
        return false;
    }
    if (!n)
        n = PQnotifies(db->conn);
    if (!n)
        return false;
    sh_strlcpy(channel, n->relname, 64);
    sh_strlcpy(payload, n->extra, 64);
    PQfreemem(n);
    return true;
}
