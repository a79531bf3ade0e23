/* dataset.c - datasets. */
#include "cli/out.h"
#include "cli/upload.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>

static int create(struct cli *c, json_t **out, struct sh_err *err)
{
    json_t *body = json_pack("{s:s}", "name", c->args[0]);
    int rc = rest_call(c, "POST", "/api/v1/datasets", body, REST_TENANT, out, err);

    json_decref(body);
    return rc;
}

static int dataset_path(const struct cli *c, char path[static REST_PATH_MAX], const char *below,
                        struct sh_err *err)
{
    return rest_path(path, err, "api", "v1", "datasets", c->args[0], below, NULL);
}

int dataset_create(struct cli *c, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = create(c, &j, err);

    if (!rc && c->output != OUTPUT_TABLE)
        rc = out_object(c, j, "name", err);
    else if (!rc)
        out_say(c, "Dataset %s is created. Next: shunt push dataset %s FILE.safetensors",
                c->args[0], c->args[0]);
    json_decref(j);
    return rc;
}

int dataset_get(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {
        {"NAME", "name", OUT_TEXT},         {"STATE", "state", OUT_TEXT},
        {"SAMPLES", "n_samples", OUT_TEXT}, {"BYTES", "bytes", OUT_BYTES},
        {"TENSORS", "tensors", OUT_COUNT},  {"CREATED", "created_at", OUT_TIME}};
    char path[REST_PATH_MAX];
    json_t *j = NULL;
    int rc;

    if (c->n_args == 0) {
        rc = rest_list(c, "/api/v1/datasets", REST_TENANT, &j, err);
        if (!rc)
            rc = out_list(c, j, COLS, SH_ARRAY_LEN(COLS), "name", err);
    } else {
        rc = dataset_path(c, path, NULL, err);
        if (!rc)
            rc = rest_get(c, path, REST_TENANT, &j, err);
        if (!rc)
            rc = out_object(c, j, "name", err);
    }
    json_decref(j);
    return rc;
}

int dataset_delete(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    int rc = dataset_path(c, path, NULL, err);

    if (!rc)
        rc = rest_call(c, "DELETE", path, NULL, REST_TENANT, NULL, err);
    if (!rc)
        out_say(c, "Dataset %s is deleted.", c->args[0]);
    return rc;
}

int dataset_push(struct cli *c, struct sh_err *err)
{
    struct sh_err ignored = {0};
    json_t *have = NULL, *j = NULL;
    char path[REST_PATH_MAX], bytes[32];
    int rc = dataset_path(c, path, NULL, err);

    if (!rc)
        rc = upload_check(c->args[1], err);
    if (rc)
        return rc;
    if (rest_get(c, path, REST_TENANT | REST_QUIET, &have, &ignored) == SH_E_NOTFOUND)
        rc = create(c, NULL, err);
    json_decref(have);
    if (!rc)
        rc = dataset_path(c, path, "artifact", err);
    if (!rc)
        rc = upload_file(c, path, c->args[1], &j, err);
    out_bytes(json_number_value(json_object_get(j, "bytes")), bytes, sizeof(bytes));
    if (!rc && c->output != OUTPUT_TABLE)
        rc = out_object(c, j, "name", err);
    else if (!rc)
        out_say(c, "Dataset %s is READY: %" JSON_INTEGER_FORMAT " samples, %s.", c->args[0],
                json_integer_value(json_object_get(j, "n_samples")), bytes);
    json_decref(j);
    return rc;
}
