/* oracles_system.c - see oracles_system.h. */
#include "tests/sim/oracles_system.h"

#include "common/mem.h"
#include "common/safetensors.h"
#include "common/units.h"
#include "tests/sim/disk.h"
#include "tests/sim/oracles_exec.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOOK_NS SH_S(1)
#define MAX_SAMPLE 8192
#define PEACE_NS SH_S(8) /* after the healing: by then everything is let go */
#define MAX_JOBS 8192

static const char *state_dir;
static int64_t healed_ns;
static int64_t seen[MAX_JOBS]; /* of each job: the newest step whose file was looked at */

unsigned oracles_system_dataset(int64_t model_id, int64_t n)
{
    return (unsigned)(model_id * 1000 + n);
}

/* ------------------------------------------------------------------ checkpoints */

/* What the database was told of is on the disk, whole and of one step, as long as the job may need
 * it. */
static void check_job(const struct database_job *j)
{
    char dir[512];
    int64_t step = 0, best;

    for (size_t i = 0; i < j->n_checkpoints; i++)
        step = step > j->checkpoints[i].step ? step : j->checkpoints[i].step;
    if (step == 0 || step == seen[j->id % MAX_JOBS])
        return;
    snprintf(dir, sizeof(dir), "%.400s/jobs/%" PRId64, state_dir, j->id);
    best = oracle_job_folder(dir);
    SIM_CHECK("durable", best >= step,
              "job %" PRId64 ": the checkpoint of step %" PRId64
              " was acknowledged, and the newest on the disk is of step %" PRId64,
              j->id, step, best);
    seen[j->id % MAX_JOBS] = step;
}

/* What an attempt begins with holds every step that was recorded before it was started. */
static void on_begun(const char *executor, int64_t job, uint32_t attempt, int64_t step)
{
    const struct database_job *j = &database.jobs[job - 1];
    const struct database_event *start = NULL;
    int64_t recorded = 0;

    for (size_t i = database.n_events; i-- > 0 && !start;)
        if (database.events[i].job == job && database.events[i].to == JOB_STARTING)
            start = &database.events[i];
    if (!start || strcmp(start->executor, executor) != 0 || start->attempt != attempt ||
        !job_state_has_executor(j->state))
        return; /* it was given up before it began */
    for (size_t i = 0; i < j->n_checkpoints; i++)
        if (j->checkpoints[i].at_ns <= start->at_ns)
            recorded = SH_MAX(recorded, j->checkpoints[i].step);
    SIM_CHECK("no-step-lost", step >= recorded,
              "job %" PRId64 " begins with step %" PRId64
              " in %s, and the checkpoint of step %" PRId64 " was recorded",
              job, step, executor, recorded);
}

static void on_look(void *arg, uint64_t n)
{
    (void)arg, (void)n;
    for (size_t i = 0; i < database.n_jobs; i++)
        if (!database.jobs[i].is_batch && !job_state_is_final(database.jobs[i].state))
            check_job(&database.jobs[i]);
    sim_world_after(LOOK_NS, on_look, NULL, 0);
}

/* A file of a job that has succeeded is what the database has the digest of. */
static void on_rename(const char *to)
{
    static const char *const NAMES[] = {"result.safetensors", "trained.onnx", "final.safetensors"};
    const char *jobs = strstr(to, "/jobs/"), *name = strrchr(to, '/');
    int64_t id;

    if (!jobs || sscanf(jobs, "/jobs/%" SCNd64 "/", &id) != 1)
        return;
    for (size_t i = 0; i < SH_ARRAY_LEN(NAMES); i++)
        SIM_CHECK("published",
                  strcmp(name + 1, NAMES[i]) != 0 || database.jobs[id - 1].state != JOB_SUCCEEDED,
                  "job %" PRId64 " has succeeded, and its %s is replaced", id, NAMES[i]);
}

void oracles_system_begin(const char *dir)
{
    state_dir = dir;
    sim_disk_on_rename(on_rename);
    memset(seen, 0, sizeof(seen));
    oracles_exec_on_begun(on_begun);
    sim_world_after(LOOK_NS, on_look, NULL, 0);
}

/* ------------------------------------------------------------------ batch inference */

static void check_sample(const struct database_job *j, int64_t at, const char *got)
{
    const struct database_version *v = &database.versions[j->version_id - 1];
    const struct database_model *m = &database.models[v->model_id - 1];
    const uint64_t set = oracles_system_dataset(m->id, j->all_steps);
    char in[MAX_SAMPLE], want[MAX_SAMPLE];

    sim_fill_input(v->content.tenant, (set << 32) + (uint64_t)at, in, m->in_bytes);
    sim_fill_output(&v->content, in, m->in_bytes, want, m->out_bytes);
    SIM_CHECK("batch", memcmp(got, want, m->out_bytes) == 0,
              "job %" PRId64 ": sample %" PRId64 " of the result is another one's", j->id, at);
}

static void check_result(const struct database_job *j)
{
    const size_t bytes =
        database.models[database.versions[j->version_id - 1].model_id - 1].out_bytes;
    const struct sh_st_tensor *t;
    struct sh_st *f = NULL;
    struct sh_err err = {0};
    char path[512];

    snprintf(path, sizeof(path), "%.400s/jobs/%" PRId64 "/result.safetensors", state_dir, j->id);
    SIM_CHECK("batch", !sh_st_open(path, &f, &err), "job %" PRId64 " has no result: %s", j->id,
              err.msg);
    t = sh_st_find(f, "y");
    SIM_CHECK("batch", t && t->bytes == bytes * (size_t)j->all_steps,
              "job %" PRId64 ": its result has no %" PRId64 " samples", j->id, j->all_steps);
    for (int64_t i = 0; i < j->all_steps; i++)
        check_sample(j, i, (const char *)t->data + (size_t)i * bytes);
    sh_st_close(f);
}

/* ------------------------------------------------------------------ the end */

static void check_version(const struct database_version *v)
{
    struct sim_package p = {.tenant = 0};
    char path[512];
    int fd;

    snprintf(path, sizeof(path), "%.300s/blobs/%.100s/graph.json", state_dir, v->package);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    SIM_CHECK("published", fd >= 0 && sim_package_read(fd, &p),
              "version %" PRId64 " of job %" PRId64 " has no package %s", v->id, v->source_job,
              path);
    SIM_CHECK("published", p.tenant == v->content.tenant && strcmp(p.model, v->content.model) == 0,
              "version %" PRId64 " has the package of another model", v->id);
    close(fd);
}

/* The start of an attempt that ended with this event; 0: it was before all events. */
static int64_t started_ns(size_t at)
{
    for (size_t i = at; i-- > 0;)
        if (database.events[i].job == database.events[at].job &&
            database.events[i].to == JOB_STARTING)
            return database.events[i].at_ns;
    return 0;
}

/* There is room for every job, and nothing goes wrong any more. */
static void check_failures(void)
{
    for (size_t i = 0; i < database.n_events; i++)
        SIM_CHECK("peace",
                  database.events[i].to != JOB_FAILED || started_ns(i) < healed_ns + PEACE_NS,
                  "job %" PRId64 " began when all was well, and failed (%s)",
                  database.events[i].job, database.events[i].reason);
}

void oracles_system_healed(void)
{
    healed_ns = sim_now();
}

void oracles_system_finish(void)
{
    size_t n_batch = 0, n_trained = 0;

    for (size_t i = 0; i < database.n_jobs; i++) {
        const struct database_job *j = &database.jobs[i];

        n_batch += j->is_batch && j->state == JOB_SUCCEEDED;
        n_trained += !j->is_batch && j->state == JOB_SUCCEEDED;
        if (j->is_batch && j->state == JOB_SUCCEEDED)
            check_result(j);
    }
    for (size_t i = 0; i < database.n_versions; i++)
        if (database.versions[i].source_job && strcmp(database.versions[i].state, "DELETED") != 0)
            check_version(&database.versions[i]);
    check_failures();
    sim_trace("trained=%zu batch=%zu", n_trained, n_batch);
}
