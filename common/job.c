/* job.c - see job.h. */
#include "common/job.h"

#include "common/train_option.h"

#include <stdio.h>
#include <string.h>

const char *sh_job_field_name(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot ? dot + 1 : path;
}

static bool is_in_optimizer(const char *name)
{
    return strcmp(name, "name") != 0 && train_field(TRAIN_OPTIMIZER, name);
}

/* Some fields are a name or an object with it: the object at `name`, made of the name if need be.
 * NULL: it is neither, or there is no memory. */
static json_t *object_at(json_t *spec, const char *name)
{
    json_t *v = json_object_get(spec, name);

    if (!v)
        json_object_set_new(spec, name, json_object());
    else if (json_is_string(v))
        json_object_set_new(spec, name, json_pack("{s:O}", "name", v));
    return json_object_get(spec, name);
}

int sh_job_set_field(json_t *job, const char *path, json_t *value, struct sh_err *err)
{
    json_t *spec = json_object_get(job, "spec"), *in = spec;
    const char *dot = strchr(path, '.');
    char outer[64] = "optimizer";

    if (dot)
        snprintf(outer, sizeof(outer), "%.*s", (int)(dot - path), path);
    const char *name = sh_job_field_name(path);

    if (dot || is_in_optimizer(path)) {
        in = object_at(spec, outer);
    } else if (json_is_string(value) && json_is_object(json_object_get(spec, path))) {
        in = json_object_get(spec, path); /* of which this is the name */
        name = "name";
    }
    if (!json_is_object(in))
        return SH_OK;
    return json_object_set(in, name, value) ? SH_FAIL(err, SH_E_NOMEM, "could not allocate a job")
                                            : SH_OK;
}
