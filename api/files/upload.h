/* upload.h - files of models, datasets and jobs: streamed to disk, checked, put in place.
 *
 *   begin   (pool)         is there a slot for it, is there room? a temporary file is opened
 *   piece   (HTTP thread)  bytes go to a buffer of 1 MiB; a full one is hashed and written by
 *   flush   (pool)         a pool thread while the connection sleeps
 *   finish  (pool)         digest, import or check, a look at the row, rename to blobs/, database
 *
 * Memory is one buffer, whatever the size of the file. What is refused leaves no file. What a
 * broken connection or a database that is away leaves is for the client to go on from (part.h);
 * from blobs/tmp, where that and what a crash leaves is, upload_sweep removes what nobody has
 * touched for a day.
 */
#ifndef SH_API_FILES_UPLOAD_H
#define SH_API_FILES_UPLOAD_H

#include "api/request/req.h"
#include "common/hash.h"

#include <pthread.h>

/* At the same time. Each may be as slow as upload-min-rate lets it: a tenant that uses up its part
 * is in nobody's way. */
#define UPLOAD_MAX 64
#define UPLOAD_MAX_TENANT 8

struct uploads { /* thread-safe; the lock is set up by who makes it */
    pthread_mutex_t lock;
    size_t n;
    int64_t owner[UPLOAD_MAX]; /* the n that are running: their tenants; 0: an executor */
};

int upload_begin(struct api_req *q, struct sh_err *err);
/* API_AGAIN: the buffer is full, run upload_flush before the next piece. */
int upload_piece(struct api_req *q, const char *data, size_t n, struct sh_err *err);
int upload_flush(struct api_req *q, struct sh_err *err);
/* All of it has arrived and is on disk, at *path (BORROWED); hex: its SHA-256. */
int upload_complete(struct api_req *q, char hex[static SH_SHA256_HEX], const char **path,
                    struct sh_err *err);
/* Any thread; does not wait for the disk: what is left is removed on the pool. NULL is allowed. */
void upload_close(struct upload *u);

int upload_sweep(const char *state_dir, struct sh_err *err); /* other APIs may do so too */
/* Makes the folders below state_dir and removes left-overs from blobs/tmp. */
int upload_prepare_dirs(const char *state_dir, struct sh_err *err);

#endif
