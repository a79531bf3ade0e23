/* datasets.c - datasets: safetensors files to train on. Uploading is upload.c. */
#include "api/handlers.h"
#include "api/request/noun.h"
#include "api/store/store.h"
#include "common/mem.h"

#include <stdio.h>

int datasets_list(struct api_req *q, struct sh_err *err)
{
    struct req_page page;
    json_t *j = NULL;
    int rc = req_page(q, &page, err);

    if (!rc)
        rc = store_dataset_list(q, &page, &j, err);
    return noun_page_reply(q, rc, j, err);
}

int datasets_create(struct api_req *q, struct sh_err *err)
{
    const char *name = NULL;
    char location[200];
    struct sh_json_field f[] = {
        {"name", SH_JSON_STR, &name, .required = true, .min = 1, .max = 128},
    };
    json_t *j = NULL;
    int rc = noun_read(q, "", f, SH_ARRAY_LEN(f), err);

    if (!rc)
        rc = noun_check_name("name", name, err);
    if (!rc)
        rc = store_has_place(q, STORE_DATASETS, err);
    if (rc)
        return rc;
    rc = store_dataset_create(q, name, &j, err);
    if (rc == SH_E_CONFLICT && err)
        snprintf(err->msg, sizeof(err->msg), "the dataset \"%s\" exists already", name);
    if (rc)
        return rc;
    snprintf(location, sizeof(location), "/api/v1/datasets/%s", name);
    return req_reply(q, j, location, err);
}

int datasets_get(struct api_req *q, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = SH_OK;

    if (noun_is_name(q->params[0]))
        rc = store_dataset_get(q, q->params[0], &j, err);
    return noun_reply(q, rc, j, "dataset", q->params[0], err);
}

int datasets_delete(struct api_req *q, struct sh_err *err)
{
    const char *match, *name = q->params[0];
    char buf[24];
    json_t *j = NULL, *now = NULL;
    int rc = noun_is_name(name) ? SH_OK : noun_missing("dataset", name, err);

    if (!rc)
        rc = req_if_match(q, buf, &match, err);
    if (!rc)
        rc = store_dataset_delete(q, name, match, &j, err);
    if (!rc && !j) {
        rc = store_dataset_get(q, name, &now, err);
        if (!rc)
            rc = noun_refused(now, match, "dataset", name,
                              "jobs that have not ended use this dataset; cancel them first, or "
                              "wait until they end",
                              err);
    }
    json_decref(now);
    json_decref(j);
    return rc;
}
