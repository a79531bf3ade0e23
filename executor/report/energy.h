/* energy.h - shares a device's energy out among those who have it.
 *
 * Readings are of the whole device. Time that is counted gets the power of the last interval; what
 * that gave too much or too little of is made up for over the next second. So in the long run the
 * shares add up to what was read. Pure: the caller has the clock. Belongs to the loop's thread.
 */
#ifndef SH_EXECUTOR_REPORT_ENERGY_H
#define SH_EXECUTOR_REPORT_ENERGY_H

#include <stdbool.h>
#include <stdint.h>

struct energy {
    bool is_known; /* there was a reading */
    double read_j, first_j, given_j, watts;
    int64_t read_ns;
};

/* The device has used `joules` since some moment in the past; it never falls but after a reset. */
void energy_note(struct energy *e, double joules, int64_t now_ns);
/* Joules of so much time; 0 before the second reading. */
double energy_take(struct energy *e, int64_t ns);

#endif
