/* db_int.h - shared by the db*.c files and tests, for nobody else. */
#ifndef SH_COMMON_DB_INT_H
#define SH_COMMON_DB_INT_H

#include "common/db.h"

#include <postgresql/libpq-fe.h>

struct db_res {
    PGresult *r;
};

/* Runs statements without parameters, separated by semicolons, in one round trip. `what` names them
 * in a failure. */
int db__script(struct db *db, const char *what, const char *sql, struct sh_err *err);
/* Time limit of each further call; 0: the usual one. */
void db__set_limit(struct db *db, int64_t limit_ms);
/* Tests only: multiplies all limits, in a new session. */
void db__be_patient(struct db *db, int factor);
/* Ends the session with all its settings and locks; the next call opens a new one. */
void db__disconnect(struct db *db);

#endif
