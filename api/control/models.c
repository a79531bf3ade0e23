/* models.c - models: names for versions. */
#include "api/control/models.h"

#include "api/api.h"
#include "api/handlers.h"
#include "api/infer/link.h"
#include "api/infer/serving.h"
#include "api/request/noun.h"
#include "api/store/store.h"
#include "common/mem.h"

#include <stdio.h>

int models_list(struct api_req *q, struct sh_err *err)
{
    struct req_page page;
    json_t *j = NULL;
    int rc = req_page(q, &page, err);

    if (!rc)
        rc = store_model_list(q, &page, &j, err);
    return rc ? rc : serving_reply(q, j, NULL, err);
}

int models_create(struct api_req *q, struct sh_err *err)
{
    const char *name = NULL, *visibility = "private";
    char location[200];
    struct sh_json_field f[] = {
        {"name", SH_JSON_STR, &name, .required = true, .min = 1, .max = 128},
        {"visibility", SH_JSON_STR, &visibility, .required = false},
    };
    json_t *j = NULL;
    int rc = noun_read(q, "", f, SH_ARRAY_LEN(f), err);

    if (!rc)
        rc = noun_check_name("name", name, err);
    if (!rc)
        rc = noun_check_choice("visibility", visibility, SH_VISIBILITIES, err);
    if (!rc)
        rc = store_has_place(q, STORE_MODELS, err);
    if (rc)
        return rc;
    rc = store_model_create(q, name, visibility, &j, err);
    if (rc == SH_E_CONFLICT && err)
        snprintf(err->msg, sizeof(err->msg), "the model \"%s\" exists already", name);
    if (rc)
        return rc;
    snprintf(location, sizeof(location), "/api/v1/models/%s", name);
    return serving_reply(q, j, location, err);
}

int models_get(struct api_req *q, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = SH_OK;

    if (noun_is_name(q->params[0]))
        rc = store_model_get(q, q->params[0], &j, err);
    rc = noun_reply(q, rc, j, "model", q->params[0], err);
    return rc ? rc : serving_show(q, q->reply.body, err);
}

int models_of_path(struct api_req *q, json_t **out, struct sh_err *err)
{
    int rc = SH_OK;

    *out = NULL;
    if (noun_is_name(q->params[0]))
        rc = store_model_get(q, q->params[0], out, err);
    if (!rc && !*out)
        rc = noun_missing("model", q->params[0], err);
    return rc;
}

int models_own(const struct api_req *q, const json_t *model, struct sh_err *err)
{
    if (strcmp(json_string_value(json_object_get(model, "tenant")), q->tenant) == 0)
        return SH_OK;
    return SH_FAIL(err, SH_E_FORBIDDEN, "the model \"%s\" belongs to another tenant",
                   json_string_value(json_object_get(model, "name")));
}

/* Why a change of a model touched no row. */
static int refused(struct api_req *q, const char *name, const char *match, const char *why,
                   struct sh_err *err)
{
    json_t *now = NULL;
    int rc = store_model_get(q, name, &now, err);

    if (!rc && now)
        rc = models_own(q, now, err);
    if (!rc)
        rc = noun_refused(now, match, "model", name, why, err);
    json_decref(now);
    return rc;
}

static const char *why_kept(struct api_req *q, const char *name)
{
    const json_t *v;
    json_t *now = NULL;
    bool pinned = false;
    size_t i;

    if (store_model_get(q, name, &now, NULL))
        return "it is in use";
    json_array_foreach(json_object_get(now, "versions"), i, v)
    {
        pinned |= json_is_true(json_object_get(v, "pinned"));
    }
    json_decref(now);
    return pinned ? "a version of this model is pinned; unpin it first"
                  : "jobs that have not ended use a version of this model; cancel them first, or "
                    "wait until they end";
}

int models_patch(struct api_req *q, struct sh_err *err)
{
    const char *match, *name = q->params[0], *visibility = NULL;
    char buf[24];
    struct sh_json_field f[] = {{"visibility", SH_JSON_STR, &visibility, .required = true}};
    json_t *j = NULL;
    int rc = noun_is_name(name) ? SH_OK : noun_missing("model", name, err);

    if (!rc)
        rc = noun_read(q, "", f, SH_ARRAY_LEN(f), err);
    if (!rc)
        rc = noun_check_choice("visibility", visibility, SH_VISIBILITIES, err);
    if (!rc)
        rc = req_if_match(q, buf, &match, err);
    if (!rc)
        rc = store_model_patch(q, name, match, visibility, &j, err);
    if (!rc && !j)
        rc = refused(q, name, match, "the model was changed by another request; try again", err);
    return rc ? rc : serving_reply(q, j, NULL, err);
}

int models_delete(struct api_req *q, struct sh_err *err)
{
    const char *match, *name = q->params[0];
    char buf[24];
    json_t *j = NULL;
    int rc = noun_is_name(name) ? SH_OK : noun_missing("model", name, err);

    if (!rc)
        rc = req_if_match(q, buf, &match, err);
    if (!rc)
        rc = store_model_delete(q, name, match, &j, err);
    if (!rc && !j)
        rc = refused(q, name, match, why_kept(q, name), err);
    if (!rc)
        link_hint(q->api->link, "models");
    json_decref(j);
    return rc;
}
