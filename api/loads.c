/* loads.c - versions on executors: load, unload, pin, unpin; where they stand, how fast they run.
 *
 * Each wish is about one version, or about every version of a model. It is written down and the
 * scheduler follows it (202); what is so already stays so. Refused with the reason: what the
 * version's state does not allow.
 */
#include "api/loads.h"

#include "api/api.h"
#include "api/handlers.h"
#include "api/link.h"
#include "api/noun.h"

#include <string.h>

/* Why a wish changed nothing that it should have changed. */
static const char *const REFUSED[] = {
    [STORE_LOAD] = "nothing was uploaded for it yet",
    [STORE_UNLOAD] = "it is pinned; unpin it first",
    [STORE_PIN] = "only a version that is READY can be pinned; load it first",
    [STORE_UNPIN] = "",
};

static bool is_done(enum store_wish wish, const json_t *version)
{
    const char *state = json_string_value(json_object_get(version, "state"));
    bool pinned = json_is_true(json_object_get(version, "pinned"));
    bool wanted = strcmp(state, "REGISTERED") == 0 || strcmp(state, "LOADING") == 0 ||
                  strcmp(state, "READY") == 0;

    switch (wish) {
    case STORE_LOAD:
        return wanted;
    case STORE_UNLOAD:
        return !wanted;
    case STORE_PIN:
        return pinned;
    default:
        return !pinned;
    }
}

/* Nothing was changed: because all is so already, or not. j: the version, or the model. */
static int check_done(enum store_wish wish, const json_t *j, const char *model, const char *version,
                      struct sh_err *err)
{
    const json_t *list = json_object_get(j, "versions"), *v;
    size_t i;

    if (version && is_done(wish, j))
        return SH_OK;
    if (version)
        return SH_FAIL(err, SH_E_CONFLICT, "version %s of \"%s\" is %s: %s", version, model,
                       json_string_value(json_object_get(j, "state")), REFUSED[wish]);
    json_array_foreach(list, i, v)
    {
        if (is_done(wish, v))
            return SH_OK;
    }
    return SH_FAIL(err, SH_E_CONFLICT, "no version of \"%s\": %s", model,
                   json_array_size(list) ? REFUSED[wish] : "the model has none");
}

/* Of another tenant: seen, because it is shared, and not to be changed. */
static int check_owner(struct api_req *q, const char *model, json_t **out, struct sh_err *err)
{
    int rc = noun_is_name(model) ? store_model_get(q, model, out, err) : SH_OK;

    if (!rc && !*out)
        rc = noun_missing("model", model, err);
    if (!rc && strcmp(json_string_value(json_object_get(*out, "tenant")), q->tenant) != 0)
        rc = SH_FAIL(err, SH_E_FORBIDDEN, "the model \"%s\" belongs to another tenant", model);
    return rc;
}

int loads_wish(struct api_req *q, enum store_wish wish, const char *model, const char *version,
               json_t **out, struct sh_err *err)
{
    json_t *j = NULL;
    int64_t n = 0;
    int rc;

    *out = NULL;
    if (version && !noun_is_number(version, INT32_MAX))
        return noun_missing("version", version, err);
    rc = check_owner(q, model, &j, err);
    if (!rc)
        rc = store_version_wish(q, wish, model, version, &n, err);
    json_decref(j);
    j = NULL;
    if (rc)
        return rc;
    if (n > 0)
        link_hint(q->api->link, "models");
    rc = version ? store_version_get(q, model, version, &j, err)
                 : store_model_get(q, model, &j, err);
    if (!rc && !j)
        rc = noun_missing(version ? "version" : "model", version ? version : model, err);
    if (!rc && n == 0)
        rc = check_done(wish, j, model, version, err);
    if (rc)
        json_decref(j);
    else
        *out = j;
    return rc;
}

static int wish(struct api_req *q, enum store_wish wish, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = noun_read(q, "", NULL, 0, err);

    if (!rc)
        rc = loads_wish(q, wish, q->params[0], q->params[1], &j, err);
    return rc ? rc : req_reply(q, j, NULL, err);
}

int loads_load(struct api_req *q, struct sh_err *err)
{
    return wish(q, STORE_LOAD, err);
}

int loads_unload(struct api_req *q, struct sh_err *err)
{
    return wish(q, STORE_UNLOAD, err);
}

int loads_pin(struct api_req *q, struct sh_err *err)
{
    return wish(q, STORE_PIN, err);
}

int loads_unpin(struct api_req *q, struct sh_err *err)
{
    return wish(q, STORE_UNPIN, err);
}

/* ------------------------------------------------------------------ looking */

typedef int version_fn(struct api_req *q, const char *model, const char *version, json_t **out,
                       struct sh_err *err);

static int look(struct api_req *q, version_fn *fn, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = SH_OK;

    if (noun_is_name(q->params[0]) && noun_is_number(q->params[1], INT32_MAX))
        rc = fn(q, q->params[0], q->params[1], &j, err);
    return noun_reply(q, rc, j, "version", q->params[1], err);
}

int loads_placements(struct api_req *q, struct sh_err *err)
{
    return look(q, store_version_placements, err);
}

int loads_profile(struct api_req *q, struct sh_err *err)
{
    return look(q, store_version_profile, err);
}
