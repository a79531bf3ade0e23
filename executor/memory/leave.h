/* leave.h - which images leave host memory when others need it. Pure.
 *
 * As on the device (residency.h): tenants that hold more than their share go first, and of those
 * images the least recently used; but those that share with others go last, as little becomes free
 * by each of them. Of each tenant the images used last stay, up to its `min`. A
 * share is the tenant's min, plus a part, weighted by `share`, of what no min claims.
 */
#ifndef SH_EXECUTOR_MEMORY_LEAVE_H
#define SH_EXECUTOR_MEMORY_LEAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LEAVE_ANY UINT32_MAX
#define LEAVE_ALL UINT64_MAX

struct leave_image { /* one that is in host memory */
    uint32_t tag;    /* its tenant, with ... */
    uint64_t min_bytes;
    double share;
    uint64_t bytes; /* that it counts for */
    uint64_t
        frees; /* of these, what becomes free if it leaves: less if others have the rest, too */
    int64_t last_use_ns;
    bool may_leave;
    bool leaves; /* the answer */
    void *owner;
    uint32_t tenant; /* set by leave_choose(): its number among those of the list */
    uint64_t held;   /* likewise: by the tenant whose number is this place in the list */
};

/* Sorts the images, the last used first, and chooses until `bytes` are free, or until one is chosen
 * that shares: when it has left, others free more. bytes LEAVE_ALL: all that may. only_tag: of this
 * tenant; LEAVE_ANY: of all. limit: what all may hold. Returns what becomes free, less perhaps than
 * wanted. */
uint64_t leave_choose(struct leave_image *v, size_t n, uint64_t limit, uint32_t only_tag,
                      uint64_t bytes);

#endif
