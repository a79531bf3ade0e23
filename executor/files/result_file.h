/* result_file.h - the outputs of a batch inference: a safetensors file whose size is known before
 * its first byte, filled sample by sample, published when all of it is there.
 *
 *   result-<random>.part   head, then each tensor at its final place; the disk space is taken at
 *                          once, so that a full disk is known before the device has worked for it
 *   result.safetensors     complete and read back
 *
 * Whoever goes on with a part renames it first: a writer that was thought dead can then not publish
 * it any more. One running SHA-256 a tensor says what was written. Its value at a sync is recorded
 * elsewhere, and who goes on from there reads the part up to that sample and compares; the end
 * reads back all of it. So what is published is what the device computed, whatever happened to the
 * file between the attempts.
 *
 * Blocking: for the checkpoint thread. One thread at a time.
 */
#ifndef SH_EXECUTOR_FILES_RESULT_FILE_H
#define SH_EXECUTOR_FILES_RESULT_FILE_H

#include "common/hash.h"
#include "common/safetensors.h"

#include <stdatomic.h>

#define RESULT_FILE_NAME "result.safetensors"

struct result_file;

struct result_file_conf {               /* BORROWED for the call, but for stop */
    const char *dir;                    /* the job's folder */
    const struct sh_st_tensor *tensors; /* axis 0: the samples, of all alike; no data */
    size_t n_tensors;
    const char *const *meta;   /* as sh_st_write() */
    int64_t resume_at;         /* samples that an earlier attempt made durable; 0: none */
    const char *resume_digest; /* of result_file_sync() then */
    const atomic_bool *stop;   /* KEEPS: raised, reading back ends with SH_E_CANCELLED */
};

/* New, or what an earlier attempt left, cut to resume_at. *at_out: the next sample; 0 although
 * resume_at is not: there was nothing, or it was not what it should be.
 * *out: OWNED, result_file_free(). Fails: SH_E_DISKFULL, SH_E_IO, SH_E_CANCELLED,
 * SH_E_NOMEM (also of descriptors: then, too, what was there stays). */
int result_file_open(const struct result_file_conf *c, struct result_file **out, int64_t *at_out,
                     struct sh_err *err);
/* The next n samples; data: one pointer a tensor. After a failure only discard and free. */
int result_file_write(struct result_file *f, const void *const *data, int64_t n,
                      struct sh_err *err);
/* All that was written is durable. digest: of it; *bytes: of it, without the head. */
int result_file_sync(struct result_file *f, char digest[static SH_SHA256_HEX], uint64_t *bytes,
                     struct sh_err *err);
/* All samples are written: reads the file back and publishes it. digest, *bytes: of the whole file.
 * SH_E_IO: it is not what was written; then it is removed too. */
int result_file_finish(struct result_file *f, char digest[static SH_SHA256_HEX], uint64_t *bytes,
                       struct sh_err *err);
const char *result_file_part(const struct result_file *f); /* its name in the folder; BORROWED */
/* Removes the part, unless another has taken it over; not what was published. */
void result_file_discard(struct result_file *f);
void result_file_free(struct result_file *f); /* NULL is allowed; the part stays */

#endif
