/* batch_int.h - between batch.c (the steps, on the loop), batch_job.c (what a job is made of) and
 * batch_io.c (the files, on the checkpoint thread). */
#ifndef SH_EXECUTOR_BATCH_BATCH_INT_H
#define SH_EXECUTOR_BATCH_BATCH_INT_H

#include "common/batch_spec.h"
#include "common/sample.h"
#include "common/shm.h"
#include "executor/batch/batch.h"
#include "executor/files/blobs.h"
#include "executor/files/disk.h"
#include "executor/files/result_file.h"
#include "executor/report/job_log.h"

#include <jansson.h>

#define BATCH_MAX_SLAB ((size_t)4 << 30)
#define BATCH_ALIGN 64u /* of tensors in the slab */
#define BATCH_N_SLOTS 2

enum batch_end { BATCH_GOES_ON, BATCH_SUSPEND, BATCH_FAIL, BATCH_CANCEL };
enum batch_slot_state { SLOT_FREE, SLOT_BUSY, SLOT_FULL, SLOT_RUNNING, SLOT_RAN, SLOT_N_STATES };
extern const struct sh_life SLOT_LIFE; /* common/life.h */

struct batch_column { /* an input or an output */
    size_t sample_bytes;
    size_t off;        /* in a slot, for a whole batch */
    uint64_t file_off; /* inputs: of the first sample in the dataset's file */
};

struct batch_slot {
    struct disk_task task; /* first member */
    struct batch_job *job;
    enum batch_slot_state state;
    size_t off;    /* in the slab */
    int64_t at, n; /* samples that are in it: inputs, or outputs when it RAN */
    /* for the thread, while BUSY: it writes what RAN, then reads the next */
    bool has_outputs, is_sync;
    int64_t next_at, next_n;
    /* from the thread, if is_sync */
    char digest[SH_SHA256_HEX];
    uint64_t bytes;
};

struct batch_task {        /* anything but a slot's: one at a time */
    struct disk_task task; /* first member */
    struct batch_job *job;
    char digest[SH_SHA256_HEX];
    uint64_t bytes;
};

struct batch_job {
    const struct batch_env *env;
    int64_t id, version_id, resume_at, interval_ns;
    uint32_t attempt;
    char *tenant, *model, *dataset, *dir, *resume_digest; /* OWNED */
    struct blob_set blobs;                                /* its dataset */
    struct job_log *log;
    struct push *push; /* its result is on its way to the API; NULL */
    json_t *spec, *inputs, *outputs;
    struct sh_sample_sizes sizes; /* of what the model's file leaves open, by its dataset */
    atomic_bool stop;             /* for the thread: no reading back any more */

    /* the thread's until is_open, then fixed */
    int fd; /* of the dataset */
    struct result_file *file;
    struct batch_column in[BATCH_MAX_IO], out[BATCH_MAX_IO];
    size_t n_in, n_out;
    size_t kept[BATCH_MAX_IO], n_kept; /* outputs that are written */
    int64_t n_samples, batch;          /* batch: from the loop */
    bool is_open;

    struct sh_shm slab;
    uint64_t slab_id;
    bool has_slab;
    struct batch_slot slots[BATCH_N_SLOTS];
    struct batch_slot *running; /* submitted; NULL */
    struct batch_task misc;
    uint32_t n_tasks; /* on the thread */
    /* samples: the next to read, to run, to hand to the thread for writing, and to be written */
    int64_t read_at, ran_at, handed_at, written_at;
    int64_t durable_at; /* and the next behind what is durable */
    char durable_digest[SH_SHA256_HEX];
    uint64_t durable_bytes;
    int64_t synced_ns;
    int64_t save_asked, save_at; /* a client's checkpoint: 0 none; durable from there on, -1 open */
    bool is_finishing, is_broken; /* broken: a write failed */

    enum batch_end end;
    struct sh_err why;   /* of BATCH_FAIL */
    uint64_t need_bytes; /* its model can never have so much device memory here; else 0 */
    bool has_ended;
    enum msg_job_phase phase;
    int64_t open_ns;     /* not opened again before */
    int64_t waits_ns;    /* for its model, since; 0: it is there */
    uint32_t n_failures; /* of runs, without a good one between */
    int64_t start_ns, busy_ns, first_at, preemptions;
    int64_t reported_ns, reported_at;
    enum msg_job_phase reported_phase;
    char *result; /* OWNED: JSON, when DONE */
};

/* batch_job.c. *out: OWNED, batch__job_free(). */
int batch__job_new(const struct batch_env *env, const struct msg_batch_start *m,
                   struct batch_job **out, struct sh_err *err);
void batch__job_free(struct batch_job *j); /* NULL is allowed */

/* batch_io.c: works of tasks. The first may be tried again after it has failed. */
disk_work_fn batch_io_open;    /* struct batch_task: dataset and result; written_at is set */
disk_work_fn batch_io_turn;    /* struct batch_slot */
disk_work_fn batch_io_sync;    /* struct batch_task */
disk_work_fn batch_io_finish;  /* likewise */
disk_work_fn batch_io_discard; /* likewise */
void batch_io_close(struct batch_job *j); /* what batch_io_open() opened; what is durable stays */

#endif
