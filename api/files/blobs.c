/* blobs.c - see blobs.h. */
#include "api/files/blobs.h"

#include "api/api.h"
#include "api/files/artifact.h"
#include "api/files/job_folder.h"
#include "api/files/upload.h"
#include "api/request/pool.h"
#include "api/store/store.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/units.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define EVERY_S 300

struct blobs {
    struct pool_task task; /* first member */
    struct api *api;
    atomic_bool busy;
    int64_t next_ns;
};

struct sweep {
    struct db *db;
    const char *state_dir;
    int64_t before_s;          /* Unix time: what changed since then stays */
    const struct db_res *used; /* paths in order of bytes */
    size_t removed;
};

static const struct {
    const char *kind, *suffix;
} KINDS[] = {{"packages", ""}, {"datasets", ".safetensors"}};

static bool is_used(const struct db_res *used, const char *path)
{
    size_t lo = 0, hi = db_rows(used);

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = strcmp(db_text(used, mid, 0), path);

        if (c == 0)
            return true;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return false;
}

static bool is_old_file(const char *file, int64_t before_s)
{
    struct stat st;

    return lstat(file, &st) == 0 && st.st_mtime < before_s;
}

static int erase(const char *file, struct sh_err *err)
{
    int rc;

    if (unlink(file) == 0)
        return SH_OK;
    if (errno != EISDIR && errno != EPERM)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not remove a file of blobs");
    rc = artifact_empty_dir(file, err);
    if (!rc && rmdir(file))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not remove a folder of blobs");
    return rc;
}

/* Taken away from `from` and lies at `tmp`. If somebody relies on it, or nobody knows, it goes back
 * unless an equal one has come meanwhile. */
static int decide_blob(struct sweep *s, const char *path, const char *from, const char *tmp,
                       struct sh_err *err)
{
    bool used = false;
    int rc = store_blob_used(s->db, path, &used, err);

    if (rc || used || !is_old_file(tmp, s->before_s)) {
        if (renameat2(AT_FDCWD, tmp, AT_FDCWD, from, RENAME_NOREPLACE) && errno != EEXIST && !rc)
            rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not put a file of blobs back");
        if (rc || access(tmp, F_OK))
            return rc;
    }
    rc = erase(tmp, err);
    if (!rc) {
        s->removed++;
        SH_INFO("blob.remove", "path=%s", path);
    }
    return rc;
}

static int take_away(struct sweep *s, const char *path, struct sh_err *err)
{
    char *from = NULL, *tmp = NULL, name[33];
    uint8_t random[16];
    int rc = sh_random(random, sizeof(random), err);

    if (rc)
        return rc;
    sh_hex(random, sizeof(random), name);
    rc = sh_asprintf(err, &from, "%s/blobs/%s", s->state_dir, path);
    if (!rc)
        rc = sh_asprintf(err, &tmp, "%s/blobs/tmp/%s", s->state_dir, name);
    if (rc || !is_old_file(from, s->before_s))
        goto out;
    if (rename(from, tmp) == 0)
        rc = decide_blob(s, path, from, tmp, err);
    else if (errno != ENOENT) /* else another API was here */
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not take a file of blobs away");
out:
    free(from);
    free(tmp);
    return rc;
}

static int sweep_kind(struct sweep *s, size_t k, const atomic_bool *stop, struct sh_err *err)
{
    char *dir = NULL, path[128];
    const struct dirent *e;
    DIR *d = NULL;
    int rc = sh_asprintf(err, &dir, "%s/blobs/%s", s->state_dir, KINDS[k].kind);

    if (!rc && !(d = opendir(dir)))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not open the folder of %s", KINDS[k].kind);
    while (!rc && !atomic_load(stop) && (e = readdir(d))) {
        if (!sh_sha256_is_name(e->d_name, KINDS[k].suffix))
            continue;
        snprintf(path, sizeof(path), "%s/%.100s", KINDS[k].kind, e->d_name);
        if (!is_used(s->used, path))
            rc = take_away(s, path, err);
    }
    if (d)
        closedir(d);
    free(dir);
    return rc;
}

/* Of files that were deleted and are gone, or that somebody else uses, quotas count no more. */
static int forget_gone(struct sweep *s, struct sh_err *err)
{
    struct db_res *deleted = NULL;
    int rc = store_blob_deleted(s->db, &deleted, err);

    for (size_t i = 0; !rc && i < db_rows(deleted); i++) {
        const char *path = db_text(deleted, i, 0);
        char *file = NULL;

        rc = sh_asprintf(err, &file, "%s/blobs/%s", s->state_dir, path);
        if (!rc && (is_used(s->used, path) || (access(file, F_OK) && errno == ENOENT)))
            rc = store_blob_gone(s->db, path, err);
        free(file);
    }
    db_res_free(deleted);
    return rc;
}

/* What a job that has not succeeded left: nobody can go on from its checkpoints, and it has no
 * result; its losses and its log stay for those who look for the reason. */
static int remove_rest(struct sweep *s, const char *dir, struct sh_err *err)
{
    const struct dirent *e;
    size_t n = 0, left = 0;
    DIR *d = opendir(dir);

    if (!d)
        return SH_OK; /* another API was here */
    while ((e = readdir(d))) {
        char *path = NULL;

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (strcmp(e->d_name, "losses.json") == 0 || strcmp(e->d_name, JOB_FOLDER_LOG) == 0 ||
            sh_asprintf(NULL, &path, "%s/%s", dir, e->d_name) || erase(path, NULL))
            left++;
        else
            n++;
        free(path);
    }
    closedir(d);
    if (n > 0)
        SH_INFO("job.clean", "folder=%s files=%zu", dir, n);
    if (left == 0 && rmdir(dir) && errno != ENOENT)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not remove the folder of a job");
    s->removed += n > 0 || left == 0;
    return SH_OK;
}

/* Removes those of the jobs' folders whose job is gone, and what is of no use of those that have
 * failed or were cancelled. ids: comma-separated; emptied. */
static int remove_gone(struct sweep *s, char *ids, struct sh_err *err)
{
    struct db_res *gone = NULL;
    int rc = ids[0] ? store_blob_jobs_gone(s->db, ids, s->before_s, &gone, err) : SH_OK;

    ids[0] = '\0';
    for (size_t i = 0; !rc && i < db_rows(gone); i++) {
        const char *id = db_text(gone, i, 0);
        char *dir = NULL;

        rc = sh_asprintf(err, &dir, "%s/jobs/%s", s->state_dir, id);
        if (!rc && !db_bool(gone, i, 1)) {
            rc = remove_rest(s, dir, err);
        } else if (!rc && access(dir, F_OK) == 0) { /* else another API was here */
            rc = erase(dir, err);
            s->removed += !rc;
            SH_DEBUG("job.remove", "job=%s rc=%d", id, rc);
        }
        free(dir);
    }
    db_res_free(gone);
    return rc;
}

static int sweep_job_files(struct sweep *s, const atomic_bool *stop, struct sh_err *err)
{
    char *dir = NULL, *path = NULL, ids[256 * 20] = "";
    const struct dirent *e;
    DIR *d = NULL;
    size_t len = 0;
    int64_t id;
    int rc = sh_asprintf(err, &dir, "%s/jobs", s->state_dir);

    if (!rc && !(d = opendir(dir)) && errno != ENOENT)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not open the folder of jobs");
    while (!rc && d && !atomic_load(stop) && (e = readdir(d))) {
        if (sh_parse_i64(e->d_name, 1, INT64_MAX, "job", &id, NULL))
            continue;
        rc = sh_asprintf(err, &path, "%s/%s", dir, e->d_name);
        if (!rc && is_old_file(path, s->before_s))
            len += (size_t)snprintf(ids + len, sizeof(ids) - len, "%s%" PRId64, len ? "," : "", id);
        free(path);
        path = NULL;
        if (!rc && sizeof(ids) - len < 24) {
            rc = remove_gone(s, ids, err);
            len = 0;
        }
    }
    if (!rc)
        rc = remove_gone(s, ids, err);
    if (d)
        closedir(d);
    free(dir);
    return rc;
}

int blobs_sweep(struct db *db, const char *state_dir, int64_t keep_s, const atomic_bool *stop,
                size_t *removed, struct sh_err *err)
{
    struct sweep s = {
        .db = db, .state_dir = state_dir, .before_s = sh_clock_wall_ms() / 1000 - keep_s};
    struct db_res *used = NULL;
    int rc = store_blob_list(db, &used, err);

    s.used = used;
    for (size_t k = 0; !rc && k < SH_ARRAY_LEN(KINDS); k++)
        rc = sweep_kind(&s, k, stop, err);
    if (!rc)
        rc = forget_gone(&s, err);
    if (!rc)
        rc = sweep_job_files(&s, stop, err);
    db_res_free(used);
    *removed = s.removed;
    return rc;
}

static void sweep_run(struct pool_task *t, struct db *db)
{
    struct blobs *b = (struct blobs *)t;
    const struct api *a = b->api;
    struct sh_err err = {0};
    size_t removed = 0;

    if (blobs_sweep(db, a->conf->state_dir, SH_CONF_NOW(a->conf->blob_keep_s), &a->stopping,
                    &removed, &err))
        sh_log_err(SH_LOG_WARN, "blob.sweep", &err);
    err = (struct sh_err){0};
    if (upload_sweep(a->conf->state_dir, &err))
        sh_log_err(SH_LOG_WARN, "upload.sweep", &err);
    sh_metric_add(M_shunt_blobs_removed_total, NULL, (double)removed);
    atomic_store(&b->busy, false);
}

void blobs_tick(struct blobs *b)
{
    int64_t now = sh_clock_ns();

    if (now < b->next_ns || atomic_exchange(&b->busy, true))
        return;
    b->next_ns = now + SH_S(SH_MIN(SH_CONF_NOW(b->api->conf->blob_keep_s), EVERY_S));
    if (pool_submit(b->api->bulk, &b->task, NULL)) /* busy or stopping: the next one is soon */
        atomic_store(&b->busy, false);
}

int blobs_new(struct api *a, struct blobs **out, struct sh_err *err)
{
    struct blobs *b = calloc(1, sizeof(*b));

    *out = b;
    if (!b)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the sweep of blobs");
    b->task.run = sweep_run;
    b->api = a;
    atomic_init(&b->busy, false);
    return SH_OK;
}

void blobs_free(struct blobs *b)
{
    free(b);
}
