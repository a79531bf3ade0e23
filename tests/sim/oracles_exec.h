/* oracles_exec.h - what must be true of an executor at any time: of its memory, its workers, its
 * job, and of the files that it leaves. Simulated workers look at the bytes (worker.h).
 */
#ifndef SH_TESTS_SIM_ORACLES_EXEC_H
#define SH_TESTS_SIM_ORACLES_EXEC_H

#include "common/log.h"
#include "common/msg.h"
#include "tests/sim/world.h"

struct sim_exec;

/* Looks at every executor after each of its events, and at each command for its device. */
void oracles_exec_begin(void);
/* fn: an attempt has read what it begins with, the state after this step. */
typedef void oracles_begun_fn(const char *executor, int64_t job, uint32_t attempt, int64_t step);
void oracles_exec_on_begun(oracles_begun_fn *fn);
/* Something disturbs times for so long: no bound of time is looked at until a while after it. */
void oracles_exec_disturbed(int64_t for_ns);
/* From now on workers say what is not true. */
void oracles_exec_lies(void);

/* What an executor is told of a tenant, by a scheduler with which it stays connected. */
void oracles_exec_told(const struct sim_exec *e, unsigned tenant,
                       const struct msg_tenant_memory *m);
void oracles_exec_told_nothing(void); /* another connection: what was told counts no more */

/* A real executor, which has answered this part of a run, or never had it. */
bool oracle_exec_is_through(const struct sim_proc *executor, uint64_t api_id, uint64_t rid);

/* What the scheduler takes for true of a version's image is what this executor has said last. */
bool oracle_exec_has_said(const struct sim_proc *executor, int64_t version_id,
                          uint64_t device_bytes, int64_t unpack_ns);

/* A file of a job's state, whole and of one step, which is returned; final: of weights alone. */
int64_t oracle_state_file(const char *path, bool is_final);
/* The newest checkpoint in a job's folder; -1: none. Looks at all of them. */
int64_t oracle_job_folder(const char *dir);

/* oracles_packed.c; after each turn. */
struct exec;
void oracles__check_packed(const struct exec *x);
void oracles__check_shared(const struct exec *x); /* oracles_shared.c */

struct residency;
struct residency_need;
struct residency_place;
struct arena_range;

/* Memory that is taken for somebody. */
int __wrap_residency_place(struct residency *r, uint32_t id, bool may_evict,
                           struct residency_place *out, struct sh_err *err);
int __wrap_residency_alloc(struct residency *r, const struct residency_need *need,
                           struct arena_range *out, uint32_t *evicted_out, struct sh_err *err);

/* Logged errors that are bugs of ours. */
void __wrap_sh_log(enum sh_log_level level, const char *event, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void __wrap_sh_log_err(enum sh_log_level level, const char *event, const struct sh_err *err);

#endif
