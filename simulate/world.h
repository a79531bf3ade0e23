/* world.h - a snapshot of a running system as GET /api/v1/snapshot gives it, in the form that
 * replays take: what waits and runs now, and jobs and requests that came in the last hours, as if
 * they came again; or requests of a trace.
 *
 * Time 0 is the moment of the snapshot. A job that has no measurement of its own takes as long as
 * its like took (scheduler/decide/past.h), else as jobs take in the mean; `guessed` counts those of
 * which nothing is known.
 */
#ifndef SH_SIMULATE_WORLD_H
#define SH_SIMULATE_WORLD_H

#include "common/msg.h"
#include "scheduler/decide/conf.h"
#include "scheduler/decide/past.h"
#include "simulate/jobs.h"
#include "simulate/serve.h"

#include <jansson.h>

#define WORLD_FORMAT 3
#define WORLD_MAX_GPUS ((unsigned)SH_MAX_EXECUTORS)
#define WORLD_MAX_TENANTS 100000u
#define WORLD_MAX_JOBS 200000u
#define WORLD_MAX_VERSIONS 5000u
#define WORLD_MAX_SERVED 2048u /* versions, if requests are simulated too */
#define WORLD_MAX_REQUESTS 1000000u
#define WORLD_MAX_PLACES 4000000u
#define WORLD_GUESS_S 600 /* a job of which nothing is known */
#define WORLD_MAX_S 1e9   /* no time is longer here: nobody looks so far */

struct world_gpu {
    const char *name;
    uint64_t pool_bytes;
    double ns_per_byte;               /* of its link; 0: not measured */
    int64_t stop_ns;                  /* until training has stopped; 0: not measured */
    int64_t training, most_workspace; /* bytes of the pool: that jobs take; one run */
};

struct world_requests {
    struct trace_requests trace; /* its tenants are the world's, its models versions by number */
    struct serve_model *models;  /* OWNED; by version, as what follows */
    struct store_model *rows;    /* OWNED; texts BORROWED from the snapshot */
    struct predict *learnt;      /* OWNED */
    struct serve_place *places;  /* OWNED; by GPU */
    bool *is_shared;             /* OWNED; by version */
    bool *homes;                 /* OWNED; [gpu * versions + version] */
    uint64_t *resident;          /* OWNED; the same */
    size_t n_versions;
    double from_s, seconds;   /* how long ago the first came; how long they came */
    size_t guessed, left_out; /* versions that never ran; requests for what is not there now */
};

struct world {
    struct sched_conf options; /* those of SCHED_DECIDES_BY */
    int64_t stop_ns;
    struct world_gpu *gpus; /* OWNED; names BORROWED from the snapshot */
    size_t n_gpus;
    uint64_t *pools; /* OWNED; by GPU */
    struct trace_names tenants;
    struct snap_tenant *rules; /* OWNED; by tenant */
    struct store_tenant *rows; /* OWNED; the same; names BORROWED from the snapshot */

    struct past past;
    struct trace_jobs jobs; /* its tenants are empty but for their number */
    struct job_more *more;  /* OWNED; by job */
    size_t n_lines;
    size_t guessed, left_out; /* jobs of unknown length; of which nothing is to be said */
    struct world_requests requests;
};

/* hours: of the recorded time that is to come again; 0: none. trace: requests that come instead of
 * those, as text (docs/simulate.md); NULL: none. *w: world_fini(); the snapshot has to stay. Fails:
 * SH_E_INVALID naming the field, SH_E_TOOBIG, SH_E_NOMEM. */
int world_read(const json_t *snapshot, double hours, const char *trace, struct world *w,
               struct sh_err *err);
void world_fini(struct world *w); /* a zeroed struct is empty */

/* For its parts. */
int world__jobs(const json_t *rows, double hours, struct world *w, struct sh_err *err);
void world__requests_fini(struct world_requests *r);
/* world_models.c: versions, where they live, what is known of their runs. */
int world__models(const json_t *rows, struct world *w, struct sh_err *err);
/* world_requests.c: those that come. */
int world__requests(const json_t *slices, double hours, const char *trace, struct world *w,
                    struct sh_err *err);

#endif
