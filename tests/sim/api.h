/* api.h - API processes of a simulation: the real api/infer/link*.c and api/request/slab.c, with
 * clients in the place of HTTP.
 *
 * Requests come at times of their own, whether others are answered or not: of random tenants and
 * versions, some with large bodies that are slow to arrive, some whose client goes away. Of each it
 * is checked that it is answered once, by its time, and with the outputs of its own inputs.
 */
#ifndef SH_TESTS_SIM_API_H
#define SH_TESTS_SIM_API_H

#include "tests/sim/database.h"
#include "tests/sim/world.h"

#include <pthread.h>

struct sim_api;

/* name: static; schedulers: addresses, BORROWED for good. Not started. */
struct sim_api *sim_api_new(const char *name, unsigned host, const char *schedulers);
void sim_api_start(struct sim_api *a);
struct sim_proc *sim_api_proc(const struct sim_api *a);
/* From now on so many requests in a second; 0: none, and no version is asked for again. */
void sim_api_rate(struct sim_api *a, double per_s);
/* "jobs" or "models" have changed in the database. In its process. */
void sim_api_hint(struct sim_api *a, const char *what);

/* What the link calls instead of pthread_create(): its loop is that of its process. */
int sim_thread(pthread_t *t, const pthread_attr_t *attr, void *(*main)(void *), void *arg);

struct sim_api_counts {                         /* of all of them, since the beginning */
    uint64_t opened, good, refused, gone, lost; /* gone: the client; lost: its API died */
    uint64_t by_rc[64];                         /* of those refused, by -rc */
    uint64_t late;                              /* good, and behind its time */
    uint64_t settled, settled_late; /* since sim_api_settled(): served, or not in its time */
};
const struct sim_api_counts *sim_api_counts(void);
void sim_api_settled(void); /* all is well: requests that come now can be served */
/* A request that was placed on this executor, or on another one, and waits. False: none does. */
bool sim_api_placed(const char *name, bool is_there, uint64_t r, uint64_t *api_id, uint64_t *rid);
/* Of each request that an executor has or had, and that still waits for what its scheduler or that
 * executor does. executor: the one that has it; "": it is gone, and the scheduler was told. */
typedef void sim_api_waits_fn(const struct sim_proc *api, uint64_t api_id, uint64_t rid,
                              const char *executor);
void sim_api_each_waiting(sim_api_waits_fn *fn);
/* The process of that API, if it lives and no client of its waits for that request; else NULL. */
const struct sim_proc *sim_api_ended(uint64_t api_id, uint64_t rid);
size_t sim_api_n_open(void); /* that wait for their answer, of processes that live */
/* The longest that one waits by now. */
int64_t sim_api_waits_ns(void);

#endif
