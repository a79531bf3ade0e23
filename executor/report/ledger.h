/* ledger.h - usage that is not in the database yet, in a file that outlives its process.
 *
 * A mapped file of LEDGER_ROWS rows. Counting only writes memory, and the kernel keeps it if the
 * process is killed. A row is the sum of what one tenant used of one version, or of what one job
 * used, in one minute. Rows are handed over in numbered batches: ledger_batch() gives the next
 * batch a number, and its rows keep it until ledger_stored() says that the database has them. A
 * batch that is handed over again, perhaps by another process, has the same number and rows, so it
 * is counted once.
 *
 * A file belongs to the process that holds its lock, which the kernel releases when that process
 * ends. The next process takes over the file and its numbers. The file is consistent at every
 * instruction, so a kill does no harm. A loss of power loses what the kernel had not written; rows
 * stored meanwhile may be counted again, since pages are written in any order; a row that makes no
 * sense is ignored.
 *
 * While there are free rows, each minute has its own. After that a row of an earlier minute takes
 * the usage: sums stay exact, minutes do not. Only usage for which there is no row at all is lost,
 * and counted in `dropped`. Not thread-safe.
 */
#ifndef SH_EXECUTOR_REPORT_LEDGER_H
#define SH_EXECUTOR_REPORT_LEDGER_H

#include "common/msg.h"

#include <stdbool.h>

#define LEDGER_ROWS 8192u
#define LEDGER_BATCH MSG_USAGE_ROWS
#define LEDGER_NAME 33 /* bytes of a source's name, with its NUL */

struct ledger;

struct ledger_state {
    size_t n_rows;         /* not in the database yet */
    int64_t oldest_minute; /* their oldest; 0: no rows */
    uint64_t merged;       /* usages counted in another minute's row, since opening */
    uint64_t dropped;      /* usages lost */
    bool is_file;          /* false: in memory only, because the disk had no room */
};

/* Opens a file of the folder that no process holds, or a new one; in memory only if the disk has no
 * room. *out: OWNED, ledger_close(). Fails: SH_E_NOMEM, SH_E_IO. */
int ledger_open(const char *folder, struct ledger **out, struct sh_err *err);
/* The same for existing files only. *out: NULL if all are held. Fails: SH_E_IO, SH_E_DISKFULL, if
 * none was found and some could not be opened or have no disk space of their own. */
int ledger_adopt(const char *folder, struct ledger **out, struct sh_err *err);
/* The file stays unless all its rows are in the database. NULL is allowed. */
void ledger_close(struct ledger *l);

/* Adds `add` to what `add->kind`, `id` and `tenant` used in this minute (Unix time / 60). For a
 * job, `step` and `samples` replace the old values: its progress, and the samples in a step. */
void ledger_count(struct ledger *l, int64_t minute, const struct msg_usage_row *add);

const char *ledger_source(const struct ledger *l); /* BORROWED: its unique name */
/* The batch to hand over: the one that is not stored yet, else the next. Row ages are relative to
 * now_s (Unix time). Returns the number of the batch; 0: none. */
uint64_t ledger_batch(struct ledger *l, int64_t now_s, struct msg_usage_row rows[LEDGER_BATCH],
                      size_t *n);
/* The database has all batches of this source up to this number. */
void ledger_stored(struct ledger *l, uint64_t number);
struct ledger_state ledger_state(const struct ledger *l);

#endif
