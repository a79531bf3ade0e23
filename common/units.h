/* units.h - times by the name of their unit: SH_MS(20), not a row of zeros. All are whole
 * nanoseconds, and so is what is given: SH_S(0.5) is 0. The other way round: ns / SH_MS(1).
 */
#ifndef SH_COMMON_UNITS_H
#define SH_COMMON_UNITS_H

#include <stdint.h>

#define SH_US(n) ((int64_t)(n)*INT64_C(1000))
#define SH_MS(n) ((int64_t)(n)*INT64_C(1000000))
#define SH_S(n) ((int64_t)(n)*INT64_C(1000000000))
#define SH_DAYS(n) SH_S((int64_t)(n)*86400)

/* Milliseconds, rounded up: who waits so long wakes when the time is over, not before. */
static inline int64_t sh_ms_up(int64_t ns)
{
    return ns / SH_MS(1) + (ns % SH_MS(1) > 0);
}

#endif
