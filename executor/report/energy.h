/* energy.h - shares a device's energy out among those who have it.
 *
 * Readings are of the whole device. What was used up to the last one and is nobody's yet goes to
 * the time that is nobody's yet, evenly: so a run that is counted when it ends has what its time
 * had, and the shares add up to what was read. Time after the last reading gets the power of the
 * last interval, but not for long: without readings nothing is known. Pure: the caller has the
 * clock. Belongs to the loop's thread.
 */
#ifndef SH_EXECUTOR_REPORT_ENERGY_H
#define SH_EXECUTOR_REPORT_ENERGY_H

#include "common/units.h"

#include <stdbool.h>
#include <stdint.h>

#define ENERGY_AHEAD_NS SH_S(5) /* so far after the last reading time has a share */

struct energy {
    bool is_known; /* there was a reading */
    double read_j, first_j, given_j, watts;
    int64_t read_ns, first_ns, given_ns;
};

/* The device has used `joules` since some moment in the past; it never falls but after a reset. */
void energy_note(struct energy *e, double joules, int64_t now_ns);
/* Joules of so much time; 0 before the second reading. */
double energy_take(struct energy *e, int64_t ns);

#endif
