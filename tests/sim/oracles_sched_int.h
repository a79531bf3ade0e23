/* oracles_sched_int.h - what the files of the scheduler's oracles share. */
#ifndef SH_TESTS_SIM_ORACLES_SCHED_INT_H
#define SH_TESTS_SIM_ORACLES_SCHED_INT_H

#include "common/units.h"
#include "scheduler/sched.h"
#include "tests/sim/database.h"
#include "tests/sim/oracles_sched.h"

const struct oracles_world *oracles__world(void);
/* That could act: NULL, there is none, or it is stopped. */
const struct sched *oracles__leader(void);
const struct tenant *oracles__tenant(const struct sched *s, int64_t id); /* NULL: not known */
const struct sim_proc *oracles__proc(const char *name);                  /* NULL: there is none */
/* Seen at each look for as long as it lasts: breaks `rule` when that is longer than most_ns. */
void oracles__against(const char *rule, int64_t id, int64_t most_ns, const char *what);

#define SETTLE_NS SH_S(15) /* after the healing */

/* oracles_starts.c: what a leader starts and stops. In its process, for its clock; which: of all
 * schedulers. */
void oracles__look_at_slots(const struct sched *s, size_t which);
void oracles__look_at_runs(const struct sched *s);
void oracles__look_at_starts(int64_t healed_ns); /* 0: not yet. What the database recorded of it */

/* oracles_models.c: what a leader does about versions. */
void oracles__look_at_versions(const struct sched *s);
void oracles__look_at_retries(const struct sched *s); /* in its process, for its clock */
void oracles__check_versions(void);                   /* at the end */
bool oracles__is_settled(const struct database_version *v);

#endif
