/* database_int.h - what the files of the simulator's database share. */
#ifndef SH_TESTS_SIM_DATABASE_INT_H
#define SH_TESTS_SIM_DATABASE_INT_H

#include "tests/sim/database.h"

/* A row more, zeroed. */
#define DATABASE_ADD(table)                                                   \
    (sim_grow(&database.table, &database.cap_##table, database.n_##table + 1, \
              sizeof(*database.table)),                                       \
     memset(&database.table[database.n_##table], 0, sizeof(*database.table)), \
     &database.table[database.n_##table++])

/* By id; NULL: there is none. */
struct database_tenant *database__tenant(int64_t id);
struct database_tenant *database__tenant_named(const char *name);
struct database_queue *database__queue(int64_t id);
struct database_model *database__model(int64_t id);
struct database_version *database__version(int64_t id);
struct database_array *database__array(int64_t id);
struct database_job *database__job(int64_t id);

/* ---- a transaction: everything that is changed between the two is of `xid` */
uint64_t database__xid(void); /* begins one that is open from now on */
void database__enter(uint64_t xid);
void database__leave(bool is_committed);
void database__abort(uint64_t xid); /* one that was never entered */

/* What triggers do. */
void database__job_new(struct database_job *j);
void database__job_changed(const struct database_job *old, const struct database_job *now);
void database__changed(const char *kind, int64_t id);                      /* kind: static */
void database__set_version(struct database_version *v, const char *state); /* state: static */
void database__event(const struct database_job *j, enum job_state from, const char *reason,
                     int64_t step);
struct database_version *database__new_version(struct database_model *m, uint32_t max_batch);

/* ---- connections: one operation of a struct db */
struct database_trip {      /* from its sending to its answer */
    int64_t to_ns, back_ns; /* it takes effect after the first, and is answered after both */
};
struct database_trip database__send(struct db *db, bool writes);
/* The operation is there. Fails: SH_E_DBDOWN, SH_E_TIMEOUT, SH_E_DBSOFT: nothing was done, and
 * database__end() is not called. */
int database__begin(struct db *db, struct sh_err *err);
/* rc: of the body; not SH_OK: the body has changed nothing. */
int database__end(struct db *db, int rc, struct sh_err *err);
/* Both around a body. fence NULL: anybody may. The body fails before it has changed anything. */
typedef int database_body_fn(void *arg, struct sh_err *err);
int database__transact(struct db *db, const struct store_fence *fence, database_body_fn *body,
                       void *arg, struct sh_err *err);
/* Its process is dead, and nothing of it has arrived or will. */
void database__hang_up(struct db *db);

#endif
