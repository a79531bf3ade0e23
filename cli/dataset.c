/* dataset.c - datasets. */
#include "cli/lists.h"
#include "cli/upload.h"
#include "common/mem.h"

#include <stdio.h>

#define DATASETS "/api/v1/datasets"

static int dataset_path(const struct cli *c, char path[static REST_PATH_MAX], const char *below,
                        struct sh_err *err)
{
    return rest_path(path, err, "api", "v1", "datasets", c->args[0], below, NULL);
}

int dataset_create(struct cli *c, struct sh_err *err)
{
    return list_change(c,
                       &(struct change){.method = "POST",
                                        .path = DATASETS,
                                        .name = "name",
                                        .flags = REST_TENANT,
                                        .body = json_pack("{s:s}", "name", c->args[0])},
                       err, "Dataset %s is created. Next: shunt push dataset %s FILE.safetensors",
                       c->args[0], c->args[0]);
}

int dataset_get(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {
        {"NAME", "name", OUT_TEXT},          {"STATE", "state", OUT_TEXT},
        {"SAMPLES", "n_samples", OUT_TEXT},  {"BYTES", "bytes", OUT_BYTES},
        {"TENSORS", "tensors", OUT_COUNT},   {"CREATED", "created_at", OUT_TIME},
        {"DIGEST", "digest", OUT_TEXT, true}};
    static const struct list_view VIEW = {
        .path = DATASETS, .flags = REST_TENANT, LIST_COLS(COLS), .name = "name"};

    return list_get(c, &VIEW, err);
}

int dataset_delete(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    int rc = dataset_path(c, path, NULL, err);

    return rc ? rc
              : list_change(
                    c, &(struct change){.method = "DELETE", .path = path, .flags = REST_TENANT},
                    err, "Dataset %s is deleted.", c->args[0]);
}

int dataset_push(struct cli *c, struct sh_err *err)
{
    json_t *j = NULL;
    struct upload *u = NULL;
    bool made = false;
    char path[REST_PATH_MAX], bytes[32];
    int rc = dataset_path(c, path, NULL, err);

    if (!rc)
        rc = upload_check(c->args[1], SH_FILE_SAFETENSORS, err);
    if (!rc)
        rc = upload_open(c, c->args[1], &u, err);
    if (!rc)
        rc = rest_ensure(c, path, DATASETS, c->args[0], &made, err);
    if (!rc)
        rc = dataset_path(c, path, "artifact", err);
    if (!rc)
        rc = upload_send(u, path, &j, err);
    if (rc && made)
        upload_undo(u, path);
    upload_close(u);
    out_bytes(json_number_value(json_object_get(j, "bytes")), bytes, sizeof(bytes));
    if (!rc && c->output != OUTPUT_TABLE)
        rc = out_object(c, j, "name", err);
    else if (!rc)
        out_say(c, "Dataset %s is READY: %" JSON_INTEGER_FORMAT " samples, %s.", c->args[0],
                json_integer_value(json_object_get(j, "n_samples")), bytes);
    json_decref(j);
    return rc;
}
