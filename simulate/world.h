/* world.h - a snapshot of a running system as GET /api/v1/snapshot gives it, in the form that
 * replays take: what waits and runs now, and what came in the last hours, as if it came again.
 *
 * Time 0 is the moment of the snapshot. A job that has no measurement of its own takes as long as
 * its like took (scheduler/decide/past.h), else as jobs take in the mean; `guessed` counts those of
 * which nothing is known.
 */
#ifndef SH_SIMULATE_WORLD_H
#define SH_SIMULATE_WORLD_H

#include "scheduler/decide/past.h"
#include "simulate/jobs.h"

#include <jansson.h>

#define WORLD_FORMAT 2
#define WORLD_MAX_GPUS 4096u
#define WORLD_MAX_TENANTS 100000u
#define WORLD_MAX_JOBS 200000u
#define WORLD_GUESS_S 600 /* a job of which nothing is known */
#define WORLD_MAX_HOURS 24
#define WORLD_MAX_S 1e9 /* no time is longer here: nobody looks so far */

struct world_gpu {
    const char *name;
    uint64_t pool_bytes;
};

struct world {
    double half_life_s;
    int64_t min_run_ns, max_min_run_ns, level_ns, stop_ns;
    struct world_gpu *gpus; /* OWNED; names BORROWED from the snapshot */
    size_t n_gpus;
    uint64_t *pools; /* OWNED; by GPU */
    struct trace_names tenants;
    struct snap_tenant *rules; /* OWNED; by tenant */

    struct past past;
    struct trace_jobs jobs; /* its tenants are empty but for their number */
    struct job_more *more;  /* OWNED; by job */
    size_t n_lines;
    size_t guessed, left_out; /* jobs of unknown length; of which nothing is to be said */
};

/* hours: of the recorded time that is to come again; 0: none. *w: world_fini(); the snapshot has to
 * stay. Fails: SH_E_INVALID naming the field, SH_E_NOMEM. */
int world_read(const json_t *snapshot, double hours, struct world *w, struct sh_err *err);
void world_fini(struct world *w); /* a zeroed struct is empty */

/* For its parts. */
int world__jobs(const json_t *rows, double hours, struct world *w, struct sh_err *err);

#endif
