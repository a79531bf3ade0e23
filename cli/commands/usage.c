/* usage.c - tenants' usage and shares, and the audit log. */
#include "cli/client/lists.h"
#include "cli/client/rest.h"
#include "cli/commands.h"
#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

int usage_get(struct cli *c, struct sh_err *err)
{
    struct out_col cols[] = {{"CLASS", "class", OUT_TEXT},
                             {"GPU SECONDS", "gpu_seconds", OUT_NUMBER},
                             {"REQUESTS", "requests", OUT_TEXT},
                             {"SAMPLES", "samples", OUT_TEXT}};
    struct list_view v = {LIST_COLS(cols)};
    const char *by = c->conf->by;
    char path[REST_PATH_MAX], *url = NULL;
    const char *tenant = c->n_args ? c->args[0] : NULL;
    int rc = tenant ? SH_OK : rest_tenant(c, "usage", &tenant, err);

    if (strcmp(by, "model") == 0)
        cols[0] = (struct out_col){"MODEL", "model", OUT_TEXT};
    else if (strcmp(by, "class") != 0)
        cols[0] = (struct out_col){"FROM", "from", OUT_TIME};
    if (!rc)
        rc = rest_path(path, err, "api", "v1", "tenants", tenant, "usage", NULL);
    if (!rc)
        rc = rest_query(path, &url, err, "by", by, "from", c->conf->from, "to", c->conf->to,
                        "class", c->conf->class, "model", c->conf->model, NULL);
    v.name = cols[0].path;
    if (!rc)
        rc = list_show(c, url, &v, err);
    free(url);
    return rc;
}

int share_get(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {
        {"TENANT", "tenant", OUT_TEXT},
        {"GUARANTEED", "guaranteed_gpus", OUT_NUMBER},
        {"FAIR", "fair_gpus", OUT_NUMBER},
        {"RUNNING", "running_gpus", OUT_NUMBER},
        {"WAITING", "waiting_gpus", OUT_NUMBER},
        {"SATURATION", "saturation", OUT_NUMBER, .spare = 2},
        {"USED S", "usage_gpu_seconds", OUT_NUMBER},
        {"PER WEIGHT", "usage_per_weight", OUT_NUMBER, .spare = 1},
        {"WEIGHT", "weight", OUT_NUMBER, true},
        {"RESERVED", "reserved_gpus", OUT_NUMBER, true},
        {"HALF LIFE S", "half_life_s", OUT_NUMBER, true}};
    static const struct list_view VIEW = {LIST_COLS(COLS), .name = "tenant"};
    const char *tenant = c->n_args ? c->args[0] : NULL;
    char path[REST_PATH_MAX];
    struct sh_err why = {0};
    int rc = tenant ? SH_OK : rest_tenant(c, "share", &tenant, &why);

    if (rc && c->exit_code == CLI_USAGE) { /* an admin key sees those of all */
        c->exit_code = CLI_REFUSED;
        return list_show(c, "/api/v1/shares", &VIEW, err);
    }
    if (rc)
        return sh_err_copy(err, &why);
    rc = rest_path(path, err, "api", "v1", "tenants", tenant, "share", NULL);
    return rc ? rc : list_show_one(c, path, &VIEW, err);
}

int audit_get(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {{"AT", "at", OUT_TIME},
                                          {"ACTOR", "actor", OUT_TEXT, .spare = 1},
                                          {"TENANT", "tenant", OUT_TEXT},
                                          {"ACTION", "action", OUT_TEXT},
                                          {"RESOURCE", "resource", OUT_TEXT},
                                          {"REQUEST", "request_id", OUT_TEXT, true},
                                          {"BEFORE", "before", OUT_TEXT, true},
                                          {"AFTER", "after", OUT_TEXT, true}};
    static const struct list_view VIEW = {LIST_COLS(COLS), .name = "id"};
    char *url = NULL;
    int rc = rest_query("/api/v1/audit", &url, err, "tenant", c->conf->tenant, "actor",
                        c->conf->actor, "action", c->conf->action, "resource", c->conf->resource,
                        "from", c->conf->from, "to", c->conf->to, NULL);

    if (!rc)
        rc = list_show(c, url, &VIEW, err);
    free(url);
    return rc;
}
