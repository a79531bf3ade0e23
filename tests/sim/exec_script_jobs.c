/* exec_script_jobs.c - see exec_script.h: jobs that train and jobs of batch inference, one after
 * the other, each until it has ended: started, stopped, saved, begun again from its newest
 * checkpoint. */
#include "common/hash.h"
#include "common/job.h"
#include "common/mem.h"
#include "common/msg.h"
#include "common/safetensors.h"
#include "common/units.h"
#include "tests/sim/disk.h"
#include "tests/sim/exec_script.h"
#include "tests/sim/oracles_exec.h"
#include "tests/sim/shortage.h"
#include "tests/sim/transfer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define N_JOBS 8u
#define STOP_WITHIN_NS SH_S(150) /* a worker may hang, or compile, meanwhile */
#define SAVE_EVERY 40u

enum job_where { JOB_WAITS, JOB_STARTED, JOB_ENDED };

static struct script_job {
    int64_t id;
    size_t version; /* of the script: what it trains */
    char dataset[96], spec[400], dir[16];
    int64_t steps; /* or samples */
    bool is_batch;
    enum job_where where;
    uint32_t attempt;
    int64_t begin_ns; /* WAITS: not before */
    bool is_reported; /* in what the executor says after it has connected */
    bool cancel_asked;
    int64_t stop_ns; /* since when it is to stop; 0: not */
    char ckpt[160];  /* the newest that was told; "": none */
    char digest[SH_SHA256_HEX];
    int64_t ckpt_step;
    int64_t save_asked;
    int64_t told_step, heard_step;
    uint32_t n_failed;
    uint64_t n_failed_writes; /* could_not_write() when it was started, or ended */
} jobs[N_JOBS];
static size_t n_jobs, at;              /* at: the one that it is the turn of */
static uint64_t n_gains, n_gains_then; /* steps, ends, beginnings: so far, and when the end began */
static struct sim_proc *told_by;       /* whose told_step it is, and in which life */
static uint64_t told_life;

/* What may have kept a checkpoint from the disk. */
static uint64_t could_not_write(void)
{
    return sim_disk_n_failed() + sim_shortage_n();
}

/* ------------------------------------------------------------------ making them */

static void make_job(size_t version, const struct sim_package *p, const struct sim_model *m)
{
    struct script_job *j = &jobs[n_jobs++];
    const uint32_t batch = m->sizes[0].batch * 4;
    char evaluation[120] = "";

    *j = (struct script_job){.id = (int64_t)n_jobs, .version = version};
    j->steps =
        sim_below(2) ? sim_between(1, 20) : sim_between(20, m->op_ns[0] < 100000 ? 3000 : 160);
    snprintf(j->dir, sizeof(j->dir), "%" PRId64, j->id);
    sim_dataset_make(script.e->state_dir, p->tenant, (unsigned)j->id,
                     m->in_bytes < 4096 ? m->in_bytes : 64, 32, j->dataset);
    if (sim_below(2))
        snprintf(evaluation, sizeof(evaluation),
                 ",\"evaluation\":{\"every\":%" PRId64 ",\"best\":\"%s\",\"patience\":%u}",
                 1 + j->steps / sim_between(2, 9), sim_below(2) ? "accuracy" : "loss",
                 sim_below(2) ? 3 : 0);
    snprintf(j->spec, sizeof(j->spec),
             "{\"loss\":\"cross-entropy\",\"optimizer\":{\"name\":\"sgd\",\"lr\":0.1},"
             "\"labels\":\"label\",\"batch\":%u,\"steps\":%" PRId64
             ",\"checkpoint_interval_ms\":%" PRId64 ",\"publish\":%s%s}",
             batch, j->steps, sim_between(30, 3000), sim_below(2) ? "true" : "false", evaluation);
}

static void make_batch(size_t version, const struct sim_package *p, const struct sim_model *m)
{
    struct script_job *j = &jobs[n_jobs++];

    *j = (struct script_job){.id = (int64_t)n_jobs, .version = version, .is_batch = true};
    j->steps = sim_between(1, 400);
    snprintf(j->dir, sizeof(j->dir), "%" PRId64, j->id);
    sim_dataset_make(script.e->state_dir, p->tenant, (unsigned)j->id, m->in_bytes, j->steps,
                     j->dataset);
    snprintf(j->spec, sizeof(j->spec),
             "{\"batch\":%" PRId64 ",\"checkpoint_interval_ms\":%" PRId64 "}",
             sim_between(1, (int64_t)m->sizes[m->n_sizes - 1].batch), sim_between(10, 2000));
}

void script__jobs_begin(void)
{
    struct sim_package const *p;
    char path[96];

    n_jobs = at = 0;
    for (size_t i = 0; (p = script__package(i, path)) && n_jobs < N_JOBS; i++) {
        const struct sim_model *m = sim_profile_model(script.profile, p->model);

        if (m->n_ops)
            make_job(i, p, m);
        if (n_jobs < N_JOBS && sim_below(2))
            make_batch(i, p, m);
    }
}

/* ------------------------------------------------------------------ commands */

static void start_training(const struct script_job *j)
{
    struct sh_msg m = {.type = MSG_JOB_START};
    char package[96];
    const struct sim_package *p = script__package(j->version, package);
    const bool evaluates = strstr(j->spec, "evaluation") != NULL;

    m.u.job_start = (struct msg_job_start){.epoch = script__epoch(),
                                           .placement = sim_now() / 1000,
                                           .job = j->id,
                                           .attempt = j->attempt,
                                           .tenant = script__tenant_name(p->tenant),
                                           .model = p->model,
                                           .package = package,
                                           .dataset = j->dataset,
                                           .eval_dataset = evaluates ? j->dataset : "",
                                           .spec = j->spec,
                                           .dir = j->dir,
                                           .resume = j->ckpt,
                                           .resume_step = j->ckpt_step,
                                           .about = ""};
    script__send(&m);
}

static void start_batch(const struct script_job *j)
{
    struct sh_msg m = {.type = MSG_BATCH_START};
    char package[96], inputs[120], outputs[120];
    const struct sim_package *p = script__package(j->version, package);
    const struct sim_model *model = sim_profile_model(script.profile, p->model);
    static const char FORMAT[] = "[{\"name\":\"%s\",\"datatype\":\"FP32\",\"shape\":[-1,%zu]}]";

    snprintf(inputs, sizeof(inputs), FORMAT, "input", (size_t)model->in_bytes / sizeof(float));
    snprintf(outputs, sizeof(outputs), FORMAT, "output", (size_t)model->out_bytes / sizeof(float));
    m.u.batch_start = (struct msg_batch_start){.epoch = script__epoch(),
                                               .placement = sim_now() / 1000,
                                               .job = j->id,
                                               .attempt = j->attempt,
                                               .tenant = script__tenant_name(p->tenant),
                                               .model = p->model,
                                               .version_id = script__version_id(j->version),
                                               .inputs = inputs,
                                               .outputs = outputs,
                                               .dataset = j->dataset,
                                               .spec = j->spec,
                                               .dir = j->dir,
                                               .resume_step = j->ckpt_step,
                                               .resume_digest = j->digest,
                                               .about = ""};
    script__send(&m);
}

/* What was told lies at the API, whatever becomes of the executor. */
static void api_file(const struct script_job *j, const char *name,
                     char path[static SIM_TRANSFER_PATH])
{
    char url[200];

    snprintf(url, sizeof(url), "/api/v1/jobs/%" PRId64 "/files/%.120s", j->id, name);
    sim_transfer_path(url, path);
}

static void check_sent(const struct script_job *j, const char *slash)
{
    char path[SIM_TRANSFER_PATH];

    api_file(j, slash ? slash + 1 : j->ckpt, path);
    SIM_CHECK("durable", oracle_state_file(path, false) == (j->ckpt_step & 0xfffff),
              "job %" PRId64 ": the checkpoint at the API is not of step %" PRId64, j->id,
              j->ckpt_step);
}

static void start(struct script_job *j)
{
    void (*const say)(const struct script_job *) = j->is_batch ? start_batch : start_training;
    char dir[64];

    snprintf(dir, sizeof(dir), "%s/jobs/%s", script.e->state_dir, j->dir);
    if (j->ckpt[0] && !j->is_batch && script.is_remote)
        check_sent(j, strchr(j->ckpt, '/'));
    else if (j->ckpt[0] && !j->is_batch)
        SIM_CHECK("durable", oracle_job_folder(dir) >= j->ckpt_step,
                  "job %" PRId64 ": the checkpoint of step %" PRId64 " was told, and is not there",
                  j->id, j->ckpt_step);
    j->attempt++;
    j->where = JOB_STARTED;
    j->n_failed_writes = could_not_write();
    j->stop_ns = 0;
    j->told_step = 0;
    j->cancel_asked = false;
    say(j);
    if (sim_below(5) == 0)
        say(j); /* the scheduler does not know that it was heard */
}

static void stop(struct script_job *j, enum msg_job_how how, uint64_t epoch)
{
    struct sh_msg m = {.type = MSG_JOB_STOP};

    m.u.job_stop =
        (struct msg_job_stop){.epoch = epoch, .job = j->id, .attempt = j->attempt, .how = how};
    script__send(&m);
}

static void ask_to_stop(struct script_job *j)
{
    const bool cancels = sim_below(12) == 0;

    j->stop_ns = sim_now();
    j->cancel_asked = cancels;
    stop(j, cancels ? MSG_JOB_HOW_CANCEL : MSG_JOB_HOW_SUSPEND, script__epoch());
}

static void save(struct script_job *j)
{
    struct sh_msg m = {.type = MSG_JOB_SAVE};

    m.u.job_save = (struct msg_job_save){
        .epoch = script__epoch(), .job = j->id, .attempt = j->attempt, .asked = ++j->save_asked};
    script__send(&m);
}

void script__jobs_tick(void)
{
    struct script_job *j = at < n_jobs ? &jobs[at] : NULL;

    if (!j)
        return;
    if (j->where == JOB_ENDED) {
        at++;
        n_gains++;
        return;
    }
    if (j->where == JOB_WAITS) {
        if (sim_now() >= j->begin_ns)
            start(j);
        return;
    }
    SIM_CHECK("waits",
              !j->stop_ns || sim_now() - j->stop_ns < STOP_WITHIN_NS ||
                  sim_proc_is_paused(script.e->proc),
              "job %" PRId64 " has not stopped in %.3f s", j->id,
              (double)(sim_now() - j->stop_ns) / 1e9);
    if (script.is_ending)
        return;
    if (!j->stop_ns && sim_below(250) == 0)
        ask_to_stop(j);
    if (script__epoch() > 1 && sim_below(300) == 0)
        stop(j, MSG_JOB_HOW_CANCEL, script__epoch() - 1);
    if (sim_below(SAVE_EVERY) == 0)
        save(j);
}

/* ------------------------------------------------------------------ what it hears */

static struct script_job *job_of(int64_t id)
{
    return id > 0 && (size_t)id <= n_jobs ? &jobs[id - 1] : NULL;
}

static void again(struct script_job *j)
{
    j->where = JOB_WAITS;
    j->stop_ns = 0;
    j->begin_ns = sim_now() + sim_between(0, SH_MS(800));
}

static bool is_right(const struct script_job *j, const struct sh_st_tensor *t)
{
    char package[96];
    const struct sim_package *p = script__package(j->version, package);
    const struct sim_model *m = sim_profile_model(script.profile, p->model);
    char *in = malloc(m->in_bytes + 1), *out = malloc(m->out_bytes + 1);
    bool ok = in && out && t->bytes == m->out_bytes * (uint64_t)j->steps;

    for (int64_t i = 0; ok && i < j->steps; i++) {
        sim_dataset_sample(p->tenant, (unsigned)j->id, i, in, m->in_bytes);
        sim_fill_output(p, in, m->in_bytes, out, m->out_bytes);
        ok = memcmp((const char *)t->data + m->out_bytes * (uint64_t)i, out, m->out_bytes) == 0;
    }
    free(in);
    free(out);
    return ok;
}

/* The output of each sample, whatever happened meanwhile. */
static void check_result(const struct script_job *j)
{
    char path[SIM_TRANSFER_PATH];
    struct sh_st *f = NULL;
    struct sh_err err = {0};
    const struct sh_st_tensor *t;

    if (!j->is_batch)
        return;
    if (script.is_remote)
        api_file(j, "result.safetensors", path);
    else
        snprintf(path, sizeof(path), "%s/jobs/%s/result.safetensors", script.e->state_dir, j->dir);
    SIM_CHECK("result", !sh_st_open(path, &f, &err), "job %" PRId64 " is done: %s", j->id, err.msg);
    t = sh_st_find(f, "output");
    SIM_CHECK("result", t && is_right(j, t), "the result of job %" PRId64 " is wrong", j->id);
    sh_st_close(f);
}

/* Nobody starts it again, and it is told so; what the executor has kept of it goes. */
static void end(struct script_job *j)
{
    struct sh_msg ended = {.type = MSG_JOB_ENDED, .u.job_ended = {.job = j->id}};
    struct sh_msg ping = {.type = MSG_PING, .u.ping = {.cookie = (uint64_t)j->id}};

    j->where = JOB_ENDED;
    j->n_failed_writes = could_not_write();
    script__send(&ended);
    script__send(&ping);
}

/* It has heard of the end of this job. */
static void on_pong(const struct msg_pong *m)
{
    const struct script_job *j = job_of((int64_t)m->cookie);
    char dir[64];

    if (!j || !script.is_remote || j->n_failed_writes != could_not_write())
        return;
    snprintf(dir, sizeof(dir), "%s/jobs/%s", script.e->state_dir, j->dir);
    SIM_CHECK("files", access(dir, F_OK) < 0, "job %" PRId64 " has ended, and its folder is there",
              j->id);
}

static void on_failed(struct script_job *j, const struct msg_job_state *m)
{
    if (j->is_batch &&
        script.is_remote) /* nobody else could go on: its parts go with it (push.h) */
        j->ckpt_step = 0;
    sim_trace("job %" PRId64 " failed at step %" PRId64 ": %s", j->id, m->step, m->msg);
    if (++j->n_failed < 30) { /* refused for now, or for a fault that ends */
        again(j);
        return;
    }
    end(j);
}

/* One that was suspended goes on from the step that it says, unless that could not be written: what
 * was lost with a worker before is no longer part of it. */
static void check_suspended(const struct script_job *j, const struct msg_job_state *m)
{
    char dir[64];

    snprintf(dir, sizeof(dir), "%s/jobs/%s", script.e->state_dir, j->dir);
    if (j->is_batch || script.is_remote)
        return;
    SIM_CHECK("durable",
              j->n_failed_writes != could_not_write() || oracle_job_folder(dir) >= m->step ||
                  m->step == 0,
              "job %" PRId64 " was suspended at step %" PRId64
              ", and its newest checkpoint is %" PRId64,
              j->id, m->step, oracle_job_folder(dir));
}

static void on_state(const struct msg_job_state *m)
{
    struct script_job *j = job_of(m->job);

    SIM_CHECK("jobs", j, "job %" PRId64 " is none", m->job);
    j->is_reported |= m->attempt == j->attempt; /* a start that was lost leaves the one before */
    n_gains += m->step != j->heard_step || m->state == MSG_JOB_FAILED;
    j->heard_step = m->step;
    if (j->where != JOB_STARTED || m->attempt != j->attempt)
        return; /* of an earlier attempt, said again */
    SIM_CHECK("jobs",
              m->step >= 0 && m->step <= j->steps && (m->steps == 0 || m->steps == j->steps),
              "job %" PRId64 ": step %" PRId64 " of %" PRId64, j->id, m->step, m->steps);
    if (m->state == MSG_JOB_RUNNING || m->state == MSG_JOB_COMPLETING || m->state == MSG_JOB_DONE)
        SIM_CHECK("durable", m->step >= j->told_step && m->step >= j->ckpt_step,
                  "job %" PRId64 " is at step %" PRId64 ", and was at %" PRId64
                  " with a checkpoint of %" PRId64,
                  j->id, m->step, j->told_step, j->ckpt_step);
    switch (m->state) {
    case MSG_JOB_DONE:
        check_result(j);
        end(j);
        return;
    case MSG_JOB_FAILED:
        on_failed(j, m);
        return;
    case MSG_JOB_CANCELLED:
        SIM_CHECK("epoch", j->cancel_asked, "job %" PRId64 " was cancelled by nobody", j->id);
        end(j);
        return;
    case MSG_JOB_SUSPENDED:
        check_suspended(j, m);
        again(j);
        return;
    case MSG_JOB_RUNNING:
        j->told_step = m->step;
        return;
    default:
        return;
    }
}

static void on_checkpoint(const struct msg_job_checkpoint *m)
{
    struct script_job *j = job_of(m->job);

    if (!j || j->where == JOB_ENDED)
        return;
    if (m->attempt == j->attempt && m->step > j->ckpt_step) {
        j->ckpt_step = m->step;
        sh_strlcpy(j->ckpt, m->path, sizeof(j->ckpt));
        sh_strlcpy(j->digest, m->digest, sizeof(j->digest));
    }
}

static void on_saved(const struct msg_job_saved *m)
{
    const struct script_job *j = job_of(m->job);

    SIM_CHECK("jobs", j && m->asked > 0 && m->asked <= j->save_asked,
              "a checkpoint was saved for wish %" PRId64 ", which is none", m->asked);
    if (m->rc == 0 && m->attempt == j->attempt && j->where != JOB_ENDED)
        SIM_CHECK("durable", j->ckpt_step >= m->step,
                  "wish %" PRId64 " was answered with step %" PRId64 ", and the newest is %" PRId64,
                  m->asked, m->step, j->ckpt_step);
}

static void on_evaluated(const struct msg_job_evaluated *m)
{
    SIM_CHECK("jobs", strlen(m->text) < SH_JOB_EVALUATION_BYTES, "an evaluation is too long");
}

void script__jobs_on(const struct sh_msg *m)
{
    switch (m->type) {
    case MSG_JOB_STATE:
        on_state(&m->u.job_state);
        return;
    case MSG_JOB_CHECKPOINT:
        on_checkpoint(&m->u.job_checkpoint);
        return;
    case MSG_JOB_SAVED:
        on_saved(&m->u.job_saved);
        return;
    case MSG_PONG:
        on_pong(&m->u.pong);
        return;
    case MSG_JOB_EVALUATED:
        on_evaluated(&m->u.job_evaluated);
        return;
    default:
        return;
    }
}

/* ------------------------------------------------------------------ connections */

void script__jobs_hello(void)
{
    for (size_t i = 0; i < n_jobs; i++)
        jobs[i].is_reported = false;
    if (told_by != script.e->proc || told_life != sim_proc_generation(script.e->proc))
        for (size_t i = 0; i < n_jobs; i++)
            jobs[i].told_step = 0;
    told_by = script.e->proc;
    told_life = sim_proc_generation(told_by);
}

/* One that it does not name is not there any more. */
void script__jobs_synced(void)
{
    struct script_job *j = at < n_jobs ? &jobs[at] : NULL;

    if (j && j->where == JOB_STARTED && !j->is_reported)
        again(j);
    if (j && j->where == JOB_STARTED && j->stop_ns) {
        j->stop_ns = sim_now();
        stop(j, j->cancel_asked ? MSG_JOB_HOW_CANCEL : MSG_JOB_HOW_SUSPEND, script__epoch());
    }
}

void script__jobs_ending(void)
{
    n_gains_then = n_gains;
}

/* A job need not end, but it gets on where nobody else wants the device. */
bool script__jobs_are_through(void)
{
    return at >= n_jobs || n_gains > n_gains_then;
}

bool script__jobs_are_idle(void)
{
    return at >= n_jobs || jobs[at].where != JOB_STARTED;
}
