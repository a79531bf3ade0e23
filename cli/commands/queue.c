/* queue.c - job queues. An admin key without --tenant means the shared ones. */
#include "cli/client/lists.h"
#include "cli/client/rest.h"
#include "cli/commands.h"
#include "cli/text/field.h"
#include "common/mem.h"

#define QUEUES "/api/v1/queues"

int queue_get(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {
        {"NAME", "name", OUT_TEXT},         {"STATE", "state", OUT_TEXT},
        {"PRIORITY", "priority", OUT_TEXT}, {"JOBS", "jobs", OUT_TEXT},
        {"SHARED", "shared", OUT_TEXT},     {"CREATED", "created_at", OUT_TIME, true}};
    static const struct list_view VIEW = {
        .path = QUEUES, .flags = REST_TENANT, LIST_COLS(COLS), .name = "name"};

    return list_get(c, &VIEW, err);
}

static int queue_path(const struct cli *c, char path[static REST_PATH_MAX], struct sh_err *err)
{
    return rest_path(path, err, "api", "v1", "queues", c->args[0], NULL);
}

/* The options that were given. */
static int read_fields(struct cli *c, json_t *body, struct sh_err *err)
{
    int rc = cli_set_number(c, body, "priority", c->conf->target_priority, true, err);

    if (!rc && c->conf->state && json_object_set_new(body, "state", json_string(c->conf->state)))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a queue");
    return rc;
}

int queue_create(struct cli *c, struct sh_err *err)
{
    struct change ch = {.method = "POST", .path = QUEUES, .name = "name", .flags = REST_TENANT};
    int rc;

    ch.body = json_pack("{s:s}", "name", c->args[0]);
    rc = read_fields(c, ch.body, err);
    if (!rc)
        return list_change(c, &ch, err, NULL);
    json_decref(ch.body);
    return rc;
}

int queue_set(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    struct change ch = {.method = "PATCH",
                        .path = path,
                        .name = "name",
                        .flags = REST_TENANT,
                        .body = json_object()};
    int rc = read_fields(c, ch.body, err);

    if (!rc && json_object_size(ch.body) == 0)
        rc = cli_usage(c, err, "say what to change: --state or --priority");
    if (!rc)
        rc = queue_path(c, path, err);
    if (!rc)
        return list_change(c, &ch, err, NULL);
    json_decref(ch.body);
    return rc;
}

int queue_delete(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    int rc = queue_path(c, path, err);

    return rc ? rc
              : list_change(
                    c, &(struct change){.method = "DELETE", .path = path, .flags = REST_TENANT},
                    err, "Queue %s is deleted.", c->args[0]);
}
