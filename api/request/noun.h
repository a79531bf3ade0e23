/* noun.h - what the handlers of the control plane share. */
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
/* One of "a,b,c". */
int noun_check_choice(const char *field, const char *s, const char *words, struct sh_err *err);
/* RFC 3339 to the letter, as Unix ms; 0 for what lies before 1970, which is over either way.
 * PostgreSQL alone would also take "tomorrow". */
int noun_read_time(const char *field, const char *s, int64_t *ms_out, struct sh_err *err);
/* Such a time that has not passed. */
int noun_check_future(const char *field, const char *s, struct sh_err *err);
/* SH_E_NOTFOUND: there is no <what> "<name>". */
int noun_missing(const char *what, const char *name, struct sh_err *err);
/* SH_E_PRECONDITION unless the version that If-Match names is the one it has. */
int noun_check_version(int64_t have, const char *if_match, const char *what, struct sh_err *err);
/* Why a change touched no row: missing (now is NULL), another version than If-Match names, or the
 * reason given. */
int noun_refused(const json_t *now, const char *if_match, const char *what, const char *name,
                 const char *reason, struct sh_err *err);
/* The tenant in the path; another tenant's is as if it did not exist. */
int noun_path_tenant(const struct api_req *q, const char *name, struct sh_err *err);
/* One thing as the reply, unless rc says that it could not be asked for; NULL: it is missing. */
int noun_reply(struct api_req *q, int rc, json_t *j, const char *what, const char *name,
               struct sh_err *err);
int noun_page_reply(struct api_req *q, int rc, json_t *page, struct sh_err *err);

#endif
