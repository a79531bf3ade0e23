/* sample.c - see sample.h. */
#include "common/sample.h"

#include "common/mem.h"

int sh_sample_sizes_begin(const json_t *inputs, struct sh_sample_sizes *out, struct sh_err *err)
{
    int rc = sh_symbols_read(inputs, &out->symbols, err);

    out->sizes = (struct sh_sizes){.n = (uint32_t)out->symbols.n};
    return rc;
}

int sh_sample_sizes_take(const json_t *io, const struct sh_st_tensor *t, struct sh_sample_sizes *z,
                         struct sh_err *err)
{
    struct sh_dim dims[SH_MAX_RANK];
    size_t rank;
    int rc = sh_dims_read(io, &z->symbols, dims, &rank, err);

    return rc ? rc : sh_sizes_take(dims, rank, t, &z->sizes, err);
}

int sh_sample_sizes(const json_t *inputs, const struct sh_st *dataset, struct sh_sample_sizes *out,
                    struct sh_err *err)
{
    int rc = sh_sample_sizes_begin(inputs, out, err);

    for (size_t i = 0; !rc && out->symbols.n && i < json_array_size(inputs); i++) {
        const json_t *io = json_array_get(inputs, i);
        const char *name = json_string_value(json_object_get(io, "name"));
        const struct sh_st_tensor *t = sh_st_find(dataset, name ? name : "");

        if (t) /* who needs it says that it is missing */
            rc = sh_sample_sizes_take(io, t, out, err);
    }
    return rc;
}

/* The sizes of all axes but the first, into out. */
static int read_sample_axes(const json_t *io, const struct sh_sample_sizes *z,
                            struct sh_st_tensor *out, struct sh_err *err)
{
    struct sh_dim dims[SH_MAX_RANK];
    int rc = z ? sh_dims_read(io, &z->symbols, dims, &out->rank, err) : SH_OK;

    for (size_t i = 1; !rc && i < out->rank; i++) {
        out->dims[i] = json_integer_value(json_array_get(json_object_get(io, "shape"), i));
        if (z && out->dims[i] < 0)
            rc = sh_dim_size(&dims[i], 1, &z->sizes, &out->dims[i], err);
        if (!rc && out->dims[i] < 1)
            rc = SH_FAIL(err, SH_E_UNSUPPORTED,
                         "axis %zu of tensor \"%s\" of the model has no fixed size", i, out->name);
        if (!rc)
            rc = sh_mul_size(out->bytes, (size_t)out->dims[i], &out->bytes, err);
    }
    return rc;
}

int sh_sample_read(const json_t *io, const struct sh_sample_sizes *z, struct sh_st_tensor *out,
                   struct sh_err *err)
{
    const char *name = json_string_value(json_object_get(io, "name"));
    const char *type = json_string_value(json_object_get(io, "datatype"));

    *out = (struct sh_st_tensor){.name = name ? name : "",
                                 .dtype = type ? sh_dtype_from_v2(type) : SH_N_DTYPES,
                                 .rank = json_array_size(json_object_get(io, "shape"))};
    if (out->dtype == SH_N_DTYPES || out->rank < 1 || out->rank > SH_MAX_RANK)
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "tensor \"%s\" of the model has no batch, or a type that is not supported",
                       out->name);
    out->bytes = sh_dtype_bytes(out->dtype);
    out->dims[0] = 1;
    return read_sample_axes(io, z, out, err);
}

/* 1 where it is open, but not the batch. */
static int64_t first_axis(const json_t *io)
{
    if (json_is_array(json_object_get(io, "dims")) &&
        !json_is_integer(json_array_get(json_object_get(io, "dims"), 0)))
        return 1;
    return json_integer_value(json_array_get(json_object_get(io, "shape"), 0));
}

int64_t sh_batch_next(int64_t so_far, size_t rank, int64_t first)
{
    if (rank == 0 || so_far == 0)
        return so_far;
    if (first < 0)
        return 0;
    return so_far == SH_BATCH_OPEN && first > 0 ? first : so_far;
}

int64_t sh_batch_end(int64_t so_far)
{
    return so_far == SH_BATCH_OPEN ? 1 : so_far;
}

int64_t sh_sample_fixed_batch(const json_t *inputs)
{
    int64_t fixed = SH_BATCH_OPEN;
    const json_t *io;
    size_t i;

    json_array_foreach(inputs, i, io) fixed =
        sh_batch_next(fixed, json_array_size(json_object_get(io, "shape")), first_axis(io));
    return sh_batch_end(fixed);
}

/* Has it an axis whose extent a run decides? */
static bool is_counted(const json_t *io)
{
    const json_t *dims = json_object_get(io, "dims"), *d;
    size_t i;

    json_array_foreach(dims, i, d) if (json_object_get(d, "most")) return true;
    return false;
}

bool sh_sample_is_axis(const json_t *tensors, int64_t fixed, const char **name)
{
    *name = NULL;
    for (size_t i = 0; !*name && i < json_array_size(tensors); i++) {
        const json_t *io = json_array_get(tensors, i);

        if (json_array_size(json_object_get(io, "shape")) == 0 || is_counted(io) ||
            first_axis(io) != (fixed ? fixed : -1))
            *name = json_string_value(json_object_get(io, "name"));
    }
    return !*name;
}
