/* traffic.h - each model's requests answered in the last minute: how many, how fast.
 *
 * The leader counts them, from the headers of a request to the end of its run, since it alone sees
 * the requests of all APIs. It tells the APIs every TRAFFIC_TELL_S seconds (MODEL_TRAFFIC,
 * serving.c). Nothing is written to the database.
 *
 * The minute is TRAFFIC_SLICES slices, the newest of which is being filled: the last 50 to 60 s,
 * less under a new leader. A model with requests takes 6 KB, one without takes none; there are no
 * more models with requests than executors have models.
 *
 * Times are arguments. Not thread-safe.
 */
#ifndef SH_SCHEDULER_PEERS_TRAFFIC_H
#define SH_SCHEDULER_PEERS_TRAFFIC_H

#include "common/idmap.h"
#include "common/units.h"

#define TRAFFIC_SLICES 6
#define TRAFFIC_SLICE_NS SH_S(10)
#define TRAFFIC_TELL_S 2u

struct traffic; /* of one model */

struct traffics {
    struct traffic *all; /* OWNED */
    struct idmap by_id;
    int64_t begun_ns; /* when the leader began */
    uint64_t n_seconds;
};

struct traffic_line {
    const char *tenant, *model; /* BORROWED until traffics_sweep() */
    uint64_t n_requests;        /* 0: none for a minute */
    double p50_ms, p99_ms;
};

void traffics_begin(struct traffics *t, int64_t now_ns); /* t is zeroed */
void traffics_fini(struct traffics *t);
/* Counts an answer, unless there is no memory. */
void traffics_count(struct traffics *t, int64_t model_id, const char *tenant, const char *model,
                    int64_t latency_ns, int64_t now_ns);
/* Time that is covered so far. */
double traffics_window_s(const struct traffics *t, int64_t now_ns);
/* The first (at NULL), or the next. */
struct traffic *traffics_next(const struct traffics *t, const struct traffic *at);
void traffic_look(struct traffic *x, int64_t now_ns, struct traffic_line *out);
/* Forgets models that have had no request for a minute. */
void traffics_sweep(struct traffics *t, int64_t now_ns);

#endif
