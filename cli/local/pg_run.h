/* pg_run.h - runs PostgreSQL for a while: the private cluster of a system that is not running, and
 * the programs that dump and restore a database.
 */
#ifndef SH_CLI_LOCAL_PG_RUN_H
#define SH_CLI_LOCAL_PG_RUN_H

#include "cli/files/held.h"
#include "cli/local/pg.h"
#include "cli/local/super.h"

#include <stdint.h>

/* Runs initdb for a new cluster; also records its pid. */
int pg_init(const struct state *s, struct pg *pg, struct sh_err *err);
/* Starts it and waits until it accepts connections. Records its pid like `shunt up`, so that `shunt
 * down` stops it if this program is killed. */
int pg_start(const struct state *s, const struct pg *pg, struct sh_err *err);
void pg_stop(const struct state *s, struct progress *bar); /* also if it is not running */

struct pg_tool {
    const char *const *argv; /* argv[0]: a name in bin */
    const char *bin, *url;   /* folder of programs; what to connect to */
    int stdout_fd;           /* -1: discard */
    const char *log;         /* path of a file for its stderr */
    struct held *held;
    int (*tick)(void *arg, struct sh_err *err); /* every 200 ms; NULL: nothing */
    void *arg;
};

/* Runs it to its end. Fails with the reason that it printed. */
int pg_tool_run(const struct pg_tool *t, struct sh_err *err);
#endif
