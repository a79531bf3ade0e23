/* artifact.c - see artifact.h. */
#include "api/files/artifact.h"

#include "common/clock.h"
#include "common/importer.h"
#include "common/mem.h"
#include "common/safetensors.h"
#include "common/sample.h"
#include "common/spawn.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_VERDICT (16u << 20)
#define MAX_NODES 1000
#define PLACE_TRIES 4

static bool is_older(const char *path, int64_t before_s)
{
    struct stat st;

    return lstat(path, &st) == 0 && st.st_mtime < before_s;
}

/* before_s: what was changed since then (Unix time) stays; applies to the uppermost level. */
static int empty_dir(const char *path, int depth, int64_t before_s, struct sh_err *err)
{
    DIR *d = opendir(path);
    const struct dirent *e;
    int rc = SH_OK;

    if (!d)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not open the folder \"%s\"", path);
    while (!rc && (e = readdir(d))) {
        char *name = NULL;

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        rc = sh_asprintf(err, &name, "%s/%s", path, e->d_name);
        if (!rc && is_older(name, before_s) && unlink(name) && depth > 0 &&
            (errno == EISDIR || errno == EPERM)) {
            rc = empty_dir(name, depth - 1, INT64_MAX, err);
            if (!rc && rmdir(name))
                rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not remove the folder \"%s\"", name);
        }
        free(name);
    }
    closedir(d);
    return rc;
}

int artifact_empty_dir(const char *path, struct sh_err *err)
{
    return empty_dir(path, 2, INT64_MAX, err);
}

void artifact_fini(struct artifact *a)
{
    if (a->dir && access(a->dir, F_OK) == 0) {
        artifact_empty_dir(a->dir, NULL);
        rmdir(a->dir);
    }
    free(a->path);
    free(a->dir);
    free(a->inputs);
    free(a->outputs);
    free(a->meta);
    json_decref(a->nodes);
    *a = (struct artifact){0};
}

int artifact_remove_old(const char *path, int64_t age_s, struct sh_err *err)
{
    return empty_dir(path, 2, sh_clock_wall_ms() / 1000 - age_s, err);
}

static int import_refusal(const json_t *j, struct artifact *out, struct sh_err *err)
{
    json_t *nodes = json_object_get(j, "nodes");
    const char *text;
    int rc = sh_json_refusal(j, SH_E_UNSUPPORTED, &text);

    if (json_is_array(nodes) && json_array_size(nodes) > 0 && json_array_size(nodes) <= MAX_NODES)
        out->nodes = json_incref(nodes);
    if (rc == SH_E_BUG || rc == SH_E_PROTO)
        rc = SH_E_INVALID; /* whatever it stumbled on, it was in the file */
    return SH_FAIL(err, rc, "%s", text ? text : "the model was refused");
}

static int acceptance(const json_t *j, struct artifact *out, struct sh_err *err)
{
    static const char *const META[] = {
        "importer",  "opset",         "n_nodes",        "n_parameters",     "weight_bytes",
        "trainable", "training_note", "training_warns", "training_assumes", "solo",
        "solo_note", "buckets",       "warm",           "preprocess"};
    json_t *meta = json_object();
    const json_t *in = json_object_get(j, "inputs"), *outs = json_object_get(j, "outputs");
    int rc = SH_OK;

    if (!meta)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a model's description");
    for (size_t i = 0; i < SH_ARRAY_LEN(META); i++) {
        json_t *v = json_object_get(j, META[i]);

        if (v)
            json_object_set(meta, META[i], v);
    }
    if (!json_is_array(in) || !json_is_array(outs))
        rc = SH_FAIL(err, SH_E_BUG, "the importer's answer has no inputs or outputs");
    out->fixed_batch = sh_sample_fixed_batch(in);
    out->is_solo = json_is_true(json_object_get(j, "solo"));
    if (!rc)
        rc = sh_json_dump(in, &out->inputs, err);
    if (!rc)
        rc = sh_json_dump(outs, &out->outputs, err);
    if (!rc)
        rc = sh_json_dump(meta, &out->meta, err);
    json_decref(meta);
    return rc;
}

int artifact_read_verdict(const char *text, size_t len, struct artifact *out, struct sh_err *err)
{
    struct sh_err parse = {0};
    json_t *j = NULL;
    int rc = sh_json_parse(text, len, MAX_VERDICT, &j, &parse);

    if (rc) {
        rc = SH_FAIL(err, SH_E_BUG, "the importer's answer cannot be read");
        sh_err_detail(err, "%s", parse.msg);
        return rc;
    }
    rc = json_is_true(json_object_get(j, "ok")) ? acceptance(j, out, err)
                                                : import_refusal(j, out, err);
    json_decref(j);
    return rc;
}

static int run_import(const struct api_conf *c, const char *file, const char *dir,
                      const char *buckets, struct artifact *out, struct sh_err *err)
{
    const char *argv[] = {
        "shunt-import", "package", "--onnx", file, "--dir", dir, buckets[0] ? "--buckets" : NULL,
        buckets,        NULL};
    struct sh_spawn s = {.path = "shunt-import",
                         .argv = argv,
                         .keep = SH_ENV_SYSTEM,
                         .stdout_fd = -1,
                         .stderr_fd = -1};
    char *text = NULL;
    size_t len = 0;
    int status = 0;
    int rc = sh_spawn_run(&s, SH_CONF_NOW(c->import_timeout_s) * 1000, MAX_VERDICT, &text, &len,
                          &status, err);

    if (!rc && WIFSIGNALED(status)) {
        /* Its limits on memory, time and calls end it with a signal: the file is to blame. */
        rc = SH_FAIL(err, SH_E_INVALID,
                     "the model could not be read within the importer's limits (signal %d)",
                     WTERMSIG(status));
    } else if (!rc && len == 0) {
        rc = SH_FAIL(err, SH_E_BUG, "the importer ended with code %d and said nothing",
                     WEXITSTATUS(status));
    }
    if (!rc)
        rc = artifact_read_verdict(text, len, out, err);
    free(text);
    return rc;
}

int artifact_sync_dir(const char *path, struct sh_err *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = SH_OK;

    if (fd < 0 || fsync(fd))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write the folder of blobs to disk");
    if (fd >= 0)
        close(fd);
    return rc;
}

/* A second name for a file; what had the name goes. Where a file system has no second names the
 * file moves. */
static int link_to(const char *from, const char *to, struct sh_err *err)
{
    char *via = NULL;
    int rc = sh_asprintf(err, &via, "%s.via", from);

    if (rc)
        return rc;
    unlink(via); /* of who was killed */
    if (rename(link(from, via) == 0 ? via : from, to))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not move the upload to its place");
    unlink(via); /* still there if both were one file already */
    free(via);
    return rc;
}

/* Was the package that is there made by other rules than this one? Then they change places: who has
 * the other one open keeps it. */
static bool renews(const char *from, const char *to)
{
    return sh_importer_of(to) != sh_importer_of(from) &&
           renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0;
}

/* A folder cannot replace an equal one, so the one that is there is made young (blobs.h), unless it
 * is taken away just now: then the place is free. */
static int move_to(const char *from, const char *to, struct sh_err *err)
{
    for (int i = 0; i < PLACE_TRIES; i++) {
        if (rename(from, to) == 0)
            return SH_OK;
        if (errno != EEXIST && errno != ENOTEMPTY)
            break;
        if (renews(from, to))
            return SH_OK;
        if (utimensat(AT_FDCWD, to, NULL, 0) == 0)
            return SH_OK;
        if (errno != ENOENT)
            break;
    }
    return SH_FAIL_ERRNO(err, SH_E_IO, "could not move the upload to its place");
}

/* from -> <state>/blobs/<below>. Somebody else's equal file is as good as ours. */
static int put_in_place(const struct api_conf *c, const char *from, const char *kind,
                        const char *below, struct sh_err *err)
{
    const bool is_file = strcmp(kind, "datasets") == 0;
    char *to = NULL, *parent = NULL;
    int rc = sh_asprintf(err, &to, "%s/blobs/%s", c->state_dir, below);

    if (!rc)
        rc = sh_asprintf(err, &parent, "%s/blobs/%s", c->state_dir, kind);
    if (!rc)
        rc = is_file ? link_to(from, to, err) : move_to(from, to, err);
    if (!rc)
        rc = artifact_sync_dir(parent, err);
    free(parent);
    free(to);
    return rc;
}

int artifact_place(const struct api_conf *c, const char *file, const struct artifact *a,
                   struct sh_err *err)
{
    char *onnx = NULL;
    int rc;

    if (!a->dir)
        return put_in_place(c, file, "datasets", a->path, err);
    rc = sh_asprintf(err, &onnx, "%s/model.onnx", a->dir);
    if (!rc) /* training exports from what the user uploaded */
        rc = link_to(file, onnx, err);
    if (!rc)
        rc = artifact_sync_dir(a->dir, err);
    free(onnx);
    return rc ? rc : put_in_place(c, a->dir, "packages", a->path, err);
}

int artifact_import_model(const struct api_conf *c, const char *file, const char *digest,
                          const char *buckets, struct artifact *out, struct sh_err *err)
{
    int rc = sh_asprintf(err, &out->path, "packages/%s", digest);

    if (!rc)
        rc = sh_asprintf(err, &out->dir, "%s.d-XXXXXX", file);
    /* Of its own name: once the file is in its place, another upload may have one of that name. */
    if (!rc && (!mkdtemp(out->dir) || chmod(out->dir, 0755)))
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not make a folder for the model");
    return rc ? rc : run_import(c, file, out->dir, buckets, out, err);
}

static int add_listed_tensor(json_t *list, const struct sh_st_tensor *t, int64_t n_samples,
                             struct sh_err *err)
{
    json_t *shape;
    int bad = 0;

    if (t->rank < 1)
        return SH_FAIL(err, SH_E_INVALID,
                       "tensor \"%s\" has no axis; axis 0 of every tensor is the sample", t->name);
    if (t->dims[0] != n_samples)
        return SH_FAIL(err, SH_E_INVALID,
                       "tensor \"%s\" has %" PRId64 " samples on axis 0, others have %" PRId64,
                       t->name, t->dims[0], n_samples);
    shape = json_array();
    for (size_t i = 0; i < t->rank; i++)
        bad |= json_array_append_new(shape, json_integer(t->dims[i]));
    /* json_pack takes the shape, whatever happens. */
    bad |= json_array_append_new(list, json_pack("{s:s, s:s, s:o}", "name", t->name, "datatype",
                                                 sh_dtype_v2(t->dtype), "shape", shape));
    return bad ? SH_FAIL(err, SH_E_NOMEM, "could not allocate a dataset's description") : SH_OK;
}

static int dataset_describe(const struct sh_st *st, struct artifact *out, struct sh_err *err)
{
    json_t *list = json_array();
    int rc = SH_OK;

    if (sh_st_count(st) == 0)
        rc = SH_FAIL(err, SH_E_INVALID, "the file has no tensors");
    if (!rc)
        out->n_samples = sh_st_at(st, 0)->rank > 0 ? sh_st_at(st, 0)->dims[0] : 0;
    for (size_t i = 0; !rc && i < sh_st_count(st); i++)
        rc = add_listed_tensor(list, sh_st_at(st, i), out->n_samples, err);
    if (!rc && out->n_samples < 1)
        rc = SH_FAIL(err, SH_E_INVALID, "the tensors have no samples: axis 0 is empty");
    if (!rc)
        rc = sh_json_dump(list, &out->inputs, err);
    json_decref(list);
    return rc;
}

int artifact_check_dataset(const char *file, const char *digest, struct artifact *out,
                           struct sh_err *err)
{
    struct sh_err one = {0};
    struct sh_st *st = NULL;
    int rc = sh_asprintf(err, &out->path, "datasets/%s.safetensors", digest);

    if (!rc) {
        rc = sh_st_open(file, &st, &one);
        /* A header that claims too much is a wrong file; the upload itself was small enough. */
        if (rc == SH_E_TOOBIG)
            one.rc = rc = SH_E_INVALID;
        sh_err_copy(err, &one);
    }
    if (!rc)
        rc = dataset_describe(st, out, err);
    sh_st_close(st);
    return rc;
}
