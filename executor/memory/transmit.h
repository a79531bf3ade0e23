/* transmit.h - copies to and from the device: lanes, marks, tickets; images sent in groups.
 *
 * Lane 0 carries everything towards the device in one order: moves, scrubs, weights, training
 * state. Lane 1 carries state out. A ticket slot belongs to one image (or one worker's
 * checkpoints), so that forcing the tickets of a stuck switch frees nobody else.
 *
 * An image that is being sent keeps the list of its groups until the last has arrived: a run that
 * comes meanwhile waits for just these tickets, and nothing is copied twice.
 *
 * Belongs to the loop's thread.
 */
#ifndef SH_EXECUTOR_MEMORY_TRANSMIT_H
#define SH_EXECUTOR_MEMORY_TRANSMIT_H

#include "common/loop.h"
#include "common/msg.h"
#include "runtime/device/dev.h"

#define TX_LANE_IN 0u
#define TX_LANE_OUT 1u
#define TX_N_LANES 2u
#define TX_SLOT_WORKER 0u  /* + index of the worker, at most 63: its checkpoints */
#define TX_SLOT_STATE 64u  /* training state on its way in */
#define TX_SLOT_INPUTS 65u /* inputs of the current run */
#define TX_SLOT_IMAGE 128u /* + id of the image */
#define TX_NO_TICKET UINT32_MAX
#define TX_MAX_MARKS 65536u

struct tx;
typedef void tx_done_fn(void *arg);

/* mem is BORROWED. Measures the lane (alpha, beta). *out: OWNED, tx_free(). */
int tx_new(struct sh_loop *loop, struct dev_mem *mem, const char *executor, struct tx **out,
           struct sh_err *err);
void tx_free(struct tx *t); /* no callback comes after it */
/* Images that are sent from now on are cut so, not by tx_group(); NULL: by it again. KEEPS arg. */
typedef int tx_group_fn(const void *arg, const uint64_t *missing, uint32_t n, uint32_t **ends,
                        uint32_t *n_ends, struct sh_err *err);
void tx_set_group(struct tx *t, tx_group_fn *fn, const void *arg);
struct dev_mem *tx_mem(struct tx *t);
double tx_alpha_ns(const struct tx *t);
double tx_beta_ns(const struct tx *t);
/* Until the copies that were put on the lane towards the device should be done; 0: idle. */
double tx_backlog_ns(const struct tx *t);

/* [enqueue] counted copies. */
int tx_in(struct tx *t, size_t off, const void *host, size_t bytes, struct sh_err *err);
int tx_out(struct tx *t, size_t off, void *host, size_t bytes, struct sh_err *err);
int tx_move(struct tx *t, size_t dst, size_t src, size_t bytes, struct sh_err *err);
int tx_zero(struct tx *t, size_t off, size_t bytes, struct sh_err *err);
int tx_ticket(struct tx *t, uint32_t lane, uint32_t slot, uint32_t value, struct sh_err *err);
/* fn(arg) from the loop when all that the lane has been given so far is done. KEEPS arg until then,
 * or until tx_forget(arg). */
int tx_mark(struct tx *t, uint32_t lane, tx_done_fn *fn, void *arg, struct sh_err *err);
void tx_forget(struct tx *t, const void *arg);
bool tx_is_busy(const struct tx *t); /* marks are out */

/* ------------------------------------------------------------------ images */

struct tx_image {
    /* set by the owner */
    uint32_t slot;
    const char *host; /* BORROWED, page-locked */
    uint64_t bytes;
    uint32_t n_layers;
    const uint64_t *layer_ends; /* BORROWED: u64[n_layers], ascending, the last one = bytes */
    /* kept by transmit.c */
    uint32_t value;           /* last ticket value handed out */
    struct msg_group *groups; /* OWNED; while groups are on their way */
    uint32_t n_groups;
    uint32_t n_sent;             /* groups that the lane has */
    size_t off;                  /* where it goes, bytes in the arena */
    uint64_t sent_bytes;         /* so many are there or on their way */
    int64_t sent_ns, arrived_ns; /* of the last tx_load_begin */
    int64_t predicted_ns;        /* when the last group should arrive, relative to sent_ns */
    int64_t expected_ns; /* the same with what was on the lane before; from tx_load_rest on */
    uint32_t n_logged;   /* groups whose arrival is in the log; at debug level */
};

struct tx_place {      /* of an image on the device */
    size_t off;        /* bytes in the arena */
    uint64_t resident; /* so many of its bytes need no copy ... */
    bool moved; /* ... but were enqueued to come from elsewhere in the arena: wait for them */
};

/* Sends bytes [resident, bytes) of the image to its place in groups, each followed by its ticket,
 * and a mark at the end; a head that moved gets a ticket too. layer_ns: f64[n_layers], how long
 * each layer computes. Only when nothing of the image is on its way.
 *
 * In two parts: after the first all groups have their tickets and the first of them is enqueued, so
 * a run can be told of them while the lane is given the rest. Between the two nothing else may be
 * put on the lane but that run's inputs. fn(arg) when all has arrived. On failure some copies may
 * be on their way: the range must stay until a mark on the lane has come back; tickets that a run
 * was told of have to be forced. */
int tx_load_begin(struct tx *t, struct tx_image *im, const struct tx_place *place,
                  const double *layer_ns, struct sh_err *err);
int tx_load_rest(struct tx *t, struct tx_image *im, tx_done_fn *fn, void *arg, struct sh_err *err);
bool tx_image_busy(const struct tx_image *im);
void tx_image_arrived(struct tx_image *im); /* the owner's fn calls it */
/* Raises the tickets of what is or was to be on its way: whoever waits goes on, with garbage. */
void tx_image_force(struct tx *t, struct tx_image *im);
void tx_image_fini(struct tx_image *im);
/* The head (bytes, a multiple of nothing) that hides the copy of the rest: the least prefix for
 * which a run with these layer times is not delayed. */
uint64_t tx_keep_bytes(const struct tx *t, const struct tx_image *im, const double *layer_ns);

/* What is left of a run with these layer times when the last byte of the image arrives, if nothing
 * of it was there at the start: its makespan in the exact grouping, less the time of the copy. */
double tx_tail_ns(const struct tx *t, const struct tx_image *im, const double *layer_ns);

/* Pure: cuts the layers into groups so that a run ends soonest. *ends: OWNED, free(). missing[i]:
 * bytes of layer i that must be copied; n > 0. */
int tx_group(double alpha_ns, double beta_ns, const uint64_t *missing, const double *layer_ns,
             uint32_t n, uint32_t **ends, uint32_t *n_ends, struct sh_err *err);

#endif
