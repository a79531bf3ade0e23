/* loss.c - see loss.h. */
#include "scheduler/decide/loss.h"

#define MOST_NS SH_DAYS(1) /* of each part: they are measured, and not all that is said is true */

static int64_t part_ns(double ns)
{
    return ns > 0 ? ns < (double)MOST_NS ? (int64_t)ns : MOST_NS : 0; /* NaN: 0 */
}

struct loss loss_of(const struct loss_facts *f)
{
    const double bytes = (double)f->state_bytes;
    const double write_ns = f->disk_bytes_per_s > 0 ? bytes / f->disk_bytes_per_s * 1e9 : 0;
    struct loss l = {.save_ns = part_ns(bytes * f->copy_ns_per_byte + write_ns),
                     .resume_ns = f->start_ns > 0 ? part_ns((double)f->start_ns) : LOSS_RESUME_NS,
                     .redo_ns = f->steps_per_s > 0 ? part_ns(0.5e9 / f->steps_per_s) : 0};

    l.all_ns = (f->gpus > 1 ? f->gpus : 1) * (l.save_ns + l.resume_ns + l.redo_ns);
    return l;
}

int64_t loss_rank_ns(const struct loss *l)
{
    return l->all_ns / LOSS_ALIKE_NS * LOSS_ALIKE_NS;
}
