/* top.c - `shunt top`: what runs, as a full screen with keys; --once and a pipe get it as text. */
#include "cli/client/lists.h"
#include "cli/client/rest.h"
#include "cli/commands.h"
#include "cli/commands/gpu.h"
#include "cli/commands/model.h"
#include "cli/commands/overview.h"
#include "cli/text/field.h"
#include "cli/text/out.h"
#include "cli/text/screen.h"
#include "cli/text/table.h"
#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_SWITCHES 200
#define LEAST_INTERVAL_MS 100
#define MOST_INTERVAL_MS 60000
#define HEAD_LINES 3 /* above the table's titles; one more below it */

/* ---------------------------------------------------------------- what is shown */

static json_t *top_gpus(struct cli *c, const json_t *before, struct sh_err *why)
{
    json_t *gpus = NULL;

    (void)before;
    if (rest_list(c, "/api/v1/gpus", REST_QUIET, &gpus, why))
        return NULL;
    gpu_add_columns(gpus);
    return gpus;
}

/* Shares: an admin sees those of all tenants, another key its own. */
static json_t *top_tenants(struct cli *c, const json_t *before, struct sh_err *why)
{
    json_t *all = NULL, *who = NULL, *one = NULL;
    char path[REST_PATH_MAX];
    int rc = rest_list(c, "/api/v1/shares", REST_QUIET, &all, why);

    (void)before;
    if (!rc)
        return all;
    if (rc != SH_E_FORBIDDEN)
        return NULL;
    *why = (struct sh_err){0};
    rc = rest_get(c, "/api/v1/whoami", REST_QUIET, &who, why);
    if (!rc)
        rc = rest_path(path, why, "api", "v1", "tenants", sh_json_text(who, "tenant"), "share",
                       NULL);
    if (!rc)
        rc = rest_get(c, path, REST_QUIET, &one, why);
    json_decref(who);
    return rc ? NULL : json_pack("[o]", one);
}

static json_t *top_models(struct cli *c, const json_t *before, struct sh_err *why)
{
    json_t *models = overview_models(c, why);

    (void)before;
    model_add_summary(models);
    return models;
}

static json_t *top_jobs(struct cli *c, const json_t *before, struct sh_err *why)
{
    struct overview_left left;

    (void)before;
    return overview_jobs(c, true, &left, why);
}

static json_t *top_queues(struct cli *c, const json_t *before, struct sh_err *why)
{
    json_t *queues = NULL;

    (void)before;
    list_of_all_tenants(c, "/api/v1/queues", REST_MOST, REST_QUIET, &queues, why);
    return queues;
}

static double switch_ms(const json_t *s)
{
    static const char *const STAGES[] = {"wait_ms", "memory_ms", "first_ms", "compute_ms"};
    double ms = 0;

    for (size_t i = 0; i < SH_ARRAY_LEN(STAGES); i++)
        ms += json_number_value(json_object_get(s, STAGES[i]));
    return ms;
}

static int newest_first(const void *a, const void *b)
{
    return strcmp(sh_json_text(*(json_t *const *)b, "at"), sh_json_text(*(json_t *const *)a, "at"));
}

static bool has_item(const json_t *items, const json_t *item)
{
    const json_t *one;
    size_t i;

    json_array_foreach((json_t *)items, i, one) if (json_equal(one, item)) return true;
    return false;
}

/* Of all GPUs, the newest first. A GPU tells its last few; those of before are kept. */
static json_t *top_switches(struct cli *c, const json_t *before, struct sh_err *why)
{
    json_t *gpus = NULL, *all, *gpu, *s;
    size_t i, k;

    if (rest_list(c, "/api/v1/gpu-timelines", REST_QUIET, &gpus, why))
        return NULL;
    all = before ? json_copy((json_t *)before) : json_array();
    json_array_foreach(gpus, i, gpu)
    {
        json_array_foreach(json_object_get(gpu, "switches"), k, s)
        {
            json_object_set(s, "gpu", json_object_get(gpu, "gpu"));
            json_object_set_new(s, "all_ms", json_real(switch_ms(s)));
            if (!has_item(before, s))
                json_array_append(all, s);
        }
    }
    json_decref(gpus);
    list_sort(all, newest_first);
    while (json_array_size(all) > MOST_SWITCHES)
        json_array_remove(all, json_array_size(all) - 1);
    return all;
}

static const struct out_col GPU_COLS[] = {
    {"GPU", "name", OUT_TEXT},
    {"STATE", "state", OUT_TEXT},
    {"DEVICE", "kind", OUT_TEXT, .spare = 4},
    {"POOL", "used", OUT_TEXT, .by = "pool.used_bytes"},
    {"HOST MEMORY", "models_host", OUT_TEXT, .spare = 3, .by = "host.used_bytes"},
    {"LINK", "link", OUT_TEXT, .spare = 2, .by = "link_bytes_per_s"},
    {"MODELS", "models", OUT_COUNT, .spare = 5},
    {"REQUESTS + JOBS", "parts", OUT_TEXT, .spare = 1, .by = "busy.requests"},
    {"NOW", "now", OUT_TEXT}};
static const struct out_col TENANT_COLS[] = {
    {"TENANT", "tenant", OUT_TEXT},
    {"GUARANTEED", "guaranteed_gpus", OUT_NUMBER},
    {"WEIGHT", "weight", OUT_NUMBER, .spare = 3},
    {"MOST", "max_gpus", OUT_NUMBER, .spare = 4},
    {"HAS", "running_gpus", OUT_NUMBER},
    {"WAITS FOR", "waiting_gpus", OUT_NUMBER},
    {"FAIR", "fair_gpus", OUT_RATE},
    {"KEPT FREE", "reserved_gpus", OUT_NUMBER, .spare = 5},
    {"GPU SECONDS", "usage_gpu_seconds", OUT_RATE},
    {"PART", "usage_fraction", OUT_RATE, .spare = 1},
    {"BY WEIGHT", "weight_fraction", OUT_RATE, .spare = 2}};
static const struct out_col MODEL_COLS[] = {{"TENANT", "tenant", OUT_TEXT},
                                            {"MODEL", "name", OUT_TEXT},
                                            {"REQ/S", "traffic.per_s", OUT_RATE},
                                            {"P50 MS", "traffic.p50_ms", OUT_RATE, .spare = 2},
                                            {"P99 MS", "traffic.p99_ms", OUT_RATE, .spare = 1},
                                            {"VERSIONS", "summary", OUT_TEXT}};
static const struct out_col JOB_COLS[] = {{"TENANT", "tenant", OUT_TEXT},
                                          {"JOB", "id", OUT_TEXT},
                                          {"STATE", "state", OUT_TEXT},
                                          {"QUEUE", "queue", OUT_TEXT, .spare = 7},
                                          {"MODEL", "model", OUT_TEXT},
                                          {"STEP", "step", OUT_TEXT, .spare = 2},
                                          {"STEPS", "steps", OUT_TEXT, .spare = 3},
                                          {"LOSS", "loss", OUT_NUMBER, .spare = 4},
                                          {"SAMPLES/S", "samples_per_s", OUT_NUMBER, .spare = 5},
                                          {"PREEMPTED", "preemptions", OUT_TEXT, .spare = 6},
                                          {"AGE", "created_at", OUT_AGE, .spare = 1},
                                          {"REASON", "reason", OUT_TEXT}};
static const struct out_col QUEUE_COLS[] = {
    {"TENANT", "tenant", OUT_TEXT}, {"QUEUE", "name", OUT_TEXT},
    {"STATE", "state", OUT_TEXT},   {"PRIORITY", "priority", OUT_TEXT},
    {"JOBS", "jobs", OUT_TEXT},     {"SHARED", "shared", OUT_TEXT}};
static const struct out_col SWITCH_COLS[] = {{"AT", "at", OUT_TIME},
                                             {"GPU", "gpu", OUT_TEXT},
                                             {"TENANT", "tenant", OUT_TEXT, .spare = 5},
                                             {"MODEL", "model", OUT_TEXT},
                                             {"ALL MS", "all_ms", OUT_RATE},
                                             {"WAIT", "wait_ms", OUT_RATE, .spare = 4},
                                             {"MEMORY", "memory_ms", OUT_RATE, .spare = 5},
                                             {"FIRST", "first_ms", OUT_RATE, .spare = 2},
                                             {"COMPUTE", "compute_ms", OUT_RATE, .spare = 1},
                                             {"COPIED", "copied_bytes", OUT_BYTES, .spare = 6},
                                             {"TRAINED", "stopped_training", OUT_TEXT, .spare = 3}};

#define VIEW_COLS(table) .cols = (table), .n_cols = SH_ARRAY_LEN(table)
static const struct view {
    const char *name;
    /* before: the rows that were read last; may be NULL. OWNED; NULL with the reason. */
    json_t *(*read)(struct cli *c, const json_t *before, struct sh_err *why);
    const struct out_col *cols;
    size_t n_cols;
} VIEWS[] = {
    {"GPUs", top_gpus, VIEW_COLS(GPU_COLS)},
    {"tenants", top_tenants, VIEW_COLS(TENANT_COLS)},
    {"models", top_models, VIEW_COLS(MODEL_COLS)},
    {"jobs", top_jobs, VIEW_COLS(JOB_COLS)},
    {"queues", top_queues, VIEW_COLS(QUEUE_COLS)},
    {"switches", top_switches, VIEW_COLS(SWITCH_COLS)},
};
#define N_VIEWS SH_ARRAY_LEN(VIEWS)

/* ---------------------------------------------------------------- state */

enum top_mode { TOP_TABLE, TOP_HELP, TOP_FILTER }; /* TOP_FILTER: its text is being typed */

struct top {
    struct cli *c;
    size_t view;
    size_t sort[N_VIEWS]; /* a column's number from 1; 0: as the server has them */
    bool is_reversed[N_VIEWS], is_paused;
    enum top_mode mode;
    char filter[64];
    size_t from;   /* the first row that is shown */
    json_t *items; /* OWNED; of the view, as last read; NULL: not read yet, or refused */
    struct sh_err why;
    int64_t read_ms, next_ns; /* wall clock of items; when to read again */
    char ready[200];
};

static void read_view(struct top *t)
{
    struct sh_err why = {0};
    char live[200];
    const bool is_live = overview_health(t->c, "/v2/health/live", live, sizeof(live));
    json_t *items = is_live ? VIEWS[t->view].read(t->c, t->items, &why) : NULL;

    if (is_live)
        overview_health(t->c, "/v2/health/ready", t->ready, sizeof(t->ready));
    else
        sh_strlcpy(t->ready, live, sizeof(t->ready));
    t->next_ns = sh_clock_ns() + SH_MS(t->c->conf->interval_ms);
    if (!is_live) /* what was read last stays, with its time */
        return;
    json_decref(t->items);
    t->items = items;
    t->why = why;
    t->read_ms = sh_clock_wall_ms();
}

static void show_view(struct top *t, size_t view)
{
    if (t->view == view)
        return;
    json_decref(t->items);
    t->items = NULL;
    t->why = (struct sh_err){0};
    t->view = view;
    t->from = 0;
    t->next_ns = 0;
}

/* ---------------------------------------------------------------- rows */

static bool has_text(const json_t *item, const struct view *v, const char *text)
{
    char cell[256];

    for (size_t k = 0; k < v->n_cols; k++) {
        out_text(item, v->cols[k].path, v->cols[k].format, cell, sizeof(cell));
        if (strcasestr(cell, text))
            return true;
    }
    return false;
}

/* Numbers by size, texts by letters; what is not there comes last. */
static int compare_fields(const json_t *a, const json_t *b)
{
    const char *x = json_string_value(a), *y = json_string_value(b);

    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) < json_number_value(b)   ? -1
               : json_number_value(a) > json_number_value(b) ? 1
                                                             : 0;
    if (json_is_array(a) && json_is_array(b))
        return json_array_size(a) < json_array_size(b) ? -1
                                                       : json_array_size(a) > json_array_size(b);
    return strcasecmp(x ? x : "", y ? y : "");
}

struct order {
    const char *path;
    bool is_reversed;
};

static int compare_rows(const void *a, const void *b, void *arg)
{
    const struct order *o = arg;
    const json_t *x = out_field(*(json_t *const *)a, o->path);
    const json_t *y = out_field(*(json_t *const *)b, o->path);
    const bool has_x = x && !json_is_null(x), has_y = y && !json_is_null(y);

    if (!has_x || !has_y)
        return has_y - has_x;
    return o->is_reversed ? compare_fields(y, x) : compare_fields(x, y);
}

/* What of the items is shown, in order. OWNED array; NULL without memory. */
static json_t *rows_of(const struct top *t)
{
    const struct view *v = &VIEWS[t->view];
    const size_t sort = t->sort[t->view];
    json_t **list = calloc(json_array_size(t->items) + 1, sizeof(*list)), *rows = json_array(),
           *item;
    struct order by = {.is_reversed = t->is_reversed[t->view]};
    size_t n = 0, i;

    json_array_foreach(t->items, i, item)
    {
        if (list && (!t->filter[0] || has_text(item, v, t->filter)))
            list[n++] = item;
    }
    if (sort > 0) {
        by.path = v->cols[sort - 1].by ? v->cols[sort - 1].by : v->cols[sort - 1].path;
        if (list)
            qsort_r(list, n, sizeof(*list), compare_rows, &by);
    }
    for (i = 0; i < n; i++)
        json_array_append(rows, list[i]);
    free(list);
    return rows;
}

/* ---------------------------------------------------------------- frames */

static void draw_head(const struct top *t)
{
    char line[512], now[25];
    size_t n = 0;

    sh_clock_format(t->read_ms ? t->read_ms : sh_clock_wall_ms(), now);
    snprintf(line, sizeof(line), "shunt  %.19s  %s  %s%s", now, t->c->server ? t->c->server : "",
             t->ready, t->is_paused ? "  paused" : "");
    screen_line(LOOK_BOLD, line);
    for (size_t i = 0; i < N_VIEWS; i++)
        n += (size_t)snprintf(line + n, sizeof(line) - n, i == t->view ? "[%zu:%s] " : " %zu:%s  ",
                              i + 1, VIEWS[i].name);
    screen_line(LOOK_PLAIN, line);
    screen_line(LOOK_PLAIN, "");
}

static void draw_foot(const struct top *t, size_t n_rows, size_t room)
{
    const struct view *v = &VIEWS[t->view];
    const size_t sort = t->sort[t->view];
    char line[512];
    size_t n = 0;

    if (t->mode == TOP_FILTER) {
        snprintf(line, sizeof(line), "only rows with: %s_", t->filter);
        screen_line(LOOK_REVERSE, line);
        return;
    }
    n += (size_t)snprintf(line, sizeof(line), "%zu-%zu of %zu", n_rows ? t->from + 1 : 0,
                          SH_MIN(t->from + room, n_rows), n_rows);
    if (sort)
        n += (size_t)snprintf(line + n, sizeof(line) - n, "  by %s%s", v->cols[sort - 1].title,
                              t->is_reversed[t->view] ? ", falling" : "");
    if (t->filter[0])
        n += (size_t)snprintf(line + n, sizeof(line) - n, "  with \"%s\"", t->filter);
    snprintf(line + n, sizeof(line) - n, "  every %.1f s  ? help  q quit",
             (double)t->c->conf->interval_ms / 1000);
    screen_line(LOOK_REVERSE, line);
}

static void draw_table(struct top *t, size_t rows, size_t cols)
{
    const struct view *v = &VIEWS[t->view];
    const size_t room = rows - HEAD_LINES - 2;
    json_t *shown = rows_of(t), *part = json_array();
    const size_t n = json_array_size(shown);
    struct table table;
    char *text = NULL, *line, *rest;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);

    t->from = SH_MIN(t->from, n > room ? n - room : 0);
    for (size_t i = t->from; i < SH_MIN(n, t->from + room); i++)
        json_array_append(part, json_array_get(shown, i));
    table_begin(&table, part, v->cols, v->n_cols, false);
    table_fit(&table, cols);
    if (to) {
        table_title(&table, to);
        for (size_t i = 0; i < json_array_size(part); i++)
            table_row(&table, json_array_get(part, i), to);
        fclose(to);
    }
    line = text ? strtok_r(text, "\n", &rest) : NULL;
    for (size_t i = 0; i <= room; i++, line = line ? strtok_r(NULL, "\n", &rest) : NULL)
        screen_line(i == 0 ? LOOK_BOLD : LOOK_PLAIN, line ? line : "");
    draw_foot(t, n, room);
    free(text);
    json_decref(part);
    json_decref(shown);
}

static void draw_help(void)
{
    static const char *const LINES[] = {
        "1-6, Tab        another list",
        "< >             sort by another column; 0: as the server has them",
        "r               the other way round",
        "/               only rows with a text (Enter: done; Esc: all rows)",
        "arrows, Page Up, Page Down, Home, End",
        "                other rows",
        "p, Space        pause, and go on",
        "+ -             look more often, less often",
        "?               this help",
        "q               quit",
    };

    for (size_t i = 0; i < SH_ARRAY_LEN(LINES); i++)
        screen_line(LOOK_PLAIN, LINES[i]);
}

static int draw_frame(struct top *t, struct sh_err *err)
{
    size_t rows, cols;
    char line[sizeof(t->why.msg) + 32];

    screen_size(&rows, &cols);
    screen_begin();
    draw_head(t);
    if (t->mode == TOP_HELP) {
        draw_help();
    } else if (t->items) {
        draw_table(t, SH_MAX(rows, (size_t)HEAD_LINES + 3), cols);
    } else {
        snprintf(line, sizeof(line), "no %s are shown: %s", VIEWS[t->view].name, t->why.msg);
        screen_line(LOOK_PLAIN, t->why.rc ? line : "");
    }
    return screen_end(err);
}

/* ---------------------------------------------------------------- keys */

static void type_filter(struct top *t, int key)
{
    size_t n = strlen(t->filter);

    if (key == KEY_ENTER) {
        t->mode = TOP_TABLE;
    } else if (key == KEY_ESCAPE) {
        t->filter[0] = '\0';
        t->mode = TOP_TABLE;
    } else if (key == KEY_ERASE) {
        while (n > 0 && ((unsigned char)t->filter[--n] & 0xc0) == 0x80) /* a whole character */
            ;
        t->filter[n] = '\0';
    } else if (key >= ' ' && key < 256 && n + 1 < sizeof(t->filter)) {
        t->filter[n] = (char)key;
        t->filter[n + 1] = '\0';
    }
    t->from = 0;
}

static void move_rows(struct top *t, int key)
{
    size_t rows, cols, page;

    screen_size(&rows, &cols);
    page = SH_MAX(rows, (size_t)HEAD_LINES + 3) - HEAD_LINES - 2;
    if (key == KEY_HOME)
        t->from = 0;
    else if (key == KEY_LAST)
        t->from = json_array_size(t->items);
    else if (key == KEY_UP || key == KEY_PAGE_UP)
        t->from -= SH_MIN(t->from, key == KEY_UP ? 1 : page);
    else if (key == KEY_DOWN || key == KEY_PAGE_DOWN)
        t->from += key == KEY_DOWN ? 1 : page; /* as far as there are rows: draw_table() */
}

static void sort_by_next(struct top *t, bool is_right)
{
    const size_t n = VIEWS[t->view].n_cols + 1;

    t->sort[t->view] = (t->sort[t->view] + (is_right ? 1 : n - 1)) % n;
}

static void change_interval(struct top *t, bool is_longer)
{
    int64_t *ms = &t->c->conf->interval_ms;

    *ms = is_longer ? *ms * 2 : *ms / 2;
    *ms = SH_MIN(SH_MAX(*ms, (int64_t)LEAST_INTERVAL_MS), (int64_t)MOST_INTERVAL_MS);
    t->next_ns = 0;
}

/* False: quit. */
static bool on_key(struct top *t, int key)
{
    if (key == 'q' || key == KEY_END)
        return t->mode == TOP_FILTER && key == 'q' ? (type_filter(t, key), true) : false;
    if (t->mode == TOP_FILTER)
        type_filter(t, key);
    else if (t->mode == TOP_HELP)
        t->mode = key == KEY_NONE || key == KEY_RESIZED ? TOP_HELP : TOP_TABLE;
    else if (key >= '1' && key < '1' + (int)N_VIEWS)
        show_view(t, (size_t)(key - '1'));
    else if (key == '\t' || key == KEY_RIGHT)
        show_view(t, (t->view + 1) % N_VIEWS);
    else if (key == KEY_BACK_TAB || key == KEY_LEFT)
        show_view(t, (t->view + N_VIEWS - 1) % N_VIEWS);
    else if (key == '<' || key == '>')
        sort_by_next(t, key == '>');
    else if (key == '0')
        t->sort[t->view] = 0;
    else if (key == 'r')
        t->is_reversed[t->view] = !t->is_reversed[t->view];
    else if (key == '/')
        t->mode = TOP_FILTER;
    else if (key == KEY_ESCAPE)
        t->filter[0] = '\0';
    else if (key == 'p' || key == ' ')
        t->is_paused = !t->is_paused;
    else if (key == '+' || key == '-')
        change_interval(t, key == '-');
    else if (key == '?' || key == 'h')
        t->mode = TOP_HELP;
    else
        move_rows(t, key);
    return true;
}

static int run_screen(struct cli *c, struct sh_err *err)
{
    struct top t = {.c = c};
    bool goes_on = true;
    int rc = screen_open(err);

    while (!rc && goes_on) {
        if (t.next_ns <= sh_clock_ns() && (!t.is_paused || !t.items))
            read_view(&t);
        rc = draw_frame(&t, err);
        if (!rc)
            goes_on =
                on_key(&t, screen_key(t.is_paused ? c->conf->interval_ms
                                                  : sh_clock_until(t.next_ns) / SH_MS(1) + 1));
    }
    screen_close();
    json_decref(t.items);
    return rc;
}

/* ---------------------------------------------------------------- text */

static int run_text(struct cli *c, struct sh_err *err)
{
    const bool once = c->conf->once;
    char live[200], ready[200], now[25];

    for (;;) {
        const bool ok = overview_health(c, "/v2/health/live", live, sizeof(live));

        if (!ok && once) {
            c->exit_code = CLI_NOT_REACHABLE;
            return SH_FAIL(err, SH_E_UNAVAILABLE, "%s", live);
        }
        overview_health(c, "/v2/health/ready", ready, sizeof(ready));
        sh_clock_format(sh_clock_wall_ms(), now);
        printf("%.19s  %s  %s\n", now, c->server ? c->server : "", ok ? ready : live);
        if (ok)
            overview_print(c);
        if (fflush(stdout) != 0)
            return SH_FAIL(err, SH_E_IO, "could not write");
        if (once)
            return SH_OK;
        cli_sleep_ms(c->conf->interval_ms);
    }
}

int top_main(struct cli *c, struct sh_err *err)
{
    if (c->output != OUTPUT_TABLE)
        return cli_usage(c, err, "top needs a terminal; use shunt status -o json");
    if (!c->conf->once && isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1)
        return run_screen(c, err);
    return run_text(c, err);
}
