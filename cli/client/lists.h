/* lists.h - what `get` and the changes of every noun have in common. */
#ifndef SH_CLI_CLIENT_LISTS_H
#define SH_CLI_CLIENT_LISTS_H

#include "cli/client/rest.h"
#include "cli/text/out.h"

struct list_view {
    const char *path; /* of the collection, or NULL: it depends on the arguments */
    unsigned flags;   /* REST_TENANT */
    const struct out_col *cols;
    size_t n_cols;
    const char *name;               /* the field that -o name prints */
    void (*prepare)(json_t *items); /* may be NULL; adds for a table what its columns show */
};

#define LIST_COLS(table) .cols = (table), .n_cols = sizeof(table) / sizeof((table)[0])

/* The list at a URL; with --all-tenants those of all, and a column that tells whose. */
int list_show(struct cli *c, const char *url, const struct list_view *v, struct sh_err *err);
/* The one thing at a path. */
int list_show_one(struct cli *c, const char *path, const struct list_view *v, struct sh_err *err);
/* What the first argument names in the collection of v; without an argument all. */
int list_get(struct cli *c, const struct list_view *v, struct sh_err *err);

/* The items of a list of every tenant that the key may see, of each at most the first `most`
 * (rest_first), each with its "tenant". flags: REST_QUIET. *out: OWNED. */
int list_of_all_tenants(struct cli *c, const char *url, size_t most, unsigned flags, json_t **out,
                        struct sh_err *err);

struct change {
    const char *method, *path, *name; /* name: the field that -o name prints; NULL: the
                                       * first argument */
    json_t *body;                     /* TAKES; NULL = none */
    unsigned flags;                   /* REST_TENANT */
    int64_t row_version;              /* as of struct rest_req */
};

/* Sends a change. fmt is a sentence for people, NULL: what the server answers is shown. */
int list_change(struct cli *c, const struct change *ch, struct sh_err *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* With --dry-run: says for people that nothing was changed, and is true. */
bool list_said_dry_run(const struct cli *c);

#endif
