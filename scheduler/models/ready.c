/* ready.c - see models.h: where a version is READY, and which of them hold it. */
#include "scheduler/models/models.h"

static bool is_listed_ready(const struct model *m, uint32_t exec)
{
    const uint32_t at = m->on[exec].ready_at;

    return at < m->n_ready && m->ready[at] == exec;
}

/* exec is at that place of the list, and who was there is where exec was. */
static void trade(struct model *m, uint32_t exec, uint32_t at)
{
    const uint32_t other = m->ready[at], from = m->on[exec].ready_at;

    m->ready[from] = other;
    m->on[other].ready_at = from;
    m->ready[at] = exec;
    m->on[exec].ready_at = at;
}

void models__list(struct model *m, uint32_t exec, bool is_ready)
{
    if (is_ready == is_listed_ready(m, exec))
        return;
    if (is_ready) {
        m->on[exec].ready_at = m->n_ready;
        m->ready[m->n_ready++] = exec;
        return;
    }
    if (m->on[exec].ready_at < m->n_resident)
        trade(m, exec, --m->n_resident);
    trade(m, exec, --m->n_ready);
}

void models_hold(struct model *m, uint32_t exec, uint64_t bytes)
{
    const bool is_whole = bytes >= m->image_bytes;

    m->on[exec].resident_bytes = bytes;
    if (!is_listed_ready(m, exec) || is_whole == (m->on[exec].ready_at < m->n_resident))
        return;
    trade(m, exec, is_whole ? m->n_resident++ : --m->n_resident);
}
