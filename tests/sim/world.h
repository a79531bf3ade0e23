/* world.h - a whole system in one process and in virtual time: the world that it runs in.
 *
 * The real code of schedulers and executors runs unchanged. What connects it to the outside is
 * replaced at link time: the event loop and child processes (loop.c), connections (wire.c), the
 * device (device.c), the database (database.c), and the clock by sh_clock_fake(). All that is left
 * to chance comes from one generator, so a seed and a commit give the same run, byte for byte.
 *
 * A sim_proc is a process: a daemon, a worker, a client. It has a host, whose clocks differ from
 * those of other hosts. One that is killed loses its memory (it leaks: a seed runs in a child
 * process), its connections, its children, and all that was to happen in it. One that is paused
 * keeps them, and finds everything at once when it goes on.
 *
 * Events happen one at a time, in the order of their times, then of their making. Time stands still
 * while one is handled. One thread.
 */
#ifndef SH_TESTS_SIM_WORLD_H
#define SH_TESTS_SIM_WORLD_H

#include "common/units.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SIM_MAX_HOSTS 32u

struct sh_loop;
struct sim_proc;
typedef void sim_fn(void *arg);
typedef void sim_event_fn(void *arg, uint64_t n);

/* ------------------------------------------------------------------ time and chance */

void sim_begin(uint64_t seed);
int64_t sim_now(void); /* ns since the beginning: the true time, which no process knows */
uint64_t sim_random(void);
uint64_t sim_below(uint64_t n);                 /* 0 .. n-1; n > 0 */
int64_t sim_between(int64_t low, int64_t high); /* both included */
bool sim_chance(double p);

/* Handles events until the time is over. */
void sim_run(int64_t until_ns);
uint64_t sim_n_events(void);

/* In the world: happens whoever dies. */
void sim_world_after(int64_t delay_ns, sim_event_fn *fn, void *arg, uint64_t n);

/* ------------------------------------------------------------------ processes */

struct sim_proc *sim_proc_new(const char *name, unsigned host); /* not running; never freed */
/* Runs main(arg) in it, now. parent: NULL, or who hears of its end and ends it by his own. */
void sim_proc_start(struct sim_proc *p, struct sim_proc *parent, sim_fn *main, void *arg);
void sim_proc_kill(struct sim_proc *p, int wait_status); /* as waitpid() says it; 9: SIGKILL */
void sim_proc_pause(struct sim_proc *p);                 /* SIGSTOP */
void sim_proc_resume(struct sim_proc *p);
void sim_proc_pause_for(struct sim_proc *p, int64_t ns); /* and resumes it */
bool sim_proc_is_alive(const struct sim_proc *p);        /* running or paused */
bool sim_proc_is_paused(const struct sim_proc *p);
const char *sim_proc_name(const struct sim_proc *p);
unsigned sim_proc_host(const struct sim_proc *p);
pid_t sim_proc_pid(const struct sim_proc *p);           /* another one after each start */
struct sim_proc *sim_proc_of_pid(pid_t pid);            /* alive; NULL */
uint64_t sim_proc_generation(const struct sim_proc *p); /* another one after each start and end */
struct sim_proc *sim_self(void); /* whose event is handled; NULL: the world's */

/* In a process, after delay_ns of its time; does not happen once that has ended. */
void sim_after(struct sim_proc *p, int64_t delay_ns, sim_event_fn *fn, void *arg, uint64_t n);
/* fn(p) after each event of a process, behind its loop's hook; for oracles. */
void sim_on_turn(void (*fn)(struct sim_proc *p));
/* Runs fn(arg) in p at once, with its clock, and its loop's hook after it. */
void sim_within(struct sim_proc *p, sim_fn *fn, void *arg);

/* The clock of a host: how far it is ahead of the true time, and how fast it goes (ppm). */
void sim_host_clock(unsigned host, int64_t mono_ns, int64_t wall_ms, int64_t ppm);
void sim_host_wall(unsigned host, int64_t wall_ms); /* somebody sets the time of day */

/* ------------------------------------------------------------------ the net (wire.c) */

/* Between two hosts (one and the same: within it), both ways. */
void sim_net_cut(unsigned a, unsigned b); /* connections break, each end at its time */
void sim_net_block(unsigned a, unsigned b, int64_t ns); /* nothing gets through for so long */
void sim_net_slow(unsigned a, unsigned b, int64_t add_ns, int64_t for_ns);
bool sim_net_is_well(unsigned a, unsigned b);
struct sh_wire;
bool sim_wire_is_cut(const struct sh_wire *w); /* its process may not have heard of it */

/* ------------------------------------------------------------------ what loop.c is told */

/* What a started program is: the first whose name is argv[0]. main(arg) runs in the new process;
 * sim_spawned() gives what it was started with. */
struct sim_program {
    const char *name;
    sim_fn *main;
};
void sim_programs(const struct sim_program *list, size_t n);
struct sim_spawned {
    int fds[16]; /* OWNED by the child */
    size_t n_fds;
    int stdout_fd;           /* likewise; -1: none */
    const char *const *argv; /* a copy */
    struct sim_proc *parent;
};
const struct sim_spawned *sim_spawned(void); /* of sim_self() */

/* What main() does when the loop of its process has stopped. False: it is asked again. */
typedef bool sim_stopped_fn(void *arg);
void sim_loop_on_stop(struct sh_loop *l, sim_stopped_fn *fn, void *arg);

/* A watched descriptor (sh_io_add) has something to read: tells whoever watches it. */
void sim_fd_ready(int fd);

/* ------------------------------------------------------------------ what is told of a run */

/* A line of the trace. It counts for sim_trace_hash() whether it is shown or not. */
__attribute__((format(printf, 1, 2))) void sim_trace(const char *fmt, ...);
/* For what happens often: bytes that count for the hash, and a line that does not. */
void sim_note(const void *p, size_t n);
__attribute__((format(printf, 1, 2))) void sim_show(const char *fmt, ...);
void sim_trace_show(bool on);
uint64_t sim_trace_hash(void);
/* An oracle is broken: says so, and ends the process with SIM_EXIT_BROKEN. name: which oracle. */
#define SIM_EXIT_BROKEN 3
/* sh_grow() without a bound; no memory ends the run. */
void sim_grow(void *items, size_t *cap, size_t need, size_t item);
__attribute__((noreturn, format(printf, 2, 3))) void sim_broken(const char *name, const char *fmt,
                                                                ...);
#define SIM_CHECK(name, cond, ...)         \
    do {                                   \
        if (!(cond))                       \
            sim_broken(name, __VA_ARGS__); \
    } while (0)

#endif
