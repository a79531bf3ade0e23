/* exec_script.h - a scheduler and an API as one executor sees them, played by a script: what the
 * scenario "executor" sends, at random, and what it must hear in return. Where the whole system
 * runs, the real scheduler stands in the place of this.
 */
#ifndef SH_TESTS_SIM_EXEC_SCRIPT_H
#define SH_TESTS_SIM_EXEC_SCRIPT_H

#include "tests/sim/content.h"
#include "tests/sim/executor.h"

#define SCRIPT_SCHED_HOST 1u
#define SCRIPT_API_HOST 2u /* of one that is not on the executor's host */

struct script {
    struct sim_exec *e;
    const struct sim_profile *profile;
    bool is_local;  /* the API is on the executor's host */
    bool is_remote; /* it has a state folder of its own (executor/files/transfer.h) */
    struct sim_proc *sched, *api;
    bool is_ending;  /* nothing new is begun but jobs */
    int64_t calm_ns; /* no fault behind it */
};
extern struct script script;

void script_begin(struct sim_exec *e, const struct sim_profile *profile, bool is_local,
                  bool is_remote);
void script_start_sched(void); /* again: with a newer epoch */
void script_start_api(void);   /* again: with another number */
void script_begin_end(void);   /* nothing new is begun but jobs */
/* Is all answered, and has the job got on since? */
bool script_is_through(void);
void script_check_end(void);

/* exec_script_jobs.c */
void script__jobs_begin(void);
void script__jobs_hello(void);  /* the executor is there, and what it says of its job comes now */
void script__jobs_synced(void); /* it has said all */
void script__jobs_tick(void);   /* now and then, while it is there */
void script__jobs_on(const struct sh_msg *m);
void script__jobs_ending(void);
bool script__jobs_are_through(void);
bool script__jobs_are_idle(void); /* none is with the executor */

/* exec_script_bad.c */
void script__bad_begin(void);
void script__bad_hello(void);
void script__bad_tick(void);
bool script__bad_on(const struct sh_msg *m); /* false: it is of something else */
bool script__bad_are_through(bool check);    /* all of it was refused; check: or is broken */

/* exec_script.c, for them */
#define SCRIPT_BAD_RID UINT64_C(1000000) /* requests from there on are refused */
uint64_t script__api_id(void);
const char *script__tenant_name(unsigned tenant); /* BORROWED, static */
void script__send(const struct sh_msg *m);
uint64_t script__epoch(void);
int64_t script__version_id(size_t i); /* of the package of that number */
const struct sim_package *script__package(size_t i,
                                          char path[static 96]); /* NULL behind the last */

#endif
