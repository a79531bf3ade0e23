/* change.c - see change.h. The values are checked by whoever reads the snapshot. */
#include "simulate/change.h"

#include "common/json.h"
#include "common/mem.h"
#include "simulate/world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kind {
    const char *word, *list, *key; /* list: of the snapshot; key: that names one of it */
    const char *fields;            /* "name,said=name,..." */
    bool many;                     /* all that have the name */
};

static const struct kind KINDS[] = {
    {"tenant", "tenants", "name",
     "guarantee=guaranteed_gpus,weight=over_quota_weight,guaranteed_gpus,over_quota_weight,max_"
     "gpus,"
     "borrowing_limit,lending_limit,max_running_jobs,max_concurrent_requests,gpu_memory_max_bytes,"
     "active",
     false},
    {"job", "jobs", "id", "priority,preemptible,min_runtime_ms,gpus", false},
    {"queue", "jobs", "queue", "open=queue_open", true},
    {"model", "models", "model", "slo_ms,percentile,priority,on_miss,max_batch,homes", true},
};

/* The member of the snapshot that a field of a path stands for; false: there is none. */
static bool member_of(const char *fields, const char *field, char out[static 64])
{
    const size_t n = strlen(field);

    for (const char *at = fields; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const char end = strncmp(at, field, n) == 0 ? at[n] : 'x';
        const char *name = end == '=' ? at + n + 1 : at;

        if (end != '=' && end != ',' && end != 0)
            continue;
        snprintf(out, 64, "%.*s", (int)strcspn(name, ","), name);
        return true;
    }
    return false;
}

static bool is_item_named(const json_t *item, const char *key, const char *name)
{
    const json_t *v = json_object_get(item, key);
    const char *slash = strchr(name, '/');
    char text[24];

    if (slash && strcmp(key, "model") == 0) /* whose it is */
        return strcmp(sh_json_text(item, key), slash + 1) == 0 &&
               strncmp(sh_json_text(item, "tenant"), name, (size_t)(slash - name)) == 0 &&
               sh_json_text(item, "tenant")[slash - name] == 0;
    if (!json_is_integer(v))
        return strcmp(sh_json_text(item, key), name) == 0;
    snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    return strcmp(text, name) == 0;
}

/* name: up to the last dot. */
static int set_member(json_t *snapshot, const struct kind *k, const char *path, const char *name,
                      const char *field, json_t *value, struct sh_err *err)
{
    json_t *list = json_object_get(snapshot, k->list), *item;
    char member[64];
    size_t i, n = 0;

    if (!member_of(k->fields, field, member))
        return SH_FAIL(err, SH_E_INVALID, "\"%s\": a %s has no \"%s\"; it has %s", path, k->word,
                       field, k->fields);
    json_array_foreach(list, i, item)
    {
        if ((n && !k->many) || !is_item_named(item, k->key, name))
            continue;
        n++;
        if (json_object_set(item, member, value))
            return SH_FAIL(err, SH_E_NOMEM, "could not allocate a change");
    }
    return n ? SH_OK
             : SH_FAIL(err, SH_E_INVALID, "\"%s\": the snapshot has no %s \"%s\"", path, k->word,
                       name);
}

static int set_scheduler(json_t *snapshot, const char *path, const char *field, json_t *value,
                         struct sh_err *err)
{
    char names[400] = "", member[SCHED_MEMBER_BYTES];

    for (const char *const *o = SCHED_DECIDES_BY; *o; o++) {
        sched_conf_member(*o, member);
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", *names ? "," : "",
                 member);
        if (strcmp(member, field) == 0)
            return json_object_set(json_object_get(snapshot, "scheduler"), member, value)
                       ? SH_FAIL(err, SH_E_NOMEM, "could not allocate a change")
                       : SH_OK;
    }
    return SH_FAIL(err, SH_E_INVALID, "\"%s\": it may be scheduler. and one of %s", path, names);
}

/* ------------------------------------------------------------------ GPUs */

static json_t *largest_gpu(const json_t *gpus)
{
    json_t *best = NULL, *g;
    size_t i;

    json_array_foreach(gpus, i, g)
    {
        if (!best || json_integer_value(json_object_get(g, "pool_bytes")) >
                         json_integer_value(json_object_get(best, "pool_bytes")))
            best = g;
    }
    return best;
}

/* Called as no executor may be (common/ckpt.h), by its place. */
static int add_gpu_like(json_t *gpus, json_t *like, struct sh_err *err)
{
    json_t *g = json_copy(like);
    char name[32];

    snprintf(name, sizeof(name), "+%zu", json_array_size(gpus));
    if (!g || json_object_set_new(g, "name", json_string(name)) || json_array_append(gpus, g)) {
        json_decref(g);
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a GPU");
    }
    json_decref(g);
    return SH_OK;
}

static int set_gpus(json_t *snapshot, const json_t *value, struct sh_err *err)
{
    json_t *gpus = json_object_get(snapshot, "gpus"), *like = largest_gpu(gpus);
    const int64_t n = (int64_t)json_array_size(gpus);
    const char *text = json_string_value(value);
    int64_t want = json_integer_value(value);
    int rc = SH_OK;

    if (text) {
        const bool is_more = text[0] == '+' || text[0] == '-';

        rc = sh_parse_i64(text + is_more, 0, WORLD_MAX_GPUS, "gpus", &want, err);
        want = text[0] == '+' ? n + want : text[0] == '-' ? n - want : want;
    }
    if (!rc && (want < 1 || want > WORLD_MAX_GPUS || (!text && !json_is_integer(value))))
        rc = SH_FAIL(err, SH_E_INVALID,
                     "\"gpus\" must be a number from 1 to %u, or \"+N\" or \"-N\"; there are "
                     "%" PRId64 " now",
                     WORLD_MAX_GPUS, n);
    if (!rc && !json_is_object(like))
        rc = SH_FAIL(err, SH_E_INVALID, "the snapshot has no GPU that others could be like");
    for (int64_t i = n; i < want && !rc; i++)
        rc = add_gpu_like(gpus, like, err);
    for (int64_t i = n; i > want && !rc; i--)
        if (json_array_remove(gpus, (size_t)(i - 1)))
            rc = SH_FAIL(err, SH_E_NOMEM, "could not take a GPU away");
    return rc;
}

/* ------------------------------------------------------------------ all */

static int apply_one(json_t *snapshot, const json_t *change, struct sh_err *err)
{
    const char *path = "", *first, *last;
    json_t *value = json_object_get(change, "to"); /* null is a value */
    const struct sh_json_field f[] = {
        {"set", SH_JSON_STR, &path, .required = true, .min = 1, .max = 300},
        {"to", SH_JSON_ANY, &value},
    };
    char name[304];
    int rc = sh_json_read(change, "change", f, SH_ARRAY_LEN(f), err);

    if (!rc && !value)
        rc = SH_FAIL(err, SH_E_INVALID, "\"%s\": \"to\" is missing", path);
    if (rc)
        return rc;
    if (strcmp(path, "gpus") == 0)
        return set_gpus(snapshot, value, err);
    first = strchr(path, '.');
    last = strrchr(path, '.');
    if (first && strncmp(path, "scheduler.", 10) == 0)
        return set_scheduler(snapshot, path, first + 1, value, err);
    for (size_t i = 0; first && first != last && i < SH_ARRAY_LEN(KINDS); i++) {
        if (strlen(KINDS[i].word) != (size_t)(first - path) ||
            strncmp(path, KINDS[i].word, (size_t)(first - path)) != 0)
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)(last - first - 1), first + 1);
        return set_member(snapshot, &KINDS[i], path, name, last + 1, value, err);
    }
    return SH_FAIL(err, SH_E_INVALID,
                   "\"%s\": it may be gpus, tenant.NAME.FIELD, model.NAME.FIELD, job.ID.FIELD, "
                   "queue.NAME.open or scheduler.FIELD",
                   path);
}

int change_apply(json_t *snapshot, const json_t *changes, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; i < json_array_size(changes) && !rc; i++)
        rc = apply_one(snapshot, json_array_get(changes, i), err);
    return rc;
}
