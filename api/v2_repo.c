/* v2_repo.c - the inference protocol's model repository and shared memory.
 *
 * Clients take the answer to "load" for "loaded": it waits until no version of the model is on its
 * way any more, at most LOAD_WAIT_NS, which is less than their network time-out of a minute. Only
 * 200 is success to them, and they want no body. Unloading is answered at once; the index tells.
 *
 * Shared memory of clients is off: lists are empty, there is nothing to unregister, registering is
 * refused.
 */
#include "api/api.h"
#include "api/handlers.h"
#include "api/loads.h"
#include "api/noun.h"
#include "api/regions.h"
#include "api/serving.h"
#include "api/waiters.h"
#include "common/clock.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MOST_BYTES 9007199254740992.0 /* 2^53 */

#define LOAD_WAIT_NS INT64_C(55000000000)

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

        *waits |= strcmp(state, "REGISTERED") == 0 || strcmp(state, "LOADING") == 0;
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
        rc = store_model_get(q, q->params[0], &model, err);
        if (!rc && !model)
            rc = noun_missing("model", q->params[0], err);
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

/* ---------------------------------------------------------------- shared memory */

int v2_region_list(struct api_req *q, struct sh_err *err)
{
    return regions_list(q->api->regions, q->tenant, NULL, &q->reply.body, err);
}

int v2_region_status(struct api_req *q, struct sh_err *err)
{
    return regions_list(q->api->regions, q->tenant, q->params[0], &q->reply.body, err);
}

int v2_region_unregister(struct api_req *q, struct sh_err *err)
{
    (void)err;
    regions_remove(q->api->regions, q->tenant, q->params[0]);
    return SH_OK;
}

int v2_region_register(struct api_req *q, struct sh_err *err)
{
    const char *key = NULL;
    int64_t offset = 0, bytes = 0;
    struct sh_json_field f[] = {
        {"key", SH_JSON_STR, &key, .required = true, .min = 1, .max = 255},
        {"offset", SH_JSON_INT, &offset, .min = 0, .max = MOST_BYTES},
        {"byte_size", SH_JSON_INT, &bytes, .required = true, .min = 1, .max = MOST_BYTES},
    };
    int rc = regions_check_on(q->api->regions, err);

    if (rc)
        q->reply.status = 501; /* whatever it asks for */
    else
        rc = noun_read(q, "", f, SH_ARRAY_LEN(f), err);
    return rc ? rc
              : regions_add(q->api->regions, q->tenant, q->params[0], key, (uint64_t)offset,
                            (uint64_t)bytes, err);
}

/* Of a device: always off. */

int v2_shm_list(struct api_req *q, struct sh_err *err)
{
    q->reply.body = json_array();
    return q->reply.body ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate the reply");
}

int v2_shm_status(struct api_req *q, struct sh_err *err)
{
    return SH_FAIL(err, SH_E_NOTFOUND, "there is no shared memory region \"%.128s\"", q->params[0]);
}

int v2_shm_unregister(struct api_req *q, struct sh_err *err)
{
    (void)q, (void)err;
    return SH_OK; /* there is none, so all are unregistered */
}

int v2_shm_register(struct api_req *q, struct sh_err *err)
{
    int rc = regions_check_on(q->api->regions, err);

    q->reply.status = 501;
    return rc ? rc
              : SH_FAIL(err, SH_E_UNSUPPORTED,
                        "memory of a device cannot be shared with this server; use system shared "
                        "memory, or send tensors in the body, as binary data");
}
