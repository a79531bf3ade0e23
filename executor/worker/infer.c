/* infer.c - runs the models that this worker has ready (load.c). */
#include "common/clock.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/wire.h"
#include "executor/worker/pack.h"
#include "executor/worker/tables.h"
#include "executor/worker/worker.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define RUN_SLICE 8u /* operations between two signs of life */

static void drop_parts(struct worker *w)
{
    for (size_t i = 0; i < w->n_parts; i++) {
        free(w->parts[i].in);
        free(w->parts[i].out);
    }
    w->n_parts = 0;
}

void infer_free_all(struct worker *w)
{
    drop_parts(w);
    while (w->n_models)
        infer_on_model_drop(w, w->models[0]->handle);
    free(w->models);
}

/* A copy, because the message's views end with its frame. */
static int copy_run_spans(struct sh_blob b, struct msg_span **out, size_t *n, struct sh_err *err)
{
    *out = NULL;
    *n = b.len / sizeof(struct msg_span);
    if (b.len % sizeof(struct msg_span))
        return SH_FAIL(err, SH_E_PROTO, "spans of %zu bytes", b.len);
    *out = malloc(b.len + 1);
    if (!*out)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate spans");
    if (b.len)
        memcpy(*out, b.data, b.len);
    return SH_OK;
}

int infer_on_part(struct worker *w, const struct msg_wk_part *m, struct sh_err *err)
{
    struct wk_part *p;
    int rc;

    if (w->n_parts > 0 && w->parts[0].run_id != m->run_id)
        drop_parts(w); /* the run they belonged to was given up before it was sent */
    if (w->n_parts == WORKER_MAX_PARTS)
        return SH_FAIL(err, SH_E_PROTO, "a run of more than %d parts", WORKER_MAX_PARTS);
    p = &w->parts[w->n_parts];
    *p = (struct wk_part){.run_id = m->run_id, .api_id = m->api_id, .batch = m->batch};
    rc = copy_run_spans(m->in_spans, &p->in, &p->n_in, err);
    if (!rc)
        rc = copy_run_spans(m->out_spans, &p->out, &p->n_out, err);
    w->n_parts++;
    return rc;
}

static int check_span(const struct wk_slab *s, const struct msg_span *span, size_t want,
                      const char *name, struct sh_err *err)
{
    if (span->len != want)
        return SH_FAIL(err, SH_E_INVALID, "tensor \"%s\" has %llu bytes, not %zu", name,
                       (unsigned long long)span->len, want);
    if (span->off > s->shm.bytes || span->len > s->shm.bytes - span->off)
        return SH_FAIL(err, SH_E_BUG, "tensor \"%s\" lies outside of its slab", name);
    return SH_OK;
}

enum move { MOVE_IN, MOVE_IN_BESIDE_COPIES, MOVE_NOTHING, MOVE_OUT };

/* Do these spans fit the tensors of the program, and lie in their slab? */
static int check_spans(const struct program *p, const struct wk_slab *s, const struct wk_part *part,
                       bool in, uint32_t size, struct sh_err *err)
{
    size_t n = in ? program_n_inputs(p) : program_n_outputs(p);
    int rc = SH_OK;

    if ((in ? part->n_in : part->n_out) != n)
        return SH_FAIL(err, SH_E_INVALID, "%zu tensors came, the model has %zu",
                       in ? part->n_in : part->n_out, n);
    for (size_t i = 0; !rc && i < n; i++) {
        const struct program_io *io = in ? program_input(p, i) : program_output(p, i);
        /* All of a batch is all of a tensor, also of one that has no samples. */
        size_t want = part->batch == size ? io->bytes : io->bytes / size * part->batch;

        if (io->counted && part->batch != size)
            return SH_FAIL(err, SH_E_BUG, "tensor \"%s\" cannot be of %u of %u samples", io->name,
                           part->batch, size);
        want += io->counted ? SH_COUNT_BYTES : 0;
        rc = check_span(s, in ? &part->in[i] : &part->out[i], want, io->name, err);
    }
    return rc;
}

/* Can this part run? *sample: the one that cannot; -1: it is not one of them. Where a file fixes
 * the batch, there may be tensors that have no samples: then a part is one thing. */
static int check_run_part(struct worker *w, const struct wk_model *model, const struct program *p,
                          const struct wk_part *part, uint32_t size, int64_t *sample,
                          struct sh_err *err)
{
    const struct wk_slab *s = worker_slab(w, part->api_id);
    const uint32_t n = model->n_batches > 1 || model->batch[0] == 1 ? part->batch : 1;
    int rc;

    *sample = -1;
    if (!s)
        return SH_FAIL(err, SH_E_UNAVAILABLE, "the client's API process is gone");
    rc = check_spans(p, s, part, true, size, err);
    if (!rc)
        rc = check_spans(p, s, part, false, size, err);
    for (size_t i = 0; !rc && i < program_n_inputs(p); i++) {
        const char *at = (const char *)s->shm.base + part->in[i].off;
        size_t bytes = part->in[i].len / n;

        for (uint32_t k = 0; !rc && k < n; k++) {
            rc = program_check_sample(p, i, at + k * bytes, bytes, err);
            if (rc && n == part->batch)
                *sample = k;
        }
    }
    return rc;
}

/* What is wrong with one part is nothing to the others. *n_out: how many can run. */
static int check_run_parts(struct worker *w, const struct wk_model *model, const struct program *p,
                           const struct msg_wk_run *m, uint32_t size, uint32_t *n_out,
                           struct sh_err *err)
{
    uint32_t batch = 0;

    *n_out = 0;
    for (uint32_t i = 0; i < w->n_parts; i++) {
        struct sh_msg r = {.type = MSG_WK_PART_FAILED};
        struct sh_err why = {0};
        int64_t sample;

        if (w->parts[i].batch > m->batch - batch)
            return SH_FAIL(err, SH_E_PROTO, "the parts of a run exceed its batch of %u", m->batch);
        batch += w->parts[i].batch;
        w->parts[i].is_out =
            check_run_part(w, model, p, &w->parts[i], size, &sample, &why) != SH_OK;
        if (!w->parts[i].is_out) {
            ++*n_out;
            continue;
        }
        r.u.wk_part_failed = (struct msg_wk_part_failed){
            .turn = m->turn, .part = i, .rc = why.rc, .msg = why.msg, .sample = sample};
        if (worker_send(w, &r, NULL, 0, err))
            return err->rc;
    }
    return SH_OK;
}

/* Of `bytes` to `to`; behind the data of what has an axis that is counted, how many there are. */
static int bring_output(struct worker *w, const struct program_io *io, char *to, size_t bytes,
                        size_t ws_off, size_t at, struct sh_err *err)
{
    const size_t count = io->counted ? SH_COUNT_BYTES : 0;
    int rc = dev_download(w->dev, to, at, bytes - count, err);

    if (!rc && count)
        rc = dev_download(w->dev, to + bytes - count, ws_off + io->count_offset, count, err);
    return rc;
}

/* Moves the inputs (or outputs) of one part between its slab and samples [first, first + batch) of
 * the workspace. */
static int move_part(struct worker *w, const struct program *p, const struct wk_part *part,
                     size_t ws_off, uint32_t first, uint32_t size, enum move how,
                     struct sh_err *err)
{
    const bool in = how != MOVE_OUT;
    size_t n = in ? program_n_inputs(p) : program_n_outputs(p);
    const struct msg_span *spans = in ? part->in : part->out;
    struct wk_slab *s = worker_slab(w, part->api_id);
    int rc = SH_OK;

    for (size_t i = 0; !rc && i < n; i++) {
        const struct program_io *io = in ? program_input(p, i) : program_output(p, i);
        size_t sample = io->bytes / size, at = ws_off + io->offset + sample * first;

        if (part->is_out && in)
            rc = dev_fill(w->dev, at, 0, sample * part->batch, err);
        else if (!part->is_out && how == MOVE_IN)
            rc = dev_upload(w->dev, at, (char *)s->shm.base + spans[i].off, spans[i].len, err);
        else if (!part->is_out && how == MOVE_IN_BESIDE_COPIES)
            rc = dev_fetch(w->dev, at, (char *)s->shm.base + spans[i].off, spans[i].len, err);
        else if (!part->is_out && how == MOVE_OUT)
            rc = bring_output(w, io, (char *)s->shm.base + spans[i].off, spans[i].len, ws_off, at,
                              err);
    }
    return rc;
}

static int move_parts(struct worker *w, const struct program *p, const struct msg_wk_run *m,
                      uint32_t size, enum move how, struct sh_err *err)
{
    uint32_t first = 0;
    int rc = SH_OK;

    for (size_t i = 0; !rc && i < w->n_parts; i++) {
        rc = move_part(w, p, &w->parts[i], m->ws_off, first, size, how, err);
        first += w->parts[i].batch;
    }
    return rc;
}

static size_t n_groups(const struct msg_wk_run *m)
{
    return m->groups.len / sizeof(struct msg_group);
}

static struct msg_group group_at(const struct msg_wk_run *m, size_t i)
{
    struct msg_group g;

    memcpy(&g, (const char *)m->groups.data + i * sizeof(g), sizeof(g));
    return g;
}

/* The operation behind the last of group i; the last group has what no layer begins. */
static uint32_t group_end(const struct program *p, const struct msg_wk_run *m, size_t i)
{
    const uint32_t layer = group_at(m, i).end_layer;

    return i + 1 == n_groups(m) || layer >= program_n_layers(p) ? program_n_ops(p)
                                                                : program_layer_begin(p, layer);
}

/* Are weights still on their way to the device? */
static bool is_cold(const struct worker *w, const struct msg_wk_run *m)
{
    struct msg_group last;

    if (n_groups(m) == 0)
        return false;
    last = group_at(m, n_groups(m) - 1);
    return last.ticket_slot < DEV_N_TICKETS &&
           !dev_has_ticket(w->dev, last.ticket_slot, last.ticket_value);
}

static int take_inputs(struct worker *w, const struct program *p, const struct msg_wk_run *m,
                       uint32_t size, struct sh_err *err)
{
    enum move how = m->inputs == MSG_INPUTS_COME ? MOVE_NOTHING
                    : is_cold(w, m)              ? MOVE_IN_BESIDE_COPIES
                                                 : MOVE_IN;
    int rc = SH_OK;

    if (m->inputs != MSG_INPUTS_BRING)
        rc = dev_wait(w->dev, m->ticket_slot, m->ticket_value, WORKER_TICKET_TIMEOUT_MS, err);
    return rc ? rc : move_parts(w, p, m, size, how, err);
}

/* The program is for `size` samples. What earlier tenants of this memory left in the others must
 * not reach the operations: as an index, say, it could lie outside of a table. */
static int clear_padding(struct worker *w, const struct program *p, const struct msg_wk_run *m,
                         uint32_t size, struct sh_err *err)
{
    int rc = SH_OK;

    for (size_t i = 0; !rc && m->batch < size && i < program_n_inputs(p); i++) {
        const struct program_io *io = program_input(p, i);
        size_t sample = io->bytes / size;

        rc = dev_fill(w->dev, m->ws_off + io->offset + sample * m->batch, 0,
                      sample * (size - m->batch), err);
    }
    return rc;
}

/* What a device with a queue has been given already still runs. */
static int go_on(struct worker *w, struct sh_err *err)
{
    if (atomic_load(&w->ctl->give_up))
        return SH_FAIL(err, SH_E_CANCELLED, "cancelled while it ran");
    atomic_fetch_add(&w->ctl->progress, 1);
    return SH_OK;
}

/* Where the operations run inside the call, in slices, so that a long run shows the executor's
 * watchdog that it moves, and ends when it is given up. */
static int run_ops(struct worker *w, struct program *p, const struct dev_bases *bases,
                   uint32_t from, uint32_t to, struct sh_err *err)
{
    int rc = SH_OK;

    if (dev_is_queued(w->dev))
        return from < to ? program_run(p, bases, from, to, err) : SH_OK;
    while (!rc && from < to) {
        uint32_t end = to - from > RUN_SLICE ? from + RUN_SLICE : to;

        rc = program_run(p, bases, from, end, err);
        if (!rc)
            rc = go_on(w, err);
        from = end;
    }
    return rc;
}

struct unpacking {
    uint32_t done; /* the first layer that may still be packed */
    bool failed;   /* and who knows whether it is */
};

/* Tables are never packed. */
static uint32_t n_packed_layers(const struct program *p)
{
    return program_n_layers(p) - program_n_tables(p);
}

/* Those of its layers up to `end` that are still packed. */
static int bring_layers(struct worker *w, const struct program *p, const struct msg_wk_run *m,
                        uint32_t end, struct unpacking *u, struct sh_err *err)
{
    int rc = SH_OK;

    u->done = SH_MAX(u->done, m->packed_from);
    if (m->link_ends.len && u->done < end)
        rc = unpack_layers(w->dev, p, m->image_off, m->packed_at, m->link_ends.data, &u->done, end,
                           err);
    u->failed = rc != SH_OK;
    return rc;
}

struct run_times {
    int64_t start_ns, first_ns, end_ns, wait_ns; /* as in WK_RUN_DONE */
};

static int run_groups(struct worker *w, struct program *p, const struct msg_wk_run *m,
                      const struct dev_bases *bases, struct run_times *t, struct unpacking *u,
                      struct sh_err *err)
{
    uint32_t op = 0, n_ops = program_n_ops(p), layer = 0;
    int rc;

    if (dev_is_queued(w->dev) && is_cold(w, m))
        t->wait_ns = -1;
    rc = tables_wait(w, p, m, err);

    for (size_t i = 0; !rc && i < n_groups(m); i++) {
        const struct msg_group g = group_at(m, i);
        const uint32_t to = group_end(p, m, i);
        const int64_t asked = sh_clock_ns();

        if (g.ticket_slot < DEV_N_TICKETS)
            rc = dev_wait(w->dev, g.ticket_slot, g.ticket_value, WORKER_TICKET_TIMEOUT_MS, err);
        if (!rc)
            rc = bring_layers(w, p, m, SH_MIN(g.end_layer, n_packed_layers(p)), u, err);
        if (!rc)
            rc = HOOK_ASK(w->hooks, bring, SH_OK, w, p, m, &layer, g.end_layer, err);
        if (i == 0)
            t->first_ns = sh_clock_ns();
        else if (t->wait_ns >= 0)
            t->wait_ns += sh_clock_ns() - asked;
        SH_DEBUG("group.compute", "run=%" PRIu64 " group=%zu ns=%" PRId64, m->run_id, i,
                 sh_clock_ns());
        if (!rc)
            rc = go_on(w, err);
        if (!rc)
            rc = run_ops(w, p, bases, op, to, err);
        op = to > op ? to : op;
    }
    return rc ? rc : run_ops(w, p, bases, op, n_ops, err);
}

/* The smallest batch size that fits; n_batches if none does. */
static uint32_t size_for(const struct wk_model *m, uint32_t batch)
{
    uint32_t i = 0;

    while (i < m->n_batches && m->batch[i] < batch)
        i++;
    return i;
}

/* A program that ran twice at one place lately, in the same groups, will run so again. The next
 * message goes before; what is left to prepare waits for the next run here. What fails would fail
 * each time, after a while that the worker is then not free for others: it is tried again when the
 * model is loaded anew. Fails with SH_E_DEVLOST alone. */
static int prepare_again(const struct worker *w, struct wk_model *m, uint32_t i,
                         const struct msg_wk_run *run, const struct dev_bases *b,
                         struct sh_err *err)
{
    uint32_t from = 0, groups = 0;
    struct sh_err why = {0};
    int rc = SH_OK;

    if (m->is_plain[i])
        return SH_OK;

    for (size_t k = 0; k < n_groups(run); k++) {
        const uint32_t to = group_end(m->program[i], run, k);

        groups = sh_crc32c(groups, &to, sizeof(to));
    }
    if (!places_again(&m->places[i], b, groups) || n_groups(run) > PLACES_MAX_GROUPS)
        return SH_OK;
    for (size_t k = 0; !rc && k < n_groups(run) && !worker_has_input(w, 0); k++) {
        const uint32_t to = group_end(m->program[i], run, k);

        if (from < to)
            rc = program_prepare(m->program[i], b, from, to, &why);
        from = SH_MAX(from, to);
    }
    if (rc == SH_E_DEVLOST)
        return sh_err_copy(err, &why);
    if (rc) {
        m->is_plain[i] = true;
        sh_err_detail(&why,
                      "launches of model %" PRId64 " at batch %u stay slow until it is loaded",
                      m->handle, m->batch[i]);
        sh_log_err(SH_LOG_WARN, "run.prepare", &why);
    }
    return SH_OK;
}

/* Are the packed layers in the range in which they are unpacked? An only one is right behind it. */
static bool is_in_place(const struct program *p, const struct msg_wk_run *m)
{
    return m->packed_at >= m->image_off && m->packed_at <= m->image_off + program_image_bytes(p);
}

/* The image is only read, unless it has to be unpacked. What lies packed apart from it is. */
static int reach_model(struct worker *w, const struct program *p, const struct msg_wk_run *m,
                       struct sh_err *err)
{
    const size_t n = m->link_ends.len / sizeof(uint64_t);
    const uint32_t last = n_packed_layers(p) - 1;
    const size_t packed = n ? (size_t)((const uint64_t *)m->link_ends.data)[last] : 0;
    struct dev_reach task[3] = {{m->image_off, program_tables_at(p), n > 0},
                                {m->ws_off, program_workspace_bytes(p), true},
                                {m->packed_at, packed, false}};

    if (m->memory == MSG_RUN_PRIVATE)
        return SH_OK;
    if (n && is_in_place(p, m))
        task[0].bytes = SH_MAX(task[0].bytes, (size_t)(m->packed_at - m->image_off) + packed);
    if (program_n_tables(p) && m->tables != MSG_TABLES_IN_HOST) /* they are at the end */
        task[0].bytes =
            (size_t)(m->tables_off - m->image_off) + program_image_bytes(p) - program_tables_at(p);
    w->has_task = true;
    return dev_task(w->dev, task, n && !is_in_place(p, m) ? 3 : 2, err);
}

static int begin_elsewhere(struct worker *w, const struct program *p, const struct msg_wk_run *m,
                           int *fds, size_t n_fds, struct sh_err *err)
{
    if (w->hooks)
        return w->hooks->begin_run(w->hooks->arg, w, p, m, fds, n_fds, err);
    return SH_FAIL(err, SH_E_PROTO, "WK_RUN asks for memory %u, of the laboratory's worker alone",
                   m->memory);
}

int infer_on_run(struct worker *w, const struct msg_wk_run *m, int *fds, size_t n_fds,
                 struct sh_err *err)
{
    struct sh_msg r = {.type = MSG_WK_RUN_DONE};
    struct wk_model *model = infer_find(w, m->handle);
    struct program *p = NULL;
    struct sh_err why = {0};
    int64_t given, launched;
    struct run_times t = {.start_ns = sh_clock_ns()};
    uint32_t i = model ? size_for(model, m->batch) : 0, size = 0, n_fit = 0;
    struct unpacking u = {.done = 0};
    struct dev_bases bases = {.image = m->image_off, .workspace = m->ws_off};
    int rc = SH_OK;
    bool runs;

    t.first_ns = t.start_ns;
    if (model && m->batch > 0 && i < model->n_batches &&
        (m->batch == model->batch[i] || !HOOK_ASK(w->hooks, is_for_one, false))) {
        p = model->program[i];
        size = model->batch[i];
    }
    if (!p)
        rc = SH_FAIL(&why, SH_E_NOTFOUND, "this worker has no program for a batch of %u", m->batch);
    else if (w->n_parts != m->n_parts || (m->n_parts > 0 && w->parts[0].run_id != m->run_id))
        rc = SH_FAIL(&why, SH_E_PROTO, "%zu of %u parts of the run came", w->n_parts, m->n_parts);
    if (!rc && m->link_ends.len && m->link_ends.len != program_n_layers(p) * sizeof(uint64_t))
        rc = SH_FAIL(&why, SH_E_PROTO, "%zu bytes of ends of packed layers", m->link_ends.len);
    if (!rc)
        rc = tables_find(model, p, m, &bases, &why);
    if (!rc)
        rc = check_run_parts(w, model, p, m, size, &n_fit, &why);
    runs = !rc && n_fit > 0;
    if (runs && m->memory != MSG_RUN_ARENA)
        rc = begin_elsewhere(w, p, m, fds, n_fds, &why);
    if (runs && !rc)
        rc = reach_model(w, p, m, &why);
    if (runs && !rc)
        rc = clear_padding(w, p, m, size, &why);
    if (runs && !rc)
        rc = take_inputs(w, p, m, size, &why);
    given = sh_clock_ns();
    if (runs && !rc)
        rc = run_groups(w, p, m, &bases, &t, &u, &why);
    launched = sh_clock_ns();
    if (runs && !rc)
        rc = move_parts(w, p, m, size, MOVE_OUT, &why);
    if (worker_settle(w, &why))
        rc = why.rc;
    if (w->packed != MSG_PACKED_KNOWN)
        u.done = 0;
    else if (u.failed)
        w->packed = MSG_PACKED_UNSURE;
    t.end_ns = sh_clock_ns();
    SH_DEBUG("run.worker",
             "run=%" PRIu64 " start_ns=%" PRId64 " inputs_ns=%" PRId64 " launched_ns=%" PRId64
             " end_ns=%" PRId64,
             m->run_id, t.start_ns, given, launched, t.end_ns);
    drop_parts(w);
    r.u.wk_run_done = (struct msg_wk_run_done){.turn = m->turn,
                                               .rc = rc,
                                               .msg = why.msg,
                                               .start_ns = t.start_ns,
                                               .first_ns = t.first_ns,
                                               .end_ns = t.end_ns,
                                               .wait_ns = t.wait_ns,
                                               .unpacked = u.done,
                                               .packed = w->packed};
    if (worker_send(w, &r, NULL, 0, err))
        return err->rc;
    if (m->memory != MSG_RUN_ARENA)
        HOOK_TELL(w->hooks, end_run, w, m);
    else if (runs && !rc)
        rc = prepare_again(w, model, i, m, &bases, &why);
    return rc == SH_E_DEVLOST ? sh_err_copy(err, &why) : SH_OK;
}
