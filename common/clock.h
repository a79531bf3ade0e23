/* clock.h - the only reader of time. Tests replace it.
 *
 * Thread-safe. Monotonic nanoseconds for durations and deadlines, wall milliseconds for records.
 */
#ifndef SH_COMMON_CLOCK_H
#define SH_COMMON_CLOCK_H

#include <stdint.h>

int64_t sh_clock_ns(void);      /* CLOCK_MONOTONIC: comparable between processes of one host */
int64_t sh_clock_wall_ms(void); /* Unix time */
int64_t sh_clock_wall_ns(void); /* the same */
int64_t sh_clock_cpu_ns(void);  /* that this thread has computed */

/* How long it is until then; 0: it is past. One look at the clock: SH_MAX() of a difference takes
 * two, and what the first finds above 0 the second may find below. */
static inline int64_t sh_clock_until(int64_t end_ns)
{
    const int64_t now_ns = sh_clock_ns();

    return end_ns > now_ns ? end_ns - now_ns : 0;
}

/* Tests only: stops time until it is moved; sh_clock_real() ends that. */
void sh_clock_fake(int64_t mono_ns, int64_t wall_ms);
void sh_clock_advance(int64_t ns);
void sh_clock_real(void);

/* RFC 3339 in UTC with milliseconds: "2026-11-21T05:53:00.123Z". out holds at least 25 bytes. */
void sh_clock_format(int64_t wall_ms, char out[static 25]);

#endif
