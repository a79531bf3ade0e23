/* pg_int.h - between pg.c and pg_place.c. */
#ifndef SH_CLI_LOCAL_PG_INT_H
#define SH_CLI_LOCAL_PG_INT_H

#include "cli/local/pg.h"

#define SOCKET_NAME ".s.PGSQL.5432"

struct owner { /* who PostgreSQL runs as */
    uid_t uid;
    gid_t gid;
    bool is_other; /* not who we are: setpriv is needed */
};

/* May this user go through all folders above path? Link-free: path is a real path. */
bool pg__reaches(const struct owner *o, const char *path);
/* *out: OWNED, the real path of the cluster's folder, made if need be and claimed. Fails as
 * pg_prepare(). */
int pg__place(const struct state *s, const struct owner *o, bool is_fresh, char **out,
              struct sh_err *err);

#endif
