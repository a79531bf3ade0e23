/* shapes.c - the shapes of versions whose files leave sizes open: see store.h. */
#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/units.h"
#include "executor/models/model_int.h"

#include <inttypes.h>
#include <stdlib.h>

#define MOST_SCALED 4096.0 /* of times, from one shape to another */

struct model *store_next_shape(struct store *s, const struct model *m)
{
    return m ? m->next : store__shapes(s)->first;
}

int shapes__read_sizes(struct sh_blob b, struct sh_sizes *out, struct sh_err *err)
{
    *out = (struct sh_sizes){.n = (uint32_t)(b.len / sizeof(out->v[0]))};
    if (b.len % sizeof(out->v[0]) || out->n > SH_MAX_SYMBOLS)
        return SH_FAIL(err, SH_E_PROTO, "a list of %zu bytes of sizes", b.len);
    if (b.len)
        memcpy(out->v, b.data, b.len);
    for (uint32_t i = 0; i < out->n; i++)
        if (out->v[i] == 0)
            return SH_FAIL(err, SH_E_PROTO, "a size of 0");
    return SH_OK;
}

static bool same_sizes(const struct sh_sizes *a, const struct sh_sizes *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

bool shapes__any(struct store *s, const struct model *version)
{
    for (const struct model *m = store__shapes(s)->first; m; m = m->next)
        if (m->base == version)
            return true;
    return false;
}

void shapes__leave(struct store *s, const struct model *version)
{
    for (struct model *m = store__shapes(s)->first; m; m = m->next)
        if (m->base == version)
            model__go(m, MODEL_GOING);
}

static bool may_go(const struct model *m)
{
    return m->phase != MODEL_GOING && !m->n_users && (m->phase != MODEL_BUILDING || !m->is_asked);
}

/* How many the tenant waits for. */
static size_t n_waited_for(struct store *s, uint32_t tag)
{
    size_t n = 0;

    for (const struct model *m = store__shapes(s)->first; m; m = m->next)
        n += m->tag == tag && m->phase == MODEL_BUILDING && m->is_asked;
    return n;
}

static int compare_tags(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* The tag of the tenant with the most shapes that may go; 0: none may, or there is no memory to
 * count them. */
static uint32_t fullest(struct store *s)
{
    size_t n = 0, most = 0, from = 0;
    uint32_t *tags, tag = 0;

    for (struct model *m = store__shapes(s)->first; m; m = m->next)
        n += may_go(m);
    tags = n ? malloc(n * sizeof(*tags)) : NULL;
    if (!tags)
        return 0;
    n = 0;
    for (struct model *m = store__shapes(s)->first; m; m = m->next)
        if (may_go(m))
            tags[n++] = m->tag;
    qsort(tags, n, sizeof(*tags), compare_tags);
    for (size_t i = 0; i < n; i++) {
        if (tags[i] != tags[from])
            from = i;
        if (i - from < most)
            continue;
        most = i - from + 1;
        tag = tags[i];
    }
    free(tags);
    return tag;
}

bool shapes__evict(struct store *s, const struct model *version, const struct model *of_tenant)
{
    const uint32_t tag = version ? version->tag : of_tenant ? of_tenant->tag : fullest(s);
    struct model *oldest = NULL;

    for (struct model *m = store__shapes(s)->first; m; m = m->next) {
        if (!may_go(m) || m->tag != tag || (version && m->base != version))
            continue;
        if (!oldest || m->last_use_ns < oldest->last_use_ns)
            oldest = m;
    }
    if (!oldest)
        return false;
    SH_INFO("shape.evicted",
            "version=%" PRId64 " shape=%" PRId64 " idle_ms=%" PRId64 " rule=shapes",
            oldest->base->handle, oldest->handle - STORE_SHAPES,
            (sh_clock_ns() - oldest->last_use_ns) / SH_MS(1));
    model__go(oldest, MODEL_GOING);
    return true;
}

/* When the tenant's turn was, the last time. */
static uint64_t turn_of(struct store *s, uint32_t tag)
{
    uint64_t last = 0;

    for (const struct model *m = store_next(s, NULL); m; m = store_next(s, m))
        if (m->tag == tag)
            last = SH_MAX(last, m->turn);
    return last;
}

struct model *shapes__next(struct store *s, const struct shapes_ask *ask, struct worker **w)
{
    struct model *best = NULL;
    uint64_t best_turn = 0;

    for (struct model *m = store__shapes(s)->first; m; m = m->next) {
        struct worker *its;
        uint64_t turn;

        if (!ask->is_due(s, m, ask->asked))
            continue;
        turn = best && m->tag == best->tag ? best_turn : turn_of(s, m->tag);
        if ((best && turn > best_turn) || !(its = ask->worker_for(s, m)))
            continue;
        best = m; /* the newest is the first of the list */
        best_turn = turn;
        *w = its;
    }
    return best;
}

/* ------------------------------------------------------------------ new ones */

static struct model *find_shape_model(struct store *s, const struct model *version,
                                      const struct sh_sizes *sizes)
{
    for (struct model *m = store__shapes(s)->first; m; m = m->next)
        if (m->base == version && m->phase != MODEL_GOING && same_sizes(&m->sizes, sizes))
            return m;
    return NULL;
}

static size_t count_shape_models(struct store *s, const struct model *version)
{
    size_t n = 0;

    for (struct model *m = store__shapes(s)->first; m; m = m->next)
        n += m->base == version && m->phase != MODEL_GOING;
    return n;
}

static int make_shape_room(struct store *s, const struct model *version, struct sh_err *err)
{
    const struct store_env *env = store__env(s);
    const bool is_full = store__shapes(s)->n >= (size_t)env->max_all_shapes;

    if (n_waited_for(s, version->tag) >= STORE_MAX_WAITED_FOR)
        return SH_FAIL(err, SH_E_QUEUEFULL,
                       "%u shapes of your models are being compiled on this executor; try again",
                       STORE_MAX_WAITED_FOR);
    if (!is_full && count_shape_models(s, version) < (size_t)env->max_shapes)
        return SH_OK;
    if (shapes__evict(s, is_full ? NULL : version, NULL) && !is_full)
        return SH_OK;
    if (is_full)
        return SH_FAIL(err, SH_E_QUEUEFULL,
                       "this executor has %" PRId64
                       " shapes, as many as max-loaded-shapes allows; try "
                       "again",
                       env->max_all_shapes);
    return SH_FAIL(err, SH_E_QUEUEFULL,
                   "all of the %" PRId64 " shapes that are compiled for \"%s\" (model-shapes) are "
                   "in use; try again",
                   env->max_shapes, version->name);
}

static int add_shape_model(struct model *version, const struct sh_sizes *sizes, struct model **out,
                           struct sh_err *err)
{
    struct store_shapes *all = store__shapes(version->store);
    struct model *m = calloc(1, sizeof(*m));
    int rc;

    if (!m)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate a shape of a model");
    m->store = version->store;
    m->base = version;
    m->sizes = *sizes;
    m->handle = STORE_SHAPES + ++all->last;
    m->max_batch = version->max_batch;
    m->tag = version->tag;
    m->is_quick = m->is_looked_at = true;
    m->image.fd = m->kept_fd = m->tables.fd = -1;
    m->last_use_ns = sh_clock_ns();
    rc = sh_strdup(version->tenant, &m->tenant, err);
    if (!rc)
        rc = sh_strdup(version->name, &m->name, err);
    if (!rc)
        rc = sh_strdup(version->precision, &m->precision, err);
    if (!rc)
        rc = sh_strdup(version->package, &m->package, err);
    if (!rc)
        rc = store__put(version->store, m, err);
    if (rc) {
        model__free(m);
        return rc;
    }
    m->next = all->first;
    all->first = m;
    all->n++;
    model__count(m, 1);
    *out = m;
    return SH_OK;
}

int store_shape(struct model *version, const struct sh_sizes *sizes, struct model **out,
                struct sh_err *err)
{
    struct store *s = version->store;
    int rc;

    *out = version;
    if (version->phase != MODEL_READY)
        return SH_FAIL(err, SH_E_NOTFOUND, "the model version is not loaded on this executor");
    if (sizes->n == 0 || same_sizes(sizes, &version->sizes))
        return SH_OK;
    if (sizes->n != version->sizes.n)
        return SH_FAIL(err, SH_E_INVALID, "%u sizes came, \"%s\" has %u", sizes->n, version->name,
                       version->sizes.n);
    *out = find_shape_model(s, version, sizes);
    if (*out && (*out)->phase == MODEL_FAILED && !sh_rc_retry((*out)->why.rc))
        return sh_err_copy(err, &(*out)->why);
    if (*out && (*out)->phase == MODEL_FAILED) { /* there was no room, say */
        model__go(*out, MODEL_BUILDING);
        (*out)->why = (struct sh_err){0};
    }
    if (*out)
        return SH_OK;
    rc = make_shape_room(s, version, err);
    return rc ? rc : add_shape_model(version, sizes, out, err);
}

int store_shape_of(struct store *s, const struct msg_run *m, struct model **version,
                   struct model **shape, struct sh_err *err)
{
    struct sh_sizes sizes;
    int rc = shapes__read_sizes(m->sizes, &sizes, err);

    *version = rc ? NULL : store_find(s, m->version_id);
    return rc || !*version ? rc : store_shape(*version, &sizes, shape, err);
}

void store_load_shape(struct store *s, const struct msg_shape_load *l)
{
    struct model *m = store_find(s, l->version_id), *shape = NULL;
    struct sh_msg r = {.type = MSG_SHAPE_STATE};
    struct sh_sizes sizes;
    struct sh_err err = {0};
    int rc = shapes__read_sizes(l->sizes, &sizes, &err);

    if (!rc && !m)
        rc = SH_FAIL(&err, SH_E_NOTFOUND, "the model version is not loaded on this executor");
    if (!rc)
        rc = store_shape(m, &sizes, &shape, &err);
    if (!rc) {
        shape->last_use_ns = sh_clock_ns();
        shape->is_asked = true;
    }
    if (!rc && shape->is_served)
        shape_report(shape); /* which may be the version itself */
    if (!rc)
        return;
    r.u.shape_state = (struct msg_shape_state){.version_id = l->version_id,
                                               .sizes = l->sizes,
                                               .state = MSG_MODEL_FAILED,
                                               .rc = err.rc,
                                               .msg = err.msg};
    uplink_send(store__env(s)->up, &r);
}

/* ------------------------------------------------------------------ what its worker made */

/* How much more there is to do than for the version's own sizes, as far as that can be said without
 * a measurement: runs say it soon. */
static double work_scale(const struct model *m)
{
    double by = 1;

    for (uint32_t i = 0; i < m->sizes.n && i < m->base->sizes.n; i++)
        by *= (double)m->sizes.v[i] / (double)m->base->sizes.v[i];
    return SH_MIN(SH_MAX(by, 1 / MOST_SCALED), MOST_SCALED);
}

static int take_tables(struct model *m, const struct msg_wk_model_done *d, struct sh_err *err)
{
    const struct model *b = m->base;
    int rc = model__read_batches(m, d, err);

    if (rc)
        return rc;
    m->image_bytes = b->image_bytes;
    m->n_layers = b->n_layers;
    if (d->image_bytes != b->image_bytes || d->n_tables != b->tables.n ||
        d->layer_ends.len != b->n_layers * sizeof(uint64_t) ||
        (b->n_layers && memcmp(d->layer_ends.data, b->layer_ends, d->layer_ends.len) != 0) ||
        m->n_batches > b->n_batches)
        return SH_FAIL(err, SH_E_BUG, "a worker compiled the shape to another image");
    rc = model_check_more(m, model__most_workspace(m), err);
    if (rc)
        return rc;
    m->layer_ns = calloc((size_t)m->n_batches * m->n_layers + 1, sizeof(*m->layer_ns));
    if (!m->layer_ns)
        return SH_FAIL(err, SH_E_NOMEM, "could not keep the tables of a shape");
    for (size_t i = 0; i < (size_t)m->n_batches * m->n_layers; i++)
        m->layer_ns[i] = b->layer_ns[i] * work_scale(m);
    return SH_OK;
}

int shapes__take_tables(struct model *m, const struct msg_wk_model_done *d, struct sh_err *err)
{
    int rc = take_tables(m, d, err);

    if (rc)
        model__drop_tables(m); /* another worker may bring them */
    return rc;
}
