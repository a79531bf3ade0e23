/* infer.c - shunt-run infer: all samples of a file through a model, in as many runs as it takes; or
 * what the file has as one run, where it has the very shapes of the model.
 */
#include "common/mem.h"
#include "runtime/run/run.h"

#include <stdlib.h>

struct infer {
    struct session s;
    struct sh_st *in;
    const struct sh_st_tensor **bound; /* per input of the program */
    struct sh_st_tensor *results;      /* per output; data OWNED */
    int64_t n_samples, batch;
    bool is_whole; /* one run, whatever the first axes mean */
};

/* Has input i rows of its own for each sample? Else every run gets all of it. */
static bool is_by_sample(const struct infer *f, size_t i)
{
    const struct program_io *io = program_input(f->s.program, i);

    return io->rank > 0 && !f->is_whole && io->dims[0] == f->batch;
}

static int bind_infer_input(struct infer *f, const struct run_conf *c, size_t i, struct sh_err *err)
{
    const struct program_io *io = program_input(f->s.program, i);
    int rc = tensors_bind(f->in, c->inputs, io->name, "input", io->dtype, io->rank, io->dims,
                          &f->bound[i], err);

    if (!rc && !is_by_sample(f, i) && f->bound[i]->bytes != io->bytes)
        rc = SH_FAIL(err, SH_E_INVALID,
                     "the input \"%s\" has %lld rows in %s; its rows are not those of samples, and "
                     "the model wants %lld",
                     io->name, (long long)f->bound[i]->dims[0], c->inputs, (long long)io->dims[0]);
    return rc;
}

static int bind_infer_inputs(struct infer *f, const struct run_conf *c, struct sh_err *err)
{
    const struct program *p = f->s.program;
    size_t n_in = program_n_inputs(p), n_out = program_n_outputs(p);
    int rc = SH_OK;

    f->bound = calloc(n_in + 1, sizeof(*f->bound));
    f->results = calloc(n_out + 1, sizeof(*f->results));
    if (!f->bound || !f->results)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the list of tensors");
    for (size_t i = 0; i < n_in && rc == SH_OK; i++)
        rc = bind_infer_input(f, c, i, err);
    for (size_t i = 0; i < n_out && rc == SH_OK; i++) {
        const struct program_io *io = program_output(p, i);
        struct sh_st_tensor *t = &f->results[i];
        bool per_sample = !f->is_whole && !io->counted && io->rank > 0 && io->dims[0] == f->batch;

        if (!per_sample && f->n_samples != f->batch)
            return SH_FAIL(err, SH_E_INVALID,
                           "output \"%s\" does not have one row per sample, so %lld samples cannot "
                           "be computed with a batch size of %lld",
                           io->name, (long long)f->n_samples, (long long)f->batch);
        *t = (struct sh_st_tensor){.name = io->name, .dtype = io->dtype, .rank = io->rank};
        memcpy(t->dims, io->dims, sizeof(t->dims));
        t->bytes = io->bytes;
        if (per_sample) {
            t->dims[0] = f->n_samples;
            t->bytes = io->bytes / (size_t)f->batch * (size_t)f->n_samples;
        }
        t->data = malloc(t->bytes ? t->bytes : 1);
        if (!t->data)
            rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu bytes", t->bytes);
    }
    return rc;
}

static int run_samples(struct infer *f, int64_t first, struct sh_err *err)
{
    struct program *p = f->s.program;
    int64_t n = SH_MIN(f->batch, f->n_samples - first);
    int rc = SH_OK;

    for (size_t i = 0; i < program_n_inputs(p) && rc == SH_OK; i++) {
        const struct program_io *io = program_input(p, i);
        const bool mine = is_by_sample(f, i);

        rc = tensors_upload(&f->s, f->bound[i], io, NULL, mine ? first : 0,
                            mine       ? n
                            : io->rank ? io->dims[0]
                                       : 1,
                            err);
    }
    if (!rc)
        rc = program_run(p, &f->s.bases, 0, program_n_ops(p), err);
    for (size_t i = 0; i < program_n_outputs(p) && rc == SH_OK; i++) {
        const struct program_io *io = program_output(p, i);
        const struct sh_st_tensor *t = &f->results[i];
        size_t row = io->bytes / (size_t)f->batch;
        bool whole = t->bytes == io->bytes;

        rc = dev_download(f->s.dev, (char *)(uintptr_t)t->data + (whole ? 0 : (size_t)first * row),
                          f->s.bases.workspace + io->offset, whole ? io->bytes : (size_t)n * row,
                          err);
    }
    return rc ? rc : dev_sync(f->s.dev, err);
}

/* What is there of the outputs, of which the run says how many rows they have. */
static int cut_output_rows(struct infer *f, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; i < program_n_outputs(f->s.program) && rc == SH_OK; i++) {
        const struct program_io *io = program_output(f->s.program, i);
        struct sh_st_tensor *t = &f->results[i];
        const size_t unit = sh_dtype_bytes(t->dtype);
        int64_t n;

        if (!io->counted)
            continue;
        rc = dev_download(f->s.dev, &n, f->s.bases.workspace + io->count_offset, sizeof(n), err);
        if (!rc)
            rc = dev_sync(f->s.dev, err);
        if (!rc)
            rc = sh_dims_cut((void *)(uintptr_t)t->data, t->dims, t->rank, unit, io->counted - 1, n,
                             err);
        t->bytes = unit;
        for (size_t k = 0; k < t->rank; k++)
            t->bytes *= (size_t)t->dims[k];
    }
    return rc;
}

static void infer_fini(struct infer *f)
{
    for (size_t i = 0; f->results && i < program_n_outputs(f->s.program); i++)
        free((void *)(uintptr_t)f->results[i].data);
    free(f->results);
    free(f->bound);
    sh_st_close(f->in);
    session_close(&f->s);
}

int infer_run(const struct run_conf *c, struct sh_err *err)
{
    struct infer f = {0};
    int rc;

    if (c->list)
        return list_run(c, err);
    if (!c->inputs || !c->outputs)
        return SH_FAIL(err, SH_E_INVALID, "give --inputs FILE and --outputs FILE (safetensors)");
    rc = session_open(c, &f.s, err);
    if (!rc)
        rc = sh_st_open(c->inputs, &f.in, err);
    if (!rc)
        rc = session_bind(&f.s, f.in, err);
    if (!rc)
        f.is_whole = !c->batch && tensors_are_one_run(f.s.graph, f.in);
    if (!rc && !f.is_whole)
        rc = tensors_samples(f.s.graph, f.in, c->inputs, &f.n_samples, &f.s.sizes, err);
    if (!rc)
        rc = session_batch(&f.s, c, f.n_samples, &f.batch, err);
    if (!rc)
        rc = session_compile(&f.s, c, f.batch, NULL, err);
    f.n_samples = f.n_samples ? f.n_samples : f.batch; /* a model without a batch axis */
    if (!rc)
        rc = bind_infer_inputs(&f, c, err);
    for (int64_t i = 0; i < f.n_samples && rc == SH_OK; i += f.batch)
        rc = run_samples(&f, i, err);
    if (!rc)
        rc = cut_output_rows(&f, err);
    if (!rc)
        rc = sh_st_write(c->outputs, f.results, program_n_outputs(f.s.program), NULL, err);
    infer_fini(&f);
    return rc;
}
