/* batchspec.c - see batchspec.h. */
#include "api/spec/batchspec.h"

#include "common/batch_spec.h"
#include "common/mem.h"
#include "common/sample.h"

#include <inttypes.h>

static enum sh_dtype tensor_dtype(const json_t *tensor)
{
    const char *s = json_string_value(json_object_get(tensor, "datatype"));

    return s ? sh_dtype_from_v2(s) : SH_N_DTYPES;
}

int batchspec_read(const json_t *spec, struct jobspec *out, struct sh_err *err)
{
    struct batch_spec b;
    int rc = batch_spec_read(spec, "spec", &b, err);

    out->batch = b.batch;
    out->map = b.inputs;
    out->keep = b.outputs;
    if (out->eval_dataset)
        rc = sh_json_fail(err, "eval_dataset",
                          "\"eval_dataset\" does not belong to batch inference");
    return rc;
}

/* Sizes that the file leaves open are those of the dataset: check_room(). */
static int check_sizes(const json_t *tensors, const char *what, struct sh_err *err)
{
    size_t n = json_array_size(tensors);
    struct sh_st_tensor t;
    int rc = SH_OK;

    if (n < 1 || n > BATCH_MAX_IO)
        return SH_FAIL(err, SH_E_UNSUPPORTED, "the model has %zu %s; 1 to %u are supported", n,
                       what, BATCH_MAX_IO);
    for (size_t i = 0; !rc && i < n; i++)
        if (!json_object_get(json_array_get(tensors, i), "dims"))
            rc = sh_sample_read(json_array_get(tensors, i), NULL, &t, err);
    return rc;
}

int batchspec_fits_model(const struct jobspec *s, const json_t *version, struct sh_err *err)
{
    const json_t *inputs = json_object_get(version, "inputs");
    const json_t *outputs = json_object_get(version, "outputs");
    json_int_t max_batch = json_integer_value(json_object_get(version, "max_batch"));
    int64_t fixed = sh_sample_fixed_batch(inputs);
    const char *key, *odd = NULL;
    size_t i;
    json_t *v;
    int rc = check_sizes(inputs, "inputs", err);

    if (!rc)
        rc = check_sizes(outputs, "outputs", err);
    if (rc)
        return rc;
    if (!sh_sample_is_axis(inputs, fixed, &odd) ||
        (fixed && !sh_sample_is_axis(outputs, fixed, &odd)))
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "the first axis of tensor \"%s\" of model \"%s\" is not the batch: it "
                       "cannot be run over the samples of a dataset",
                       odd ? odd : "", s->model);
    if (json_is_true(json_object_get(json_object_get(version, "meta"), "solo")))
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "samples of model \"%s\" may affect each other (%s): the result of one "
                       "could depend on the others in its batch, so send requests instead",
                       s->model, sh_json_text(json_object_get(version, "meta"), "solo_note"));
    if (s->batch > max_batch)
        return SH_FAIL(err, SH_E_INVALID,
                       "\"spec.batch\" is %" PRId64 ", the version's max_batch is "
                       "%" JSON_INTEGER_FORMAT,
                       s->batch, max_batch);
    json_object_foreach((json_t *)s->map, key, v)
    {
        if (!jobspec_find_tensor(inputs, key))
            return SH_FAIL(err, SH_E_INVALID,
                           "\"spec.inputs\" names \"%s\", which is no input of model \"%s\"", key,
                           s->model);
    }
    json_array_foreach((json_t *)s->keep, i, v)
    {
        if (!jobspec_find_tensor(outputs, json_string_value(v)))
            return SH_FAIL(err, SH_E_INVALID,
                           "\"spec.outputs\" names \"%s\", which is no output of model \"%s\"",
                           json_string_value(v), s->model);
    }
    return SH_OK;
}

static bool is_output_kept(const struct jobspec *s, const json_t *output)
{
    size_t i;
    json_t *v;

    json_array_foreach((json_t *)s->keep, i, v)
    {
        if (strcmp(json_string_value(v), sh_json_text(output, "name")) == 0)
            return true;
    }
    return !s->keep;
}

/* Of a tensor as the API describes datasets, what its sizes are taken from. */
static bool find_dataset_tensor(const json_t *dataset, const char *name, struct sh_st_tensor *out)
{
    const json_t *t;
    size_t i, k;

    json_array_foreach(json_object_get(dataset, "tensors"), i, t)
    {
        const json_t *shape = json_object_get(t, "shape");

        if (strcmp(sh_json_text(t, "name"), name) != 0 || json_array_size(shape) > SH_MAX_RANK)
            continue;
        *out = (struct sh_st_tensor){.name = name, .rank = json_array_size(shape)};
        for (k = 0; k < out->rank; k++)
            out->dims[k] = json_integer_value(json_array_get(shape, k));
        return true;
    }
    return false;
}

static const char *dataset_name(const struct jobspec *s, const json_t *input)
{
    const char *name = sh_json_text(input, "name");
    const char *other = json_string_value(json_object_get(s->map, name));

    return other ? other : name;
}

static int find_batch_sizes(const struct jobspec *s, const json_t *inputs, const json_t *dataset,
                            struct sh_sample_sizes *out, struct sh_err *err)
{
    int rc = sh_sample_sizes_begin(inputs, out, err);

    for (size_t i = 0; !rc && out->sizes.n > 0 && i < json_array_size(inputs); i++) {
        const json_t *in = json_array_get(inputs, i);
        struct sh_st_tensor t;

        if (find_dataset_tensor(dataset, dataset_name(s, in), &t))
            rc = sh_sample_sizes_take(in, &t, out, err);
    }
    return rc;
}

static int check_shape_room(const struct jobspec *s, const json_t *version, const char *name,
                            const json_t *dataset, struct sh_err *err)
{
    const json_t *outputs = json_object_get(version, "outputs");
    json_int_t n = json_integer_value(json_object_get(dataset, "n_samples"));
    json_int_t room = json_integer_value(json_object_get(dataset, "max_storage_bytes"));
    json_int_t used = json_integer_value(json_object_get(dataset, "stored_bytes"));
    size_t sample = 0, all = 0;
    struct sh_sample_sizes z;
    int rc = find_batch_sizes(s, json_object_get(version, "inputs"), dataset, &z, err);

    if (rc)
        return rc;
    for (size_t i = 0; i < json_array_size(outputs); i++) {
        struct sh_st_tensor t;

        rc = sh_sample_read(json_array_get(outputs, i), &z, &t, err);

        if (!rc && is_output_kept(s, json_array_get(outputs, i)))
            rc = sh_add_size(sample, t.bytes, &sample, err);
        if (rc)
            return rc;
    }
    if (sh_mul_size(sample, (size_t)n, &all, NULL) || all > (size_t)room)
        return SH_FAIL(err, SH_E_TOOBIG,
                       "the outputs for the %" JSON_INTEGER_FORMAT " samples of dataset \"%s\", "
                       "%zu bytes each, are more than the %" JSON_INTEGER_FORMAT
                       " bytes of the tenant's max_storage_bytes; keep fewer outputs",
                       n, name, sample, room);
    if (all > (size_t)SH_MAX(room - used, 0))
        return SH_FAIL(err, SH_E_QUOTA,
                       "%" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT
                       " bytes of storage are used, no room for outputs of %zu bytes; delete "
                       "something or ask for a higher quota",
                       used, room, all);
    return SH_OK;
}

int batchspec_fits_dataset(const struct jobspec *s, const json_t *version, const char *name,
                           const json_t *dataset, struct sh_err *err)
{
    const json_t *inputs = json_object_get(version, "inputs");
    int rc = SH_OK;

    for (size_t i = 0; !rc && i < json_array_size(inputs); i++) {
        const json_t *in = json_array_get(inputs, i);
        const struct jobspec_want w = {name, dataset_name(s, in), tensor_dtype(in),
                                       json_object_get(in, "shape")};

        rc = jobspec_check_tensor(json_object_get(dataset, "tensors"), &w, err);
    }
    if (!rc && json_integer_value(json_object_get(dataset, "n_samples")) < 1)
        rc = SH_FAIL(err, SH_E_INVALID, "dataset \"%s\" has no samples", name);
    return rc ? rc : check_shape_room(s, version, name, dataset, err);
}
