/* versions.c - versions of models. Uploading is upload.c. */
#include "api/api.h"
#include "api/control/models.h"
#include "api/handlers.h"
#include "api/infer/link.h"
#include "api/infer/serving.h"
#include "api/request/noun.h"
#include "api/store/store.h"
#include "common/mem.h"
#include "common/states.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int check_path(const struct api_req *q, struct sh_err *err)
{
    if (!noun_is_name(q->params[0]))
        return noun_missing("model", q->params[0], err);
    if (!noun_is_number(q->params[1], INT32_MAX))
        return noun_missing("version", q->params[1], err);
    return SH_OK;
}

int versions_list(struct api_req *q, struct sh_err *err)
{
    struct req_page page;
    json_t *j = NULL, *model = NULL;
    int rc = req_page(q, &page, err);

    if (!rc)
        rc = models_of_path(q, &model, err);
    json_decref(model);
    if (!rc)
        rc = store_version_list(q, q->params[0], &page, &j, err);
    return rc ? rc : serving_reply(q, j, NULL, err);
}

static int read_buckets_text(const struct api_req *q, const json_t *j, char **text,
                             struct sh_err *err)
{
    const int64_t most = q->api->conf->max_axis_size;
    const char *name;
    json_t *list;
    int rc = sh_buckets_read(j, NULL, NULL, err);

    json_object_foreach((json_t *)(uintptr_t)j, name, list)
    {
        const json_t *last = json_array_get(list, json_array_size(list) - 1);

        if (!rc && json_integer_value(last) > most)
            rc = SH_FAIL(err, SH_E_INVALID,
                         "a bucket of \"%.64s\" is %" JSON_INTEGER_FORMAT ", at most %" PRId64
                         " are allowed here (max-axis-size)",
                         name, json_integer_value(last), most);
    }
    if (!rc)
        rc = sh_json_dump(j, text, err);
    if (!rc && strlen(*text) >= SH_BUCKETS_TEXT)
        rc = SH_FAIL(err, SH_E_INVALID, "the buckets have more than %u bytes", SH_BUCKETS_TEXT - 1);
    return rc;
}

int versions_create(struct api_req *q, struct sh_err *err)
{
    struct store_version_new v = {.model = q->params[0], .precision = "fp32"};
    char location[240], *text = NULL;
    json_t *buckets = NULL;
    struct sh_json_field f[] = {
        {"version", SH_JSON_INT, &v.version, .min = 1, .max = SH_VERSION_MAX},
        {"max_batch", SH_JSON_INT, &v.max_batch, .min = 1, .max = 1024},
        {"precision", SH_JSON_STR, &v.precision, .required = false},
        {"buckets", SH_JSON_OBJ, &buckets, .required = false},
    };
    json_t *j = NULL;
    int rc = noun_is_name(q->params[0]) ? SH_OK : noun_missing("model", q->params[0], err);

    if (!rc)
        rc = noun_read(q, "", f, SH_ARRAY_LEN(f), err);
    if (!rc)
        rc = noun_check_choice("precision", v.precision, SH_PRECISIONS, err);
    if (!rc && buckets)
        rc = read_buckets_text(q, buckets, &text, err);
    v.buckets = text;
    if (!rc)
        rc = store_has_place(q, STORE_VERSIONS, err);
    if (!rc)
        rc = store_version_create(q, &v, &j, err);
    free(text);
    if (rc == SH_E_CONFLICT && err)
        snprintf(err->msg, sizeof(err->msg), "%s",
                 v.version > 0 ? "this version number is taken; omit it to get the next one"
                               : "others create versions at the same time; try again");
    if (!rc && !j)
        rc = noun_missing("model of your own", q->params[0], err);
    if (rc)
        return rc;
    snprintf(location, sizeof(location), "/api/v1/models/%s/versions/%" JSON_INTEGER_FORMAT,
             q->params[0], json_integer_value(json_object_get(j, "version")));
    return serving_reply(q, j, location, err);
}

int versions_get(struct api_req *q, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = check_path(q, err);

    if (!rc)
        rc = store_version_get(q, q->params[0], q->params[1], &j, err);
    rc = noun_reply(q, rc, j, "version", q->params[1], err);
    return rc ? rc : serving_show(q, q->reply.body, err);
}

/* Why no version was deleted. */
static int refuse_delete(struct api_req *q, const char *match, struct sh_err *err)
{
    json_t *model = NULL, *now = NULL;
    int rc = store_model_get(q, q->params[0], &model, err);

    if (!rc && model)
        rc = models_own(q, model, err);
    if (!rc)
        rc = store_version_get(q, q->params[0], q->params[1], &now, err);
    if (!rc)
        rc = noun_refused(now, match, "version", q->params[1],
                          json_is_true(json_object_get(now, "pinned"))
                              ? "this version is pinned; unpin it first"
                              : "jobs that have not ended use this version; cancel them first, or "
                                "wait until they end",
                          err);
    json_decref(model);
    json_decref(now);
    return rc;
}

int versions_delete(struct api_req *q, struct sh_err *err)
{
    const char *match;
    char buf[24];
    json_t *j = NULL;
    int rc = check_path(q, err);

    if (!rc)
        rc = req_if_match(q, buf, &match, err);
    if (!rc)
        rc = store_version_delete(q, q->params[0], q->params[1], match, &j, err);
    if (!rc && !j)
        rc = refuse_delete(q, match, err);
    if (!rc)
        link_hint(q->api->link, "models");
    json_decref(j);
    return rc;
}
