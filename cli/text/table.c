/* table.c - see table.h. */
#include "cli/text/table.h"

#include "common/mem.h"

#include <string.h>

#define CELL_MAX 256
#define LEAST_LAST 8 /* of a last column that is cut */

size_t text_width(const char *s)
{
    size_t n = 0;

    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

void text_cut(char *s, size_t most)
{
    size_t n = 0;

    if (text_width(s) <= most || most < 4)
        return;
    for (; *s; s++) {
        if (((unsigned char)*s & 0xc0) == 0x80)
            continue;
        if (n++ == most - 3) {
            memcpy(s, "...", 4); /* there were at least 4 characters more */
            return;
        }
    }
}

static void table_cell(const struct table *t, size_t k, const json_t *item,
                       char out[static CELL_MAX])
{
    out_text(item, t->cols[k]->path, t->cols[k]->format, out, CELL_MAX);
}

void table_begin(struct table *t, const json_t *items, const struct out_col *cols, size_t n_cols,
                 bool is_wide)
{
    char cell[CELL_MAX];
    const json_t *item;
    size_t i;

    *t = (struct table){.n = 0};
    for (size_t k = 0; k < n_cols && t->n < TABLE_MAX_COLS; k++) {
        if (cols[k].is_wide && !is_wide)
            continue;
        t->wide[t->n] = strlen(cols[k].title);
        t->cols[t->n++] = &cols[k];
    }
    json_array_foreach((json_t *)items, i, item)
    {
        for (size_t k = 0; k < t->n; k++) {
            table_cell(t, k, item, cell);
            t->wide[k] = SH_MAX(t->wide[k], text_width(cell));
        }
    }
}

/* The column that is left out first; n: none can be spared. */
static size_t most_spare(const struct table *t)
{
    size_t out = t->n;

    for (size_t k = 1; k < t->n; k++)
        if (t->cols[k]->spare > (out < t->n ? t->cols[out]->spare : 0))
            out = k;
    return out;
}

void table_fit(struct table *t, size_t most)
{
    size_t all = 0;

    for (size_t k = 0; k < t->n; k++)
        all += t->wide[k] + (k ? 2 : 0);
    while (most && all > most) {
        const size_t out = most_spare(t), last = t->n - 1;

        if (out == t->n) {
            if (t->wide[last] >= all - most + LEAST_LAST)
                t->wide[last] -= all - most;
            return;
        }
        all -= t->wide[out] + 2;
        memmove(&t->cols[out], &t->cols[out + 1], (t->n - out - 1) * sizeof(t->cols[0]));
        memmove(&t->wide[out], &t->wide[out + 1], (t->n - out - 1) * sizeof(t->wide[0]));
        t->n--;
    }
}

void table_title(const struct table *t, FILE *to)
{
    for (size_t k = 0; k < t->n; k++)
        fprintf(to, "%-*s%s", k + 1 < t->n ? (int)t->wide[k] : 0, t->cols[k]->title,
                k + 1 < t->n ? "  " : "\n");
}

void table_row(const struct table *t, const json_t *item, FILE *to)
{
    char cell[CELL_MAX];

    for (size_t k = 0; k < t->n; k++) {
        const bool is_last = k + 1 == t->n;

        table_cell(t, k, item, cell);
        if (is_last)
            text_cut(cell, t->wide[k]);
        fprintf(to, "%s%*s", cell, is_last ? 0 : (int)(t->wide[k] + 2 - text_width(cell)), "");
    }
    putc('\n', to);
}
