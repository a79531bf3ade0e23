/* out.h - what the commands print: tables, JSON, names, a progress line. */
#ifndef SH_CLI_TEXT_OUT_H
#define SH_CLI_TEXT_OUT_H

#include "cli/cli.h"

enum out_format {
    OUT_TEXT,
    OUT_BYTES,  /* 1.2 MiB */
    OUT_TIME,   /* RFC 3339 without the milliseconds */
    OUT_NUMBER, /* at most 6 digits */
    OUT_RATE,   /* three digits; it changes all the time, which is no news with --watch */
    OUT_COUNT,  /* length of an array */
    OUT_AGE,    /* time since then: 90s, 5m, 3h, 2d */
};

struct out_col {
    const char *title;
    const char *path; /* of a field: "spec.batch" */
    enum out_format format;
    bool is_wide; /* with -o wide only */
    int spare;    /* left out where the table is too wide, the highest first; 0: never */
};

/* A list as --output says. A table fits into the terminal's width, or 80 columns: spare columns are
 * left out, then the last one is cut; -o wide has all of it. name: the field that -o name prints.
 * With --watch, from the second look on, only what is new or has changed. */
int out_list(const struct cli *c, const json_t *items, const struct out_col *cols, size_t n_cols,
             const char *name, struct sh_err *err);
/* One object: its fields, one a line. */
int out_object(const struct cli *c, const json_t *obj, const char *name, struct sh_err *err);
/* What the server said, unchanged, as JSON or YAML. */
void out_data(const struct cli *c, const json_t *j);
/* The same as one of many: JSON on one line, or a document of YAML. */
void out_item(const struct cli *c, const json_t *j);
/* What else is wrong in a body that was refused, on stderr; the first of it was said. */
void out_errors(const json_t *refused, const char *first);
/* A sentence for people on stdout: nothing with -o json, yaml or name. */
void out_say(const struct cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The field as text, "-" if there is nothing, control characters replaced: what a tenant named must
 * not move the cursor. */
void out_text(const json_t *obj, const char *path, enum out_format format, char *out, size_t size);
void out_bytes(double bytes, char *out, size_t size);

/* A bar on a terminal; otherwise a line now and then, so that a log shows that something moves. */
struct progress {
    bool is_on, is_tty, is_drawn;
    int64_t last_ns, same_ns;
    char last[160]; /* what was said */
};
void progress_begin(const struct cli *c, struct progress *p);
/* fraction: 0 to 1, below 0 = not known. text: one short line. */
void progress_show(struct progress *p, double fraction, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void progress_end(struct progress *p);                             /* removes the bar */
void progress_upload(int64_t done, int64_t total, void *progress); /* an sh_http_progress_fn */

void cli_sleep_ms(int64_t ms);

#endif
