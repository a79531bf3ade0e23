/* pg_int.h - shared by pg.c and pg_place.c. */
#ifndef SH_CLI_LOCAL_PG_INT_H
#define SH_CLI_LOCAL_PG_INT_H

#include "cli/local/pg.h"

#define SOCKET_NAME ".s.PGSQL.5432"

struct owner { /* who PostgreSQL runs as */
    uid_t uid;
    gid_t gid;
    bool is_other; /* not our own user: setpriv is needed */
};

/* May this user enter all folders above path? path: a real path, without links. */
bool pg__reaches(const struct owner *o, const char *path);
/* *out: OWNED, the real path of the cluster's folder, created if needed and claimed. Fails as
 * pg_prepare(). */
int pg__place(const struct state *s, const struct owner *o, bool is_fresh, char **out,
              struct sh_err *err);

#endif
