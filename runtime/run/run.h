/* run.h - shared by the sub-commands of shunt-run: options, a device of its own, tensor files.
 *
 * One thread, no server, a private arena of exactly the size that the program needs. Messages for
 * people go to stderr, results to files.
 */
#ifndef SH_RUNTIME_RUN_RUN_H
#define SH_RUNTIME_RUN_RUN_H

#include "common/conf.h"
#include "common/safetensors.h"
#include "runtime/device/dev.h"
#include "runtime/model/program.h"

struct run_conf {
    char *device, *precision, *model, *inputs, *outputs, *list;
    char *tune;
    int64_t ordinal, threads, batch, memory;
    bool deterministic, verify_launches;
    /* train */
    char *spec, *labels, *loss, *optimizer, *losses, *gradients, *state;
    double lr, momentum, weight_decay, beta1, beta2, eps;
    int64_t steps, seed;
    bool nesterov, shuffle;
    /* profile */
    char *report;
    int64_t repeat;
    bool ops;
    double copy_gb_per_s, copy_latency_us;
    /* bench */
    int64_t runs, warm_runs;
    bool prepare;
};

struct session {
    struct dev_lib *lib;
    struct dev *dev;
    struct graph *graph;
    struct program *program;
    struct dev_bases bases;
    int64_t warm_ns;       /* that program_warm() took */
    struct sh_sizes sizes; /* of the model's symbols; tensors_samples(). 0: the graph's own */
};

/* Reads the model. */
int session_open(const struct run_conf *c, struct session *s, struct sh_err *err);
/* Makes inputs that decide shapes constants, with the file's values. */
int session_bind(struct session *s, const struct sh_st *file, struct sh_err *err);
/* Compiles for inference at this batch size, or for training if t is not NULL; creates an arena of
 * the size needed and fills image and state. Fails: SH_E_NOMEM, also where --memory-bytes, or what
 * is free, is not enough for it and the outputs, before any of it is taken. */
int session_compile(struct session *s, const struct run_conf *c, int64_t batch,
                    const struct train_spec *t, struct sh_err *err); /* with s->sizes */
void session_close(struct session *s);

/* Bytes of memory that are free below root, "" but for tests: of the machine, or of the container
 * (cgroup 2) if that leaves less. What files were read counts as free, since it is dropped for
 * others. UINT64_MAX: not known. memory.c */
uint64_t run_free_memory(const char *root);

/* The batch to compile for: --batch, or what the model fixes, or the samples in the file (0: no
 * file). Tells on stderr if that differs from the number of samples. */
int session_batch(const struct session *s, const struct run_conf *c, int64_t n_samples,
                  int64_t *out, struct sh_err *err);

/* ------------------------------------------------------------------ tensor files (tensors.c) */

/* A tensor of the file that fits, except for the number of samples. what: "input" or "label". */
int tensors_bind(const struct sh_st *file, const char *path, const char *name, const char *what,
                 enum sh_dtype dtype, uint32_t rank, const int64_t *dims,
                 const struct sh_st_tensor **out, struct sh_err *err);
/* Has the file each input of the model in just its shape, all axes fixed? Then it is one run, and
 * no axis need be that of samples. */
bool tensors_are_one_run(const struct graph *g, const struct sh_st *file);
/* The number of samples of the model's inputs in the file: all the same; and sizes of symbols. */
int tensors_samples(const struct graph *g, const struct sh_st *file, const char *path, int64_t *out,
                    struct sh_sizes *sizes, struct sh_err *err);
/* Uploads rows[0..n) of t (NULL: first, first + 1, ...) to `io`; rows that the batch has beyond n
 * are zero. */
int tensors_upload(struct session *s, const struct sh_st_tensor *t, const struct program_io *io,
                   const uint32_t *rows, int64_t first, int64_t n, struct sh_err *err);

int infer_run(const struct run_conf *c, struct sh_err *err);
/* --list FILE: a model, inputs and outputs in each line; one that fails does not end the others. */
int list_run(const struct run_conf *c, struct sh_err *err);
int train_run(const struct run_conf *c, struct sh_err *err);
int bench_run(const struct run_conf *c, struct sh_err *err);
int profile_run(const struct run_conf *c, struct sh_err *err);
int device_run(const struct run_conf *c, struct sh_err *err); /* no model */

#endif
