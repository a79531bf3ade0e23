/* claim.h - whose a job's folder is. Executors of a host share the folders of jobs, and one that
 * was stopped for a while learns late that its job went on elsewhere. What it does to the folder
 * until then must not take the place of what the other one has left: the database has the digest
 * of that.
 *
 * Each start of a job has a larger number than those before (JOB_START, BATCH_START):
 *
 *   claim-<number>           an empty file: the start of that number may publish
 *   staged-<number>-<name>   what that start is about to give this name, which all starts share
 *
 * A start first makes its claim, then removes what earlier ones have staged; to publish it first
 * stages, then looks for later claims. So of an earlier start and a later one at least one sees the
 * other, wherever either is stopped, and what the earlier one has staged has no name any more when
 * the later one publishes.
 *
 * No state but the folder's. All block; none is safe beside another one of the same number. */
#ifndef SH_EXECUTOR_FILES_CLAIM_H
#define SH_EXECUTOR_FILES_CLAIM_H

#include "common/err.h"

#include <stdint.h>

/* Before the start publishes anything. Fails: SH_E_CONFLICT: a later start has the folder; as
 * sh_open_rc(), SH_E_DISKFULL, SH_E_NOMEM. */
int claim_take(const char *dir, int64_t number, struct sh_err *err);
/* Fails: SH_E_CONFLICT: a later start has the folder; as sh_open_rc(). */
int claim_check(const char *dir, int64_t number, struct sh_err *err);
/* Where to put what is to be published under this name. *out: OWNED. Fails: SH_E_NOMEM. */
int claim_stage(const char *dir, int64_t number, const char *name, char **out, struct sh_err *err);
/* Renames the file `from`, which later starts remove or rename, to `name` in the folder. Fails:
 * SH_E_CONFLICT: a later start has the folder, or has `from` already, which is gone then; as
 * sh_open_rc(), SH_E_IO, SH_E_NOMEM: it stays. */
int claim_publish(const char *dir, int64_t number, const char *from, const char *name,
                  struct sh_err *err);

#endif
