/* queue.c - queues of jobs. An admin key without --tenant means the shared ones. */
#include "cli/out.h"
#include "common/mem.h"

#include <stdlib.h>

static int queue_path(const char *name, char path[static REST_PATH_MAX], struct sh_err *err)
{
    return rest_path(path, err, "api", "v1", "queues", name, NULL);
}

int queue_get(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {{"NAME", "name", OUT_TEXT},
                                          {"STATE", "state", OUT_TEXT},
                                          {"PRIORITY", "priority", OUT_TEXT},
                                          {"JOBS", "jobs", OUT_TEXT},
                                          {"SHARED", "shared", OUT_TEXT}};
    char path[REST_PATH_MAX];
    json_t *j = NULL;
    int rc = queue_path(c->n_args ? c->args[0] : NULL, path, err);

    if (!rc)
        rc = c->n_args ? rest_get(c, path, REST_TENANT, &j, err)
                       : rest_list(c, path, REST_TENANT, &j, err);
    if (!rc)
        rc = c->n_args ? out_object(c, j, "name", err)
                       : out_list(c, j, COLS, SH_ARRAY_LEN(COLS), "name", err);
    json_decref(j);
    return rc;
}

/* The options that were given. */
static int read_fields(struct cli *c, json_t *body, struct sh_err *err)
{
    int64_t priority;
    int rc = SH_OK;

    if (c->conf->target_priority &&
        sh_parse_i64(c->conf->target_priority, -1000, 1000, "--priority", &priority, err))
        return cli_usage(c, err, "--priority must be a number from -1000 to 1000");
    if (c->conf->target_priority &&
        json_object_set_new(body, "priority", json_integer((json_int_t)priority)))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a queue");
    if (!rc && c->conf->state && json_object_set_new(body, "state", json_string(c->conf->state)))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a queue");
    return rc;
}

int queue_create(struct cli *c, struct sh_err *err)
{
    json_t *body = json_pack("{s:s}", "name", c->args[0]), *j = NULL;
    int rc = read_fields(c, body, err);

    if (!rc)
        rc = rest_call(c, "POST", "/api/v1/queues", body, REST_TENANT, &j, err);
    if (!rc)
        rc = out_object(c, j, "name", err);
    json_decref(body);
    json_decref(j);
    return rc;
}

int queue_set(struct cli *c, struct sh_err *err)
{
    json_t *body = json_object(), *j = NULL;
    char path[REST_PATH_MAX];
    int rc = read_fields(c, body, err);

    if (!rc && json_object_size(body) == 0)
        rc = cli_usage(c, err, "say what to change: --state or --priority");
    if (!rc)
        rc = queue_path(c->args[0], path, err);
    if (!rc)
        rc = rest_call(c, "PATCH", path, body, REST_TENANT, &j, err);
    if (!rc)
        rc = out_object(c, j, "name", err);
    json_decref(body);
    json_decref(j);
    return rc;
}

int queue_delete(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    int rc = queue_path(c->args[0], path, err);

    if (!rc)
        rc = rest_call(c, "DELETE", path, NULL, REST_TENANT, NULL, err);
    if (!rc)
        out_say(c, "Queue %s is deleted.", c->args[0]);
    return rc;
}
