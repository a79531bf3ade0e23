/* decide_scan.h - what decide.h says of training, said by looking at everything each time: the
 * oracle of test_jobpool.c. It knows nothing of trees, so it shares no mistake with them. Decides
 * about at most SCAN_MAX jobs, tenants and executors. */
#ifndef SH_TESTS_UNIT_DECIDE_SCAN_H
#define SH_TESTS_UNIT_DECIDE_SCAN_H

#include "scheduler/decide/decide.h"

#define SCAN_MAX 64

enum scan_taken { SCAN_NOT, SCAN_STARTS, SCAN_COMING, SCAN_SERVED, SCAN_STOPS, SCAN_FAILED };

struct scan {
    const struct snapshot *in;
    double running[SCAN_MAX], held[SCAN_MAX], fixed[SCAN_MAX], share[SCAN_MAX];
    uint32_t in_array[SCAN_MAX + 1], slot[SCAN_MAX];
    enum scan_taken taken[SCAN_MAX];
    bool any_up;
    uint64_t most_bytes;
    uint32_t coming;
    /* Decisions: jobs in their order, and executors or reasons. */
    uint32_t started[SCAN_MAX], start_exec[SCAN_MAX], stopped[SCAN_MAX];
    enum decide_reason stop_why[SCAN_MAX], wait[SCAN_MAX];
    size_t n_started, n_stopped;
};

void scan_decide(struct scan *p, const struct snapshot *in);

#endif
