/* auth.h - who sends a request: API keys, their cache, and the first admin key.
 *
 * A key is shunt_<id>_<secret>: id of 12 characters (public, for logs), secret of 43 (256 random
 * bits). The database holds SHA-256 of the secret only; a slow hash would add nothing to a random
 * secret. Compared in constant time.
 *
 * Rotation gives a key a new secret under its id; the one before counts for as long as was asked.
 *
 * Cache: known and unknown ids, so that a request needs no database. Entries are checked again
 * every key-poll-ms and at once when PostgreSQL says shunt_keys; while it is down they stay as they
 * are. When a key was used is noted here, to the second, and written in batches. Thread-safe.
 */
#ifndef SH_API_CACHE_AUTH_H
#define SH_API_CACHE_AUTH_H

#include "api/request/req.h"

#define AUTH_ID_CHARS 12
#define AUTH_KEY_BYTES 80                       /* enough for a whole key with its NUL */
#define AUTH_HEADER_BYTES (AUTH_KEY_BYTES + 16) /* longer Authorization headers are refused */

struct auth;

const char *auth_role_name(unsigned role); /* of enum api_role; NULL if it is none */

int auth_new(struct auth **out, struct sh_err *err); /* OWNED, auth_free() */
void auth_free(struct auth *a);
/* header: the Authorization header or NULL. API_AGAIN: the id is not in the cache and db is NULL.
 * Fails: SH_E_UNAUTHENTICATED, SH_E_DBDOWN. */
int auth_check(struct auth *a, const char *header, struct db *db, struct api_who *out,
               struct sh_err *err);
/* Reads every cached id again; unknown ids are forgotten. */
int auth_refresh(struct auth *a, struct db *db, struct sh_err *err);
/* The key was changed: its next use reads it again. */
void auth_forget(struct auth *a, const char *id);
/* The tenant or its quota was changed: the same for each of its keys. */
void auth_forget_tenant(struct auth *a, const char *tenant);
/* Writes when keys were last used, for those used since the call before. */
int auth_write_used(struct auth *a, struct db *db, struct sh_err *err);

/* Splits "Bearer shunt_<id>_<secret>", below AUTH_HEADER_BYTES. secret is BORROWED from header.
 * SH_E_UNAUTHENTICATED. */
int auth_parse(const char *header, char id[static AUTH_ID_CHARS + 1], const char **secret,
               struct sh_err *err);
/* A new key: its id, its text for the owner, its hash for the database. */
struct auth_new_key {
    char id[AUTH_ID_CHARS + 1], text[AUTH_KEY_BYTES], hash_hex[65];
};
/* id: NULL for a new key; else a new secret of that key. */
int auth_make_key(const char *id, struct auth_new_key *out, struct sh_err *err);
/* role: admin or executor. If no such key is live in the database: makes one and writes it to path
 * (mode 0600). One that was revoked while another is live does not come back. Of several processes
 * that start at once one makes it. */
int auth_bootstrap(struct db *db, const char *role, const char *path, bool *made,
                   struct sh_err *err);

#endif
