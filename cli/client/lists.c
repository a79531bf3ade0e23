/* lists.c - see lists.h. */
#include "cli/client/lists.h"

#include "cli/client/rest.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_TENANTS 1000
#define MAX_COLS 24

/* Adds the items of one tenant's list to all, each with the tenant's name. */
static int list_gather(struct cli *c, const char *tenant, const char *url, size_t most,
                       unsigned flags, json_t *all, struct sh_err *err)
{
    json_t *j = NULL, *item;
    char *before = c->conf->tenant;
    size_t i;
    int rc;

    c->conf->tenant = (char *)tenant; /* read only, and put back below */
    rc = rest_first(c, url, most, REST_TENANT | flags, &j, err);
    json_array_foreach(j, i, item)
    {
        /* A shared model is in everybody's list, and its owner's once. */
        const char *owner = sh_json_text(item, "tenant");

        if (owner[0] && strcmp(owner, tenant) != 0)
            continue;
        json_object_set_new(item, "tenant", json_string(tenant));
        json_array_append(all, item);
    }
    c->conf->tenant = before;
    json_decref(j);
    return rc;
}

/* Of a tenant's key: most nouns do not say whose they are, where there is only one tenant. */
static void name_own(struct cli *c, json_t *items)
{
    json_t *me = NULL, *item;
    size_t i;

    json_array_foreach(items, i, item)
    {
        if (sh_json_text(item, "tenant")[0])
            continue;
        if (!me && rest_get(c, "/api/v1/whoami", REST_QUIET, &me, NULL))
            break;
        json_object_set(item, "tenant", json_object_get(me, "tenant"));
    }
    json_decref(me);
}

int list_of_all_tenants(struct cli *c, const char *url, size_t most, unsigned flags, json_t **out,
                        struct sh_err *err)
{
    json_t *tenants = NULL, *all = json_array(), *t;
    size_t i;
    int rc = SH_OK;

    if (c->conf->tenant && c->conf->tenant[0]) {
        rc = list_gather(c, c->conf->tenant, url, most, flags, all, err);
    } else if (rest_list(c, "/api/v1/tenants", REST_QUIET, &tenants, NULL) == SH_OK) {
        json_array_foreach(tenants, i, t)
        {
            if (!rc && i < MAX_TENANTS)
                rc = list_gather(c, sh_json_text(t, "name"), url, most, flags, all, err);
        }
    } else { /* a tenant's key sees its own */
        json_decref(all);
        all = NULL;
        rc = rest_first(c, url, most, flags, &all, err);
        if (!rc)
            name_own(c, all);
    }
    json_decref(tenants);
    if (rc)
        json_decref(all);
    *out = rc ? NULL : all;
    return rc;
}

/* The columns with a first one that tells whose, unless there is one. */
static size_t with_tenant(const struct list_view *v, struct out_col cols[static MAX_COLS])
{
    size_t n = 0;
    bool has = false;

    for (size_t i = 0; i < v->n_cols; i++)
        has = has || strcmp(v->cols[i].path, "tenant") == 0;
    if (!has)
        cols[n++] = (struct out_col){"TENANT", "tenant", OUT_TEXT};
    for (size_t i = 0; i < v->n_cols && n < MAX_COLS; i++)
        cols[n++] = v->cols[i];
    return n;
}

int list_show(struct cli *c, const char *url, const struct list_view *v, struct sh_err *err)
{
    bool all = c->conf->all_tenants && (v->flags & REST_TENANT);
    struct out_col cols[MAX_COLS];
    json_t *j = NULL;
    int rc = all ? list_of_all_tenants(c, url, REST_MOST, 0, &j, err)
                 : rest_list(c, url, v->flags, &j, err);

    if (!rc && v->prepare && c->output == OUTPUT_TABLE)
        v->prepare(j);
    if (!rc && all)
        rc = out_list(c, j, cols, with_tenant(v, cols), v->name, err);
    else if (!rc)
        rc = out_list(c, j, v->cols, v->n_cols, v->name, err);
    json_decref(j);
    return rc;
}

int list_show_one(struct cli *c, const char *path, const struct list_view *v, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = rest_get(c, path, v->flags, &j, err);

    if (!rc)
        rc = out_object(c, j, v->name, err);
    json_decref(j);
    return rc;
}

int list_get(struct cli *c, const struct list_view *v, struct sh_err *err)
{
    char *path = NULL;
    int rc;

    if (c->n_args == 0)
        return list_show(c, v->path, v, err);
    rc = rest_below(v->path, c->args[0], &path, err);
    if (!rc)
        rc = list_show_one(c, path, v, err);
    free(path);
    return rc;
}

bool list_said_dry_run(const struct cli *c)
{
    if (c->conf->dry_run)
        out_say(c, "The server would do it; this was a dry run, and nothing is changed.");
    return c->conf->dry_run;
}

int list_change(struct cli *c, const struct change *ch, struct sh_err *err, const char *fmt, ...)
{
    json_t *j = NULL;
    char text[400];
    va_list ap;
    const struct rest_req q = {ch->method, ch->path, ch->body, ch->flags, ch->row_version};
    int rc = rest_send(c, &q, &j, err);

    if (!rc && c->output == OUTPUT_NAME && !ch->name) {
        puts(c->args[0]);
    } else if (!rc && j && (!fmt || c->output != OUTPUT_TABLE)) {
        rc = out_object(c, j, ch->name, err);
        if (!rc && c->output == OUTPUT_TABLE)
            list_said_dry_run(c);
    } else if (!rc && fmt && !list_said_dry_run(c)) {
        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        out_say(c, "%s", text);
    }
    json_decref(ch->body);
    json_decref(j);
    return rc;
}

void list_sort(json_t *items, int (*compare)(const void *, const void *))
{
    const size_t n = json_array_size(items);
    json_t **list = calloc(n + 1, sizeof(*list));

    for (size_t i = 0; list && i < n; i++)
        list[i] = json_incref(json_array_get(items, i));
    if (list)
        qsort(list, n, sizeof(*list), compare);
    for (size_t i = 0; list && i < n; i++)
        json_array_set_new(items, i, list[i]);
    free(list);
}
