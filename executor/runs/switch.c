/* switch.c - see switch.h. */
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/units.h"
#include "executor/models/apart.h"
#include "executor/models/packed.h"
#include "executor/models/tables.h"
#include "executor/report/report.h"
#include "executor/requests/data.h"
#include "executor/runs/inputs.h"
#include "executor/runs/payload.h"
#include "executor/runs/switch_int.h"

#include <inttypes.h>
#include <stdlib.h>

#define TICK_NS SH_MS(20)
#define STUCK_NS SH_S(5)
#define LOOSE_NS SH_S(10)
#define UNPACK_LOST "the model's weights could not be unpacked on the device; try again"
#define COPY_LOST "the copy of the model's weights did not end; try again"

/* ------------------------------------------------------------------ queue */

static void append_run(struct switcher *sw, struct run *r)
{
    r->next = NULL;
    *sw->tail = r;
    sw->tail = &r->next;
    sw->n_queued++;
}

static void unlink_run(struct switcher *sw, struct run **at)
{
    struct run *r = *at;

    *at = r->next;
    if (sw->tail == &r->next)
        sw->tail = at;
    r->next = NULL;
    sw->n_queued--;
}

static void end_current_run(struct run *r, const struct sh_err *why,
                            const struct msg_wk_run_done *done)
{
    run__report(r, why, done);
    run__free(r);
}

static void end_current(struct switcher *sw, const struct sh_err *why,
                        const struct msg_wk_run_done *done)
{
    struct run *r = sw->current;
    struct model *m = done && r->has_pin ? r->model : NULL;
    const uint64_t found = r->hit_bytes;

    sw->current = NULL;
    usage_runs(sw->env.report->usage, false, sh_clock_ns());
    rivalry__end(sw);
    end_current_run(r, why, done);
    if (m)
        model_bring_tables(m, found);
}

static bool payload_is_here(struct switcher *sw, const struct run *r)
{
    for (size_t i = 0; i < r->n_parts && !r->is_own; i++)
        if (!data_is_complete(sw->env.data, r->parts[i].api_id, r->parts[i].rid, r->recv_ns))
            return false;
    return true;
}

/* The first whose payload is here and for whom a worker is free; our own runs come last. */
static struct run **pick_run(struct switcher *sw)
{
    struct run **own = NULL;

    for (struct run **p = &sw->queue; *p; p = &(*p)->next) {
        if (!payload_is_here(sw, *p) ||
            (!pool_find(sw->env.pool, (*p)->shape->handle) &&
             !HOOK_ASK(sw->env.hooks, frees_worker, false, (*p)->model)))
            continue;
        if (!(*p)->is_own)
            return p;
        if (!own)
            own = p;
    }
    return own;
}

size_t switch_n_runs(const struct switcher *sw)
{
    return sw->n_queued + (sw->current != NULL);
}

bool switch_is_quiet(const struct switcher *sw)
{
    return !sw->current && !sw->queue;
}

bool switch_has_waiting(const struct switcher *sw, const struct model *m)
{
    for (const struct run *r = sw->queue; r; r = r->next)
        if (r->shape == m)
            return true;
    return sw->current && sw->current->shape == m && sw->current->phase != RUN_ACTIVE;
}

bool switch_wants_memory(const struct switcher *sw)
{
    return sw->current && sw->current->phase == RUN_MEMORY;
}

bool switch_is_idle(struct switcher *sw)
{
    return !sw->current && !pick_run(sw);
}

/* ------------------------------------------------------------------ memory */

static bool images_arrive(struct switcher *sw)
{
    for (struct model *m = store_next(sw->env.store, NULL); m; m = store_next(sw->env.store, m))
        if (tx_image_busy(&m->tx) || m->is_broken)
            return true;
    return false;
}

static void ask_training(struct switcher *sw, struct run *r, enum stop_way way)
{
    if (r->has_asked && r->way >= way)
        return;
    if (way > STOP_PAUSE && !sw->rival.has_yielded(sw->rival.arg, STOP_DROP))
        rivalry__lose(sw);
    r->has_asked = true;
    r->way = way;
    sw->rival.yield(sw->rival.arg, way);
}

/* Training stops in any case: it need not wait until it is known what else it must give up. */
static void stop_training(struct switcher *sw)
{
    if (HOOK_ASK(sw->env.hooks, stops_early, true))
        sw->rival.yield(sw->rival.arg, STOP_PAUSE);
}

/* True: something changed; false: wait for an event. */
static bool give_run_memory(struct switcher *sw, struct run *r)
{
    struct sh_err err = {0}, never = {0};
    int rc;

    if (!r->has_asked && HOOK_ASK(sw->env.hooks, wants_swap, false)) {
        ask_training(sw, r, STOP_SWAP);
        return true;
    }
    if (r->has_asked && !sw->rival.has_yielded(sw->rival.arg, r->way))
        return false;
    HOOK_TELL(sw->env.hooks, has_swapped);
    if (!r->has_asked && rivalry__waits_for_drop(r)) {
        ask_training(sw, r, STOP_DROP);
        return true;
    }
    rc = room__take(r, &err);
    r->memory_ns = sh_clock_ns();
    if (!rc) {
        run__go(r, RUN_SEND);
        ask_training(sw, r, HOOK_ASK(sw->env.hooks, way_beside, STOP_PAUSE));
        return true;
    }
    if (rc == SH_E_DEVMEM) {
        for (int way = room__way(r); way < STOP_N_WAYS; way++) {
            if (!sw->rival.has_yielded(sw->rival.arg, (enum stop_way)way)) {
                ask_training(sw, r, (enum stop_way)way);
                return true;
            }
            if (images_arrive(sw))
                return false; /* their copies end soon, then they can be evicted */
        }
        if (store_yield_pins(sw->env.store))
            return true;
    }
    /* Its tenant's quota may have shrunk below it: then nobody should ask again. */
    if (rc == SH_E_DEVMEM && model_check_more(r->model, room__batch(r)->ws_bytes, &never))
        err = never;
    end_current(sw, &err, NULL);
    return true;
}

/* ------------------------------------------------------------------ sending */

/* A worker that joined after the run got its memory may need a larger workspace. */
static bool has_outgrown(const struct run *r)
{
    return r->has_ws && room__batch(r)->ws_bytes > r->ws_bytes;
}

/* What the lane still does where the run writes: inputs to its workspace at once, and weights where
 * a packed copy on the device is unpacked. Else the image need not have arrived, and its head need
 * not have moved to its place yet: each group carries a ticket that the lane raises behind that
 * group's bytes, and behind the move before them. */
static bool waits_for_lane(const struct switcher *sw, const struct run *r)
{
    if (r->ws.must_wait && !space_is_clean(sw->env.space, &r->ws))
        return true;
    return r->has_pin && model_waits_for_place(r->model);
}

static bool send_worker_run(struct switcher *sw, struct run *r)
{
    const struct msg_group all = {.end_layer = r->model->n_layers, .ticket_slot = TX_NO_TICKET};
    const struct tx_image *im = &r->model->tx;
    struct worker *w = pool_find(sw->env.pool, r->shape->handle);
    struct sh_msg m = {.type = MSG_WK_RUN};
    struct hook_send extra = {.n_fds = 0};
    struct sh_err err = {0};

    if (r->has_pin && r->model->is_broken) { /* no more of it comes */
        SH_FAIL(&err, SH_E_UNAVAILABLE, COPY_LOST);
        end_current(sw, &err, NULL);
        return true;
    }
    if (!w)
        HOOK_TELL(sw->env.hooks, finds_no_worker);
    if (!w || waits_for_lane(sw, r))
        return false;
    if (has_outgrown(r)) {
        run__give_back(r);
        run__go(r, RUN_MEMORY);
        return true;
    }
    m.u.wk_run = (struct msg_wk_run){.run_id = r->id,
                                     .handle = r->shape->handle,
                                     .batch = r->batch,
                                     .n_parts = (uint32_t)r->n_parts,
                                     .image_off = r->model->at.off,
                                     .ws_off = space_offset(&r->ws),
                                     .groups = {&all, sizeof(all)}};
    if (tx_image_busy(im))
        m.u.wk_run.groups = (struct sh_blob){im->groups, im->n_groups * sizeof(*im->groups)};
    if (r->has_pin && !model_tell_tables(r->model, &m.u.wk_run)) {
        run__give_back(r); /* a worker has come that cannot read them in place yet */
        run__go(r, RUN_MEMORY);
        return true;
    }
    r->is_cold |= tx_groups_wait(&m.u.wk_run.groups); /* of those that it was given */
    r->is_packed = r->has_pin && model_tell_packed(r->model, &m.u.wk_run);
    r->is_cold |= r->is_packed;
    inputs_tell(r, &m.u.wk_run);
    if (payload_lend(r, w, &err)) {
        end_current(sw, &err, NULL);
        return true;
    }
    HOOK_TELL(sw->env.hooks, fill_run, r->model, &m.u.wk_run, &extra);
    m.u.wk_run.turn = r->turn = worker_next_turn(w);
    worker_cork(w);
    payload_send_parts(r, w);
    atomic_store(&worker_page(w)->give_up, !run__is_wanted(r));
    pool_set_state(w, WORKER_ACTIVE);
    worker_grant(w, tx_image_busy(im) ? 2 * im->predicted_ns : 0);
    worker_send(w, &m, extra.fds, extra.n_fds);
    worker_uncork(w);
    SH_DEBUG("switch.send",
             "run=%" PRIu64 " worker=%u image=%u groups=%zu ws_bytes=%" PRIu64
             " inputs=%u memory_ns=%" PRId64 " ns=%" PRId64,
             r->id, w->index, r->model->res, m.u.wk_run.groups.len / sizeof(struct msg_group),
             r->ws_bytes, m.u.wk_run.inputs, r->memory_ns, sh_clock_ns());
    free(extra.groups);
    for (size_t i = 0; i < r->n_parts; i++)
        r->parts[i].rc = SH_OK; /* what another worker found, this one finds too */
    r->worker = w;
    r->sent_ns = sh_clock_ns();
    r->n_attempts++;
    run__go(r, RUN_ACTIVE);
    if (r->n_attempts == 1)
        rivalry__pay(r);
    return true;
}

/* The worker learns of the run while the lane is given the rest of its weights. */
static bool start_run(struct switcher *sw, struct run *r)
{
    struct model *m = r->model;
    struct sh_err err = {0};
    bool did = give_run_memory(sw, r);

    if (sw->current == r && r->phase == RUN_SEND)
        did = send_worker_run(sw, r) || did;
    if (model_transmit_rest(m, &err) == SH_OK)
        return did;
    if (sw->current == r && r->phase == RUN_ACTIVE)
        r->is_forced = true; /* it ends soon, with garbage */
    else if (sw->current == r)
        end_current(sw, &err, NULL);
    return true;
}

/* Those of a model (NULL: of all) whose time is over. */
static void end_queued(struct switcher *sw, const struct model *m, int64_t now,
                       const struct sh_err *why)
{
    for (struct run **p = &sw->queue; *p;) {
        struct run *r = *p;

        if ((m && r->shape != m) || now < r->deadline_ns) {
            p = &r->next;
            continue;
        }
        unlink_run(sw, p);
        end_current_run(r, why, NULL);
    }
}

static void end_late(struct switcher *sw, int64_t now)
{
    struct sh_err late;

    if (!sw->queue) /* as in most turns */
        return;
    late = (struct sh_err){0};
    SH_FAIL(&late, SH_E_TIMEOUT, "the run timed out before the device was free");
    end_queued(sw, NULL, now, &late);
}

bool switch_turn(struct switcher *sw)
{
    struct run *r = sw->current;

    if (!r) {
        struct run **p;

        end_late(sw, sh_clock_ns());
        HOOK_TELL(sw->env.hooks, before_run);
        if (!(p = pick_run(sw)))
            return false;
        r = *p;
        unlink_run(sw, p);
        r->n_passed = sw->n_started++ - r->n_passed;
        run__go(r, RUN_MEMORY);
        r->start_ns = sh_clock_ns();
        sw->current = r;
        r->has_stopped = usage_has_training(sw->env.report->usage);
        stop_training(sw);
        usage_runs(sw->env.report->usage, true, r->start_ns);
        rivalry__begin(sw, r->start_ns);
        SH_DEBUG("switch.start", "run=%" PRIu64 " model=%s batch=%u ns=%" PRId64, r->id,
                 r->model->name, r->batch, r->start_ns);
    }
    switch (r->phase) {
    case RUN_MEMORY:
        return start_run(sw, r);
    case RUN_SEND:
        return send_worker_run(sw, r);
    default:
        return false;
    }
}

/* ------------------------------------------------------------------ the scheduler's messages */

static void refuse_part(struct switcher *sw, const struct run_part *p, uint32_t run_batch,
                        const struct sh_err *why)
{
    const struct msg_result m = {
        .rid = p->rid, .rc = why->rc, .msg = why->msg, .run_batch = run_batch};

    data_result(sw->env.data, p, &m);
}

void switch_on_part(struct switcher *sw, const struct msg_run_part *m)
{
    struct sh_err err = {0};

    if (parts__add(&sw->loose, m, &err) == SH_OK)
        return;
    sh_log_err(SH_LOG_ERROR, "run.part", &err);
    refuse_part(sw, &(struct run_part){.rid = m->rid, .api_id = m->api_id}, 0, &err);
}

static int admit_run(struct switcher *sw, struct run *r, struct sh_err *err)
{
    const double *layer_ns;

    if (!r->shape || (r->shape->phase != MODEL_READY && r->shape == r->model))
        return SH_FAIL(err, SH_E_NOTFOUND, "the model version is not loaded on this executor");
    /* A shape that no worker has yet: the run waits until one has. */
    if (r->shape->phase == MODEL_READY && !model_batch(r->shape, r->batch, &layer_ns))
        return SH_FAIL(err, SH_E_INVALID, "a batch of %u is more than the model's %u", r->batch,
                       r->model->max_batch);
    if (sw->n_queued >= sw->env.max_queued)
        return SH_FAIL(err, SH_E_QUEUEFULL, "%zu runs wait on this executor; try again later",
                       sw->n_queued);
    return SH_OK;
}

/* A refused run has no model perhaps, so it is not a run yet for run__report. Takes r; NULL: there
 * was no memory for it. */
static void refuse_run(struct switcher *sw, struct run *r, const struct msg_run *of,
                       const struct sh_err *why)
{
    struct sh_msg m = {.type = MSG_RUN_DONE,
                       .u.run_done = {.run_id = of->run_id, .rc = why->rc, .msg = why->msg}};
    struct model *version = store_find(sw->env.store, of->version_id);
    struct run_part left;

    SH_WARN("run.refused", "run=%" PRIu64 " code=%s msg=\"%s\"", of->run_id, sh_rc_name(why->rc),
            why->msg);
    for (size_t i = 0; r && i < r->n_parts; i++)
        refuse_part(sw, &r->parts[i], r->batch, why);
    while (parts__take(&sw->loose, of->run_id, &left)) {
        refuse_part(sw, &left, 0, why);
        run__free_part(&left);
    }
    if (version)
        m.u.run_done.resident_bytes = store_say_place(version, &m.u.run_done.unpack_ns);
    uplink_send(&sw->env.report->uplink, &m);
    run__free(r);
}

static struct run *new_run(struct switcher *sw, const struct msg_run *m, struct sh_err *err)
{
    struct run *r = calloc(1, sizeof(*r));

    if (!r) {
        SH_FAIL(err, SH_E_NOMEM, "could not allocate a run");
        return NULL;
    }
    r->sw = sw;
    r->sample = -1;
    r->id = m->run_id;
    r->n_ups = sw->env.report->uplink.n_ups;
    r->batch = m->batch;
    r->recv_ns = sh_clock_ns();
    r->deadline_ns = m->budget_ns > 0 ? r->recv_ns + m->budget_ns : INT64_MAX;
    if (parts__collect(&sw->loose, r, m->n_parts, err) || sh_strdup(m->tenant, &r->tenant, err) ||
        space_tag(sw->env.space, m->tenant, &r->tag, err))
        return r; /* refused with its parts */
    return r;
}

void switch_refuse(struct switcher *sw, const struct msg_run *m, const struct sh_err *why)
{
    struct sh_err err = {0};

    refuse_run(sw, new_run(sw, m, &err), m, why);
}

void switch_on_run(struct switcher *sw, const struct msg_run *m)
{
    struct model *version = NULL, *shape = NULL;
    struct sh_err err = {0};
    struct run *r = new_run(sw, m, &err);

    if (!err.rc) {
        store_shape_of(sw->env.store, m, &version, &shape, &err);
        if (!err.rc && version)
            run__use(r, version, shape);
        if (!err.rc)
            admit_run(sw, r, &err);
    }
    if (err.rc) {
        refuse_run(sw, r, m, &err);
        return;
    }
    append_run(sw, r);
    if (sw->current)
        model_prepare(r->model, false); /* its copies travel while the current run computes */
}

int switch_submit(struct switcher *sw, struct model *m, const struct sh_sizes *sizes,
                  const struct run_part *part, run_done_fn *fn, void *arg, struct sh_err *err)
{
    struct run *r = calloc(1, sizeof(*r));
    struct model *shape = m;
    int rc = sizes ? store_shape(m, sizes, &shape, err) : SH_OK;

    if (r)
        r->parts = calloc(1, sizeof(*r->parts));
    if (!rc && (!r || !r->parts || sh_strdup(m->tenant, &r->tenant, err)))
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate a run");
    if (rc) {
        run__free(r);
        return rc;
    }
    r->sw = sw;
    r->sample = -1;
    run__use(r, m, shape);
    r->batch = part->batch;
    r->tag = m->tag;
    r->recv_ns = sh_clock_ns();
    r->deadline_ns = INT64_MAX;
    r->is_own = true;
    r->fn = fn;
    r->arg = arg;
    r->n_passed = sw->n_started - (sw->current != NULL); /* it has the device: it goes before */
    r->parts[0] = *part;
    r->n_parts = 1;
    append_run(sw, r);
    return SH_OK;
}

bool switch_has_started(const struct switcher *sw, const void *arg)
{
    return sw->current && sw->current->is_own && sw->current->arg == arg;
}

/* The worker of the current run ends it at the next operation, if nobody waits for it. */
static void stop_unwanted(struct run *r)
{
    if (r->phase == RUN_ACTIVE && r->worker && !run__is_wanted(r))
        atomic_store(&worker_page(r->worker)->give_up, 1);
}

void switch_withdraw(struct switcher *sw, const void *arg)
{
    if (switch_has_started(sw, arg)) {
        sw->current->fn = NULL; /* it ends unheard */
        stop_unwanted(sw->current);
    }
    for (struct run **p = &sw->queue; *p;) {
        struct run *r = *p;

        if (r->arg != arg || !r->is_own) {
            p = &r->next;
            continue;
        }
        unlink_run(sw, p);
        run__free(r);
    }
}

/* ------------------------------------------------------------------ ends */

static void drop_from_run(struct switcher *sw, struct run **at, uint64_t rid, uint64_t api_id)
{
    struct run *r = *at;
    struct sh_err why = {0};

    run__drop_parts(r, rid, api_id);
    if (r->n_parts)
        return; /* n_rest is 0 where n_parts is */
    unlink_run(sw, at);
    SH_FAIL(&why, SH_E_CANCELLED, "cancelled before it ran");
    end_current_run(r, &why, NULL);
}

/* What waits for memory, or for its worker, ends at once; a part that is to run alone, when its
 * turn comes. */
static void cancel_current(struct switcher *sw, uint64_t rid, uint64_t api_id)
{
    struct run *r = sw->current;
    struct sh_err why = {0};

    run__cancel_parts(r, rid, api_id);
    stop_unwanted(r);
    if (r->phase == RUN_ACTIVE || r->n_rest || run__is_wanted(r))
        return;
    SH_FAIL(&why, SH_E_CANCELLED, "cancelled before it ran");
    end_current(sw, &why, NULL);
}

void switch_on_cancel(struct switcher *sw, const struct msg_run_cancel *m)
{
    if (sw->current && sw->current->id == m->run_id && !sw->current->is_own) {
        cancel_current(sw, m->rid, m->rid ? m->api_id : 0);
        return;
    }
    for (struct run **p = &sw->queue; *p; p = &(*p)->next)
        if ((*p)->id == m->run_id && !(*p)->is_own) {
            drop_from_run(sw, p, m->rid, m->rid ? m->api_id : 0);
            return;
        }
}

void switch_on_api_gone(struct switcher *sw, uint64_t api_id)
{
    struct run *now = sw->current;

    for (size_t i = 0; now && !now->is_own && i < now->n_parts + now->n_rest; i++)
        now->parts[i].is_cut |= now->parts[i].api_id == api_id;
    for (struct run **p = &sw->queue; *p;) {
        struct run *r = *p;

        if (!r->is_own)
            drop_from_run(sw, p, 0, api_id);
        if (*p == r)
            p = &r->next;
    }
}

/* The current run gives up what it has: it is to wait once more. */
static struct run *take_current_back(struct switcher *sw)
{
    struct run *r = sw->current;

    usage_runs(sw->env.report->usage, false, sh_clock_ns());
    run__bill(r, 0); /* behind it: between two looks at the clock nobody runs */
    run__give_back(r);
    run__go(r, RUN_QUEUED);
    r->worker = NULL;
    r->has_asked = false;
    r->n_passed = sw->n_started - 1 - r->n_passed; /* as before it began */
    sw->current = NULL;
    rivalry__end(sw);
    return r;
}

/* It waits until a worker has its model again, and holds nothing up meanwhile. */
static void put_run_first(struct switcher *sw)
{
    struct run *r = take_current_back(sw);

    r->next = sw->queue;
    if (!sw->queue)
        sw->tail = &r->next;
    sw->queue = r;
    sw->n_queued++;
}

void switch_on_part_failed(struct switcher *sw, struct worker *w,
                           const struct msg_wk_part_failed *m)
{
    struct run *r = sw->current;

    if (!r || r->phase != RUN_ACTIVE || r->worker != w || r->turn != m->turn ||
        m->part >= r->n_parts) {
        worker_kill_stray(w, MSG_WK_PART_FAILED);
        return;
    }
    run__note_failed(&r->parts[m->part], m);
}

/* Does something of the current run remain to be run? Then it waits behind the others, who are not
 * to pay for its data. of_part: the failure may be one part's, so from now on each runs alone. */
static bool run_goes_on(struct switcher *sw, const struct sh_err *why,
                        const struct msg_wk_run_done *done, bool of_part)
{
    struct run *r = sw->current;

    if (r->is_forced || (why->rc && !of_part) ||
        (!(why->rc && run__divide(r, why, done)) && !run__next_part(r, why, done)))
        return false;
    append_run(sw, take_current_back(sw));
    return true;
}

void switch_on_run_done(struct switcher *sw, struct worker *w, const struct msg_wk_run_done *m)
{
    struct run *r = sw->current;
    struct msg_wk_run_done done;
    struct sh_err why = {0};

    if (!r || r->phase != RUN_ACTIVE || r->worker != w || r->turn != m->turn) {
        worker_kill_stray(w, MSG_WK_RUN_DONE);
        return;
    }
    if (m->rc == SH_E_DEVLOST)
        return; /* its process ends now; then the run fails over */
    pool_set_state(w, WORKER_STANDBY);
    if (r->is_packed)
        model_on_unpacked(r->model, m, !r->model->is_broken && !r->is_forced);
    if ((r->is_forced |= r->has_pin && (r->model->is_broken || model_is_spoiled(r->model))))
        SH_FAIL(&why, SH_E_UNAVAILABLE, "%s", r->model->is_broken ? COPY_LOST : UNPACK_LOST);
    else if (m->rc)
        SH_FAIL(&why, (int)m->rc, "%s", m->msg);
    payload_take_back(r, w, !why.rc);
    done = run__believed(r, m);
    if (!run_goes_on(sw, &why, &done,
                     why.rc == SH_E_INVALID || (why.rc == SH_E_CANCELLED && r->is_alone)))
        end_current(sw, &why, &done);
    HOOK_TELL(sw->env.hooks, on_run_done, w);
}

static bool is_model_anywhere(struct switcher *sw, const struct model *m)
{
    for (size_t i = 0; i < pool_size(sw->env.pool); i++) {
        const struct worker *w = pool_at(sw->env.pool, i);

        if (worker_is_alive(w) && worker_has_model(w, m->handle))
            return true;
    }
    return false;
}

void switch_on_worker_dead(struct switcher *sw, struct worker *w)
{
    struct run *r = sw->current;
    struct sh_err why = {0};

    if (!r || r->phase != RUN_ACTIVE || r->worker != w)
        return;
    r->worker = NULL;
    if (r->is_packed)
        model_spoil(r->model);
    if (r->n_attempts < RUN_MAX_ATTEMPTS && !r->is_forced && !r->is_overdue) {
        SH_WARN("run.failover", "run=%" PRIu64 " model=%s", r->id, r->model->name);
        run__go(r, RUN_SEND);
        if (!is_model_anywhere(sw, r->shape) || model_is_spoiled(r->model))
            put_run_first(sw);
        return;
    }
    if (r->is_overdue)
        SH_FAIL(&why, SH_E_TIMEOUT, "the run took longer than %lld ms, the limit",
                (long long)sw->env.run_ms);
    else
        SH_FAIL(&why, SH_E_UNAVAILABLE, "its worker died %u times during this run", r->n_attempts);
    if (r->is_own || !run_goes_on(sw, &why, NULL, !r->is_overdue))
        end_current(sw, &why, NULL);
}

void switch_give_up(struct switcher *sw, const struct model *m, const struct sh_err *why)
{
    if (sw->current && sw->current->shape == m && sw->current->phase != RUN_ACTIVE)
        end_current(sw, why, NULL);
    end_queued(sw, m, INT64_MAX, why);
}

/* ------------------------------------------------------------------ time */

static void watch_current(struct switcher *sw, int64_t now)
{
    struct run *r = sw->current;
    struct tx_image *im;
    struct sh_err why = {0};

    if (!r)
        return;
    im = &r->model->tx;
    if (r->phase != RUN_ACTIVE && now > r->deadline_ns) {
        SH_FAIL(&why, SH_E_TIMEOUT, "the run timed out before it got memory");
        end_current(sw, &why, NULL);
        return;
    }
    if (r->phase == RUN_ACTIVE && tx_image_busy(im) && !r->is_forced &&
        now - im->sent_ns > STUCK_NS + 4 * im->predicted_ns) {
        r->is_forced = true;
        model_force(r->model);
        inputs_force(sw);
    }
    if (r->phase == RUN_ACTIVE && now - r->sent_ns > SH_MS(sw->env.run_ms)) {
        r->is_overdue = true;
        worker_kill(r->worker, WORKER_KILL_RUN_TIME);
    }
}

static void on_tick(struct sh_loop *l, void *arg)
{
    struct switcher *sw = arg;
    int64_t now = sh_clock_ns();

    (void)l;
    end_late(sw, now);
    watch_current(sw, now);
    rivalry__look(sw, now);
    store_tick(sw->env.store, now);
    parts__expire(&sw->loose, now - LOOSE_NS);
}

int switch_new(const struct switch_env *env, const struct switch_rival *rival,
               struct switcher **out, struct sh_err *err)
{
    struct switcher *sw = calloc(1, sizeof(*sw));
    int rc;

    *out = NULL;
    if (!sw)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the switcher");
    sw->env = *env;
    sw->rival = *rival;
    sw->tail = &sw->queue;
    tenure_init(&sw->tenure, env->request_weight, sh_clock_ns());
    rc = sh_timer_add(env->loop, TICK_NS, TICK_NS, on_tick, sw, &sw->tick, err);
    if (rc) {
        free(sw);
        return rc;
    }
    *out = sw;
    return SH_OK;
}

void switch_free(struct switcher *sw)
{
    if (!sw)
        return;
    run__free(sw->current);
    while (sw->queue) {
        struct run *r = sw->queue;

        unlink_run(sw, &sw->queue);
        run__free(r);
    }
    parts__expire(&sw->loose, INT64_MAX);
    sh_timer_del(sw->tick);
    free(sw);
}
