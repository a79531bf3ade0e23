/* cuda_dev.c - the table of the cuda back end, and its compute device: arena, stream, libraries.
 *
 * All work of a dev goes to one stream, except prefetches: they go to a second one, for a copy
 * engine, and events order the two. A wait for a ticket is an operation of the first: the host goes
 * on, and kernels behind it start when the executor's copy has arrived. It cannot time out; the
 * executor's watchdog raises the tickets of a switch that is stuck, and ends a worker that does not
 * move.
 *
 * The host waits by yielding: it notices the end within microseconds, as by spinning, but a thread
 * that collects data on the same core gets its turn. Sleeping until an interrupt would cost some 30
 * microseconds for each run and each step.
 *
 * A kernel is loaded when it is first launched, which the warm-up of a plan does: loading may wait
 * for the stream, which may be waiting for a ticket.
 */
#include "common/clock.h"
#include "common/conf.h"
#include "common/mem.h"
#include "runtime/device/cuda/cuda.h"
#include "runtime/device/cuda/cuda_mem.h"
#include "runtime/device/cuda/cuda_tune.h"
#include "runtime/device/cuda/kernels_unpack.h"

#include <stdio.h>
#include <stdlib.h>

struct open_dev {
    struct cuda_dev d; /* first member; what the other files see */
    struct cuda_context context;
    struct cuda_arena arena, own; /* own: of dev_own_memory, instead of the arena */
    struct cuda_tickets tickets;  /* of a shared arena */
    struct cuda_stage *stage;
    cudaStream_t ahead; /* for prefetches */
    bool is_ahead;      /* something was prefetched since the last sync */
    cudaEvent_t fence, join, mark;
};

static struct open_dev *open_dev_of(struct dev *d)
{
    return (struct open_dev *)d;
}

/* ------------------------------------------------------------------ life */

static int map_arena(struct open_dev *o, const struct dev_conf *c, struct sh_err *err)
{
    int rc;

    if (c->n_fds == 0)
        return cuda__arena_create(o->context.device, c->arena_bytes, false, &o->arena, err);
    if (c->n_fds != CUDA_N_FDS)
        return SH_FAIL(err, SH_E_BUG, "the cuda device needs %d descriptors, not %zu", CUDA_N_FDS,
                       c->n_fds);
    rc = cuda__arena_import(o->context.device, c->fds[0], c->arena_bytes, &o->arena, err);
    return rc ? rc : cuda__tickets_import(c->fds[1], &o->tickets, err);
}

static int make_streams(struct open_dev *o, struct sh_err *err)
{
    struct cuda_dev *d = &o->d;
    int rc = cuda__stream_new(&d->stream, err);

    if (!rc)
        rc = cuda__check(cudaStreamCreateWithFlags(&o->ahead, cudaStreamNonBlocking),
                         "create a stream", err);
    if (!rc)
        rc = cuda__event_new(&o->fence, err);
    if (!rc)
        rc = cuda__event_new(&o->join, err);
    if (!rc)
        rc = cuda__event_new(&o->mark, err);
    for (uint32_t i = 0; i < CUDA_MAX_QUEUED && !rc; i++)
        rc = cuda__event_new(&d->queue[i], err);
    return rc;
}

static int start_libraries(struct cuda_dev *d, struct sh_err *err)
{
    int rc = cuda__check_dnn(cudnnCreate(&d->cudnn), "start cuDNN", err);

    if (!rc)
        rc = cuda__check_dnn(cudnnSetStream(d->cudnn, d->stream), "start cuDNN", err);
    return rc ? rc : cuda__check_blas(cublasLtCreate(&d->lt), "start cuBLASLt", err);
}

static void free_streams(struct open_dev *o)
{
    cudaEvent_t events[] = {o->fence, o->join, o->mark};

    for (size_t i = 0; i < SH_ARRAY_LEN(events); i++)
        if (events[i])
            cudaEventDestroy(events[i]);
    for (uint32_t i = 0; i < CUDA_MAX_QUEUED; i++)
        if (o->d.queue[i])
            cudaEventDestroy(o->d.queue[i]);
    if (o->ahead)
        cudaStreamDestroy(o->ahead);
    if (o->d.stream)
        cudaStreamDestroy(o->d.stream);
}

static void cuda_close(struct dev *base)
{
    struct open_dev *o = open_dev_of(base);
    int64_t end = sh_clock_ns() + CUDA_CLOSE_NS;

    /* What is queued uses all that follows. If it waits for a ticket that does not come, only the
     * end of the process frees it. */
    if (!o || !cuda__wait_idle(o->d.stream, end) || !cuda__wait_idle(o->ahead, end))
        return;
    cuda__convs_free(&o->d);
    cuda_tune_close(o->d.tune);
    if (o->d.lt)
        cublasLtDestroy(o->d.lt);
    if (o->d.cudnn)
        cudnnDestroy(o->d.cudnn);
    cuda__stage_free(o->stage);
    cuda__grid_close(&o->d);
    free_streams(o);
    cuda__tickets_fini(&o->tickets);
    cuda__arena_fini(&o->own);
    cuda__arena_fini(&o->arena);
    cuda__context_close(&o->context);
    free(o);
}

static int ask_device(struct open_dev *o, CUdevice_attribute what, int *out, struct sh_err *err)
{
    return cuda__check_drv(cuDeviceGetAttribute(out, what, o->context.device),
                           "ask for the properties of the device", err);
}

static int open_context(struct open_dev *o, uint32_t ordinal, struct sh_err *err)
{
    int rc;

    /* A plan is warmed up before it is used (dev_plan_warm), so only what it needs is loaded: all
     * that the libraries have takes two seconds. Read once, by cuInit; who set it knows better. */
    if (setenv("CUDA_MODULE_LOADING", "LAZY", 0) != 0)
        return SH_FAIL_ERRNO(err, SH_E_NOMEM, "could not choose how CUDA loads kernels");
    rc = cuda__context_open(ordinal, CU_CTX_SCHED_YIELD, &o->context, err);
    if (rc)
        return rc;
    rc = ask_device(o, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &o->d.n_sms, err);
    if (!rc)
        rc = ask_device(o, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &o->d.smem_max,
                        err);
    return rc;
}

static int cuda_open(const struct dev_conf *c, struct dev **out, struct sh_err *err)
{
    struct open_dev *o = calloc(1, sizeof(*o));
    int rc;

    *out = NULL;
    if (!o)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate device");
    o->tickets.shm.fd = -1;
    o->d.base.arena_bytes = c->arena_bytes;
    o->d.deterministic = c->deterministic;
    o->d.verify_launches = c->verify_launches;
    o->d.debug_fault = cuda__debug_fault_file();
    rc = open_context(o, c->ordinal, err);
    if (!rc)
        rc = map_arena(o, c, err);
    o->d.arena = o->arena.base;
    if (!rc)
        rc = make_streams(o, err);
    if (!rc)
        rc = cuda__stage_new(o->d.stream, &o->stage, err);
    if (!rc)
        rc = cuda__grid_open(&o->d, err);
    if (!rc)
        rc = start_libraries(&o->d, err);
    if (!rc && c->tune_path)
        rc = cuda_tune_open(c->tune_path, &o->d.tune, err);
    if (rc)
        goto out;
    *out = &o->d.base;
    o = NULL;
out:
    cuda_close(o ? &o->d.base : NULL);
    return rc;
}

static int cuda_remap(struct dev *base, const int *fds, size_t n_fds, struct sh_err *err)
{
    struct open_dev *o = open_dev_of(base);
    struct cuda_arena arena;
    int rc;

    if (n_fds != CUDA_N_FDS || !o->tickets.shm.base || o->own.base)
        return SH_FAIL(err, SH_E_BUG, "only a shared arena can be mapped anew");
    rc = cuda__arena_import(o->context.device, fds[0], base->arena_bytes, &arena, err);
    if (rc)
        return rc;
    cuda__arena_fini(&o->arena);
    o->arena = arena;
    o->d.arena = arena.base;
    return SH_OK;
}

static int cuda_own_memory(struct dev *base, size_t bytes, struct sh_err *err)
{
    struct open_dev *o = open_dev_of(base);
    struct cuda_arena own = {.base = NULL};
    int rc = SH_OK;

    if (!o->tickets.shm.base)
        return SH_FAIL(err, SH_E_BUG, "the memory is private already");
    if (bytes)
        rc = cuda__arena_create(o->context.device, bytes, false, &own, err);
    if (rc)
        return rc;
    cuda__arena_fini(&o->own);
    o->own = own;
    o->d.arena = own.base ? own.base : o->arena.base;
    return SH_OK;
}

/* ------------------------------------------------------------------ stream */

static int cuda_host_lock(struct dev *d, void *base, size_t bytes, struct sh_err *err)
{
    (void)d;
    return cuda__host_lock(base, bytes, err);
}

static void cuda_host_unlock(struct dev *d, void *base)
{
    (void)d;
    cuda__host_unlock(base);
}

static int cuda_reach(struct dev *d, const void *base, size_t bytes, const void **out,
                      struct sh_err *err)
{
    (void)d;
    return cuda__host_reach(base, bytes, out, err);
}

static void cuda_leave(struct dev *d, const void *base)
{
    (void)d;
    cuda__host_unlock((void *)(uintptr_t)base);
}

static int cuda_upload(struct dev *base, size_t off, const void *host, size_t bytes,
                       struct sh_err *err)
{
    struct open_dev *o = open_dev_of(base);

    if (bytes == 0)
        return SH_OK;
    if (cuda__stage_is_needed(host, bytes))
        return cuda__stage_upload(o->stage, o->d.arena + off, host, bytes, err);
    return cuda__check(
        cudaMemcpyAsync(o->d.arena + off, host, bytes, cudaMemcpyHostToDevice, o->d.stream),
        "enqueue an upload", err);
}

/* See fetch.cu. What lies so that it cannot be read in sixteens is uploaded. */
static int cuda_fetch(struct dev *base, size_t off, const void *host, size_t bytes,
                      struct sh_err *err)
{
    struct open_dev *o = open_dev_of(base);
    unsigned char *dst = o->d.arena + off;
    void *src = NULL;
    bool fits = (((uintptr_t)dst | (uintptr_t)host | bytes) & 15) == 0;

    if (bytes == 0)
        return SH_OK;
    if (!fits || cuda__stage_is_needed(host, bytes) ||
        cudaHostGetDevicePointer(&src, (void *)(uintptr_t)host, 0) != cudaSuccess) {
        cudaGetLastError();
        return cuda_upload(base, off, host, bytes, err);
    }
    k_fetch(o->d.stream, dst, src, bytes);
    return cuda__check(cudaGetLastError(), "enqueue a fetch", err);
}

static int cuda_download(struct dev *base, void *host, size_t off, size_t bytes, struct sh_err *err)
{
    struct open_dev *o = open_dev_of(base);

    if (bytes == 0)
        return SH_OK;
    if (cuda__stage_is_needed(host, bytes))
        return cuda__stage_download(o->stage, host, o->d.arena + off, bytes, err);
    return cuda__check(
        cudaMemcpyAsync(host, o->d.arena + off, bytes, cudaMemcpyDeviceToHost, o->d.stream),
        "enqueue a download", err);
}

static int cuda_fill(struct dev *base, size_t off, int byte, size_t bytes, struct sh_err *err)
{
    struct cuda_dev *d = &open_dev_of(base)->d;

    if (bytes == 0)
        return SH_OK;
    return cuda__check(cudaMemsetAsync(d->arena + off, byte, bytes, d->stream), "enqueue a fill",
                       err);
}

static int cuda_move(struct dev *base, size_t dst, size_t src, size_t bytes, struct sh_err *err)
{
    struct cuda_dev *d = &open_dev_of(base)->d;

    if (bytes == 0)
        return SH_OK;
    return cuda__check(
        cudaMemcpyAsync(d->arena + dst, d->arena + src, bytes, cudaMemcpyDeviceToDevice, d->stream),
        "enqueue a move", err);
}

/* So many at a time as do not write where later ones of them are still packed. */
static int cuda_unpack(struct dev *base, const struct dev_packed *layers, size_t n,
                       struct sh_err *err)
{
    struct cuda_dev *d = &open_dev_of(base)->d;

    for (size_t i = 0; i < n;) {
        const size_t packed = layers[i].at;
        struct k_unpacks u = {.n = 0};

        for (;
             i < n && u.n < K_MAX_UNPACKS && (u.n == 0 || layers[i].to + layers[i].bytes <= packed);
             i++)
            u.layers[u.n++] = (struct k_unpack_layer){.packed = d->arena + layers[i].at,
                                                      .packed_bytes = layers[i].packed_bytes,
                                                      .to = d->arena + layers[i].to,
                                                      .bytes = layers[i].bytes};
        k_unpack(d->stream, &u, d->damaged);
    }
    return cuda__check(cudaGetLastError(), "enqueue the unpacking of weights", err);
}

static bool cuda_take_damage(struct dev *base)
{
    struct cuda_dev *d = &open_dev_of(base)->d;
    const bool is = d->fault && *(volatile uint32_t *)d->damaged;

    if (is)
        *d->damaged = 0;
    return is;
}

/* Pageable memory is not worth a ring of its own: the driver may hold the caller until the fence
 * is passed. */
static int cuda_prefetch(struct dev *base, size_t off, const void *host, size_t bytes,
                         struct sh_err *err)
{
    struct open_dev *o = open_dev_of(base);

    if (bytes == 0)
        return SH_OK;
    o->is_ahead = true;
    return cuda__check(
        cudaMemcpyAsync(o->d.arena + off, host, bytes, cudaMemcpyHostToDevice, o->ahead),
        "enqueue a prefetch", err);
}

/* What `second` gets from now on comes after what `first` holds now. */
static int order(cudaStream_t first, cudaStream_t second, cudaEvent_t here, struct sh_err *err)
{
    int rc = cuda__check(cudaEventRecord(here, first), "order two streams", err);

    return rc ? rc : cuda__check(cudaStreamWaitEvent(second, here, 0), "order two streams", err);
}

static int cuda_prefetch_fence(struct dev *base, struct sh_err *err)
{
    struct open_dev *o = open_dev_of(base);

    return order(o->d.stream, o->ahead, o->fence, err);
}

static int cuda_prefetch_join(struct dev *base, struct sh_err *err)
{
    struct open_dev *o = open_dev_of(base);

    return order(o->ahead, o->d.stream, o->join, err);
}

static bool cuda_has_ticket(const struct dev *base, uint32_t slot, uint32_t value)
{
    const struct open_dev *o = (const struct open_dev *)base;

    return o->tickets.shm.base &&
           (int32_t)(__atomic_load_n(cuda__ticket(&o->tickets, slot), __ATOMIC_ACQUIRE) - value) >=
               0;
}

static int cuda_wait(struct dev *base, uint32_t slot, uint32_t value, int64_t timeout_ms,
                     struct sh_err *err)
{
    struct open_dev *o = open_dev_of(base);

    (void)timeout_ms; /* see the top */
    if (!o->tickets.shm.base)
        return SH_FAIL(err, SH_E_BUG, "a private arena has no tickets to wait for");
    /* Often it has been reached before the kernels are enqueued. */
    if (cuda_has_ticket(base, slot, value))
        return SH_OK;
    return cuda__check_drv(cuStreamWaitValue32(o->d.stream,
                                               o->tickets.device + slot * sizeof(uint32_t), value,
                                               CU_STREAM_WAIT_VALUE_GEQ),
                           "enqueue a wait for a ticket", err);
}

static int cuda_sync(struct dev *base, struct sh_err *err)
{
    struct open_dev *o = open_dev_of(base);
    int rc = cuda__check(cudaStreamSynchronize(o->d.stream), "run on the device", err);

    if (!rc && o->is_ahead)
        rc = cuda__check(cudaStreamSynchronize(o->ahead), "prefetch", err);
    if (rc)
        return rc;
    o->is_ahead = false;
    cuda__stage_drain(o->stage);
    return cuda__fault_check(&o->d, err);
}

static int cuda_mark(struct dev *base, struct sh_err *err)
{
    struct open_dev *o = open_dev_of(base);

    return cuda__check(cudaEventRecord(o->mark, o->d.stream), "mark a place in a stream", err);
}

static int cuda_sync_mark(struct dev *base, struct sh_err *err)
{
    struct open_dev *o = open_dev_of(base);
    int rc = cuda__check(cudaEventSynchronize(o->mark), "run on the device", err);

    if (!rc)
        rc = cuda__stage_settle(o->stage, err);
    return rc ? rc : cuda__fault_check(&o->d, err);
}

/* Each call leaves an event behind what was enqueued so far. */
static int cuda_throttle(struct dev *base, uint32_t n, struct sh_err *err)
{
    struct cuda_dev *d = &open_dev_of(base)->d;
    uint64_t allowed = SH_MIN(n, CUDA_MAX_QUEUED - 1), last = d->n_queued;
    int rc =
        cuda__check(cudaEventRecord(d->queue[last % CUDA_MAX_QUEUED], d->stream), "queue", err);

    if (rc)
        return rc;
    d->n_queued++;
    if (last < allowed)
        return SH_OK;
    return cuda__check(cudaEventSynchronize(d->queue[(last - allowed) % CUDA_MAX_QUEUED]),
                       "run on the device", err);
}

static bool cuda_identity(const struct dev *base, char *out, size_t size)
{
    char text[192];

    return !cuda_tune_identity(text, sizeof(text), NULL) &&
           (size_t)snprintf(out, size, "%s deterministic=%d", text,
                            ((const struct cuda_dev *)base)->deterministic) < size;
}

static const struct dev_mem_ops MEM = {
    .open = cuda__mem_open,
    .close = cuda__mem_close,
    .export_fds = cuda__mem_export,
    .host_lock = cuda__mem_host_lock,
    .host_unlock = cuda__mem_host_unlock,
    .copy = cuda__mem_copy,
    .move = cuda__mem_move,
    .zero = cuda__mem_zero,
    .ticket = cuda__mem_ticket,
    .rehearse = cuda__mem_rehearse,
    .mark = cuda__mem_mark,
    .event_fd = cuda__mem_event_fd,
    .next_mark = cuda__mem_next_mark,
    .ticket_force = cuda__ticket_force,
    .ticket_value = cuda__ticket_value,
};

static const struct dev_stream_ops STREAM = {
    .open = cuda_open,
    .close = cuda_close,
    .identity = cuda_identity,
    .remap = cuda_remap,
    .own_memory = cuda_own_memory,
    .host_lock = cuda_host_lock,
    .host_unlock = cuda_host_unlock,
    .upload = cuda_upload,
    .fetch = cuda_fetch,
    .download = cuda_download,
    .fill = cuda_fill,
    .move = cuda_move,
    .unpack = cuda_unpack,
    .take_damage = cuda_take_damage,
    .reach = cuda_reach,
    .leave = cuda_leave,
    .prefetch = cuda_prefetch,
    .prefetch_fence = cuda_prefetch_fence,
    .prefetch_join = cuda_prefetch_join,
    .wait = cuda_wait,
    .has_ticket = cuda_has_ticket,
    .sync = cuda_sync,
    .mark = cuda_mark,
    .sync_mark = cuda_sync_mark,
    .throttle = cuda_throttle,
};

static const struct dev_plan_ops PLAN = {
    .create = cuda__plan_new,
    .free = cuda__plan_free,
    .scratch_bytes = cuda__plan_scratch_bytes,
    .set_scratch = cuda__plan_set_scratch,
    .keep_bytes = cuda__plan_keep_bytes,
    .set_keep = cuda__plan_set_keep,
    .finish = cuda__plan_finish,
    .pack = cuda__plan_pack,
    .unpack = cuda__plan_unpack,
    .run = cuda__plan_run,
    .profile = cuda__plan_profile,
    .warm = cuda__plan_warm,
    .prepare = cuda__plan_prepare,
};

extern const struct dev_ops shunt_dev_ops;
__attribute__((visibility("default"))) const struct dev_ops shunt_dev_ops = {
    .abi = DEV_ABI,
    .name = "cuda",
    .is_queued = true,
    .mem = &MEM,
    .stream = &STREAM,
    .plan = &PLAN,
};
