/* db_int.h - what the db*.c files share, and tests. Included by them only. */
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
/* Is the transaction begun by db_tx() still open and healthy? */
bool db__in_transaction(const struct db *db);
/* Time limit of each further call; 0 = the usual one. */
void db__set_limit(struct db *db, int64_t limit_ms);
/* Test only: all limits times this, in a new session. */
void db__be_patient(struct db *db, int factor);
/* Ends the session and with it all its settings and locks; the next call makes a new one. */
void db__disconnect(struct db *db);

#endif
