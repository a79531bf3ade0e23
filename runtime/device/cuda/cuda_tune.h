/* cuda_tune.h - which kernel measured fastest for a problem, in a file that the workers of one
 * device share.
 *
 * A record is a key (what is to be computed), a choice (text that its writer understands) and, if
 * the writer wants it, a blob (what it built for it). One worker measures and records; the others
 * find. The file begins with the names and versions on which a choice depends; a file that was
 * written for others, is damaged or is gone counts as empty and is made anew at the next record.
 *
 * It is a cache: whatever fails costs time and no result, so lookups and records report no errors.
 * Records are appended under a lock (<path>.lock), waited for at most CUDA_TUNE_LOCK_MS. A full
 * file starts again. Not thread-safe; any number of processes.
 */
#ifndef SH_RUNTIME_DEVICE_CUDA_CUDA_TUNE_H
#define SH_RUNTIME_DEVICE_CUDA_CUDA_TUNE_H

#include "common/err.h"

#define CUDA_TUNE_KEY 384    /* bytes of a key with its NUL; printable, no blank */
#define CUDA_TUNE_CHOICE 384 /* of a choice with its NUL; printable */
#define CUDA_TUNE_BLOB ((size_t)8 << 20)
#define CUDA_TUNE_FILE ((size_t)256 << 20)
#define CUDA_TUNE_LOCK_MS 1000

struct cuda_tune;

struct cuda_tuned {
    char choice[CUDA_TUNE_CHOICE];
    void *blob; /* OWNED: free(); NULL: none, or not readable */
    size_t blob_bytes;
};

/* *out: OWNED, cuda_tune_close(); NULL on failure. The file need not exist. The current device is
 * the one that choices are for. Fails: SH_E_NOMEM, SH_E_TOOBIG (path), SH_E_BUG (no device). */
int cuda_tune_open(const char *path, struct cuda_tune **out, struct sh_err *err);
void cuda_tune_close(struct cuda_tune *t); /* NULL is allowed */
/* Names and versions on which a choice depends, of the current device. Fails: SH_E_BUG. */
int cuda_tune_identity(char *out, size_t size, struct sh_err *err);

/* What this or another process recorded last for `key`. t: NULL finds nothing. */
bool cuda_tune_find(struct cuda_tune *t, const char *key, struct cuda_tuned *out);
/* t: NULL does nothing. A blob above CUDA_TUNE_BLOB is left out. */
void cuda_tune_record(struct cuda_tune *t, const char *key, const char *choice, const void *blob,
                      size_t blob_bytes);

#endif
