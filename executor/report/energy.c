/* energy.c - see energy.h. */
#include "executor/report/energy.h"

#define SETTLE_S 1.0

void energy_note(struct energy *e, double joules, int64_t now_ns)
{
    const double s = (double)(now_ns - e->read_ns) / 1e9, used = joules - e->read_j;
    double owed;

    if (!e->is_known || used < 0) { /* the driver was loaded again */
        *e = (struct energy){
            .is_known = true, .read_j = joules, .first_j = joules, .read_ns = now_ns};
        return;
    }
    if (used <= 0 || s <= 0)
        return; /* not measured again since */
    owed = joules - e->first_j - e->given_j;
    e->watts = used / s + (owed - used) / SETTLE_S;
    if (e->watts < 0)
        e->watts = 0;
    e->read_j = joules;
    e->read_ns = now_ns;
}

double energy_take(struct energy *e, int64_t ns)
{
    const double j = e->watts * (double)ns / 1e9;

    e->given_j += j;
    return j;
}
