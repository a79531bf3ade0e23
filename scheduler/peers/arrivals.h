/* arrivals.h - which requests came when, for what-if questions that let the last hours come again.
 *
 * The leader notes each request for a version that it knows, refused ones too. A slice is
 * ARRIVALS_SLICE_NS long, and is written to the database when it is over (records/report.h).
 *
 * Bounds. In a slice there are ARRIVALS_ROWS pairs of a tenant and a version at most; requests of
 * others are only counted. A row has ARRIVALS_BINS moments with requests at most: it begins with
 * moments of a millisecond, and whenever it is full they become twice as long. So up to 51 requests
 * a second are kept to the millisecond, however many to 32 ms. A row takes 4.3 KB of memory, a
 * slice 1.1 MB.
 *
 * Times are arguments. Not thread-safe.
 */
#ifndef SH_SCHEDULER_PEERS_ARRIVALS_H
#define SH_SCHEDULER_PEERS_ARRIVALS_H

#include "common/idmap.h"
#include "common/units.h"

#include <stdbool.h>
#include <stdint.h>

#define ARRIVALS_SLICE_NS SH_S(10)
#define ARRIVALS_ROWS 256u
#define ARRIVALS_BINS 512u
#define ARRIVALS_SIZES 11u /* of requests, in samples: 1, 2, 3-4, 5-8 ... */

struct arrivals_row {
    struct arrivals_row *next, *next_of_version;
    char tenant[64];
    int64_t version_id;
    uint32_t unit_ms, n_requests, n_bins;
    struct arrivals_bin {
        uint32_t at, n; /* at: in units since the slice began */
    } bins[ARRIVALS_BINS];
    uint32_t sized[ARRIVALS_SIZES];   /* how many were of that size, so far as it is known ... */
    uint64_t samples[ARRIVALS_SIZES]; /* ... and what they had together */
};

struct arrivals { /* a zeroed one is empty */
    int64_t begun_ns;
    struct arrivals_row *all; /* OWNED */
    struct idmap by_version;
    uint32_t n_rows;
    uint64_t n_requests; /* with those that are in no row */
};

void arrivals_fini(struct arrivals *a);
/* Its headers have arrived. */
void arrivals_add(struct arrivals *a, const char *tenant, int64_t version_id, int64_t now_ns);
/* So many samples were in it. */
void arrivals_sized(struct arrivals *a, const char *tenant, int64_t version_id, uint32_t samples);
bool arrivals_is_over(const struct arrivals *a, int64_t now_ns);
/* What the slice has, as JSON: [{"tenant", "version", "unit_ms", "requests", "at": "12 3*2 5",
 * "sizes": [[requests, samples], ...]}], at: distances in units, each with how many if not one.
 * OWNED; NULL: nothing, or no memory. The next slice begins with the next request. */
char *arrivals_take(struct arrivals *a, uint64_t *n_requests_out);

#endif
