/* disk.h - the threads that do slow work on files: checkpoints, losses, digests, and whatever else
 * a task asks for. Runs wait for what one of them reads, so it does nothing else.
 *
 * Each does its tasks one at a time, in order. A task and all it points to belong to the thread
 * from disk_submit() until done() is called on the loop. At most DISK_MAX_TASKS wait for each.
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
    /* what to do, in this order; NULL: skip */
    disk_work_fn *work;
    uint64_t reads;         /* so many bytes, and nothing else: a task of the thread that reads */
    const char *sweep_dir;  /* a job's folder: removes checkpoints and their parts */
    int64_t sweep_below;    /* of steps before this one */
    const char *write_path; /* writes safetensors, durably and atomically */
    const struct sh_st_tensor *tensors;
    size_t n_tensors;
    const char *const *meta;
    const char *losses_path; /* JSON array */
    const double *losses;
    size_t n_losses;
    const char *digest_path; /* file to hash */
    const char *remove_path; /* if all before succeeded */
    bool discard_on_failure; /* removes what was written if a later step fails */
    disk_done_fn *done;
    /* the result */
    struct sh_err err;
    char digest[SH_SHA256_HEX];
    uint64_t bytes;
    int64_t took_ns;
};

/* Uses the loop's wake-up (sh_loop). *out: OWNED, disk_free(). */
int disk_new(struct sh_loop *l, struct disk **out, struct sh_err *err);
void disk_free(struct disk *c); /* waits for the task in progress, drops the others */
/* TAKES the task. Fails: SH_E_QUEUEFULL. */
int disk_submit(struct disk *c, struct disk_task *t, struct sh_err *err);

/* disk_work.c: does the task, except for done(), and sets its result. */
void disk_work(struct disk_task *t);

/* For the work of tasks. Writes a file durably; the old file stays until the new one is complete.
 * what: names the file in the message. Fails: SH_E_IO, SH_E_DISKFULL. */
int disk_replace_file(const char *path, const struct sh_buf *b, const char *what,
                      struct sh_err *err);

#endif
