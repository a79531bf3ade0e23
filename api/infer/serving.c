/* serving.c - see serving.h. */
#include "api/infer/serving.h"

#include "api/api.h"
#include "api/infer/link.h"
#include "api/infer/traffic.h"
#include "api/request/req.h"
#include "common/clock.h"
#include "common/idmap.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/units.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct entry {
    struct entry *next;
    int64_t version_id, at_ns; /* at_ns: of the estimate */
    struct serving_state is;
};

struct serving {
    pthread_mutex_t lock;
    struct idmap by_id;
    struct entry *all; /* OWNED; none of them is NONE */
    bool is_counted;   /* MODEL_UP of all has come */
    uint32_t n_execs, n_missing;
};

int serving_new(struct serving **out, struct sh_err *err)
{
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate what is served");
    pthread_mutex_init(&(*out)->lock, NULL);
    return SH_OK;
}

static void forget_serving(struct serving *s)
{
    while (s->all) {
        struct entry *e = s->all;

        s->all = e->next;
        idmap_del(&s->by_id, (uint64_t)e->version_id);
        free(e);
    }
    s->is_counted = false;
}

void serving_free(struct serving *s)
{
    if (!s)
        return;
    forget_serving(s);
    idmap_fini(&s->by_id);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void serving_clear(struct serving *s)
{
    pthread_mutex_lock(&s->lock);
    forget_serving(s);
    pthread_mutex_unlock(&s->lock);
}

static struct entry *entry_of(struct serving *s, int64_t version_id, struct sh_err *err)
{
    struct entry *e = idmap_get(&s->by_id, (uint64_t)version_id);

    if (e)
        return e;
    e = calloc(1, sizeof(*e));
    if (!e || idmap_put(&s->by_id, (uint64_t)version_id, e, NULL)) {
        free(e);
        SH_FAIL(err, SH_E_NOMEM, "could not note that version %lld is served",
                (long long)version_id);
        return NULL;
    }
    e->version_id = version_id;
    e->next = s->all;
    s->all = e;
    return e;
}

static void forget_version(struct serving *s, int64_t version_id)
{
    struct entry **at = &s->all, *e = idmap_del(&s->by_id, (uint64_t)version_id);

    while (e && *at != e)
        at = &(*at)->next;
    if (e)
        *at = e->next;
    free(e);
}

void serving_note(struct serving *s, const struct msg_model_up *m)
{
    bool is_known = m->state > MSG_UP_NONE && m->state <= MSG_UP_FAILED;
    struct sh_err err = {0};
    struct entry *e = NULL;

    pthread_mutex_lock(&s->lock);
    if (is_known)
        e = entry_of(s, m->version_id, &err);
    else
        forget_version(s, m->version_id);
    if (e) {
        e->at_ns = sh_clock_ns();
        e->is = (struct serving_state){
            .up = (enum msg_up)m->state, .done = m->done, .total = m->total, .left_ns = m->left_ns};
        sh_strlcpy(e->is.step, m->step, sizeof(e->is.step));
        sh_strlcpy(e->is.msg, m->msg, sizeof(e->is.msg));
    }
    pthread_mutex_unlock(&s->lock);
    if (err.rc) /* it counts as not ready */
        sh_log_err(SH_LOG_ERROR, "serving.note", &err);
}

void serving_count(struct serving *s, const struct msg_serving *m)
{
    pthread_mutex_lock(&s->lock);
    s->is_counted = true;
    s->n_execs = m->executors;
    s->n_missing = m->missing;
    pthread_mutex_unlock(&s->lock);
}

bool serving_counts(struct serving *s, uint32_t *n_execs, uint32_t *n_missing)
{
    bool is_counted;

    pthread_mutex_lock(&s->lock);
    is_counted = s->is_counted;
    *n_execs = is_counted ? s->n_execs : 0;
    *n_missing = is_counted ? s->n_missing : 0;
    pthread_mutex_unlock(&s->lock);
    return is_counted;
}

void serving_get(struct serving *s, int64_t version_id, struct serving_state *out)
{
    const struct entry *e;

    *out = (struct serving_state){.up = MSG_UP_NONE, .left_ns = -1};
    pthread_mutex_lock(&s->lock);
    e = idmap_get(&s->by_id, (uint64_t)version_id);
    if (e) {
        *out = e->is;
        if (out->left_ns > 0) {
            const int64_t past_ns = sh_clock_ns() - e->at_ns;

            out->left_ns = SH_MAX(out->left_ns - past_ns, 0);
        }
    }
    pthread_mutex_unlock(&s->lock);
}

bool serving_has(struct serving *s, const struct cat_version *v)
{
    struct serving_state is;

    if (!v->ready)
        return false;
    serving_get(s, v->id, &is);
    return is.up == MSG_UP_READY;
}

void serving_reason(struct serving *s, int64_t version_id, char *out, size_t size)
{
    struct serving_state is;
    const char *text = "";

    serving_get(s, version_id, &is);
    switch (is.up) {
    case MSG_UP_READY:
        break;
    case MSG_UP_NONE:
        text = "no scheduler reports that it is ready";
        break;
    case MSG_UP_ABSENT:
        text = "no executor is connected";
        break;
    case MSG_UP_LOADING:
        text = is.msg[0] ? is.msg : "an executor loads it after a restart";
        break;
    case MSG_UP_FAILED:
        text = is.msg;
        break;
    }
    sh_strlcpy(out, text, size);
}

/* ---------------------------------------------------------------- for people */

/* {"step","done","total","seconds_left"}, the last null where it is not known. */
static json_t *progress(const struct serving_state *is)
{
    return json_pack("{s:s, s:I, s:I, s:o}", "step", is->step, "done", (json_int_t)is->done,
                     "total", (json_int_t)is->total, "seconds_left",
                     is->left_ns < 0 ? json_null()
                                     : json_real((double)(is->left_ns / SH_MS(10)) / 100));
}

static int show_one(struct serving *s, const struct cat_version *v, json_t *item,
                    struct sh_err *err)
{
    const char *state = sh_json_text(item, "state");
    bool is_ready = strcmp(state, "READY") == 0;
    struct serving_state is;
    char why[256];

    if (!json_object_get(item, "reason"))
        json_object_set_new(item, "reason", json_null());
    if (v)
        serving_get(s, v->id, &is);
    else
        is = (struct serving_state){.up = MSG_UP_NONE};
    if (is_ready && is.up != MSG_UP_READY) {
        serving_reason(s, v ? v->id : 0, why, sizeof(why));
        if (json_object_set_new(item, "state",
                                json_string(is.up == MSG_UP_FAILED ? "FAILED" : "LOADING")) ||
            json_object_set_new(item, "reason", json_string(why)))
            return SH_FAIL(err, SH_E_NOMEM, "could not allocate the reply");
    }
    if (!is_ready && is.up == MSG_UP_LOADING && is.msg[0] &&
        json_object_set_new(item, "reason", json_string(is.msg)))
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the reply");
    if (json_object_set_new(item, "loading",
                            is.up == MSG_UP_LOADING && is.step[0] ? progress(&is) : json_null()))
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the reply");
    return SH_OK;
}

/* Who has read that a version is ready is answered by it next: a table that is behind what this
 * reply tells is read again. NULL: the catalog does not know it, not even when it asks. */
static const struct cat_version *version_find(struct api_req *q, struct cat_table **table,
                                              const json_t *item, const char *tenant,
                                              const char *model)
{
    int64_t version = json_integer_value(json_object_get(item, "version"));
    const struct cat_version *v = cat_exact(*table, q->tenant, tenant, model, version);

    if ((v && strcmp(v->state, sh_json_text(item, "state")) == 0) ||
        catalog_refresh(q->api->catalog, q->db, NULL))
        return v;
    catalog_put(*table);
    *table = catalog_get(q->api->catalog);
    return cat_exact(*table, q->tenant, tenant, model, version);
}

/* Of a shared model only its owner sees it: it tells what others do. */
static int show_traffic(struct api_req *q, json_t *model, struct sh_err *err)
{
    const char *tenant = sh_json_text(model, "tenant");
    const bool is_own = strcmp(tenant, q->tenant) == 0;

    if (json_object_set_new(model, "traffic",
                            is_own
                                ? traffic_of(q->api->traffic, tenant, sh_json_text(model, "name"))
                                : json_null()))
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the reply");
    return SH_OK;
}

static int item_show(struct api_req *q, struct cat_table **table, json_t *j, struct sh_err *err)
{
    json_t *versions = json_object_get(j, "versions"), *item;
    size_t i;
    int rc = SH_OK;

    if (!versions)
        return show_one(q->api->serving, version_find(q, table, j, NULL, sh_json_text(j, "model")),
                        j, err);
    json_array_foreach(versions, i, item)
    {
        const char *tenant = sh_json_text(j, "tenant"), *model = sh_json_text(j, "name");

        if (!rc)
            rc = show_one(q->api->serving, version_find(q, table, item, tenant, model), item, err);
    }
    return rc ? rc : show_traffic(q, j, err);
}

static void ask_for_load(struct api_req *q, const struct cat_version *v)
{
    struct serving_state is;

    if (!v)
        return;
    serving_get(q->api->serving, v->id, &is);
    if (is.up == MSG_UP_FAILED || (is.up == MSG_UP_LOADING && is.msg[0]))
        link_hint_load(q->api->link, v->id);
}

void serving_load_again(struct api_req *q, const json_t *j)
{
    const json_t *versions = json_object_get(j, "versions"), *item;
    struct cat_table *table = catalog_get(q->api->catalog);
    size_t i;

    if (!versions)
        ask_for_load(q, version_find(q, &table, j, NULL, sh_json_text(j, "model")));
    json_array_foreach(versions, i, item)
    {
        const char *tenant = sh_json_text(j, "tenant"), *model = sh_json_text(j, "name");

        ask_for_load(q, version_find(q, &table, item, tenant, model));
    }
    catalog_put(table);
}

int serving_show(struct api_req *q, json_t *j, struct sh_err *err)
{
    json_t *items = json_object_get(j, "items"), *item;
    struct cat_table *table;
    size_t i;
    int rc = SH_OK;

    if (!j)
        return SH_OK;
    table = catalog_get(q->api->catalog);
    if (!items)
        rc = item_show(q, &table, j, err);
    json_array_foreach(items, i, item)
    {
        if (!rc)
            rc = item_show(q, &table, item, err);
    }
    catalog_put(table);
    return rc;
}

int serving_reply(struct api_req *q, json_t *j, const char *location, struct sh_err *err)
{
    int rc = req_reply(q, j, location, err);

    return rc ? rc : serving_show(q, j, err);
}
