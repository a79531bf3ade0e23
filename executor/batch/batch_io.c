/* batch_io.c - the files of batch inference, on the disk thread: dataset and result.
 *
 * The dataset is read, not mapped, so that a failing disk fails the job and not the executor. */
#include "common/io.h"
#include "common/mem.h"
#include "executor/batch/batch_int.h"
#include "executor/files/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

/* ------------------------------------------------------------------ open */

/* The dataset's name for an input of the model. */
static const char *dataset_name(const struct batch_job *j, const char *input)
{
    const char *other =
        json_string_value(json_object_get(json_object_get(j->spec, "inputs"), input));

    return other ? other : input;
}

static int bind_batch_input(struct batch_job *j, const struct sh_st *data, const json_t *io,
                            struct sh_err *err)
{
    struct batch_column *c = &j->in[j->n_in];
    const struct sh_st_tensor *t;
    struct sh_st_tensor want;
    int rc = sh_sample_read(io, &j->sizes, &want, err);
    const char *name;

    if (rc)
        return rc;
    name = dataset_name(j, want.name);
    t = sh_st_find(data, name);
    if (!t || t->rank < 1)
        return SH_FAIL(err, SH_E_INVALID, "the dataset has no tensor \"%s\"", name);
    if (j->n_in == 0)
        j->n_samples = t->dims[0];
    if (j->n_samples < 1)
        return SH_FAIL(err, SH_E_INVALID, "the dataset has no samples");
    if (t->dims[0] != j->n_samples || t->bytes / (size_t)j->n_samples != want.bytes ||
        t->dtype != want.dtype)
        return SH_FAIL(err, SH_E_INVALID,
                       "tensor \"%s\" of the dataset has %" PRId64 " samples of %zu bytes %s, the "
                       "model wants %" PRId64 " of %zu bytes %s",
                       name, t->dims[0], t->bytes / (size_t)SH_MAX(t->dims[0], 1),
                       sh_dtype_v2(t->dtype), j->n_samples, want.bytes, sh_dtype_v2(want.dtype));
    *c = (struct batch_column){.sample_bytes = want.bytes, .file_off = sh_st_offset(data, t)};
    j->n_in++;
    return SH_OK;
}

/* All samples are of one shape, so the sizes of one are those of all. */
static int find_sample_sizes(struct batch_job *j, const struct sh_st *data, struct sh_err *err)
{
    int rc = sh_sample_sizes_begin(j->inputs, &j->sizes, err);

    for (size_t i = 0; !rc && j->sizes.sizes.n > 0 && i < json_array_size(j->inputs); i++) {
        const json_t *io = json_array_get(j->inputs, i);
        const char *name = json_string_value(json_object_get(io, "name"));
        const struct sh_st_tensor *t = sh_st_find(data, dataset_name(j, name ? name : ""));

        if (t) /* bind_batch_input() says that it is missing */
            rc = sh_sample_sizes_take(io, t, &j->sizes, err);
    }
    return rc;
}

static int open_batch_dataset(struct batch_job *j, struct sh_err *err)
{
    struct sh_st *data = NULL;
    int rc = sh_st_open(j->dataset, &data, err);

    if (!rc && (json_array_size(j->inputs) < 1 || json_array_size(j->inputs) > BATCH_MAX_IO))
        rc = SH_FAIL(err, SH_E_UNSUPPORTED, "the model has %zu inputs; 1 to %u are supported",
                     json_array_size(j->inputs), BATCH_MAX_IO);
    if (!rc)
        rc = find_sample_sizes(j, data, err);
    for (size_t i = 0; !rc && i < json_array_size(j->inputs); i++)
        rc = bind_batch_input(j, data, json_array_get(j->inputs, i), err);
    sh_st_close(data);
    if (rc)
        return rc;
    j->fd = open(j->dataset, O_RDONLY | O_CLOEXEC);
    return j->fd < 0 ? SH_FAIL_ERRNO(err, sh_open_rc(errno), "could not open the dataset") : SH_OK;
}

static bool keeps_output(const struct batch_job *j, const char *name)
{
    const json_t *names = json_object_get(j->spec, "outputs");
    size_t i;
    json_t *v;

    json_array_foreach((json_t *)names, i, v)
    {
        if (json_is_string(v) && strcmp(json_string_value(v), name) == 0)
            return true;
    }
    return json_array_size(names) == 0;
}

/* tensors: those of the result. */
static int bind_batch_outputs(struct batch_job *j, struct sh_st_tensor *tensors, struct sh_err *err)
{
    const size_t n = json_array_size(j->outputs);
    size_t n_wanted = json_array_size(json_object_get(j->spec, "outputs"));

    if (n < 1 || n > BATCH_MAX_IO)
        return SH_FAIL(err, SH_E_UNSUPPORTED, "the model has %zu outputs; 1 to %u are supported", n,
                       BATCH_MAX_IO);
    for (size_t i = 0; i < n; i++) {
        struct sh_st_tensor *t = &tensors[j->n_kept];
        int rc = sh_sample_read(json_array_get(j->outputs, i), &j->sizes, t, err);

        if (rc)
            return rc;
        j->out[i].sample_bytes = t->bytes;
        if (!keeps_output(j, t->name))
            continue;
        t->dims[0] = j->n_samples;
        rc = sh_mul_size(t->bytes, (size_t)j->n_samples, &t->bytes, err);
        if (rc)
            return rc;
        j->kept[j->n_kept++] = i;
    }
    j->n_out = n;
    if (j->n_kept == 0 || (n_wanted > 0 && n_wanted != j->n_kept))
        return SH_FAIL(err, SH_E_INVALID, "\"outputs\" names what is no output of the model");
    return SH_OK;
}

void batch_io_close(struct batch_job *j)
{
    result_file_free(j->file);
    j->file = NULL;
    if (j->fd >= 0)
        close(j->fd);
    j->fd = -1;
    j->n_in = j->n_out = j->n_kept = 0;
}

int batch_io_open(struct disk_task *t, struct sh_err *err)
{
    struct batch_job *j = ((struct batch_task *)t)->job;
    struct sh_st_tensor tensors[BATCH_MAX_IO];
    char id[24];
    const char *const meta[] = {"job", id, "model", j->model, NULL};
    struct result_file_conf c = {.dir = j->dir,
                                 .placement = j->placement,
                                 .tensors = tensors,
                                 .meta = meta,
                                 .resume_at = j->resume_at,
                                 .resume_digest = j->resume_digest,
                                 .stop = &j->stop};
    int rc;

    batch_io_close(j);
    rc = open_batch_dataset(j, err);
    snprintf(id, sizeof(id), "%" PRId64, j->id);
    if (!rc)
        rc = bind_batch_outputs(j, tensors, err);
    c.n_tensors = j->n_kept;
    /* Other batches would be other sums of floats: go on only where this one's begin. */
    if (c.resume_at < j->n_samples && c.resume_at % j->batch)
        c.resume_at = 0;
    if (!rc)
        rc = claim_take(j->dir, j->placement, err);
    return rc ? rc : result_file_open(&c, &j->file, &j->written_at, err);
}

/* ------------------------------------------------------------------ batches */

static int read_all_at(int fd, char *to, size_t n, uint64_t off, struct sh_err *err)
{
    ssize_t got = sh_pread_all(fd, to, n, off);

    if (got < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not read the dataset");
    return (size_t)got == n ? SH_OK
                            : SH_FAIL(err, SH_E_IO, "the dataset's file was cut while it was read");
}

static int write_outputs(struct batch_slot *s, struct sh_err *err)
{
    const struct batch_job *j = s->job;
    const void *data[BATCH_MAX_IO];

    for (size_t i = 0; i < j->n_kept; i++)
        data[i] = (const char *)j->slab.base + s->off + j->out[j->kept[i]].off;
    return result_file_write(j->file, data, s->n, err);
}

int batch_io_turn(struct disk_task *t, struct sh_err *err)
{
    struct batch_slot *s = (struct batch_slot *)t;
    const struct batch_job *j = s->job;
    int rc = s->has_outputs ? write_outputs(s, err) : SH_OK;

    if (!rc && s->is_sync)
        rc = result_file_sync(j->file, s->digest, &s->bytes, err);
    for (size_t i = 0; !rc && s->next_n > 0 && i < j->n_in; i++) {
        const struct batch_column *c = &j->in[i];

        rc = read_all_at(j->fd, (char *)j->slab.base + s->off + c->off,
                         c->sample_bytes * (size_t)s->next_n,
                         c->file_off + c->sample_bytes * (uint64_t)s->next_at, err);
    }
    return rc;
}

int batch_io_sync(struct disk_task *t, struct sh_err *err)
{
    struct batch_task *b = (struct batch_task *)t;

    return result_file_sync(b->job->file, b->digest, &b->bytes, err);
}

int batch_io_finish(struct disk_task *t, struct sh_err *err)
{
    struct batch_task *b = (struct batch_task *)t;

    return result_file_finish(b->job->file, b->digest, &b->bytes, err);
}

int batch_io_discard(struct disk_task *t, struct sh_err *err)
{
    struct batch_job *j = ((struct batch_task *)t)->job;

    (void)err;
    result_file_discard(j->file);
    result_file_free(j->file); /* the space is free when the last descriptor is closed: here */
    j->file = NULL;
    return SH_OK;
}
