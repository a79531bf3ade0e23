/* table.c - see arrays.h. Values as in RFC 4180: quotes around one may hold commas, line ends and
 * (doubled) quotes. The file is read two or three times, and is never completely in memory. */
#include "cli/data/arrays.h"
#include "cli/files/user_file.h"
#include "cli/text/out.h"
#include "common/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_COLUMNS 65536u
#define MAX_VALUE 4096u
#define MAX_CLASSES 100000u /* as of a loss */
#define LABEL "label"

struct table {
    const char *path;
    const struct table_plan *plan;
    const char *p, *end, *at; /* mapped; at: what is read next */
    int64_t line;             /* of `at`, from 1 */
    const char *first;        /* what follows the row of the names, */
    int64_t first_line;       /* and the line that this is */
    char value[MAX_VALUE];
    bool is_last; /* the value ends its row */
    char **names; /* OWNED: of the columns */
    size_t n, cap, column;
    int64_t rows;
    bool all_whole, all_numbers, any_number; /* of the labels */
    int64_t text_line;                       /* of the first label that is no number, */
    char text[81];                           /* and what it begins with */
    char **classes;                          /* OWNED; of labels that are texts */
    size_t n_classes, cap_classes;
};

static void free_texts(char **list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(list[i]);
    free(list);
}

/* ---------------------------------------------------------------- values */

/* One more of a value's bytes. */
static int put_byte(const struct table *t, char *out, size_t *n, char c, struct sh_err *err)
{
    if (*n + 1 >= MAX_VALUE)
        return SH_FAIL(err, SH_E_TOOBIG, "line %lld of \"%s\" has a value of more than %u bytes",
                       (long long)t->line, t->path, MAX_VALUE - 1);
    if (c == '\0')
        return SH_FAIL(err, SH_E_INVALID, "line %lld of \"%s\" is not text", (long long)t->line,
                       t->path);
    out[(*n)++] = c;
    return SH_OK;
}

static int read_quoted(struct table *t, size_t *n, struct sh_err *err)
{
    int rc = SH_OK;

    for (t->at++; !rc; t->at++) {
        if (t->at == t->end)
            return SH_FAIL(err, SH_E_INVALID, "\"%s\" ends within quotes", t->path);
        if (*t->at == '"' && (t->at + 1 == t->end || t->at[1] != '"'))
            break;
        t->at += *t->at == '"';
        t->line += *t->at == '\n';
        rc = put_byte(t, t->value, n, *t->at, err);
    }
    t->at++;
    return rc;
}

/* Into t->value, up to the comma or the end of the row. */
static int read_table_value(struct table *t, struct sh_err *err)
{
    size_t n = 0;
    int rc = SH_OK;

    if (t->at < t->end && *t->at == '"')
        rc = read_quoted(t, &n, err);
    for (; !rc && t->at < t->end && *t->at != ',' && *t->at != '\n'; t->at++)
        if (*t->at != '\r')
            rc = put_byte(t, t->value, &n, *t->at, err);
    t->value[n] = '\0';
    t->is_last = t->at >= t->end || *t->at == '\n';
    t->line += t->at < t->end && *t->at == '\n';
    t->at += t->at < t->end;
    return rc;
}

static bool has_row(struct table *t)
{
    while (t->at < t->end && (*t->at == '\n' || *t->at == '\r'))
        t->line += *t->at++ == '\n'; /* empty lines, such as the last */
    return t->at < t->end;
}

/* Which column has the labels. Two of that name: one would be an input that gives them away. */
static int find_labels(struct table *t, struct sh_err *err)
{
    const char *label = t->plan->column;
    size_t found = 0, len = 0;
    char names[256] = "";

    for (size_t i = 0; i < t->n; i++) {
        if (strcmp(t->names[i], label) == 0 && found++ == 0)
            t->column = i;
        if (len < sizeof(names))
            len += (size_t)snprintf(names + len, sizeof(names) - len, "%s\"%.40s\"", i ? ", " : "",
                                    t->names[i]);
    }
    if (found > 1)
        return SH_FAIL(err, SH_E_INVALID, "\"%s\" has %zu columns \"%s\": rename or remove one",
                       t->path, found, label);
    if (found == 0)
        return SH_FAIL(err, SH_E_INVALID, "\"%s\" has no column \"%s\"; it has: %s", t->path, label,
                       names);
    return t->n > 1 ? SH_OK
                    : SH_FAIL(err, SH_E_INVALID, "\"%s\" has no column but \"%s\"", t->path, label);
}

static int read_names(struct table *t, struct sh_err *err)
{
    int rc = SH_OK;

    t->at = t->p;
    t->line = 1;
    if (t->end - t->p >= 3 && memcmp(t->p, "\xef\xbb\xbf", 3) == 0)
        t->at += 3; /* a mark of UTF-8 that some programs write */
    for (t->is_last = false; !rc && !t->is_last;) {
        rc = read_table_value(t, err);
        if (!rc)
            rc = sh_grow(&t->names, &t->cap, t->n + 1, sizeof(*t->names), MAX_COLUMNS,
                         "columns of a table", err);
        if (!rc)
            rc = sh_strdup(t->value, &t->names[t->n], err);
        t->n += !rc;
    }
    t->first = t->at;
    t->first_line = t->line;
    return rc ? rc : find_labels(t, err);
}

static bool is_number_text(const char *text, double *out)
{
    return sh_parse_f64(text, -3e38, 3e38, "value", out, NULL) == SH_OK;
}

static int wrong_value(const struct table *t, int64_t line, size_t i, struct sh_err *err)
{
    return SH_FAIL(err, SH_E_INVALID,
                   "line %lld of \"%s\", column \"%.80s\": \"%.80s\" is no number that FP32 holds",
                   (long long)line, t->path, t->names[i], t->value);
}

/* A row: fn gets each value, number i of them. */
typedef int value_fn(struct table *t, int64_t line, size_t i, void *arg, struct sh_err *err);

static int each_value(struct table *t, value_fn *fn, void *arg, struct sh_err *err)
{
    int rc = SH_OK;

    t->at = t->first;
    t->line = t->first_line;
    for (t->rows = 0; !rc && has_row(t); t->rows += !rc) {
        const int64_t line = t->line;
        size_t i = 0;

        for (t->is_last = false; !rc && !t->is_last; i++) {
            rc = read_table_value(t, err);
            if (!rc && i < t->n)
                rc = fn(t, line, i, arg, err);
        }
        if (!rc && i != t->n)
            rc = SH_FAIL(err, SH_E_INVALID, "line %lld of \"%s\" has %zu values, the first has %zu",
                         (long long)line, t->path, i, t->n);
    }
    return rc;
}

/* ---------------------------------------------------------------- passes */

static int check_table_value(struct table *t, int64_t line, size_t i, void *arg, struct sh_err *err)
{
    double v;
    int64_t whole;

    (void)arg;
    if (i != t->column)
        return is_number_text(t->value, &v) ? SH_OK : wrong_value(t, line, i, err);
    if (t->value[strspn(t->value, " \t")] == '\0')
        return SH_FAIL(err, SH_E_INVALID,
                       "line %lld of \"%s\", column \"%.80s\": the label is empty: fill it in, or "
                       "take the row out",
                       (long long)line, t->path, t->names[i]);
    t->all_whole &= sh_parse_i64(t->value, INT64_MIN, INT64_MAX, "label", &whole, NULL) == SH_OK;
    if (is_number_text(t->value, &v)) {
        t->any_number = true;
    } else if (t->all_numbers) {
        t->all_numbers = false;
        t->text_line = line;
        sh_strlcpy(t->text, t->value, sizeof(t->text));
    }
    return SH_OK;
}

/* Numbers and texts: one of them is likely a gap, such as "NA". */
static int check_label_column(const struct table *t, struct sh_err *err)
{
    if (t->rows == 0)
        return SH_FAIL(err, SH_E_INVALID, "\"%s\" has no rows except the names", t->path);
    if (t->all_numbers || !t->any_number)
        return SH_OK;
    return SH_FAIL(
        err, SH_E_INVALID,
        "line %lld of \"%s\", column \"%.80s\": \"%s\" is no number that FP32 holds, and "
        "other labels are numbers: give it one, or take the row out; names of classes "
        "are all no numbers",
        (long long)t->text_line, t->path, t->plan->column, t->text);
}

/* Where the class is in the list, or would be. */
static size_t class_place(const struct table *t, const char *name, bool *is_there)
{
    size_t from = 0, to = t->n_classes;

    while (from < to) {
        const size_t mid = from + (to - from) / 2;

        if (strcmp(t->classes[mid], name) < 0)
            from = mid + 1;
        else
            to = mid;
    }
    *is_there = from < t->n_classes && strcmp(t->classes[from], name) == 0;
    return from;
}

static int note_class(struct table *t, int64_t line, size_t i, void *arg, struct sh_err *err)
{
    bool is_there = true;
    size_t at = i == t->column ? class_place(t, t->value, &is_there) : 0;
    char *name = NULL;
    int rc;

    (void)line;
    (void)arg;
    if (is_there)
        return SH_OK;
    rc = sh_grow(&t->classes, &t->cap_classes, t->n_classes + 1, sizeof(*t->classes), MAX_CLASSES,
                 "classes of a table", err);
    if (!rc)
        rc = sh_strdup(t->value, &name, err);
    if (rc)
        return rc;
    memmove(t->classes + at + 1, t->classes + at, (t->n_classes - at) * sizeof(*t->classes));
    t->classes[at] = name;
    t->n_classes++;
    return SH_OK;
}

struct writing {
    struct setfile *file;
    float *row;      /* OWNED */
    uint64_t labels; /* where they are in the file */
};

static int put_label(struct table *t, const struct writing *w, struct sh_err *err)
{
    const uint64_t i = (uint64_t)t->rows;
    const bool is_float = !t->all_whole && t->all_numbers;
    bool is_known; /* as the passes before this one saw it */
    int64_t whole = 0;
    double number = 0;
    float v;

    if (is_float)
        is_known = is_number_text(t->value, &number);
    else if (t->all_whole)
        is_known = sh_parse_i64(t->value, INT64_MIN, INT64_MAX, "label", &whole, NULL) == SH_OK;
    else
        whole = (int64_t)class_place(t, t->value, &is_known);
    if (!is_known)
        return SH_FAIL(err, SH_E_INVALID, "\"%s\" changes while it is read", t->path);
    v = (float)number;
    return is_float
               ? setfile_put(w->file, w->labels + i * sizeof(v), &v, sizeof(v), err)
               : setfile_put(w->file, w->labels + i * sizeof(whole), &whole, sizeof(whole), err);
}

static int write_value(struct table *t, int64_t line, size_t i, void *arg, struct sh_err *err)
{
    const size_t wide = t->n - 1;
    struct writing *w = arg;
    double v = 0;
    int rc = SH_OK;

    if (i == t->column)
        rc = put_label(t, w, err);
    else if (is_number_text(t->value, &v))
        w->row[i - (i > t->column)] = (float)v;
    else /* it changed meanwhile */
        rc = wrong_value(t, line, i, err);
    if (!rc && i + 1 == t->n)
        rc = setfile_put(w->file, (uint64_t)t->rows * wide * sizeof(float), w->row,
                         wide * sizeof(float), err);
    return rc;
}

/* ---------------------------------------------------------------- the file */

static void table_describe(const struct table *t, struct sh_st_tensor out[static 2])
{
    const size_t n = (size_t)t->rows, wide = t->n - 1;
    const bool is_class = t->all_whole || !t->all_numbers;

    out[0] = (struct sh_st_tensor){.name = t->plan->tensor,
                                   .dtype = SH_F32,
                                   .rank = 2,
                                   .dims = {t->rows, (int64_t)wide},
                                   .bytes = n * wide * sizeof(float)};
    out[1] = (struct sh_st_tensor){.name = LABEL,
                                   .dtype = is_class ? SH_I64 : SH_F32,
                                   .rank = is_class ? 1 : 2,
                                   .dims = {t->rows, 1},
                                   .bytes = n * (is_class ? sizeof(int64_t) : sizeof(float))};
}

static int write_table_file(struct cli *c, struct table *t, struct setfile *out, struct sh_err *err)
{
    char *names = setfile_class_names(t->classes, t->n_classes);
    const char *const meta[] = {t->n_classes ? "classes" : NULL, names, NULL};
    struct writing w = {.file = out, .row = calloc(t->n, sizeof(float))};
    struct sh_st_tensor x[2];
    int rc =
        names ? SH_OK : SH_FAIL(err, SH_E_INVALID, "a label of \"%s\" is no UTF-8 text", t->path);

    table_describe(t, x);
    w.labels = x[0].bytes;
    if (!rc && !w.row)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a row");
    if (!rc)
        rc = setfile_new(c->conf->tmp_dir, x, 2, meta, out, err);
    if (!rc)
        rc = each_value(t, write_value, &w, err);
    if (!rc)
        rc = setfile_end(out, x, 2, meta, err);
    free(w.row);
    free(names);
    return rc;
}

static int map_file(struct table *t, struct sh_err *err)
{
    int64_t bytes = 0;
    int fd = -1, rc = user_file_open(t->path, &fd, &bytes, err);
    void *p = rc ? MAP_FAILED : mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0);

    if (!rc && p == MAP_FAILED)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not read \"%s\": %m", t->path);
    if (fd >= 0)
        close(fd);
    t->p = p == MAP_FAILED ? NULL : p;
    t->end = t->p ? t->p + bytes : NULL;
    return rc;
}

int table_read(struct cli *c, const char *path, const struct table_plan *p, struct setfile *out,
               struct sh_err *err)
{
    struct table *t = calloc(1, sizeof(*t));
    int rc;

    *out = (struct setfile){.fd = -1};
    if (!t)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a table");
    *t = (struct table){.path = path, .plan = p, .all_whole = true, .all_numbers = true};
    rc = map_file(t, err);
    if (!rc)
        rc = read_names(t, err);
    if (!rc)
        rc = each_value(t, check_table_value, NULL, err);
    if (!rc)
        rc = check_label_column(t, err);
    if (!rc && !t->all_numbers)
        rc = each_value(t, note_class, NULL, err);
    if (!rc)
        rc = write_table_file(c, t, out, err);
    if (!rc && t->n_classes)
        out_say(c, "The labels in column \"%s\" are %zu classes.", p->column, t->n_classes);
    free_texts(t->names, t->n);
    free_texts(t->classes, t->n_classes);
    if (t->p)
        munmap((void *)t->p, (size_t)(t->end - t->p));
    free(t);
    return rc;
}
