/* plan.h - the processes of a local system, in starting order.
 *
 *   initdb -> postgres -> migrate -> scheduler, scheduler-* -> executor-* -> api
 *
 * The first two are missing if a database is given. A later process copes if an earlier one is
 * down, so only initdb, postgres and migrate delay what follows them.
 */
#ifndef SH_CLI_LOCAL_PLAN_H
#define SH_CLI_LOCAL_PLAN_H

#include "cli/cli.h"
#include "cli/local/pg.h"

#define PLAN_MAX_PROCS 80
#define PLAN_MAX_ARGS 24

enum plan_kind { PLAN_ONCE, PLAN_DAEMON };

struct plan_proc {
    char name[48];
    enum plan_kind kind;
    char *argv[PG_MAX_ARGS]; /* BORROWED from pg, or OWNED */
    bool owns_argv, is_gate; /* gate: later processes wait until it accepts connections */
    int stop_signal;
    int64_t stop_ms;         /* after this SIGQUIT for PostgreSQL, SIGKILL for the others */
    int metrics_port;        /* 0: none */
    const char *const *keep; /* variables kept of our environment; NULL: all, and plan.env */
};

struct plan {
    struct plan_proc procs[PLAN_MAX_PROCS];
    size_t n;
    struct pg pg;
    bool has_pg;
    char *env[8]; /* OWNED strings, NULL-terminated: added for processes that use the database */
    char *server, *grpc, *key_file; /* OWNED */
    const char *metrics_host;       /* BORROWED from the options; where to ask for metrics */
    int port;
};

/* The API's port, which is free as those for gRPC and metrics are. Fails: SH_E_CONFLICT: one is in
 * use. */
int plan_port(const struct cli_conf *o, int *out, struct sh_err *err);
/* Of the database that is given, or NULL: a private one. BORROWED. */
const char *plan_db_url(const struct cli_conf *o);
/* Chooses and checks ports, prepares the cluster. *out: OWNED, plan_free(). */
int plan_new(struct cli *c, const struct state *s, struct plan **out, struct sh_err *err);
void plan_free(struct plan *p);
/* Files for Prometheus in <state>/prometheus; *made: false: their templates were not found. */
int plan_write_prometheus(const struct cli *c, const struct state *s, const struct plan *p,
                          bool *made, struct sh_err *err);
#endif
