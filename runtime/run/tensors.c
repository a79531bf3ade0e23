/* tensors.c - tensors of a safetensors file as inputs and labels of a model. */
#include "common/buf.h"
#include "common/mem.h"
#include "runtime/model/why.h"
#include "runtime/run/run.h"

#include <stdio.h>
#include <stdlib.h>

#define SHAPE_BYTES 160

/* "F32[batch,3,64,64]" */
static const char *dtype_shape_text(enum sh_dtype t, size_t rank, const int64_t *dims,
                                    char out[static SHAPE_BYTES])
{
    size_t n = (size_t)snprintf(out, SHAPE_BYTES, "%s[", sh_dtype_st(t));

    for (size_t i = 0; i < rank && n < SHAPE_BYTES - 24; i++)
        n += (size_t)(dims[i] < 0 ? snprintf(out + n, SHAPE_BYTES - n, "%sbatch", i ? "," : "")
                                  : snprintf(out + n, SHAPE_BYTES - n, "%s%lld", i ? "," : "",
                                             (long long)dims[i]));
    snprintf(out + n, SHAPE_BYTES - n, "]");
    return out;
}

static int missing_tensor(const struct sh_st *file, const char *path, const char *what,
                          const char *name, const char *want, struct sh_err *err)
{
    struct sh_buf has;
    int rc = SH_OK;

    sh_buf_init(&has, 4096);
    for (size_t i = 0; i < sh_st_count(file) && rc == SH_OK && has.len < 300; i++) {
        const struct sh_st_tensor *t = sh_st_at(file, i);
        char text[SHAPE_BYTES];

        rc = sh_buf_printf(&has, NULL, "%s\"%s\" %s", i ? ", " : "", t->name,
                           dtype_shape_text(t->dtype, t->rank, t->dims, text));
    }
    rc = SH_FAIL(err, SH_E_INVALID, "the %s \"%s\" %s is not in %s, which has %s", what, name, want,
                 path, has.len ? has.data : "no tensors");
    sh_buf_fini(&has);
    return rc;
}

int tensors_bind(const struct sh_st *file, const char *path, const char *name, const char *what,
                 enum sh_dtype dtype, uint32_t rank, const int64_t *dims,
                 const struct sh_st_tensor **out, struct sh_err *err)
{
    const struct sh_st_tensor *t = sh_st_find(file, name);
    int64_t want_dims[SH_MAX_RANK] = {0};
    char want[SHAPE_BYTES], has[SHAPE_BYTES];
    bool fits;

    memcpy(want_dims, dims, rank * sizeof(*dims));
    if (rank)
        want_dims[0] = -1; /* any number of samples */
    dtype_shape_text(dtype, rank, want_dims, want);
    if (!t)
        return missing_tensor(file, path, what, name, want, err);
    if (t->rank > 0 && t->dims[0] == 0)
        return SH_FAIL(err, SH_E_INVALID, WHY_NO_ROWS, what, name);
    fits = t->dtype == dtype && t->rank == rank;
    for (uint32_t i = 1; fits && i < rank; i++)
        fits = t->dims[i] == dims[i];
    if (!fits)
        return SH_FAIL(err, SH_E_INVALID, "the %s \"%s\" is %s in %s, the model wants %s", what,
                       name, dtype_shape_text(t->dtype, t->rank, t->dims, has), path, want);
    *out = t;
    return SH_OK;
}

bool tensors_are_one_run(const struct graph *g, const struct sh_st *file)
{
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const struct graph_value *v = &g->values[g->inputs[i]];
        const struct sh_st_tensor *t = sh_st_find(file, v->name);

        if (!t || t->dtype != v->dtype || (int)t->rank != v->rank)
            return false;
        for (int j = 0; j < v->rank; j++)
            if (t->dims[j] != v->dims[j])
                return false;
    }
    return true;
}

/* The dims of input v with sizes in place of symbols, which are taken from the file. */
static int take_file_sizes(const struct graph *g, const struct graph_value *v,
                           const struct sh_st *file, struct sh_sizes *sizes, int64_t *dims,
                           struct sh_err *err)
{
    const struct sh_st_tensor *t = sh_st_find(file, v->name);
    struct sh_dim axes[SH_MAX_RANK];
    int rc;

    graph_axes(v, axes);
    sizes->n = (uint32_t)g->symbols.n;
    rc = t && g->symbols.n ? sh_sizes_take(axes, (size_t)v->rank, t, sizes, err) : SH_OK;
    for (int i = 0; i < v->rank; i++)
        dims[i] = v->dims[i] < GRAPH_BATCH ? sizes->v[GRAPH_SYMBOL(v->dims[i])] : v->dims[i];
    return rc;
}

int tensors_samples(const struct graph *g, const struct sh_st *file, const char *path, int64_t *out,
                    struct sh_sizes *sizes, struct sh_err *err)
{
    const char *first = NULL;

    *out = 0;
    *sizes = (struct sh_sizes){0};
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const struct graph_value *v = &g->values[g->inputs[i]];
        const struct sh_st_tensor *t;
        int64_t dims[SH_MAX_RANK];
        int rc = take_file_sizes(g, v, file, sizes, dims, err);

        if (!rc)
            rc = tensors_bind(file, path, v->name, "input", v->dtype, (uint32_t)v->rank, dims, &t,
                              err);
        if (rc)
            return rc;
        if (t->rank == 0 || v->dims[0] < GRAPH_BATCH)
            continue;
        if (first && t->dims[0] != *out)
            return SH_FAIL(err, SH_E_INVALID, "\"%s\" has %lld samples and \"%s\" %lld, in %s",
                           v->name, (long long)t->dims[0], first, (long long)*out, path);
        *out = t->dims[0];
        first = v->name;
    }
    return SH_OK;
}

int tensors_upload(struct session *s, const struct sh_st_tensor *t, const struct program_io *io,
                   const uint32_t *rows, int64_t first, int64_t n, struct sh_err *err)
{
    size_t row = io->rank ? io->bytes / (size_t)io->dims[0] : io->bytes;
    char *host = calloc(1, io->bytes ? io->bytes : 1);
    int rc;

    if (!host)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu bytes", io->bytes);
    for (int64_t i = 0; i < n; i++) {
        size_t from = (size_t)(rows ? (int64_t)rows[first + i] : first + i);

        memcpy(host + (size_t)i * row, (const char *)t->data + from * row, row);
    }
    rc = dev_upload(s->dev, s->bases.workspace + io->offset, host, io->bytes, err);
    if (!rc)
        rc = dev_sync(s->dev, err);
    free(host);
    return rc;
}
