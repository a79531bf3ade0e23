/* main.c - shunt-worker for the laboratory: does what ablations ask for (tests/lab/lab.h). A run
 * in memory allocated for it shows what it saves to map the arena once.
 */
#include "common/log.h"
#include "common/mem.h"
#include "executor/worker/worker.h"
#include "runtime/pack/layers.h"

#include <stdlib.h>

struct image { /* of a model, in this process: mapped and page-locked */
    int64_t handle;
    struct sh_shm shm;
};

struct lab {
    bool is_for_one;
    struct image *images; /* OWNED */
    size_t n_images, cap_images;
};

static void on_init(void *arg, const struct msg_wk_init *m)
{
    struct lab *l = arg;

    l->is_for_one = m->for_one != 0;
}

static bool is_for_one(void *arg)
{
    const struct lab *l = arg;

    return l->is_for_one;
}

static struct image *find_image(struct lab *l, int64_t handle)
{
    for (size_t i = 0; i < l->n_images; i++)
        if (l->images[i].handle == handle)
            return &l->images[i];
    return NULL;
}

/* It stays for the runs to come. */
static int keep_image(struct lab *l, struct worker *w, int64_t handle, size_t bytes, int *fd,
                      struct sh_err *err)
{
    struct image im = {.handle = handle};
    int rc;

    if (find_image(l, handle))
        return SH_OK;
    rc = sh_grow(&l->images, &l->cap_images, l->n_images + 1, sizeof(*l->images), WORKER_MAX_MODELS,
                 "images of one worker", err);
    if (!rc)
        rc = sh_shm_map(*fd, bytes ? bytes : 1, false, &im.shm, err);
    if (rc)
        return rc;
    *fd = -1;
    l->images[l->n_images++] = im;
    return dev_host_lock(w->dev, im.shm.base, im.shm.bytes, err);
}

static int begin_run(void *arg, struct worker *w, const struct program *p,
                     const struct msg_wk_run *m, int *fds, size_t n_fds, struct sh_err *err)
{
    int rc;

    if (m->memory == MSG_RUN_MAP_ANEW)
        return dev_remap(w->dev, fds, n_fds, err);
    if (m->memory != MSG_RUN_PRIVATE || n_fds != 1)
        return SH_FAIL(err, SH_E_PROTO, "WK_RUN came for memory %u with %zu descriptors", m->memory,
                       n_fds);
    rc = keep_image(arg, w, m->handle, program_image_bytes(p), fds, err);
    return rc ? rc : dev_own_memory(w->dev, m->ws_off + program_workspace_bytes(p), err);
}

static void end_run(void *arg, struct worker *w, const struct msg_wk_run *m)
{
    struct sh_err why = {0};

    (void)arg;
    if (m->memory == MSG_RUN_PRIVATE && (dev_sync(w->dev, &why) || dev_own_memory(w->dev, 0, &why)))
        sh_log_err(SH_LOG_ERROR, "ablation.memory", &why);
}

static int bring(void *arg, struct worker *w, const struct program *p, const struct msg_wk_run *m,
                 uint32_t *layer, uint32_t end, struct sh_err *err)
{
    const uint64_t *ends = program_layer_ends(p);
    const size_t from = layer_begin(ends, *layer), to = layer_begin(ends, end);
    const struct image *im = find_image(arg, m->handle);
    int rc;

    if (m->memory != MSG_RUN_PRIVATE || !im)
        return SH_OK;
    *layer = end;
    rc = dev_prefetch(w->dev, from, (const char *)im->shm.base + from, to - from, err);
    return rc ? rc : dev_prefetch_join(w->dev, err);
}

static void forget(void *arg, struct worker *w, int64_t handle)
{
    struct lab *l = arg;
    struct image *im = find_image(l, handle);

    if (!im)
        return;
    dev_host_unlock(w->dev, im->shm.base);
    sh_shm_fini(&im->shm);
    *im = l->images[--l->n_images];
}

int main(void)
{
    struct lab lab = {.is_for_one = false};
    const struct worker_hooks hooks = {.on_init = on_init,
                                       .is_for_one = is_for_one,
                                       .begin_run = begin_run,
                                       .bring = bring,
                                       .end_run = end_run,
                                       .forget = forget,
                                       .arg = &lab};
    const int rc = worker_main(&hooks);

    free(lab.images);
    return rc;
}
