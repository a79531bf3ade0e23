/* pg.h - the private PostgreSQL cluster of a local system.
 *
 *   <state>/pg/data           the cluster, with checksums
 *   <state>/pg/.s.PGSQL.5432  its only entrance; the folder is closed to everybody else
 *
 * PostgreSQL refuses to run as root; the folder then belongs to "postgres" or "nobody", and its
 * programs are started through setpriv. If that user cannot reach the state folder, or the socket's
 * path would be too long, <state>/pg is a link to <aux>/pg. <state>/pg/made-for tells to whom it
 * belongs (claim.h).
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
    char *postgres[PG_MAX_ARGS]; /* the same form; runs the server */
    bool is_new;                 /* initdb must run, then pg_adopt() */
};

/* Finds the programs (bin: a folder, or NULL) and creates the folder; starts nothing. Fails:
 * SH_E_CONFLICT: the cluster is another folder's, or is missing although the folder had a system.
 * is_fresh: the folder is being restored and gets a new cluster. */
int pg_prepare(const struct state *s, const char *bin, bool is_fresh, struct pg *out,
               struct sh_err *err);
/* Finds the folder of the server's programs for a private cluster, as pg_prepare() does. */
int pg_find_server(const char *given, char *out, size_t size, struct sh_err *err);
/* Finds the newest folder with pg_dump, for a database elsewhere. given: a folder, or NULL. */
int pg_find_tools(const char *given, char *out, size_t size, struct sh_err *err);
/* Puts a complete new cluster in its place. */
int pg_adopt(struct pg *pg, struct sh_err *err);
bool pg_accepts(const struct pg *pg); /* does its socket accept connections? */
void pg_fini(struct pg *pg);

#endif
