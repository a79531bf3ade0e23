/* device.h - a device of the simulation: the memory face of runtime/device/dev.h in virtual time,
 * and what the workers of the simulation see of it.
 *
 * A lane does one thing after the other; lanes run beside each other, except where one follows
 * another. A copy takes latency + bytes * rate of the profile: its first half is read and written
 * when it begins, the rest when it ends, so that who changes either place meanwhile, or gives it
 * away, leaves a mixture that somebody will find. The device lives as long as the process that
 * opened it.
 */
#ifndef SH_TESTS_SIM_DEVICE_H
#define SH_TESTS_SIM_DEVICE_H

#include "runtime/device/backend.h"
#include "tests/sim/profile.h"
#include "tests/sim/world.h"

struct sim_device;

struct sim_device_conf {
    const struct sim_profile *profile;
    bool is_queued;   /* as a GPU; false: as the cpu device, whose workers have no slab of an API */
    uint32_t n_links; /* towards the device; 0: one */
    double
        link_times[DEV_MAX_LANES]; /* what a copy takes by each, as by the first, so many times */
    /* Chances of each call, or each copy. */
    double refuse;        /* SH_E_DEVMEM: nothing happened */
    double refuse_ticket; /* the same, of tickets alone: the copies before them are on their way */
    double refuse_lock;   /* host memory stays pageable */
    double refuse_link;   /* of the links but the first */
    double stall;         /* a copy that takes up to max_stall_ns longer */
    int64_t max_stall_ns;
};

/* For what the process opens from its next start on. BORROWED for good. */
void sim_device_configure(struct sim_proc *p, const struct sim_device_conf *c);
/* Told of every command that a lane is given; for oracles. dir: of a copy. */
enum sim_lane_use { SIM_LANE_IN, SIM_LANE_OUT, SIM_LANE_MOVE, SIM_LANE_ZERO };
typedef void sim_lane_fn(struct sim_proc *owner, enum sim_lane_use use, size_t off, size_t bytes);
void sim_device_watch(sim_lane_fn *fn);

/* Is one of these uses (a set of 1u << enum sim_lane_use) of a place still to end? */
bool sim_device_will_write(const struct sim_device *d, unsigned uses, size_t off, size_t bytes);
struct sim_device *sim_device_of_mem(const struct dev_mem *m);

/* ------------------------------------------------------------------ workers */

/* Of a descriptor that dev_mem_export() gave; NULL: it is none. */
struct sim_device *sim_device_of(int arena_fd);
const struct sim_device_conf *sim_device_conf(const struct sim_device *d);
char *sim_device_at(const struct sim_device *d, size_t off, size_t bytes); /* NULL: outside */
bool sim_device_has(const struct sim_device *d, uint32_t slot, uint32_t value);
/* It came by dev_ticket_force(): what it stands for may not be there. */
bool sim_device_was_forced(const struct sim_device *d, uint32_t slot, uint32_t value);
/* fn(arg, n) in p when the ticket is there. */
void sim_device_when(struct sim_device *d, uint32_t slot, uint32_t value, struct sim_proc *p,
                     sim_event_fn *fn, void *arg, uint64_t n);

/* What the linker puts in the place of those of runtime/device/. */
int __wrap_dev_lib_open(const char *kind, struct dev_lib **out, struct sh_err *err);
int __wrap_dev_mem_measure(struct dev_mem *m, uint32_t lane, double *alpha_ns, double *beta_ns,
                           struct sh_err *err);

#endif
