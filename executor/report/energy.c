/* energy.c - see energy.h. */
#include "executor/report/energy.h"

#include "common/mem.h"

void energy_note(struct energy *e, double joules, int64_t now_ns)
{
    const double used = joules - e->read_j;
    const int64_t ns = now_ns - e->read_ns;

    if (!e->is_known || used < 0) { /* the driver was loaded again */
        *e = (struct energy){.is_known = true,
                             .read_j = joules,
                             .first_j = joules,
                             .read_ns = now_ns,
                             .first_ns = now_ns};
        return;
    }
    if (used <= 0 || ns <= 0)
        return; /* not measured again since */
    e->watts = used / ((double)ns / 1e9);
    e->read_j = joules;
    e->read_ns = now_ns;
    e->given_ns = SH_MIN(e->given_ns, now_ns - e->first_ns); /* some was before the first one */
}

double energy_take(struct energy *e, int64_t ns)
{
    const int64_t owed_ns = e->read_ns - e->first_ns - e->given_ns;
    const double owed_j = e->read_j - e->first_j - e->given_j;
    const int64_t past = SH_MIN(ns, SH_MAX(owed_ns, (int64_t)0));
    const int64_t most = ENERGY_AHEAD_NS + SH_MIN(owed_ns, (int64_t)0);
    const int64_t ahead = SH_MIN(ns - past, SH_MAX(most, (int64_t)0));
    double j = e->watts * (double)ahead / 1e9;

    if (past > 0 && owed_j > 0)
        j += owed_j * (double)past / (double)owed_ns;
    e->given_j += j;
    e->given_ns += past + ahead;
    return j;
}
