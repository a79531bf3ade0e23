/* store_int.h - shared by the store*.c files, for nobody else. */
#ifndef SH_SCHEDULER_DATABASE_STORE_INT_H
#define SH_SCHEDULER_DATABASE_STORE_INT_H

#include "scheduler/database/store.h"
#include "scheduler/database/store_view.h"

struct store_num { /* a number as a statement's parameter */
    char s[40];
};
const char *store__i64(struct store_num *n, int64_t v); /* BORROWED from n */
const char *store__f64(struct store_num *n, double v);  /* NULL when v is not a number */

/* First statement of every write; locks the lease. Its lock makes a take-over wait until we have
 * committed. */
int store__fence(struct db *db, const struct store_fence *f, struct sh_err *err);
/* The same without the lock, for work that any leader may do and repeat. */
int store__still_leads(struct db *db, const struct store_fence *f, struct sh_err *err);
/* Fails with SH_E_PRECONDITION, as both do if the lease is not ours. */
int store__not_ours(const struct store_fence *f, struct sh_err *err);

/* store_rows.c: the statements, and readers of their rows, rows[db_rows(r)]; texts BORROWED from
 * r. */
extern const struct db_stmt STORE__TENANTS, STORE__MODELS, STORE__JOBS;
int store__read_tenants(const struct db_res *r, struct store_tenant *rows, struct sh_err *err);
int store__read_models(const struct db_res *r, struct store_model *rows, struct sh_err *err);
int store__read_jobs(const struct db_res *r, struct store_job *rows, struct sh_err *err);

#endif
