/* cuda_mem.c - lanes, tickets and marks of the memory face; see cuda_mem.h. */
#include "runtime/device/cuda/cuda_mem.h"

#include "common/clock.h"
#include "common/mem.h"
#include "runtime/device/cuda/cuda.h"
#include "runtime/device/lane.h"
#include "runtime/device/lock.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

/* Commands of one lane that are not known to be done. The driver has room for fewer: beyond that it
 * holds the caller until a copy ends, so this is the limit should it ever have more. */
#define MAX_QUEUED 8192u
#define NOTE_EVERY 64u /* commands between two notes of how far a lane is */
#define BOUNCE ((size_t)4 << 20)
#define REHEARSAL ((size_t)64 << 10)

struct lane {
    struct cuda_mem *mem;
    cudaStream_t stream, marks;
    cudaEvent_t here; /* a place in `stream` that `marks` waits for */
    uint32_t n_queued;
    unsigned char *bounce; /* device memory, BORROWED from the mem */
    uint64_t *cookies;     /* OWNED ring of DEV_MAX_MARKS: marks whose place is not reached */
    uint32_t head, tail;   /* they count up; see cuda__mem_mark() */
};

struct cuda_mem {
    struct dev_mem base; /* first member */
    struct cuda_context context;
    struct cuda_arena arena;
    int arena_fd;
    struct cuda_tickets tickets;
    unsigned char *bounce; /* OWNED, BOUNCE for each lane */
    uint32_t *notes;       /* OWNED host page, written by the device: commands done, by lane */
    CUdeviceptr notes_dev;
    void *rehearsal; /* OWNED, REHEARSAL bytes of page-locked memory */
    struct lane lanes[DEV_MAX_LANES];

    _Atomic uint32_t forced_end;            /* no ticket from this one on was ever forced */
    _Atomic uint32_t forced[DEV_N_TICKETS]; /* what a ticket was forced to, 0: never */
    struct dev_marks marks;
};

static struct cuda_mem *mem_of(const struct dev_mem *m)
{
    return (struct cuda_mem *)(uintptr_t)m;
}

/* ------------------------------------------------------------------ tickets and marks */

void cuda__ticket_force(struct dev_mem *base, uint32_t slot, uint32_t value)
{
    struct cuda_mem *m = mem_of(base);
    uint32_t old = atomic_load(&m->forced[slot]), end = atomic_load(&m->forced_end);

    dev_ticket_raise(cuda__ticket(&m->tickets, slot), value);
    while ((old == 0 || (int32_t)(value - old) > 0) &&
           !atomic_compare_exchange_weak(&m->forced[slot], &old, value))
        ;
    while (slot >= end && !atomic_compare_exchange_weak(&m->forced_end, &end, slot + 1))
        ;
}

/* Writes that were enqueued before a force may have put smaller values back. */
static void force_again(struct cuda_mem *m)
{
    const uint32_t end = atomic_load(&m->forced_end);

    for (uint32_t i = 0; i < end; i++) {
        uint32_t value = atomic_load(&m->forced[i]);

        if (value)
            dev_ticket_raise(cuda__ticket(&m->tickets, i), value);
    }
}

uint32_t cuda__ticket_value(const struct dev_mem *m, uint32_t slot)
{
    return __atomic_load_n(cuda__ticket(&mem_of(m)->tickets, slot), __ATOMIC_ACQUIRE);
}

/* A thread of the driver, in the order of the lane's marks. It may not call CUDA. */
static void CUDART_CB on_mark(void *arg)
{
    struct lane *l = arg;

    dev_marks_reach(&l->mem->marks, l->cookies[l->head++ % DEV_MAX_MARKS]);
}

bool cuda__mem_next_mark(struct dev_mem *base, uint64_t *cookie)
{
    struct cuda_mem *m = mem_of(base);

    if (!dev_marks_next(&m->marks, cookie))
        return false;
    force_again(m);
    return true;
}

int cuda__mem_event_fd(const struct dev_mem *m)
{
    return mem_of(m)->marks.event_fd;
}

/* ------------------------------------------------------------------ enqueueing */

static struct lane *lane_of(struct dev_mem *m, uint32_t lane)
{
    return &mem_of(m)->lanes[lane];
}

static int check_lane_room(const struct lane *l, struct sh_err *err)
{
    uint32_t i = (uint32_t)(l - l->mem->lanes);
    uint32_t done = __atomic_load_n(&l->mem->notes[i], __ATOMIC_RELAXED);

    if (l->n_queued - done >= MAX_QUEUED)
        return SH_FAIL(err, SH_E_QUEUEFULL, "copy lane %u already holds %u commands", i,
                       MAX_QUEUED);
    return SH_OK;
}

/* The device writes into host memory how far the lane is. */
static int note_in_lane(struct lane *l, struct sh_err *err)
{
    uint32_t i = (uint32_t)(l - l->mem->lanes);

    return cuda__check_drv(cuStreamWriteValue32(l->stream, l->mem->notes_dev + i * sizeof(uint32_t),
                                                l->n_queued, CU_STREAM_WRITE_VALUE_DEFAULT),
                           "enqueue a note on a copy lane", err);
}

/* After a command. */
static int count_in_lane(struct lane *l, struct sh_err *err)
{
    return ++l->n_queued % NOTE_EVERY == 0 ? note_in_lane(l, err) : SH_OK;
}

/* Over no border of two pieces. */
static int copy_piece(struct lane *l, enum dev_dir dir, unsigned char *at, void *host, size_t bytes,
                      struct sh_err *err)
{
    const cudaError_t e = dir == DEV_H2D
                              ? cudaMemcpyAsync(at, host, bytes, cudaMemcpyHostToDevice, l->stream)
                              : cudaMemcpyAsync(host, at, bytes, cudaMemcpyDeviceToHost, l->stream);
    const int rc = cuda__check(e, "enqueue a copy", err);

    return rc ? rc : count_in_lane(l, err);
}

int cuda__mem_copy(struct dev_mem *m, uint32_t lane, enum dev_dir dir, size_t off, void *host,
                   size_t bytes, struct sh_err *err)
{
    struct lane *l = lane_of(m, lane);
    unsigned char *at = mem_of(m)->arena.base + off;
    int rc = check_lane_room(l, err);

    for (size_t n; !rc && bytes; bytes -= n, at += n) {
        n = dev_lock_piece(host, bytes);
        rc = copy_piece(l, dir, at, host, n, err);
        host = (char *)host + n;
    }
    return rc;
}

static int copy_within(struct lane *l, unsigned char *dst, const unsigned char *src, size_t bytes,
                       struct sh_err *err)
{
    return cuda__check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, l->stream),
                       "enqueue a move", err);
}

/* Source and destination may overlap, which one copy does not allow. Pieces as long as the distance
 * do not overlap with themselves; in the right order, none overwrites what a later one reads. With
 * a short distance these would be many, so longer pieces go through memory in between. */
int cuda__mem_move(struct dev_mem *m, uint32_t lane, size_t dst_off, size_t src_off, size_t bytes,
                   struct sh_err *err)
{
    struct lane *l = lane_of(m, lane);
    unsigned char *dst = mem_of(m)->arena.base + dst_off, *src = mem_of(m)->arena.base + src_off;
    size_t distance = dst_off > src_off ? dst_off - src_off : src_off - dst_off;
    bool bounces = distance < bytes && distance < BOUNCE / 2;
    size_t piece = bounces ? BOUNCE : distance;
    int rc = check_lane_room(l, err);

    if (rc || bytes == 0 || distance == 0)
        return rc;
    for (size_t at = 0, n; !rc && at < bytes; at += n) {
        size_t off = at;

        n = SH_MIN(piece, bytes - at);
        if (dst_off > src_off)
            off = bytes - at - n; /* from the end */
        rc = copy_within(l, bounces ? l->bounce : dst + off, src + off, n, err);
        if (!rc && bounces)
            rc = copy_within(l, dst + off, l->bounce, n, err);
    }
    return rc ? rc : count_in_lane(l, err);
}

int cuda__mem_zero(struct dev_mem *m, uint32_t lane, size_t off, size_t bytes, struct sh_err *err)
{
    struct lane *l = lane_of(m, lane);
    int rc = check_lane_room(l, err);

    if (rc || bytes == 0)
        return rc;
    rc = cuda__check(cudaMemsetAsync(mem_of(m)->arena.base + off, 0, bytes, l->stream),
                     "enqueue a scrub", err);
    return rc ? rc : count_in_lane(l, err);
}

int cuda__mem_ticket(struct dev_mem *m, uint32_t lane, uint32_t slot, uint32_t value,
                     struct sh_err *err)
{
    struct lane *l = lane_of(m, lane);
    int rc = check_lane_room(l, err);

    /* By default the write comes after all that the stream did before it, for other processes and
     * the CPU too. */
    if (!rc)
        rc = cuda__check_drv(
            cuStreamWriteValue32(l->stream, mem_of(m)->tickets.device + slot * sizeof(uint32_t),
                                 value, CU_STREAM_WRITE_VALUE_DEFAULT),
            "enqueue a ticket", err);
    return rc ? rc : count_in_lane(l, err);
}

/* A copy as long as the engine's, as those of weights, and a write like a ticket's. */
int cuda__mem_rehearse(struct dev_mem *m, struct sh_err *err)
{
    struct lane *l = lane_of(m, 0);
    int rc = check_lane_room(l, err);

    if (!rc)
        rc = cuda__check(cudaMemcpyAsync(l->bounce, mem_of(m)->rehearsal, REHEARSAL,
                                         cudaMemcpyHostToDevice, l->stream),
                         "enqueue a copy", err);
    l->n_queued += rc == SH_OK;
    return rc ? rc : note_in_lane(l, err);
}

/* Only this thread adds cookies, and only on_mark() takes them: the launch hands one over, and what
 * is promised is never more than the ring holds. */
int cuda__mem_mark(struct dev_mem *m, uint32_t lane, uint64_t cookie, struct sh_err *err)
{
    struct lane *l = lane_of(m, lane);
    int rc = check_lane_room(l, err);

    if (!rc)
        rc = dev_marks_promise(&l->mem->marks, err);
    if (rc)
        return rc;
    l->cookies[l->tail++ % DEV_MAX_MARKS] = cookie;
    rc = cuda__check(cudaEventRecord(l->here, l->stream), "enqueue a mark", err);
    if (!rc)
        rc = cuda__check(cudaStreamWaitEvent(l->marks, l->here, 0), "enqueue a mark", err);
    if (!rc)
        rc = cuda__check(cudaLaunchHostFunc(l->marks, on_mark, l), "enqueue a mark", err);
    if (rc) {
        l->tail--;
        dev_marks_withdraw(&l->mem->marks);
        return rc;
    }
    return count_in_lane(l, err);
}

/* ------------------------------------------------------------------ host memory */

int cuda__mem_host_lock(struct dev_mem *m, void *base, size_t bytes, struct sh_err *err)
{
    (void)m;
    return cuda__host_lock(base, bytes, err);
}

void cuda__mem_host_unlock(struct dev_mem *m, void *base)
{
    (void)m;
    cuda__host_unlock(base);
}

/* ------------------------------------------------------------------ life */

static int start_lane(struct cuda_mem *m, uint32_t i, struct sh_err *err)
{
    struct lane *l = &m->lanes[i];
    int rc = SH_OK;

    l->mem = m;
    l->bounce = m->bounce + i * BOUNCE;
    l->cookies = calloc(DEV_MAX_MARKS, sizeof(*l->cookies));
    if (!l->cookies)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate copy lane %u", i);
    if (!rc)
        rc = cuda__stream_new(&l->stream, err);
    if (!rc)
        rc = cuda__stream_new(&l->marks, err);
    if (!rc)
        rc = cuda__event_new(&l->here, err);
    /* No attribute says whether a device has stream memory operations: this asks it. */
    if (!rc)
        rc = cuda__check_drv(cuStreamWriteValue32(l->stream, m->notes_dev + i * sizeof(uint32_t), 0,
                                                  CU_STREAM_WRITE_VALUE_DEFAULT),
                             "use stream memory operations, which tickets need", err);
    return rc;
}

static int make_notes(struct cuda_mem *m, struct sh_err *err)
{
    void *page = NULL;
    int rc = cuda__check(cudaHostAlloc(&page, DEV_MAX_LANES * sizeof(*m->notes),
                                       cudaHostAllocPortable | cudaHostAllocMapped),
                         "allocate page-locked memory", err);

    if (rc)
        return rc;
    m->notes = page;
    memset(page, 0, DEV_MAX_LANES * sizeof(*m->notes));
    rc = cuda__check_drv(cuMemHostGetDevicePointer(&m->notes_dev, page, 0),
                         "map page-locked memory into the device", err);
    if (!rc)
        rc = cuda__check(cudaHostAlloc(&m->rehearsal, REHEARSAL, cudaHostAllocPortable),
                         "allocate page-locked memory", err);
    return rc;
}

static int make_arena(struct cuda_mem *m, struct sh_err *err)
{
    void *bounce = NULL;
    int rc = cuda__arena_create(m->context.device, m->base.bytes, true, &m->arena, err);

    if (!rc)
        rc = cuda__check_drv(cuMemExportToShareableHandle(&m->arena_fd, m->arena.handle,
                                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                                          0),
                             "export the arena", err);
    if (!rc && fcntl(m->arena_fd, F_SETFD, FD_CLOEXEC) != 0)
        rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not mark a descriptor close-on-exec");
    if (!rc)
        rc = cuda__tickets_create(&m->tickets, err);
    if (!rc)
        rc = cuda__check(cudaMalloc(&bounce, m->base.n_lanes * BOUNCE),
                         "allocate device memory for moves", err);
    m->bounce = bounce;
    return rc ? rc : make_notes(m, err);
}

int cuda__mem_open(const struct dev_mem_conf *c, struct dev_mem **out, struct sh_err *err)
{
    struct cuda_mem *m = calloc(1, sizeof(*m));
    int rc;

    *out = NULL;
    if (!m)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate device memory object");
    m->base.bytes = c->pool_bytes;
    m->base.n_lanes = c->n_lanes;
    m->arena_fd = m->tickets.shm.fd = -1;
    rc = dev_marks_init(&m->marks, err);
    /* This process waits for the device only when it ends. */
    if (!rc)
        rc = cuda__context_open(c->ordinal, CU_CTX_SCHED_BLOCKING_SYNC, &m->context, err);
    if (!rc)
        rc = cuda__check_drv(
            cuDeviceGetName(m->base.device_name, sizeof(m->base.device_name), m->context.device),
            "ask for the device's name", err);
    if (!rc)
        rc = cuda__check_drv(
            cuDeviceGetPCIBusId(m->base.pci_bus_id, sizeof(m->base.pci_bus_id), m->context.device),
            "ask where the device is", err);
    if (!rc)
        rc = cuda__check_drv(cuDeviceTotalMem(&m->base.device_bytes, m->context.device),
                             "ask for the device's memory", err);
    if (!rc)
        rc = make_arena(m, err);
    for (uint32_t i = 0; i < c->n_lanes && !rc; i++)
        rc = start_lane(m, i, err);
    if (rc)
        goto out;
    *out = &m->base;
    m = NULL;
out:
    cuda__mem_close(m ? &m->base : NULL);
    return rc;
}

static bool are_lanes_idle(const struct cuda_mem *m)
{
    int64_t end = sh_clock_ns() + CUDA_CLOSE_NS;
    bool idle = true;

    for (uint32_t i = 0; i < m->base.n_lanes && idle; i++)
        idle = cuda__wait_idle(m->lanes[i].stream, end) && cuda__wait_idle(m->lanes[i].marks, end);
    return idle;
}

static void stop_lane(struct lane *l)
{
    if (l->here)
        cudaEventDestroy(l->here);
    if (l->marks)
        cudaStreamDestroy(l->marks);
    if (l->stream)
        cudaStreamDestroy(l->stream);
    free(l->cookies);
}

void cuda__mem_close(struct dev_mem *base)
{
    struct cuda_mem *m = base ? mem_of(base) : NULL;

    /* What the device may still touch must stay: then only the end of the process frees it. */
    if (!m || !are_lanes_idle(m))
        return;
    for (uint32_t i = 0; i < m->base.n_lanes; i++)
        stop_lane(&m->lanes[i]);
    if (m->bounce)
        cudaFree(m->bounce);
    if (m->rehearsal)
        cudaFreeHost(m->rehearsal);
    if (m->notes)
        cudaFreeHost(m->notes);
    cuda__tickets_fini(&m->tickets);
    if (m->arena_fd >= 0)
        close(m->arena_fd);
    cuda__arena_fini(&m->arena);
    cuda__context_close(&m->context);
    dev_marks_fini(&m->marks);
    free(m);
}

int cuda__mem_export(const struct dev_mem *base, int *fds, size_t *n_fds, struct sh_err *err)
{
    const struct cuda_mem *m = mem_of(base);

    (void)err;
    fds[0] = m->arena_fd;
    fds[1] = m->tickets.shm.fd;
    *n_fds = CUDA_N_FDS;
    return SH_OK;
}
