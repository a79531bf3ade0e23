/* config.c - the options of shunt-api: shows them, and changes the live ones. */
#include "api/api.h"
#include "api/cache/live.h"
#include "api/handlers.h"
#include "api/request/noun.h"
#include "api/store/store.h"
#include "common/log.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>

#define MAX_LIVE 32

static int reply_with_options(struct api_req *q, struct sh_err *err)
{
    json_t *changed = NULL, *options = NULL, *j = NULL;
    struct store_life at = {.version = 0};
    int rc = store_config_load(q->db, &changed, &at, err);

    if (!rc)
        rc = live_describe(q->api->live, changed, &options, err);
    if (!rc)
        j = json_pack("{s:s, s:I, s:I, s:I, s:O}", "process", q->api->conf->name, "row_version",
                      (json_int_t)at.version, "version_in_force",
                      (json_int_t)live_version(q->api->live), "in_force_within_ms",
                      (json_int_t)q->api->conf->key_poll_ms, "options", options);
    json_decref(options);
    json_decref(changed);
    return rc ? rc : req_reply(q, j, NULL, err);
}

int config_get(struct api_req *q, struct sh_err *err)
{
    return reply_with_options(q, err);
}

/* One that is there and is read at the start alone is not an unknown field. */
static int refuse_fixed(const struct api_req *q, struct sh_err *err)
{
    const struct sh_conf_table *table = live_table(q->api->live);
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)q->json, name, value)
    {
        const struct sh_conf_opt *o = sh_conf_find(table, name);

        if (o && !(o->flags & SH_CONF_LIVE))
            return SH_FAIL(err, SH_E_INVALID,
                           "\"%s\" is read when shunt-api starts and cannot change while it runs: "
                           "set it for each process (--%s, its environment or file) and restart it",
                           name, name);
    }
    return SH_OK;
}

/* Types and ranges, by the table of options. */
static int check_option_values(struct api_req *q, struct sh_err *err)
{
    const struct sh_conf_table *table = live_table(q->api->live);
    struct sh_json_field f[MAX_LIVE];
    int64_t numbers[MAX_LIVE];
    const char *level = NULL;
    enum sh_log_level parsed;
    size_t n = 0;
    int rc;

    for (size_t i = 0; i < table->n_opts && n < MAX_LIVE; i++) {
        const struct sh_conf_opt *o = &table->opts[i];
        bool is_text = o->type == SH_CONF_STR;

        if (!(o->flags & SH_CONF_LIVE))
            continue;
        f[n] = (struct sh_json_field){.name = o->name,
                                      .type = is_text ? SH_JSON_STR : SH_JSON_INT,
                                      .out = is_text ? (void *)&level : (void *)&numbers[n],
                                      .min = is_text ? 0 : o->min,
                                      .max = is_text ? 0 : o->max};
        n++;
    }
    rc = noun_read(q, "", f, n, err);
    if (!rc && level)
        rc = sh_log_level_parse(level, &parsed, err);
    if (!rc && json_object_size(q->json) == 0)
        rc = SH_FAIL(err, SH_E_INVALID,
                     "name at least one option and its value; null: as at the start");
    return rc;
}

/* {"name": "text" or null}, as they are kept. */
static int as_texts(const json_t *body, json_t **out, struct sh_err *err)
{
    json_t *texts = json_object(), *value;
    bool ok = texts != NULL;
    const char *name;
    char number[24];

    json_object_foreach((json_t *)body, name, value)
    {
        /* An integer may be written 2.0. */
        snprintf(number, sizeof(number), "%" PRId64, (int64_t)json_number_value(value));
        ok = ok && json_object_set_new(texts, name,
                                       json_is_null(value)     ? json_null()
                                       : json_is_string(value) ? json_incref(value)
                                                               : json_string(number)) == 0;
    }
    if (!ok) {
        json_decref(texts);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the options");
    }
    *out = texts;
    return SH_OK;
}

int config_patch(struct api_req *q, struct sh_err *err)
{
    const char *match = NULL;
    char buf[24];
    json_t *texts = NULL;
    int rc = refuse_fixed(q, err);

    if (!rc)
        rc = check_option_values(q, err);
    if (!rc)
        rc = req_if_match(q, buf, &match, err);
    if (!rc)
        rc = as_texts(q->json, &texts, err);
    if (!rc)
        rc = store_config_patch(q, texts, match, err);
    json_decref(texts);
    if (!rc && !q->dry_run) /* here at once; the others hear of it */
        rc = live_refresh(q->api->live, q->db, err);
    return rc ? rc : reply_with_options(q, err);
}
