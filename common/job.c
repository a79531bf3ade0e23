/* job.c - see job.h. */
#include "common/job.h"

#include "common/mem.h"

#include <stdio.h>
#include <string.h>

const char *sh_job_field_name(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot ? dot + 1 : path;
}

static bool is_in_optimizer(const char *name)
{
    static const char *const FIELDS[] = {"lr",    "momentum", "weight_decay", "beta1",
                                         "beta2", "eps",      "nesterov"};

    for (size_t i = 0; i < SH_ARRAY_LEN(FIELDS); i++)
        if (strcmp(name, FIELDS[i]) == 0)
            return true;
    return false;
}

int sh_job_set_field(json_t *job, const char *path, json_t *value, struct sh_err *err)
{
    json_t *spec = json_object_get(job, "spec"), *in = spec;
    const char *dot = strchr(path, '.');
    char outer[64] = "optimizer";

    if (dot)
        snprintf(outer, sizeof(outer), "%.*s", (int)(dot - path), path);
    if (dot || is_in_optimizer(path)) {
        in = json_object_get(spec, outer);
        if (!in && json_object_set_new(spec, outer, json_object()) == 0)
            in = json_object_get(spec, outer);
    }
    if (!json_is_object(in))
        return SH_OK;
    return json_object_set(in, sh_job_field_name(path), value)
               ? SH_FAIL(err, SH_E_NOMEM, "could not allocate a job")
               : SH_OK;
}
