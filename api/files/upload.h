/* upload.h - files of models, datasets and jobs: streamed to disk, checked, put in place.
 *
 *   begin   (pool)         checks slot and room, opens a temporary file
 *   piece   (HTTP thread)  bytes go to a buffer of 1 MiB; when it is full,
 *   flush   (pool)         a pool thread hashes and writes it while the connection sleeps
 *   finish  (pool)         digest, import or check, a look at the row, rename to blobs/, database
 *
 * It needs one buffer of memory, whatever the size of the file. A refused upload leaves no file.
 * What a broken connection or a missing database leaves, the client can continue (part.h).
 * upload_sweep removes from blobs/tmp, where that and the remains of crashes are, what nobody has
 * touched for a day.
 */
#ifndef SH_API_FILES_UPLOAD_H
#define SH_API_FILES_UPLOAD_H

#include "api/request/req.h"
#include "common/hash.h"

#include <pthread.h>

/* Uploads at the same time: --max-uploads. Each may be as slow as upload-min-rate allows; a tenant
 * that uses up its own limit (--max-tenant-uploads) is in nobody's way. */
struct uploads { /* thread-safe; the creator initialises the lock, and frees `owner` */
    pthread_mutex_t lock;
    size_t n, cap;
    int64_t *owner; /* tenants of the n running uploads; 0: an executor */
};

int upload_begin(struct api_req *q, struct sh_err *err);
/* API_AGAIN: the buffer is full, run upload_flush before the next piece. */
int upload_piece(struct api_req *q, const char *data, size_t n, struct sh_err *err);
int upload_flush(struct api_req *q, struct sh_err *err);
/* The whole file has arrived and is on disk at *path (BORROWED); hex: its SHA-256. */
int upload_complete(struct api_req *q, char hex[static SH_SHA256_HEX], const char **path,
                    struct sh_err *err);
/* Any thread. Does not wait for the disk: the pool removes what is left. NULL is allowed. */
void upload_close(struct upload *u);

int upload_sweep(const char *state_dir, struct sh_err *err); /* several APIs may do it at once */
/* Makes the folders below state_dir and removes left-overs from blobs/tmp. */
int upload_prepare_dirs(const char *state_dir, struct sh_err *err);

#endif
