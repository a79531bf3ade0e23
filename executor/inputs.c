/* inputs.c - see inputs.h. */
#include "executor/inputs.h"

#include "common/mem.h"
#include "executor/pool.h"
#include "executor/switch_int.h"

#define MIN_COPY ((size_t)64 << 10) /* bytes; on average over the copies of a run */
#define MAX_BACKLOG_NS 200000.0     /* of the lane: about one group of weights */

/* Do the spans of a part agree with those of the first, and lie in its slab? */
static bool agrees(const struct run_part *p, const struct run_part *first,
                   const struct sh_shm *slab)
{
    if (!slab || p->n_in != first->n_in)
        return false;
    for (size_t i = 0; i < p->n_in; i++)
        if (p->in[i].len % p->batch || p->in[i].len / p->batch != first->in[i].len / first->batch ||
            p->in[i].off > slab->bytes || p->in[i].len > slab->bytes - p->in[i].off)
            return false;
    return true;
}

/* Whatever is odd about a run, its worker will find it and say so. offs: [n_inputs]. */
static bool is_worth_it(const struct run *r, const uint64_t *offs)
{
    const struct exec *x = r->x;
    size_t bytes = 0, n_copies = 0;

    if (r->n_attempts > 0 || x->ablations.now != ABLATION_NONE ||
        tx_backlog_ns(x->tx) > MAX_BACKLOG_NS)
        return false;
    for (size_t k = 0; k < r->n_parts; k++) {
        const struct run_part *p = &r->parts[k];

        if (p->n_in != r->model->n_inputs ||
            !agrees(p, &r->parts[0], pool_slab(x->pool, p->api_id)))
            return false;
        for (size_t i = 0; i < p->n_in; i++)
            bytes += p->in[i].len;
        n_copies += p->n_in;
    }
    if (n_copies == 0 || bytes / n_copies < MIN_COPY)
        return false;
    for (size_t i = 0; i < r->model->n_inputs; i++)
        if (offs[i] > r->ws_bytes ||
            r->parts[0].in[i].len / r->parts[0].batch > (r->ws_bytes - offs[i]) / r->batch)
            return false;
    return true;
}

static int copy(const struct run *r, const uint64_t *offs, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; i < r->model->n_inputs; i++) {
        size_t to = space_offset(&r->ws) + (size_t)offs[i];

        for (size_t k = 0; !rc && k < r->n_parts; k++) {
            const struct run_part *p = &r->parts[k];
            const struct sh_shm *slab = pool_slab(r->x->pool, p->api_id);

            rc = tx_in(r->x->tx, to, (const char *)slab->base + p->in[i].off, p->in[i].len, err);
            to += p->in[i].len;
        }
    }
    return rc;
}

int inputs_send(struct run *r, struct msg_wk_run *m, struct sh_err *err)
{
    struct exec *x = r->x;
    const double *layer_ns = NULL;
    const struct msg_batch *row = model_batch(r->model, r->batch, &layer_ns);
    const uint64_t *offs =
        r->model->input_offs + (size_t)(row - r->model->batches) * r->model->n_inputs;
    int rc;

    if (is_worth_it(r, offs)) {
        bool came = copy(r, offs, NULL) == SH_OK;

        rc = tx_ticket(x->tx, TX_LANE_IN, TX_SLOT_INPUTS, x->inputs_ticket + 1, err);
        if (rc)
            return rc;
        x->inputs_ticket++;
        m->inputs = came ? MSG_INPUTS_COME : MSG_INPUTS_BRING_AFTER;
    } else if (!inputs_arrived(x)) { /* perhaps to the same place */
        m->inputs = MSG_INPUTS_BRING_AFTER;
    }
    m->ticket_slot = TX_SLOT_INPUTS;
    m->ticket_value = x->inputs_ticket;
    return SH_OK;
}

bool inputs_arrived(const struct exec *x)
{
    return (int32_t)(dev_ticket_value(x->mem, TX_SLOT_INPUTS) - x->inputs_ticket) >= 0;
}

void inputs_force(struct exec *x)
{
    if (!inputs_arrived(x))
        dev_ticket_force(x->mem, TX_SLOT_INPUTS, x->inputs_ticket);
}
