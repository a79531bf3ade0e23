/* main.c - runs seeds of a scenario, several at a time, and finds the few faults that matter to one
 * that breaks an oracle.
 *
 *   sim [--scenario NAME] [--seeds FIRST-LAST | --seconds N] [--jobs N] [--lives]
 *   sim [--scenario NAME] --seed N [--trace] [--faults I,K,...] [--shrink]
 *
 * A seed is a process of its own: what the system leaks goes with it. */
#include "common/log.h"
#include "common/mem.h"
#include "tests/sim/lives.h"
#include "tests/sim/scenario.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ASK_PERSONALITY 0xffffffffUL
#define MAX_FAULTS 4096u
#define MAX_JOBS 64
#define MAX_TEXT 8192    /* the result of a seed is part of it */
#define SEED_LIMIT_S 120 /* of real time: one that takes longer hangs */

static const struct sim_scenario *const SCENARIOS[] = {&SIM_WORLD, &SIM_SCHED, &SIM_EXECUTOR,
                                                       &SIM_SYSTEM};

struct fault {
    int64_t at_ns;
    const struct sim_fault_kind *kind;
    uint64_t r[3];
    bool is_left_out;
};

static struct {
    const struct sim_scenario *scenario;
    struct fault faults[MAX_FAULTS];
    unsigned n_hit;
} plan;

struct result { /* from the process of a seed */
    uint64_t hash, n_events;
    unsigned n_hit;
    bool is_done;
    struct taken lives;
};

/* ------------------------------------------------------------------ one seed */

static const struct sim_fault_kind *draw_kind(const struct sim_scenario *s)
{
    uint64_t all = 0, at;

    for (size_t i = 0; i < s->n_kinds; i++)
        all += s->kinds[i].weight;
    at = sim_below(all);
    for (size_t i = 0; i < s->n_kinds; i++) {
        if (at < s->kinds[i].weight)
            return &s->kinds[i];
        at -= s->kinds[i].weight;
    }
    return NULL;
}

static void on_fault(void *arg, uint64_t n)
{
    struct fault *f = arg;

    plan.n_hit++;
    sim_trace("fault %llu %s", (unsigned long long)n, f->kind->name);
    f->kind->hit(f->r);
}

static unsigned n_faults_of(const struct sim_scenario *s, uint64_t seed)
{
    return s->few_each && seed % s->few_each == 0 ? s->n_few : s->n_faults;
}

static void draw_plan(const struct sim_scenario *s, uint64_t seed)
{
    for (unsigned i = 0; i < n_faults_of(s, seed); i++) {
        struct fault *f = &plan.faults[i];

        f->at_ns = sim_between(s->calm_ns, s->faults_ns);
        f->kind = draw_kind(s);
        for (size_t k = 0; k < SH_ARRAY_LEN(f->r); k++)
            f->r[k] = sim_random();
        if (!f->is_left_out)
            sim_world_after(f->at_ns, on_fault, f, i);
    }
}

static struct result run_here(const struct sim_scenario *s, uint64_t seed)
{
    struct rlimit files = {65536, 65536};

    setrlimit(RLIMIT_NOFILE, &files);
    alarm(SEED_LIMIT_S);
    sim_begin(seed);
    draw_plan(s, seed);
    s->setup();
    sim_run(s->faults_ns);
    if (s->heal)
        s->heal();
    sim_run(s->end_ns);
    if (s->finish)
        s->finish();
    return (struct result){sim_trace_hash(), sim_n_events(), plan.n_hit, true, sim_lives};
}

/* ------------------------------------------------------------------ seeds in processes */

struct job {
    pid_t pid;
    uint64_t seed;
    int out; /* its result, then what it printed */
};

/* Of gcc's --coverage, if it was built with that: _exit() would lose what was counted. */
void __gcov_dump(void) __attribute__((weak));

static void in_child(const struct sim_scenario *s, uint64_t seed, int out)
{
    struct result r;

    if (dup2(out, STDOUT_FILENO) < 0 || !freopen("/dev/null", "w", stderr))
        _exit(2);
    r = run_here(s, seed);
    fflush(stdout);
    if (write(out, &r, sizeof(r)) != (ssize_t)sizeof(r))
        _exit(2);
    if (__gcov_dump)
        __gcov_dump();
    _exit(0);
}

static struct job start_job(const struct sim_scenario *s, uint64_t seed)
{
    struct job j = {.seed = seed};
    int fds[2];

    fflush(stdout);
    if (pipe(fds) < 0 || (j.pid = fork()) < 0) {
        perror("sim");
        exit(2);
    }
    if (j.pid == 0) {
        close(fds[0]);
        in_child(s, seed, fds[1]);
    }
    close(fds[1]);
    j.out = fds[0];
    return j;
}

/* What it printed lies in text; the result, if it came to its end, is the last of it. */
static struct result end_job(const struct job *j, char text[static MAX_TEXT], int *status)
{
    struct result r = {0};
    siginfo_t end = {0};
    size_t n = 0;
    ssize_t got;

    while (n < MAX_TEXT - 1 && (got = read(j->out, text + n, MAX_TEXT - 1 - n)) > 0)
        n += (size_t)got;
    close(j->out);
    waitid(P_PID, (id_t)j->pid, &end, WEXITED); /* waitpid() is the simulation's */
    *status = end.si_code == CLD_EXITED ? end.si_status << 8 : end.si_status;
    if (*status == 0 && n >= sizeof(r)) {
        memcpy(&r, text + n - sizeof(r), sizeof(r));
        n -= sizeof(r);
    }
    text[n] = '\0';
    return r;
}

struct total {
    uint64_t n_seeds, n_faults, n_events, n_broken;
    int64_t sim_ns;
    struct taken lives;
};

static void take(const struct sim_scenario *s, const struct job *j, struct total *t)
{
    char text[MAX_TEXT];
    int status = 0;
    struct result r = end_job(j, text, &status);

    t->n_seeds++;
    if (r.is_done) {
        t->n_faults += r.n_hit;
        t->n_events += r.n_events;
        t->sim_ns += s->end_ns;
        sim_lives_add(&t->lives, &r.lives);
        return;
    }
    t->n_broken++;
    printf("seed %llu: %s%s", (unsigned long long)j->seed, text[0] ? text : "no word of it",
           text[0] && text[strlen(text) - 1] == '\n' ? "" : "\n");
    if (WIFSIGNALED(status))
        printf("seed %llu: ended by signal %d\n", (unsigned long long)j->seed, WTERMSIG(status));
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct total run_seeds(const struct sim_scenario *s, uint64_t first, uint64_t last,
                              double for_s, unsigned n_jobs)
{
    struct job jobs[MAX_JOBS];
    struct pollfd polls[MAX_JOBS];
    struct total t = {0};
    double end = seconds() + for_s;
    unsigned n = 0;

    for (uint64_t next = first;;) {
        for (; n < n_jobs && next <= last && (for_s <= 0 || seconds() < end); next++)
            jobs[n++] = start_job(s, next);
        if (n == 0)
            return t;
        for (unsigned i = 0; i < n; i++)
            polls[i] = (struct pollfd){.fd = jobs[i].out, .events = POLLIN};
        if (poll(polls, n, -1) < 0 && errno != EINTR)
            return t;
        for (unsigned i = n; i-- > 0;)
            if (polls[i].revents) {
                take(s, &jobs[i], &t);
                jobs[i] = jobs[--n];
            }
    }
}

static int report(const struct sim_scenario *s, const struct total *t, double took_s)
{
    printf("%s: %llu seeds, %llu faults, %.3g events, %.0f simulated seconds in %.1f s: %.0f a "
           "second; %llu broken\n",
           s->name, (unsigned long long)t->n_seeds, (unsigned long long)t->n_faults,
           (double)t->n_events, (double)t->sim_ns / 1e9, took_s, (double)t->sim_ns / 1e9 / took_s,
           (unsigned long long)t->n_broken);
    return t->n_broken || t->n_seeds == 0;
}

/* ------------------------------------------------------------------ the faults that matter */

/* The oracle that breaks without the faults that are left out; "": none does. */
static void broken_by(const struct sim_scenario *s, uint64_t seed, char name[static 64])
{
    struct job j = start_job(s, seed);
    char text[MAX_TEXT];
    const char *at;
    int status = 0;
    struct result r = end_job(&j, text, &status);

    name[0] = '\0';
    if (r.is_done)
        return;
    at = strstr(text, "BROKEN ");
    if (!at || sscanf(at, "BROKEN %63s", name) != 1)
        snprintf(name, 64, "signal%d", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

/* Zeller and Hildebrandt's ddmin, on the list of faults: leaves out pieces, large ones first, as
 * long as the same oracle breaks. */
static void shrink(const struct sim_scenario *s, uint64_t seed)
{
    char name[64], now[64];
    const unsigned all = n_faults_of(s, seed);
    unsigned left = all;

    broken_by(s, seed, name);
    if (!name[0]) {
        printf("seed %llu breaks nothing\n", (unsigned long long)seed);
        return;
    }
    for (unsigned piece = all; piece > 0; piece /= 2)
        for (unsigned from = 0; from < all; from += piece) {
            unsigned to = SH_MIN(from + piece, all), out[MAX_FAULTS], n = 0;

            for (unsigned i = from; i < to; i++)
                if (!plan.faults[i].is_left_out) {
                    plan.faults[i].is_left_out = true;
                    out[n++] = i;
                }
            if (n == 0)
                continue;
            broken_by(s, seed, now);
            left -= n;
            if (strcmp(now, name) == 0)
                continue;
            left += n;
            for (unsigned i = 0; i < n; i++)
                plan.faults[out[i]].is_left_out = false;
        }
    printf("%s breaks with %u of %u faults: --faults ", name, left, all);
    for (unsigned i = 0, n = 0; i < all; i++)
        if (!plan.faults[i].is_left_out)
            printf("%s%u", n++ ? "," : "", i);
    puts(left ? "" : "none");
}

/* ------------------------------------------------------------------ options */

static void only_faults(const char *list)
{
    char *end;

    for (unsigned i = 0; i < MAX_FAULTS; i++)
        plan.faults[i].is_left_out = true;
    for (; *list && strcmp(list, "none") != 0; list = *end ? end + 1 : end) {
        unsigned long i = strtoul(list, &end, 10);

        if (end == list || i >= MAX_FAULTS) {
            fprintf(stderr, "sim: --faults takes numbers with commas, or none\n");
            exit(2);
        }
        plan.faults[i].is_left_out = false;
    }
}

struct options {
    const char *scenario;
    uint64_t first, last, seed;
    double for_s;
    unsigned jobs;
    bool one, trace, shrinks, is_verbose, lives;
};

static void take_seeds(struct options *o, const char *text)
{
    char *end;

    o->first = strtoull(text, &end, 10);
    o->last = *end == '-' ? strtoull(end + 1, &end, 10) : o->first;
    if (*end || o->last < o->first) {
        fprintf(stderr, "sim: --seeds takes FIRST-LAST, not %s\n", text);
        exit(2);
    }
}

static void take_option(struct options *o, int c)
{
    switch (c) {
    case 'c':
        o->scenario = optarg;
        break;
    case 'S':
        take_seeds(o, optarg);
        break;
    case 't':
        o->for_s = strtod(optarg, NULL);
        o->first = (uint64_t)time(NULL) << 20;
        o->last = UINT64_MAX;
        break;
    case 's':
        o->one = true;
        o->seed = strtoull(optarg, NULL, 10);
        break;
    case 'j':
        o->jobs = (unsigned)strtoul(optarg, NULL, 10);
        break;
    case 'f':
        only_faults(optarg);
        break;
    case 'v':
        o->trace = true;
        break;
    case 'l':
        o->is_verbose = true;
        break;
    case 'L':
        o->lives = true;
        break;
    case 'k':
        o->shrinks = true;
        break;
    default:
        exit(2);
    }
}

static struct options parse(int argc, char **argv)
{
    static const struct option LIST[] = {
        {"scenario", 1, NULL, 'c'}, {"seeds", 1, NULL, 'S'},  {"seconds", 1, NULL, 't'},
        {"seed", 1, NULL, 's'},     {"jobs", 1, NULL, 'j'},   {"faults", 1, NULL, 'f'},
        {"trace", 0, NULL, 'v'},    {"shrink", 0, NULL, 'k'}, {"log", 0, NULL, 'l'},
        {"lives", 0, NULL, 'L'},    {NULL, 0, NULL, 0}};
    struct options o = {.scenario = SCENARIOS[0]->name,
                        .first = 1,
                        .last = 100,
                        .jobs = (unsigned)sysconf(_SC_NPROCESSORS_ONLN)};
    int c;

    while ((c = getopt_long(argc, argv, "", LIST, NULL)) >= 0)
        take_option(&o, c);
    o.jobs = SH_MIN(SH_MAX(o.jobs, 1u), (unsigned)MAX_JOBS);
    return o;
}

/* In how many pieces memory is page-locked depends on where it lies (runtime/device/lock.h). Where
 * this is not allowed, a seed is the same but for that. */
static void keep_addresses(char **argv)
{
    const int now = personality(ASK_PERSONALITY);

    if (now == -1 || now & ADDR_NO_RANDOMIZE ||
        personality((unsigned long)now | ADDR_NO_RANDOMIZE) == -1)
        return;
    execv("/proc/self/exe", argv);
    perror("sim: execv");
    exit(2);
}

int main(int argc, char **argv)
{
    struct options o = parse(argc, argv);
    const struct sim_scenario *s = NULL;
    double began = seconds();
    struct total t;

    keep_addresses(argv);
    sh_log_init("sim", o.is_verbose ? SH_LOG_INFO : SH_LOG_ERROR);
    for (size_t i = 0; i < SH_ARRAY_LEN(SCENARIOS); i++)
        if (strcmp(SCENARIOS[i]->name, o.scenario) == 0)
            s = SCENARIOS[i];
    if (!s || s->n_faults > MAX_FAULTS) {
        fprintf(stderr, "sim: there is no scenario %s\n", o.scenario);
        return 2;
    }
    if (o.shrinks) {
        shrink(s, o.seed);
        return 0;
    }
    if (o.one) {
        struct result r;

        sim_trace_show(o.trace);
        r = run_here(s, o.seed);
        printf("seed %llu: %u faults, %llu events, trace %016llx\n", (unsigned long long)o.seed,
               r.n_hit, (unsigned long long)r.n_events, (unsigned long long)r.hash);
        return 0;
    }
    t = run_seeds(s, o.first, o.last, o.for_s, o.jobs);
    if (o.lives)
        sim_lives_print(&t.lives);
    return report(s, &t, seconds() - began);
}
