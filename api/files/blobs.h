/* blobs.h - removes the files in blobs/ that no model version and no dataset refers to, and the
 * folders in jobs/ whose job is gone; of jobs that have failed or were cancelled all but losses and
 * log.
 *
 * Deleting changes rows only; the file follows when a sweep finds it without a row and unchanged
 * for --blob-keep-s. Until then it counts for its owner, who has at most twice what is allowed on
 * the disk, by deleting and uploading again and again (upload.c). The same sweep takes what a crash
 * left between a file and its row. Whoever puts a file in place before its row is written, an
 * upload or an executor with a trained model, makes it young first, also when it finds an equal one
 * there: so it has that long to write the row.
 *
 *   candidate   old, and not in the list of the rows
 *   taken away  renamed to blobs/tmp; from here on an upload of the same content puts its own there
 *   looked at   once more: somebody may have come to rely on it just before; then it goes back
 *   removed
 *
 * A job's folder is made after its row, so one without a row is the remainder of a job that was
 * removed. Several APIs may sweep the same folders.
 */
#ifndef SH_API_FILES_BLOBS_H
#define SH_API_FILES_BLOBS_H

#include "common/db.h"

#include <stdatomic.h>

struct api;
struct blobs;

int blobs_new(struct api *a, struct blobs **out, struct sh_err *err); /* OWNED, blobs_free() */
void blobs_free(struct blobs *b); /* after the bulk pool has stopped; NULL is allowed */
/* Hands a sweep to the bulk pool when one is due. One thread only. */
void blobs_tick(struct blobs *b);

/* One sweep; blocking. stop: ends it early when true. *removed: how many, also on failure. */
int blobs_sweep(struct db *db, const char *state_dir, int64_t keep_s, const atomic_bool *stop,
                size_t *removed, struct sh_err *err);

#endif
