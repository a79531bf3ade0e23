/* gpus.c - GPUs and their executors, as last reported by the leading scheduler. */
#include "api/handlers.h"
#include "api/request/noun.h"
#include "api/store/store.h"

int gpus_list(struct api_req *q, struct sh_err *err)
{
    struct req_page page;
    json_t *j = NULL;
    int rc = req_page(q, &page, err);

    if (!rc)
        rc = store_gpu_list(q, &page, &j, err);
    return noun_page_reply(q, rc, j, err);
}

int gpus_times(struct api_req *q, struct sh_err *err)
{
    struct req_page page;
    json_t *j = NULL;
    int rc = req_page(q, &page, err);

    if (!rc)
        rc = store_gpu_times(q, &page, &j, err);
    return noun_page_reply(q, rc, j, err);
}

int gpus_get(struct api_req *q, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = store_gpu_get(q, q->params[0], &j, err);

    return noun_reply(q, rc, j, "GPU", q->params[0], err);
}
