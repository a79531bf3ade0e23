/* packing.c - see packing.h. */
#include "tests/sim/packing.h"

#include "common/mem.h"
#include "runtime/pack/layers.h"
#include "runtime/pack/pack.h"

#define HEAD 8u /* of a packed layer */

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
    uint64_t at = 0;

    for (uint32_t i = 0; i < m->n_layers; i++) {
        at += packed_bytes(p, i, layer_bytes(m->layer_ends, i));
        link_ends[i] = at;
    }
    if (at * 100 > bytes * 98)
        return false;
    return how == MSG_PACK_ALWAYS || (how == MSG_PACK_GAINS && sim_mix(sim_stem(p), bytes) % 4 > 0);
}
