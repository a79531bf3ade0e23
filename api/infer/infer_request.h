/* infer_request.h - one inference request, from its headers to its reply.
 *
 *   begin   HTTP thread, headers known: finds the model, takes room in the slab, sends INFER_OPEN
 *           (for a small body together with INFER_READY)
 *   piece   HTTP thread: body bytes go straight to the slab
 *   main    the body is complete: parses and checks it, sends INFER_READY, and the connection
 *           sleeps; called again when link.c has the result: makes the reply from the slab
 *   settle  the client's answer is known: counts it, before a byte of the reply is sent
 *   close   the connection is done
 *
 * Shared by an HTTP thread and the link thread, with a reference count. Both touch only the fields
 * under `lock`; `link` belongs to the link thread.
 */
#ifndef SH_API_INFER_INFER_REQUEST_H
#define SH_API_INFER_INFER_REQUEST_H

#include "api/cache/catalog.h"
#include "api/infer/infer_plan.h"
#include "api/infer/parsed.h"
#include "api/infer/regions.h"
#include "api/request/req.h"
#include "api/request/slab.h"
#include "common/loop.h"
#include "common/msg.h"

#include <pthread.h>
#include <stdatomic.h>

struct infer_result {
    int rc;
    char msg[512];
    int64_t retry_after_ms;
    bool is_final;        /* asking again gives the same: rc says whose limit stands in the way */
    int64_t predicted_ms; /* why it was refused for its deadline; else 0 */
    int64_t run_batch, queue_ns, copy_ns, compute_ns, total_ns;
    int64_t compile_ns; /* it waited so long for its shape; 0: it did not */
};

struct infer_link {    /* link thread only */
    bool is_late;      /* is opened with READY; set before the link knows of it */
    unsigned commands; /* LINK_*: under the link's queue lock */
    bool queued;
    struct infer *next_command;
    struct infer *next_hash;
    struct infer *prev, *next; /* all that are known to the link */
    struct sh_io *watch;
    bool opened, ready, placed, sent, over;
    bool moved; /* it was to run again: an executor may have another run of it, and write to it */
    uint32_t n_placed;
    uint64_t out_bytes; /* of outputs, that have come since its inputs went to a remote executor */
    int64_t ready_ns;   /* READY went to the scheduler: no run of it began before */
    bool orphan;        /* its scheduler was lost; only the executor can still answer it */
    char executor[64];
    /* A result may be here before the word of the scheduler that this executor has the request. */
    char early_from[64]; /* "": none */
    struct infer_result early;
    int64_t deadline_ns;
    int64_t compile_ns;     /* of infer_result */
    int64_t drain_until_ns; /* over, but an executor may still write to its slots until then */
};

struct infer {
    atomic_int refs;
    struct api *api;
    struct api_req *q; /* BORROWED: valid while waiting */
    uint64_t rid;
    struct cat_table *table; /* keeps v alive */
    const struct cat_version *v;
    const struct cat_alias *alias; /* that chose it; BORROWED from the table; NULL: none */
    char tenant[64];
    int64_t tenant_id;
    struct api_trace trace;               /* traced.h */
    char id[72];                          /* of the request, as the client knows it */
    int fd;                               /* of the connection, or -1: req_fd() */
    int64_t begin_ns, body_ns, answer_ns; /* first line; body complete; result here */
    size_t body_bytes, header_bytes, received;
    struct slab_slot *body, *brought, *outputs;
    struct region *out_regions[CAT_MAX_IO]; /* in the order of the reply; NULL: none */
    size_t lead; /* bytes before the body in its slot: what follows its JSON is aligned then */
    struct parsed_text *parsed; /* OWNED: the plan's JSON; NULL: it has its own */
    struct infer_plan plan;
    bool submitted;
    pthread_mutex_t lock; /* from here to result */
    bool is_posted;       /* the link has all of it, so that link_cancel() brings an answer */
    bool is_abandoned;    /* its client has left */
    bool done, waiting;
    struct infer_result result;
    struct infer_link link;
    bool settled; /* HTTP thread only */
};

int infer_begin(struct api_req *q, struct sh_err *err);
int infer_piece(struct api_req *q, const char *data, size_t n, struct sh_err *err);
/* Counts it, once; rc: what the client will be told. NULL is allowed. Whoever has the reply finds
 * the request in statistics, metrics and the attainment of its target. */
void infer_settle(struct infer *i, int rc);
/* Its client has left: the answer comes at once, unless it is there already. NULL is allowed. */
void infer_abandon(struct infer *i);
void infer_close(struct infer *i); /* NULL is allowed; the request's reference */

/* For link.c. */
struct infer *infer_ref(struct infer *i);
void infer_unref(struct infer *i);
/* First call counts: stores the result. Returns the request if it waits, for the caller to wake,
 * else NULL. */
struct api_req *infer_complete(struct infer *i, const struct infer_result *r);

#endif
