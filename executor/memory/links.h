/* links.h - the links by which copies reach the device, and groups of weights divided over them.
 *
 * A device has a link of its own, and may have others beside it. Link k has lane k of the device.
 * Lane 0 carries everything to the device in one order. A group that is large enough to be worth it
 * is divided: each link carries so much that all parts end at one time, by what it takes to begin
 * (alpha), what a byte takes (beta), and what it still has to do.
 *
 * ORDER. Parts on other lanes leave that order, and come back into it:
 *
 *   apart     they begin behind all that lane 0 had before the first of them; while links are apart
 *             lane 0 gets nothing but parts
 *   together  lane 0 goes on behind all parts and their tickets. Whoever gives it anything but a
 *             part asks for that first (links_join): so for a scrub, a move, training state, a
 *             mark, the order is that of one lane
 *
 * The ticket of a divided group stands on a lane of its own, behind all parts of the group and
 * behind the tickets before it. So no link waits for another between two groups.
 *
 * A link that refuses a part is left out for a second: lane 0 carries the part.
 *
 * With one link nothing is ever apart, and all is one lane.
 *
 * Belongs to the loop's thread.
 */
#ifndef SH_EXECUTOR_MEMORY_LINKS_H
#define SH_EXECUTOR_MEMORY_LINKS_H

#include "common/mem.h"
#include "runtime/device/dev.h"

#define LINKS_MAX (DEV_MAX_LANES - 2u) /* one lane for tickets, one from the device */

/* What a group costs that the first few links share: alpha once, beta for each byte. */
struct links_way {
    double alpha_ns, beta_ns;
};

struct link {
    double alpha_ns, beta_ns;
    double busy_until_ns; /* by its copies and what they wait for; the rest is quick */
    int64_t out_until_ns; /* left out */
    bool is_apart;
    uint64_t sent_bytes; /* since links_begin() ... */
    uint32_t n_sent;     /* ... in so many copies */
};

struct links { /* for reading, but for the calls below */
    struct dev_mem *mem;
    uint32_t n, out_lane;
    bool are_apart;
    struct link at[LINKS_MAX];
    struct links_way ways[LINKS_MAX]; /* by the link that begins soonest, by the first two, ... */
    uint32_t n_ways;                  /* those that are of no use are left out */
};

/* Sets the lanes of a device with n links; 1 .. LINKS_MAX. */
void links_lanes(struct dev_mem_conf *c, uint32_t n);
/* mem is BORROWED. Measures each link. Fails as the device. */
int links_init(struct links *l, struct dev_mem *mem, struct sh_err *err);

/* What a group of so many bytes takes, the quickest way. */
static inline double links_ns(const struct links_way *ways, uint32_t n, uint64_t bytes)
{
    double best = ways[0].alpha_ns + ways[0].beta_ns * (double)bytes;

    for (uint32_t k = 1; k < n; k++)
        best = SH_MIN(best, ways[k].alpha_ns + ways[k].beta_ns * (double)bytes);
    return best;
}

/* The one that says what a large group costs. */
const struct links_way *links_all(const struct links *l);
double links_busy_until_ns(const struct links *l); /* of all */
void links_idle_since(struct links *l, double ns); /* all that they had is done */

/* [enqueue] Before anything is put on lane 0. Fails as the device: then nothing may be. */
int links_join(struct links *l, struct sh_err *err);
/* [enqueue] On lane 0. */
int links_copy(struct links *l, size_t off, const void *host, size_t bytes, struct sh_err *err);
/* An image begins: what was left out may take part again, and what is sent is counted anew. */
void links_begin(struct links *l);
/* [enqueue] A group and its ticket, divided if that is worth it. After a failure some of it may be
 * under way. */
int links_send(struct links *l, size_t off, const void *host, size_t bytes, uint32_t slot,
               uint32_t value, struct sh_err *err);
/* The lane of the last ticket of links_send(). */
uint32_t links_ticket_lane(const struct links *l);
/* Pure. The bytes of a group that each link would carry now, parts[l->n]. */
void links_divide(const struct links *l, int64_t now_ns, uint64_t bytes, uint64_t *parts);
/* Link k has carried so many bytes, alone, in so long beside what n copies take to begin. False:
 * that says nothing. */
bool links_learn(struct links *l, uint32_t k, double ns, uint64_t bytes);

#endif
