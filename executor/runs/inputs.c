/* inputs.c - see inputs.h. */
#include "executor/runs/inputs.h"

#include "common/log.h"
#include "common/mem.h"
#include "executor/requests/slabs.h"
#include "executor/runs/payload.h"
#include "executor/runs/switch_int.h"

#define MIN_COPY ((size_t)64 << 10) /* bytes; on average over the copies of a run */
#define MAX_BACKLOG_NS 200000.0     /* of the lane */
#define MIN_FIRST_NS 30000.0        /* before weights: what it takes to cut and enqueue those */

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
    const struct switch_env *env = &r->sw->env;
    size_t bytes = 0, n_copies = 0;

    if (r->n_attempts > 0 || !HOOK_ASK(env->hooks, sends_inputs, true) ||
        tx_backlog_ns(env->tx) > MAX_BACKLOG_NS)
        return false;
    for (size_t k = 0; k < r->n_parts; k++) {
        const struct run_part *p = &r->parts[k];

        if (p->n_in != r->shape->n_inputs || !payload_has_part(r, p) ||
            !agrees(p, &r->parts[0], slabs_find_locked(env->slabs, p->api_id)))
            return false;
        for (size_t i = 0; i < p->n_in; i++)
            bytes += p->in[i].len;
        n_copies += p->n_in;
    }
    if (n_copies == 0 || bytes / n_copies < MIN_COPY ||
        (r->model->is_placed && tx_lane_beta_ns(env->tx) * (double)bytes < MIN_FIRST_NS))
        return false;
    for (size_t i = 0; i < r->shape->n_inputs; i++)
        if (offs[i] > r->ws_bytes ||
            r->parts[0].in[i].len / r->parts[0].batch > (r->ws_bytes - offs[i]) / r->batch)
            return false;
    return true;
}

static int copy_inputs(const struct run *r, const uint64_t *offs, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; i < r->shape->n_inputs; i++) {
        size_t to = space_offset(&r->ws) + (size_t)offs[i];

        for (size_t k = 0; !rc && k < r->n_parts; k++) {
            const struct run_part *p = &r->parts[k];
            const struct sh_shm *slab = slabs_find_locked(r->sw->env.slabs, p->api_id);

            rc = tx_in(r->sw->env.tx, TX_INPUTS, to, (const char *)slab->base + p->in[i].off,
                       p->in[i].len, err);
            to += p->in[i].len;
        }
    }
    return rc;
}

static void on_passed(void *arg)
{
    struct switcher *sw = arg;

    sw->n_inputs_loose--;
}

/* The ticket does not say, or not truly, when the lane has passed what it was given: a mark does.
 * Should the lane not take that either, what it may still touch stays as it is for good. */
static void follow_with_mark(struct switcher *sw)
{
    struct sh_err err = {0};

    sw->n_inputs_loose++;
    if (tx_mark(sw->env.tx, TX_LANE_IN, on_passed, sw, &err))
        sh_log_err(SH_LOG_ERROR, "inputs.lost", &err);
}

static bool has_ticket(const struct switcher *sw)
{
    return (int32_t)(dev_ticket_value(sw->env.mem, TX_SLOT_INPUTS) - sw->inputs_ticket) >= 0;
}

int inputs_send(struct run *r, struct sh_err *err)
{
    struct switcher *sw = r->sw;
    const double *layer_ns = NULL;
    const struct msg_batch *row = model_batch(r->shape, r->batch, &layer_ns);
    const uint64_t *offs =
        r->shape->input_offs + (size_t)(row - r->shape->batches) * r->shape->n_inputs;
    bool came;
    int rc;

    r->has_inputs = false;
    if (!is_worth_it(r, offs))
        return SH_OK;
    came = copy_inputs(r, offs, NULL) == SH_OK;
    rc = tx_ticket(sw->env.tx, TX_LANE_IN, TX_SLOT_INPUTS, sw->inputs_ticket + 1, err);
    if (rc) {
        follow_with_mark(sw);
        return rc;
    }
    sw->inputs_ticket++;
    r->has_inputs = came;
    return SH_OK;
}

/* The worker of a first attempt may have written over them, and one that has joined since may have
 * them elsewhere. What is on its way comes to the same place, perhaps. */
void inputs_tell(const struct run *r, struct msg_wk_run *m)
{
    if (r->has_inputs && r->n_attempts == 0 && r->shape->n_inputs > 0)
        m->inputs = MSG_INPUTS_COME;
    else
        m->inputs = inputs_arrived(r->sw) ? MSG_INPUTS_BRING : MSG_INPUTS_BRING_AFTER;
    m->ticket_slot = TX_SLOT_INPUTS;
    m->ticket_value = r->sw->inputs_ticket;
}

bool inputs_arrived(const struct switcher *sw)
{
    return sw->n_inputs_loose == 0 && has_ticket(sw);
}

void inputs_force(struct switcher *sw)
{
    if (has_ticket(sw))
        return;
    dev_ticket_force(sw->env.mem, TX_SLOT_INPUTS, sw->inputs_ticket);
    follow_with_mark(sw);
}
