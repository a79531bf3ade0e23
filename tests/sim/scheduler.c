/* scheduler.c - see scheduler.h. */
#include "tests/sim/scheduler.h"

#include "common/clock.h"
#include "common/metrics.h"
#include "common/units.h"
#include "scheduler/sched.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_OPTIONS 32

struct sim_scheduler {
    struct sim_proc *proc;
    const char *const *options;
    struct sched *sched; /* of the process that lives */
};

int sim_nanosleep(const struct timespec *t, struct timespec *rest)
{
    (void)rest;
    sh_clock_advance((int64_t)t->tv_sec * SH_S(1) + t->tv_nsec);
    sim_dbthreads_pump();
    return 0;
}

int sim_bytes(void *out, size_t n, struct sh_err *err)
{
    unsigned char *p = out;

    (void)err;
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)sim_random();
    return SH_OK;
}

/* A full look that finds what the leader did not know: it was not told of a change. */
void sim_count(enum sh_metric m, const char *const *labels, double v)
{
    (void)labels;
    SIM_CHECK("view", m != M_shunt_view_differences_total || v == 0,
              "a full look has found what no change had told of");
}

struct sim_scheduler *sim_scheduler_new(const char *name, unsigned host, const char *const *options)
{
    struct sim_scheduler *s = calloc(1, sizeof(*s));

    s->proc = sim_proc_new(name, host);
    s->options = options;
    return s;
}

static void must(int rc, const struct sh_err *err)
{
    if (rc)
        sim_broken("simulator", "a scheduler cannot begin: %s %s", err->msg, err->detail);
}

static void run(void *arg)
{
    struct sim_scheduler *s = arg;
    struct sched_conf *conf = calloc(1, sizeof(*conf));
    enum sh_conf_action action;
    char name[64], listen[64], *argv[MAX_OPTIONS];
    struct sh_loop *loop = NULL;
    struct sh_err err = {0};
    int argc = 0;

    snprintf(name, sizeof(name), "--name=%s", sim_proc_name(s->proc));
    snprintf(listen, sizeof(listen), "--listen=tcp:%s:1", sim_proc_name(s->proc));
    argv[argc++] = (char *)"shunt-scheduler";
    argv[argc++] = name;
    argv[argc++] = listen;
    argv[argc++] = (char *)"--link-plaintext";
    for (size_t i = 0; s->options[i] && argc < MAX_OPTIONS - 1; i++)
        argv[argc++] = (char *)s->options[i];
    argv[argc] = NULL;
    must(sh_conf_load(&SCHED_CONF, conf, argc, argv, NULL, NULL, &action, &err), &err);
    must(sh_loop_new(&loop, &err), &err);
    must(sched_new(conf, loop, &s->sched, &err), &err);
}

void sim_scheduler_start(struct sim_scheduler *s)
{
    s->sched = NULL;
    sim_proc_start(s->proc, NULL, run, s);
}

static void stop(void *arg)
{
    struct sim_scheduler *s = arg;

    sched_free(s->sched);
    s->sched = NULL;
    sim_proc_kill(s->proc, 0); /* before its loop comes to its hooks */
}

void sim_scheduler_stop(struct sim_scheduler *s)
{
    if (!sim_proc_is_alive(s->proc) || sim_proc_is_paused(s->proc))
        return;
    sim_trace("stop");
    sim_within(s->proc, stop, s);
}

struct sim_proc *sim_scheduler_proc(const struct sim_scheduler *s)
{
    return s->proc;
}

const struct sched *sim_scheduler_look(const struct sim_scheduler *s)
{
    return sim_proc_is_alive(s->proc) ? s->sched : NULL;
}
