/* restore.c - `shunt restore FILE`: a new state folder from a file of `shunt backup`.
 *
 * The file is unpacked beside the folder and checked to its last byte; only then does the folder
 * get its name, a new cluster and the database. Until that is done it holds restore-unfinished, and
 * nothing starts in it.
 */
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/files/file.h"
#include "cli/local/backup_set.h"
#include "common/db.h"
#include "common/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MAX_HEAD 65536
#define MAX_FILES 50000000

struct job {
    struct cli *c;
    char *dir, *tmp; /* OWNED: the folder's absolute path; where it is unpacked */
    const char *url; /* of a database that is elsewhere; NULL */
    struct tar tar;
    struct held held;
    struct progress bar;
    struct state s;
    struct pg pg;
    bool has_state, has_pg, was_started,
        is_loaded; /* loaded: what the dump holds is in the database */
    int in, lock;
    uint64_t done, bytes, database_bytes; /* bytes, database_bytes: as the head says */
};

static bool on_moved(uint64_t bytes, void *arg)
{
    struct job *j = arg;

    j->done += bytes;
    progress_show(&j->bar, j->bytes ? (double)j->done / (double)(j->bytes + 1) : -1,
                  "reading the backup");
    return !held_came(&j->held);
}

/* ---------------------------------------------------------------- before anything is touched */

static int check_restore_target(struct job *j, struct sh_err *err)
{
    const struct dirent *e;
    struct state s;
    size_t n = 0;
    DIR *d = opendir(j->dir);
    int rc = SH_OK;

    if (!d && errno == ENOENT)
        return SH_OK;
    if (!d)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not open \"%s\": %m", j->dir);
    while ((e = readdir(d)))
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    if (n == 0)
        return SH_OK;
    if (state_open(j->dir, false, &s, NULL) == SH_OK) {
        if (state_pid(&s, STATE_SUPERVISOR) > 0)
            rc = SH_FAIL(err, SH_E_CONFLICT,
                         "a system runs in \"%s\": restore into another folder (--state-dir), or "
                         "`shunt down --purge` first",
                         j->dir);
        state_close(&s);
    }
    return rc ? rc
              : SH_FAIL(err, SH_E_CONFLICT,
                        "\"%s\" is not empty: restore into a new folder (--state-dir); `shunt down "
                        "--purge` removes what a system left",
                        j->dir);
}

/* A database that is given must have nothing in it. */
static int check_database(const struct job *j, struct sh_err *err)
{
    static const struct db_stmt TABLES = {
        "restore_tables",
        "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE "
        "c.relkind IN ('r', 'p') AND n.nspname = 'public'",
        0};
    struct db_res *res = NULL;
    struct db *db = NULL;
    int rc = j->url ? db_new(j->url, "shunt-restore", &db, err) : SH_OK;

    if (!rc && j->url)
        rc = db_exec(db, &TABLES, NULL, &res, err);
    if (!rc && j->url && db_i64(res, 0, 0, 0) > 0)
        rc = SH_FAIL(err, SH_E_CONFLICT,
                     "the database that is given has tables: restore into a new one (createdb), or "
                     "leave --db-url and DATABASE_URL out for a private one");
    db_res_free(res);
    db_free(db);
    return rc;
}

static int read_backup_head(struct job *j, struct sh_err *err)
{
    struct tar_entry e;
    char *text = NULL;
    json_t *head = NULL;
    json_int_t schema;
    int rc = tar_next(&j->tar, &e, err);

    if (!rc && strcmp(e.name, BACKUP_HEAD) != 0)
        rc = SH_FAIL(err, SH_E_INVALID,
                     "this is no backup of `shunt backup`: it begins with \"%s\"", e.name);
    if (!rc)
        rc = tar_take_text(&j->tar, &e, MAX_HEAD, &text, err);
    if (!rc)
        rc = sh_json_parse(text, strlen(text), MAX_HEAD, &head, err);
    schema = json_integer_value(json_object_get(head, "schema"));
    if (!rc && json_integer_value(json_object_get(head, "format")) != BACKUP_FORMAT)
        rc = SH_FAIL(err, SH_E_UNSUPPORTED,
                     "the backup has another format than this release writes; restore it with the "
                     "release that made it (%.40s)",
                     sh_json_text(head, "release"));
    if (!rc && (schema < 1 || schema > DB_SCHEMA_VERSION))
        rc = SH_FAIL(err, SH_E_CONFLICT,
                     "the backup is of a newer release (%.40s, schema %" JSON_INTEGER_FORMAT
                     "; this one knows %d): restore it with that one",
                     sh_json_text(head, "release"), schema, DB_SCHEMA_VERSION);
    j->bytes = (uint64_t)json_integer_value(json_object_get(head, "bytes"));
    j->database_bytes = (uint64_t)json_integer_value(json_object_get(head, "database_bytes"));
    json_decref(head);
    free(text);
    return rc;
}

static int restore_check_room(const struct job *j, struct sh_err *err)
{
    uint64_t want = j->bytes + (j->url ? 0 : j->database_bytes), have;
    struct statvfs v;

    if (statvfs(j->tmp, &v) != 0)
        return SH_OK;
    have = (uint64_t)v.f_bavail * v.f_frsize;
    if (have >= want)
        return SH_OK;
    return SH_FAIL(err, SH_E_DISKFULL,
                   "the system needs %" PRIu64 " MiB, and %" PRIu64 " MiB are free for \"%s\"",
                   want >> 20, have >> 20, j->dir);
}

/* ---------------------------------------------------------------- unpacking */

static int take_backup_file(struct job *j, const struct tar_entry *e, struct sh_err *err)
{
    char *path = NULL, *slash;
    int fd = -1, rc = sh_asprintf(err, &path, "%s/%s", j->tmp, e->name);
    mode_t mode =
        strncmp(e->name, "jobs/", 5) == 0 || strncmp(e->name, "blobs/", 6) == 0 ? 0644 : 0600;

    if (rc)
        return rc;
    slash = strrchr(path, '/');
    *slash = '\0';
    rc = file_make_dir(path, 0755, err);
    *slash = '/';
    if (!rc)
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (!rc && fd < 0)
        rc = errno == EEXIST ? SH_FAIL(err, SH_E_INVALID, "the backup holds \"%s\" twice", e->name)
                             : SH_FAIL_ERRNO(err, SH_E_IO, "could not write \"%s\": %m", path);
    if (!rc)
        rc = tar_take_file(&j->tar, e, fd, err);
    if (fd >= 0)
        close(fd);
    free(path);
    return rc;
}

static int unpack_backup(struct job *j, struct sh_err *err)
{
    uint64_t bytes = 0;
    bool has_dump = false;

    for (int64_t n = 0; n < MAX_FILES; n++) {
        struct tar_entry e;
        int rc = tar_next(&j->tar, &e, err);

        if (!rc && strcmp(e.name, BACKUP_SUMS) == 0)
            rc = tar_check(&j->tar, &e, err);
        else if (!rc && !backup_is_name(e.name))
            rc = SH_FAIL(err, SH_E_INVALID, "the backup holds \"%s\", which does not belong to one",
                         e.name);
        else if (!rc && (bytes += e.size) > 2 * j->bytes + ((uint64_t)1 << 30))
            rc = SH_FAIL(err, SH_E_INVALID, "the backup holds more than it says");
        else if (!rc)
            rc = take_backup_file(j, &e, err);
        if (rc)
            return rc;
        if (strcmp(e.name, BACKUP_SUMS) == 0)
            return has_dump ? SH_OK : SH_FAIL(err, SH_E_INVALID, "the backup holds no database");
        has_dump |= strcmp(e.name, BACKUP_DUMP) == 0;
    }
    return SH_FAIL(err, SH_E_TOOBIG, "the backup holds more than %d files", MAX_FILES);
}

static int touch_file(const char *dir, const char *name, struct sh_err *err)
{
    char *path = NULL;
    int rc = sh_asprintf(err, &path, "%s/%s", dir, name);

    if (!rc)
        rc = file_write(path, "", 0, 0644, err);
    free(path);
    return rc;
}

/* All of it on the disk, under its name. */
static int put_state_in_place(struct job *j, struct sh_err *err)
{
    int fd = -1, rc = touch_file(j->tmp, STATE_RESTORING, err);

    if (!rc)
        rc = touch_file(j->tmp, STATE_MARK, err);
    if (!rc && chmod(j->tmp, 0755) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not prepare \"%s\": %m", j->tmp);
    if (!rc) {
        fd = open(j->tmp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || syncfs(fd) != 0)
            rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write the files to disk: %m");
    }
    if (!rc && rename(j->tmp, j->dir) != 0)
        rc = SH_FAIL_ERRNO(err, errno == ENOTEMPTY || errno == EEXIST ? SH_E_CONFLICT : SH_E_IO,
                           "could not name the folder \"%s\": %m", j->dir);
    if (!rc) {
        free(j->tmp);
        j->tmp = NULL;
    }
    if (fd >= 0)
        close(fd);
    return rc;
}

/* ---------------------------------------------------------------- the database */

static int run_tool(struct job *j, const char *bin, const char *url, const char *const *argv,
                    struct sh_err *err)
{
    char *log = NULL;
    int rc = state_path(&j->s, "log/restore.log", &log, err);

    if (!rc)
        rc = pg_tool_run(&(struct pg_tool){.argv = argv,
                                           .bin = bin,
                                           .url = url,
                                           .stdout_fd = -1,
                                           .log = log,
                                           .held = &j->held},
                         err);
    free(log);
    return rc;
}

/* The order of events is told by numbers of transactions, which begin anew with a cluster: what has
 * been is before all that comes. By psql, for it may be months that change, and a statement of ours
 * has a time limit. */
static int age_events(struct job *j, const char *bin, const char *url, struct sh_err *err)
{
    static const char AGE[] = /* there is no such column in what an old release made */
        "DO $$ BEGIN IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('job_event') "
        "AND attname = 'xid' AND NOT attisdropped) THEN UPDATE job_event SET xid = '3'::xid8; END "
        "IF; END $$";
    static const char *const ARGV[] = {
        "psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--command", AGE, NULL};

    return run_tool(j, bin, url, ARGV, err);
}

static int load_dump(struct job *j, const char *bin, const char *url, struct sh_err *err)
{
    char *dump = NULL;
    int rc = state_path(&j->s, BACKUP_DUMP, &dump, err);

    if (!rc) {
        /* Without a name, as everything else that connects: the one that the url means. */
        const char *const argv[] = {"pg_restore",
                                    "--exit-on-error",
                                    "--single-transaction",
                                    "--no-owner",
                                    "--no-privileges",
                                    "--dbname=",
                                    dump,
                                    NULL};

        progress_show(&j->bar, -1, "restoring the database");
        rc = run_tool(j, bin, url, argv, err);
        j->is_loaded = rc == SH_OK;
    }
    if (!rc)
        rc = age_events(j, bin, url, err);
    if (!rc && unlink(dump) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not remove \"%s\": %m", dump);
    free(dump);
    return rc;
}

static int make_database(struct job *j, struct sh_err *err)
{
    char bin[512];
    int rc;

    if (j->url) {
        rc = pg_find_tools(j->c->conf->pg_bin, bin, sizeof(bin), err);
        return rc ? rc : load_dump(j, bin, j->url, err);
    }
    rc = pg_prepare(&j->s, j->c->conf->pg_bin, true, &j->pg, err);
    j->has_pg = rc == SH_OK;
    if (!rc)
        rc = pg_init(&j->s, &j->pg, err);
    if (!rc) {
        j->was_started = true;
        rc = pg_start(&j->s, &j->pg, err);
    }
    if (!rc)
        rc = load_dump(j, j->pg.bin, j->pg.url, err);
    return rc;
}

/* ---------------------------------------------------------------- the command */

static int open_in(struct job *j, const char *file, struct sh_err *err)
{
    j->in = strcmp(file, "-") == 0 ? dup(STDIN_FILENO) : open(file, O_RDONLY | O_CLOEXEC);
    tar_init(&j->tar, j->in, on_moved, j);
    return j->in < 0 ? SH_FAIL_ERRNO(err, SH_E_NOTFOUND, "could not open \"%s\": %m", file) : SH_OK;
}

static int make_tmp(struct job *j, struct sh_err *err)
{
    char *parent = NULL, *slash;
    int rc = sh_strdup(j->dir, &parent, err);

    if (rc)
        return rc;
    slash = strrchr(parent, '/');
    if (slash > parent) {
        *slash = '\0';
        rc = file_make_dir(parent, 0755, err);
    }
    if (!rc)
        rc = sh_asprintf(err, &j->tmp, "%s.restore-XXXXXX", j->dir);
    if (!rc && !mkdtemp(j->tmp)) {
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not make a folder beside \"%s\": %m", j->dir);
        free(j->tmp);
        j->tmp = NULL;
    }
    free(parent);
    return rc;
}

static int restore(struct job *j, const char *file, struct sh_err *err)
{
    char *flag = NULL;
    int rc = check_restore_target(j, err);

    if (!rc)
        rc = open_in(j, file, err);
    if (!rc)
        rc = read_backup_head(j, err);
    if (!rc)
        rc = check_database(j, err);
    if (!rc)
        rc = make_tmp(j, err);
    if (!rc)
        rc = restore_check_room(j, err);
    if (!rc)
        rc = unpack_backup(j, err);
    if (!rc)
        rc = put_state_in_place(j, err);
    if (rc)
        return rc;
    rc = state_open(j->dir, true, &j->s, err);
    j->has_state = rc == SH_OK;
    if (!rc)
        rc = state_lock(&j->s, &j->lock, err);
    if (!rc)
        rc = state_give_id(&j->s, err);
    if (!rc)
        rc = make_database(j, err);
    if (!rc && j->was_started) /* what is not on the disk yet is with its end */
        pg_stop(&j->s, &j->bar);
    j->was_started &= rc != SH_OK;
    if (!rc)
        rc = state_path(&j->s, STATE_RESTORING, &flag, err);
    if (!rc && unlink(flag) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not remove \"%s\": %m", flag);
    free(flag);
    return rc;
}

/* failed: what was made goes again; a database that was given is as it was, unless the transaction
 * that took the dump into it has ended. */
static void clean_restore_up(struct job *j, bool failed)
{
    char *left = NULL;

    if (j->was_started)
        pg_stop(&j->s, &j->bar);
    if (j->tmp)
        file_remove_tree(j->tmp, NULL);
    if (failed && j->has_state)
        state_purge(&j->s, &left, NULL);
    if (j->has_pg)
        pg_fini(&j->pg);
    if (j->lock >= 0)
        close(j->lock);
    if (j->in >= 0)
        close(j->in);
    tar_fini(&j->tar);
    if (j->has_state)
        state_close(&j->s);
    free(left);
    free(j->dir);
    free(j->tmp);
}

int restore_main(struct cli *c, struct sh_err *err)
{
    struct job j = {.c = c, .url = plan_db_url(c->conf), .in = -1, .lock = -1};
    int rc = file_absolute(c->conf->state_dir, &j.dir, err);

    if (rc)
        return rc;
    while (strlen(j.dir) > 1 && j.dir[strlen(j.dir) - 1] == '/')
        j.dir[strlen(j.dir) - 1] = '\0';
    held_begin(&j.held);
    progress_begin(c, &j.bar);
    rc = restore(&j, c->args[0], err);
    progress_end(&j.bar);
    if (rc && j.is_loaded && j.url)
        out_say(c, "The database that was given holds the backup's tables now: the next try needs "
                   "a new one.");
    if (!rc)
        out_say(c, "The system is restored in %s. Next: shunt up%s%s", j.dir,
                strcmp(c->conf->state_dir, CLI_STATE_DIR) == 0 ? "" : " --state-dir ",
                strcmp(c->conf->state_dir, CLI_STATE_DIR) == 0 ? "" : c->conf->state_dir);
    clean_restore_up(&j, rc != SH_OK);
    held_end(&j.held);
    return rc;
}
