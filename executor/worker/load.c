/* load.c - the models that this worker has ready: compiles them and, as the builder, makes the
 * image.
 *
 * It works in pieces (step_load()), and what the executor sends meanwhile is handled between them.
 *
 * A model is compiled for the batch sizes 1, 2, 4 ... and max_batch, or for max_batch alone if its
 * file fixes the batch; a run uses the smallest that fits. All of them share one image, so the
 * largest is compiled first and decides the layouts.
 */
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/sample.h"
#include "common/spawn.h"
#include "common/units.h"
#include "common/wire.h"
#include "executor/worker/pack.h"
#include "executor/worker/tables.h"
#include "executor/worker/worker.h"
#include "runtime/model/kept.h"
#include "runtime/model/package.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>

#define PROFILE_REPEAT 3
#define PACK_LEAST (7.0 / 16) /* of an image: no packed one takes less, pack.h */
#define PROFILE_SHORT_NS SH_MS(100)

/* It is at this step, and n_done more parts are done: for people. The executor looks at it when it
 * likes. */
static void note_step(struct worker *w, enum worker_load step, uint32_t n_done)
{
    int64_t now = sh_clock_ns();

    w->load.ns[w->load.step] += now - w->load.at_ns;
    w->load.at_ns = now;
    w->load.step = step;
    if (!w->ctl)
        return;
    atomic_store(&w->ctl->load_step, step);
    atomic_fetch_add(&w->ctl->load_done, n_done);
    atomic_fetch_add(&w->ctl->progress, 1);
}

static void end_piece(struct worker *w)
{
    if (w->ctl)
        worker_ctl_end_piece(w->ctl, sh_clock_ns());
}

static void begin_piece(struct worker *w)
{
    w->load.at_ns = sh_clock_ns();
    if (w->ctl)
        worker_ctl_begin_piece(w->ctl, w->load.at_ns);
}

/* The same, and a piece ends: others go first. */
static void step_load(struct worker *w, enum worker_load step, uint32_t n_done)
{
    note_step(w, step, n_done);
    end_piece(w);
    worker_serve_waiting(w);
    begin_piece(w);
}

struct wk_model *infer_find(struct worker *w, int64_t handle)
{
    for (size_t i = 0; i < w->n_models; i++)
        if (w->models[i]->handle == handle)
            return w->models[i];
    return NULL;
}

static void free_model(struct worker *w, struct wk_model *m)
{
    if (!m)
        return;
    tables_drop(w, m);
    for (uint32_t i = 0; i < m->n_batches; i++)
        program_free(m->program[i]);
    if (m->base == m)
        graph_free(m->graph);
    free(m);
}

_Static_assert(SH_SAMPLE_MAX_SOLO <= WORKER_MAX_BATCHES, "a program for each");

/* Samples that nobody asked for may join a request only where they never meet. */
static int batch_list(struct wk_model *m, uint32_t max_batch, struct sh_err *err)
{
    const bool solo = m->graph->is_solo;

    if (solo && max_batch > SH_SAMPLE_MAX_SOLO)
        return SH_FAIL(err, SH_E_UNSUPPORTED,
                       "samples of the model may affect each other, so it needs a program for each "
                       "batch size: max_batch can be %d at most, not %u",
                       SH_SAMPLE_MAX_SOLO, max_batch);
    for (uint32_t b = 1; b < max_batch && m->n_batches + 1 < WORKER_MAX_BATCHES;
         b = solo ? b + 1 : 2 * b)
        m->batch[m->n_batches++] = b;
    m->batch[m->n_batches++] = max_batch;
    return SH_OK;
}

static size_t heap_bytes(void)
{
    const struct mallinfo2 i = mallinfo2();

    return i.uordblks + i.hblkhd;
}

static struct program *largest_program(const struct wk_model *m)
{
    return m->program[m->n_batches - 1];
}

/* Counts what the model is compiled to so far. At most one batch size is made for which there is no
 * room. */
static int check_host(struct wk_model *m, const struct msg_wk_model *msg, const struct program *any,
                      size_t heap_before, struct sh_err *err)
{
    const size_t now = heap_bytes();
    uint64_t image = msg->build ? program_image_bytes(any) : 0;

    if (msg->pack != MSG_PACK_NEVER) /* how much it takes, the executor sees when it is packed */
        image = (uint64_t)((double)image * PACK_LEAST);
    m->host_bytes = now > heap_before ? now - heap_before : 0;
    if (msg->host_left == 0 || image + (uint64_t)m->host_bytes * msg->host_copies <= msg->host_left)
        return SH_OK;
    return SH_FAIL(err, SH_E_QUOTA,
                   "the model and its programs need more than the %llu MiB of host memory that are "
                   "left for it",
                   (unsigned long long)(msg->host_left >> 20));
}

#define REACH_FACTOR 2 /* reading in place takes so many times a copy of as many bytes, at most */

/* The first program of an image decides for all. Tables that the device cannot read stay layers. */
static int compile_one(struct worker *w, struct wk_model *m, uint32_t i,
                       const struct msg_wk_model *msg, enum dev_precision p,
                       const struct program *share, struct sh_err *err)
{
    const struct graph_sizes at = {.batch = m->batch[i], .of = m->sizes};
    const struct tables_cost cost = {.copy_ns = msg->copy_ns,
                                     .link_ns = msg->link_ns,
                                     .reach_ns = REACH_FACTOR * msg->link_ns,
                                     .any = msg->tables == MSG_TABLES_ALWAYS};

    if (share || msg->tables == MSG_TABLES_NEVER || !dev_can_reach_host(w->dev))
        return program_infer(w->dev, m->graph, &at, p, share, &m->program[i], err);
    return program_infer_tables(w->dev, m->graph, &at, p, &cost, &m->program[i], err);
}

/* Compiles the batch sizes of m->graph, the largest first. */
static int compile_model(struct worker *w, struct wk_model *m, const struct msg_wk_model *msg,
                         enum dev_precision p, size_t heap_before, struct sh_err *err)
{
    const struct program *share = m->base == m ? NULL : largest_program(m->base);

    step_load(w, WORKER_LOAD_COMPILE, 1);
    for (uint32_t i = m->n_batches; i-- > 0;) {
        int rc = compile_one(w, m, i, msg, p, share, err);

        if (!rc)
            rc = check_host(m, msg, m->program[i], heap_before, err);
        if (rc)
            return rc;
        step_load(w, WORKER_LOAD_COMPILE, 1);
        if (!share)
            share = m->program[i];
    }
    return SH_OK;
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

/* The best of several runs where they are short: what takes long varies less. */
static int profile_batch(struct program *p, size_t ws_off, double *layer_ns, struct sh_err *err)
{
    struct dev_bases bases = {.image = 0, .workspace = ws_off, .tables = program_tables_at(p)};
    double *op_ns = calloc(program_n_ops(p) + 1u, sizeof(*op_ns));
    int64_t began = sh_clock_ns();
    int rc;

    if (!op_ns)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a profile");
    rc = program_profile(p, &bases, 1, op_ns, err);
    if (!rc && sh_clock_ns() - began < PROFILE_SHORT_NS)
        rc = program_profile(p, &bases, PROFILE_REPEAT, op_ns, err);
    if (!rc)
        fold_layers(p, op_ns, layer_ns);
    free(op_ns);
    return rc;
}

/* The arena is not ours to write to outside of a run, so the programs are timed in memory of the
 * dev's own, of just the size that the model needs, with the image in it. */
static int take_own_memory(struct worker *w, const struct wk_model *m, const struct sh_shm *image,
                           size_t ws_off, struct sh_err *err)
{
    size_t bytes = program_image_bytes(largest_program(m)), ws = 0;
    int rc;

    for (uint32_t i = 0; i < m->n_batches; i++)
        ws = SH_MAX(ws, program_workspace_bytes(m->program[i]));
    rc = dev_own_memory(w->dev, ws_off + SH_ALIGN_UP(ws, DEV_BLOCK) + DEV_BLOCK, err);
    return rc || bytes == 0 ? rc : dev_upload(w->dev, 0, image->base, bytes, err);
}

/* The arena again. Zeros are no inputs: a bad index that an operation met among them is not the
 * fault of the model. */
static int leave_own_memory(struct worker *w, struct sh_err *err)
{
    struct sh_err late = {0};

    if (dev_sync(w->dev, &late) == SH_E_DEVLOST)
        return sh_err_copy(err, &late);
    return dev_own_memory(w->dev, 0, err);
}

/* Who waits meanwhile needs the arena. */
static int lend_memory(struct worker *w, const struct wk_model *m, const struct sh_shm *image,
                       size_t ws_off, struct sh_err *err)
{
    int rc = SH_OK;

    if (!worker_has_input(w, 0)) { /* who comes next waits for the next one alone */
        end_piece(w);
        begin_piece(w);
        return SH_OK;
    }
    rc = leave_own_memory(w, err);
    if (rc)
        return rc;
    step_load(w, WORKER_LOAD_PROFILE, 0);
    return take_own_memory(w, m, image, ws_off, err);
}

/* layer_ns[n_batches][n_layers], zeroed. */
static int profile_model(struct worker *w, const struct wk_model *m, const struct sh_shm *image,
                         double *layer_ns, struct sh_err *err)
{
    const size_t ws_off = SH_ALIGN_UP(program_image_bytes(largest_program(m)), DEV_BLOCK);
    struct sh_err late = {0};
    int rc = take_own_memory(w, m, image, ws_off, err);

    for (uint32_t i = 0; !rc && i < m->n_batches; i++) {
        /* Memory that nobody wrote to is read too fast, and where a larger batch has its indices a
         * smaller one has left activations. */
        rc = dev_fill(w->dev, ws_off, 0, program_workspace_bytes(m->program[i]), err);
        if (!rc)
            rc = profile_batch(m->program[i], ws_off,
                               layer_ns + (size_t)i * program_n_layers(m->program[i]), err);
        note_step(w, WORKER_LOAD_PROFILE, 1);
        if (!rc)
            rc = lend_memory(w, m, image, ws_off, err);
    }
    if (leave_own_memory(w, &late) && !rc)
        rc = sh_err_copy(err, &late);
    return rc;
}

static void pause_image_reading(void *arg)
{
    step_load(arg, WORKER_LOAD_IMAGE, 0);
}

struct loading { /* how it goes */
    struct sh_err why;
    struct sh_shm image; /* built, or read */
    uint64_t image_at;   /* where it begins in the file that is kept; 0: it is in memory */
    double *layer_ns;    /* [n_batches][n_layers] */
    uint64_t *link_ends; /* OWNED [n_layers] ... */
    bool is_packed;      /* ... of the packed layers in `image` */
    bool was_kept;
};

/* What a file that is kept of it has to fit. */
static int describe_kept(struct worker *w, const struct wk_model *m, const char *key,
                         struct kept_about *out, struct sh_err *err)
{
    *out = (struct kept_about){.image_bytes = program_image_bytes(largest_program(m)),
                               .layer_ends = program_layer_ends(largest_program(m)),
                               .n_layers = program_n_layers(largest_program(m)),
                               .batches = m->batch,
                               .n_batches = m->n_batches,
                               .between = pause_image_reading,
                               .arg = w};
    return sh_unhex(key, out->key, sizeof(out->key), err);
}

static int make_image_memory(uint64_t bytes, struct loading *how)
{
    int rc;

    if (how->image.base)
        sh_shm_fini(&how->image); /* of what was kept, and of no use */
    rc = sh_shm_create("shunt-image", SH_MAX((size_t)bytes, (size_t)1), &how->image, &how->why);
    if (!rc)
        sh_shm_prefer_huge(&how->image);
    return rc;
}

/* Fails where it is of no use, and there is no trace of it then. */
static int read_kept(const struct msg_wk_model *msg, struct kept_about *about, int fd,
                     struct loading *how)
{
    const bool maps = msg->maps && about->image_bytes > 0;
    struct sh_err err = {0};
    int rc = kept_look(fd, about, how->link_ends, &err);

    if (!rc && !maps && make_image_memory(kept_stored_bytes(about), how))
        return how->why.rc;
    if (!rc)
        rc = kept_read(fd, about, how->image.base, how->layer_ns, &err);
    if (rc) {
        sh_log_err(SH_LOG_WARN, "model.kept", &err);
        memset(how->layer_ns, 0, (size_t)about->n_batches * about->n_layers * sizeof(double));
        return rc;
    }
    how->was_kept = true;
    how->is_packed = about->link_ends != NULL;
    how->image_at = maps ? kept_image_at(about) : 0;
    return SH_OK;
}

/* In place of the image; as it was, in the same memory, if that does not gain enough. */
static int pack_made(struct worker *w, const struct wk_model *m, const struct msg_wk_model *msg,
                     struct loading *how)
{
    struct program *p = largest_program(m);
    size_t end;
    int rc;

    step_load(w, WORKER_LOAD_IMAGE, 0);
    rc = pack_image(p, how->image.base, how->link_ends, pack_helpers(sh_cores()),
                    pause_image_reading, w, &how->is_packed, &how->why);
    if (rc)
        return rc;
    if (msg->pack == MSG_PACK_GAINS && how->is_packed)
        how->is_packed = pack_gains(p, how->link_ends, how->layer_ns, m->n_batches, msg);
    if (!how->is_packed)
        return program_write_image(p, how->image.base, &how->why);
    end = SH_ALIGN_UP((size_t)how->link_ends[program_n_layers(p) - 1], (size_t)DEV_PAGE);
    sh_shm_clear(&how->image, end, how->image.bytes - end);
    return SH_OK;
}

/* Image and times, from a file (-1: there is none) or made anew. */
static int bring_image(struct worker *w, struct wk_model *m, const struct msg_wk_model *msg,
                       int old, struct loading *how)
{
    struct kept_about about;
    int rc;

    if (old >= 0 && !describe_kept(w, m, msg->key, &about, NULL) &&
        read_kept(msg, &about, old, how) == SH_OK)
        return SH_OK;
    if (how->why.rc)
        return how->why.rc;
    rc = make_image_memory(program_image_bytes(largest_program(m)), how);
    if (rc)
        return rc;
    rc = program_write_image(largest_program(m), how->image.base, &how->why);
    step_load(w, WORKER_LOAD_PROFILE, 1);
    if (!rc)
        rc = profile_model(w, m, &how->image, how->layer_ns, &how->why);
    return rc || msg->pack == MSG_PACK_NEVER || !dev_can_unpack(w->dev) ? rc
                                                                        : pack_made(w, m, msg, how);
}

static int build_image(struct worker *w, struct wk_model *m, const struct msg_wk_model *msg,
                       int old, struct loading *how)
{
    size_t bytes = program_image_bytes(largest_program(m));
    /* Before the layers are timed: that needs the memory, on the cpu device the host's. */
    int rc = dev_check_fits(w->arena_bytes, bytes, program_workspace_bytes(largest_program(m)),
                            m->batch[m->n_batches - 1], false, &how->why);

    step_load(w, WORKER_LOAD_IMAGE, 0);
    how->layer_ns =
        calloc((size_t)m->n_batches * program_n_layers(largest_program(m)) + 1, sizeof(double));
    how->link_ends =
        calloc((size_t)program_n_layers(largest_program(m)) + 1, sizeof(*how->link_ends));
    if (!rc && (!how->layer_ns || !how->link_ends))
        rc = SH_FAIL(&how->why, SH_E_NOMEM, "could not allocate a profile");
    return rc ? rc : bring_image(w, m, msg, old, how);
}

/* A worker that cannot try its programs out is still good for them; its first run is slower. */
static int warm_model(struct worker *w, const struct wk_model *m, struct sh_err *err)
{
    step_load(w, WORKER_LOAD_WARM, 0);
    for (uint32_t i = 0; i < m->n_batches; i++) {
        struct sh_err why = {0};
        int rc = program_warm(m->program[i], NULL, &why);

        worker_log_replay(m->program[i], m->handle, 0);
        step_load(w, WORKER_LOAD_WARM, 1);
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

/* A model that it has, for other sizes. */
static int take_base(struct worker *w, struct wk_model *m, const struct msg_wk_model *msg,
                     struct sh_err *err)
{
    const struct wk_model *base = infer_find(w, msg->of);
    const size_t n = base ? base->graph->symbols.n : 0;

    if (!base || base->base != base)
        return SH_FAIL(err, SH_E_BUG, "a shape came before its model");
    if (msg->sizes.len != n * sizeof(m->sizes.v[0]))
        return SH_FAIL(err, SH_E_PROTO, "%zu bytes of sizes came for %zu of them", msg->sizes.len,
                       n);
    memcpy(m->sizes.v, msg->sizes.data, msg->sizes.len);
    m->sizes.n = (uint32_t)n;
    m->graph = base->graph;
    m->base = base;
    return SH_OK;
}

/* What does not work for these sizes may work for others. */
static void say_sizes(const struct wk_model *m, struct sh_err *err)
{
    char sizes[256];
    struct sh_err why = *err;

    if (m->base == m || m->sizes.n == 0)
        return;
    sh_sizes_text(&m->graph->symbols, &m->sizes, sizes, sizeof(sizes));
    *err = (struct sh_err){0};
    SH_FAIL(err, why.rc, "the model cannot run with %s: %s", sizes, why.msg);
}

static int load_wk_model(struct worker *w, const struct msg_wk_model *msg, const int *fds,
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
    m->base = m;
    m->tables.fd = -1;
    step_load(w, WORKER_LOAD_READ, 0);
    rc = msg->of ? take_base(w, m, msg, err) : package_read_fds(fds[0], fds[1], &m->graph, err);
    if (!rc && !msg->of)
        m->sizes = m->graph->own;
    if (!rc && !HOOK_ASK(w->hooks, is_for_one, false) && !graph_fixed_batch(m->graph))
        rc = batch_list(m, msg->max_batch, err);
    else
        m->batch[m->n_batches++] = msg->max_batch;
    if (w->ctl) /* read, image; and of each size compile, warm, profile */
        atomic_store(&w->ctl->load_total, 2 + (msg->build ? 3 : 2) * m->n_batches);
    if (!rc)
        rc = compile_model(w, m, msg, p, heap_before, err);
    if (!rc)
        rc = sh_grow(&w->models, &w->cap_models, w->n_models + 1, sizeof(*w->models),
                     WORKER_MAX_MODELS, "models of one worker", err);
    if (!rc && !HOOK_ASK(w->hooks, is_for_one, false))
        rc = warm_model(w, m, err);
    if (rc) {
        say_sizes(m, err);
        w->refused_bytes = m->host_bytes;
        w->refused_image = largest_program(m) ? program_image_bytes(largest_program(m)) : 0;
        free_model(w, m);
        return rc;
    }
    w->models[w->n_models++] = m;
    *out = m;
    return SH_OK;
}

/* Where inputs lie in each program's workspace: u64[n_batches][n_inputs], OWNED by the caller. */
static uint64_t *input_offs(const struct wk_model *m)
{
    size_t n = program_n_inputs(largest_program(m));
    uint64_t *offs = calloc(n * m->n_batches + 1, sizeof(*offs));

    for (size_t i = 0; offs && i < n * m->n_batches; i++)
        offs[i] = program_input(m->program[i / n], i % n)->offset;
    return offs;
}

static int answer_model(struct worker *w, const struct msg_wk_model *msg, const struct wk_model *m,
                        const struct loading *how, struct sh_err *err)
{
    struct msg_batch batches[WORKER_MAX_BATCHES] = {{0}};
    struct sh_msg r = {.type = MSG_WK_MODEL_DONE};
    struct msg_wk_model_done *d = &r.u.wk_model_done;
    const struct sh_err *why = &how->why;
    bool with_fd = !why->rc && msg->build && !how->image_at;
    uint64_t *offs = why->rc ? NULL : input_offs(m);
    int rc;

    *d = (struct msg_wk_model_done){.handle = msg->handle,
                                    .turn = msg->turn,
                                    .rc = why->rc,
                                    .msg = why->msg,
                                    .was_kept = how->was_kept,
                                    .image_at = how->image_at};
    d->host_bytes = m ? m->host_bytes : 0;
    if (why->rc == SH_E_QUOTA && !m) {
        d->host_bytes = w->refused_bytes;
        d->image_bytes = w->refused_image;
    }
    if (why->rc == SH_E_TOOBIG && m)
        d->image_bytes =
            program_image_bytes(largest_program(m)) + program_workspace_bytes(largest_program(m));
    if (!why->rc) {
        uint32_t n = program_n_layers(largest_program(m));

        for (uint32_t i = 0; i < m->n_batches; i++) {
            batches[i].batch = m->batch[i];
            batches[i].ws_bytes = program_workspace_bytes(m->program[i]);
        }
        d->sizes = (struct sh_blob){m->sizes.v, m->sizes.n * sizeof(m->sizes.v[0])};
        d->image_bytes = program_image_bytes(largest_program(m));
        d->n_tables = program_n_tables(largest_program(m));
        d->layer_ends =
            (struct sh_blob){program_layer_ends(largest_program(m)), n * sizeof(uint64_t)};
        d->batches = (struct sh_blob){batches, m->n_batches * sizeof(batches[0])};
        if (offs)
            d->input_offs = (struct sh_blob){offs, program_n_inputs(largest_program(m)) *
                                                       m->n_batches * sizeof(*offs)};
        if (how->is_packed)
            d->link_ends = (struct sh_blob){how->link_ends, n * sizeof(*how->link_ends)};
        if (msg->build)
            d->layer_ns = (struct sh_blob){how->layer_ns, sizeof(double) * n * m->n_batches};
    }
    rc = worker_send(w, &r, with_fd ? &how->image.fd : NULL, with_fd ? 1 : 0, err);
    free(offs);
    return rc;
}

static void log_steps(const struct worker *w, const struct msg_wk_model *msg)
{
    const int64_t *ns = w->load.ns;

    SH_INFO("model.steps",
            "version=%" PRId64 " worker=%u build=%u read_ms=%.1f compile_ms=%.1f warm_ms=%.1f "
            "image_ms=%.1f profile_ms=%.1f",
            msg->handle, w->id, msg->build, (double)ns[WORKER_LOAD_READ] / 1e6,
            (double)ns[WORKER_LOAD_COMPILE] / 1e6, (double)ns[WORKER_LOAD_WARM] / 1e6,
            (double)ns[WORKER_LOAD_IMAGE] / 1e6, (double)ns[WORKER_LOAD_PROFILE] / 1e6);
}

int infer_on_model(struct worker *w, const struct msg_wk_model *msg, const int *fds, size_t n_fds,
                   struct sh_err *err)
{
    struct wk_model *m = infer_find(w, msg->handle);
    struct loading how = {.image = {.fd = -1}};
    enum dev_precision p;
    int rc;

    if (msg->of ? n_fds != 0 : n_fds < 2 || n_fds > 3)
        return SH_FAIL(err, SH_E_PROTO, "WK_MODEL came with %zu descriptors", n_fds);
    if (w->ctl)
        atomic_store(&w->ctl->load_done, 0);
    w->load = (struct wk_load){.step = WORKER_LOAD_READ};
    begin_piece(w);
    rc = dev_precision_parse(msg->precision, &p, &how.why);
    if (!rc && !m)
        rc = load_wk_model(w, msg, fds, p, &m, &how.why);
    if (!rc && msg->build)
        rc = build_image(w, m, msg, n_fds > 2 ? fds[2] : -1, &how);
    if (rc)
        worker_settle(w, &how.why); /* what a library could not do may be the device's end */
    note_step(w, WORKER_LOAD_READ, 0);
    log_steps(w, msg);
    if (w->end.rc)
        rc = sh_err_copy(err, &w->end);
    else if (how.why.rc == SH_E_DEVLOST)
        rc = sh_err_copy(err, &how.why);
    else
        rc = answer_model(w, msg, m, &how, err);
    if (how.why.rc && m)
        infer_on_model_drop(w, msg->handle);
    malloc_trim(0); /* what only compiling needed */
    sh_shm_fini(&how.image);
    free(how.layer_ns);
    free(how.link_ends);
    end_piece(w);
    return rc;
}

void infer_on_model_drop(struct worker *w, int64_t handle)
{
    for (size_t i = w->n_models; i-- > 0;) /* its shapes first */
        if (w->models[i]->base->handle == handle && w->models[i]->handle != handle)
            infer_on_model_drop(w, w->models[i]->handle);
    for (size_t i = 0; i < w->n_models; i++) {
        if (w->models[i]->handle != handle)
            continue;
        HOOK_TELL(w->hooks, forget, w, handle);
        free_model(w, w->models[i]);
        w->models[i] = w->models[--w->n_models];
        malloc_trim(0); /* in small pieces between others: it would stay ours */
        return;
    }
}
