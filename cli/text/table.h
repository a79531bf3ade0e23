/* table.h - rows of cells under titles, as wide as there is room. */
#ifndef SH_CLI_TEXT_TABLE_H
#define SH_CLI_TEXT_TABLE_H

#include "cli/text/out.h"

#include <stdio.h>

#define TABLE_MAX_COLS 24

struct table {
    const struct out_col *cols[TABLE_MAX_COLS]; /* BORROWED */
    size_t wide[TABLE_MAX_COLS];                /* characters */
    size_t n;
};

/* All columns (those of -o wide too if is_wide), each as wide as its title and its widest cell. */
void table_begin(struct table *t, const json_t *items, const struct out_col *cols, size_t n_cols,
                 bool is_wide);
/* Leaves spare columns out, then cuts the last one, until a line takes at most so many columns of a
 * terminal. most 0: no limit. */
void table_fit(struct table *t, size_t most);
/* Print a line each. */
void table_title(const struct table *t, FILE *to);
void table_row(const struct table *t, const json_t *item, FILE *to);

/* Columns of a terminal that a text takes: characters, not bytes. */
size_t text_width(const char *s);
/* Shortens a text to at most so many characters, the last three of them dots. */
void text_cut(char *s, size_t most);

#endif
