/* packing.c - see packing.h. */
#include "tests/sim/packing.h"

#include "common/mem.h"
#include "runtime/pack/layers.h"
#include "runtime/pack/pack.h"

#define HEAD 8u /* of a packed layer */
/* As executor/worker/pack.c, where a block stands for 2 MiB. */
#define MOST_EXCESS 16u
#define MIN_EXCESS (4 * DEV_BLOCK)

/* Most layers take half of their bytes, some nearly all, a few more. */
static uint64_t packed_bytes(const struct sim_package *p, uint32_t layer, uint64_t bytes)
{
    const uint64_t r = sim_mix(sim_stem(p), layer) % 16;
    const uint64_t percent = r == 0 ? 100 : r == 1 ? 90 : 40 + 2 * r;

    return bytes ? SH_ALIGN_UP(bytes * percent / 100 + HEAD, (uint64_t)PACK_ALIGN) : 0;
}

bool sim_packs(const struct sim_package *p, const struct sim_model *m, enum msg_pack how,
               uint64_t link_ends[static SIM_MAX_LAYERS])
{
    const uint64_t bytes = m->layer_ends[m->n_layers - 1];
    uint64_t at = 0, range;

    for (uint32_t i = 0; i < m->n_layers; i++) {
        at += packed_bytes(p, i, layer_bytes(m->layer_ends, i));
        link_ends[i] = at;
    }
    range = pack_shift(m->layer_ends, link_ends, m->n_layers) + at;
    if (at * 100 > bytes * 98 || range > bytes + SH_MAX(bytes / MOST_EXCESS, MIN_EXCESS))
        return false;
    return how == MSG_PACK_ALWAYS || (how == MSG_PACK_GAINS && sim_mix(sim_stem(p), bytes) % 4 > 0);
}
