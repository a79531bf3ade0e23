/* trace.h - job and request traces of other systems, in one form.
 *
 * A format is told by the columns that a file names, or by its folder:
 *
 *   jobs      philly      timestamp,duration,num_gpus,gpu_time,cluster (Pollux's artifact)
 *             alibaba     name,...,num_gpu,...,creation_time,deletion_time,... (openb pods, 2023)
 *   requests  gentd26     gmt_create,...,groupId,...,checkpoint_model_version_id,...
 *             azure-llm   TIMESTAMP,ContextTokens,GeneratedTokens: arrivals only
 *             azure-fn    HashOwner,HashApp,HashFunction,Trigger,1,...,1440: counts a minute
 *             servegen    a folder of chunk-N-trace.csv: rate and variation of each client
 *
 * Times count from the first arrival. Rows that say nothing of use are left out and counted.
 */
#ifndef SH_SIMULATE_TRACE_H
#define SH_SIMULATE_TRACE_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trace_job {
    int64_t at_ns, run_ns; /* run: on all its GPUs, undisturbed */
    uint32_t gpus, tenant;
};

struct trace_names { /* of tenants or models; index by first appearance */
    char **items;    /* OWNED */
    size_t n, cap;
    uint32_t *slots; /* OWNED hash table; SLOT_FREE: free */
    size_t n_slots;
};

struct trace_jobs {
    char format[16];
    struct trace_job *items; /* OWNED; by arrival */
    size_t n, cap, n_left_out;
    struct trace_names tenants;
};

struct trace_request {
    int64_t at_ns;
    uint32_t model, tenant;
    uint32_t batch; /* samples; 0: 1 */
};

struct trace_requests {
    char format[16];
    struct trace_request *items; /* OWNED; by arrival */
    size_t n, cap, n_left_out;
    struct trace_names tenants, models;
};

struct trace_part { /* what is taken of a trace of rates: servegen, azure-fn */
    double from_s, to_s;
    double speed; /* so many times as fast */
    uint64_t seed;
};

/* Fails: SH_E_IO; SH_E_INVALID: which line and column. */
int trace_jobs_read(const char *path, struct trace_jobs *out, struct sh_err *err);
int trace_requests_read(const char *path, const struct trace_part *part, struct trace_requests *out,
                        struct sh_err *err);
void trace_jobs_fini(struct trace_jobs *t);
void trace_requests_fini(struct trace_requests *t);

/* For the readers. */
int trace__name(struct trace_names *names, const char *name, uint32_t *out, struct sh_err *err);
bool trace__find(const struct trace_names *names, const char *name, uint32_t *out);
void trace__names_fini(struct trace_names *names);

struct trace__file { /* lines of a file, cut at a separator */
    const char *path;
    void *f; /* FILE */
    char *line;
    size_t cap;
    char **cells;
    size_t n_cells, cap_cells;
    uint64_t n_lines;
    char separator;
};

int trace__open(struct trace__file *f, const char *path, char separator, struct sh_err *err);
/* name: of it in messages. text: BORROWED until trace__close(). */
int trace__open_text(struct trace__file *f, const char *name, const char *text, char separator,
                     struct sh_err *err);
void trace__close(struct trace__file *f);
/* False: the end; *rc says whether that is one. */
bool trace__next(struct trace__file *f, int *rc, struct sh_err *err);
/* Of the present line; < 0: none is called so. */
int trace__column(const struct trace__file *f, const char *name);
const char *trace__cell(const struct trace__file *f, int column); /* "" if there is none */
/* SH_E_INVALID: this column of the present line. */
int trace__bad(const struct trace__file *f, const char *column, struct sh_err *err);
bool trace__number(const char *text, double *out);
/* "YYYY-MM-DD hh:mm:ss[.fraction]", as if it were UTC. */
bool trace__time(const char *text, int64_t *ns_out);

#endif
