/* backup_set.c - see backup_set.h: which files belong to a backup, and how they get into it. */
#include "cli/local/backup_set.h"

#include "cli/files/file.h"
#include "common/ckpt.h"
#include "common/db.h"
#include "common/io.h"
#include "common/job.h"
#include "common/mem.h"
#include "common/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER_TRIES 100 /* of a folder whose files change while they are linked */
#define SMALL (8u << 20) /* a file that is written to, such as a log, is not larger */

/* clang-format off */
/* Linking takes as long as it takes, and so does pg_dump, which has taken over the snapshot. */
static const struct db_stmt STAY = {
    "backup_stay",
    "SET LOCAL idle_in_transaction_session_timeout = 0",
    0,
};
static const struct db_stmt SNAPSHOT = {
    "backup_snapshot",
    "SELECT (SELECT max(version) FROM schema_migration), pg_database_size(current_database()), "
    "(SELECT coalesce(max(id), 0) FROM job)",
    0,
};
static const struct db_stmt BLOBS = {"backup_blobs", SH_JOB_BLOBS, 0};
/* Of batch inference the part is its checkpoint. */
static const struct db_stmt RESUMES = {
    "backup_resumes",
    "SELECT DISTINCT j.id, j.kind = 'training' FROM job j JOIN checkpoint c ON c.job_id = j.id "
    "WHERE j.state NOT IN " SH_JOB_FINAL,
    0,
};
/* clang-format on */

static const char *const KEYS[] = {"admin.key", "executor.key", "cursor.key", STATE_LAST_UP};

/* ---------------------------------------------------------------- names */

static bool is_plain_path(const char *s)
{
    return s[0] && s[0] != '.' &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
               strlen(s);
}

/* "<64 hexadecimal digits>" and then `end`. */
static const char *skip_digest(const char *s)
{
    const size_t n = SH_SHA256_HEX - 1;

    return strspn(s, "0123456789abcdef") == n ? s + n : NULL;
}

static bool is_blob(const char *path) /* below blobs/ */
{
    const char *end;

    if (strncmp(path, "datasets/", 9) == 0)
        return (end = skip_digest(path + 9)) && strcmp(end, ".safetensors") == 0;
    return strncmp(path, "packages/", 9) == 0 && (end = skip_digest(path + 9)) && !*end;
}

bool backup_is_name(const char *name)
{
    const char *slash;
    size_t n;

    for (size_t i = 0; i < SH_ARRAY_LEN(KEYS); i++)
        if (strcmp(name, KEYS[i]) == 0)
            return true;
    if (strcmp(name, BACKUP_DUMP) == 0)
        return true;
    if (strncmp(name, "jobs/", 5) == 0) {
        n = strspn(name + 5, "0123456789");
        return n > 0 && n < 20 && name[5 + n] == '/' && is_plain_path(name + 5 + n + 1);
    }
    if (strncmp(name, "usage/", 6) == 0)
        return is_plain_path(name + 6);
    if (strncmp(name, "blobs/", 6) != 0)
        return false;
    if (is_blob(name + 6))
        return strncmp(name + 6, "datasets/", 9) == 0;
    if (strncmp(name + 6, "packages/", 9) != 0 || !(slash = skip_digest(name + 15)))
        return false;
    return *slash == '/' && is_plain_path(slash + 1);
}

/* ---------------------------------------------------------------- linking */

static int make_parents(char *path, struct sh_err *err)
{
    char *slash = strrchr(path, '/');
    int rc;

    *slash = '\0';
    rc = file_make_dir(path, 0700, err);
    *slash = '/';
    return rc;
}

static int copy_to_set(const char *from, const char *to, struct sh_err *err)
{
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int rc = out >= 0 && sh_copy_all(in, out, NULL)
                 ? SH_OK
                 : SH_FAIL_ERRNO(err, SH_E_IO, "could not copy \"%s\" for the backup: %m", from);

    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return rc;
}

/* A trained model may be a link to its package; nothing else is followed. */
static bool is_foreign_link(const struct backup_set *b, const char *path)
{
    char *blobs = NULL, *root = NULL, *real = NULL;
    struct stat st;
    bool is = lstat(path, &st) == 0 && S_ISLNK(st.st_mode);

    if (is && state_path(b->s, "blobs", &blobs, NULL) == SH_OK) {
        root = realpath(blobs, NULL);
        real = realpath(path, NULL);
        is = !root || !real || strncmp(real, root, strlen(root)) != 0 || real[strlen(root)] != '/';
    }
    free(blobs);
    free(root);
    free(real);
    return is;
}

/* SH_E_NOTFOUND if it is not there; what is no plain file is left out. */
static int link_one(struct backup_set *b, const char *name, struct sh_err *err)
{
    char *from = NULL, *to = NULL, *real = NULL;
    struct stat st;
    int rc = state_path(b->s, name, &from, err);

    if (!rc)
        rc = sh_asprintf(err, &to, "%s/%s", b->dir, name);
    if (!rc && stat(from, &st) != 0)
        rc = errno == ENOENT ? SH_FAIL(err, SH_E_NOTFOUND, "\"%s\" is not there", from)
                             : SH_FAIL_ERRNO(err, SH_E_IO, "could not look at \"%s\": %m", from);
    if (rc || !S_ISREG(st.st_mode) || is_foreign_link(b, from) || access(to, F_OK) == 0)
        goto out;
    rc = make_parents(to, err);
    real = rc ? NULL : realpath(from, NULL); /* a trained model may be a link to its package */
    if (!rc && (!real || link(real, to) != 0)) {
        if (real && errno != ENOENT && errno != EEXIST) /* another disk, say */
            rc = copy_to_set(real, to, err);
        else if (!real || errno == ENOENT)
            rc = SH_FAIL(err, SH_E_NOTFOUND, "\"%s\" is gone", from);
    }
    if (!rc) {
        b->files++;
        b->bytes += (uint64_t)st.st_size;
    }
out:
    free(from);
    free(to);
    free(real);
    return rc;
}

/* Of a trained model, for example, whose package has been deleted since. */
static bool leads_nowhere(const struct backup_set *b, const char *name)
{
    char *path = NULL;
    struct stat st;
    bool is = state_path(b->s, name, &path, NULL) == SH_OK && lstat(path, &st) == 0 &&
              S_ISLNK(st.st_mode) && access(path, F_OK) != 0;

    free(path);
    return is;
}

/* All plain files of a folder. */
static int link_folder(struct backup_set *b, const char *folder, struct sh_err *err)
{
    char *path = NULL, name[300];
    const struct dirent *e;
    DIR *d = NULL;
    int rc = state_path(b->s, folder, &path, err);

    if (!rc && !(d = opendir(path)))
        rc = errno == ENOENT ? SH_FAIL(err, SH_E_NOTFOUND, "\"%s\" is not there", path)
                             : SH_FAIL_ERRNO(err, SH_E_IO, "could not open \"%s\": %m", path);
    while (!rc && (e = readdir(d))) {
        size_t n = strlen(e->d_name);

        if (n > 4 && strcmp(e->d_name + n - 4, ".tmp") == 0)
            continue; /* on its way to another name */
        if (snprintf(name, sizeof(name), "%s/%s", folder, e->d_name) >= TAR_NAME_MAX ||
            !backup_is_name(name) || leads_nowhere(b, name))
            continue;
        rc = link_one(b, name, err);
    }
    if (d)
        closedir(d);
    free(path);
    return rc;
}

static int link_blobs(struct backup_set *b, struct db *db, bool is_last, struct sh_err *err)
{
    struct db_res *res = NULL;
    char name[128];
    int rc = db_exec(db, &BLOBS, NULL, &res, err);

    for (size_t i = 0; !rc && i < db_rows(res); i++) {
        const char *path = db_text(res, i, 0);
        struct sh_err one = {0};

        if (!is_blob(path))
            continue;
        snprintf(name, sizeof(name), "blobs/%s", path);
        rc = strncmp(path, "packages/", 9) == 0 ? link_folder(b, name, &one)
                                                : link_one(b, name, &one);
        if (rc == SH_E_NOTFOUND && !is_last) {
            rc = SH_FAIL(err, SH_E_CONFLICT, "%s has gone meanwhile", name);
        } else if (rc == SH_E_NOTFOUND) {
            fprintf(stderr,
                    "shunt: %s is not there, although the database refers to it; the "
                    "backup goes on without it\n",
                    name);
            b->n_missing++;
            rc = SH_OK;
        } else if (rc) {
            rc = sh_err_copy(err, &one);
        }
    }
    db_res_free(res);
    return rc;
}

/* A job may end and be cleaned up while we look: what is gone then is no loss. */
static int link_jobs(struct backup_set *b, int64_t max_id, struct sh_err *err)
{
    const struct dirent *e;
    char *path = NULL, name[64], *end;
    DIR *d = NULL;
    int rc = state_path(b->s, "jobs", &path, err);

    if (!rc && !(d = opendir(path)) && errno != ENOENT)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not open \"%s\": %m", path);
    while (!rc && d && (e = readdir(d))) {
        long long id = strtoll(e->d_name, &end, 10);

        if (id < 1 || *end || id > max_id || strlen(e->d_name) > 19)
            continue;
        snprintf(name, sizeof(name), "jobs/%s", e->d_name);
        for (int i = 0; i < FOLDER_TRIES; i++) {
            rc = link_folder(b, name, NULL);
            if (rc != SH_E_NOTFOUND || !state_has(b->s, name))
                break;
        }
        if (rc == SH_E_NOTFOUND)
            rc = SH_OK;
        else if (rc)
            rc = SH_FAIL(err, rc, "could not take the files of job %lld", id);
    }
    if (d)
        closedir(d);
    free(path);
    return rc;
}

static bool has_checkpoint(const struct backup_set *b, const char *job, bool trains)
{
    const struct dirent *e;
    bool has = false;
    char *path = NULL;
    DIR *d = NULL;

    if (sh_asprintf(NULL, &path, "%s/jobs/%s", b->dir, job) == SH_OK)
        d = opendir(path);
    while (!has && d && (e = readdir(d)))
        has = trains ? sh_ckpt_step(e->d_name) >= 0 : strncmp(e->d_name, "result", 6) == 0;
    if (d)
        closedir(d);
    free(path);
    return has;
}

/* Each job that has not ended goes on from a checkpoint that is linked. */
static int check_resumes(const struct backup_set *b, struct db *db, bool is_last,
                         struct sh_err *err)
{
    struct db_res *res = NULL;
    int rc = db_exec(db, &RESUMES, NULL, &res, err);

    for (size_t i = 0; !rc && i < db_rows(res); i++) {
        if (has_checkpoint(b, db_text(res, i, 0), db_bool(res, i, 1)))
            continue;
        if (!is_last)
            rc = SH_FAIL(err, SH_E_CONFLICT, "a checkpoint of job %s has gone meanwhile",
                         db_text(res, i, 0));
        else
            fprintf(stderr,
                    "shunt: job %s has no checkpoint in its folder: restored, it begins "
                    "anew\n",
                    db_text(res, i, 0));
    }
    db_res_free(res);
    return rc;
}

int backup_link(struct backup_set *b, struct db *db, bool is_last, struct sh_err *err)
{
    struct db_res *res = NULL;
    int64_t max_id = 0;
    int rc = db_exec(db, &STAY, NULL, NULL, err);

    b->bytes = b->files = 0;
    b->n_missing = 0;
    if (!rc)
        rc = file_remove_tree(b->dir, err); /* what one that was killed has left, perhaps much */
    if (!rc)
        rc = file_make_dir(b->dir, 0700, err);
    if (!rc)
        rc = db_exec(db, &SNAPSHOT, NULL, &res, err);
    if (!rc) {
        b->schema = db_i64(res, 0, 0, 0);
        b->database_bytes = db_i64(res, 0, 1, 0);
        max_id = db_i64(res, 0, 2, 0);
    }
    db_res_free(res);
    if (!rc) /* first: they are what changes */
        rc = link_jobs(b, max_id, err);
    if (!rc)
        rc = check_resumes(b, db, is_last, err);
    if (!rc)
        rc = link_blobs(b, db, is_last, err);
    if (!rc && state_has(b->s, "usage")) /* what the snapshot has not yet is in it */
        rc = link_folder(b, "usage", err);
    for (size_t i = 0; !rc && i < SH_ARRAY_LEN(KEYS); i++) {
        struct sh_err one = {0};

        rc = link_one(b, KEYS[i], &one);
        if (rc == SH_E_NOTFOUND) /* not every system has all of them */
            rc = SH_OK;
        else if (rc)
            rc = sh_err_copy(err, &one);
    }
    return rc == SH_E_NOTFOUND ? SH_FAIL(err, SH_E_CONFLICT, "a file has gone meanwhile") : rc;
}

/* ---------------------------------------------------------------- writing */

/* What is written to meanwhile is small: it is read at once, as long as it is then. */
static int add_one(struct tar *t, const char *path, const char *name, struct sh_err *err)
{
    char *text = NULL;
    struct stat st;
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = SH_OK;

    if (fd < 0 || fstat(fd, &st) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not open \"%s\": %m", path);
    else if (st.st_size > SMALL)
        rc = tar_add_file(t, name, fd, (uint64_t)st.st_size, err);
    else if (!(text = malloc(SMALL)))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a buffer");
    else if ((n = sh_read_all(fd, text, SMALL)) < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not read \"%s\": %m", path);
    else
        rc = tar_add_text(t, name, text, (size_t)n, err);
    if (fd >= 0)
        close(fd);
    free(text);
    return rc;
}

/* below: "" for the whole set. */
static int add_folder(const struct backup_set *b, struct tar *t, const char *below, int depth,
                      struct sh_err *err)
{
    char *path = NULL, name[300];
    const struct dirent *e;
    DIR *d = NULL;
    int rc = sh_asprintf(err, &path, "%s%s", b->dir, below);

    if (!rc && !(d = opendir(path)))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not open \"%s\": %m", path);
    while (!rc && (e = readdir(d))) {
        char *file = NULL;
        struct stat st;

        snprintf(name, sizeof(name), "%s/%s", below, e->d_name);
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            strcmp(name, "/" BACKUP_DUMP) == 0)
            continue;
        rc = sh_asprintf(err, &file, "%s%s", b->dir, name);
        if (!rc && lstat(file, &st) == 0 && S_ISDIR(st.st_mode) && depth > 0)
            rc = add_folder(b, t, name, depth - 1, err);
        else if (!rc && backup_is_name(name + 1))
            rc = add_one(t, file, name + 1, err);
        free(file);
    }
    if (d)
        closedir(d);
    free(path);
    return rc;
}

int backup_write(const struct backup_set *b, struct tar *t, struct sh_err *err)
{
    char *dump = NULL;
    int rc = sh_asprintf(err, &dump, "%s/" BACKUP_DUMP, b->dir);

    if (!rc)
        rc = add_one(t, dump, BACKUP_DUMP, err);
    if (!rc)
        rc = add_folder(b, t, "", 3, err);
    if (!rc)
        rc = tar_finish(t, BACKUP_SUMS, err);
    free(dump);
    return rc;
}
