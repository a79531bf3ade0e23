/* auth.h - who sends a request: API keys, their cache, and the first admin key.
 *
 * A key is shunt_<id>_<secret>: an id of 12 characters (public, for logs) and a secret of 43 (256
 * random bits). The database holds only the SHA-256 of the secret; a slow hash would add nothing
 * for a random secret. Comparison takes constant time.
 *
 * Rotation gives a key a new secret under its id; the old one stays valid for as long as requested.
 *
 * The cache holds known and unknown ids, so that a request needs no database. Entries are checked
 * again every key-poll-ms, and at once when PostgreSQL notifies shunt_keys; while it is down they
 * stay. The last use of each key is noted here, to the second, and written in batches. Thread-safe.
 */
#ifndef SH_API_CACHE_AUTH_H
#define SH_API_CACHE_AUTH_H

#include "api/request/req.h"

#define AUTH_ID_CHARS 12
#define AUTH_KEY_BYTES 80                       /* a whole key with its NUL */
#define AUTH_HEADER_BYTES (AUTH_KEY_BYTES + 16) /* longer Authorization headers are refused */

struct auth;

const char *auth_role_name(unsigned role); /* of enum api_role; NULL: not a role */

int auth_new(struct auth **out, struct sh_err *err); /* OWNED, auth_free() */
void auth_free(struct auth *a);
/* header: the Authorization header, or NULL. Returns API_AGAIN if the id is not in the cache and db
 * is NULL. Fails: SH_E_UNAUTHENTICATED, SH_E_DBDOWN. */
int auth_check(struct auth *a, const char *header, struct db *db, struct api_who *out,
               struct sh_err *err);
/* Reads every cached id again; forgets unknown ids. */
int auth_refresh(struct auth *a, struct db *db, struct sh_err *err);
/* The key has changed: its next use reads it again. */
void auth_forget(struct auth *a, const char *id);
/* The tenant or its quota has changed: the same for all its keys. */
void auth_forget_tenant(struct auth *a, const char *tenant);
/* Writes the last use of the keys used since the previous call. */
int auth_write_used(struct auth *a, struct db *db, struct sh_err *err);

/* Splits "Bearer shunt_<id>_<secret>", shorter than AUTH_HEADER_BYTES. secret: BORROWED from
 * header. Fails: SH_E_UNAUTHENTICATED. */
int auth_parse(const char *header, char id[static AUTH_ID_CHARS + 1], const char **secret,
               struct sh_err *err);
/* A new key: its id, its text for the owner, its hash for the database. */
struct auth_new_key {
    char id[AUTH_ID_CHARS + 1], text[AUTH_KEY_BYTES], hash_hex[65];
};
/* id: NULL: a new key; else makes a new secret for that key. */
int auth_make_key(const char *id, struct auth_new_key *out, struct sh_err *err);
/* role: admin or executor. If the database has no live key with this role, makes one and writes it
 * to path (mode 0600). A key that was revoked while another is live does not come back. If several
 * processes start at once, one of them makes the key. */
int auth_bootstrap(struct db *db, const char *role, const char *path, bool *made,
                   struct sh_err *err);

#endif
