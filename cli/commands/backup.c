/* backup.c - `shunt backup FILE`: a system's database and files in one file, while it runs. */
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/files/file.h"
#include "cli/local/backup_set.h"
#include "common/clock.h"
#include "common/db.h"
#include "common/io.h"
#include "common/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SNAPSHOTS 6           /* each a new one, while files go away between it and their links */
#define HEAD_BYTES (1u << 20) /* room for what is not counted: headers, the list of digests */

struct job {
    struct cli *c;
    struct state s;
    struct backup_db d;
    struct backup_set set;
    struct db *db;
    struct held held;
    struct progress bar;
    char *log; /* OWNED: for what pg_dump complains about */
    char *tmp; /* OWNED: the file on its way; NULL: standard output */
    int lock, up_lock, out;
    uint64_t done;
    int n_tries;
    bool again; /* with another snapshot */
};

/* ---------------------------------------------------------------- the database */

static bool is_running(const struct state *s)
{
    return state_pid(s, STATE_SUPERVISOR) > 0;
}

/* Which database the system has: as it says while it runs, else as `shunt up` would choose. */
static int find_url(struct job *j, const char **url, struct sh_err *err)
{
    const char *given = plan_db_url(j->c->conf);
    json_t *system = NULL;
    const char *kind;
    int rc = is_running(&j->s) ? state_read_system(&j->s, &system, err) : SH_OK;

    kind = sh_json_text(system, "database");
    *url = strcmp(kind, "private") == 0 ? NULL : given;
    if (!rc && strcmp(kind, "given") == 0 && !*url)
        rc = SH_FAIL(
            err, SH_E_INVALID,
            "this system's database is not in its folder: give --db-url or DATABASE_URL, as "
            "it was given to `shunt up`");
    json_decref(system);
    return rc;
}

static int open_private(struct job *j, struct sh_err *err)
{
    bool found;
    int rc = is_running(&j->s) ? SH_OK : state_lock(&j->s, &j->up_lock, err);

    if (!rc && j->up_lock >= 0)
        rc = super_sweep(&j->s, &j->bar, &found, err);
    if (!rc && !state_has(&j->s, "pg/data/PG_VERSION") && !state_had_system(&j->s))
        return SH_FAIL(err, SH_E_NOTFOUND, "there was no system in \"%s\" yet", j->s.dir);
    if (!rc)
        rc = pg_prepare(&j->s, j->c->conf->pg_bin, false, &j->d.pg, err);
    if (rc)
        return rc;
    j->d.has_pg = true;
    if (j->up_lock >= 0) {
        j->d.was_started = true;
        rc = pg_start(&j->s, &j->d.pg, err);
    }
    if (!rc)
        rc = sh_strdup(j->d.pg.url, &j->d.url, err);
    return rc ? rc : sh_strdup(j->d.pg.bin, &j->d.bin, err);
}

static int open_given(struct job *j, const char *url, struct sh_err *err)
{
    char bin[512];
    int rc = pg_find_tools(j->c->conf->pg_bin, bin, sizeof(bin), err);

    if (!rc)
        rc = sh_strdup(bin, &j->d.bin, err);
    return rc ? rc : sh_strdup(url, &j->d.url, err);
}

/* ---------------------------------------------------------------- the snapshot */

static int on_tick(void *arg, struct sh_err *err)
{
    struct job *j = arg;
    struct stat st;
    char *path = NULL;

    if (sh_asprintf(NULL, &path, "%s/" BACKUP_DUMP, j->set.dir) == SH_OK && stat(path, &st) == 0)
        progress_show(&j->bar, -1, "database: %lld MiB", (long long)st.st_size >> 20);
    free(path);
    (void)err;
    return SH_OK;
}

static int dump_database(struct job *j, const char *snapshot, struct sh_err *err)
{
    char *path = NULL, *with = NULL;
    int fd = -1, rc = sh_asprintf(err, &path, "%s/" BACKUP_DUMP, j->set.dir);

    if (!rc)
        rc = sh_asprintf(err, &with, "--snapshot=%s", snapshot);
    if (!rc)
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (!rc && fd < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write \"%s\": %m", path);
    if (!rc) {
        /* What the scheduler has still to read it reads whole when it starts; the rows are told by
         * numbers of transactions, which mean nothing in another cluster. */
        const char *const argv[] = {"pg_dump",
                                    "--format=custom",
                                    "--no-owner",
                                    "--no-privileges",
                                    "--exclude-table-data=hot_change",
                                    with,
                                    NULL};

        rc = pg_tool_run(&(struct pg_tool){.argv = argv,
                                           .bin = j->d.bin,
                                           .url = j->d.url,
                                           .stdout_fd = fd,
                                           .log = j->log,
                                           .held = &j->held,
                                           .tick = on_tick,
                                           .arg = j},
                         err);
    }
    if (fd >= 0)
        close(fd);
    free(path);
    free(with);
    return rc;
}

static int in_snapshot(struct db *db, const void *arg, struct sh_err *err)
{
    static const struct db_stmt LEVEL = {
        "backup_level", "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY", 0};
    static const struct db_stmt EXPORT = {"backup_export", "SELECT pg_export_snapshot()", 0};
    struct job *j = *(struct job *const *)arg;
    struct db_res *res = NULL;
    int rc = db_exec(db, &LEVEL, NULL, NULL, err);

    if (!rc)
        rc = db_exec(db, &EXPORT, NULL, &res, err);
    if (!rc)
        rc = backup_link(&j->set, db, j->n_tries == SNAPSHOTS, err);
    if (rc == SH_E_CONFLICT && j->n_tries < SNAPSHOTS)
        j->again = true;
    if (!rc && j->set.schema > DB_SCHEMA_VERSION)
        rc = SH_FAIL(err, SH_E_CONFLICT,
                     "the database is of a newer release (schema %" PRId64
                     "; this program knows %d): "
                     "use the `shunt` of that one",
                     j->set.schema, DB_SCHEMA_VERSION);
    if (!rc)
        rc = dump_database(j, db_text(res, 0, 0), err);
    db_res_free(res);
    return rc;
}

static int take_snapshot(struct job *j, struct sh_err *err)
{
    struct job *const arg = j;
    int rc = db_new(j->d.url, "shunt-backup", &j->db, err);

    while (!rc && ++j->n_tries <= SNAPSHOTS) {
        struct sh_err one = {0};

        j->again = false;
        rc = db_tx(j->db, "backup", in_snapshot, &arg, &one);
        if (!j->again)
            return rc ? sh_err_copy(err, &one) : SH_OK;
        rc = held_came(&j->held) ? SH_FAIL(err, SH_E_CANCELLED, "interrupted") : SH_OK;
    }
    return rc;
}

/* ---------------------------------------------------------------- the file */

static bool on_piece_moved(uint64_t bytes, void *arg)
{
    struct job *j = arg;

    j->done += bytes;
    progress_show(&j->bar, (double)j->done / (double)(j->set.bytes + 1), "writing the backup");
    return !held_came(&j->held);
}

/* An earlier backup may be replaced, something else not. */
static int check_backup_target(const char *file, struct sh_err *err)
{
    char head[sizeof(BACKUP_HEAD)] = "";
    struct stat st;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = SH_OK;

    if (fd < 0 && errno == ENOENT)
        return SH_OK;
    if (fd < 0 || fstat(fd, &st) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_INVALID, "could not open \"%s\": %m", file);
    else if (!S_ISREG(st.st_mode) ||
             (st.st_size > 0 && (sh_read_all(fd, head, sizeof(head)) != sizeof(head) ||
                                 memcmp(head, BACKUP_HEAD, sizeof(head)) != 0)))
        rc = SH_FAIL(err, SH_E_CONFLICT, "\"%s\" exists and is no backup: name another file", file);
    if (fd >= 0)
        close(fd);
    return rc;
}

static int open_out(struct job *j, const char *file, struct sh_err *err)
{
    int rc;

    if (strcmp(file, "-") == 0) {
        if (isatty(STDOUT_FILENO))
            return SH_FAIL(err, SH_E_INVALID,
                           "a backup cannot be written to a terminal: name a file");
        j->out = dup(STDOUT_FILENO);
        return j->out < 0 ? SH_FAIL_ERRNO(err, SH_E_IO, "could not write: %m") : SH_OK;
    }
    rc = check_backup_target(file, err);
    if (!rc)
        rc = sh_asprintf(err, &j->tmp, "%s.%d.part", file, (int)getpid());
    if (rc)
        return rc;
    j->out = open(j->tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (j->out >= 0)
        return SH_OK;
    rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write \"%s\": %m", j->tmp);
    free(j->tmp);
    j->tmp = NULL;
    return rc;
}

/* Before hours of writing, not behind them. */
static int backup_check_room(struct job *j, struct sh_err *err)
{
    struct statvfs v;
    uint64_t want = j->set.bytes + j->set.files * 1024 + HEAD_BYTES, have;

    if (!j->tmp || fstatvfs(j->out, &v) != 0)
        return SH_OK;
    have = (uint64_t)v.f_bavail * v.f_frsize;
    if (have >= want)
        return SH_OK;
    return SH_FAIL(err, SH_E_DISKFULL,
                   "the backup has %" PRIu64 " MiB, and there are %" PRIu64
                   " MiB free where \"%s\" "
                   "lies",
                   want >> 20, have >> 20, j->tmp);
}

static int add_dump_size(struct job *j, struct sh_err *err)
{
    struct stat st;
    char *path = NULL;
    int rc = sh_asprintf(err, &path, "%s/" BACKUP_DUMP, j->set.dir);

    if (!rc && stat(path, &st) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not look at \"%s\": %m", path);
    if (!rc) {
        j->set.bytes += (uint64_t)st.st_size;
        j->set.files++;
    }
    free(path);
    return rc;
}

static int write_head(struct job *j, struct tar *t, struct sh_err *err)
{
    json_t *head =
        json_pack("{s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:s}", "format", BACKUP_FORMAT, "release",
                  sh_conf_version(), "schema", (json_int_t)j->set.schema, "created_ms",
                  (json_int_t)sh_clock_wall_ms(), "bytes", (json_int_t)j->set.bytes, "files",
                  (json_int_t)j->set.files, "database_bytes", (json_int_t)j->set.database_bytes,
                  "state_dir", j->s.dir);
    char *text = NULL;
    int rc = head ? sh_json_dump(head, &text, err)
                  : SH_FAIL(err, SH_E_NOMEM, "could not allocate the head of a backup");

    if (!rc)
        rc = tar_add_text(t, BACKUP_HEAD, text, strlen(text), err);
    json_decref(head);
    free(text);
    return rc;
}

static int write_backup_file(struct job *j, const char *file, struct sh_err *err)
{
    struct tar t;
    int rc = add_dump_size(j, err);

    tar_init(&t, j->out, on_piece_moved, j);
    if (!rc)
        rc = backup_check_room(j, err);
    if (!rc)
        rc = write_head(j, &t, err);
    if (!rc)
        rc = backup_write(&j->set, &t, err);
    if (!rc && j->tmp && fsync(j->out) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write \"%s\" to disk: %m", file);
    if (!rc && j->tmp && rename(j->tmp, file) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not name the backup \"%s\": %m", file);
    if (!rc && j->tmp) {
        free(j->tmp);
        j->tmp = NULL;
        rc = sh_sync_folder(file, err);
    }
    tar_fini(&t);
    return rc;
}

/* ---------------------------------------------------------------- the command */

static int backup(struct job *j, const char *file, struct sh_err *err)
{
    const char *url = NULL;
    int rc = state_check_mark(&j->s, err);

    if (!rc)
        rc = open_out(j, file, err); /* what cannot be written is told at once */
    if (!rc)
        rc = state_lock_backup(&j->s, &j->lock, err);
    if (!rc)
        rc = state_path(&j->s, "backup.tmp", &j->set.dir, err);
    if (!rc)
        rc = state_path(&j->s, "log/backup.log", &j->log, err);
    if (!rc)
        rc = find_url(j, &url, err);
    if (!rc)
        rc = url ? open_given(j, url, err) : open_private(j, err);
    if (!rc)
        rc = take_snapshot(j, err);
    return rc ? rc : write_backup_file(j, file, err);
}

static void clean_backup_up(struct job *j)
{
    db_free(j->db);
    if (j->d.was_started)
        pg_stop(&j->s, &j->bar);
    if (j->set.dir && j->lock >= 0)
        file_remove_tree(j->set.dir, NULL);
    if (j->tmp)
        unlink(j->tmp);
    for (size_t i = 0; i < 3; i++) {
        const int fd = (const int[]){j->out, j->lock, j->up_lock}[i];

        if (fd >= 0)
            close(fd);
    }
    if (j->d.has_pg)
        pg_fini(&j->d.pg);
    free(j->d.url);
    free(j->d.bin);
    free(j->set.dir);
    free(j->log);
    free(j->tmp);
    state_close(&j->s);
}

int backup_main(struct cli *c, struct sh_err *err)
{
    struct job j = {.c = c, .lock = -1, .up_lock = -1, .out = -1};
    char bytes[32];
    int rc = state_open(c->conf->state_dir, false, &j.s, err);

    if (rc)
        return rc;
    j.set.s = &j.s;
    held_begin(&j.held);
    progress_begin(c, &j.bar);
    rc = backup(&j, c->args[0], err);
    progress_end(&j.bar);
    out_bytes((double)j.done, bytes, sizeof(bytes));
    if (!rc && strcmp(c->args[0], "-") != 0)
        out_say(c,
                "%s is written: %s. It contains the keys of the system: keep it as safe as them.",
                c->args[0], bytes);
    clean_backup_up(&j);
    held_end(&j.held);
    return rc;
}
