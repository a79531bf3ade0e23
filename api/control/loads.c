/* loads.c - versions on executors: load, unload, pin, unpin; where they are, and how fast they run.
 *
 * A wish concerns one version, or every version of a model. It is recorded and the scheduler
 * carries it out (202); what is done already stays. It is refused, with the reason, if the
 * version's state does not allow it.
 */
#include "api/control/loads.h"

#include "api/api.h"
#include "api/control/models.h"
#include "api/handlers.h"
#include "api/infer/link.h"
#include "api/infer/serving.h"
#include "api/request/noun.h"
#include "common/field.h"
#include "common/states.h"

#include <string.h>

/* Why a wish changed nothing that it should have changed. */
static const char *const REFUSED[] = {
    [STORE_LOAD] = "it has no file; upload one first",
    [STORE_UNLOAD] = "it is pinned, so it stays loaded; unpin it first",
    [STORE_PIN] = "only a version that is READY can be pinned; load it first",
    [STORE_UNPIN] = "",
};

static bool is_done(enum store_wish wish, const json_t *version)
{
    const char *state = json_string_value(json_object_get(version, "state"));
    bool pinned = json_is_true(json_object_get(version, "pinned"));
    bool wanted = sh_words_have(SH_VERSION_WANTED(SH_STATE_TEXT, ","), state);

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

static int wish_refused(enum store_wish wish, const char *model, const json_t *version,
                        struct sh_err *err)
{
    return SH_FAIL(err, SH_E_CONFLICT, "version %" JSON_INTEGER_FORMAT " of \"%s\" is %s: %s",
                   json_integer_value(json_object_get(version, "version")), model,
                   json_string_value(json_object_get(version, "state")), REFUSED[wish]);
}

/* Nothing was changed: because all is so already, or not. j: the version, or the model. Versions
 * that failed or have no file yet are in nobody's way; a pin that keeps one loaded is. */
static int check_done(enum store_wish wish, const json_t *j, const char *model, bool is_version,
                      struct sh_err *err)
{
    const json_t *v, *against = NULL;
    bool any_done = false;
    size_t i;

    if (is_version)
        return is_done(wish, j) ? SH_OK : wish_refused(wish, model, j, err);
    json_array_foreach(json_object_get(j, "versions"), i, v)
    {
        if (is_done(wish, v))
            any_done = true;
        else if (!against)
            against = v;
    }
    if (any_done && (!against || wish != STORE_UNLOAD))
        return SH_OK;
    if (against)
        return wish_refused(wish, model, against, err);
    return SH_FAIL(err, SH_E_CONFLICT, "the model \"%s\" has no versions; upload one first", model);
}

/* Of another tenant: seen, because it is shared, and not to be changed. */
static int check_owner(struct api_req *q, const char *model, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = noun_is_name(model) ? store_model_get(q, model, &j, err) : SH_OK;

    if (!rc && !j)
        rc = noun_missing("model", model, err);
    if (!rc)
        rc = models_own(q, j, err);
    json_decref(j);
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
    rc = check_owner(q, model, err);
    if (!rc)
        rc = store_version_wish(q, wish, model, version, &n, err);
    if (rc)
        return rc;
    if (n > 0)
        link_hint(q->api->link, "models");
    rc = version ? store_version_get(q, model, version, &j, err)
                 : store_model_get(q, model, &j, err);
    if (!rc && !j)
        rc = noun_missing(version ? "version" : "model", version ? version : model, err);
    if (!rc && n == 0)
        rc = check_done(wish, j, model, version != NULL, err);
    if (!rc && wish == STORE_LOAD && n == 0)
        serving_load_again(q, j);
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
    return rc ? rc : serving_reply(q, j, NULL, err);
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

static int version_look(struct api_req *q, version_fn *fn, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = SH_OK;

    if (noun_is_name(q->params[0]) && noun_is_number(q->params[1], INT32_MAX))
        rc = fn(q, q->params[0], q->params[1], &j, err);
    return noun_reply(q, rc, j, "version", q->params[1], err);
}

int loads_placements(struct api_req *q, struct sh_err *err)
{
    return version_look(q, store_version_placements, err);
}

int loads_profile(struct api_req *q, struct sh_err *err)
{
    return version_look(q, store_version_profile, err);
}
