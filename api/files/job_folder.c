/* job_folder.c - see job_folder.h. */
#include "api/files/job_folder.h"

#include "api/api.h"
#include "api/request/noun.h"
#include "common/mem.h"
#include "common/safetensors.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>

bool job_folder_is_name(const char *name, int64_t *step)
{
    static const char *const NAMES[] = {"losses.json", "final.safetensors", "trained.onnx",
                                        "result.safetensors", JOB_FOLDER_LOG};
    char canonical[64];

    *step = -1;
    for (size_t i = 0; i < SH_ARRAY_LEN(NAMES); i++)
        if (strcmp(name, NAMES[i]) == 0)
            return true;
    *step = sh_st_ckpt_step(name);
    snprintf(canonical, sizeof(canonical), SH_ST_CKPT, *step);
    return *step >= 0 && strcmp(name, canonical) == 0; /* one step has one name */
}

int64_t job_folder_newest(const char *dir, int64_t below)
{
    const struct dirent *e;
    DIR *d = opendir(dir);
    int64_t best = -1, step;

    while (d && (e = readdir(d))) {
        step = sh_st_ckpt_step(e->d_name);
        if (step < below && step > best)
            best = step;
    }
    if (d)
        closedir(d);
    return best;
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
        rc = job_folder_name(q, &step, err);
    if (!rc)
        rc = store_job_owned(q->db, &o, &out->open, err);
    if (!rc && !out->open)
        rc = job_folder_not_owner(&o, err);
    return rc;
}
