/* fake_int.h - what the files of the simple executor share. */
#ifndef SH_TESTS_SIM_FAKE_INT_H
#define SH_TESTS_SIM_FAKE_INT_H

#include "common/wire.h"
#include "scheduler/decide/job.h"
#include "tests/sim/fake_executor.h"

#define FAKE_MODELS 256
#define FAKE_SHAPES 512
#define FAKE_PEERS 16
#define FAKE_SPANS 4
#define FAKE_PARTS 64
#define FAKE_WORDS 64 /* last words of jobs that are kept */

enum fake_phase { FAKE_ABSENT, FAKE_LOADING, FAKE_READY, FAKE_FAILED, FAKE_GOING };

struct fake_model {
    int64_t id;
    enum fake_phase phase;
    uint32_t max_batch;
    int rc; /* of FAILED */
    uint64_t short_bytes;
    uint64_t turn;
    int64_t resident_until_ns; /* its image leaves the device then */
};

struct fake_shape {
    int64_t version_id; /* 0: a free place */
    uint32_t size;      /* of its only symbol */
    bool is_ready;
    uint64_t turn;
};

struct fake_part {
    uint64_t run_id, rid, api_id;
    char tenant[64]; /* "": the run's */
    uint32_t batch;
    struct msg_span in[FAKE_SPANS], out[FAKE_SPANS];
    size_t n_in, n_out;
};

struct fake_run {
    struct fake_run *next;
    uint64_t id;
    int64_t version_id, recv_ns, deadline_ns;
    char tenant[64];
    uint32_t batch;
    bool has_shape; /* it is compiled for its sizes, or needs none */
    struct fake_part parts[FAKE_PARTS];
    size_t n_parts;
};

struct fake_peer { /* an API */
    struct fake *fake;
    struct sh_wire *wire; /* NULL: a free place */
    uint64_t api_id;      /* 0: it has not said hello */
    bool is_local;
    char *slab; /* mapped, or a mirror */
    size_t bytes;
    uint64_t ended[256]; /* requests whose input is there, of a peer that is far away; a ring */
    size_t n_ended;
};

struct fake_job {
    int64_t id; /* 0: none */
    uint32_t attempt;
    uint64_t epoch;
    bool is_batch, publishes;
    enum msg_job_phase phase;
    int64_t step, steps, first_step, step_ns, step_samples;
    int64_t busy_ns, counted_ns, preemptions, saved_step, saved_ns, reported_ns;
    int64_t save_asked;
    uint64_t need_bytes; /* of device memory */
    bool is_ending, stops, is_cancelled;
    double rest; /* of a step */
};

struct fake_word {
    int64_t job;
    uint32_t attempt;
    enum msg_job_phase phase;
    int64_t step, steps, busy_ns;
    int rc;
    uint64_t need_bytes;
    char result[256];
};

struct fake_durable { /* on disk */
    char source[33];
    uint64_t number; /* of the last batch */
    struct msg_usage_row batch[MSG_USAGE_ROWS], rows[MSG_USAGE_ROWS];
    size_t n_batch, n_rows; /* n_batch > 0: it is not known to be stored */
};

struct fake {
    struct sim_proc *proc;
    const char *schedulers;
    char addr[64];
    bool is_local;
    uint64_t pool_bytes;
    size_t index;
    struct fake_durable disk;
    int64_t slow_until_ns, slow_times;
    struct fake_now { /* of the process that lives */
        struct sh_link *link;
        uint64_t incarnation, epoch, synced_epoch;
        struct fake_model models[FAKE_MODELS];
        struct fake_shape shapes[FAKE_SHAPES];
        struct fake_peer peers[FAKE_PEERS];
        struct fake_part loose[4 * FAKE_PARTS];
        size_t n_loose;
        struct fake_run *queue, *current;
        size_t n_runs;
        bool is_looking; /* for inputs, soon */
        struct fake_job job;
        struct fake_word words[FAKE_WORDS];
        size_t n_words;
        int fail_rc;
        unsigned fail_loads;
    } now;
};

/* fake_executor.c */
void fake__heard_leader(const struct fake *f, uint64_t epoch, const char *name);
void fake__send(struct fake *f, const struct sh_msg *m);
struct fake_model *fake__model(struct fake *f, int64_t id); /* NULL: absent */
uint64_t fake__image_bytes(int64_t version_id);
int64_t fake__slowed(const struct fake *f, int64_t ns);
/* Counts in the file of the executor, and for fake_used(). */
void fake__count(struct fake *f, const struct msg_usage_row *r);

/* fake_runs.c */
int fake__listen(struct fake *f, struct sh_loop *l, struct sh_err *err);
void fake__on_part(struct fake *f, const struct msg_run_part *m);
void fake__on_run(struct fake *f, const struct msg_run *m, bool is_stale);
void fake__on_cancel(struct fake *f, const struct msg_run_cancel *m);

/* fake_shapes.c */
void fake__on_shape_load(struct fake *f, const struct msg_shape_load *m);
void fake__report_shapes(struct fake *f);
void fake__forget_shapes(struct fake *f, int64_t version_id); /* its version goes */
bool fake__has_shape(struct fake *f, int64_t version_id, const struct sh_blob *sizes);

/* fake_jobs.c */
struct fake_order { /* JOB_START or BATCH_START */
    int64_t job, resume_step;
    uint32_t attempt;
    uint64_t epoch;
    bool is_batch;
    const char *spec, *resume;
};
void fake__on_start(struct fake *f, const struct fake_order *o);
void fake__on_stop(struct fake *f, const struct msg_job_stop *m);
void fake__on_save(struct fake *f, const struct msg_job_save *m);
void fake__report_jobs(struct fake *f); /* to a scheduler that is new */
void fake__jobs_begin(struct fake *f);
void fake__on_run_began(struct fake *f);
void fake__on_run_ended(struct fake *f);

#endif
