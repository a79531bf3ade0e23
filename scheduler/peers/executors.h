/* executors.h - the executors: who is connected, what each is doing, what it costs to use it.
 *
 * An executor keeps its slot (its index in snapshots and in models) while it is away. It connects,
 * says EXEC_HELLO and reports every model and job it holds; with EXEC_SYNCED it gets work. What it
 * reports is compared with ours: jobs that are not its own are stopped, jobs of ours that it did
 * not report go back to the queue. When it goes away its requests are refused at once; its jobs
 * wait for --grace-ms.
 */
#ifndef SH_SCHEDULER_PEERS_EXECUTORS_H
#define SH_SCHEDULER_PEERS_EXECUTORS_H

#include "common/msg.h"
#include "scheduler/database/store.h"

#include <stdbool.h>
#include <stdint.h>

#define EXECS_MAX 64
#define FIRST_STOP_NS 1000000 /* of stopping training, until it is measured */

struct sched;
struct session;
struct run;

struct exec_state { /* of the device; zeros: it has not said */
    char device_name[64];
    uint64_t device_bytes, weights, training, workspace;
    uint64_t host_images, host_programs, host_limit; /* host memory of models */
    double link_bytes_per_s;
    uint32_t fences; /* enum msg_fence; 0: not known yet */
    char fences_why[256];
};

struct exec {
    uint32_t index;
    struct store_executor info; /* name, host, device, addresses; fence unused */
    uint32_t n_workers;
    struct exec_state state;
    int64_t busy_ns[2], shown_busy_ns[2]; /* requests, jobs; as of the last report (report.c) */
    int64_t shown_ns;                     /* when that was */
    uint64_t incarnation;
    struct session *session; /* NULL while away */
    uint64_t serial;         /* of the present or last session */
    bool synced;
    uint64_t memory_told; /* changes of tenants' memory that it knows of */
    int64_t lost_ns;
    uint32_t n_runs;
    struct run *runs;   /* BORROWED list, oldest first; request.c owns them */
    int64_t done_ns;    /* end of the last run */
    double ns_per_byte; /* measured */
    bool has_link;      /* it was, by this executor */
    int64_t stop_ns;    /* measured */
    int64_t lane_ns;    /* predicted end of the copies that were asked for */
    int64_t job;        /* that holds the training slot; 0 = none. jobs.c */
    int64_t leaving;    /* job that was told to stop for good and has not said that it has */
};

struct execs {
    struct exec *items[EXECS_MAX]; /* OWNED */
    size_t n;
};

void execs_fini(struct execs *x);
struct exec *execs_find(const struct execs *x, const char *name); /* NULL if never seen */
/* Connected and synchronised. */
bool exec_is_up(const struct exec *e);
/* Predicted end of what it has been given; *slack: by so much one of its runs may be slower. */
int64_t exec_busy_until_ns(const struct exec *e, int64_t now_ns, int64_t *slack);

/* exec_msgs.c */
int execs_on_hello(struct sched *s, struct session *x, const struct msg_exec_hello *m,
                   struct sh_err *err);
void execs_on_msg(struct sched *s, struct exec *e, const struct sh_msg *m);
void execs_on_close(struct sched *s, struct exec *e, const char *why);

/* executors.c */
void execs_tell_api(struct sched *s, struct session *api); /* EXEC_UP for each that is connected */
void execs_tell_apis(struct sched *s, const struct exec *e, bool up); /* EXEC_UP to all of them */
/* What changed of tenants' quotas of memory. */
void execs_tell_memory(struct sched *s);
void exec_tell_memory(struct sched *s, struct exec *e);
void execs_metrics(struct sched *s);

#endif
