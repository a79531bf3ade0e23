/* infer.c - models that this worker has ready, and running them.
 *
 * A model is compiled for the batch sizes 1, 2, 4 ... and max_batch, or for max_batch alone where
 * its file fixes the batch; a run uses the smallest that fits. All of them share one image, so the
 * largest is compiled first and decides the layouts.
 */
#include "common/clock.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/wire.h"
#include "executor/model/package.h"
#include "executor/worker/worker.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

#define PROFILE_REPEAT 3
#define RUN_SLICE 8u /* operations between two signs of life */

static struct wk_model *find_model(struct worker *w, int64_t handle)
{
    for (size_t i = 0; i < w->n_models; i++)
        if (w->models[i]->handle == handle)
            return w->models[i];
    return NULL;
}

static void free_model(struct wk_model *m)
{
    if (!m)
        return;
    for (uint32_t i = 0; i < m->n_batches; i++)
        program_free(m->program[i]);
    graph_free(m->graph);
    free(m);
}

static uint32_t batch_list(uint32_t max_batch, uint32_t out[static WORKER_MAX_BATCHES])
{
    uint32_t n = 0;

    for (uint32_t b = 1; b < max_batch && n + 1 < WORKER_MAX_BATCHES; b *= 2)
        out[n++] = b;
    out[n++] = max_batch;
    return n;
}

static size_t heap_bytes(void)
{
    const struct mallinfo2 i = mallinfo2();

    return i.uordblks + i.hblkhd;
}

/* Counts what the model is compiled to so far. At most one batch size is made for which there is no
 * room. */
static int check_host(struct wk_model *m, const struct msg_wk_model *msg, const struct program *any,
                      size_t heap_before, struct sh_err *err)
{
    const size_t now = heap_bytes();

    m->host_bytes = now > heap_before ? now - heap_before : 0;
    if (msg->host_left == 0 ||
        program_image_bytes(any) + (uint64_t)m->host_bytes * msg->host_copies <= msg->host_left)
        return SH_OK;
    return SH_FAIL(err, SH_E_QUOTA,
                   "the model and what it is compiled to take more than the %llu MiB of host "
                   "memory that are left for it",
                   (unsigned long long)(msg->host_left >> 20));
}

/* Compiles the batch sizes of m->graph on d, the largest first. */
static int compile(struct dev *d, struct wk_model *m, const struct msg_wk_model *msg,
                   enum dev_precision p, size_t heap_before, struct sh_err *err)
{
    const struct program *share = NULL;

    for (uint32_t i = m->n_batches; i-- > 0;) {
        int rc = program_infer(d, m->graph, m->batch[i], p, share, &m->program[i], err);

        if (!rc)
            rc = check_host(m, msg, m->program[i], heap_before, err);
        if (rc)
            return rc;
        if (!share)
            share = m->program[i];
    }
    return SH_OK;
}

static struct program *largest(const struct wk_model *m)
{
    return m->program[m->n_batches - 1];
}

/* Sums the operations of each layer; those before the first layer count as its own. */
static void fold_layers(const struct program *p, const double *op_ns, double *layer_ns)
{
    uint32_t n = program_n_layers(p), layer = 0;

    for (uint32_t op = 0; n > 0 && op < program_n_ops(p); op++) {
        while (layer + 1 < n && program_layer_begin(p, layer + 1) <= op)
            layer++;
        layer_ns[layer] += op_ns[op];
    }
}

static int profile_batch(struct program *p, size_t ws_off, double *layer_ns, struct sh_err *err)
{
    struct dev_bases bases = {.image = 0, .workspace = ws_off};
    double *op_ns = calloc(program_n_ops(p) + 1u, sizeof(*op_ns));
    int rc;

    if (!op_ns)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a profile");
    rc = program_profile(p, &bases, PROFILE_REPEAT, op_ns, err);
    if (!rc)
        fold_layers(p, op_ns, layer_ns);
    free(op_ns);
    return rc;
}

/* The arena is not ours to write to outside of a run, so the programs are timed in memory of the
 * dev's own, of just the size that the model needs. layer_ns[n_batches][n_layers], zeroed. */
static int profile(struct worker *w, const struct wk_model *m, const struct sh_shm *image,
                   double *layer_ns, struct sh_err *err)
{
    size_t bytes = program_image_bytes(largest(m)), ws_off = SH_ALIGN_UP(bytes, DEV_BLOCK), ws = 0;
    struct sh_err late = {0};
    int rc;

    for (uint32_t i = 0; i < m->n_batches; i++)
        ws = SH_MAX(ws, program_workspace_bytes(m->program[i]));
    rc = dev_own_memory(w->dev, ws_off + SH_ALIGN_UP(ws, DEV_BLOCK) + DEV_BLOCK, err);
    if (rc)
        return rc;
    if (bytes > 0)
        rc = dev_upload(w->dev, 0, image->base, bytes, err);
    for (uint32_t i = 0; !rc && i < m->n_batches; i++) {
        /* Memory that nobody wrote to is read too fast, and where a larger batch has its indices a
         * smaller one has left activations. */
        rc = dev_fill(w->dev, ws_off, 0, program_workspace_bytes(m->program[i]), err);
        if (!rc)
            rc = profile_batch(m->program[i], ws_off,
                               layer_ns + (size_t)i * program_n_layers(m->program[i]), err);
    }
    /* Zeros are no inputs: a bad index that an operation met among them is not the fault of m. */
    if (dev_sync(w->dev, &late) != SH_E_DEVLOST)
        late = (struct sh_err){0};
    if (!late.rc)
        dev_own_memory(w->dev, 0, &late);
    if (!rc && late.rc)
        rc = sh_err_copy(err, &late);
    return rc;
}

static int build_image(struct worker *w, struct wk_model *m, struct sh_shm *image, double *layer_ns,
                       struct sh_err *err)
{
    size_t bytes = program_image_bytes(largest(m));
    /* Before the layers are timed: that needs the memory, on the cpu device the host's. */
    int rc = dev_check_fits(w->arena_bytes, bytes, program_workspace_bytes(largest(m)),
                            m->batch[m->n_batches - 1], false, err);

    if (!rc)
        rc = sh_shm_create("shunt-image", SH_MAX(bytes, (size_t)1), image, err);
    if (!rc)
        rc = program_write_image(largest(m), image->base, err);
    if (!rc)
        rc = profile(w, m, image, layer_ns, err);
    return rc;
}

/* A worker that cannot try its programs out is still good for them; its first run is slower. */
static int warm(const struct wk_model *m, struct sh_err *err)
{
    for (uint32_t i = 0; i < m->n_batches; i++) {
        struct sh_err why = {0};
        int rc = program_warm(m->program[i], NULL, &why);

        if (rc == SH_E_DEVLOST)
            return sh_err_copy(err, &why);
        if (rc) {
            sh_err_detail(&why, "the first run of each batch size is slow, and so is every launch");
            sh_log_err(SH_LOG_WARN, "model.warm", &why);
            break;
        }
    }
    return SH_OK;
}

static int load_model(struct worker *w, const struct msg_wk_model *msg, const int *fds,
                      enum dev_precision p, struct wk_model **out, struct sh_err *err)
{
    const size_t heap_before = heap_bytes();
    struct wk_model *m = NULL;
    int rc;

    *out = NULL;
    if (msg->max_batch == 0 || msg->max_batch > 1024)
        return SH_FAIL(err, SH_E_INVALID, "max_batch must be from 1 to 1024, not %u",
                       msg->max_batch);
    m = calloc(1, sizeof(*m));
    if (!m)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a model");
    m->handle = msg->handle;
    m->image.fd = -1;
    rc = package_read_fds(fds[0], fds[1], &m->graph, err);
    if (!rc && !w->is_for_one && !graph_fixed_batch(m->graph))
        m->n_batches = batch_list(msg->max_batch, m->batch);
    else
        m->batch[m->n_batches++] = msg->max_batch;
    if (!rc)
        rc = compile(w->dev, m, msg, p, heap_before, err);
    if (!rc)
        rc = sh_grow(&w->models, &w->cap_models, w->n_models + 1, sizeof(*w->models),
                     WORKER_MAX_MODELS, "models of one worker", err);
    if (!rc && !w->is_for_one)
        rc = warm(m, err);
    if (rc) {
        w->refused_bytes = m->host_bytes;
        w->refused_image = largest(m) ? program_image_bytes(largest(m)) : 0;
        free_model(m);
        return rc;
    }
    w->models[w->n_models++] = m;
    *out = m;
    return SH_OK;
}

/* Where inputs lie in each program's workspace: u64[n_batches][n_inputs], OWNED by the caller. */
static uint64_t *input_offs(const struct wk_model *m)
{
    size_t n = program_n_inputs(largest(m));
    uint64_t *offs = calloc(n * m->n_batches + 1, sizeof(*offs));

    for (size_t i = 0; offs && i < n * m->n_batches; i++)
        offs[i] = program_input(m->program[i / n], i % n)->offset;
    return offs;
}

static int answer_model(struct worker *w, const struct msg_wk_model *msg, const struct wk_model *m,
                        const double *layer_ns, const struct sh_shm *image,
                        const struct sh_err *why, struct sh_err *err)
{
    struct msg_batch batches[WORKER_MAX_BATCHES] = {{0}};
    struct sh_msg r = {.type = MSG_WK_MODEL_DONE};
    struct msg_wk_model_done *d = &r.u.wk_model_done;
    bool with_fd = !why->rc && msg->build;
    uint64_t *offs = why->rc ? NULL : input_offs(m);
    int rc;

    *d = (struct msg_wk_model_done){.handle = msg->handle, .rc = why->rc, .msg = why->msg};
    d->host_bytes = m ? m->host_bytes : 0;
    if (why->rc == SH_E_QUOTA && !m) {
        d->host_bytes = w->refused_bytes;
        d->image_bytes = w->refused_image;
    }
    if (why->rc == SH_E_TOOBIG && m)
        d->image_bytes = program_image_bytes(largest(m)) + program_workspace_bytes(largest(m));
    if (!why->rc) {
        uint32_t n = program_n_layers(largest(m));

        for (uint32_t i = 0; i < m->n_batches; i++) {
            batches[i].batch = m->batch[i];
            batches[i].ws_bytes = program_workspace_bytes(m->program[i]);
        }
        d->image_bytes = program_image_bytes(largest(m));
        d->layer_ends = (struct sh_blob){program_layer_ends(largest(m)), n * sizeof(uint64_t)};
        d->batches = (struct sh_blob){batches, m->n_batches * sizeof(batches[0])};
        if (offs)
            d->input_offs =
                (struct sh_blob){offs, program_n_inputs(largest(m)) * m->n_batches * sizeof(*offs)};
        if (msg->build)
            d->layer_ns = (struct sh_blob){layer_ns, sizeof(double) * n * m->n_batches};
    }
    rc = worker_send(w, &r, with_fd ? &image->fd : NULL, with_fd ? 1 : 0, err);
    free(offs);
    return rc;
}

int infer_on_model(struct worker *w, const struct msg_wk_model *msg, const int *fds,
                   struct sh_err *err)
{
    struct wk_model *m = find_model(w, msg->handle);
    struct sh_shm image = {.fd = -1};
    struct sh_err why = {0};
    enum dev_precision p;
    double *layer_ns = NULL;
    int rc;

    rc = dev_precision_parse(msg->precision, &p, &why);
    if (!rc && !m)
        rc = load_model(w, msg, fds, p, &m, &why);
    if (!rc && msg->build) {
        layer_ns = calloc((size_t)m->n_batches * program_n_layers(largest(m)) + 1, sizeof(double));
        rc = layer_ns ? build_image(w, m, &image, layer_ns, &why)
                      : SH_FAIL(&why, SH_E_NOMEM, "could not allocate a profile");
    }
    if (rc)
        worker_settle(w, &why); /* what a library could not do may be the device's end */
    rc = why.rc == SH_E_DEVLOST ? sh_err_copy(err, &why)
                                : answer_model(w, msg, m, layer_ns, &image, &why, err);
    if (why.rc && m)
        infer_on_model_drop(w, msg->handle);
    malloc_trim(0); /* what only compiling needed */
    sh_shm_fini(&image);
    free(layer_ns);
    return rc;
}

void infer_on_model_drop(struct worker *w, int64_t handle)
{
    for (size_t i = 0; i < w->n_models; i++) {
        if (w->models[i]->handle != handle)
            continue;
        ablation_forget(w, w->models[i]);
        free_model(w->models[i]);
        w->models[i] = w->models[--w->n_models];
        malloc_trim(0); /* in small pieces between others: it would stay ours */
        return;
    }
}

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
static int copy_spans(struct sh_blob b, struct msg_span **out, size_t *n, struct sh_err *err)
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
    rc = copy_spans(m->in_spans, &p->in, &p->n_in, err);
    if (!rc)
        rc = copy_spans(m->out_spans, &p->out, &p->n_out, err);
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

        rc = check_span(s, in ? &part->in[i] : &part->out[i], want, io->name, err);
    }
    return rc;
}

/* Can this part run? *sample: the one that cannot; -1: it is not one of them. Where a file fixes
 * the batch, there may be tensors that have no samples: then a part is one thing. */
static int check_part(struct worker *w, const struct wk_model *model, const struct program *p,
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
static int check_parts(struct worker *w, const struct wk_model *model, const struct program *p,
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
        w->parts[i].is_out = check_part(w, model, p, &w->parts[i], size, &sample, &why) != SH_OK;
        if (!w->parts[i].is_out) {
            ++*n_out;
            continue;
        }
        r.u.wk_part_failed = (struct msg_wk_part_failed){
            .run_id = m->run_id, .part = i, .rc = why.rc, .msg = why.msg, .sample = sample};
        if (worker_send(w, &r, NULL, 0, err))
            return err->rc;
    }
    return SH_OK;
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
            rc = dev_download(w->dev, (char *)s->shm.base + spans[i].off, at, spans[i].len, err);
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

/* Where the operations run inside the call, in slices, so that a long run shows the executor's
 * watchdog that it moves. */
static int run_ops(struct worker *w, struct program *p, const struct dev_bases *bases,
                   uint32_t from, uint32_t to, struct sh_err *err)
{
    int rc = SH_OK;

    if (dev_is_queued(w->dev))
        return from < to ? program_run(p, bases, from, to, err) : SH_OK;
    while (!rc && from < to) {
        uint32_t end = to - from > RUN_SLICE ? from + RUN_SLICE : to;

        rc = program_run(p, bases, from, end, err);
        atomic_fetch_add(&w->ctl->progress, 1);
        from = end;
    }
    return rc;
}

struct run_times {
    int64_t start_ns, first_ns, end_ns, wait_ns; /* as in WK_RUN_DONE */
};

static int run_groups(struct worker *w, const struct wk_model *model, struct program *p,
                      const struct msg_wk_run *m, struct run_times *t, struct sh_err *err)
{
    const struct dev_bases bases = {.image = m->image_off, .workspace = m->ws_off};
    uint32_t op = 0, n_ops = program_n_ops(p), layer = 0;
    int rc = SH_OK;

    if (dev_is_queued(w->dev) && is_cold(w, m))
        t->wait_ns = -1;

    for (size_t i = 0; !rc && i < n_groups(m); i++) {
        const struct msg_group g = group_at(m, i);
        const uint32_t to = group_end(p, m, i);
        const int64_t asked = sh_clock_ns();

        if (g.ticket_slot < DEV_N_TICKETS)
            rc = dev_wait(w->dev, g.ticket_slot, g.ticket_value, WORKER_TICKET_TIMEOUT_MS, err);
        if (!rc && m->memory == MSG_RUN_PRIVATE)
            rc = ablation_bring(w, model, p, &layer, g.end_layer, err);
        if (i == 0)
            t->first_ns = sh_clock_ns();
        else if (t->wait_ns >= 0)
            t->wait_ns += sh_clock_ns() - asked;
        SH_DEBUG("group.compute", "run=%" PRIu64 " group=%zu ns=%" PRId64, m->run_id, i,
                 sh_clock_ns());
        atomic_fetch_add(&w->ctl->progress, 1);
        if (!rc)
            rc = run_ops(w, p, &bases, op, to, err);
        op = to > op ? to : op;
    }
    return rc ? rc : run_ops(w, p, &bases, op, n_ops, err);
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
static int prepare_again(struct wk_model *m, uint32_t i, const struct msg_wk_run *run,
                         struct sh_err *err)
{
    const struct dev_bases b = {.image = run->image_off, .workspace = run->ws_off};
    uint32_t from = 0, groups = 0;
    struct sh_err why = {0};
    int rc = SH_OK;

    if (m->is_plain[i])
        return SH_OK;

    for (size_t k = 0; k < n_groups(run); k++) {
        const uint32_t to = group_end(m->program[i], run, k);

        groups = sh_crc32c(groups, &to, sizeof(to));
    }
    if (!places_again(&m->places[i], &b, groups) || n_groups(run) > PLACES_MAX_GROUPS)
        return SH_OK;
    for (size_t k = 0; !rc && k < n_groups(run) && !sh_wire_has_input(WORKER_FD); k++) {
        const uint32_t to = group_end(m->program[i], run, k);

        if (from < to)
            rc = program_prepare(m->program[i], &b, from, to, &why);
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

/* The image is only read. */
static int reach(struct worker *w, const struct program *p, const struct msg_wk_run *m,
                 struct sh_err *err)
{
    const struct dev_reach task[] = {{m->image_off, program_image_bytes(p), false},
                                     {m->ws_off, program_workspace_bytes(p), true}};

    if (m->memory == MSG_RUN_PRIVATE)
        return SH_OK;
    w->has_task = true;
    return dev_task(w->dev, task, SH_ARRAY_LEN(task), err);
}

int infer_on_run(struct worker *w, const struct msg_wk_run *m, int *fds, size_t n_fds,
                 struct sh_err *err)
{
    struct sh_msg r = {.type = MSG_WK_RUN_DONE};
    struct wk_model *model = find_model(w, m->handle);
    struct program *p = NULL;
    struct sh_err why = {0};
    int64_t given, launched;
    struct run_times t = {.start_ns = sh_clock_ns()};
    uint32_t i = model ? size_for(model, m->batch) : 0, size = 0, n_fit = 0;
    int rc = SH_OK;
    bool runs;

    t.first_ns = t.start_ns;
    if (model && m->batch > 0 && i < model->n_batches &&
        (!w->is_for_one || m->batch == model->batch[i])) {
        p = model->program[i];
        size = model->batch[i];
    }
    if (!p)
        rc = SH_FAIL(&why, SH_E_NOTFOUND, "this worker has no program for a batch of %u", m->batch);
    else if (w->n_parts != m->n_parts || (m->n_parts > 0 && w->parts[0].run_id != m->run_id))
        rc = SH_FAIL(&why, SH_E_PROTO, "%zu of %u parts of the run came", w->n_parts, m->n_parts);
    if (!rc)
        rc = check_parts(w, model, p, m, size, &n_fit, &why);
    runs = !rc && n_fit > 0;
    if (runs && m->memory != MSG_RUN_ARENA)
        rc = ablation_begin_run(w, model, p, m, fds, n_fds, &why);
    if (runs && !rc)
        rc = reach(w, p, m, &why);
    if (runs && !rc)
        rc = clear_padding(w, p, m, size, &why);
    if (runs && !rc)
        rc = take_inputs(w, p, m, size, &why);
    given = sh_clock_ns();
    if (runs && !rc)
        rc = run_groups(w, model, p, m, &t, &why);
    launched = sh_clock_ns();
    if (runs && !rc)
        rc = move_parts(w, p, m, size, MOVE_OUT, &why);
    if (worker_settle(w, &why))
        rc = why.rc;
    t.end_ns = sh_clock_ns();
    SH_DEBUG("run.worker",
             "run=%" PRIu64 " start_ns=%" PRId64 " inputs_ns=%" PRId64 " launched_ns=%" PRId64
             " end_ns=%" PRId64,
             m->run_id, t.start_ns, given, launched, t.end_ns);
    drop_parts(w);
    r.u.wk_run_done = (struct msg_wk_run_done){.run_id = m->run_id,
                                               .rc = rc,
                                               .msg = why.msg,
                                               .start_ns = t.start_ns,
                                               .first_ns = t.first_ns,
                                               .end_ns = t.end_ns,
                                               .wait_ns = t.wait_ns};
    if (worker_send(w, &r, NULL, 0, err))
        return err->rc;
    if (m->memory != MSG_RUN_ARENA)
        ablation_end_run(w, m);
    else if (runs && !rc)
        rc = prepare_again(model, i, m, &why);
    return rc == SH_E_DEVLOST ? sh_err_copy(err, &why) : SH_OK;
}
