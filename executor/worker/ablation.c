/* ablation.c - runs in memory that is made for them: what the arena, mapped once, spares. Used by
 * measurements alone (executor/ablation.h). */
#include "common/log.h"
#include "executor/worker/worker.h"

#include <unistd.h>

/* The image stays mapped and page-locked in this process for the runs to come. */
static int keep_image(struct worker *w, struct wk_model *m, size_t bytes, int *fd,
                      struct sh_err *err)
{
    int rc;

    if (m->image.fd >= 0)
        return SH_OK;
    rc = sh_shm_map(*fd, bytes ? bytes : 1, false, &m->image, err);
    if (rc)
        return rc;
    *fd = -1;
    return dev_host_lock(w->dev, m->image.base, m->image.bytes, err);
}

int ablation_begin_run(struct worker *w, struct wk_model *model, const struct program *p,
                       const struct msg_wk_run *m, int *fds, size_t n_fds, struct sh_err *err)
{
    int rc;

    if (m->memory == MSG_RUN_MAP_ANEW)
        return dev_remap(w->dev, fds, n_fds, err);
    if (m->memory != MSG_RUN_PRIVATE || n_fds != 1)
        return SH_FAIL(err, SH_E_PROTO, "WK_RUN came for memory %u with %zu descriptors", m->memory,
                       n_fds);
    rc = keep_image(w, model, program_image_bytes(p), fds, err);
    return rc ? rc : dev_own_memory(w->dev, m->ws_off + program_workspace_bytes(p), err);
}

void ablation_end_run(struct worker *w, const struct msg_wk_run *m)
{
    struct sh_err why = {0};

    if (m->memory == MSG_RUN_PRIVATE && (dev_sync(w->dev, &why) || dev_own_memory(w->dev, 0, &why)))
        sh_log_err(SH_LOG_ERROR, "ablation.memory", &why);
}

int ablation_bring(struct worker *w, const struct wk_model *model, const struct program *p,
                   uint32_t *layer, uint32_t end, struct sh_err *err)
{
    const uint64_t *ends = program_layer_ends(p);
    size_t from = *layer ? ends[*layer - 1] : 0, to = end ? ends[end - 1] : 0;
    int rc;

    *layer = end;
    rc = dev_prefetch(w->dev, from, (const char *)model->image.base + from, to - from, err);
    return rc ? rc : dev_prefetch_join(w->dev, err);
}

void ablation_forget(struct worker *w, struct wk_model *m)
{
    if (m->image.fd < 0)
        return;
    dev_host_unlock(w->dev, m->image.base);
    sh_shm_fini(&m->image);
}
