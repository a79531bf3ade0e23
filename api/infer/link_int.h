/* link_int.h - what link*.c share. Nobody else includes it. */
#ifndef SH_API_INFER_LINK_INT_H
#define SH_API_INFER_LINK_INT_H

#include "api/infer/link.h"
#include "common/units.h"
#include "common/wire.h"

#define LINK_BUCKETS 4096u
#define LINK_MAX_LOADS 64u /* at once; what is more is loaded again when its pause is over */
#define LIMBO_NS SH_S(10)  /* what the clocks and the messages may take */
#define LINK_MAX_RUN_MS UINT64_C(86400000)
#define LINK_RETRY_MS 1000
#define LINK_MAX_ASLEEP 16u /* threads that are woken together; others at once */
#define LINK_LOST_TEXT "the scheduler was lost; try again"
#define LINK_LATE_TEXT "the request was not answered in time"

enum { CMD_OPEN = 1, CMD_READY = 2, CMD_CANCEL = 4 };
enum { HINT_JOBS = 1, HINT_MODELS = 2, HINT_REACHED = 4 };

struct link_exec { /* one executor's data connection */
    struct link *link;
    char name[64], addr[256];
    struct sh_link *wire;
    bool ready;      /* it said DATA_READY */
    int64_t down_ns; /* since when it is not */
    int64_t up_ns;   /* when it was ready last; 0: never */
    bool local;      /* shares the slab's memory */
    bool confirmed;  /* the scheduler named it since it last said WELCOME */
};

struct link_asleep { /* a thread whose request was resumed */
    const struct api_front *front;
    void *thread;
};

struct link {
    struct api *api;
    struct sh_loop *loop;
    pthread_t thread;
    bool has_thread;
    uint64_t api_id;
    pthread_mutex_t lock; /* the command queue and hints */
    struct infer *head, *tail;
    unsigned hints;
    int64_t loads[LINK_MAX_LOADS]; /* versions of link_hint_load() */
    size_t n_loads;
    struct link_ask *new_asks;
    struct msg_span_wish wishes[MSG_SPAN_WISHES]; /* of link_want_spans() */
    size_t n_wishes;
    bool ended; /* the thread is gone: nobody takes commands */
    atomic_bool up, stop;
    atomic_int n_open;
    _Atomic uint64_t next_rid;
    /* Link thread only. */
    struct sh_link *scheduler;
    struct sh_timer *timer;
    struct infer *buckets[LINK_BUCKETS];
    struct infer *all;
    struct link_ask *asks; /* sent, not answered */
    unsigned n_asks;
    struct link_exec **execs; /* OWNED */
    size_t n_execs, cap_execs;
    int64_t welcome_ns;
    int64_t run_ns;    /* the longest that an executor's run may be on its device */
    int64_t hinted_ns; /* the last hint about jobs */
    struct link_asleep asleep[LINK_MAX_ASLEEP];
    size_t n_asleep;
};

/* link.c */
struct infer *link__find(struct link *l, uint64_t rid);
/* Completes. may_run: an executor may still write into the slots; they stay until it says that the
 * run is over, or until it must be. */
void link__end(struct link *l, struct infer *i, const struct infer_result *r, bool may_run);
void link__fail(struct link *l, struct infer *i, int rc, const char *msg, bool may_run);
void link__send(struct link *l, const struct sh_msg *m);

/* link_ask.c */
void link__ask_send(struct link *l); /* those that are new */
void link__ask_answer(struct link *l, const struct msg_job_explained *m);
void link__ask_sweep(struct link *l, bool all); /* those whose time is over, or all */

/* link_data.c: executors. */
void link__exec_up(struct link *l, const struct msg_exec_up *m);
void link__exec_sweep(struct link *l);
void link__send_to_all(struct link *l, const struct sh_msg *m); /* those that are ready */
void link__exec_free_all(struct link *l);
/* The request was placed: a result of that executor that came before counts now. False: none. */
bool link__take_early(struct link *l, struct infer *i);
/* Was it placed on an executor that cannot be reached from here for too long to wait on? */
bool link__is_out_of_reach(struct link *l, const struct infer *i, int64_t now_ns);
/* To a remote executor: input bytes, once ready and placed. Nothing to do for a local one. If the
 * result of its run may be lost, asks the scheduler whether it still has the request. */
void link__send_inputs(struct link *l, struct infer *i);

#endif
