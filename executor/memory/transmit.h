/* transmit.h - copies to and from the device: lanes, marks, tickets; images sent in groups.
 *
 * One lane carries everything to the device in one order: moves, scrubs, weights, training state.
 * Another carries state out. Where the device has several links, groups of an image are divided
 * over them, in the same order towards all else (links.h). Each ticket slot belongs to one image
 * (or to one worker's checkpoints), so that forcing the tickets of a stuck switch releases nobody
 * else.
 *
 * A packed image (runtime/pack/pack.h) is sent as it lies in host memory, to the end of its range
 * on the device, where a worker unpacks it towards the beginning: layer by layer in order, none
 * reaches what is still packed. What is counted in "bytes" of an image is what goes over the link;
 * tx_link_bytes() tells how much that is of its first bytes on the device.
 *
 * While an image is being sent it keeps the list of its groups. A run that comes meanwhile waits
 * for their tickets, and nothing is copied twice.
 *
 * Belongs to the loop's thread.
 */
#ifndef SH_EXECUTOR_MEMORY_TRANSMIT_H
#define SH_EXECUTOR_MEMORY_TRANSMIT_H

#include "common/loop.h"
#include "common/msg.h"
#include "executor/memory/links.h"

#define TX_LANE_IN 0u      /* all that goes to the device, in one order */
#define TX_LANE_OUT 1u     /* what comes from it */
#define TX_SLOT_WORKER 0u  /* + index of the worker, at most 63: its checkpoints */
#define TX_SLOT_STATE 64u  /* training state on its way in */
#define TX_SLOT_INPUTS 65u /* inputs of the current run */
#define TX_SLOT_IMAGE 128u /* + id of the image */
#define TX_NO_TICKET UINT32_MAX
#define TX_MAX_MARKS 65536u

struct tx;
typedef void tx_done_fn(void *arg);

/* mem is BORROWED; links_lanes() has set its lanes. Measures each link: a copy takes alpha + beta *
 * bytes; beta follows the images that are sent. *out: OWNED, tx_free(). */
int tx_new(struct sh_loop *loop, struct dev_mem *mem, const char *executor, struct tx **out,
           struct sh_err *err);
void tx_free(struct tx *t); /* calls no callback any more */
/* Replaces tx_group() for images sent from now on; NULL: restores it. KEEPS arg. */
typedef int tx_group_fn(const void *arg, const uint64_t *missing, uint32_t n, uint32_t **ends,
                        uint32_t *n_ends, struct sh_err *err);
void tx_set_group(struct tx *t, tx_group_fn *fn, const void *arg);
struct dev_mem *tx_mem(struct tx *t);
const struct links *tx_links(const struct tx *t);
/* Of images, by all links together. */
double tx_alpha_ns(const struct tx *t);
double tx_beta_ns(const struct tx *t);
double tx_lane_beta_ns(const struct tx *t); /* of all else, by the device's own link */
/* Time until the copies to the device should be done; 0: idle. */
double tx_backlog_ns(const struct tx *t);

/* What copies are for, in the metrics. Moves within the arena are of weights. */
enum tx_purpose { TX_WEIGHTS, TX_INPUTS, TX_STATE, TX_CHECKPOINT, TX_N_PURPOSES };

/* [enqueue] copies, which count in the metrics. Offsets are bytes in the arena. */
int tx_in(struct tx *t, enum tx_purpose why, size_t off, const void *host, size_t bytes,
          struct sh_err *err);
int tx_out(struct tx *t, enum tx_purpose why, size_t off, void *host, size_t bytes,
           struct sh_err *err);
int tx_move(struct tx *t, size_t dst, size_t src, size_t bytes, struct sh_err *err);
int tx_zero(struct tx *t, size_t off, size_t bytes, struct sh_err *err);
int tx_ticket(struct tx *t, uint32_t lane, uint32_t slot, uint32_t value, struct sh_err *err);
/* Calls fn(arg) on the loop when the lane has done all it was given so far. KEEPS arg until then,
 * or until tx_forget(arg). */
int tx_mark(struct tx *t, uint32_t lane, tx_done_fn *fn, void *arg, struct sh_err *err);
void tx_forget(struct tx *t, const void *arg);
/* Nothing while something is on the lanes. Called now and then, the next copy finds the way warm
 * (dev_mem_rehearse). */
void tx_rehearse(struct tx *t);
bool tx_is_busy(const struct tx *t); /* some mark has not come back yet */

/* ------------------------------------------------------------------ images */

struct tx_image {
    /* set by the owner */
    uint32_t slot;
    const char *host; /* BORROWED, page-locked; NULL: nothing of it may have to be sent */
    uint64_t bytes;
    uint64_t lacks;           /* so many of the last bytes are not in host memory yet ... */
    double lacks_ns_per_byte; /* ... and come at this rate */
    uint32_t n_layers;
    const uint64_t *layer_ends;  /* BORROWED: u64[n_layers], ascending, the last one = bytes */
    const uint64_t *device_ends; /* BORROWED: of a packed image, ends of layers on the device */
    uint64_t shift;              /* where its first packed byte would lie in its range */
    double unpack_ns_per_byte;   /* of what is written; 0: it is not packed */
    uint32_t n_tables; /* so many of the last layers no operation waits for (struct tx_place) */
    /* kept by transmit.c */
    uint32_t value;           /* last ticket value used */
    struct msg_group *groups; /* OWNED; of the last load */
    uint32_t n_groups;
    uint32_t n_sent;             /* groups enqueued */
    size_t off;                  /* its place, bytes in the arena */
    uint64_t sent_bytes;         /* over the link: on the device or on their way */
    int64_t sent_ns, arrived_ns; /* of the last tx_load_begin */
    int64_t predicted_ns;        /* when the last group should arrive, relative to sent_ns */
    int64_t expected_ns;   /* the same plus what was on the lane before; set when it is sent */
    uint64_t copied_bytes; /* by the last tx_load_begin ... */
    bool is_alone;         /* ... which found the lane idle, and moved nothing */
    uint64_t n_in;         /* copies to the device with the last of its own */
    uint32_t n_logged;     /* groups whose arrival was logged, at debug level */
    struct tx_plan {       /* what the cuts of `groups` were found for */
        uint32_t n_groups; /* 0: for nothing */
        uint32_t n_layers;
        bool with_tables;
        uint64_t bytes, resident;
        const void *layer_ends, *layer_ns;
        double unpack_ns_per_byte;
        struct links_way ways[LINKS_MAX];
        uint32_t n_ways;
    } plan;
};

struct tx_place {      /* of an image on the device */
    size_t off;        /* bytes in the arena */
    uint64_t resident; /* the first bytes, which need no copy ... */
    bool moved;        /* ... but are being moved from elsewhere in the arena: wait for them */
    bool with_tables;  /* they come, too, each layer of them in a group behind all others */
};

/* Sends bytes [resident, bytes) of the image, or what of that lies before its tables, to its place
 * in groups, each followed by its ticket,
 * and ends with a mark. A head that moved gets a ticket too. layer_ns: f64[n_layers], compute time
 * of each layer. Nothing of the image may be on its way. A group is sent when host memory has it:
 * whoever lowers `lacks` calls tx_load_rest() again as long as tx_load_waits().
 *
 * tx_load_begin() hands out all tickets and enqueues the first group, so that a run can be told of
 * them while tx_load_rest() enqueues the others. Between the two only that run's inputs may be put
 * on the lane. fn(arg) is called when all has arrived. After a failure some copies may be under
 * way: keep the range until a mark on the lane has come back, and force the tickets that a run was
 * told of. */
int tx_load_begin(struct tx *t, struct tx_image *im, const struct tx_place *place,
                  const double *layer_ns, struct sh_err *err);
int tx_load_rest(struct tx *t, struct tx_image *im, tx_done_fn *fn, void *arg, struct sh_err *err);
/* Instead, group by group: enqueues the next one. */
int tx_load_next(struct tx *t, struct tx_image *im, struct sh_err *err);
/* fn(arg) is called when what was enqueued so far has arrived. */
int tx_load_mark(struct tx *t, struct tx_image *im, tx_done_fn *fn, void *arg, struct sh_err *err);
/* Nothing was put on the lane since. */
bool tx_load_is_last(const struct tx *t, const struct tx_image *im);
bool tx_load_waits(const struct tx_image *im); /* for groups that host memory lacks */
bool tx_image_busy(const struct tx_image *im);
/* Has any of these (struct msg_group[]) a ticket to wait for? */
bool tx_groups_wait(const struct sh_blob *groups);
uint64_t tx_link_bytes(const struct tx_image *im, uint64_t device_bytes);
uint64_t tx_needed_bytes(const struct tx_image *im);      /* over the link, without its tables */
void tx_image_arrived(struct tx *t, struct tx_image *im); /* call it from fn */
/* Raises the tickets of all copies that are under way or still due. Waiters go on, with garbage. */
void tx_image_force(struct tx *t, struct tx_image *im);
/* Groups are found anew at the next load. Call it before layer_ns of a load is freed: the same
 * place could have other times later. */
void tx_image_replan(struct tx_image *im);
void tx_image_fini(struct tx_image *im);
/* Size in bytes, on the device, of the smallest head that hides the copy of the rest, so that a run
 * with these layer times is not delayed. It need not end with a layer or a block. */
uint64_t tx_keep_bytes(const struct tx *t, const struct tx_image *im, const double *layer_ns);

/* The time that a run with these layer times still takes when the last byte of the image arrives,
 * if nothing was resident: its makespan with the exact grouping, less the copy time. */
double tx_tail_ns(const struct tx *t, const struct tx_image *im, const double *layer_ns);

/* Pure. Cuts the layers into groups so that a run ends soonest. ways: of links (links.h), that of
 * large groups last. missing[i]: bytes of layer i to copy; n > 0. layer_ns: what each takes once
 * its group has arrived, unpacking included. *ends: OWNED, free(); the layer behind the last one of
 * each group. */
int tx_group(const struct links_way *ways, uint32_t n_ways, const uint64_t *missing,
             const double *layer_ns, uint32_t n, uint32_t **ends, uint32_t *n_ends,
             struct sh_err *err);

#endif
