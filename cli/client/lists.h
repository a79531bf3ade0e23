/* lists.h - shared by `get` and by the changes of every noun. */
#ifndef SH_CLI_CLIENT_LISTS_H
#define SH_CLI_CLIENT_LISTS_H

#include "cli/client/rest.h"
#include "cli/text/out.h"

struct list_view {
    const char *path; /* of the collection; NULL: depends on the arguments */
    unsigned flags;   /* REST_TENANT */
    const struct out_col *cols;
    size_t n_cols;
    const char *name;               /* the field that -o name prints */
    void (*prepare)(json_t *items); /* adds what the columns of a table show; NULL: nothing */
};

#define LIST_COLS(table) .cols = (table), .n_cols = sizeof(table) / sizeof((table)[0])

/* Shows the list at a URL; with --all-tenants those of all tenants, with a column for the
 * tenant. */
int list_show(struct cli *c, const char *url, const struct list_view *v, struct sh_err *err);
/* Shows the one thing at a path. */
int list_show_one(struct cli *c, const char *path, const struct list_view *v, struct sh_err *err);
/* Shows what the first argument names in the collection of v; without an argument all of it. */
int list_get(struct cli *c, const struct list_view *v, struct sh_err *err);

/* The items of a list of every tenant that the key may see, at most the first `most` of each
 * (rest_first), with "tenant" added. flags: REST_QUIET. *out: OWNED. */
int list_of_all_tenants(struct cli *c, const char *url, size_t most, unsigned flags, json_t **out,
                        struct sh_err *err);

/* Puts the items of a list in the order of qsort(); compare has pointers to (json_t *). */
void list_sort(json_t *items, int (*compare)(const void *, const void *));

struct change {
    const char *method, *path, *name; /* name: the field that -o name prints; NULL: the
                                       * first argument */
    json_t *body;                     /* TAKES; NULL: none */
    unsigned flags;                   /* REST_TENANT */
    int64_t row_version;              /* as in struct rest_req */
};

/* Sends a change. fmt: a sentence for people; NULL: shows the server's answer. */
int list_change(struct cli *c, const struct change *ch, struct sh_err *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* With --dry-run: tells people that nothing was changed, and returns true. */
bool list_said_dry_run(const struct cli *c);

#endif
