/* batch_spec.c - see batch_spec.h. */
#include "common/batch_spec.h"

#include "common/mem.h"

#include <stdio.h>

#define AT(member) .offset = offsetof(struct batch_spec, member)

static const struct sh_field FIELDS[] = {
    {"batch", SH_JSON_INT, 1, 65536, NULL,
     "most samples in a run; default and limit: the max_batch of the version", AT(batch)},
    {"inputs", SH_JSON_OBJ, 0, BATCH_MAX_IO, NULL,
     "tensor of the dataset by input of the model, if names differ", AT(inputs)},
    {"outputs", SH_JSON_ARR, 1, BATCH_MAX_IO, NULL, "outputs to keep; default: all", AT(outputs)},
    {"checkpoint_interval_ms", SH_JSON_INT, 0, 864e5, NULL,
     "time between checkpoints, ms; default: the executor's", AT(checkpoint_interval_ms)},
};
const struct sh_fields BATCH_FIELDS = {FIELDS, SH_ARRAY_LEN(FIELDS), 0};

static int check_input_map(const char *what, const json_t *map, struct sh_err *err)
{
    const char *key;
    char path[128];
    json_t *v;
    int rc = SH_OK;

    snprintf(path, sizeof(path), "%s.inputs", what);
    if (json_object_size(map) > BATCH_MAX_IO) /* an array makes a thousand of it, early */
        rc = sh_json_fail(err, path, "\"%s\" may have at most %u members", path, BATCH_MAX_IO);
    json_object_foreach((json_t *)map, key, v)
    {
        if (!json_is_string(v))
            rc = sh_json_fail(err, path, "\"%s.%s\" must name a tensor", path, key);
    }
    return rc;
}

static int check_output_list(const char *what, const json_t *list, struct sh_err *err)
{
    char path[128];
    json_t *v;
    size_t i;
    int rc = SH_OK;

    snprintf(path, sizeof(path), "%s.outputs", what);
    json_array_foreach((json_t *)list, i, v)
    {
        if (!json_is_string(v))
            rc = sh_json_fail(err, path, "\"%s\" must be names", path);
        for (size_t k = 0; json_is_string(v) && k < i; k++)
            if (json_equal(v, json_array_get(list, k)))
                rc = sh_json_fail(err, path, "\"%s\" names \"%s\" twice", path,
                                  json_string_value(v));
    }
    return rc;
}

int batch_spec_read(const json_t *spec, const char *what, struct batch_spec *out,
                    struct sh_err *err)
{
    int rc, more;

    *out = (struct batch_spec){0};
    rc = sh_fields_take(spec, what, &BATCH_FIELDS, out, err);
    more = check_input_map(what, out->inputs, err);
    rc = rc ? rc : more;
    more = check_output_list(what, out->outputs, err);
    return rc ? rc : more;
}
