/* db_migrate.c - applies the files NNNN_name.sql of a folder, each once, in order.
 *
 * What ran is recorded in schema_migration with the SHA-256 of the file. A file that has changed
 * since, or is missing, means that this folder is not the history of this database; it is refused
 * before anything is touched. The whole run holds an advisory lock in a session of its own; the
 * lock and the longer time limits end with it.
 */
#include "common/db_int.h"
#include "common/hash.h"
#include "common/io.h"
#include "common/mem.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILES 9999
#define MAX_FILE_BYTES ((size_t)4 << 20)
#define STEP_MS INT64_C(600000)
/* Longer than lock_timeout below, so that the server answers first. */
#define LOCK_SETTINGS                                                          \
    "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; " \
    "SET lock_timeout = 60000"

struct migration {
    int version;
    char name[128]; /* of the file */
    char sha256[SH_SHA256_HEX];
    char *sql; /* OWNED */
};

struct plan {
    struct migration *list; /* OWNED; list[i].version is i + 1 */
    size_t n, cap;
};

static void free_plan(struct plan *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->list[i].sql);
    free(p->list);
    *p = (struct plan){0};
}

/* ---------------------------------------------------------------- files */

static int is_sql(const struct dirent *e)
{
    size_t n = strlen(e->d_name);

    return n > 4 && e->d_name[0] != '.' && strcmp(e->d_name + n - 4, ".sql") == 0;
}

static int by_file_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int check_name(const char *name, size_t index, struct sh_err *err)
{
    bool good =
        strlen(name) < sizeof(((struct migration *)0)->name) && strlen(name) > 9 && name[4] == '_';
    int number = 0;

    for (int i = 0; good && i < 4; i++) {
        good = isdigit((unsigned char)name[i]);
        number = number * 10 + (name[i] - '0');
    }
    if (!good)
        return SH_FAIL(err, SH_E_INVALID, "the migration \"%.100s\" must be named NNNN_name.sql",
                       name);
    if ((size_t)number != index + 1)
        return SH_FAIL(err, SH_E_INVALID,
                       "the migration \"%.100s\" should have number %04zu: numbers start at 0001 "
                       "and have no gaps",
                       name, index + 1);
    return SH_OK;
}

/* *out: OWNED, free(). */
static int read_migration(int dir_fd, const char *name, char **out, size_t *len, struct sh_err *err)
{
    struct stat st;
    char *text = NULL;
    int fd = -1, rc = SH_OK;

    fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not open the migration %s", name);
        goto out;
    }
    if (!S_ISREG(st.st_mode) || (size_t)st.st_size > MAX_FILE_BYTES) {
        rc = SH_FAIL(err, SH_E_INVALID, "the migration %s is not a file of at most %zu bytes", name,
                     MAX_FILE_BYTES);
        goto out;
    }
    text = calloc(1, (size_t)st.st_size + 1);
    if (!text) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate memory for the migration %s", name);
        goto out;
    }
    if (sh_read_all(fd, text, (size_t)st.st_size) != st.st_size) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not read the migration %s", name);
        goto out;
    }
    *len = (size_t)st.st_size;
    *out = text;
    text = NULL;
out:
    free(text);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* A file that ends the transaction itself would be applied without its record. */
static int check_text(const char *name, const char *sql, size_t len, struct sh_err *err)
{
    static const char *const BANNED[] = {"BEGIN;", "COMMIT;", "ROLLBACK;", "START TRANSACTION;"};
    const char *line = sql;

    if (strlen(sql) != len)
        return SH_FAIL(err, SH_E_INVALID, "the migration %s contains a zero byte", name);
    while (line) {
        line += strspn(line, " \t\r\n");
        for (size_t i = 0; i < SH_ARRAY_LEN(BANNED); i++)
            if (strncasecmp(line, BANNED[i], strlen(BANNED[i])) == 0)
                return SH_FAIL(err, SH_E_INVALID,
                               "the migration %s contains %s remove it: the runner opens and "
                               "commits the transaction",
                               name, BANNED[i]);
        line = strchr(line, '\n');
    }
    return SH_OK;
}

static int add_migration_file(struct plan *p, int dir_fd, const char *name, struct sh_err *err)
{
    uint8_t digest[SH_SHA256_BYTES];
    struct migration *m;
    size_t len = 0;
    int rc;

    rc = check_name(name, p->n, err);
    if (!rc)
        rc = sh_grow(&p->list, &p->cap, p->n + 1, sizeof(*p->list), MAX_FILES, "migrations", err);
    if (rc)
        return rc;
    m = &p->list[p->n];
    m->version = (int)p->n + 1;
    sh_strlcpy(m->name, name, sizeof(m->name));
    rc = read_migration(dir_fd, name, &m->sql, &len, err);
    if (rc)
        return rc;
    p->n++; /* free_plan() frees the text from now on */
    rc = check_text(name, m->sql, len, err);
    if (!rc)
        rc = sh_sha256(m->sql, len, digest, err);
    if (!rc)
        sh_hex(digest, sizeof(digest), m->sha256);
    return rc;
}

static int read_plan(const char *dir, struct plan *p, struct sh_err *err)
{
    struct dirent **names = NULL;
    int n = 0, dir_fd = -1, rc = SH_OK;

    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd >= 0)
        n = scandirat(dir_fd, ".", &names, is_sql, by_file_name);
    if (dir_fd < 0 || n < 0) {
        n = 0;
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not read the folder of migrations %s", dir);
        goto out;
    }
    if (n == 0)
        rc = SH_FAIL(err, SH_E_INVALID, "the folder %s holds no migration (NNNN_name.sql)", dir);
    for (int i = 0; i < n && !rc; i++)
        rc = add_migration_file(p, dir_fd, names[i]->d_name, err);
out:
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
    if (dir_fd >= 0)
        close(dir_fd);
    return rc;
}

/* ---------------------------------------------------------------- database */

static int lock_history(struct db *db, struct sh_err *err)
{
    static const struct db_stmt LOCK = {"migration_lock",
                                        "SELECT pg_advisory_lock(x'5368756e74'::bigint)", 0};
    struct sh_err one = {0};
    int rc;

    db__disconnect(db); /* a session of its own; see above */
    rc = db_ready(db, 0, err);
    if (rc)
        return rc;
    db__set_limit(db, STEP_MS);
    rc = db__script(db, "migration settings", LOCK_SETTINGS, err);
    if (rc)
        return rc;
    rc = db_exec(db, &LOCK, NULL, NULL, &one);
    if (rc == SH_E_TIMEOUT)
        return SH_FAIL(err, SH_E_TIMEOUT, "another migration is still running, try again later");
    if (rc)
        return sh_err_copy(err, &one);
    return db__script(db, "schema_migration",
                      "CREATE TABLE IF NOT EXISTS schema_migration ("
                      "version integer PRIMARY KEY CHECK (version > 0), "
                      "name text NOT NULL, sha256 text NOT NULL CHECK (length(sha256) = 64), "
                      "applied_at timestamptz NOT NULL DEFAULT now());"
                      "COMMENT ON TABLE schema_migration IS "
                      "'which migrations ran, with the SHA-256 of their files'",
                      err);
}

/* *n_applied: how many of the plan have run. Fails: SH_E_CONFLICT if the histories differ. */
static int check_history(struct db *db, const struct plan *p, size_t *n_applied, struct sh_err *err)
{
    static const struct db_stmt HISTORY = {
        "migration_history", "SELECT version, name, sha256 FROM schema_migration ORDER BY version",
        0};
    struct db_res *r = NULL;
    int rc = db_exec(db, &HISTORY, NULL, &r, err);

    for (size_t i = 0; i < db_rows(r) && !rc; i++) {
        const char *name = db_text(r, i, 1);

        if (i >= p->n || db_i64(r, i, 0, 0) != p->list[i].version)
            rc = SH_FAIL(err, SH_E_CONFLICT,
                         "the migration \"%s\" was applied to this database but its file is "
                         "missing: use the release that contains it",
                         name);
        else if (strcmp(db_text(r, i, 2), p->list[i].sha256) != 0)
            rc = SH_FAIL(err, SH_E_CONFLICT,
                         "the migration \"%s\" changed after it was applied: restore the file and "
                         "put the change into a new one",
                         p->list[i].name);
    }
    *n_applied = db_rows(r);
    db_res_free(r);
    return rc;
}

static int apply_migration(struct db *db, const void *arg, struct sh_err *err)
{
    static const struct db_stmt RECORD = {
        "migration_record",
        "INSERT INTO schema_migration (version, name, sha256) VALUES ($1, $2, $3)", 3};
    const struct migration *m = arg;
    char version[16];
    int rc;

    rc = db__script(db, m->name, m->sql, err);
    if (rc)
        return rc;
    if (!db_in_transaction(db))
        return SH_FAIL(err, SH_E_INVALID, "the migration %s ended the runner's transaction",
                       m->name);
    snprintf(version, sizeof(version), "%d", m->version);
    return db_exec(db, &RECORD, (const char *const[]){version, m->name, m->sha256}, NULL, err);
}

static int apply_rest(struct db *db, const struct plan *p, size_t first, int *applied,
                      struct sh_err *err)
{
    for (size_t i = first; i < p->n; i++) {
        struct sh_err one = {0};
        int rc = db_tx(db, p->list[i].name, apply_migration, &p->list[i], &one);

        if (rc) {
            SH_FAIL(err, rc, "the migration %s could not be applied: %s", p->list[i].name, one.msg);
            if (err && !err->detail[0])
                sh_err_detail(err, "%s", one.detail);
            return rc;
        }
        (*applied)++;
    }
    return SH_OK;
}

int db_migrate(struct db *db, const char *dir, int *applied, struct sh_err *err)
{
    struct plan p = {0};
    size_t n_applied = 0;
    int rc;

    *applied = 0;
    rc = read_plan(dir, &p, err);
    if (rc)
        goto out;
    rc = lock_history(db, err);
    if (!rc)
        rc = check_history(db, &p, &n_applied, err);
    if (!rc)
        rc = apply_rest(db, &p, n_applied, applied, err);
    db__set_limit(db, 0);
    db__disconnect(db);
out:
    free_plan(&p);
    return rc;
}
