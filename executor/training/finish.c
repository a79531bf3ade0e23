/* finish.c - what follows the last step of a job:
 *
 *   WRITE     what will be final.safetensors, and losses.json         (disk thread)
 *   EXPORT    ONNX file with the trained weights                      (shunt-import)
 *   PACKAGE   the package of the new version                          (shunt-import)
 *   DIGEST    its name; then it moves to blobs/packages/<sha256>      (disk thread)
 *             and final.safetensors gets its name
 *   LOAD      a worker compiles it                                    (store.c)
 *   EVALUATE  over the evaluation dataset, as runs                    (eval.c)
 *
 * Each step may fail; the job then fails with the reason, and final.safetensors stays.
 *
 * With "publish": false in the spec there is no new version: the package lies in the job's folder
 * until the evaluation is done, and the ONNX file of it is what stays, as trained.onnx.
 */
#include "common/clock.h"
#include "common/io.h"
#include "common/json.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/sample.h"
#include "common/spawn.h"
#include "common/units.h"
#include "executor/files/claim.h"
#include "executor/files/folder.h"
#include "executor/files/push.h"
#include "executor/training/eval.h"
#include "executor/training/job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define EVAL_BATCH 8
#define MEAN_SUFFIX "#ema"
#define REPLY_MAX ((size_t)1 << 20)
#define POLL_NS SH_MS(20)
#define CHILD_NS SH_S(900)
#define TMP_PREFIX ".job-"
#define TRAINED_PREFIX "trained-"
#define FINAL "final.safetensors" /* in the folder of the job */
#define TRAINED "trained.onnx"
#define TRAINED_TMP TRAINED_PREFIX "%s.tmp" /* of an executor, in the job's folder */
#define STALE_S 3600                        /* longer than an export and a package may take */

enum stage { F_WRITE, F_EXPORT, F_PACKAGE, F_DIGEST, F_LOAD, F_EVALUATE };

struct child {        /* outlives the finish that started it, until it is reaped */
    struct finish *f; /* NULL: nobody waits any more */
    pid_t pid;
    int fd; /* its standard output */
};

struct finish {
    struct job *job;
    enum stage stage;
    char *final, *tmp, *onnx, *package; /* OWNED paths */
    struct child *child;
    struct sh_timer *poll;
    int64_t deadline_ns;
    struct model *model;
    struct eval *eval;
    struct push *push;
    json_t *meta;
    char digest[SH_SHA256_HEX];
    uint64_t onnx_bytes;
    struct train_spec train;
    struct eval_result result; /* of each head of `train` */
    bool has_result, is_published;
};

struct file_task { /* first member: the task; it may outlive the finish */
    struct disk_task task;
    struct job *job;
    struct sh_st_tensor *tensors;
    char *path, *losses_path;
    double *losses;
    struct slot *slot;
};

static void go_to_stage(struct finish *f, enum stage next);

static int keep_final(const struct finish *f, struct sh_err *err)
{
    return claim_publish(f->job->dir, f->job->placement, f->final, FINAL, err);
}

static void fail_finish(struct finish *f, const struct sh_err *why)
{
    if (f->final)
        keep_final(f, NULL); /* as far as it came: it may not be there yet, or be there already */
    sh_log_err(SH_LOG_ERROR, "job.finish", why);
    train__finished(f->job, why);
}

/* ------------------------------------------------------------------ files */

static void free_file_task(struct file_task *ft)
{
    if (!ft)
        return;
    free(ft->tensors);
    free(ft->losses);
    free(ft->path);
    free(ft->losses_path);
    free(ft);
}

static void on_file(struct disk_task *t)
{
    struct file_task *ft = (struct file_task *)t;
    struct job *j = ft->job;
    struct finish *f = j->finish;
    struct sh_err err = t->err;

    if (f && f->stage == F_DIGEST) {
        sh_strlcpy(f->digest, t->digest, sizeof(f->digest));
        f->onnx_bytes = t->bytes;
    }
    if (ft->slot)
        ft->slot->is_writing = false;
    j->writing = NULL;
    free_file_task(ft);
    if (!f || j->end != END_DONE)
        return;
    if (err.rc)
        fail_finish(f, &err);
    else
        go_to_stage(f, f->stage == F_WRITE ? F_EXPORT : F_LOAD);
}

static int submit_file_task(struct finish *f, struct file_task *ft, struct sh_err *err)
{
    int rc;

    ft->job = f->job;
    ft->task.done = on_file;
    rc = disk_submit(f->job->env->files->disk, &ft->task, err);
    if (rc) {
        free_file_task(ft);
        return rc;
    }
    f->job->writing = &ft->task;
    if (ft->slot)
        ft->slot->is_writing = true;
    return SH_OK;
}

/* Where the job keeps means of its weights they are what was trained. */
static void take_mean(const char *mean, const char *data, struct sh_st_tensor *out, size_t n)
{
    const size_t len = strlen(mean) - strlen(MEAN_SUFFIX);

    for (size_t i = 0; i < n; i++)
        if (strncmp(out[i].name, mean, len) == 0 && out[i].name[len] == '\0')
            out[i].data = data;
}

/* The trained weights and running statistics; the optimizer's state is of no use any more. */
static size_t pick_tensors(const struct job *j, const struct slot *s, struct sh_st_tensor *out)
{
    size_t n = 0;

    for (size_t i = 0; i < j->n_tensors; i++) {
        if (!job_is_weight(j, i) || job_is_kind(j, i, "ema"))
            continue;
        out[n] = j->tensors[i];
        out[n++].data = job_tensor(j, s, i);
    }
    for (size_t i = 0; i < j->n_tensors; i++)
        if (job_is_kind(j, i, "ema"))
            take_mean(j->tensors[i].name, job_tensor(j, s, i), out, n);
    return n;
}

static int write_final(struct finish *f, struct sh_err *err)
{
    struct job *j = f->job;
    struct slot *best = slots_best(j), *s = best ? best : slots_newest(j);
    struct file_task *ft = calloc(1, sizeof(*ft));

    if (ft) {
        ft->tensors = calloc(j->n_tensors + 1, sizeof(*ft->tensors));
        ft->losses = calloc(j->n_losses + 1, sizeof(*ft->losses));
        ft->losses_path = job_file(j, "losses.json");
    }
    if (!ft || !ft->tensors || !ft->losses || !ft->losses_path ||
        sh_strdup(f->final, &ft->path, NULL)) {
        free_file_task(ft);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the final checkpoint");
    }
    if (j->n_losses)
        memcpy(ft->losses, j->losses, j->n_losses * sizeof(*ft->losses));
    ft->slot = s;
    ft->task = (struct disk_task){.write_path = ft->path,
                                  .tensors = ft->tensors,
                                  .n_tensors = pick_tensors(j, s, ft->tensors),
                                  .losses_path = ft->losses_path,
                                  .losses = ft->losses,
                                  .n_losses = j->n_losses};
    return submit_file_task(f, ft, err);
}

static int digest_model(struct finish *f, struct sh_err *err)
{
    struct file_task *ft = calloc(1, sizeof(*ft));
    int rc;

    if (!ft)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a digest");
    rc = sh_strdup(f->onnx, &ft->path, err);
    if (rc) {
        free_file_task(ft);
        return rc;
    }
    ft->task.digest_path = ft->path;
    return submit_file_task(f, ft, err);
}

/* ------------------------------------------------------------------ shunt-import */

static char *read_reply(int fd, size_t *len)
{
    off_t n = lseek(fd, 0, SEEK_END);
    char *p;

    if (n < 0 || (size_t)n > REPLY_MAX)
        return NULL;
    p = calloc(1, (size_t)n + 1);
    if (p && sh_pread_all(fd, p, (size_t)n, 0) != n) {
        free(p);
        p = NULL;
    }
    *len = (size_t)n;
    return p;
}

static int check_reply(const struct child *c, int status, json_t **out, struct sh_err *err)
{
    size_t len = 0;
    char *text = read_reply(c->fd, &len);
    int rc = import_verdict(text, len, status, out, err);

    free(text);
    return rc;
}

static void on_child(struct sh_loop *l, pid_t pid, int status, void *arg)
{
    struct child *c = arg;
    struct finish *f = c->f;
    struct sh_err err = {0};
    json_t *reply = NULL;
    int rc = SH_OK;

    (void)l, (void)pid;
    if (f) {
        f->child = NULL;
        rc = check_reply(c, status, &reply, &err);
    }
    close(c->fd);
    free(c);
    if (!f)
        return;
    if (rc) {
        fail_finish(f, &err);
        return;
    }
    if (f->stage == F_PACKAGE) {
        json_decref(f->meta);
        f->meta = reply;
        reply = NULL;
    }
    json_decref(reply);
    go_to_stage(f, f->stage == F_EXPORT ? F_PACKAGE : F_DIGEST);
}

static int start_child(struct finish *f, const char *const *argv, struct sh_err *err)
{
    struct child *c = calloc(1, sizeof(*c));
    struct sh_spawn s = {
        .path = "shunt-import", .argv = argv, .keep = SH_ENV_SYSTEM, .stderr_fd = -1};
    int rc;

    if (!c)
        return SH_FAIL(err, SH_E_NOMEM, "could not start the export");
    c->fd = memfd_create("shunt-reply", MFD_CLOEXEC);
    if (c->fd < 0) {
        free(c);
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not start the export");
    }
    s.stdout_fd = c->fd;
    rc = sh_spawn(&s, &c->pid, err);
    if (!rc)
        rc = sh_loop_child(f->job->env->loop, c->pid, on_child, c, err);
    if (rc) {
        if (c->pid > 0) { /* nobody would hear of its end */
            kill(c->pid, SIGKILL);
            waitpid(c->pid, NULL, 0);
        }
        close(c->fd);
        free(c);
        return rc;
    }
    c->f = f;
    f->child = c;
    f->deadline_ns = sh_clock_ns() + CHILD_NS;
    return SH_OK;
}

static int export_model(struct finish *f, struct sh_err *err)
{
    char *from = NULL;
    int rc = sh_asprintf(err, &from, "%s/model.onnx", f->job->package);

    if (!rc && mkdir(f->tmp, 0750) < 0 && errno != EEXIST)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not make a folder for the trained model");
    if (!rc) {
        const char *const argv[] = {"shunt-import", "export", "--onnx", from, "--state",
                                    f->final,       "--out",  f->onnx,  NULL};

        rc = start_child(f, argv, err);
    }
    free(from);
    return rc;
}

static int package_model(struct finish *f, struct sh_err *err)
{
    const char *const argv[] = {"shunt-import", "package", "--onnx", f->onnx,
                                "--dir",        f->tmp,    NULL};

    return start_child(f, argv, err);
}

/* ------------------------------------------------------------------ the new version */

/* jobs/<id>/trained.onnx, for people: a symbolic link where the jobs have a disk of their own. */
static void link_trained(const struct finish *f)
{
    const struct job *j = f->job;
    char *to = NULL, *from = NULL;

    if (claim_stage(j->dir, j->placement, TRAINED, &to, NULL) == SH_OK &&
        sh_asprintf(NULL, &from, "%s/model.onnx", f->package) == SH_OK) {
        unlink(to);
        if ((link(from, to) < 0 && (errno != EXDEV || symlink(from, to) < 0)) ||
            claim_publish(j->dir, j->placement, to, TRAINED, NULL))
            SH_WARN("job.trained", "job=%" PRId64 " msg=\"could not link trained.onnx\"", j->id);
    }
    free(from);
    free(to);
}

/* No row refers to the package until the scheduler has heard of it. The API removes what has no row
 * when it is old, so it must look young. */
static int keep_package(const struct finish *f, struct sh_err *err)
{
    return utimensat(AT_FDCWD, f->package, NULL, 0) == 0
               ? SH_OK
               : SH_FAIL_ERRNO(err, SH_E_IO, "could not keep the trained model");
}

/* The package gets the name of its content; the same content may be there already. */
static int place_package(struct finish *f, struct sh_err *err)
{
    struct job *j = f->job;
    char *name = NULL;
    int rc = keep_final(f, err);

    if (!rc && !f->is_published)
        return sh_strdup(f->tmp, &f->package, err);
    if (!rc)
        rc = sh_asprintf(err, &name, "packages/%s", f->digest);
    if (!rc)
        rc = files_path(j->env->files, "blobs", name, &f->package, err);
    if (!rc && rename(f->tmp, f->package) < 0) {
        if (keep_package(f, NULL) == SH_OK)
            folder_remove(f->tmp);
        else if (rename(f->tmp, f->package) < 0) /* the old one may have gone just now */
            rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not store the trained model");
    }
    if (!rc)
        rc = blob_adopt(j->env->files->blobs, &j->blobs, name, err);
    if (!rc)
        link_trained(f);
    free(name);
    return rc;
}

static int load_trained_model(struct finish *f, struct sh_err *err)
{
    struct job *j = f->job;
    int64_t fixed = sh_sample_fixed_batch(json_object_get(f->meta, "inputs"));
    const struct msg_model_load m = {.tenant = j->tenant,
                                     .model = j->model,
                                     .package = f->package,
                                     .max_batch = (uint32_t)(fixed ? fixed : EVAL_BATCH),
                                     .precision = j->precision};

    return store_load_internal(j->env->store, &m, &f->model, err);
}

static void on_eval(void *arg, const struct eval_result *r, const struct sh_err *why);

static int evaluate_trained(struct finish *f, struct sh_err *err)
{
    struct job *j = f->job;
    const struct eval_conf c = {.slabs = j->env->slabs,
                                .sw = j->env->sw,
                                .disk = j->env->files->disk,
                                .model = f->model,
                                .dataset = j->eval_dataset,
                                .train = &f->train,
                                .meta = f->meta,
                                .busy_ns = &j->eval_ns};
    int rc = train_spec_read(j->spec, &f->train, err);

    if (rc)
        return rc;
    return eval_start(&c, on_eval, f, &f->eval, err);
}

/* The last thing: who finds the file knows that the job came to its end. */
static int keep_trained(const struct finish *f, struct sh_err *err)
{
    const struct job *j = f->job;
    char *to = NULL;
    int rc = claim_stage(j->dir, j->placement, TRAINED, &to, err);

    if (!rc && rename(f->onnx, to) < 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not keep the trained model");
    if (!rc)
        rc = claim_publish(j->dir, j->placement, to, TRAINED, err);
    if (!rc)
        rc = sh_sync_folder(to, err);
    if (!rc)
        folder_remove(f->tmp);
    free(to);
    return rc;
}

static json_t *json_score(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

/* What the scheduler makes a version of. False: all is well. */
static bool name_package(const struct finish *f, json_t *r)
{
    char package[SH_SHA256_HEX + 16];
    json_t *more;
    bool failed;

    snprintf(package, sizeof(package), "packages/%s", f->digest);
    more = json_pack("{s:s,s:s,s:I,s:O}", "package_digest", f->digest, "package", package,
                     "onnx_bytes", (json_int_t)f->onnx_bytes, "meta", f->meta);
    failed = !more || json_object_update(r, more);
    json_decref(more);
    return failed;
}

static void on_delivered(void *arg, const struct sh_err *why)
{
    struct finish *f = arg;

    f->push = NULL;
    if (why->rc)
        fail_finish(f, why);
    else
        train__finished(f->job, why);
}

/* To the API, which has another folder: the model becomes a package there. */
static int deliver_files(struct finish *f, struct sh_err *err)
{
    const struct push_conf c = {.job = f->job->id,
                                .attempt = f->job->attempt,
                                .dir = f->job->dir,
                                .files = {"losses.json", FINAL, TRAINED},
                                .publish = f->is_published ? TRAINED : NULL};

    return push_start(f->job->env->files, &c, on_delivered, f, &f->push, err);
}

static json_t *heads_json(const struct finish *f)
{
    json_t *list = json_array();
    int bad = !list;

    for (uint32_t i = 0; i < f->train.n_heads && list; i++) {
        const struct train_scores *s = &f->result.heads[i];

        bad |= json_array_append_new(
            list, json_pack("{s:s,s:o,s:o,s:o,s:o,s:o}", "output", f->train.heads[i].output, "loss",
                            json_score(s->loss), "accuracy", json_score(s->accuracy), "top5",
                            json_score(s->top5), "f1", json_score(s->f1), "perplexity",
                            json_score(s->perplexity)));
    }
    if (!bad)
        return list;
    json_decref(list);
    return NULL;
}

/* What not every job has. */
static int add_to_result(const struct finish *f, json_t *r)
{
    const struct job *j = f->job;
    int bad = 0;

    if (f->has_result && f->train.n_heads > 1)
        bad |= json_object_set_new(r, "heads", heads_json(f));

    if (j->trials.best_step)
        bad |= json_object_set_new(r, "best_step", json_integer(j->trials.best_step));
    if (j->loss_scale > 0) {
        bad |= json_object_set_new(r, "loss_scale", json_real(j->loss_scale));
        bad |= json_object_set_new(r, "skipped_updates", json_integer(j->skipped));
    }
    return bad;
}

static void succeed(struct finish *f)
{
    struct job *j = f->job;
    static const struct train_scores NONE = {
        .loss = NAN, .accuracy = NAN, .perplexity = NAN, .top5 = NAN, .f1 = NAN};
    const struct train_scores *e = f->has_result ? &f->result.all : &NONE;
    struct sh_err err = {0};
    json_t *r;

    if (f->is_published ? keep_package(f, &err) : keep_trained(f, &err)) {
        fail_finish(f, &err);
        return;
    }
    r = json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:I,s:s,s:I}", "accuracy", json_score(e->accuracy),
                  "top5", json_score(e->top5), "f1", json_score(e->f1), "perplexity",
                  json_score(e->perplexity), "eval_loss", json_score(e->loss), "final_loss",
                  json_score(j->last_loss), "steps", (json_int_t)j->step, "digest", f->digest,
                  "bytes", (json_int_t)f->onnx_bytes);
    if (!r || add_to_result(f, r) || (f->is_published && name_package(f, r)) ||
        sh_json_dump(r, &j->result, &err))
        SH_FAIL(&err, SH_E_NOMEM, "could not write the job's result");
    json_decref(r);
    if (!err.rc)
        job_log_say(j->log, "trained model: %" PRIu64 " bytes, SHA-256 %s, %s", f->onnx_bytes,
                    f->digest, f->is_published ? "to be a new version" : "kept as trained.onnx");
    if (err.rc || !j->env->files->transfers || deliver_files(f, &err))
        train__finished(j, &err);
}

static void say_scores(struct finish *f, const char *of, const struct train_scores *s)
{
    char accuracy[40] = "";

    if (isfinite(s->accuracy))
        snprintf(accuracy, sizeof(accuracy), "accuracy %.6g, ", s->accuracy);
    job_log_say(f->job->log, "evaluated on %" PRId64 " samples: %s%sloss %.6g", s->n_samples, of,
                accuracy, s->loss);
}

static void on_eval(void *arg, const struct eval_result *r, const struct sh_err *why)
{
    struct finish *f = arg;
    char of[TRAIN_MAX_TENSOR + 16];

    if (why->rc) {
        fail_finish(f, why);
        return;
    }
    f->result = *r;
    f->has_result = true;
    say_scores(f, "", &r->all);
    for (uint32_t i = 0; i < f->train.n_heads && f->train.n_heads > 1; i++) {
        snprintf(of, sizeof(of), "output %s: ", f->train.heads[i].output);
        say_scores(f, of, &r->heads[i]);
    }
    succeed(f);
}

/* ------------------------------------------------------------------ leftovers */

/* Folders of executors that were killed. Others may share what they are in, so those that are young
 * stay, but for `own`: the last process of this executor made it. */
static void sweep_in(const char *root, const char *prefix, const char *own)
{
    DIR *d = opendir(root);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        char *dir = NULL;
        struct stat st;

        if (strncmp(e->d_name, prefix, strlen(prefix)) == 0 &&
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) &&
            (strcmp(e->d_name, own) == 0 || sh_clock_wall_ms() / 1000 - st.st_mtime > STALE_S) &&
            sh_asprintf(NULL, &dir, "%s/%s", root, e->d_name) == SH_OK)
            folder_remove(dir);
        free(dir);
    }
    if (d)
        closedir(d);
}

static void sweep_jobs(const char *root, const char *own)
{
    DIR *d = opendir(root);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        char *dir = NULL;

        if (e->d_name[0] != '.' && sh_asprintf(NULL, &dir, "%s/%s", root, e->d_name) == SH_OK)
            sweep_in(dir, TRAINED_PREFIX, own);
        free(dir);
    }
    if (d)
        closedir(d);
}

void finish_sweep(const struct files *files, const char *executor)
{
    char *packages = NULL, *jobs = NULL, *own = NULL;

    if (files_path(files, "blobs", "packages", &packages, NULL) == SH_OK)
        sweep_in(packages, TMP_PREFIX, "");
    if (sh_asprintf(NULL, &jobs, "%s/jobs", files->state_dir) == SH_OK &&
        sh_asprintf(NULL, &own, TRAINED_TMP, executor) == SH_OK)
        sweep_jobs(jobs, own);
    free(packages);
    free(jobs);
    free(own);
}

/* ------------------------------------------------------------------ steps */

static void go_to_stage(struct finish *f, enum stage next)
{
    struct sh_err err = {0};
    int rc = SH_OK;

    f->stage = next;
    switch (next) {
    case F_WRITE:
        rc = write_final(f, &err);
        break;
    case F_EXPORT:
        rc = export_model(f, &err);
        break;
    case F_PACKAGE:
        rc = package_model(f, &err);
        break;
    case F_DIGEST:
        rc = digest_model(f, &err);
        break;
    case F_LOAD:
        rc = place_package(f, &err);
        if (!rc && !f->job->eval_dataset) {
            succeed(f);
            return;
        }
        if (!rc)
            rc = load_trained_model(f, &err);
        break;
    case F_EVALUATE:
        rc = evaluate_trained(f, &err);
        break;
    }
    if (rc)
        fail_finish(f, &err);
}

static void on_poll(struct sh_loop *l, void *arg)
{
    struct finish *f = arg;

    (void)l;
    if (job_has_ended(f->job))
        return;
    if (f->child && sh_clock_ns() > f->deadline_ns)
        kill(f->child->pid, SIGKILL); /* its end is then a failure */
    if (f->stage != F_LOAD || !f->model)
        return;
    if (f->model->phase == MODEL_READY)
        go_to_stage(f, F_EVALUATE);
    else if (f->model->phase == MODEL_FAILED)
        fail_finish(f, &f->model->why);
}

void finish_start(struct job *j)
{
    struct finish *f = calloc(1, sizeof(*f));
    struct sh_err err = {0};
    char *name = NULL;
    int rc;

    j->finish = f;
    if (!f) {
        SH_FAIL(&err, SH_E_NOMEM, "could not allocate the end of the job");
        train__finished(j, &err);
        return;
    }
    f->job = j;
    f->is_published = !json_is_false(json_object_get(j->spec, "publish"));
    /* Beside the packages, where a rename can put it in its place: jobs may lie on another disk,
     * and an API that starts removes old files from blobs/tmp. The name is ours alone: an executor
     * that was given up may end the same job at the same time. */
    rc = sh_asprintf(&err, &name, "packages/" TMP_PREFIX "%" PRId64 "-%s", j->id, j->env->executor);
    if (!rc && f->is_published)
        rc = files_path(j->env->files, "blobs", name, &f->tmp, &err);
    else if (!rc)
        rc = sh_asprintf(&err, &f->tmp, "%s/" TRAINED_TMP, j->dir, j->env->executor);
    free(name);
    if (!rc)
        rc = sh_asprintf(&err, &f->onnx, "%s/model.onnx", f->tmp);
    if (!rc)
        rc = claim_stage(j->dir, j->placement, FINAL, &f->final, &err);
    if (!rc)
        rc = claim_take(j->dir, j->placement, &err);
    if (!rc)
        rc = sh_timer_add(j->env->loop, POLL_NS, POLL_NS, on_poll, f, &f->poll, &err);
    if (rc)
        fail_finish(f, &err);
    else
        go_to_stage(f, F_WRITE);
}

void finish_free(struct finish *f)
{
    if (!f)
        return;
    f->job->finish = NULL;
    eval_free(f->eval);
    push_cancel(f->push);
    if (f->model)
        store_unload(f->job->env->store, f->model->handle);
    if (f->child) {
        f->child->f = NULL;
        kill(f->child->pid, SIGKILL);
    }
    sh_timer_del(f->poll);
    if (f->tmp)
        folder_remove(f->tmp);
    json_decref(f->meta);
    free(f->final);
    free(f->tmp);
    free(f->onnx);
    free(f->package);
    free(f);
}
