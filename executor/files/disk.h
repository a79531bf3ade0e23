/* disk.h - the thread that does slow things with files: checkpoints, losses, digests, and
 * whatever else a task brings with it.
 *
 * Tasks are done in order, one at a time. A task and all it points to belong to the thread from
 * disk_submit() until its done() is called from the loop. At most DISK_MAX_TASKS wait.
 */
#ifndef SH_EXECUTOR_FILES_DISK_H
#define SH_EXECUTOR_FILES_DISK_H

#include "common/buf.h"
#include "common/hash.h"
#include "common/loop.h"
#include "common/safetensors.h"

#define DISK_MAX_TASKS 64u

struct disk;
struct disk_task;
typedef void disk_done_fn(struct disk_task *t);                    /* on the loop; frees the task */
typedef int disk_work_fn(struct disk_task *t, struct sh_err *err); /* on the thread */

struct disk_task {
    struct disk_task *next;
    /* what to do, in this order; NULL = not wanted */
    disk_work_fn *work;
    const char *sweep_dir;  /* a job's folder: removes ckpt-*.safetensors and parts of such */
    const char *sweep_keep; /* but not the file of this name */
    const char *write_path; /* safetensors: durable and atomic */
    const struct sh_st_tensor *tensors;
    size_t n_tensors;
    const char *const *meta;
    const char *losses_path; /* JSON array */
    const double *losses;
    size_t n_losses;
    const char *digest_path; /* file to hash */
    const char *remove_path; /* when all before went well */
    bool discard_on_failure; /* removes what was written when something after it fails */
    disk_done_fn *done;
    /* what came of it */
    struct sh_err err;
    char digest[SH_SHA256_HEX];
    uint64_t bytes;
    int64_t took_ns;
};

/* Uses the loop's wake-up. *out: OWNED, disk_free(). */
int disk_new(struct sh_loop *l, struct disk **out, struct sh_err *err);
void disk_free(struct disk *c); /* waits for the task in progress; the others are dropped */
/* TAKES the task. Fails: SH_E_QUEUEFULL. */
int disk_submit(struct disk *c, struct disk_task *t, struct sh_err *err);

/* disk_work.c: all that a task asks for but its done(), which says what came of it. */
void disk_work(struct disk_task *t);

/* For works of tasks. Durable; the old file stays until the new one is complete. what: of the
 * message. Fails: SH_E_IO, SH_E_DISKFULL. */
int disk_replace_file(const char *path, const struct sh_buf *b, const char *what,
                      struct sh_err *err);

#endif
