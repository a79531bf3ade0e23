/* placement.h - on which executors a version lives: its homes. Pure: no clock, database or log.
 *
 * Weighted moves, after Slicer (Adya et al., OSDI 2016): one version at a time, one move at a time,
 * each only if what it gains within PLACE_HORIZON_NS is more than it costs. A move costs the time
 * until the version is ready there, during which a worker compiles for nobody.
 *
 *   add   a version has fewer homes than it must have          HOMELESS
 *         its demand is more than its homes may bear           GROW
 *         its home has too much to do, and another has little  APART: leaves the first when ready
 *   drop  the other one is ready                               MOVED
 *         a home too many, for PLACE_HOLD_NS and as long as it would take to come back   SHRUNK
 *
 * Demand is device time a time, on a device of speed 1. The homes of a version share it as they
 * are fast. How much of a device its runs may take follows from its latency target (place_most()).
 * Those in use go where the load is least, so popular ones are apart. Those that hardly anybody
 * asks for are packed: onto the fullest device that still holds their image beside the others.
 *
 * No ping-pong. A version grows at its limit and shrinks at PLACE_SHRINK of it; a move apart makes
 * the fuller of the two executors emptier by PLACE_MARGIN or more. So loads alone decide, and those
 * that stay the same lead to an end.
 *
 * Only known executors count. Where nothing fits, a version that has no home gets one all the same,
 * where most is free: those that nobody asks for make room (models/room.h).
 *
 * A look costs the candidates, PLACE_SEEN at most, and the homes of the version. Not thread-safe.
 */
#ifndef SH_SCHEDULER_DECIDE_PLACEMENT_H
#define SH_SCHEDULER_DECIDE_PLACEMENT_H

#include "common/err.h"
#include "common/idmap.h"
#include "common/tree.h"
#include "common/units.h"

#include <stdint.h>

#define PLACE_SEEN 64u
#define PLACE_HORIZON_NS SH_S(60)
#define PLACE_HOLD_NS SH_S(5)
#define PLACE_MAX_HOLD_NS SH_S(60)
#define PLACE_HALF_LIFE_NS SH_S(1)
#define PLACE_SHRINK 0.6
#define PLACE_HOT 0.75   /* from this load on others leave an executor */
#define PLACE_MARGIN 0.2 /* by so much of a device, at least, a move makes the fuller one emptier */
#define PLACE_SMALL 0.05 /* of a device: less is packed, and not moved */

enum place_why { PLACE_HOMELESS, PLACE_GROW, PLACE_APART, PLACE_MOVED, PLACE_SHRUNK, PLACE_N_WHYS };
extern const char *const PLACE_WHY[PLACE_N_WHYS]; /* "homeless" ... */

struct place_exec_facts {
    bool is_up;
    uint32_t index;
    uint64_t device_bytes; /* for images, training state and workspaces */
    uint64_t host_bytes;   /* for images and programs; 0: not known, without limit */
    double speed;          /* of its device; 1: as that on which demand is measured; > 0 */
};

struct place_exec { /* a zeroed one is in no placement; the caller owns it */
    struct sh_tree_node node;
    struct place_exec_facts f;
    double load; /* of its device; 1: all of it */
    int shown;   /* what it is ordered by: load in steps */
    uint64_t host_used, device_used;
    uint64_t free_below;  /* most host memory left, of those below it in the tree */
    struct idmap tenants; /* host_used of each, by id; OWNED, placement_del_exec() */
    int64_t down_ns;      /* since when it is not up */
};

struct place_version_facts {
    bool is_wanted; /* to be served; else it gets no home, and keeps those it has */
    bool is_urgent; /* somebody waits for it: nothing is waited for */
    bool is_pinned;
    uint64_t tenant, tenant_host_bytes; /* 0: half of an executor's */
    uint64_t device_bytes, host_bytes;  /* that a home takes, as far as known */
    double load, most;                  /* demand; what of it one device of speed 1 may bear */
    uint32_t min_copies;
    int64_t load_ns; /* until one more would be ready */
};

struct place_home {
    struct place_exec *exec;
    struct place_exec *replaces; /* NULL: none. It leaves there when it is ready here */
    bool is_ready, is_aside;     /* aside: without an image in host memory */
    bool is_held;                /* a job uses it, or who was let in there waits: it stays */
    bool is_extra;               /* COMING, and not for lack of a home */
    bool leaves;                 /* another one replaces it */
    int64_t since_ns;
    double share;                          /* of exec->load */
    uint64_t host_counted, device_counted; /* of exec's */
};

struct place_version { /* a zeroed one is in no placement; the caller owns it */
    struct place_version_facts f;
    struct place_home *homes; /* OWNED, placement_del_version() */
    size_t n, cap;
    int64_t spare_ns; /* it has had a home too many since then; 0: it has not */
};

/* Samples that are asked for, refused ones too, and the device time of one: half of what is known
 * is PLACE_HALF_LIFE_NS old. */
struct place_demand {
    double samples;   /* weighted ... */
    int64_t at_ns;    /* ... as of then */
    double sample_ns; /* on a device of speed 1; 0: not known */
};

struct placement { /* a zeroed one is empty; the caller sets what follows, for good */
    /* May v be loaded on x at this moment? */
    bool (*takes)(void *arg, const struct place_version *v, const struct place_exec *x);
    /* Is what loading it there made before still at hand? */
    bool (*is_near)(void *arg, const struct place_version *v, const struct place_exec *x);
    void *arg;
    int64_t grace_ns; /* one that is gone may be back so soon */

    struct sh_tree execs; /* that are up, the least loaded first */
    size_t n_extra;       /* homes with is_extra */
};

struct place_move {
    enum place_why why;
    bool is_drop;
    struct place_version *version;
    struct place_exec *exec;
    bool is_over; /* it does not fit: others have to go */
};

void place_ask(struct place_demand *d, uint32_t samples, int64_t now_ns);
/* A run of so many samples took so long on a device of that speed. */
void place_ran(struct place_demand *d, uint32_t samples, int64_t device_ns, double speed);
/* guess_ns: of a sample, until one has run. */
double place_load(const struct place_demand *d, int64_t guess_ns, int64_t now_ns);
/* The nearest class of devices: powers of the square root of 2, so that noise is no difference. */
double place_class(double speed);

/* What one device may bear of a version with this time of a run and this target: the load at which
 * the given percentile of waits, of a queue with runs of equal length, still leaves room for a run
 * (the tail of M/D/1 in heavy traffic). slo_ns 0: none. */
double place_most(int64_t run_ns, int64_t slo_ns, double percentile);

void placement_set_exec(struct placement *p, struct place_exec *x, const struct place_exec_facts *f,
                        int64_t now_ns);
void placement_del_exec(struct placement *p,
                        struct place_exec *x); /* no version has a home there */
void placement_set_version(struct place_version *v, struct placement *p,
                           const struct place_version_facts *f);
void placement_del_version(struct placement *p, struct place_version *v);

struct place_home *placement_home(const struct place_version *v, const struct place_exec *x);
/* Notes that v lives on x, or is about to. Does nothing if that is known. Fails: SH_E_NOMEM. */
int placement_put(struct placement *p, struct place_version *v, struct place_exec *x,
                  int64_t now_ns, struct sh_err *err);
void placement_take(struct placement *p, struct place_version *v, struct place_exec *x);
/* What has come of a home: is_ready and is_aside. */
void placement_tell(struct placement *p, struct place_version *v, struct place_exec *x,
                    bool is_ready, bool is_aside, int64_t now_ns);

/* One more home for v, where it fits, beside those it has. False: there is none. */
bool placement_more(struct placement *p, struct place_version *v, int64_t now_ns,
                    struct place_move *out);
/* The next move of v, which is then noted. False: it is well where it is. */
bool placement_look(struct placement *p, struct place_version *v, int64_t now_ns,
                    struct place_move *out);

#endif
