/* executors.h - the executors: who is connected, what each is doing, what it costs to use it.
 *
 * An executor keeps its slot (its index in snapshots and in models) while it is disconnected. On
 * connecting it sends EXEC_HELLO and reports every model and job it holds; after EXEC_SYNCED it
 * gets work. Its report is compared with our records: jobs that are not its own are stopped, and
 * our jobs that it did not report go back to the queue. When it disconnects, requests placed there
 * are placed anew, running ones are LOST (request.h), and its jobs wait for --grace-ms.
 *
 * One that was told to end says that it is stopping. It stays connected for the end of its runs and
 * jobs, and gets nothing new.
 */
#ifndef SH_SCHEDULER_PEERS_EXECUTORS_H
#define SH_SCHEDULER_PEERS_EXECUTORS_H

#include "common/idmap.h"
#include "common/msg.h"
#include "common/units.h"
#include "scheduler/database/store.h"
#include "scheduler/decide/demand.h"
#include "scheduler/decide/jobpool.h"
#include "scheduler/decide/placement.h"
#include "scheduler/decide/thrash.h"

#include <stdbool.h>
#include <stdint.h>

#define FIRST_NS_PER_BYTE 0.1  /* of a link, until it is measured: 10 GB/s */
#define FIRST_STOP_NS SH_MS(1) /* time to stop training, until measured */

struct sched;
struct session;
struct model;
struct request;
struct run;

struct exec_requests { /* a list of requests: waiting.h */
    struct request *first, *last;
    size_t n;
};

struct exec_state { /* of the device; zeros: not reported */
    char device_name[64];
    uint64_t device_bytes, weights, training, workspace;
    uint64_t host_images, host_programs, host_limit; /* host memory of models */
    double link_bytes_per_s, disk_bytes_per_s;
    uint32_t fences; /* enum msg_fence; 0: not known yet */
    char fences_why[256];
    bool is_stopping;
};

struct recent;

struct exec {
    uint32_t index;
    struct store_executor info; /* name, host, device, addresses; fence unused */
    uint32_t n_workers;
    struct exec_state state;
    uint64_t most_workspace;              /* of one run, by what it said */
    int64_t busy_ns[2], shown_busy_ns[2]; /* requests, jobs; as of the last report (report.c) */
    int64_t shown_ns;                     /* when that was */
    struct recent *recent; /* OWNED: who had its device of late; NULL: it has not said so */
    uint64_t incarnation;
    struct session *session; /* NULL while away */
    uint64_t serial;         /* of the current or last session */
    bool synced;
    uint64_t memory_told; /* changes of tenants' memory quotas that it has been told */
    int64_t lost_ns;
    uint32_t n_runs;
    struct run *runs;             /* BORROWED list, oldest first; request.c owns them */
    struct demand demand;         /* of those requests that it could answer */
    struct thrash thrash;         /* the same, and of their weights */
    struct exec_requests waiting; /* BORROWED: placed here, and in no run yet */
    struct exec *next_touched;    /* waiting.h */
    bool is_touched;
    uint32_t snap;   /* index in the snapshot of the present pass; SNAP_NONE: it is not in it */
    int64_t done_ns; /* end of the last run */
    double reserve;  /* snap_exec.reserve */
    int64_t last_version;   /* of the last run that was sent; 0: none */
    double ns_per_byte;     /* measured */
    double link;            /* bytes a second, as this executor last said; 0: it has not */
    bool rows_are_old;      /* in the database, older than its connection: report.c removes them */
    int64_t stop_ns;        /* measured */
    int64_t lane_ns;        /* predicted end of the copies it was given, and that go on */
    struct exec_ahead {     /* what comes before somebody asks, and gives way to all others */
        int64_t version_id; /* 0: nothing */
        int64_t until_ns;
    } ahead;
    int64_t job;     /* job that holds the training slot; 0: none. jobs.c */
    int64_t leaving; /* job told to stop for good that has not reported its end */
    struct jobpool_slot slot;
    struct place_exec homes;  /* models/homes.c */
    struct model *next_ahead; /* models/ahead.c: scratch */
    double speed;             /* of its device, measured; 1: as that of the first one */
    struct exec *next_changed;
    bool is_changed;
};

struct execs {
    struct exec **items;  /* OWNED */
    size_t n, cap;        /* cap: tables by executor have so many rows */
    struct idmap by_name; /* by a hash of it */
    struct exec *changed; /* since jobs_sync(): list, by next_changed */
};

void execs_fini(struct execs *x);
struct exec *execs_find(const struct execs *x, const char *name); /* NULL if never seen */
/* Fails: SH_E_NOMEM; then it is as it was. */
int execs_rename(struct execs *x, struct exec *e, const char *name, struct sh_err *err);
/* What decisions about jobs rest on has changed: whether it is up, its runs, who has its slot. */
void exec_changed(struct execs *x, struct exec *e);
/* Connected and synchronised, and not about to end: it takes work. */
bool exec_is_up(const struct exec *e);
/* Device memory that images may have there, but for training's. */
uint64_t exec_image_bytes(const struct exec *e);
/* Predicted end of its work; *slack: how much slower one of its runs may be. */
int64_t exec_busy_until_ns(const struct exec *e, int64_t now_ns, int64_t *slack);

/* exec_msgs.c */
int execs_on_hello(struct sched *s, struct session *x, const struct msg_exec_hello *m,
                   struct sh_err *err);
void execs_on_msg(struct sched *s, struct exec *e, const struct sh_msg *m);
void execs_on_close(struct sched *s, struct exec *e, const char *why);

/* executors.c */
/* Sends EXEC_UP for each connected executor. */
void execs_tell_api(struct sched *s, struct session *api);
/* Sends EXEC_UP to all APIs. */
void execs_tell_apis(struct sched *s, const struct exec *e, bool up);
/* Sends what changed in tenants' memory quotas. */
void execs_tell_memory(struct sched *s);
void exec_tell_memory(struct sched *s, struct exec *e);
void execs_metrics(struct sched *s);

#endif
