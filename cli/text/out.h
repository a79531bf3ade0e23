/* out.h - prints for the commands: tables, JSON, names, a progress line. */
#ifndef SH_CLI_TEXT_OUT_H
#define SH_CLI_TEXT_OUT_H

#include "cli/cli.h"

enum out_format {
    OUT_TEXT,
    OUT_BYTES,  /* 1.2 MiB */
    OUT_TIME,   /* RFC 3339 without the milliseconds */
    OUT_NUMBER, /* at most 6 digits */
    OUT_RATE,   /* three digits; its constant change is no news for --watch */
    OUT_COUNT,  /* length of an array */
    OUT_AGE,    /* time since then: 90s, 5m, 3h, 2d */
};

struct out_col {
    const char *title;
    const char *path; /* of a field: "spec.batch" */
    enum out_format format;
    bool is_wide;   /* only with -o wide */
    int spare;      /* left out if the table is too wide, highest first; 0: never */
    const char *by; /* what `shunt top` sorts by; NULL: path */
};

/* Prints a list as --output says. A table fits the terminal's width, or 80 columns: spare columns
 * are left out, then the last column is cut; -o wide shows everything. name: the field that -o name
 * prints. With --watch, from the second look on, prints only what is new or has changed. */
int out_list(const struct cli *c, const json_t *items, const struct out_col *cols, size_t n_cols,
             const char *name, struct sh_err *err);
/* Prints one object: a line for each field. */
int out_object(const struct cli *c, const json_t *obj, const char *name, struct sh_err *err);
/* Prints what the server said, unchanged, as JSON or YAML. */
void out_data(const struct cli *c, const json_t *j);
/* The same as one of many: one line of JSON, or one YAML document. */
void out_item(const struct cli *c, const json_t *j);
/* Prints the other faults of a refused body on stderr; `first` was printed before. */
void out_errors(const json_t *refused, const char *first);
/* Prints a sentence for people on stdout; nothing with -o json, yaml or name. */
void out_say(const struct cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The field as text, "-" if it is empty, control characters replaced: a tenant's name must not move
 * the cursor. */
void out_text(const json_t *obj, const char *path, enum out_format format, char *out, size_t size);
/* The field that a path such as "spec.batch" names. BORROWED; NULL: there is none. */
const json_t *out_field(const json_t *obj, const char *path);
void out_bytes(double bytes, char *out, size_t size);

/* A bar on a terminal; otherwise a line from time to time, so that a log shows progress. */
struct progress {
    bool is_on, is_tty, is_drawn;
    int64_t last_ns, same_ns;
    char last[160]; /* what was printed */
};
void progress_begin(const struct cli *c, struct progress *p);
/* fraction: 0 to 1; < 0: unknown. text: one short line. */
void progress_show(struct progress *p, double fraction, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void progress_end(struct progress *p);                             /* removes the bar */
void progress_upload(int64_t done, int64_t total, void *progress); /* an sh_http_progress_fn */

void cli_sleep_ms(int64_t ms);

#endif
