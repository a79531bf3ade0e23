/* pg.h - the private PostgreSQL cluster of a local system.
 *
 *   <state>/pg/data           the cluster, with checksums
 *   <state>/pg/.s.PGSQL.5432  its only way in; the folder is closed to everybody else
 *
 * PostgreSQL refuses to run as root: then the folder belongs to "postgres" or "nobody", and its
 * programs are started through setpriv. If that user cannot reach the state folder, or the socket's
 * path would be too long, <state>/pg is a link to <aux>/pg. Whose it is says <state>/pg/made-for
 * (claim.h).
 */
#ifndef SH_CLI_LOCAL_PG_H
#define SH_CLI_LOCAL_PG_H

#include "cli/local/state.h"

#define PG_MAX_ARGS 64

struct pg {
    char *bin;                   /* folder of PostgreSQL's programs */
    char *dir;                   /* real path of the folder */
    char *url;                   /* for libpq */
    char *socket;                /* path of the socket */
    char *initdb[PG_MAX_ARGS];   /* OWNED strings, NULL-terminated; makes data.new */
    char *postgres[PG_MAX_ARGS]; /* the same */
    bool is_new;                 /* initdb has to run, then pg_adopt() */
};

/* Finds the programs (bin: folder or NULL), makes the folder. Does not start anything.
 * SH_E_CONFLICT: the cluster is not this folder's, or is not there although the folder had a
 * system; is_fresh: it is one that is being restored, and gets a new one. */
int pg_prepare(const struct state *s, const char *bin, bool is_fresh, struct pg *out,
               struct sh_err *err);
/* The newest folder with pg_dump, for a database that is elsewhere. given: a folder, or NULL. */
int pg_find_tools(const char *given, char *out, size_t size, struct sh_err *err);
/* A complete new cluster takes its place. */
int pg_adopt(struct pg *pg, struct sh_err *err);
bool pg_accepts(const struct pg *pg); /* can its socket be connected to? */
void pg_fini(struct pg *pg);

#endif
