/* v2_repo.c - the model repository of the inference protocol.
 *
 * Clients take the answer to "load" to mean "loaded". So it waits until no version of the model is
 * still coming, at most LOAD_WAIT_NS, which is less than their network timeout of a minute. They
 * accept only 200 as success, and want no body. Unloading is answered at once; the index shows when
 * it is done.
 */
#include "api/api.h"
#include "api/cache/waiters.h"
#include "api/control/loads.h"
#include "api/control/models.h"
#include "api/handlers.h"
#include "api/infer/serving.h"
#include "api/request/noun.h"
#include "common/clock.h"
#include "common/field.h"
#include "common/mem.h"
#include "common/states.h"
#include "common/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LOAD_WAIT_NS SH_S(55)

/* Parameters that would change what is loaded are not for us: a model is uploaded first. */
static int check_parameters(struct api_req *q, const char *allowed, struct sh_err *err)
{
    const json_t *parameters = json_object_get(q->json, "parameters"), *value;
    const char *key;

    if (parameters && !json_is_object(parameters))
        return SH_FAIL(err, SH_E_INVALID, "\"parameters\" must be an object");
    json_object_foreach((json_t *)parameters, key, value)
    {
        if (allowed && strcmp(key, allowed) == 0 && json_is_boolean(value))
            continue;
        q->reply.status = 400;
        return SH_FAIL(
            err, SH_E_UNSUPPORTED,
            "parameter \"%.64s\" is not supported: upload a model, with its settings, as "
            "a new version (/api/v1/models)",
            key);
    }
    return SH_OK;
}

/* Why a version is FAILED, as executors say of one that is READY in the database, and of others the
 * database. SH_OK: it is gone meanwhile. */
static int say_failed(struct api_req *q, const json_t *version, struct sh_err *err)
{
    const char *why = sh_json_text(version, "reason");
    json_t *row = NULL;
    char number[24];
    int rc = SH_OK;

    snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT,
             json_integer_value(json_object_get(version, "version")));
    if (!why[0])
        rc = store_version_get(q, q->params[0], number, &row, err);
    if (row)
        why = sh_json_text(row, "reason");
    if (!rc && (row || why[0]))
        rc = SH_FAIL(err, SH_E_CONFLICT, "failed to load \"%s\", version %s: %s", q->params[0],
                     number, why);
    json_decref(row);
    return rc;
}

/* Is any version on its way, and is one FAILED? */
static int check_loaded(struct api_req *q, const json_t *model, bool *waits, struct sh_err *err)
{
    const json_t *v;
    size_t i;
    int rc = SH_OK;

    *waits = false;
    json_array_foreach(json_object_get(model, "versions"), i, v)
    {
        const char *state = json_string_value(json_object_get(v, "state"));

        *waits |= sh_words_have(SH_VERSION_COMING(SH_STATE_TEXT, ","), state);
        if (strcmp(state, "FAILED") == 0 && !rc)
            rc = say_failed(q, v, err);
    }
    return *waits ? SH_OK : rc;
}

int v2_load(struct api_req *q, struct sh_err *err)
{
    struct sh_err one = {0};
    json_t *model = NULL;
    bool waits = false;
    int rc = check_parameters(q, NULL, err);

    if (!rc && !q->wait_until_ns) {
        q->wait_until_ns = sh_clock_ns() + LOAD_WAIT_NS;
        rc = loads_wish(q, STORE_LOAD, q->params[0], NULL, &model, err);
    } else if (!rc) {
        rc = models_of_path(q, &model, err);
    }
    if (!rc)
        rc = serving_show(q, model, err);
    if (!rc)
        rc = check_loaded(q, model, &waits, &one);
    json_decref(model);
    if (one.rc && !waits)
        return sh_err_copy(err, &one);
    if (rc || !waits)
        return rc;
    if (sh_clock_ns() > q->wait_until_ns)
        return SH_FAIL(err, SH_E_TIMEOUT,
                       "\"%s\" is still being loaded; see the repository's index", q->params[0]);
    rc = waiters_add(q->api->waiters, q, err);
    return rc ? rc : API_WAIT;
}

int v2_unload(struct api_req *q, struct sh_err *err)
{
    json_t *model = NULL;
    int rc = check_parameters(q, "unload_dependents", err);

    if (!rc)
        rc = loads_wish(q, STORE_UNLOAD, q->params[0], NULL, &model, err);
    json_decref(model);
    return rc;
}
