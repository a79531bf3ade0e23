/* job_folder.c - see job_folder.h. */
#include "api/files/job_folder.h"

#include "api/api.h"
#include "api/request/noun.h"
#include "common/ckpt.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>

bool job_folder_is_name(const char *name, int64_t *step)
{
    static const char *const NAMES[] = {"losses.json", "final.safetensors", "trained.onnx",
                                        "result.safetensors", JOB_FOLDER_LOG};

    *step = -1;
    for (size_t i = 0; i < SH_ARRAY_LEN(NAMES); i++)
        if (strcmp(name, NAMES[i]) == 0)
            return true;
    *step = sh_ckpt_step(name);
    return *step >= 0;
}

int job_folder_path(const struct api_req *q, char **out, struct sh_err *err)
{
    int64_t id;
    int rc = sh_parse_i64(q->params[0], 1, INT64_MAX, "job", &id, NULL);

    *out = NULL;
    if (rc)
        return noun_missing("job", q->params[0], err);
    return sh_asprintf(err, out, "%s/jobs/%" PRId64, q->api->conf->state_dir, id);
}

int job_folder_name(const struct api_req *q, int64_t *step, struct sh_err *err)
{
    return job_folder_is_name(q->params[1], step) ? SH_OK : noun_missing("file", q->params[1], err);
}

int job_folder_own_name(const struct api_req *q, const struct store_owner *o, int64_t *step,
                        struct sh_err *err)
{
    char own[SH_CKPT_BYTES];
    int rc = job_folder_name(q, step, err);

    if (rc || *step < 0)
        return rc;
    sh_ckpt_name(own, *step, o->executor);
    if (strcmp(q->params[1], own) == 0)
        return SH_OK;
    return SH_FAIL(err, SH_E_INVALID, "a checkpoint of executor \"%.64s\" is called %s",
                   o->executor, own);
}

int job_folder_owner(const struct api_req *q, struct store_owner *o, struct sh_err *err)
{
    const char *executor = uri_query(&q->uri, "executor"), *n = uri_query(&q->uri, "attempt");
    int64_t attempt;
    int rc;

    *o = (struct store_owner){.job = q->params[0],
                              .executor = executor,
                              .attempt = n,
                              .is_late = strcmp(q->params[1], JOB_FOLDER_LOG) == 0};
    if (!executor || !n)
        return SH_FAIL(err, SH_E_INVALID, "\"executor\" and \"attempt\" must say whose file it is");
    rc = sh_parse_i64(q->params[0], 1, INT64_MAX, "job", &attempt, NULL);
    if (rc)
        return noun_missing("job", q->params[0], err);
    return sh_parse_i64(n, 0, INT32_MAX, "attempt", &attempt, err);
}

int job_folder_not_owner(const struct store_owner *o, struct sh_err *err)
{
    return SH_FAIL(err, SH_E_CONFLICT, "executor \"%.64s\" does not have job %s in attempt %s",
                   o->executor, o->job, o->attempt);
}

int job_folder_slot(struct api_req *q, struct store_slot *out, struct sh_err *err)
{
    struct store_owner o;
    int64_t step;
    int rc = job_folder_owner(q, &o, err);

    *out = (struct store_slot){.max_bytes = q->api->conf->max_dataset_bytes};
    if (!rc)
        rc = job_folder_own_name(q, &o, &step, err);
    if (!rc)
        rc = store_job_owned(q->db, &o, &out->open, err);
    if (!rc && !out->open)
        rc = job_folder_not_owner(&o, err);
    return rc;
}
