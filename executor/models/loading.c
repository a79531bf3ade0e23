/* loading.c - see loading.h. */
#include "executor/models/loading.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/mem.h"
#include "executor/models/model_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define BASE_NS 5e7           /* of any load */
#define QUICK_NS_PER_BYTE 1.0 /* read, sum, lock */
#define MOST_WANTED 9.0       /* so much more, and one, is the most wanted one's time worth */

static const char *const STEPS[WORKER_N_LOADS] = {
#define X(name, text) [WORKER_LOAD_##name] = (text),
    WORKER_LOAD_MAP(X)
#undef X
};

static uint64_t path_bytes(const char *path)
{
    struct stat st;

    return path && stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

int loading_name(struct model *m, const char *identity, struct sh_err *err)
{
    char what[64];

    kept_dir_drop(&m->kept);
    if (m->handle < 0) /* of an evaluation: it comes once */
        return SH_OK;
    snprintf(what, sizeof(what), "precision=%.16s max_batch=%u%s%s", m->precision, m->max_batch,
             store__env(m->store)->packs == MSG_PACK_NEVER ? "" : " packed",
             store__env(m->store)->tables == MSG_TABLES_NEVER ? "" : " tables");
    return kept_dir_name(store__env(m->store)->kept, m->tenant, m->package, what, identity,
                         &m->kept, err);
}

static void look_for_kept(struct model *m, const char *identity)
{
    struct sh_err err = {0};
    char *weights = NULL;

    m->is_looked_at = true;
    if (sh_asprintf(&err, &weights, "%s/weights.safetensors", m->package) ||
        loading_name(m, identity, &err))
        sh_log_err(SH_LOG_WARN, "model.kept", &err);
    m->weight_bytes = path_bytes(weights);
    m->is_quick = kept_dir_has(&m->kept);
    free(weights);
}

void loading_look(struct model *m, const char *identity)
{
    if (!m->is_looked_at)
        look_for_kept(m, identity);
}

int loading_open_kept(const struct worker *w, struct model *m)
{
    struct sh_err err = {0};

    /* It was another worker's, perhaps of another build. */
    if (!loading_name(m, w->identity, &err))
        return kept_dir_open(&m->kept);
    sh_log_err(SH_LOG_WARN, "model.keep", &err);
    return -1;
}

/* Where the device's memory is the host's, the page cache is as good as memory of ours to copy
 * from. Measurements that hand images to workers need memory. */
bool loading_may_map(const struct model *m, int fd)
{
    const struct store_env *env = store__env(m->store);

    return !dev_mem_is_queued(env->mem) && HOOK_ASK(env->hooks, maps_images, true) &&
           kept_dir_is_still(fd);
}

static double expected_ns(const struct model *m)
{
    double per_byte = m->is_quick ? QUICK_NS_PER_BYTE : *store__ns_per_byte(m->store);

    return BASE_NS + (double)m->weight_bytes * per_byte;
}

bool loading_is_before(const struct model *a, const struct model *b)
{
    double x = expected_ns(a) / (1 + MOST_WANTED * a->wanted);
    double y = expected_ns(b) / (1 + MOST_WANTED * b->wanted);

    return x < y || (x == y && a->handle < b->handle);
}

void loading_took(struct model *m, int64_t ns)
{
    double *per_byte = store__ns_per_byte(m->store);

    if (m->weight_bytes > 1u << 20 && !m->is_quick)
        *per_byte += (SH_MAX((double)ns - BASE_NS, 0) / (double)m->weight_bytes - *per_byte) / 2;
}

static const struct worker *builder_of(struct store *s, const struct model *m)
{
    struct pool *p = store__env(s)->pool;

    for (size_t i = 0; i < pool_size(p); i++)
        if (pool_at(p, i)->preparing == m->handle && worker_page(pool_at(p, i)))
            return pool_at(p, i);
    return NULL;
}

/* Of a model that a worker is at: the part of its time that is over, or by its steps, whichever
 * leaves more. */
static double load_left_ns(struct store *s, const struct model *m)
{
    const double all = expected_ns(m), left = all - (double)(sh_clock_ns() - m->build_ns);

    return builder_of(s, m) ? SH_MAX(left, all / 20) : all;
}

struct loading_step loading_step_of(struct store *s, const struct model *m)
{
    const struct worker *w = builder_of(s, m);
    struct loading_step out = {.step = "waiting"};
    double left = load_left_ns(s, m);

    for (const struct model *o = store_next(s, NULL); o && !w; o = store_next(s, o))
        if (o != m && o->phase == MODEL_BUILDING && (builder_of(s, o) || loading_is_before(o, m)))
            left += load_left_ns(s, o);
    if (w) {
        const struct worker_ctl *c = worker_page(w);
        uint32_t step = atomic_load(&c->load_step);

        out.step = step < WORKER_N_LOADS ? STEPS[step] : "";
        out.total = atomic_load(&c->load_total);
        out.done = atomic_load(&c->load_done);
        out.done = SH_MIN(out.done, out.total);
    }
    out.left_ns = (int64_t)left;
    return out;
}
