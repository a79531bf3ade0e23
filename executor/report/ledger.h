/* ledger.h - what was used and is not in the database yet, in a file that outlives its process.
 *
 * A file of LEDGER_ROWS rows, mapped: to count is to change memory, and what a killed process had
 * changed the kernel still has. A row is the sum of what one tenant used of one version, or of what
 * one job used, in one minute. Rows are handed over in numbered batches: ledger_batch() gives the
 * next one a number, which its rows keep until ledger_stored() says that the database has it. One
 * that is handed over again, by another process perhaps, has the same number and the same rows, so
 * that it is counted once.
 *
 * A file belongs to who has its lock, which the kernel gives back when its process ends. The next
 * process takes it over, with its numbers. What is whole at any instruction is whole after a kill.
 * After a loss of power what the kernel had not written is missing, and what was stored meanwhile
 * may be counted again, for pages are written in any order; a row that makes no sense is left out.
 *
 * While rows are free each minute has its own. When there are none a row of an earlier minute takes
 * what comes: sums stay exact, minutes do not. Only what has no row at all is lost then, and is in
 * `dropped`. Not thread-safe.
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
    size_t n_rows;         /* that are not in the database yet */
    int64_t oldest_minute; /* of these; 0: there are none */
    uint64_t merged;       /* counted in the row of another minute, since it was opened */
    uint64_t dropped;      /* not counted at all */
    bool is_file;          /* false: in memory alone, for the disk had no room */
};

/* A file of the folder that nobody has, or a new one. Without room on the disk
 * it is in memory alone. *out: OWNED, ledger_close(). Fails: SH_E_NOMEM, SH_E_IO. */
int ledger_open(const char *folder, struct ledger **out, struct sh_err *err);
/* The same of files alone: *out is NULL when there is none that nobody has. Fails: SH_E_IO,
 * SH_E_DISKFULL, where there is none and some could not be opened, or have no room of their own. */
int ledger_adopt(const char *folder, struct ledger **out, struct sh_err *err);
/* The file stays, unless all that was in it is in the database. NULL is allowed. */
void ledger_close(struct ledger *l);

/* Adds `add` to what `add->kind`, `id` and `tenant` used in this minute (Unix time / 60). Of a job
 * `step` and `samples` replace what was there: how far it has got, and samples of a step. */
void ledger_count(struct ledger *l, int64_t minute, const struct msg_usage_row *add);

const char *ledger_source(const struct ledger *l); /* BORROWED: a name that no other has */
/* The batch that is to be handed over, with each row's age at `now_s` (Unix time): the one that was
 * not stored yet, or else the next. Returns its number; 0: there is none. */
uint64_t ledger_batch(struct ledger *l, int64_t now_s, struct msg_usage_row rows[LEDGER_BATCH],
                      size_t *n);
/* All batches of this source up to this number are in the database. */
void ledger_stored(struct ledger *l, uint64_t number);
struct ledger_state ledger_state(const struct ledger *l);

#endif
