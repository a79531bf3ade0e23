/* blobs.h - removes files in blobs/ that no model version or dataset refers to, and folders in
 * jobs/ whose job is gone; of failed and cancelled jobs it removes everything except losses and
 * log.
 *
 * Deleting changes rows only. The file goes when a sweep finds it without a row and unchanged for
 * --blob-keep-s. Until then it counts for its owner, who can occupy at most twice his storage by
 * deleting and uploading repeatedly (upload.c). The sweep also removes what a crash left between a
 * file and its row. Whoever places a file before its row is written (an upload, or an executor with
 * a trained model) first renews its time, even if an equal file is there, and so has that long to
 * write the row.
 *
 *   candidate   old, and not in the list of the rows
 *   taken away  renamed to blobs/tmp; an upload of the same content now places its own file
 *   looked at   once more, because somebody may just have come to rely on it; if so, it goes back
 *   removed
 *
 * A job's folder is created after its row, so a folder without a row belongs to a removed job.
 * Several APIs may sweep the same folders.
 */
#ifndef SH_API_FILES_BLOBS_H
#define SH_API_FILES_BLOBS_H

#include "common/db.h"

#include <stdatomic.h>

struct api;
struct blobs;

int blobs_new(struct api *a, struct blobs **out, struct sh_err *err); /* OWNED, blobs_free() */
void blobs_free(struct blobs *b); /* after the bulk pool has stopped; NULL is allowed */
/* Submits a sweep to the bulk pool if one is due. One thread only. */
void blobs_tick(struct blobs *b);

/* One sweep; blocks. stop: ends it early. *removed: how many, set on failure too. */
int blobs_sweep(struct db *db, const char *state_dir, int64_t keep_s, const atomic_bool *stop,
                size_t *removed, struct sh_err *err);

#endif
