/* blobs.c - see blobs.h. The loop decides and counts; the threads of transfer.h do the slow work.
 *
 * An evicted blob is renamed into blobs/tmp at once, so that it can be fetched again; the thread
 * that fetches next removes it. */
#include "executor/files/blobs.h"

#include "common/importer.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/metrics.h"
#include "common/spawn.h"
#include "executor/files/cache.h"
#include "executor/files/folder.h"
#include "executor/files/transfer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PACKAGE_EXTRA ((uint64_t)1 << 20) /* graph.json; the weights are there twice */
#define IMPORT_MS 900000
#define REPLY_MAX ((size_t)1 << 20)
#define GONE "gone-"

enum blob_kind { BLOB_PACKAGE, BLOB_DATASET, BLOB_JOB_FILE };

static const struct {
    const char *folder, *suffix;
} KINDS[] = {[BLOB_PACKAGE] = {"packages/", ""}, [BLOB_DATASET] = {"datasets/", ".safetensors"}};

struct blob {
    struct transfer_task task; /* first member */
    struct blob *next;
    struct blobs *b;
    enum blob_kind kind;
    enum blob_state state;
    struct sh_err why;
    uint32_t users;
    bool is_optional;
    char *path; /* OWNED: of the command */
    char digest[SH_SHA256_HEX];
    uint64_t bytes;
    struct cache_item *item; /* NULL until there is room, and of job files */
};

struct blobs {
    struct blobs_conf conf;
    struct transfers *transfers;
    struct cache *cache;
    struct blob *list;
    uint64_t n_gone;
};

/* ------------------------------------------------------------------ names */

static int read_path(struct blob *o, const char *path, struct sh_err *err)
{
    for (int k = BLOB_PACKAGE; k <= BLOB_DATASET; k++) {
        size_t n = strlen(KINDS[k].folder);

        if (strncmp(path, KINDS[k].folder, n) || !sh_sha256_is_name(path + n, KINDS[k].suffix))
            continue;
        o->kind = (enum blob_kind)k;
        snprintf(o->digest, sizeof(o->digest), "%.64s", path + n);
        return SH_OK;
    }
    return SH_FAIL(err, SH_E_INVALID, "\"%.100s\" is not the name of a blob", path);
}

static int below(const struct blobs *b, char **out, const char *folder, const char *name,
                 const char *suffix, struct sh_err *err)
{
    return sh_asprintf(err, out, "%s/%s%s%s", b->conf.state_dir, folder, name, suffix);
}

/* ------------------------------------------------------------------ room */

static void show_cache_bytes(const struct blobs *b)
{
    const char *name = b->conf.executor;

    sh_metric_set(M_shunt_blob_cache_bytes, SH_LABELS(name, "used"), (double)cache_bytes(b->cache));
    sh_metric_set(M_shunt_blob_cache_bytes, SH_LABELS(name, "limit"), (double)b->conf.cache_bytes);
}

static void on_evict(const char *name, uint64_t bytes, void *arg)
{
    struct blobs *b = arg;
    char *from = NULL, *to = NULL;
    int rc = below(b, &from, "blobs/", name, "", NULL);

    if (!rc)
        rc =
            sh_asprintf(NULL, &to, "%s/blobs/tmp/" GONE "%" PRIu64, b->conf.state_dir, b->n_gone++);
    if (rc || rename(from, to))
        SH_WARN("blob.evict", "path=%s msg=\"could not take it away: %m\"", name);
    else
        SH_INFO("blob.evict", "path=%s bytes=%" PRIu64, name, bytes);
    sh_metric_add(M_shunt_blob_evicted_bytes_total, SH_LABELS(b->conf.executor), (double)bytes);
    free(from);
    free(to);
}

/* On a thread; two may do it. all: also parts, at the start. */
static void empty_tmp(const struct blobs *b, bool all)
{
    char *dir = NULL, *path = NULL;
    const struct dirent *e;
    DIR *d = below(b, &dir, "blobs/tmp", "", "", NULL) ? NULL : opendir(dir);

    while (d && (e = readdir(d))) {
        if (e->d_name[0] == '.' || (!all && strncmp(e->d_name, GONE, strlen(GONE)) != 0) ||
            sh_asprintf(NULL, &path, "%s/%s", dir, e->d_name))
            continue;
        if (unlink(path))
            folder_remove(path);
        free(path);
    }
    if (d)
        closedir(d);
    free(dir);
}

/* ------------------------------------------------------------------ on a thread */

static int url_of(const struct blob *o, char **out, struct sh_err *err)
{
    const char *slash = strchr(o->path, '/');

    if (o->kind != BLOB_JOB_FILE)
        return sh_asprintf(err, out, "/api/v1/blobs/%s", o->digest);
    return sh_asprintf(err, out, "/api/v1/jobs/%.*s/files/%s", (int)(slash - o->path), o->path,
                       slash + 1);
}

static int work_size(struct transfer_task *t, struct transfer_line *l, struct sh_err *err)
{
    struct blob *o = (struct blob *)t;
    char *url = NULL;
    int rc = url_of(o, &url, err);

    if (!rc)
        rc = transfer_size(l, url, &o->bytes, err);
    free(url);
    return rc;
}

/* onnx becomes model.onnx in dir. */
static int make_blob_package(const char *onnx, const char *dir, const atomic_bool *stop,
                             struct sh_err *err)
{
    const char *const argv[] = {"shunt-import", "package", "--onnx", onnx, "--dir", dir, NULL};
    const struct sh_spawn s = {.path = "shunt-import",
                               .argv = argv,
                               .keep = SH_ENV_SYSTEM,
                               .stdout_fd = -1,
                               .stderr_fd = -1,
                               .stop = stop};
    char *text = NULL, *to = NULL;
    json_t *verdict = NULL;
    size_t len = 0;
    int status = 0, rc;

    folder_remove(dir);
    if (mkdir(dir, 0750))
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not make a folder for a model");
    rc = sh_spawn_run(&s, IMPORT_MS, REPLY_MAX, &text, &len, &status, err);
    if (!rc)
        rc = import_verdict(text, len, status, &verdict, err);
    if (!rc)
        rc = sh_asprintf(err, &to, "%s/model.onnx", dir);
    if (!rc && rename(onnx, to))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not put a model into its package");
    json_decref(verdict);
    free(text);
    free(to);
    return rc;
}

static int fetch_package(struct blob *o, struct transfer_line *l, const char *url, const char *part,
                         const char *to, struct sh_err *err)
{
    char *onnx = NULL, *dir = NULL;
    int rc = below(o->b, &onnx, "blobs/tmp/", o->digest, ".onnx", err);
    if (!rc)
        rc = below(o->b, &dir, "blobs/tmp/", o->digest, ".d", err);
    if (!rc)
        rc = transfer_get(l, url, o->digest, part, onnx, err);
    if (!rc)
        rc = make_blob_package(onnx, dir, transfer_ends(l),
                               err); /* one that nobody wants now is kept */
    if (!rc && rename(dir, to))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not put a package in its place");
    if (rc && onnx)
        unlink(onnx);
    if (rc && dir)
        folder_remove(dir);
    free(onnx);
    free(dir);
    return rc;
}

static int work_fetch_blob(struct transfer_task *t, struct transfer_line *l, struct sh_err *err)
{
    struct blob *o = (struct blob *)t;
    bool is_job_file = o->kind == BLOB_JOB_FILE;
    char *url = NULL, *to = NULL, *part = NULL;
    int rc = url_of(o, &url, err);

    empty_tmp(o->b, false);
    if (!rc)
        rc = below(o->b, &to, is_job_file ? "jobs/" : "blobs/", o->path, "", err);
    if (!rc)
        rc = is_job_file ? sh_asprintf(err, &part, "%s.part", to)
                         : below(o->b, &part, "blobs/tmp/", o->digest, ".part", err);
    if (!rc && o->kind == BLOB_PACKAGE)
        rc = fetch_package(o, l, url, part, to, err);
    else if (!rc)
        rc = transfer_get(l, url, is_job_file ? NULL : o->digest, part, to, err);
    if (!rc)
        o->bytes = folder_bytes(to);
    free(url);
    free(to);
    free(part);
    return rc;
}

/* ------------------------------------------------------------------ on the loop */

static void free_blob(struct blob *o)
{
    struct blob **p = &o->b->list;

    while (*p != o)
        p = &(*p)->next;
    *p = o->next;
    free(o->path);
    free(o);
}

/* The time of the last use is that of the file: a later process goes on with the same order. */
static void free_left_blob(struct blob *o)
{
    char *full = NULL;

    if (o->item && !below(o->b, &full, "blobs/", o->path, "", NULL))
        utimensat(AT_FDCWD, full, NULL, 0);
    free(full);
    if (o->item)
        cache_release(o->b->cache, o->item);
    show_cache_bytes(o->b);
    free_blob(o);
}

static void start_fetching(struct blob *o);

/* False: nobody wants it any more, or it failed. */
static bool is_still_wanted(struct blob *o)
{
    if (!o->task.err.rc && o->users > 0)
        return true;
    if (o->item)
        cache_remove(o->b->cache, o->item);
    o->item = NULL;
    show_cache_bytes(o->b);
    if (o->users == 0) {
        free_blob(o);
        return false;
    }
    if (o->task.err.rc == SH_E_CANCELLED && !transfers_end(o->b->transfers)) {
        start_fetching(o); /* it was wanted again before the thread had stopped */
        return false;
    }
    if (o->is_optional && o->task.err.rc == SH_E_NOTFOUND) {
        o->state = BLOB_HERE;
        return false;
    }
    o->state = BLOB_FAILED;
    sh_err_copy(&o->why, &o->task.err);
    sh_log_err(SH_LOG_ERROR, "blob.failed", &o->why);
    return false;
}

static void on_fetched(struct transfer_task *t)
{
    struct blob *o = (struct blob *)t;

    if (!t->err.rc && o->users == 0) { /* nobody wants it any more, but it is in its place */
        if (o->item)
            cache_resize(o->b->cache, o->item, o->bytes);
        free_left_blob(o);
        return;
    }
    if (!is_still_wanted(o))
        return;
    if (o->item)
        cache_resize(o->b->cache, o->item, o->bytes);
    o->state = BLOB_HERE;
    show_cache_bytes(o->b);
    SH_INFO("blob.here", "path=%s bytes=%" PRIu64, o->path, o->bytes);
}

static void submit_transfer(struct blob *o, transfer_work_fn *work, transfer_done_fn *done)
{
    o->task.work = work;
    o->task.done = done;
    o->task.err = (struct sh_err){0};
    transfer_submit(o->b->transfers, TRANSFER_IN, &o->task);
}

static void on_sized(struct transfer_task *t)
{
    struct blob *o = (struct blob *)t;
    uint64_t room = o->kind == BLOB_PACKAGE ? 2 * o->bytes + PACKAGE_EXTRA : o->bytes;

    if (!o->task.err.rc && o->users > 0)
        cache_reserve(o->b->cache, o->path, room, &o->item, &o->task.err);
    if (is_still_wanted(o)) {
        show_cache_bytes(o->b);
        submit_transfer(o, work_fetch_blob, on_fetched);
    }
}

static void start_fetching(struct blob *o)
{
    o->state = BLOB_COMING;
    atomic_store(&o->task.stop, false);
    if (o->kind == BLOB_JOB_FILE)
        submit_transfer(o, work_fetch_blob, on_fetched);
    else
        submit_transfer(o, work_size, on_sized);
}

static struct blob *find_blob(const struct blobs *b, const char *path, enum blob_kind kind)
{
    for (struct blob *o = b->list; o; o = o->next)
        if (o->kind == kind && o->state != BLOB_FAILED && strcmp(o->path, path) == 0)
            return o;
    return NULL;
}

static int new_blob(struct blobs *b, const char *path, struct blob **out, struct sh_err *err)
{
    struct blob *o = calloc(1, sizeof(*o));
    int rc = o ? sh_strdup(path, &o->path, err) : SH_FAIL(err, SH_E_NOMEM, "could not note a blob");

    *out = NULL;
    if (rc) {
        free(o);
        return rc;
    }
    o->b = b;
    o->users = 1;
    o->next = b->list;
    b->list = o;
    *out = o;
    return SH_OK;
}

/* A set has room for all that a job may want. */
static int add_to_set(struct blob_set *s, struct blob *o, struct sh_err *err)
{
    if (s->n == BLOB_SET_MAX)
        return SH_FAIL(err, SH_E_BUG, "more than %d blobs are wanted by one", BLOB_SET_MAX);
    s->v[s->n++] = o;
    return SH_OK;
}

/* True: another set has it, and this one now too. */
static bool share_blob(struct blob *o, struct blob_set *s)
{
    if (!o || add_to_set(s, o, NULL))
        return false;
    o->users++;
    return true;
}

static int begin_blob(struct blobs *b, struct blob_set *s, const char *path, struct blob **out,
                      struct sh_err *err)
{
    int rc = new_blob(b, path, out, err);

    if (!rc)
        rc = add_to_set(s, *out, err);
    return rc;
}

int blob_want(struct blobs *b, struct blob_set *s, const char *path, struct sh_err *err)
{
    struct blob name = {0}, *o;
    int rc;

    if (!b || !path[0] || path[0] == '/')
        return SH_OK;
    rc = read_path(&name, path, err);
    if (rc || share_blob(find_blob(b, path, name.kind), s))
        return rc;
    rc = begin_blob(b, s, path, &o, err);
    if (rc)
        return rc;
    o->kind = name.kind;
    memcpy(o->digest, name.digest, sizeof(o->digest));
    o->item = cache_find(b->cache, path);
    if (o->item) {
        cache_use(b->cache, o->item);
        return SH_OK;
    }
    start_fetching(o);
    return SH_OK;
}

int blob_want_job_file(struct blobs *b, struct blob_set *s, const char *path, bool optional,
                       struct sh_err *err)
{
    struct blob *o;
    int rc;

    if (!b || !path[0] || path[0] == '/')
        return SH_OK;
    if (!strchr(path, '/'))
        return SH_FAIL(err, SH_E_INVALID, "\"%.100s\" is not the name of a job's file", path);
    rc = begin_blob(b, s, path, &o, err);
    if (rc)
        return rc;
    o->kind = BLOB_JOB_FILE;
    o->is_optional = optional;
    start_fetching(o);
    return SH_OK;
}

int blob_adopt(struct blobs *b, struct blob_set *s, const char *path, struct sh_err *err)
{
    struct cache_item *item;
    struct blob *o;
    char *full = NULL;
    int rc;

    if (!b)
        return SH_OK;
    rc = begin_blob(b, s, path, &o, err);
    if (!rc)
        rc = read_path(o, path, err);
    if (!rc)
        rc = below(b, &full, "blobs/", path, "", err);
    if (rc)
        return rc;
    item = cache_find(b->cache, path);
    if (item)
        cache_use(b->cache, item);
    else
        rc = cache_adopt(b->cache, path, folder_bytes(full), &item, err);
    o->item = item;
    show_cache_bytes(b);
    free(full);
    return rc;
}

enum blob_state blob_set_state(const struct blob_set *s, const struct sh_err **why)
{
    enum blob_state worst = BLOB_HERE;

    for (size_t i = 0; i < s->n; i++) {
        if (s->v[i]->state == BLOB_FAILED)
            *why = &s->v[i]->why;
        worst = SH_MAX(worst, s->v[i]->state);
    }
    return worst;
}

void blob_set_drop(struct blob_set *s)
{
    for (size_t i = 0; i < s->n; i++) {
        struct blob *o = s->v[i];

        if (--o->users > 0)
            continue;
        if (o->state == BLOB_COMING)
            atomic_store(&o->task.stop, true); /* freed when the thread has let it go */
        else
            free_left_blob(o);
    }
    s->n = 0;
}

/* ------------------------------------------------------------------ start and end */

struct old {
    char *path; /* OWNED */
    int64_t used_s;
};

struct olds {
    struct old *v;
    size_t n, cap;
};

static int older_first(const void *a, const void *b)
{
    const struct old *x = a, *y = b;

    return (x->used_s > y->used_s) - (x->used_s < y->used_s);
}

static int list_kind(const struct blobs *b, int k, struct olds *o, struct sh_err *err)
{
    char *dir = NULL;
    struct dirent *e;
    struct stat st;
    int rc = below(b, &dir, "blobs/", KINDS[k].folder, "", err);
    DIR *d = rc ? NULL : opendir(dir);

    while (!rc && d && (e = readdir(d))) {
        if (!sh_sha256_is_name(e->d_name, KINDS[k].suffix) || fstatat(dirfd(d), e->d_name, &st, 0))
            continue;
        rc = sh_grow(&o->v, &o->cap, o->n + 1, sizeof(*o->v), (size_t)1 << 24, "blobs", err);
        if (!rc)
            rc = sh_asprintf(err, &o->v[o->n].path, "%s%s", KINDS[k].folder, e->d_name);
        if (!rc)
            o->v[o->n++].used_s = (int64_t)st.st_mtime;
    }
    if (d)
        closedir(d);
    free(dir);
    return rc;
}

/* A package that another release imported goes: it is fetched, and imported, anew. */
static bool is_stale_package(const char *path, const char *full)
{
    return strncmp(path, KINDS[BLOB_PACKAGE].folder, strlen(KINDS[BLOB_PACKAGE].folder)) == 0 &&
           sh_importer_of(full) != SH_IMPORTER;
}

static int count_old(struct blobs *b, struct sh_err *err)
{
    struct olds o = {0};
    int rc = SH_OK;

    for (int k = BLOB_PACKAGE; !rc && k <= BLOB_DATASET; k++)
        rc = list_kind(b, k, &o, err);
    if (o.n)
        qsort(o.v, o.n, sizeof(*o.v), older_first);
    for (size_t i = 0; i < o.n; i++) {
        struct cache_item *item = NULL;
        char *full = NULL;

        if (!rc)
            rc = below(b, &full, "blobs/", o.v[i].path, "", err);
        if (!rc && is_stale_package(o.v[i].path, full))
            folder_remove(full);
        else if (!rc)
            rc = cache_adopt(b->cache, o.v[i].path, folder_bytes(full), &item, err);
        if (item)
            cache_release(b->cache, item);
        free(full);
        free(o.v[i].path);
    }
    free(o.v);
    return rc;
}

int blobs_new(const struct blobs_conf *c, struct transfers *transfers, struct blobs **out,
              struct sh_err *err)
{
    struct blobs *b = calloc(1, sizeof(*b));
    int rc;

    *out = NULL;
    if (!b)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the blobs");
    b->conf = *c;
    b->transfers = transfers;
    empty_tmp(b, true);
    rc = cache_new((uint64_t)c->cache_bytes, on_evict, b, &b->cache, err);
    if (!rc)
        rc = count_old(b, err);
    if (rc) {
        blobs_free(b);
        return rc;
    }
    show_cache_bytes(b);
    *out = b;
    return SH_OK;
}

void blobs_free(struct blobs *b)
{
    if (!b)
        return;
    while (b->list)
        free_blob(b->list);
    cache_free(b->cache);
    free(b);
}
