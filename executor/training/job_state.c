/* job_state.c - the table of a job's state: which tensors it has, which of them steps write, and
 * where a copy in host memory has them. */
#include "common/json.h"
#include "common/mem.h"
#include "executor/training/job.h"

#include <stdlib.h>

#define BEST_SUFFIX "#best"
#define TABLE_MAX_BYTES ((size_t)8 << 20)

static uint64_t offset_of(const struct job *j, size_t i)
{
    return (uint64_t)json_integer_value(json_object_get(json_array_get(j->table, i), "off"));
}

bool job_is_kind(const struct job *j, size_t i, const char *kind)
{
    return strcmp(sh_json_text(json_array_get(j->table, i), "kind"), kind) == 0;
}

bool job_is_weight(const struct job *j, size_t i)
{
    return job_is_kind(j, i, "param") || job_is_kind(j, i, "stat") || job_is_kind(j, i, "ema");
}

bool job_is_written(const struct job *j, size_t i)
{
    return offset_of(j, i) < j->written_bytes;
}

char *job_tensor(const struct job *j, const struct slot *s, size_t i)
{
    const uint64_t off = offset_of(j, i);

    return job_is_written(j, i) ? (char *)s->mem.base + off
                                : (char *)j->fixed.base + (off - j->written_bytes);
}

static int read_state_entry(const struct job *j, json_t *e, struct sh_st_tensor *t,
                            struct sh_err *err)
{
    const char *name = NULL, *dtype = NULL, *kind = NULL;
    json_t *shape = NULL;
    int64_t off = 0, bytes = 0;
    bool assumed = false; /* job.c reads it */
    const struct sh_json_field f[] = {
        {"name", SH_JSON_STR, &name, .required = true, .min = 1, .max = 1024},
        {"dtype", SH_JSON_STR, &dtype, .required = true, .max = 16},
        {"kind", SH_JSON_STR, &kind, .max = 16},
        {"shape", SH_JSON_ARR, &shape, .required = true, .max = SH_MAX_RANK},
        {"off", SH_JSON_INT, &off, .required = true, .min = 0, .max = 1e15},
        {"bytes", SH_JSON_INT, &bytes, .required = true, .min = 0, .max = 1e15},
        {"assumed", SH_JSON_BOOL, &assumed, .required = false},
    };
    int rc = sh_json_read(e, "state", f, SH_ARRAY_LEN(f), err);
    uint64_t end; /* of its part of the state */

    if (rc)
        return rc;
    *t = (struct sh_st_tensor){
        .name = name, .dtype = sh_dtype_from_st(dtype), .bytes = (size_t)bytes};
    t->rank = json_array_size(shape);
    for (size_t i = 0; i < t->rank; i++)
        t->dims[i] = json_integer_value(json_array_get(shape, i));
    end = (uint64_t)off < j->written_bytes ? j->written_bytes : j->state_bytes;
    if (t->dtype == SH_N_DTYPES || (uint64_t)off > end || (uint64_t)bytes > end - (uint64_t)off)
        return SH_FAIL(err, SH_E_PROTO, "entry \"%s\" does not lie in the state", name);
    return SH_OK;
}

/* What no step writes is as good in the best state as in any other. */
static int name_best(struct job *j, struct sh_err *err)
{
    int rc = SH_OK;

    if (!j->trials.best_by)
        return SH_OK;
    j->best_names = calloc(j->n_tensors + 1, sizeof(*j->best_names));
    if (!j->best_names)
        return SH_FAIL(err, SH_E_NOMEM, "could not keep the names of the best weights");
    for (size_t i = 0; i < j->n_tensors && !rc; i++)
        if (job_is_weight(j, i) && job_is_written(j, i))
            rc = sh_asprintf(err, &j->best_names[i], "%s" BEST_SUFFIX, j->tensors[i].name);
    return rc;
}

int job_read_table(struct job *j, const char *text, struct sh_err *err)
{
    int rc = sh_json_parse(text, strlen(text), TABLE_MAX_BYTES, &j->table, err);

    if (rc)
        return rc;
    j->n_tensors = json_array_size(j->table);
    j->tensors = calloc(j->n_tensors + 1, sizeof(*j->tensors));
    if (!j->tensors)
        return SH_FAIL(err, SH_E_NOMEM, "could not keep the table of the state");
    for (size_t i = 0; !rc && i < j->n_tensors; i++)
        rc = read_state_entry(j, json_array_get(j->table, i), &j->tensors[i], err);
    return rc ? rc : name_best(j, err);
}
