/* clock.c - time, real or set by a test. */
#include "common/clock.h"

#include "common/units.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

static atomic_bool fake;
static _Atomic int64_t fake_ns, fake_wall_ns;

int64_t sh_clock_cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return SH_S(t.tv_sec) + t.tv_nsec;
}

int64_t sh_clock_ns(void)
{
    struct timespec t;

    if (atomic_load_explicit(&fake, memory_order_relaxed))
        return atomic_load(&fake_ns);
    clock_gettime(CLOCK_MONOTONIC, &t);
    return SH_S(t.tv_sec) + t.tv_nsec;
}

int64_t sh_clock_wall_ns(void)
{
    struct timespec t;

    if (atomic_load_explicit(&fake, memory_order_relaxed))
        return atomic_load(&fake_wall_ns);
    clock_gettime(CLOCK_REALTIME, &t);
    return SH_S(t.tv_sec) + t.tv_nsec;
}

int64_t sh_clock_wall_ms(void)
{
    return sh_clock_wall_ns() / SH_MS(1);
}

void sh_clock_fake(int64_t mono_ns, int64_t wall_ms)
{
    /* Release is enough, and cheap: the simulation sets it twice at each event. */
    atomic_store_explicit(&fake_ns, mono_ns, memory_order_release);
    atomic_store_explicit(&fake_wall_ns, SH_MS(wall_ms), memory_order_release);
    atomic_store_explicit(&fake, true, memory_order_release);
}

void sh_clock_advance(int64_t ns)
{
    atomic_fetch_add(&fake_ns, ns);
    atomic_fetch_add(&fake_wall_ns, ns);
}

void sh_clock_real(void)
{
    atomic_store(&fake, false);
}

void sh_clock_format(int64_t wall_ms, char out[static 25])
{
    /* The format has four digits for the year: clamp to 0000-01-01 .. 9999-12-31. */
    const int64_t first = INT64_C(-62167219200000), last = INT64_C(253402300799999);
    int64_t ms = wall_ms < first ? first : wall_ms > last ? last : wall_ms;
    int64_t part = (ms % 1000 + 1000) % 1000;
    time_t s = (time_t)((ms - part) / 1000);
    struct tm tm;
    char text[96];

    gmtime_r(&s, &tm);
    snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900,
             tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int)part);
    snprintf(out, 25, "%.24s", text);
}
