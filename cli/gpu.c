/* gpu.c - GPUs and what they do, as nvidia-smi and squeue would show it; options of the API. */
#include "cli/lists.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>

#define OPTIONS "/api/v1/config"

/* ---------------------------------------------------------------- GPUs */

static double number(const json_t *o, const char *name)
{
    return json_number_value(json_object_get(o, name));
}

static void set_text(json_t *item, const char *name, const char *text)
{
    json_object_set_new(item, name, json_string(text[0] ? text : "-"));
}

/* "bert:3 x8 +2" or "job 12 RUNNING 340/1000" */
static void add_now(json_t *gpu)
{
    const json_t *runs = json_object_get(gpu, "runs"), *run = json_array_get(runs, 0);
    const json_t *job = json_object_get(gpu, "job");
    char text[256] = "";
    size_t n = 0;

    if (run)
        n = (size_t)snprintf(text, sizeof(text), "%.64s/%.64s:%.0f x%.0f", rest_text(run, "tenant"),
                             rest_text(run, "model"), number(run, "version"), number(run, "batch"));
    if (json_array_size(runs) > 1)
        n += (size_t)snprintf(text + n, sizeof(text) - n, " +%zu", json_array_size(runs) - 1);
    if (json_is_object(job))
        snprintf(text + n, sizeof(text) - n, "%sjob %.0f %s %.0f/%.0f", n ? ", " : "",
                 number(job, "id"), rest_text(job, "state"), number(job, "step"),
                 number(job, "steps"));
    set_text(gpu, "now", text);
}

static void add_memory(json_t *gpu)
{
    const json_t *pool = json_object_get(gpu, "pool");
    char used[32] = "-", of[32], text[80];

    out_bytes(number(gpu, "pool_bytes"), of, sizeof(of));
    if (json_is_object(pool))
        out_bytes(number(pool, "used_bytes"), used, sizeof(used));
    snprintf(text, sizeof(text), "%s / %s", used, of);
    set_text(gpu, "used", text);
}

static void add_busy(json_t *gpu)
{
    const json_t *busy = json_object_get(gpu, "busy");
    char text[64] = "";

    if (json_is_object(busy))
        snprintf(text, sizeof(text), "%.0f%% + %.0f%%", 100 * number(busy, "requests"),
                 100 * number(busy, "jobs"));
    set_text(gpu, "parts", text);
}

static void add_link(json_t *gpu)
{
    char text[32] = "";

    if (number(gpu, "link_bytes_per_s") > 0)
        snprintf(text, sizeof(text), "%.1f GB/s", number(gpu, "link_bytes_per_s") / 1e9);
    set_text(gpu, "link", text);
}

/* What a table shows is made of several fields. */
static void add_columns(json_t *gpus)
{
    json_t *gpu;
    size_t i;

    json_array_foreach(gpus, i, gpu)
    {
        const char *name = rest_text(gpu, "device_name");

        set_text(gpu, "kind", name[0] ? name : rest_text(gpu, "device"));
        add_now(gpu);
        add_memory(gpu);
        add_busy(gpu);
        add_link(gpu);
    }
}

int gpu_get(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {{"GPU", "name", OUT_TEXT},
                                          {"STATE", "state", OUT_TEXT},
                                          {"DEVICE", "kind", OUT_TEXT},
                                          {"POOL", "used", OUT_TEXT},
                                          {"LINK", "link", OUT_TEXT},
                                          {"MODELS", "models", OUT_COUNT},
                                          {"BUSY: REQUESTS + JOBS", "parts", OUT_TEXT},
                                          {"HEARD", "heard_at", OUT_AGE},
                                          {"NOW", "now", OUT_TEXT},
                                          {"MEMORY", "memory_bytes", OUT_BYTES, true},
                                          {"WORKERS", "workers", OUT_TEXT, true},
                                          {"SINCE", "seen_at", OUT_TIME, true},
                                          {"HOST", "host_id", OUT_TEXT, true}};
    static const struct list_view VIEW = {
        .path = "/api/v1/gpus", LIST_COLS(COLS), .name = "name", .prepare = add_columns};

    return list_get(c, &VIEW, err);
}

/* ---------------------------------------------------------------- options of the API */

static int show_options(struct cli *c, const json_t *j, bool live_only, struct sh_err *err)
{
    static const struct out_col COLS[] = {{"OPTION", "name", OUT_TEXT},
                                          {"VALUE", "value", OUT_TEXT},
                                          {"LIVE", "live", OUT_TEXT},
                                          {"CHANGED", "changed", OUT_TEXT},
                                          {"MEANING", "help", OUT_TEXT}};
    json_t *list = json_array(), *o;
    size_t i;
    int rc = list ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate a list");

    json_array_foreach(json_object_get(j, "options"), i, o)
    {
        if (!rc && (!live_only || json_is_true(json_object_get(o, "live"))) &&
            json_array_append(list, o))
            rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a list");
    }
    if (!rc)
        rc = out_list(c, list, COLS, SH_ARRAY_LEN(COLS), "name", err);
    json_decref(list);
    return rc;
}

int option_get(struct cli *c, struct sh_err *err)
{
    json_t *j = NULL;
    int rc = rest_get(c, OPTIONS, 0, &j, err);

    if (!rc)
        rc = show_options(c, j, false, err);
    json_decref(j);
    return rc;
}

/* NAME=VALUE: a number, null, or else a text. */
static int add_option(struct cli *c, json_t *body, const char *word, struct sh_err *err)
{
    const char *eq = strchr(word, '=');
    char name[128];
    json_t *value;

    if (!eq || eq == word || (size_t)(eq - word) >= sizeof(name))
        return cli_usage(c, err, "\"%.60s\" is not OPTION=VALUE", word);
    memcpy(name, word, (size_t)(eq - word));
    name[eq - word] = '\0';
    value = json_loads(eq + 1, JSON_DECODE_ANY, NULL);
    if (!json_is_integer(value) && !json_is_null(value)) {
        json_decref(value);
        value = json_string(eq + 1);
    }
    return json_object_set_new(body, name, value)
               ? SH_FAIL(err, SH_E_INVALID, "the value of %.60s is not UTF-8", name)
               : SH_OK;
}

int option_set(struct cli *c, struct sh_err *err)
{
    json_t *body = json_object(), *j = NULL;
    int rc = body ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate the options");

    for (int i = 0; !rc && i < c->n_args; i++)
        rc = add_option(c, body, c->args[i], err);
    if (!rc)
        rc = rest_call(c, "PATCH", OPTIONS, body, 0, &j, err);
    if (!rc)
        rc = show_options(c, j, true, err);
    if (!rc && c->output == OUTPUT_TABLE)
        list_said_dry_run(c);
    json_decref(body);
    json_decref(j);
    return rc;
}
