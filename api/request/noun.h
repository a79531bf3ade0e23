/* noun.h - shared by the handlers of the control plane. */
#ifndef SH_API_REQUEST_NOUN_H
#define SH_API_REQUEST_NOUN_H

#include "api/request/req.h"
#include "common/field.h"
#include "common/states.h"

/* The body; an absent one counts as {}. OWNED, json_decref(); NULL: no memory. */
json_t *noun_body(struct api_req *q, struct sh_err *err);
/* Reads the body by the table. */
int noun_read(struct api_req *q, const char *what, const struct sh_json_field *f, size_t n,
              struct sh_err *err);
/* Names in paths and bodies. */
bool noun_is_name(const char *s);        /* models, datasets: [A-Za-z0-9][A-Za-z0-9._-]{0,127} */
bool noun_is_tenant_name(const char *s); /* tenants, queues: [a-z0-9][a-z0-9-]{0,62} */
int noun_check_name(const char *field, const char *s, struct sh_err *err);
int noun_check_tenant_name(const char *field, const char *s, struct sh_err *err);
bool noun_is_number(const char *s, int64_t max); /* 1..max, decimal, no sign */
/* Is s one of `words`, "a,b,c"? */
int noun_check_choice(const char *field, const char *s, const char *words, struct sh_err *err);
/* Parses RFC 3339 strictly, to Unix ms; times before 1970 become 0. PostgreSQL alone would also
 * accept "tomorrow". */
int noun_read_time(const char *field, const char *s, int64_t *ms_out, struct sh_err *err);
/* The same, and the time must not have passed. */
int noun_check_future(const char *field, const char *s, struct sh_err *err);
/* Fails with SH_E_NOTFOUND: there is no <what> "<name>". */
int noun_missing(const char *what, const char *name, struct sh_err *err);
/* Fails: SH_E_PRECONDITION: If-Match names another version. */
int noun_check_version(int64_t have, const char *if_match, const char *what, struct sh_err *err);
/* Reports why a change touched no row: it is missing (now is NULL), has another version than
 * If-Match names, or the reason given. */
int noun_refused(const json_t *now, const char *if_match, const char *what, const char *name,
                 const char *reason, struct sh_err *err);
/* Checks the tenant in the path; another tenant is treated as missing. */
int noun_path_tenant(const struct api_req *q, const char *name, struct sh_err *err);
/* Replies with j, unless rc is a failure; j NULL: it is missing. */
int noun_reply(struct api_req *q, int rc, json_t *j, const char *what, const char *name,
               struct sh_err *err);
int noun_page_reply(struct api_req *q, int rc, json_t *page, struct sh_err *err);

#endif
