/* out.c - see out.h. */
#include "cli/out.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define CELL_MAX 256
#define LINE_EVERY_NS 5000000000LL
#define DRAW_EVERY_NS 80000000LL
#define BAR_CELLS 28

void cli_sleep_ms(int64_t ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&t, NULL);
}

/* ---------------------------------------------------------------- cells */

void out_bytes(double bytes, char *out, size_t size)
{
    static const char *const UNIT[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t u = 0;

    for (; bytes >= 1024 && u + 1 < SH_ARRAY_LEN(UNIT); u++)
        bytes /= 1024;
    snprintf(out, size, u == 0 || bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes, UNIT[u]);
}

static const json_t *field(const json_t *j, const char *path)
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

static void clean(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = '?';
}

void out_text(const json_t *obj, const char *path, enum out_format format, char *out, size_t size)
{
    const json_t *j = field(obj, path);
    char *dump = NULL;

    if (!j || json_is_null(j))
        sh_strlcpy(out, "-", size);
    else if (format == OUT_COUNT)
        snprintf(out, size, "%zu", json_array_size(j));
    else if (format == OUT_BYTES && json_is_number(j))
        out_bytes(json_number_value(j), out, size);
    else if (json_is_integer(j))
        snprintf(out, size, "%" JSON_INTEGER_FORMAT, json_integer_value(j));
    else if (json_is_number(j))
        snprintf(out, size, "%.6g", json_number_value(j));
    else if (json_is_string(j) && format == OUT_TIME && json_string_length(j) >= 19)
        snprintf(out, size, "%.19sZ", json_string_value(j));
    else if (json_is_string(j))
        sh_strlcpy(out, json_string_value(j), size);
    else if (json_is_boolean(j))
        sh_strlcpy(out, json_is_true(j) ? "yes" : "no", size);
    else {
        /* 15 digits, so that 0.05 looks like 0.05 */
        dump = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(15));
        sh_strlcpy(out, dump ? dump : "?", size);
    }
    free(dump);
    clean(out);
}

/* Columns that a terminal needs: characters, not bytes. */
static size_t width(const char *s)
{
    size_t n = 0;

    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

/* ---------------------------------------------------------------- lists and objects */

void out_json(const json_t *j)
{
    json_dumpf(j, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    putchar('\n');
}

static void print_names(const json_t *items, const char *name)
{
    char cell[CELL_MAX];
    json_t *item;
    size_t i;

    json_array_foreach((json_t *)items, i, item)
    {
        out_text(item, name, OUT_TEXT, cell, sizeof(cell));
        puts(cell);
    }
}

static void print_table(const json_t *items, const struct out_col *cols, size_t n_cols)
{
    size_t wide[16] = {0};
    char cell[CELL_MAX];
    json_t *item;
    size_t i;

    n_cols = SH_MIN(n_cols, SH_ARRAY_LEN(wide));
    for (size_t k = 0; k < n_cols; k++)
        wide[k] = strlen(cols[k].title);
    json_array_foreach((json_t *)items, i, item)
    {
        for (size_t k = 0; k < n_cols; k++) {
            out_text(item, cols[k].path, cols[k].format, cell, sizeof(cell));
            wide[k] = SH_MAX(wide[k], width(cell));
        }
    }
    for (size_t k = 0; k < n_cols; k++)
        printf("%-*s%s", k + 1 < n_cols ? (int)wide[k] : 0, cols[k].title,
               k + 1 < n_cols ? "  " : "\n");
    json_array_foreach((json_t *)items, i, item)
    {
        for (size_t k = 0; k < n_cols; k++) {
            out_text(item, cols[k].path, cols[k].format, cell, sizeof(cell));
            printf("%s%*s", cell, k + 1 < n_cols ? (int)(wide[k] + 2 - width(cell)) : 0, "");
        }
        putchar('\n');
    }
}

int out_list(const struct cli *c, const json_t *items, const struct out_col *cols, size_t n_cols,
             const char *name, struct sh_err *err)
{
    if (!json_is_array(items))
        return SH_FAIL(err, SH_E_PROTO, "the server's answer is not a list");
    if (c->output == OUTPUT_JSON)
        out_json(items);
    else if (c->output == OUTPUT_NAME)
        print_names(items, name);
    else
        print_table(items, cols, n_cols);
    return SH_OK;
}

int out_object(const struct cli *c, const json_t *obj, const char *name, struct sh_err *err)
{
    char cell[2048];
    const char *key;
    json_t *value;
    size_t wide = 0;

    if (!json_is_object(obj))
        return SH_FAIL(err, SH_E_PROTO, "the server's answer is not an object");
    if (c->output == OUTPUT_JSON) {
        out_json(obj);
        return SH_OK;
    }
    if (c->output == OUTPUT_NAME) {
        out_text(obj, name, OUT_TEXT, cell, sizeof(cell));
        puts(cell);
        return SH_OK;
    }
    json_object_foreach((json_t *)obj, key, value) wide = SH_MAX(wide, strlen(key));
    json_object_foreach((json_t *)obj, key, value)
    {
        if (json_is_null(value) || strcmp(key, "row_version") == 0)
            continue;
        out_text(obj, key, OUT_TEXT, cell, sizeof(cell));
        printf("%-*s  %s\n", (int)wide, key, cell);
    }
    return SH_OK;
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
        fprintf(stderr, "... %s\n", text);
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
