/* live.c - see live.h. */
#include "api/cache/live.h"

#include "api/store/store.h"
#include "common/log.h"
#include "common/mem.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct live {
    const struct sh_conf_table *table;
    struct api_conf *conf;
    struct api_conf start;   /* numbers; its texts are those of conf */
    enum sh_log_level level; /* at the start */
    pthread_mutex_t lock;    /* at, and putting in force */
    struct store_life at;
};

int live_new(const struct sh_conf_table *table, struct api_conf *conf, struct live **out,
             struct sh_err *err)
{
    struct live *l = calloc(1, sizeof(*l));

    *out = NULL;
    if (!l)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the options");
    l->table = table;
    l->conf = conf;
    l->start = *conf;
    l->level = sh_log_get_level();
    pthread_mutex_init(&l->lock, NULL);
    *out = l;
    return SH_OK;
}

void live_free(struct live *l)
{
    if (!l)
        return;
    pthread_mutex_destroy(&l->lock);
    free(l);
}

const struct sh_conf_table *live_table(const struct live *l)
{
    return l->table;
}

int64_t live_version(struct live *l)
{
    int64_t v;

    pthread_mutex_lock(&l->lock);
    v = l->at.version;
    pthread_mutex_unlock(&l->lock);
    return v;
}

/* ---------------------------------------------------------------- putting in force */

/* text: NULL: as at the start. A text that this release does not take counts as NULL. */
static void option_put(struct live *l, const struct sh_conf_opt *o, const char *text)
{
    int64_t v = 0, *field = (int64_t *)(void *)((char *)l->conf + o->offset);
    enum sh_log_level level = l->level;
    struct sh_err err = {0};
    int rc = SH_OK;

    if (o->type == SH_CONF_STR) { /* the log's level is the only such text */
        if (text)
            rc = sh_log_level_parse(text, &level, &err);
        sh_log_set_level(rc ? l->level : level);
    } else {
        if (text)
            rc = sh_conf_read_i64(o, text, &v, &err);
        if (!text || rc)
            v = *(const int64_t *)(const void *)((const char *)&l->start + o->offset);
        __atomic_store_n(field, v, __ATOMIC_RELAXED);
    }
    if (rc)
        sh_log_err(SH_LOG_WARN, "config.value", &err);
}

static void put_changed(struct live *l, const json_t *changed, int64_t version)
{
    char *text = NULL, quoted[512];

    for (size_t i = 0; i < l->table->n_opts; i++) {
        const struct sh_conf_opt *o = &l->table->opts[i];

        if (o->flags & SH_CONF_LIVE)
            option_put(l, o, json_string_value(json_object_get(changed, o->name)));
    }
    if (sh_json_dump(changed, &text, NULL) == SH_OK)
        SH_INFO("config.changed", "version=%" PRId64 " values=\"%s\"", version,
                sh_log_quote(text, quoted, sizeof(quoted)));
    free(text);
}

int live_refresh(struct live *l, struct db *db, struct sh_err *err)
{
    json_t *changed = NULL;
    struct store_life at = {.version = 0};
    int rc = store_config_load(db, &changed, &at, err);
    bool is_other;

    if (rc)
        return rc;
    pthread_mutex_lock(&l->lock);
    /* Another thread may have read later and be here first. The first version says nothing. */
    is_other = strcmp(at.life, l->at.life) != 0;
    if ((is_other && l->at.version > 1) || ((is_other || at.version > l->at.version) &&
                                            (at.version > 1 || json_object_size(changed) > 0)))
        put_changed(l, changed, at.version);
    if (is_other || at.version > l->at.version)
        l->at = at;
    pthread_mutex_unlock(&l->lock);
    json_decref(changed);
    return SH_OK;
}

/* ---------------------------------------------------------------- describing */

static json_t *number_or_text(const struct sh_conf_opt *o, const char *text)
{
    return o->type == SH_CONF_STR ? json_string(text) : json_integer(strtoll(text, NULL, 10));
}

static json_t *value_at_start(const struct live *l, const struct sh_conf_opt *o)
{
    const char *field = (const char *)&l->start + o->offset;
    const char *text;

    switch (o->type) {
    case SH_CONF_INT:
    case SH_CONF_BYTES:
        return json_integer(*(const int64_t *)(const void *)field);
    case SH_CONF_F64:
        return json_real(*(const double *)(const void *)field);
    case SH_CONF_BOOL:
        return json_boolean(*(const bool *)(const void *)field);
    case SH_CONF_STR:
        text = *(char *const *)(const void *)field;
        if (text && (o->flags & SH_CONF_SECRET))
            return json_string("***");
        return text && text[0] ? json_string(text) : json_null();
    }
    return NULL;
}

int live_describe(struct live *l, const json_t *changed, json_t **out, struct sh_err *err)
{
    json_t *list = json_array();
    bool ok = list != NULL;

    for (size_t i = 0; ok && i < l->table->n_opts; i++) {
        const struct sh_conf_opt *o = &l->table->opts[i];
        const char *text = json_string_value(json_object_get(changed, o->name));
        bool live = o->flags & SH_CONF_LIVE;
        json_t *one = json_pack("{s:s, s:o, s:b, s:b, s:s}", "name", o->name, "value",
                                live && text ? number_or_text(o, text) : value_at_start(l, o),
                                "live", live, "changed", live && text, "help", o->help);

        ok = one && json_array_append_new(list, one) == 0;
    }
    if (!ok) {
        json_decref(list);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the options");
    }
    *out = list;
    return SH_OK;
}
