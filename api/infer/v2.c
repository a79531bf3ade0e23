/* v2.c - the inference protocol, except inference: health, metadata, configuration, statistics. */
#include "api/infer/v2.h"

#include "api/api.h"
#include "api/cache/catalog.h"
#include "api/handlers.h"
#include "api/infer/link.h"
#include "api/infer/regions.h"
#include "api/infer/serving.h"
#include "api/infer/stats.h"
#include "api/spec/alias.h"
#include "common/clock.h"
#include "common/conf.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>

static int reply_json(struct api_req *q, json_t *j, struct sh_err *err)
{
    if (!j)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the reply");
    json_decref(q->reply.body);
    q->reply.body = j;
    return SH_OK;
}

int v2_live(struct api_req *q, struct sh_err *err)
{
    return reply_json(q, json_pack("{s:b}", "live", 1), err);
}

/* Would a request for any version that is meant to be served be? */
int v2_ready(struct api_req *q, struct sh_err *err)
{
    uint32_t execs, missing;
    bool is_told = serving_counts(q->api->serving, &execs, &missing);
    char why[96] = "";

    if (atomic_load(&q->api->stopping))
        snprintf(why, sizeof(why), "this server is shutting down");
    else if (!link_is_up(q->api->link) || !is_told)
        snprintf(why, sizeof(why), "no scheduler is reachable");
    else if (execs == 0)
        snprintf(why, sizeof(why), "no executor is connected");
    else if (missing > 0)
        snprintf(why, sizeof(why), "%" PRIu32 " model version%s %s being loaded", missing,
                 missing > 1 ? "s" : "", missing > 1 ? "are" : "is");
    if (why[0])
        q->reply.status = 503;
    return reply_json(q,
                      json_pack("{s:b, s:I, s:I, s:s*}", "ready", !why[0], "executors",
                                (json_int_t)execs, "loading", (json_int_t)missing, "error",
                                why[0] ? why : NULL),
                      err);
}

int v2_server(struct api_req *q, struct sh_err *err)
{
    const char *shm =
        regions_check_on(q->api->regions, NULL) == SH_OK ? "system_shared_memory" : NULL;

    return reply_json(q,
                      json_pack("{s:s, s:s, s:[s, s, s, s, s, s*]}", "name", "shunt", "version",
                                sh_conf_version(), "extensions", "binary_tensor_data", "parameters",
                                "model_configuration", "model_repository", "statistics", shm),
                      err);
}

/* What the path means, in this table: a version, or what an alias chooses. Without either it is
 * the alias "stable", if the model has that. */
static const struct cat_version *named_version(const struct api_req *q, const struct cat_table *t,
                                               int64_t version, const char *key,
                                               const struct cat_alias **alias)
{
    const char *model = q->params[0];

    *alias =
        version ? NULL : cat_alias(t, q->tenant, model, q->params[1] ? q->params[1] : ALIAS_STABLE);
    if (*alias)
        return cat_serving(t, *alias, model, key);
    return q->params[1] && !version ? NULL : cat_find(t, q->tenant, model, version);
}

static int no_version(const struct api_req *q, int64_t version, struct sh_err *err)
{
    if (version || !q->params[1])
        return SH_FAIL(err, SH_E_NOTFOUND, "there is no model \"%.128s\"%s%.32s", q->params[0],
                       version ? " with version " : "", version ? q->params[1] : "");
    return SH_FAIL(err, SH_E_NOTFOUND, "there is no model \"%.128s\" with an alias \"%.64s\"",
                   q->params[0], q->params[1]);
}

int v2_choose(struct api_req *q, const char *key, struct v2_choice *out, struct sh_err *err)
{
    const char *name = q->params[1];
    int64_t version = 0;
    bool again;
    int rc = SH_OK;

    *out = (struct v2_choice){0};
    if (name && sh_parse_i64(name, 1, INT32_MAX, "version", &version, NULL) &&
        !sh_alias_is_name(name))
        return SH_FAIL(err, SH_E_NOTFOUND,
                       "there is no version \"%.64s\": a version is a number or an alias", name);
    if (q->db)
        rc = catalog_refresh(q->api->catalog, q->db, err);
    if (rc)
        return rc;
    out->table = catalog_get(q->api->catalog);
    out->v = named_version(q, out->table, version, key, &out->alias);
    if (out->v && out->v->ready)
        return SH_OK;
    again = !q->db && catalog_should_ask(q->api->catalog, q->who.tenant_id, sh_clock_ns());
    if (out->v && !again)
        return SH_OK;
    catalog_put(out->table);
    *out = (struct v2_choice){0};
    return again ? API_AGAIN : no_version(q, version, err);
}

int v2_find(struct api_req *q, struct cat_table **table, const struct cat_version **out,
            struct sh_err *err)
{
    struct v2_choice c;
    int rc = v2_choose(q, NULL, &c, err);

    *table = c.table;
    *out = c.v;
    return rc;
}

static json_t *tensors_json(const struct cat_tensor *t, size_t n, bool config, bool drop_batch)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++) {
        json_t *dims = json_array();
        char type[32];

        for (size_t k = drop_batch ? 1 : 0; k < t[i].rank; k++)
            json_array_append_new(dims, json_integer(SH_MAX(t[i].dims[k], -1)));
        snprintf(type, sizeof(type), "%s%s", config ? "TYPE_" : "", sh_dtype_v2(t[i].dtype));
        json_array_append_new(list, json_pack("{s:s, s:s, s:o}", "name", t[i].name,
                                              config ? "data_type" : "datatype", type,
                                              config ? "dims" : "shape", dims));
    }
    return list;
}

static json_t *versions_json(const struct cat_table *t, const struct cat_version *v)
{
    json_t *list = json_array();
    char text[24];

    for (size_t i = 0; i < cat_count(t); i++) {
        const struct cat_version *x = cat_at(t, i);

        if (x->model_id != v->model_id || !x->ready)
            continue;
        snprintf(text, sizeof(text), "%" PRId64, x->version);
        json_array_append_new(list, json_string(text));
    }
    return list;
}

int v2_model(struct api_req *q, struct sh_err *err)
{
    struct cat_table *t;
    const struct cat_version *v;
    int rc = v2_find(q, &t, &v, err);

    if (rc)
        return rc;
    rc = reply_json(q,
                    json_pack("{s:s, s:o, s:s, s:o, s:o}", "name", v->model, "versions",
                              versions_json(t, v), "platform", "onnx_shunt", "inputs",
                              tensors_json(v->inputs, v->n_inputs, false, false), "outputs",
                              tensors_json(v->outputs, v->n_outputs, false, false)),
                    err);
    catalog_put(t);
    return rc;
}

int v2_model_ready(struct api_req *q, struct sh_err *err)
{
    struct cat_table *t;
    const struct cat_version *v;
    bool ready;
    int rc = v2_find(q, &t, &v, err);

    if (rc)
        return rc;
    ready = serving_has(q->api->serving, v) && !atomic_load(&q->api->stopping);
    if (!ready)
        q->reply.status = 503;
    rc = reply_json(q, json_pack("{s:s, s:b}", "name", v->model, "ready", ready), err);
    catalog_put(t);
    return rc;
}

int v2_config(struct api_req *q, struct sh_err *err)
{
    struct cat_table *t;
    const struct cat_version *v;
    json_t *j;
    int rc = v2_find(q, &t, &v, err);

    if (rc)
        return rc;
    j = json_pack("{s:s, s:s, s:s, s:I, s:o, s:o}", "name", v->model, "platform", "onnx_shunt",
                  "backend", "shunt", "max_batch_size", (json_int_t)(v->batched ? v->max_batch : 0),
                  "input", tensors_json(v->inputs, v->n_inputs, true, v->batched), "output",
                  tensors_json(v->outputs, v->n_outputs, true, v->batched));
    if (j && v->batched)
        json_object_set_new(j, "dynamic_batching", json_object());
    rc = reply_json(q, j, err);
    catalog_put(t);
    return rc;
}

static int add_stats(struct api_req *q, const struct cat_version *v, json_t *list,
                     struct sh_err *err)
{
    json_t *one;
    int rc = stats_get(q->api->stats, v, &one, err);

    if (!rc && json_array_append_new(list, one))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the statistics");
    return rc;
}

/* Of one version if the path names it, else of all ready ones of the model. */
int v2_stats(struct api_req *q, struct sh_err *err)
{
    struct cat_table *t;
    const struct cat_version *v;
    json_t *list = NULL;
    int rc = v2_find(q, &t, &v, err);

    if (rc)
        return rc;
    list = json_array();
    for (size_t i = 0; !rc && i < cat_count(t); i++) {
        const struct cat_version *x = cat_at(t, i);

        if (x == v || (!q->params[1] && x->ready && x->model_id == v->model_id))
            rc = add_stats(q, x, list, err);
    }
    if (!rc)
        rc = reply_json(q, json_pack("{s:O}", "model_stats", list), err);
    json_decref(list);
    catalog_put(t);
    return rc;
}

int v2_stats_all(struct api_req *q, struct sh_err *err)
{
    struct cat_table *t = catalog_get(q->api->catalog);
    json_t *list = json_array();
    int rc = SH_OK;

    for (size_t i = 0; !rc && i < cat_count(t); i++)
        if (cat_at(t, i)->ready && cat_sees(cat_at(t, i), q->tenant))
            rc = add_stats(q, cat_at(t, i), list, err);
    if (!rc)
        rc = reply_json(q, json_pack("{s:O}", "model_stats", list), err);
    json_decref(list);
    catalog_put(t);
    return rc;
}

static const char *triton_state(struct serving *s, const struct cat_version *v)
{
    struct serving_state is;

    serving_get(s, v->id, &is);
    if (v->ready && is.up == MSG_UP_READY)
        return "READY";
    if (v->is_coming || (v->ready && is.up == MSG_UP_LOADING))
        return "LOADING";
    if (strcmp(v->state, "UNLOADING") == 0)
        return "UNLOADING";
    return "UNAVAILABLE";
}

int v2_index(struct api_req *q, struct sh_err *err)
{
    bool only_ready = false;
    struct sh_json_field f[] = {{"ready", SH_JSON_BOOL, &only_ready, .required = false}};
    struct serving *s = q->api->serving;
    struct cat_table *t;
    json_t *list;
    int rc = q->json ? sh_json_read(q->json, "", f, SH_ARRAY_LEN(f), err) : SH_OK;

    if (!rc && !q->db)
        return API_AGAIN; /* always fresh: people ask it right after an upload */
    if (!rc)
        rc = catalog_refresh(q->api->catalog, q->db, err);
    if (rc == SH_E_DBDOWN) { /* what we know is better than nothing */
        if (err)
            *err = (struct sh_err){0};
        rc = SH_OK;
    }
    if (rc)
        return rc;
    t = catalog_get(q->api->catalog);
    list = json_array();
    for (size_t i = 0; i < cat_count(t); i++) {
        const struct cat_version *v = cat_at(t, i);
        char version[24], why[256];

        if (!cat_sees(v, q->tenant) || (only_ready && !serving_has(s, v)))
            continue;
        sh_strlcpy(why, v->reason, sizeof(why));
        if (v->ready)
            serving_reason(s, v->id, why, sizeof(why));
        snprintf(version, sizeof(version), "%" PRId64, v->version);
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "name", v->model, "version",
                                              version, "state", triton_state(s, v), "reason", why));
    }
    catalog_put(t);
    return reply_json(q, list, err);
}
