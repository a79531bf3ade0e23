/* backup_set.h - what is in a file of `shunt backup`; see tar.h for its format.
 *
 *   shunt-backup.json     first: format, release, schema, how much follows
 *   database.dump         of pg_dump, custom format, without owners
 *   admin.key, executor.key, cursor.key, last-up.json
 *   blobs/packages/<sha256>/..., blobs/datasets/<sha256>.safetensors    what the database refers to
 *   jobs/<id>/...         checkpoints, results, logs
 *   usage/<source>.usage what executors have counted and not told yet (executor/report/ledger.h)
 *   shunt-backup.sums     last: the digests of all before it
 *
 * The database is a snapshot. Files are linked into <state>/backup.tmp at the moment of the
 * snapshot, so that none that it refers to can go while it is written: what is linked stays,
 * whoever removes or replaces the name. A checkpoint may be newer than the snapshot says, never
 * missing: the executor goes on from the newest that is there (executor/training/resume.c).
 */
#ifndef SH_CLI_LOCAL_BACKUP_SET_H
#define SH_CLI_LOCAL_BACKUP_SET_H

#include "cli/files/tar.h"
#include "cli/local/pg_run.h"
#include "common/db.h"
#include "common/json.h"

#define BACKUP_FORMAT 1
#define BACKUP_HEAD "shunt-backup.json"
#define BACKUP_SUMS "shunt-backup.sums"
#define BACKUP_DUMP "database.dump"

/* The database of a state folder, and the programs for it. */
struct backup_db {
    struct pg pg;
    bool has_pg, was_started; /* the private cluster; by us */
    char *url, *bin;          /* OWNED */
};

/* What is linked for a backup. */
struct backup_set {
    const struct state *s;
    char *dir; /* OWNED: backup.tmp */
    int64_t schema, database_bytes;
    uint64_t bytes, files; /* of what is linked */
    size_t n_missing;      /* blobs that the database refers to and that are not there */
};

/* Links everything that the snapshot of the open transaction refers to. SH_E_CONFLICT: something
 * has gone since then; with another snapshot it is worth another try. is_last: what is not there
 * is left out instead. */
int backup_link(struct backup_set *b, struct db *db, bool is_last, struct sh_err *err);
/* Writes all of it in the order above, head excepted. */
int backup_write(const struct backup_set *b, struct tar *t, struct sh_err *err);
/* May an entry of this name be in a backup, and where below a state folder does it go? Names are
 * checked letter by letter: nothing of the file leads out of the folder. */
bool backup_is_name(const char *name);

#endif
