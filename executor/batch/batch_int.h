/* batch_int.h - shared by batch.c (the steps, on the loop), batch_job.c (creates and frees a job)
 * and batch_io.c (files, on the disk thread). */
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
#define BATCH_ALIGN 64u /* bytes, of tensors in the slab */
#define BATCH_N_SLOTS 2

enum batch_end { BATCH_GOES_ON, BATCH_SUSPEND, BATCH_FAIL, BATCH_CANCEL };
enum batch_slot_state { SLOT_FREE, SLOT_BUSY, SLOT_FULL, SLOT_RUNNING, SLOT_RAN, SLOT_N_STATES };
extern const struct sh_life SLOT_LIFE; /* common/life.h */

struct batch_column { /* an input or an output */
    size_t sample_bytes;
    size_t off;        /* bytes in a slot, which holds a whole batch */
    uint64_t file_off; /* inputs: offset of the first sample in the dataset's file */
};

struct batch_slot {
    struct disk_task task; /* first member */
    struct batch_job *job;
    enum batch_slot_state state;
    size_t off;    /* bytes in the slab */
    int64_t at, n; /* first sample and number of samples; inputs, or outputs when it RAN */
    /* for the thread while BUSY: it writes the outputs, then reads the next inputs */
    bool has_outputs, is_sync;
    int64_t next_at, next_n;
    /* set by the thread if is_sync */
    char digest[SH_SHA256_HEX];
    uint64_t bytes;
};

struct batch_task {        /* any other task; one at a time */
    struct disk_task task; /* first member */
    struct batch_job *job;
    char digest[SH_SHA256_HEX];
    uint64_t bytes;
};

struct batch_job {
    const struct batch_env *env;
    int64_t id, version_id, resume_at, interval_ns;
    uint32_t attempt;
    int64_t placement; /* the number of this start (executor/files/claim.h) */
    char *tenant, *model, *dataset, *dir, *resume_digest; /* OWNED */
    struct blob_set blobs;                                /* the dataset */
    struct job_log *log;
    struct push *push; /* sends the result to the API; NULL: none under way */
    json_t *spec, *inputs, *outputs;
    /* sizes that the model's file leaves open, taken from the dataset */
    struct sh_sample_sizes sizes;
    atomic_bool stop; /* tells the thread to stop reading back */

    /* belongs to the thread until is_open, then constant */
    int fd; /* of the dataset */
    struct result_file *file;
    struct batch_column in[BATCH_MAX_IO], out[BATCH_MAX_IO];
    size_t n_in, n_out;
    size_t kept[BATCH_MAX_IO], n_kept; /* outputs to write */
    int64_t n_samples, batch;          /* batch: set by the loop */
    bool is_open;

    struct sh_shm slab;
    uint64_t slab_id;
    bool has_slab;
    struct batch_slot slots[BATCH_N_SLOTS];
    struct batch_slot *running; /* submitted; NULL: none */
    struct batch_task misc;
    uint32_t n_tasks; /* tasks on the thread */
    /* the next sample to read, to run, to hand over for writing, and to be written */
    int64_t read_at, ran_at, handed_at, written_at;
    int64_t durable_at; /* the first sample that is not durable */
    char durable_digest[SH_SHA256_HEX];
    uint64_t durable_bytes;
    int64_t synced_ns;
    /* a client's checkpoint: its number, 0: none; it is due when this sample is durable, -1:
     * open */
    int64_t save_asked, save_at;
    bool is_finishing, is_broken; /* broken: a write failed */

    enum batch_end end;
    struct sh_err why;   /* of BATCH_FAIL */
    uint64_t need_bytes; /* more device memory than its model can ever have here; else 0 */
    bool has_ended;
    enum msg_job_phase phase;
    int64_t open_ns;     /* retry opening no earlier than this */
    int64_t waits_ns;    /* waits for its model since then; 0: it does not */
    uint32_t n_failures; /* consecutive failed runs */
    int64_t start_ns, busy_ns, first_at, preemptions;
    int64_t reported_ns, reported_at;
    enum msg_job_phase reported_phase;
    char *result; /* OWNED: JSON, when DONE */
};

/* batch_job.c. *out: OWNED, batch__job_free(). */
int batch__job_new(const struct batch_env *env, const struct msg_batch_start *m,
                   struct batch_job **out, struct sh_err *err);
void batch__job_free(struct batch_job *j); /* NULL is allowed */

/* batch_io.c: the work of tasks. batch_io_open() may be tried again after a failure. */
disk_work_fn batch_io_open;    /* struct batch_task: opens dataset and result, sets written_at */
disk_work_fn batch_io_turn;    /* struct batch_slot */
disk_work_fn batch_io_sync;    /* struct batch_task */
disk_work_fn batch_io_finish;  /* struct batch_task */
disk_work_fn batch_io_discard; /* struct batch_task */
/* Closes what batch_io_open() opened; what is durable stays. */
void batch_io_close(struct batch_job *j);

#endif
