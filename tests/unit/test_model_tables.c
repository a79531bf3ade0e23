/* test_model_tables.c - what a worker says of a model that it has compiled, first or after others.
 *
 * Without it: a worker that a tenant has taken over could give an executor tables by which it reads
 * past its own memory, or a run a place that is too small for it, beside other tenants' data. */
/* uses: runtime/pack/pack.o executor/models/model.o executor/models/lock.o runtime/device/lock.o executor/models/packed.o executor/models/shapes.o executor/models/model_go.o executor/models/model_life.o executor/models/tables.o */
#include "common/mem.h"
#include "executor/models/apart.h"
#include "executor/models/fetch.h"
#include "executor/models/model_int.h"
#include "executor/models/packed.h"
#include "executor/models/seen.h"
#include "executor/models/share.h"
#include "executor/models/sibling.h"
#include "executor/models/tier.h"
#include "tests/unit/sh_test.h"

#include <math.h>
#include <unistd.h>

/* No image has a packed copy here (test_apart.c). */
bool model_is_apart(const struct model *m)
{
    return m->apart.at == APART_WHOLE;
}

bool apart__has_lost_source(const struct model *m)
{
    (void)m;
    return false;
}

bool apart__is_wanted(const struct model *m)
{
    (void)m;
    return false;
}

bool apart__place(struct model *m, bool may_evict)
{
    (void)m, (void)may_evict;
    return false;
}

void apart__arrived(struct model *m, bool is_lost)
{
    (void)m, (void)is_lost;
}

void apart__look(struct model *m)
{
    (void)m;
}

void apart__lose(struct model *m)
{
    (void)m;
}

void model_let_apart_go(struct model *m)
{
    (void)m;
}

#define IMAGE 3000
#define N_LAYERS 3
#define N_SIZES 2
#define MANY (MODEL_MAX_BATCHES + 1)

static struct {
    struct store_env env;
    struct store_counts counts;
    struct store_shapes shapes;
    struct model *m;
    int fits_rc, space_rc, add_rc, n_removed;
    size_t most_kept, most_ws, scrub_off, scrub_bytes;
    size_t most; /* of device memory; 0: nobody looks */
    uint32_t held;
    bool is_short, no_scrub;
    const struct tx_image *replanned; /* the last one */
} R;

/* ------------------------------------------------------------------ the rest of the executor */

int dev_check_fits(size_t pool, size_t kept, size_t ws, int64_t batch, bool trains,
                   struct sh_err *err)
{
    (void)pool, (void)batch, (void)trains;
    if (R.most && kept + ws > R.most)
        return SH_FAIL(err, SH_E_TOOBIG, "no room");
    R.most_kept = kept;
    R.most_ws = ws;
    return R.fits_rc ? SH_FAIL(err, R.fits_rc, "it does not fit") : SH_OK;
}

int space_check_max(struct space *s, uint32_t tag, uint64_t bytes, const char *what,
                    struct sh_err *err)
{
    (void)s, (void)tag, (void)bytes, (void)what;
    return R.space_rc ? SH_FAIL(err, R.space_rc, "too much for its tenant") : SH_OK;
}

int residency_add(struct residency *r, const struct residency_image *im, uint32_t *id_out,
                  struct sh_err *err)
{
    (void)r;
    assert_int_equal(im->n_blocks, (IMAGE + DEV_BLOCK - 1) / DEV_BLOCK);
    *id_out = 4;
    return R.add_rc ? SH_FAIL(err, R.add_rc, "no place") : SH_OK;
}

void residency_remove(struct residency *r, uint32_t id)
{
    (void)r;
    assert_int_equal(id, 4);
    R.n_removed++;
}

const struct store_env *store__env(const struct store *s)
{
    (void)s;
    return &R.env;
}

struct store_counts *store__counts(struct store *s)
{
    (void)s;
    return &R.counts;
}

int store__put(struct store *s, struct model *m, struct sh_err *err)
{
    (void)s, (void)m, (void)err;
    return SH_OK;
}

struct store_shapes *store__shapes(struct store *s)
{
    (void)s;
    return &R.shapes;
}

int space_place(struct space *s, uint32_t image, uint64_t image_bytes, bool may_evict,
                struct tx_place *out, struct sh_err *err)
{
    (void)s, (void)image, (void)image_bytes, (void)may_evict, (void)out, (void)err;
    return SH_OK;
}

int space_scrub(struct space *s, uint32_t image, size_t off, size_t bytes, struct sh_err *err)
{
    (void)s;
    assert_int_equal(image, 4);
    R.scrub_off = off;
    R.scrub_bytes = bytes;
    return R.no_scrub ? SH_FAIL(err, SH_E_IO, "the device refuses") : SH_OK;
}

int tx_load_begin(struct tx *t, struct tx_image *im, const struct tx_place *place,
                  const double *layer_ns, struct sh_err *err)
{
    (void)t, (void)im, (void)place, (void)layer_ns, (void)err;
    return SH_OK;
}

int tx_load_rest(struct tx *t, struct tx_image *im, tx_done_fn *fn, void *arg, struct sh_err *err)
{
    (void)t, (void)im, (void)fn, (void)arg, (void)err;
    return SH_OK;
}

int tx_mark(struct tx *t, uint32_t lane, tx_done_fn *fn, void *arg, struct sh_err *err)
{
    (void)t, (void)lane, (void)fn, (void)arg, (void)err;
    return SH_OK;
}

uint64_t tx_link_bytes(const struct tx_image *im, uint64_t device_bytes)
{
    (void)im;
    return device_bytes;
}

uint64_t tx_keep_bytes(const struct tx *t, const struct tx_image *im, const double *layer_ns)
{
    (void)t, (void)layer_ns;
    return im->bytes / 2;
}

double tx_tail_ns(const struct tx *t, const struct tx_image *im, const double *layer_ns)
{
    (void)t, (void)im, (void)layer_ns;
    return 0;
}

void tier_lose(struct model *m, const struct sh_err *why)
{
    (void)m, (void)why;
}

int tier_bring(struct model *m, uint64_t from, bool must, struct sh_err *err)
{
    (void)m, (void)from, (void)must, (void)err;
    return SH_OK;
}

int dev_mem_host_lock(struct dev_mem *m, void *base, size_t bytes, struct sh_err *err)
{
    (void)m, (void)base, (void)bytes, (void)err;
    return SH_OK;
}

uint64_t tx_needed_bytes(const struct tx_image *im)
{
    const uint32_t n = im->n_layers - im->n_tables;

    return im->n_tables ? im->layer_ends[n - 1] : im->bytes;
}

struct model *store_next(struct store *s, const struct model *m)
{
    (void)s;
    return m ? NULL : R.m;
}

/* clang-format off */
void blob_set_drop(struct blob_set *s) { (void)s; }
size_t dev_mem_bytes(const struct dev_mem *m) { (void)m; return 1 << 20; }
void dev_mem_host_unlock(struct dev_mem *m, void *base) { (void)m, (void)base; }
uint32_t dev_ticket_value(const struct dev_mem *m, uint32_t slot) { (void)m, (void)slot; return 9; }
void fetch_free(struct model *m) { (void)m; }
void fetch_tick(struct model *m, int64_t now_ns) { (void)m, (void)now_ns; }
void kept_dir_drop(struct kept_file *f) { (void)f; }
void residency_forget(struct residency *r, uint32_t id, uint32_t blocks)
{ (void)r, (void)id, (void)blocks; }
void residency_set_packed(struct residency *r, uint32_t id, bool is_packed)
{ (void)r, (void)id, (void)is_packed; }
uint32_t residency_held(const struct residency *r, uint32_t id)
{ (void)r, (void)id; return R.held; }
double tx_alpha_ns(const struct tx *t) { (void)t; return 0; }
double tx_beta_ns(const struct tx *t) { (void)t; return 1; }
uint32_t residency_blocks(const struct residency *r, uint32_t id) { (void)r, (void)id; return 0; }
bool dev_mem_is_queued(const struct dev_mem *m) { (void)m; return false; }
void residency_set_range(struct residency *r, uint32_t id, uint32_t n_blocks, uint32_t short_blocks)
{ (void)r, (void)id, (void)n_blocks, (void)short_blocks; }
void residency_pin(struct residency *r, uint32_t id) { (void)r, (void)id; }
uint32_t residency_pins(const struct residency *r, uint32_t id) { (void)r, (void)id; return 0; }
void residency_set_short(struct residency *r, uint32_t id, bool is_short)
{ (void)r, (void)id; R.is_short = is_short; }
size_t pool_size(const struct pool *p) { (void)p; return 0; }
struct worker *pool_at(struct pool *p, size_t i) { (void)p, (void)i; return NULL; }
bool worker_is_alive(const struct worker *w) { (void)w; return true; }
bool worker_has_model(const struct worker *w, int64_t handle)
{ (void)w, (void)handle; return true; }
void worker_send(struct worker *w, const struct sh_msg *m, const int *fds, size_t n_fds)
{ (void)w, (void)m, (void)fds, (void)n_fds; }
void model__bring(struct model *m, bool may_evict_stale) { (void)m, (void)may_evict_stale; }
void residency_touch(struct residency *r, uint32_t id, int64_t now_ns)
{ (void)r, (void)id, (void)now_ns; }
void residency_truncate(struct residency *r, uint32_t id, uint32_t n)
{ (void)r, (void)id, (void)n; }
void residency_unpin(struct residency *r, uint32_t id) { (void)r, (void)id; }
void seen_count(struct model *version, const struct sh_sizes *sizes) { (void)version, (void)sizes; }
struct residency *space_residency(struct space *s) { (void)s; return NULL; }
const struct store_users *store__users(const struct store *s) { (void)s; return NULL; }
struct model *store_find(struct store *s, int64_t handle) { (void)s, (void)handle; return NULL; }
void shape_report(const struct model *m) { (void)m; }
void store_tell_place(struct model *m) { (void)m; }
void tier_free(struct model *m) { (void)m; }
void tier_needs(struct model *m, uint64_t from) { (void)m, (void)from; }
void tier_tick(struct model *m) { (void)m; }
void share__tick(struct store *s) { (void)s; }
void share__forget(struct model *m) { (void)m; }
void sibling__bring(struct model *m, uint64_t wanted) { (void)m, (void)wanted; }
void tx_forget(struct tx *t, const void *arg) { (void)t, (void)arg; }
void tx_image_arrived(struct tx *t, struct tx_image *im) { (void)t, (void)im; }
bool tx_image_busy(const struct tx_image *im) { (void)im; return false; }
void tx_image_fini(struct tx_image *im) { (void)im; }
void tx_image_replan(struct tx_image *im) { R.replanned = im; }
void tx_image_force(struct tx *t, struct tx_image *im) { (void)t, (void)im; }
bool tx_load_waits(const struct tx_image *im) { (void)im; return false; }
void uplink_send(const struct uplink *u, const struct sh_msg *m) { (void)u, (void)m; }
/* clang-format on */

/* ------------------------------------------------------------------ what a worker says */

static struct said { /* of a model that is right, until a test changes something */
    struct msg_batch batches[MANY];
    uint64_t input_offs[MANY * 2], ends[N_LAYERS];
    double ns[MANY * N_LAYERS];
    uint32_t sizes[N_SIZES];
    struct msg_wk_model_done done;
} S;

static void says(uint32_t n_batches, uint32_t n_inputs)
{
    S = (struct said){.ends = {1000, 1000, IMAGE}, .sizes = {8, 16}};
    for (uint32_t i = 0; i < n_batches; i++)
        S.batches[i] = (struct msg_batch){.batch = i + 1, .ws_bytes = 100 * (i + 1)};
    for (size_t i = 0; i < (size_t)n_batches * N_LAYERS; i++)
        S.ns[i] = 1e6;
    S.done = (struct msg_wk_model_done){
        .image_bytes = IMAGE,
        .batches = {S.batches, n_batches * sizeof(S.batches[0])},
        .input_offs = {S.input_offs, (size_t)n_batches * n_inputs * sizeof(S.input_offs[0])},
        .layer_ends = {S.ends, sizeof(S.ends)},
        .layer_ns = {S.ns, (size_t)n_batches * N_LAYERS * sizeof(S.ns[0])},
        .sizes = {S.sizes, sizeof(S.sizes)}};
}

static int begin(void **state)
{
    (void)state;
    memset(&R, 0, sizeof(R));
    R.env.executor = "e";
    R.m = calloc(1, sizeof(*R.m));
    assert_non_null(R.m);
    R.m->base = R.m;
    R.m->image.fd = R.m->kept_fd = R.m->tables.fd = -1;
    assert_ok(sh_strdup("t", &R.m->tenant, NULL));
    assert_ok(sh_strdup("m", &R.m->name, NULL));
    assert_ok(sh_strdup("fp32", &R.m->precision, NULL));
    assert_ok(sh_strdup("p", &R.m->package, NULL));
    says(2, 1);
    return 0;
}

static int end(void **state)
{
    (void)state;
    model__free(R.m);
    return 0;
}

/* OWNED: a descriptor. */
static int memory(size_t bytes)
{
    struct sh_shm m;
    int fd;

    assert_ok(sh_shm_create("image", bytes, &m, NULL));
    fd = dup(m.fd);
    assert_true(fd >= 0);
    sh_shm_fini(&m);
    return fd;
}

/* By its first worker; what came is the caller's to close, unless it was taken. */
static int taken(struct sh_err *err)
{
    int fd = memory(IMAGE), rc = model__take_tables(R.m, &S.done, &fd, 1, err);

    assert_int_equal(fd < 0, R.m->image.base != NULL);
    if (fd >= 0)
        close(fd);
    assert_int_equal(R.m->has_image, rc == 0);
    return rc;
}

static void what_is_right_is_kept(void **state)
{
    const double *ns;

    (void)state;
    assert_ok(taken(NULL));
    assert_int_equal(R.m->n_batches, 2);
    assert_int_equal(R.m->n_inputs, 1);
    assert_int_equal(R.m->n_layers, N_LAYERS);
    assert_int_equal(R.m->sizes.n, N_SIZES);
    assert_int_equal(R.m->tx.value, 9); /* its slot had served another image */
    assert_int_equal(R.most_ws, 200);
    assert_int_equal(R.most_kept, IMAGE);
    assert_int_equal(model_batch(R.m, 2, &ns)->batch, 2);
    assert_ptr_equal(ns, R.m->layer_ns + N_LAYERS);
    assert_null(model_batch(R.m, 3, &ns));
}

/* One thing is wrong at a time. */
static void spoil(int what)
{
    switch (what) {
    case 0:
        S.done.batches.len--;
        break;
    case 1:
        S.done.batches.len = 0;
        break;
    case 2:
        says(MANY, 1);
        break;
    case 3:
        S.done.input_offs.len += sizeof(uint64_t);
        break;
    case 4:
        S.batches[0].batch = 0;
        break;
    case 5:
        S.batches[1].batch = 1;
        break;
    case 6:
        S.done.layer_ends.len--;
        break;
    case 7:
        S.done.layer_ns.len -= sizeof(double);
        break;
    case 8:
        S.ends[1] = 999;
        break;
    case 9:
        S.ends[2] = IMAGE - 1;
        break;
    case 10:
        S.ns[3] = NAN;
        break;
    case 11:
        S.ns[3] = -1;
        break;
    case 12:
        S.ns[3] = 1e16;
        break;
    case 13:
        S.done.sizes.len--;
        break;
    default:
        S.sizes[1] = 0;
        break;
    }
}

static void what_is_wrong_is_refused_and_leaves_nothing(void **state)
{
    for (int what = 0; what <= 14; what++) {
        struct sh_err err = {0};

        says(2, 1);
        spoil(what);
        assert_fails(taken(&err), SH_E_PROTO, &err, "");
        assert_null(R.m->batches);
        assert_null(R.m->layer_ns);
    }
    (void)state;
    says(2, 1); /* another worker has another try */
    assert_ok(taken(NULL));
}

static void what_does_not_fit_leaves_nothing(void **state)
{
    struct sh_err err = {0};

    (void)state;
    R.fits_rc = SH_E_TOOBIG;
    assert_fails(taken(&err), SH_E_TOOBIG, &err, "");
    assert_int_not_equal(R.m->need_bytes, 0);
    R.fits_rc = 0;
    R.space_rc = SH_E_QUOTA;
    err = (struct sh_err){0};
    assert_fails(taken(&err), SH_E_QUOTA, &err, "");
    R.space_rc = 0;
    R.add_rc = SH_E_NOMEM;
    err = (struct sh_err){0};
    int fd = memory(IMAGE);
    assert_fails(model__take_tables(R.m, &S.done, &fd, 1, &err), SH_E_NOMEM, &err, "");
    assert_int_equal(fd, -1); /* taken, and closed with the rest */
    assert_null(R.m->image.base);
    R.add_rc = 0;
    assert_ok(taken(NULL));
    assert_int_equal(R.m->need_bytes, 0);
}

static void an_image_comes_whole_or_from_the_kept_file(void **state)
{
    int fds[2] = {-1, -1};
    struct sh_err err = {0};

    (void)state;
    assert_fails(model__take_tables(R.m, &S.done, NULL, 0, &err), SH_E_PROTO, &err, "without");
    S.done.was_kept = 1; /* though there is nothing */
    err = (struct sh_err){0};
    assert_fails(model__take_tables(R.m, &S.done, NULL, 0, &err), SH_E_PROTO, &err, "without");
    fds[0] = memory(IMAGE);
    fds[1] = memory(IMAGE);
    err = (struct sh_err){0};
    assert_fails(model__take_tables(R.m, &S.done, fds, 2, &err), SH_E_PROTO, &err, "without");
    close(fds[0]);
    close(fds[1]);
    fds[0] = memory(1);
    S.ends[2] = S.done.image_bytes = 1 << 20; /* more than there is: reading it would end us */
    err = (struct sh_err){0};
    assert_fails(model__take_tables(R.m, &S.done, fds, 1, &err), SH_E_PROTO, &err, "");
    close(fds[0]);
    S.ends[2] = S.done.image_bytes = IMAGE;
    model__keep_fd(R.m, memory(IMAGE));
    assert_ok(model__take_tables(R.m, &S.done, NULL, 0, NULL));
}

/* ------------------------------------------------------------------ another worker's */

static void another_worker_may_need_more_and_know_less(void **state)
{
    (void)state;
    says(3, 1);
    assert_ok(taken(NULL));
    S.batches[0].batch = 2;
    S.batches[0].ws_bytes = 999;
    S.done.batches.len = sizeof(S.batches[0]);
    S.done.input_offs.len = sizeof(uint64_t);
    assert_ok(model__agree(R.m, &S.done, NULL));
    assert_int_equal(R.m->batches[0].ws_bytes, 100);
    assert_int_equal(R.m->batches[1].ws_bytes, 999);
    assert_int_equal(R.m->n_inputs, 1);
    S.batches[0].ws_bytes = 5;
    assert_ok(model__agree(R.m, &S.done, NULL));
    assert_int_equal(R.m->batches[1].ws_bytes, 999);
    S.input_offs[0] = 64; /* other kernels: inputs lie elsewhere */
    assert_ok(model__agree(R.m, &S.done, NULL));
    assert_int_equal(R.m->n_inputs, 0);
}

static void a_longer_range_stands_in_the_way_of_no_workspace(void **state)
{
    static const uint64_t LINKS[N_LAYERS] = {512, 512, 1024};
    struct sh_err err = {0};
    uint64_t least;

    (void)state;
    assert_ok(taken(NULL));
    R.m->link_ends = malloc(sizeof(LINKS));
    assert_non_null(R.m->link_ends);
    memcpy(R.m->link_ends, LINKS, sizeof(LINKS));
    R.m->link_bytes = 1024;
    least = packed__room(R.m);
    R.m->spare_bytes = 4096;
    R.m->room_bytes = packed__room(R.m);
    S.batches[0].ws_bytes = S.batches[1].ws_bytes = 5000;
    R.most = least + 4999; /* not even without it */
    assert_fails(model__agree(R.m, &S.done, &err), SH_E_TOOBIG, &err, "no room");
    assert_int_equal(R.m->need_bytes / DEV_BLOCK, 2);
    assert_int_equal(R.m->room_bytes, least + 4096);
    assert_int_equal(R.m->batches[0].ws_bytes, 100);
    R.most = least + 4096 + 5000;
    assert_ok(model__agree(R.m, &S.done, NULL));
    assert_int_equal(R.m->spare_bytes, 4096);
    S.batches[1].ws_bytes = 5001;
    assert_ok(model__agree(R.m, &S.done, NULL));
    assert_int_equal(R.m->spare_bytes, 0);
    assert_int_equal(R.m->room_bytes, least);
    assert_int_equal(R.m->need_bytes, 0);
    assert_int_equal(R.m->batches[1].ws_bytes, 5001);
}

static void other_places_of_inputs_are_noticed_by_their_number_too(void **state)
{
    (void)state;
    assert_ok(taken(NULL));
    S.done.input_offs.len = 0;
    assert_ok(model__agree(R.m, &S.done, NULL));
    assert_int_equal(R.m->n_inputs, 0);
}

static void another_worker_with_another_image_is_refused(void **state)
{
    static const int RC[] = {SH_E_BUG,   SH_E_BUG,   SH_E_BUG, SH_E_PROTO,
                             SH_E_PROTO, SH_E_PROTO, SH_E_BUG, SH_E_PROTO};

    (void)state;
    assert_ok(taken(NULL));
    for (size_t i = 0; i < SH_ARRAY_LEN(RC); i++) {
        struct sh_err err = {0};

        says(i == 5 ? 3 : 2, 1);
        S.done.image_bytes -= i == 0;
        S.done.layer_ends.len -= i == 1 ? sizeof(uint64_t) : 0;
        S.ends[0] += i == 2;
        S.done.batches.len -= i == 3;
        if (i == 4)
            S.done.batches.len = 0;
        if (i == 6)
            S.batches[1].batch = 7;
        if (i == 7)
            S.batches[0].batch = 2; /* twice */
        assert_fails(model__agree(R.m, &S.done, &err), RC[i], &err, "");
    }
    R.fits_rc = SH_E_TOOBIG;
    says(2, 1);
    assert_int_equal(model__agree(R.m, &S.done, NULL), SH_E_TOOBIG);
}

/* ------------------------------------------------------------------ a shape's */

static struct model *shape_of(uint32_t a, uint32_t b)
{
    const struct sh_sizes sizes = {.n = N_SIZES, .v = {a, b}};
    struct model *shape = NULL;

    R.m->max_batch = 2;
    R.env.max_shapes = R.env.max_all_shapes = 4;
    R.m->phase = MODEL_READY;
    assert_ok(store_shape(R.m, &sizes, &shape, NULL));
    assert_ptr_not_equal(shape, R.m);
    return shape;
}

/* Else what another tenant left behind an unpacked image would count as its own tenant's. */
static void what_lies_before_tables_is_zeroed(void **state)
{
    struct sh_err err = {0};
    uint64_t hit;

    (void)state;
    assert_ok(taken(NULL));
    R.m->tx.n_tables = R.m->tables.n = 1;
    assert_ok(model_place(R.m, &hit, NULL));
    assert_int_equal(R.scrub_bytes, 0); /* it was never packed */
    R.m->tables.at = TABLES_AWAY;
    R.m->tx.shift = 3 * DEV_BLOCK;
    R.held = 1; /* unpacked */
    assert_ok(model_place(R.m, &hit, NULL));
    assert_int_equal(R.scrub_off, DEV_BLOCK);
    assert_int_equal(R.scrub_bytes, 2 * DEV_BLOCK + 1000);
    R.m->tables.at = TABLES_AWAY;
    R.no_scrub = true;
    R.held = 0;
    assert_fails(model_place(R.m, &hit, &err), SH_E_IO, &err, "refuses");
    assert_int_equal(R.scrub_off, 1000);
    assert_int_equal(R.m->tables.at, TABLES_AWAY);
    R.scrub_bytes = 0;
    R.held = 4;
    assert_ok(model_place(R.m, &hit, NULL)); /* it had those */
    assert_int_equal(R.scrub_bytes, 0);
}

static void a_shape_uses_the_image_of_its_version(void **state)
{
    static const int RC[] = {SH_E_BUG, SH_E_BUG, SH_E_BUG, SH_E_BUG, SH_E_PROTO, SH_E_TOOBIG, 0};
    const double *layer_ns;
    struct model *shape;

    (void)state;
    assert_ok(taken(NULL));
    shape = shape_of(16, 16); /* twice as much as its version */
    for (size_t i = 0; i < SH_ARRAY_LEN(RC); i++) {
        says(i == 3 ? 3 : 2, 1);
        S.done.image_bytes += i == 0;
        S.done.layer_ends.len -= i == 1 ? sizeof(uint64_t) : 0;
        S.ends[0] -= i == 2;
        S.batches[1].batch -= i == 4;
        R.fits_rc = i == 5 ? SH_E_TOOBIG : 0;
        assert_int_equal(shapes__take_tables(shape, &S.done, NULL), RC[i]);
        assert_true((model_batch(shape, 1, &layer_ns) == NULL) ==
                    (RC[i] != 0)); /* no half of them */
    }
    assert_true(shape->layer_ns[0] == 2e6);
    R.replanned = NULL;
    model__free(shape);
    assert_ptr_equal(R.replanned, &R.m->tx); /* its groups may have been found for those times */
}

static void times_of_a_shape_are_scaled_within_reason(void **state)
{
    struct model *shape;

    (void)state;
    assert_ok(taken(NULL));
    shape = shape_of(1u << 30, 1u << 30);
    assert_ok(shapes__take_tables(shape, &S.done, NULL));
    assert_true(shape->layer_ns[0] == 4096e6);
    model__free(shape);
    R.shapes = (struct store_shapes){.first = NULL};
    R.m->sizes.v[0] = R.m->sizes.v[1] = 1u << 30;
    shape = shape_of(1, 1);
    assert_ok(shapes__take_tables(shape, &S.done, NULL));
    assert_true(shape->layer_ns[0] == 1e6 / 4096);
    model__free(shape);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(what_is_right_is_kept),
        TEST(what_is_wrong_is_refused_and_leaves_nothing),
        TEST(what_does_not_fit_leaves_nothing),
        TEST(an_image_comes_whole_or_from_the_kept_file),
        TEST(another_worker_may_need_more_and_know_less),
        TEST(a_longer_range_stands_in_the_way_of_no_workspace),
        TEST(other_places_of_inputs_are_noticed_by_their_number_too),
        TEST(another_worker_with_another_image_is_refused),
        TEST(what_lies_before_tables_is_zeroed),
        TEST(a_shape_uses_the_image_of_its_version),
        TEST(times_of_a_shape_are_scaled_within_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
