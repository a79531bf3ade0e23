/* backup_set.h - the contents of a file of `shunt backup`; tar.h has its format.
 *
 *   shunt-backup.json     first: format, release, schema, how much follows
 *   database.dump         of pg_dump, custom format, without owners
 *   admin.key, executor.key, cursor.key, last-up.json
 *   blobs/packages/<sha256>/..., blobs/datasets/<sha256>.safetensors    what the database refers to
 *   jobs/<id>/...         checkpoints, results, logs
 *   usage/<source>.usage what executors have counted but not reported yet
 *   (executor/report/ledger.h)
 *   shunt-backup.sums     last: the digests of all before it
 *
 * The database is a snapshot. At that moment the files are linked into <state>/backup.tmp, so that
 * none that it refers to can disappear while the backup is written, whoever removes or replaces the
 * name. A checkpoint may be newer than the snapshot says but is never missing: the executor resumes
 * from the newest one (executor/training/resume.c).
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

/* The database of a state folder, and its programs. */
struct backup_db {
    struct pg pg;
    bool has_pg, was_started; /* there is a private cluster; we started it */
    char *url, *bin;          /* OWNED */
};

/* What was linked for a backup. */
struct backup_set {
    const struct state *s;
    char *dir; /* OWNED: backup.tmp */
    int64_t schema, database_bytes;
    uint64_t bytes, files; /* of what is linked */
    size_t n_missing;      /* missing blobs to which the database refers */
};

/* Links everything to which the snapshot of the open transaction refers. Fails: SH_E_CONFLICT:
 * something has gone since; try again with another snapshot. is_last: leaves out what is missing
 * instead. */
int backup_link(struct backup_set *b, struct db *db, bool is_last, struct sh_err *err);
/* Writes all of it in the order above, except the head. */
int backup_write(const struct backup_set *b, struct tar *t, struct sh_err *err);
/* May a backup have an entry of this name, to be unpacked below a state folder? Every character is
 * checked: no name leads out of the folder. */
bool backup_is_name(const char *name);

#endif
