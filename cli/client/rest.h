/* rest.h - calls to the server. */
#ifndef SH_CLI_CLIENT_REST_H
#define SH_CLI_CLIENT_REST_H

#include "cli/cli.h"

#define REST_PATH_MAX 1024

enum {
    REST_TENANT = 1, /* add ?tenant= if --tenant is given */
    REST_QUIET = 2,  /* do not keep a refusal's document or set the exit status */
};
int rest_open(struct cli *c, struct sh_err *err); /* opens c->http and sets c->server */
/* Message for a state folder without a running system. */
#define CLI_NO_SYSTEM "no system runs here"
int rest_no_system(struct cli *c, struct sh_err *err);
/* One JSON call. body may be NULL; *out (OWNED, json_decref) may be NULL. A refusal becomes a
 * failure with the server's code and text. */
int rest_call(struct cli *c, const char *method, const char *path, const json_t *body,
              unsigned flags, json_t **out, struct sh_err *err);
struct rest_req {
    const char *method, *path;
    const json_t *body;
    unsigned flags;
    int64_t row_version; /* If-Match: SH_E_PRECONDITION if it has another version; 0: any */
};
int rest_send(struct cli *c, const struct rest_req *req, json_t **out, struct sh_err *err);
int rest_get(struct cli *c, const char *path, unsigned flags, json_t **out, struct sh_err *err);
/* May a failure pass soon? The server was reachable at seen_ns and no longer is, or asks for a
 * retry. If so, resets the exit status. */
bool rest_is_away(struct cli *c, int rc, int64_t seen_ns);
/* Creates `name` in the collection if the path is missing. *made: it was created. */
int rest_ensure(struct cli *c, const char *path, const char *collection, const char *name,
                bool *made, struct sh_err *err);
#define REST_MOST ((size_t)10000)
/* All items of a list, page by page, at most REST_MOST. *out: OWNED array. */
int rest_list(struct cli *c, const char *path, unsigned flags, json_t **out, struct sh_err *err);
/* The same for the first items: `most`, or a few more if that exceeds a page. */
int rest_first(struct cli *c, const char *path, size_t most, unsigned flags, json_t **out,
               struct sh_err *err);

/* Turns an answer into a failure (status >= 400) or SH_OK; keeps the problem document. */
int rest_check(struct cli *c, const struct sh_http_reply *r, unsigned flags, struct sh_err *err);
/* Adds ?tenant= to a path. */
int rest_with_tenant(const struct cli *c, const char *path, char **out, struct sh_err *err);

/* Joins escaped segments to "/a/b/c"; the list ends with NULL. */
int rest_path(char out[static REST_PATH_MAX], struct sh_err *err, const char *first, ...)
    __attribute__((sentinel));

/* The tenant meant: --tenant, else the tenant of the key, which then counts as given. If neither is
 * known, fails as wrong usage. what: "key". *out: BORROWED. */
int rest_tenant(struct cli *c, const char *what, const char **out, struct sh_err *err);
/* "path/NAME", escaped. *out: OWNED, free(). */
int rest_below(const char *path, const char *name, char **out, struct sh_err *err);

/* Adds query parameters: pairs of name and value, ended by a NULL name; skips those without a
 * value. *out: OWNED, free(). */
int rest_query(const char *path, char **out, struct sh_err *err, ...) __attribute__((sentinel));

/* "NAME" or "NAME:VERSION". *version: 0: none given. */
int rest_model_ref(struct cli *c, const char *ref, char name[static 129], int64_t *version,
                   struct sh_err *err);
#define REST_CHOICE_MAX 64
/* "NAME", "NAME:VERSION" or "NAME:ALIAS". choice: the version or alias; "": none given. */
int rest_model_choice(struct cli *c, const char *ref, char name[static 129],
                      char choice[static REST_CHOICE_MAX], struct sh_err *err);

#endif
