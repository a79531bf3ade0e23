/* load.c - versions on executors: load, unload, pin; where they are, how fast they run, how well a
 * model's latency target was met. */
#include "cli/client/lists.h"
#include "cli/client/rest.h"
#include "cli/commands.h"
#include "cli/commands/model.h"
#include "cli/text/field.h"
#include "common/mem.h"

#include <inttypes.h>
#include <stdio.h>

/* One of the verbs that are a POST below a model or a version. wait: with --wait, when it is said;
 * NULL: there is no such option. */
static int act_on_version(struct cli *c, const char *verb, const char *done, cli_fn *wait,
                          struct sh_err *err)
{
    char path[REST_PATH_MAX];
    int rc = model_ref_path(c, path, c->args[0], verb, err);

    if (!rc)
        rc = list_change(c, &(struct change){.method = "POST", .path = path, .flags = REST_TENANT},
                         err, "%s %s%s.", c->args[0], done,
                         wait && !c->conf->wait ? " (--wait waits)" : "");
    return !rc && wait && c->conf->wait && !c->conf->dry_run ? wait(c, err) : rc;
}

int model_load(struct cli *c, struct sh_err *err)
{
    return act_on_version(c, "load", "is being loaded", model_wait, err);
}

int model_unload(struct cli *c, struct sh_err *err)
{
    return act_on_version(c, "unload", "is being unloaded", model_wait_gone, err);
}

int model_pin(struct cli *c, struct sh_err *err)
{
    return act_on_version(c, "pin", "is pinned", NULL, err);
}

int model_unpin(struct cli *c, struct sh_err *err)
{
    return act_on_version(c, "unpin", "is not pinned any more", NULL, err);
}

int model_share(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    int rc = model_path(path, c->args[0], NULL, err);

    return rc ? rc
              : list_change(c,
                            &(struct change){.method = "PATCH",
                                             .path = path,
                                             .name = "name",
                                             .flags = REST_TENANT,
                                             .body = json_pack("{s:s}", "visibility", c->args[1])},
                            err, NULL);
}

/* What the server knows of the version that is named; without a number of the newest. */
static int get_version(struct cli *c, const char *below, json_t **out, struct sh_err *err)
{
    char path[REST_PATH_MAX], name[129];
    int64_t version;
    int rc = rest_model_ref(c, c->args[0], name, &version, err);

    if (!rc && version == 0)
        rc = model_newest(c, name, &version, err);
    if (!rc)
        rc = version_path(path, name, version, below, err);
    return rc ? rc : rest_get(c, path, REST_TENANT, out, err);
}

/* A list inside of that. */
static int get_list(struct cli *c, const char *below, const char *list, const struct out_col *cols,
                    size_t n_cols, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = get_version(c, below, &j, err);

    if (!rc && c->output == OUTPUT_DATA)
        rc = out_object(c, j, "model", err);
    else if (!rc)
        rc = out_list(c, json_object_get(j, list), cols, n_cols, cols[0].path, err);
    json_decref(j);
    return rc;
}

int placement_get(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {{"EXECUTOR", "executor", OUT_TEXT},
                                          {"STATE", "state", OUT_TEXT},
                                          {"PIN", "pin", OUT_TEXT},
                                          {"DEVICE", "device_bytes", OUT_BYTES},
                                          {"HOST", "host_bytes", OUT_BYTES},
                                          {"DISK", "disk_bytes", OUT_BYTES, .spare = 1},
                                          {"LAST USE", "last_use_at", OUT_TIME}};

    return get_list(c, "placements", "placements", COLS, SH_ARRAY_LEN(COLS), err);
}

static void say_place(const json_t *p)
{
    char exec[64], bytes[32];
    const char *state = sh_json_text(p, "state");

    out_text(p, "executor", OUT_TEXT, exec, sizeof(exec));
    out_text(p, "host_bytes", OUT_BYTES, bytes, sizeof(bytes));
    if (strcmp(state, "ASIDE") == 0)
        printf("  %s has put it aside: it was idle, and others wanted its host memory. The next "
               "request brings it back.\n",
               exec);
    else
        printf("  %s: %s, %s of host memory%s.\n", exec, state, bytes,
               json_integer_value(json_object_get(p, "image_disk_bytes"))
                   ? "; its image has left it for disk, since others needed the room, and the next "
                     "request reads it (rule hostmemory)"
                   : "");
    if (json_is_true(json_object_get(p, "shut")))
        printf("    The models that are asked for do not fit into its device memory together, and "
               "this one is shut for now (rule Thrashing): requests with a deadline are refused "
               "unless all weights are on the device; others wait until it is open again, or until "
               "the device is idle.\n");
}

static void say_model(const json_t *j)
{
    char name[160], state[32], reason[600];
    const json_t *p;
    size_t i;

    out_text(j, "model", OUT_TEXT, name, sizeof(name));
    out_text(j, "state", OUT_TEXT, state, sizeof(state));
    out_text(j, "reason", OUT_TEXT, reason, sizeof(reason));
    printf("%s:%" JSON_INTEGER_FORMAT " is %s%s%s.\n", name,
           json_integer_value(json_object_get(j, "version")), state,
           sh_json_text(j, "reason")[0] ? ": " : "", sh_json_text(j, "reason")[0] ? reason : "");
    if (sh_json_text(j, "solo_note")[0])
        printf("Each request runs by itself, since samples may affect each other: %s.\n",
               sh_json_text(j, "solo_note"));
    json_array_foreach(json_object_get(j, "placements"), i, p) say_place(p);
    if (strcmp(state, "FAILED") == 0 && strstr(reason, "host memory"))
        printf(
            "Make room: shunt unload MODEL, push it with a smaller --max-batch, or have an admin "
            "raise the limit: shunt set quota TENANT host_memory_max_bytes=8Gi. Then: shunt load "
            "%s:%" JSON_INTEGER_FORMAT "\n",
            name, json_integer_value(json_object_get(j, "version")));
}

/* Its aliases that were rolled back by themselves, and why. */
static int say_aliases(struct cli *c, const char *model, struct sh_err *err)
{
    char path[REST_PATH_MAX], name[80], reason[300], at[40];
    json_t *j = NULL, *a;
    size_t i;
    int rc = model_path(path, model, NULL, err);

    if (!rc)
        rc = rest_get(c, path, REST_TENANT, &j, err);
    json_array_foreach(json_object_get(j, "aliases"), i, a)
    {
        if (!json_is_object(json_object_get(a, "rolled_back")))
            continue;
        out_text(a, "name", OUT_TEXT, name, sizeof(name));
        out_text(a, "rolled_back.at", OUT_TIME, at, sizeof(at));
        out_text(a, "rolled_back.reason", OUT_TEXT, reason, sizeof(reason));
        printf(
            "Its alias %s was rolled back by itself at %s: %s. `shunt get aliases %s` shows what "
            "it stands for now.\n",
            name, at, reason, model);
    }
    json_decref(j);
    return rc;
}

int model_explain(struct cli *c, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = get_version(c, "placements", &j, err);

    if (!rc && c->output != OUTPUT_TABLE) {
        rc = out_object(c, j, "state", err);
    } else if (!rc) {
        say_model(j);
        rc = say_aliases(c, sh_json_text(j, "model"), err);
    }
    json_decref(j);
    return rc;
}

int profile_get(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {
        {"BATCH", "batch", OUT_TEXT},     {"PREDICTED MS", "predicted_ms", OUT_NUMBER},
        {"FROM", "source", OUT_TEXT},     {"RUNS", "runs", OUT_TEXT},
        {"P50 MS", "p50_ms", OUT_NUMBER}, {"P99 MS", "p99_ms", OUT_NUMBER}};

    return get_list(c, "profile", "batches", COLS, SH_ARRAY_LEN(COLS), err);
}

int slo_report(struct cli *c, struct sh_err *err)
{
    char path[REST_PATH_MAX];
    static const struct list_view VIEW = {.flags = REST_TENANT, .name = "model"};
    int rc = rest_path(path, err, "api", "v1", "models", c->args[0], "slo", "attainment", NULL);
    size_t n = rc ? 0 : strlen(path);

    if (!rc && strspn(c->conf->window, "0123456789smhd") != strlen(c->conf->window))
        rc = cli_usage(c, err, "--window is 5m, 1h or 1d");
    if (!rc)
        snprintf(path + n, sizeof(path) - n, "?window=%s", c->conf->window);
    return rc ? rc : list_show_one(c, path, &VIEW, err);
}
