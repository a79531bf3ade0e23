/* gpu.c - GPUs and their work, as nvidia-smi and squeue would show it. */
#include "cli/commands/gpu.h"

#include "cli/client/lists.h"
#include "cli/commands.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>

static double field_number(const json_t *o, const char *name)
{
    return json_number_value(json_object_get(o, name));
}

static void set_cell_text(json_t *item, const char *name, const char *text)
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
        n = (size_t)snprintf(text, sizeof(text), "%.64s/%.64s:%.0f x%.0f",
                             sh_json_text(run, "tenant"), sh_json_text(run, "model"),
                             field_number(run, "version"), field_number(run, "batch"));
    if (json_array_size(runs) > 1)
        n += (size_t)snprintf(text + n, sizeof(text) - n, " +%zu", json_array_size(runs) - 1);
    if (json_is_object(job))
        snprintf(text + n, sizeof(text) - n, "%sjob %.0f %s %.0f/%.0f", n ? ", " : "",
                 field_number(job, "id"), sh_json_text(job, "state"), field_number(job, "step"),
                 field_number(job, "steps"));
    set_cell_text(gpu, "now", text);
}

static void add_memory(json_t *gpu)
{
    const json_t *pool = json_object_get(gpu, "pool");
    char used[32] = "-", of[32], text[80];

    out_bytes(field_number(gpu, "pool_bytes"), of, sizeof(of));
    if (json_is_object(pool))
        out_bytes(field_number(pool, "used_bytes"), used, sizeof(used));
    snprintf(text, sizeof(text), "%s / %s", used, of);
    set_cell_text(gpu, "used", text);
}

static void add_host(json_t *gpu)
{
    const json_t *host = json_object_get(gpu, "host");
    char used[32], limit[32], text[80] = "";

    if (json_is_object(host)) {
        out_bytes(field_number(host, "used_bytes"), used, sizeof(used));
        out_bytes(field_number(host, "limit_bytes"), limit, sizeof(limit));
        snprintf(text, sizeof(text), "%s / %s", used, limit);
    }
    set_cell_text(gpu, "models_host", text);
}

static void add_busy(json_t *gpu)
{
    const json_t *busy = json_object_get(gpu, "busy");
    char text[64] = "";

    if (json_is_object(busy))
        snprintf(text, sizeof(text), "%.0f%% + %.0f%%", 100 * field_number(busy, "requests"),
                 100 * field_number(busy, "jobs"));
    set_cell_text(gpu, "parts", text);
}

static void add_link(json_t *gpu)
{
    char text[32] = "";

    if (field_number(gpu, "link_bytes_per_s") > 0)
        snprintf(text, sizeof(text), "%.1f GB/s", field_number(gpu, "link_bytes_per_s") / 1e9);
    set_cell_text(gpu, "link", text);
}

bool gpu_lacks_fences(const json_t *gpu, char *out, size_t size)
{
    const json_t *fences = json_object_get(gpu, "fences"), *is_up;
    const char *name;
    size_t n = 0;

    out[0] = '\0';
    json_object_foreach((json_t *)(uintptr_t)fences, name,
                        is_up) if (json_is_false(is_up) && n < size) n +=
        (size_t)snprintf(out + n, size - n, "%s%s", n ? ", " : "", name);
    return n > 0;
}

/* "-": not known, or an admin's alone. */
static void add_fences(json_t *gpu)
{
    char missing[64], text[80] = "";

    if (gpu_lacks_fences(gpu, missing, sizeof(missing)))
        snprintf(text, sizeof(text), "not %s", missing);
    else if (json_is_object(json_object_get(gpu, "fences")))
        sh_strlcpy(text, "all", sizeof(text));
    set_cell_text(gpu, "held", text);
}

void gpu_add_columns(json_t *gpus)
{
    json_t *gpu;
    size_t i;

    json_array_foreach(gpus, i, gpu)
    {
        const char *name = sh_json_text(gpu, "device_name");

        set_cell_text(gpu, "kind", name[0] ? name : sh_json_text(gpu, "device"));
        add_now(gpu);
        add_memory(gpu);
        add_host(gpu);
        add_busy(gpu);
        add_link(gpu);
        add_fences(gpu);
    }
}

int gpu_get(struct cli *c, struct sh_err *err)
{
    static const struct out_col COLS[] = {{"GPU", "name", OUT_TEXT},
                                          {"STATE", "state", OUT_TEXT},
                                          {"DEVICE", "kind", OUT_TEXT, .spare = 1},
                                          {"POOL", "used", OUT_TEXT},
                                          {"HOST MEMORY", "models_host", OUT_TEXT, .spare = 1},
                                          {"LINK", "link", OUT_TEXT, .spare = 3},
                                          {"MODELS", "models", OUT_COUNT, .spare = 4},
                                          {"BUSY: REQUESTS + JOBS", "parts", OUT_TEXT, .spare = 2},
                                          {"HEARD", "heard_at", OUT_AGE, .spare = 5},
                                          {"NOW", "now", OUT_TEXT},
                                          {"MEMORY", "memory_bytes", OUT_BYTES, true},
                                          {"WORKERS", "workers", OUT_TEXT, true},
                                          {"FENCES", "held", OUT_TEXT, true},
                                          {"SINCE", "seen_at", OUT_TIME, true},
                                          {"HOST", "host_id", OUT_TEXT, true}};
    static const struct list_view VIEW = {
        .path = "/api/v1/gpus", LIST_COLS(COLS), .name = "name", .prepare = gpu_add_columns};

    return list_get(c, &VIEW, err);
}
