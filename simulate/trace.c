/* trace.c - see trace.h: names, lines, numbers, times. */
#include "simulate/trace.h"

#include "common/hash.h"
#include "common/mem.h"
#include "common/units.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAMES 1000000u
#define SLOT_FREE UINT32_MAX

static uint32_t *trace_name_slot(const struct trace_names *names, const char *name)
{
    size_t i = sh_hash_name(name) & (names->n_slots - 1);

    while (names->slots[i] != SLOT_FREE && strcmp(names->items[names->slots[i]], name) != 0)
        i = (i + 1) & (names->n_slots - 1);
    return &names->slots[i];
}

static int widen_names(struct trace_names *names, struct sh_err *err)
{
    const size_t n = SH_MAX(names->n_slots * 2, (size_t)64);
    uint32_t *slots = malloc(n * sizeof(*slots));

    if (!slots)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a table of names");
    free(names->slots);
    names->slots = slots;
    names->n_slots = n;
    for (size_t i = 0; i < n; i++)
        slots[i] = SLOT_FREE;
    for (size_t i = 0; i < names->n; i++)
        *trace_name_slot(names, names->items[i]) = (uint32_t)i;
    return SH_OK;
}

int trace__name(struct trace_names *names, const char *name, uint32_t *out, struct sh_err *err)
{
    int rc = 2 * (names->n + 1) > names->n_slots ? widen_names(names, err) : SH_OK;
    uint32_t *slot;

    if (rc)
        return rc;
    slot = trace_name_slot(names, name);
    if (*slot == SLOT_FREE) {
        rc = sh_grow(&names->items, &names->cap, names->n + 1, sizeof(names->items[0]), MAX_NAMES,
                     "names of a trace", err);
        if (!rc)
            rc = sh_strdup(name, &names->items[names->n], err);
        if (rc)
            return rc;
        *slot = (uint32_t)names->n++;
    }
    *out = *slot;
    return SH_OK;
}

bool trace__find(const struct trace_names *names, const char *name, uint32_t *out)
{
    const uint32_t slot = names->n ? *trace_name_slot(names, name) : SLOT_FREE;

    *out = slot;
    return slot != SLOT_FREE;
}

void trace__names_fini(struct trace_names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->items[i]);
    free(names->items);
    free(names->slots);
    *names = (struct trace_names){0};
}

/* ------------------------------------------------------------------ lines */

int trace__open(struct trace__file *f, const char *path, char separator, struct sh_err *err)
{
    *f = (struct trace__file){.path = path, .separator = separator, .f = fopen(path, "re")};
    return f->f ? SH_OK : SH_FAIL(err, SH_E_IO, "could not open %s: %m", path);
}

int trace__open_text(struct trace__file *f, const char *name, const char *text, char separator,
                     struct sh_err *err)
{
    *f = (struct trace__file){.path = name, .separator = separator};
    if (*text) /* it is only read */
        f->f = fmemopen((char *)text, strlen(text), "r");
    return f->f ? SH_OK : SH_FAIL(err, SH_E_INVALID, "could not read %s", name);
}

void trace__close(struct trace__file *f)
{
    if (f->f)
        fclose(f->f);
    free(f->line);
    free(f->cells);
    *f = (struct trace__file){0};
}

bool trace__next(struct trace__file *f, int *rc, struct sh_err *err)
{
    ssize_t n;

    *rc = SH_OK;
    do { /* the next one with something in it */
        errno = 0;
        n = getline(&f->line, &f->cap, f->f);
        if (n < 0) {
            if (ferror((FILE *)f->f))
                *rc = SH_FAIL(err, SH_E_IO, "could not read %s: %m", f->path);
            return false;
        }
        f->n_lines++;
        while (n > 0 && (f->line[n - 1] == '\n' || f->line[n - 1] == '\r'))
            f->line[--n] = 0;
    } while (n == 0);
    f->n_cells = 0;
    for (char *at = f->line; at;) {
        char *end = strchr(at, f->separator);

        *rc = sh_grow(&f->cells, &f->cap_cells, f->n_cells + 1, sizeof(f->cells[0]), 100000,
                      "columns of a trace", err);
        if (*rc)
            return false;
        f->cells[f->n_cells++] = at;
        if (end)
            *end++ = 0;
        at = end;
    }
    return true;
}

int trace__column(const struct trace__file *f, const char *name)
{
    for (size_t i = 0; i < f->n_cells; i++)
        if (strcmp(f->cells[i], name) == 0)
            return (int)i;
    return -1;
}

const char *trace__cell(const struct trace__file *f, int column)
{
    return column >= 0 && (size_t)column < f->n_cells ? f->cells[column] : "";
}

int trace__bad(const struct trace__file *f, const char *column, struct sh_err *err)
{
    return SH_FAIL(err, SH_E_INVALID, "%s:%" PRIu64 ": \"%s\" cannot be read", f->path, f->n_lines,
                   column);
}

bool trace__number(const char *text, double *out)
{
    char *end;

    *out = strtod(text, &end);
    return end != text && *end == 0 && isfinite(*out);
}

/* Days since 1970 of the proleptic Gregorian calendar (Fliegel and Van Flandern, 1968). */
static int64_t days_since_1970(int64_t y, int64_t m, int64_t d)
{
    const int64_t a = (m - 14) / 12;

    return (1461 * (y + 4800 + a)) / 4 + (367 * (m - 2 - 12 * a)) / 12 -
           (3 * ((y + 4900 + a) / 100)) / 4 + d - 32075 - 2440588;
}

bool trace__time(const char *text, int64_t *ns_out)
{
    int y, mo, d, h, mi, used = 0;
    double s;

    if (sscanf(text, "%4d-%2d-%2d %2d:%2d:%n", &y, &mo, &d, &h, &mi, &used) != 5 || !used ||
        !trace__number(text + used, &s) || mo < 1 || mo > 12 || d < 1 || d > 31 || h < 0 ||
        h > 23 || mi < 0 || mi > 59 || s < 0 || s >= 61)
        return false;
    *ns_out =
        SH_S(((days_since_1970(y, mo, d) * 24 + h) * 60 + mi) * 60) + (int64_t)llround(s * 1e9);
    return true;
}
