/* device_time.c - see device_time.h. */
#include "executor/report/device_time.h"

static void settle_device_time(struct device_time *t, int64_t now_ns)
{
    const int64_t ns = now_ns - t->at_ns;

    if (ns <= 0)
        return; /* whoever had it until at_ns has had it */
    t->at_ns = now_ns;
    if (t->trains)
        return; /* the job counts it */
    if (t->runs)
        t->held_ns += ns;
    else if (t->loads)
        t->load_ns += ns;
    else
        t->idle_ns += ns;
}

void device_time_trains(struct device_time *t, bool on, int64_t now_ns)
{
    settle_device_time(t, now_ns);
    t->trains = on;
}

void device_time_runs(struct device_time *t, bool on, int64_t now_ns)
{
    settle_device_time(t, now_ns);
    t->runs = on;
}

void device_time_loads(struct device_time *t, bool on, int64_t now_ns)
{
    settle_device_time(t, now_ns);
    t->loads = on;
}

int64_t device_time_take_held(struct device_time *t, int64_t now_ns)
{
    int64_t ns;

    settle_device_time(t, now_ns);
    ns = t->held_ns;
    t->held_ns = 0;
    return ns;
}

void device_time_take_rest(struct device_time *t, int64_t now_ns, int64_t *load_ns,
                           int64_t *idle_ns)
{
    settle_device_time(t, now_ns);
    *load_ns = t->load_ns;
    *idle_ns = t->idle_ns;
    t->load_ns = t->idle_ns = 0;
}
