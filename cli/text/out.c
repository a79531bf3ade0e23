/* out.c - see out.h. */
#include "cli/text/out.h"

#include "cli/text/field.h"
#include "cli/text/table.h"
#include "cli/text/yaml.h"
#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define CELL_MAX 256
#define NARROW 80 /* columns of a terminal that does not say */
#define MAX_YAML (1u << 30)
#define LINE_EVERY_NS SH_S(5)
#define SAME_EVERY_NS SH_S(60) /* one that says the same again */
#define DRAW_EVERY_NS SH_MS(80)
#define BAR_CELLS 28

void cli_sleep_ms(int64_t ms)
{
    struct timespec t = {ms / 1000, SH_MS(ms % 1000)};

    nanosleep(&t, NULL);
}

/* ---------------------------------------------------------------- cells */

void out_bytes(double bytes, char *out, size_t size)
{
    static const char *const UNIT[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t u = 0;

    for (; bytes >= 1024 && u + 1 < SH_ARRAY_LEN(UNIT); u++)
        bytes /= 1024;
    snprintf(out, size, u == 0 || bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes, UNIT[u]);
}

const json_t *out_field(const json_t *j, const char *path)
{
    char name[64];

    while (j && path) {
        const char *dot = strchr(path, '.');
        size_t n = dot ? (size_t)(dot - path) : strlen(path);

        if (n >= sizeof(name))
            return NULL;
        memcpy(name, path, n);
        name[n] = '\0';
        j = json_object_get(j, name);
        path = dot ? dot + 1 : NULL;
    }
    return j;
}

/* What would move the cursor: control characters, also those of Latin-1 (0xc2 0x80 to 0x9f). */
static void clean(char *s)
{
    for (; *s; s++) {
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = '?';
        else if ((unsigned char)*s == 0xc2 && (unsigned char)s[1] >= 0x80 &&
                 (unsigned char)s[1] < 0xa0)
            s[0] = s[1] = '?';
    }
}

static void age(const char *time, char *out, size_t size)
{
    struct tm tm = {0};
    int64_t s;

    if (!strptime(time, "%Y-%m-%dT%H:%M:%S", &tm)) {
        sh_strlcpy(out, "-", size);
        return;
    }
    s = sh_clock_wall_ms() / 1000 - (int64_t)timegm(&tm);
    s = SH_MAX(s, (int64_t)0);
    snprintf(out, size, "%lld%c",
             (long long)(s < 120      ? s
                         : s < 7200   ? s / 60
                         : s < 172800 ? s / 3600
                                      : s / 86400),
             s < 120      ? 's'
             : s < 7200   ? 'm'
             : s < 172800 ? 'h'
                          : 'd');
}

static bool is_flat_json(const json_t *j)
{
    const char *key;
    json_t *v;
    size_t i;

    json_array_foreach((json_t *)j, i, v) if (!json_is_string(v)) return false;
    json_object_foreach((json_t *)j, key,
                        v) if (json_is_array(v) || json_is_object(v)) return false;
    return true;
}

/* Of a list of words "A,B", of an object "name=value,name=value". */
static void join_text(const json_t *j, char *out, size_t size)
{
    char one[256];
    const char *key;
    json_t *v;
    size_t n = 0, i;

    sh_strlcpy(out, "-", size);
    json_array_foreach((json_t *)j, i, v)
    {
        if (n < size)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? "," : "", json_string_value(v));
    }
    json_object_foreach((json_t *)j, key, v)
    {
        out_text(j, key, OUT_TEXT, one, sizeof(one));
        if (n < size)
            n += (size_t)snprintf(out + n, size - n, "%s%s=%s", n ? "," : "", key, one);
    }
}

static void string(const char *s, enum out_format format, char *out, size_t size)
{
    if (format == OUT_TIME && strlen(s) >= 19)
        snprintf(out, size, "%.19sZ", s);
    else if (format == OUT_AGE)
        age(s, out, size);
    else
        sh_strlcpy(out, s[0] ? s : "-", size);
}

static void out_rate(double x, char *out, size_t size)
{
    snprintf(out, size, "%.*f", x >= 100 ? 0 : x >= 10 ? 1 : 2, x);
}

void out_text(const json_t *obj, const char *path, enum out_format format, char *out, size_t size)
{
    const json_t *j = out_field(obj, path);
    char *dump = NULL;

    if (!j || json_is_null(j))
        sh_strlcpy(out, "-", size);
    else if (format == OUT_COUNT)
        snprintf(out, size, "%zu", json_array_size(j));
    else if (format == OUT_BYTES && json_is_number(j))
        out_bytes(json_number_value(j), out, size);
    else if (format == OUT_RATE && json_is_number(j))
        out_rate(json_number_value(j), out, size);
    else if (json_is_integer(j))
        snprintf(out, size, "%" JSON_INTEGER_FORMAT, json_integer_value(j));
    else if (json_is_number(j))
        snprintf(out, size, "%.6g", json_number_value(j));
    else if (json_is_string(j))
        string(json_string_value(j), format, out, size);
    else if (json_is_boolean(j))
        sh_strlcpy(out, json_is_true(j) ? "yes" : "no", size);
    else if (is_flat_json(j))
        join_text(j, out, size);
    else {
        /* 15 digits, so that 0.05 looks like 0.05 */
        dump = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(15));
        sh_strlcpy(out, dump ? dump : "?", size);
    }
    free(dump);
    clean(out);
}

/* ---------------------------------------------------------------- data */

static void print_yaml(const json_t *j, int indent)
{
    struct sh_buf b;

    sh_buf_init(&b, MAX_YAML);
    if (yaml_append(&b, j, indent, NULL) == SH_OK)
        fwrite(b.data, 1, b.len, stdout);
    else
        fprintf(stderr, "shunt: the answer is too large for YAML; -o json prints it\n");
    sh_buf_fini(&b);
}

void out_data(const struct cli *c, const json_t *j)
{
    if (c->is_yaml) {
        print_yaml(j, 0);
        return;
    }
    json_dumpf(j, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    putchar('\n');
}

void out_item(const struct cli *c, const json_t *j)
{
    if (c->is_yaml) {
        puts("---");
        print_yaml(j, 0);
    } else {
        json_dumpf(j, stdout, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
        putchar('\n');
    }
    fflush(stdout);
}

static void print_name(const json_t *item, const char *name)
{
    char cell[CELL_MAX];

    out_text(item, name, OUT_TEXT, cell, sizeof(cell));
    puts(cell);
}

/* ---------------------------------------------------------------- what changed */

/* The cells that are shown, but no ages or rates, which always change. NULL columns: all of it. */
static json_t *signature(const struct cli *c, const json_t *item, const struct out_col *cols,
                         size_t n_cols)
{
    char cell[CELL_MAX];
    json_t *all;

    if (c->output != OUTPUT_TABLE || !cols)
        return json_deep_copy(item);
    all = json_array();
    for (size_t k = 0; k < n_cols; k++) {
        if ((cols[k].is_wide && !c->is_wide) || cols[k].format == OUT_AGE ||
            cols[k].format == OUT_RATE)
            continue;
        out_text(item, cols[k].path, cols[k].format, cell, sizeof(cell));
        json_array_append_new(all, json_string(cell));
    }
    return all;
}

static void item_key(const json_t *item, const char *name, char *out, size_t size)
{
    char id[CELL_MAX], tenant[CELL_MAX];

    out_text(item, name, OUT_TEXT, id, sizeof(id));
    out_text(item, "tenant", OUT_TEXT, tenant, sizeof(tenant));
    snprintf(out, size, "%s%s%s", strcmp(tenant, "-") == 0 ? "" : tenant,
             strcmp(tenant, "-") == 0 ? "" : "/", id);
}

/* Says once of each that was there and is no more. */
static void say_item_gone(const struct cli *c, const json_t *now)
{
    const char *key;
    json_t *v;
    void *next;

    json_object_foreach_safe(c->seen, next, key, v)
    {
        if (!key[0] || json_object_get(now, key)) /* "": the widths */
            continue;
        if (!c->conf->quiet)
            fprintf(stderr, "%s is gone\n", key);
        json_object_del(c->seen, key);
    }
}

/* Of all items those that were not printed as they are now. OWNED. */
static json_t *new_items(const struct cli *c, const json_t *items, const struct out_col *cols,
                         size_t n_cols, const char *name)
{
    json_t *fresh = json_array(), *now = json_object(), *item;
    char key[2 * CELL_MAX + 2];
    size_t i;

    json_array_foreach((json_t *)items, i, item)
    {
        json_t *sign = signature(c, item, cols, n_cols);

        item_key(item, name, key, sizeof(key));
        if (!json_equal(json_object_get(c->seen, key), sign))
            json_array_append(fresh, item);
        json_object_set(c->seen, key, sign);
        json_object_set_new(now, key, sign);
    }
    say_item_gone(c, now);
    json_decref(now);
    return fresh;
}

/* ---------------------------------------------------------------- lists and objects */

/* The widths that were printed before, with --watch: columns only grow. True: they did, or nothing
 * was printed yet, so that a title is wanted. */
static bool keep_widths(json_t *seen, size_t *wide, size_t n)
{
    json_t *before = json_object_get(seen, ""), *now = json_array();
    bool grew = !before;

    for (size_t k = 0; k < n; k++) {
        size_t was = (size_t)json_integer_value(json_array_get(before, k));

        grew = grew || wide[k] > was;
        wide[k] = SH_MAX(wide[k], was);
        json_array_append_new(now, json_integer((json_int_t)wide[k]));
    }
    json_object_set_new(seen, "", now);
    return grew;
}

/* 0: no limit. What goes to a program or a file has all columns: somebody looks for one there. */
static size_t most_columns(const struct cli *c)
{
    struct winsize w;

    if (c->is_wide || !isatty(STDOUT_FILENO))
        return 0;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : NARROW;
}

/* all: those that set the widths; rows: those to print. */
static void print_sorted_table(const struct cli *c, const json_t *all, const json_t *rows,
                               const struct out_col *cols, size_t n_cols)
{
    struct table t;
    json_t *item;
    size_t i;
    bool with_title;

    table_begin(&t, all, cols, n_cols, c->is_wide);
    with_title = !c->seen || ((json_array_size(rows) > 0 || !json_object_get(c->seen, "")) &&
                              keep_widths(c->seen, t.wide, t.n));
    table_fit(&t, most_columns(c));
    if (with_title)
        table_title(&t, stdout);
    json_array_foreach((json_t *)rows, i, item) table_row(&t, item, stdout);
}

int out_list(const struct cli *c, const json_t *items, const struct out_col *cols, size_t n_cols,
             const char *name, struct sh_err *err)
{
    json_t *rows = NULL, *item;
    size_t i;

    if (!json_is_array(items))
        return SH_FAIL(err, SH_E_PROTO, "the server's answer is not a list");
    if (!c->seen && c->output == OUTPUT_DATA) {
        out_data(c, items);
        return SH_OK;
    }
    rows = c->seen ? new_items(c, items, cols, n_cols, name) : json_incref((json_t *)items);
    if (c->output == OUTPUT_TABLE)
        print_sorted_table(c, items, rows, cols, n_cols);
    else
        json_array_foreach(rows, i, item)
        {
            if (c->output == OUTPUT_DATA)
                out_item(c, item);
            else
                print_name(item, name);
        }
    json_decref(rows);
    fflush(stdout);
    return SH_OK;
}

/* What a thing is called and how it is come first, the rest by name. OWNED; NULL without memory. */
static json_t *sorted_keys(const json_t *obj)
{
    static const char *const FIRST[] = {"id",      "name",  "tenant", "model",
                                        "version", "state", "reason"};
    json_t *keys = json_array(), *copy = json_copy((json_t *)obj);
    const char *key, *least;
    json_t *v;

    for (size_t i = 0; i < SH_ARRAY_LEN(FIRST); i++)
        if (json_object_get(copy, FIRST[i])) {
            json_array_append_new(keys, json_string(FIRST[i]));
            json_object_del(copy, FIRST[i]);
        }
    json_object_del(copy, "row_version"); /* of no use to a person */
    while (json_object_size(copy) > 0) {
        least = NULL;
        json_object_foreach(copy, key, v) least = !least || strcmp(key, least) < 0 ? key : least;
        v = json_string(least);
        json_object_del(copy, json_string_value(v));
        json_array_append_new(keys, v);
    }
    json_decref(copy);
    return keys;
}

static void print_fields(const json_t *obj)
{
    json_t *keys = sorted_keys(obj), *k;
    char cell[2048];
    size_t wide = 0, i;

    json_array_foreach(keys, i, k)
    {
        wide = SH_MAX(wide, json_string_length(k));
    }
    json_array_foreach(keys, i, k)
    {
        const char *key = json_string_value(k);
        const json_t *v = json_object_get(obj, key);

        if (json_object_size(v) > 0 || (json_is_array(v) && !is_flat_json(v))) {
            printf("%s:\n", key);
            print_yaml(v, 2);
            continue;
        }
        out_text(obj, key, cli_is_bytes(key) ? OUT_BYTES : OUT_TEXT, cell, sizeof(cell));
        printf("%-*s  %s\n", (int)wide, key, cell);
    }
    json_decref(keys);
}

int out_object(const struct cli *c, const json_t *obj, const char *name, struct sh_err *err)
{
    bool is_first = !c->seen || json_object_size(c->seen) == 0;

    if (!json_is_object(obj))
        return SH_FAIL(err, SH_E_PROTO, "the server's answer is not an object");
    if (c->seen && json_equal(json_object_get(c->seen, name), obj))
        return SH_OK;
    if (c->seen)
        json_object_set_new(c->seen, name, json_deep_copy(obj));
    if (c->output == OUTPUT_DATA && c->seen)
        out_item(c, obj);
    else if (c->output == OUTPUT_DATA)
        out_data(c, obj);
    else if (c->output == OUTPUT_NAME)
        print_name(obj, name);
    else {
        if (!is_first)
            putchar('\n');
        print_fields(obj);
    }
    fflush(stdout);
    return SH_OK;
}

void out_errors(const json_t *refused, const char *first)
{
    const json_t *e;
    size_t i;

    json_array_foreach(json_object_get(refused, "errors"), i, e)
    {
        char detail[512];

        out_text(e, "detail", OUT_TEXT, detail, sizeof(detail));
        if (strcmp(detail, first) != 0)
            fprintf(stderr, "  also: %s\n", detail);
    }
}

void out_say(const struct cli *c, const char *fmt, ...)
{
    va_list ap;

    if (c->output != OUTPUT_TABLE || c->conf->quiet)
        return;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
}

/* ---------------------------------------------------------------- progress */

void progress_begin(const struct cli *c, struct progress *p)
{
    *p = (struct progress){.is_on = !c->conf->quiet, .is_tty = isatty(STDERR_FILENO) == 1};
    if (!p->is_tty)
        p->last_ns = sh_clock_ns(); /* short waits stay silent in a log */
}

void progress_show(struct progress *p, double fraction, const char *fmt, ...)
{
    int64_t now = sh_clock_ns(), every = p->is_tty ? DRAW_EVERY_NS : LINE_EVERY_NS;
    char text[160], bar[BAR_CELLS + 1];
    va_list ap;

    if (!p->is_on || (now - p->last_ns < every && p->last_ns > 0 && fraction < 1))
        return;
    if (!p->is_tty && now - p->last_ns < every)
        return;
    p->last_ns = now;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    clean(text);
    if (!p->is_tty) {
        /* A log of a long wait is not made of one line. */
        if (strcmp(text, p->last) != 0 || now - p->same_ns >= SAME_EVERY_NS) {
            fprintf(stderr, "... %s\n", text);
            sh_strlcpy(p->last, text, sizeof(p->last));
            p->same_ns = now;
        }
        return;
    }
    p->is_drawn = true;
    if (fraction < 0) {
        fprintf(stderr, "\r\033[K%s", text);
    } else {
        int full = (int)lround(fmin(fraction, 1) * BAR_CELLS);

        memset(bar, '.', BAR_CELLS);
        memset(bar, '#', (size_t)full);
        bar[BAR_CELLS] = '\0';
        fprintf(stderr, "\r\033[K[%s] %3.0f %%  %s", bar, fmin(fraction, 1) * 100, text);
    }
    fflush(stderr);
}

void progress_end(struct progress *p)
{
    if (p->is_drawn)
        fprintf(stderr, "\r\033[K");
    fflush(stderr);
    p->is_drawn = false;
}

void progress_upload(int64_t done, int64_t total, void *progress)
{
    char a[32], b[32];

    out_bytes((double)done, a, sizeof(a));
    out_bytes((double)total, b, sizeof(b));
    if (done >= total)
        progress_show(progress, -1, "%s sent; the server is checking it", b);
    else
        progress_show(progress, (double)done / (double)total, "%s of %s", a, b);
}
