/* job_batches.c - many jobs in one request, each with its own result: a fault in one does not stop
 * the others. If the quota has no room for all of them the request is refused. */
#include "api/api.h"
#include "api/handlers.h"
#include "api/infer/link.h"
#include "api/jobs/submit.h"
#include "api/request/noun.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>

/* Of all jobs of a batch together: so the answer is not many times the request. Of a job behind
 * them the first mistake alone is told. */
#define MAX_FAULTS 2000

static json_t *item_result(const struct submit_item *x)
{
    int status = x->status ? x->status : sh_rc_http(x->err.rc);

    if (x->err.rc)
        return json_pack("{s:i, s:s, s:s, s:O*}", "status", status, "code", sh_rc_name(x->err.rc),
                         "error", x->err.msg, "errors", x->faults.list);
    return json_pack("{s:i, s:I, s:I}", "status", x->made == SUBMIT_MADE ? 201 : 200, "job",
                     (json_int_t)x->id, "version", (json_int_t)x->version);
}

static int batch_create(struct submit *s, json_t **out, struct sh_err *err)
{
    json_t *items = NULL;
    json_int_t created = 0, failed = 0;
    int rc = submit_store(s, err);

    if (rc)
        return rc;
    items = json_array();
    for (size_t i = 0; i < s->n; i++) {
        created += s->items[i].made == SUBMIT_MADE;
        failed += s->items[i].err.rc != SH_OK;
        if (json_array_append_new(items, item_result(&s->items[i])))
            rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the reply");
    }
    *out = json_pack("{s:o, s:I, s:I}", "items", items, "created", created, "failed", failed);
    submit_say_assumes(s, *out);
    return rc ? rc : *out ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate the reply");
}

/* The first job that was made. */
static json_int_t first_job_of(const json_t *answer)
{
    const json_t *x;
    size_t i;

    json_array_foreach(json_object_get(answer, "items"), i, x)
    {
        if (json_integer_value(json_object_get(x, "status")) == 201)
            return json_integer_value(json_object_get(x, "job"));
    }
    return 0;
}

int job_batches_create(struct api_req *q, struct sh_err *err)
{
    json_t *jobs = NULL, *answer = NULL;
    struct sh_json_field f[] = {
        {"jobs", SH_JSON_ARR, &jobs, .required = true, .min = 1, .max = SUBMIT_MAX_JOBS},
    };
    struct submit s = {0};
    size_t n_faults = 0;
    char location[64];
    int rc = noun_read(q, "", f, SH_ARRAY_LEN(f), err);

    if (!rc)
        rc = submit_init(&s, q, STORE_SUBMIT_BATCH, json_array_size(jobs), err);
    for (size_t i = 0; !rc && i < s.n; i++) {
        struct submit_item *x = &s.items[i];

        submit_read(x, json_array_get(jobs, i), n_faults < MAX_FAULTS ? &x->faults : NULL);
        n_faults += json_array_size(x->faults.list);
    }
    if (!rc)
        rc = submit_once(&s, batch_create, &answer, err);
    submit_fini(&s);
    if (rc)
        return rc;
    if (first_job_of(answer)) {
        if (!q->reply.replayed)
            link_hint(q->api->link, "jobs");
        snprintf(location, sizeof(location), "/api/v1/jobs/%" JSON_INTEGER_FORMAT,
                 first_job_of(answer));
        return req_reply(q, answer, location, err);
    }
    q->reply.status = 200;
    return req_reply(q, answer, NULL, err);
}
