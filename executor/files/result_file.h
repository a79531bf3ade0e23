/* result_file.h - the outputs of a batch inference job: a safetensors file whose size is known in
 * advance, filled sample by sample, and published when it is complete.
 *
 *   result-<number>.part   of the start of that number (claim.h): header, then each tensor at its
 *                          final place. The disk space is allocated at the start, so that a full
 *                          disk is found before the device works
 *   result.safetensors     complete and read back
 *
 * Whoever continues a part of an earlier start renames it first, so that a writer thought dead can
 * no longer publish it. A running SHA-256 for each tensor covers what was written. Its value at a
 * sync is recorded elsewhere; whoever resumes there reads the part up to that sample and compares,
 * and the end reads back the whole file. So what is published is what the device computed, whatever
 * happened to the file between attempts.
 *
 * Blocks: for the disk thread. One thread at a time.
 */
#ifndef SH_EXECUTOR_FILES_RESULT_FILE_H
#define SH_EXECUTOR_FILES_RESULT_FILE_H

#include "common/hash.h"
#include "common/safetensors.h"

#include <stdatomic.h>

#define RESULT_FILE_NAME "result.safetensors"

struct result_file;

bool result_file_is(const char *name); /* of a file in a job's folder: a part, or complete */

struct result_file_conf {               /* BORROWED for the call, except stop */
    const char *dir;                    /* the job's folder */
    int64_t placement;                  /* the number of this start, which has claimed the folder */
    const struct sh_st_tensor *tensors; /* axis 0: samples, the same number in all; no data */
    size_t n_tensors;
    const char *const *meta;   /* as in sh_st_write() */
    int64_t resume_at;         /* samples that an earlier attempt made durable; 0: none */
    const char *resume_digest; /* what result_file_sync() returned then */
    const atomic_bool *stop;   /* KEEPS: once raised, reading back ends with SH_E_CANCELLED */
};

/* Opens a new file, or the part of an earlier attempt, cut to resume_at. *at_out: the next sample;
 * 0 despite a resume_at means that the part was missing or damaged. A published file stays as it is
 * until result_file_finish() replaces it.
 * *out: OWNED, result_file_free(). Fails: SH_E_DISKFULL, SH_E_IO, SH_E_CANCELLED, SH_E_NOMEM (also
 * for lack of descriptors), SH_E_CONFLICT (a later start has the folder); an earlier part then
 * stays. */
int result_file_open(const struct result_file_conf *c, struct result_file **out, int64_t *at_out,
                     struct sh_err *err);
/* Writes the next n samples; data: one pointer for each tensor. After a failure, only discard or
 * free. */
int result_file_write(struct result_file *f, const void *const *data, int64_t n,
                      struct sh_err *err);
/* Makes all samples written so far durable. digest: theirs; *bytes: their size without the
 * header. */
int result_file_sync(struct result_file *f, char digest[static SH_SHA256_HEX], uint64_t *bytes,
                     struct sh_err *err);
/* After the last sample: reads the file back and publishes it. digest, *bytes: of the whole file.
 * SH_E_IO: it differs from what was written; it is then removed. SH_E_CONFLICT: a later start has
 * the folder. */
int result_file_finish(struct result_file *f, char digest[static SH_SHA256_HEX], uint64_t *bytes,
                       struct sh_err *err);
/* The part's name in the folder; BORROWED. */
const char *result_file_part(const struct result_file *f);
/* Removes the part, unless another attempt has taken it over. A published file stays. */
void result_file_discard(struct result_file *f);
void result_file_free(struct result_file *f); /* NULL is allowed; the part stays */

#endif
