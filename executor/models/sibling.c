/* sibling.c - see sibling.h. */
#include "executor/models/sibling.h"

#include "common/mem.h"
#include "executor/models/model_int.h"
#include "executor/models/share.h"
#include "runtime/pack/layers.h"

/* Of its bytes on the device, those that lie there as a run reads them, and nobody writes. */
static uint64_t unpacked_bytes(const struct model *m)
{
    const uint64_t held = model_resident_bytes(m);

    if (m->phase != MODEL_READY || !m->has_image || tx_image_busy(&m->tx) || m->is_placed ||
        m->is_broken || m->is_spoiled || m->rest != MODEL_REST_NONE)
        return 0;
    if (!m->link_ends || m->packed_from >= m->n_layers - m->tables.n)
        return held;
    return SH_MIN(held, layer_begin(m->layer_ends, m->packed_from));
}

/* The bytes on the device of the layers that both have alike, and `from` has there. */
static uint64_t alike_there(const struct model *m, const struct model *from)
{
    const uint64_t there = unpacked_bytes(from), alike = there ? share__alike(m, from) : 0;
    const uint32_t n = SH_MIN(m->n_layers - m->tables.n, from->n_layers - from->tables.n);
    const uint64_t *link = m->link_ends ? m->link_ends : m->layer_ends;
    const uint64_t *its = from->link_ends ? from->link_ends : from->layer_ends;
    uint32_t i = 0;

    if (alike == 0 || !m->link_ends != !from->link_ends)
        return 0;
    while (i < n && m->layer_ends[i] == from->layer_ends[i] && link[i] == its[i] &&
           link[i] <= alike && m->layer_ends[i] <= there)
        i++;
    return layer_begin(m->layer_ends, i);
}

void sibling__bring(struct model *m, uint64_t wanted)
{
    const struct model *best = NULL;
    uint64_t most = SH_MIN(m->at.resident, wanted);

    for (const struct model *o = store_next(m->store, NULL); o; o = store_next(m->store, o)) {
        const uint64_t bytes = o != m ? SH_MIN(alike_there(m, o), wanted) : 0;

        best = bytes > most ? o : best;
        most = SH_MAX(most, bytes);
    }
    if (!best || !space_copy(store__env(m->store)->space, m->at.off + m->at.resident, best->res,
                             m->at.resident, most - m->at.resident))
        return;
    m->at.resident = most;
    m->at.moved = true;
}
