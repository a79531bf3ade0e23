/* worker_load.c - models of a simulated worker; as executor/worker/load.c: in pieces, between which
 * others go first. */
#include "common/hash.h"
#include "common/mem.h"
#include "common/units.h"
#include "executor/models/store.h"
#include "runtime/model/kept.h"
#include "runtime/pack/layers.h"
#include "tests/sim/packing.h"
#include "tests/sim/worker_int.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_MIN_NS SH_MS(1)
#define READ_MAX_NS SH_MS(60)
#define WARM_NS SH_MS(3)
#define PROGRAM_BYTES 4000u /* what one batch size is compiled to */
#define MOST_TIMES 128u     /* the package's own size: more is refused */

struct loading {
    int64_t handle;
    uint64_t turn;
    bool builds;
    uint32_t size; /* compiled, or timed, next */
    struct worker_model *model;
    double layer_ns[(SIM_MAX_SIZES + 1) * SIM_MAX_LAYERS];
    uint64_t link_ends[SIM_MAX_LAYERS]; /* if it is packed */
    bool is_packed;
    bool was_kept;     /* layer_ns are those of a file */
    uint64_t image_at; /* where the image begins in it; 0: it is in memory */
    struct sh_err why;
};

struct worker_model *worker__model(struct sim_worker *w, int64_t handle)
{
    for (size_t i = 0; i < w->n_models; i++)
        if (w->models[i]->handle == handle)
            return w->models[i];
    return NULL;
}

void worker__drop_model(struct sim_worker *w, int64_t handle)
{
    for (size_t i = 0; i < w->n_models; i++)
        if (w->models[i]->handle == handle) {
            if (w->models[i]->tables_fd >= 0)
                close(w->models[i]->tables_fd);
            free(w->models[i]);
            w->models[i] = w->models[--w->n_models];
            return;
        }
}

/* ------------------------------------------------------------------ tables */

struct worker_model *worker__base(struct sim_worker *w, struct worker_model *m)
{
    return m->of ? worker__model(w, m->of) : m;
}

static size_t tables_begin(const struct worker_model *m)
{
    return layer_begin(m->model->layer_ends, m->model->n_layers - m->n_tables);
}

static size_t bytes_of_tables(const struct worker_model *m)
{
    return layer_begin(m->model->layer_ends, m->model->n_layers) - tables_begin(m);
}

void worker__check_tables(const struct worker_model *m)
{
    const size_t from = tables_begin(m), bytes = bytes_of_tables(m);
    uint64_t *words = malloc(bytes + 1);
    size_t i;

    if (!words)
        abort();
    WORKER_CHECK(m->tables_fd >= 0, "the tables of version %lld are not in host memory",
                 (long long)m->handle);
    WORKER_CHECK(pread(m->tables_fd, words, bytes, (off_t)m->tables_at) == (ssize_t)bytes,
                 "the tables of version %lld are shorter than %zu bytes", (long long)m->handle,
                 bytes);
    i = sim_image_look(&m->package, words, from / sizeof(*words), bytes / sizeof(*words));
    WORKER_CHECK(i == bytes / sizeof(*words),
                 "word %zu of the tables of version %lld is %016llx, which package %u has not", i,
                 (long long)m->handle, (unsigned long long)words[i], m->package.id);
    free(words);
}

/* As the real one does, which looks at nothing else. */
static int take_tables(struct worker_model *m, const struct msg_wk_tables *t, int fd)
{
    if (t->bytes == 0 || t->bytes != bytes_of_tables(m))
        return SH_E_PROTO;
    if (worker__fault(sim_worker_faults.refuse))
        return SH_E_NOMEM;
    m->tables_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    m->tables_at = t->at;
    worker__check_tables(m);
    return SH_OK;
}

void worker__on_tables(struct sim_worker *w, const struct msg_wk_tables *t, const int *fds,
                       size_t n_fds)
{
    struct worker_model *m = worker__model(w, t->handle);
    struct sh_msg r = {.type = MSG_WK_TABLES_DONE};

    WORKER_CHECK(m && !m->of && (m->n_tables || m->has_lied),
                 "tables of version %lld came, which has none here", (long long)t->handle);
    if (m->tables_fd >= 0)
        close(m->tables_fd);
    m->tables_fd = -1;
    if (n_fds == 0)
        return;
    WORKER_CHECK(t->bytes == bytes_of_tables(m) || m->has_lied,
                 "%llu bytes of tables of version %lld came, not %zu", (unsigned long long)t->bytes,
                 (long long)t->handle, bytes_of_tables(m));
    r.u.wk_tables_done = (struct msg_wk_tables_done){
        .handle = t->handle, .turn = t->turn, .rc = take_tables(m, t, fds[0]), .msg = ""};
    worker__send(w, &r, NULL, 0);
}

/* ------------------------------------------------------------------ the answer */

static size_t stored_bytes(const struct loading *l)
{
    const struct sim_model *m = l->model->model;

    return l->is_packed ? l->link_ends[m->n_layers - 1] : m->layer_ends[m->n_layers - 1];
}

static void fill_image(const struct loading *l, struct sh_shm *image)
{
    const size_t bytes = stored_bytes(l), n = bytes / sizeof(uint64_t);
    struct sh_err err = {0};

    if (sh_shm_create("shunt-image", bytes, image, &err))
        sim_broken("world", "an image: %s", err.msg);
    if (l->is_packed)
        sim_packed_fill(&l->model->package, image->base, 0, n);
    else
        sim_image_fill(&l->model->package, image->base, 0, n);
}

static void fill_done(struct loading *l, struct msg_wk_model_done *d, struct msg_batch *batches,
                      uint64_t *offs)
{
    const struct worker_model *m = l->model;
    const struct sim_model *s = m->model;

    for (uint32_t i = 0; i < m->n_sizes; i++) {
        batches[i] = (struct msg_batch){.batch = m->batch[i], .ws_bytes = m->ws_bytes[i]};
        offs[i] = 0;
        for (uint32_t k = 0; !l->was_kept && k < s->n_layers; k++)
            l->layer_ns[i * s->n_layers + k] = (double)s->layer_ns[k] * m->times[i];
    }
    d->image_bytes = s->layer_ends[s->n_layers - 1];
    d->n_tables = m->n_tables;
    d->host_bytes = PROGRAM_BYTES * m->n_sizes;
    d->layer_ends = (struct sh_blob){s->layer_ends, s->n_layers * sizeof(uint64_t)};
    d->batches = (struct sh_blob){batches, m->n_sizes * sizeof(*batches)};
    d->input_offs = (struct sh_blob){offs, m->n_sizes * sizeof(*offs)};
    d->layer_ns = (struct sh_blob){l->layer_ns, sizeof(double) * m->n_sizes * s->n_layers};
    if (l->is_packed)
        d->link_ends = (struct sh_blob){l->link_ends, s->n_layers * sizeof(uint64_t)};
    d->was_kept = l->was_kept;
    d->image_at = l->image_at;
    if (m->size)
        d->sizes = (struct sh_blob){&m->size, sizeof(m->size)};
}

static void answer(struct sim_worker *w)
{
    struct loading *l = w->load;
    struct sh_msg r = {.type = MSG_WK_MODEL_DONE};
    struct msg_batch batches[SIM_MAX_SIZES + 1] = {{0}};
    uint64_t offs[SIM_MAX_SIZES + 1];
    struct sh_shm image = {.fd = -1};

    r.u.wk_model_done = (struct msg_wk_model_done){
        .handle = l->handle, .turn = l->turn, .rc = l->why.rc, .msg = l->why.msg};
    if (l->why.rc == 0) {
        fill_done(l, &r.u.wk_model_done, batches, offs);
        if (l->builds && !l->image_at)
            fill_image(l, &image);
        else if (!l->builds)
            r.u.wk_model_done.layer_ns = (struct sh_blob){0};
    } else if (l->why.rc == SH_E_TOOBIG || l->why.rc == SH_E_QUOTA) {
        r.u.wk_model_done.image_bytes = w->arena_bytes + DEV_BLOCK;
        r.u.wk_model_done.host_bytes = l->why.rc == SH_E_QUOTA ? PROGRAM_BYTES : 0;
    }
    worker__send(w, &r, &image.fd, image.fd >= 0 ? 1 : 0);
    sh_shm_fini(&image);
    if (l->why.rc)
        worker__drop_model(w, l->handle);
    free(l);
    w->load = NULL;
    worker__end_piece(w);
    worker__done(w);
}

/* ------------------------------------------------------------------ pieces */

static void note(struct sim_worker *w, enum worker_load step)
{
    atomic_store(&w->ctl->load_step, step);
    atomic_fetch_add(&w->ctl->load_done, 1);
}

static void time_next(struct sim_worker *w);
static void on_timed(void *arg, uint64_t n)
{
    (void)n;
    worker__pause(arg, time_next);
}

static void time_next(struct sim_worker *w)
{
    struct loading *l = w->load;

    if (!l->builds || l->was_kept || l->why.rc || l->size == l->model->n_sizes) {
        answer(w);
        return;
    }
    note(w, WORKER_LOAD_PROFILE);
    l->size++;
    worker__after(w, l->model->model->profile_ns, on_timed, 0);
}

static void warm(struct sim_worker *w)
{
    note(w, WORKER_LOAD_WARM);
    w->load->size = 0;
    worker__after(w, WARM_NS * w->load->model->n_sizes, on_timed, 0);
}

static void compile_next(struct sim_worker *w);
static void on_compiled(void *arg, uint64_t n)
{
    (void)n;
    worker__pause(arg, compile_next);
}

static void compile_next(struct sim_worker *w)
{
    struct loading *l = w->load;

    if (l->why.rc) {
        answer(w);
        return;
    }
    if (l->size == l->model->n_sizes) {
        w->models[w->n_models++] = l->model;
        warm(w);
        return;
    }
    note(w, WORKER_LOAD_COMPILE);
    l->size++;
    worker__after(w, l->model->model->compile_ns / l->model->n_sizes, on_compiled, 0);
}

/* ------------------------------------------------------------------ the beginning */

static void refuse(struct loading *l)
{
    static const int CODES[] = {SH_E_TOOBIG, SH_E_QUOTA, SH_E_NOMEM, SH_E_UNSUPPORTED, SH_E_DEVMEM};

    SH_FAIL(&l->why, CODES[sim_below(SH_ARRAY_LEN(CODES))],
            "the simulated worker does not take it");
}

/* What is left open makes it longer, not its inputs and outputs. */
static void scale(struct worker_model *m)
{
    const double by = m->size ? (double)m->size / (double)m->package.own_size : 1;

    for (uint32_t i = 0; i < m->n_sizes; i++)
        m->times[i] *= by;
}

/* The sizes of the profile below max_batch, and that. One worker needs a larger workspace than
 * another: each finds by itself what is fast. */
static void set_sizes(struct worker_model *m, uint32_t max_batch)
{
    const uint64_t more = sim_chance(0.1) ? 1 + sim_below(4) : 0;
    const struct sim_size *last = NULL;
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->model->n_sizes; i++) {
        const struct sim_size *s = &m->model->sizes[i];
        const bool is_all = s->batch >= max_batch || i + 1 == m->model->n_sizes;

        last = s;
        m->batch[n] = is_all ? max_batch : s->batch;
        m->ws_bytes[n] = s->ws_bytes;
        m->times[n++] = s->times;
        if (is_all)
            break;
    }
    if (last && last->batch < max_batch) { /* larger than the profile knows */
        m->ws_bytes[n - 1] = last->ws_bytes * max_batch / last->batch;
        m->times[n - 1] = last->times * max_batch / last->batch;
    }
    m->n_sizes = n;
    for (uint32_t i = 0; i < n; i++) {
        m->ws_bytes[i] += m->ws_bytes[i] / 8 * more;
        m->ws_bytes[i] =
            SH_MAX(m->ws_bytes[i], m->batch[i] * (m->model->in_bytes + m->model->out_bytes));
    }
}

/* Another model of the worker, for another size. */
static void take_base(struct sim_worker *w, struct worker_model *m, const struct msg_wk_model *msg)
{
    const struct worker_model *base = worker__model(w, msg->of);

    WORKER_CHECK(base && !msg->build, "a shape of version %lld came, which is not here",
                 (long long)msg->of);
    m->package = base->package;
    WORKER_CHECK(m->package.own_size && msg->sizes.len == sizeof(m->size),
                 "%zu bytes of sizes came for a model of %s", msg->sizes.len, m->package.model);
    memcpy(&m->size, msg->sizes.data, sizeof(m->size));
    WORKER_CHECK(m->size > 0, "a size of 0");
}

static struct worker_model *new_model(struct sim_worker *w, const struct msg_wk_model *msg,
                                      const int *fds)
{
    struct worker_model *m = calloc(1, sizeof(*m));

    if (!m)
        abort();
    m->handle = msg->handle;
    m->of = msg->of;
    m->tables_fd = -1;
    if (msg->of) {
        take_base(w, m, msg);
    } else {
        WORKER_CHECK(sim_package_read(fds[0], &m->package), "WK_MODEL came without a package");
        m->size = m->package.own_size;
    }
    m->model = sim_profile_model(w->profile, m->package.model);
    WORKER_CHECK(m->model, "the profile has no model %s", m->package.model);
    m->n_tables = msg->of ? worker__model(w, msg->of)->n_tables
                  : msg->tables == MSG_TABLES_ALWAYS && m->package.id % 2
                      ? SH_MIN(1 + (uint32_t)(m->package.id / 2 % 3), m->model->n_layers - 1)
                      : 0;
    set_sizes(m, msg->max_batch);
    scale(m);
    return m;
}

/* What is kept of the model, where it fits: it is what this worker would have made. */
static void read_kept(struct loading *l, const struct msg_wk_model *msg, int fd)
{
    const struct worker_model *m = l->model;
    const struct sim_model *s = m->model;
    struct kept_about about = {.image_bytes = s->layer_ends[s->n_layers - 1],
                               .layer_ends = s->layer_ends,
                               .n_layers = s->n_layers,
                               .batches = m->batch,
                               .n_batches = m->n_sizes};
    uint64_t *image;
    struct sh_err err = {0};
    uint64_t bytes;

    WORKER_CHECK(!sh_unhex(msg->key, about.key, sizeof(about.key), &err), "WK_MODEL: %s", err.msg);
    if (kept_look(fd, &about, l->link_ends, &err))
        return;
    bytes = kept_stored_bytes(&about);
    image = malloc(bytes + 1);
    if (!image)
        abort();
    if (kept_read(fd, &about, image, l->layer_ns, &err) == SH_OK) {
        const size_t n = bytes / sizeof(*image);
        const size_t i = about.link_ends ? sim_packed_look(&m->package, image, 0, n)
                                         : sim_image_look(&m->package, image, 0, n);

        SIM_CHECK("kept", i == n, "word %zu of what is kept of package %u is %016llx", i,
                  m->package.id, (unsigned long long)image[i]);
        l->was_kept = true;
        l->is_packed = about.link_ends != NULL;
        l->image_at = msg->maps ? kept_image_at(&about) : 0;
    }
    free(image);
}

/* Out of what is kept, if anything is (fd), or anew. */
static void make_image(struct loading *l, const struct msg_wk_model *msg, int fd)
{
    if (fd >= 0)
        read_kept(l, msg, fd);
    if (msg->build && !l->was_kept && !l->model->n_tables) /* here: one or the other */
        l->is_packed = sim_packs(&l->model->package, l->model->model, msg->pack, l->link_ends);
}

void worker__on_model(struct sim_worker *w, const struct msg_wk_model *m, const int *fds,
                      size_t n_fds)
{
    struct loading *l = calloc(1, sizeof(*l));

    if (!l)
        abort();
    WORKER_CHECK(m->of ? n_fds == 0 : n_fds == 2 || n_fds == 3,
                 "WK_MODEL came with %zu descriptors", n_fds);
    WORKER_CHECK(w->n_models < WORKER_MAX_MODELS, "too many models");
    *l = (struct loading){.handle = m->handle, .turn = m->turn, .builds = m->build != 0};
    w->load = l;
    worker__begin_piece(w);
    atomic_store(&w->ctl->load_done, 0);
    atomic_store(&w->ctl->load_step, WORKER_LOAD_READ);
    l->model = worker__model(w, m->handle);
    if (l->model) { /* it is to be made anew, to be kept */
        make_image(l, m, n_fds == 3 ? fds[2] : -1);
        worker__after(w, READ_MIN_NS, on_timed, 0);
        return;
    }
    l->model = new_model(w, m, fds);
    make_image(l, m, n_fds == 3 ? fds[2] : -1);
    atomic_store(&w->ctl->load_total, 2 + (m->build ? 2 : 1) * l->model->n_sizes);
    if (l->model->size > MOST_TIMES * l->model->package.own_size)
        SH_FAIL(&l->why, SH_E_UNSUPPORTED, "a size of %u is too large", l->model->size);
    else if (worker__fault(sim_worker_faults.refuse))
        refuse(l);
    else if (l->builds && (l->model->model->layer_ends[l->model->model->n_layers - 1] +
                           l->model->ws_bytes[l->model->n_sizes - 1]) > w->arena_bytes)
        SH_FAIL(&l->why, SH_E_TOOBIG, "the model does not fit into the simulated device");
    worker__after(w, sim_between(READ_MIN_NS, READ_MAX_NS), on_compiled, 0);
}
