/* cuda_mem.h - the memory face of the cuda back end, and what both faces map; only its own files
 * include this.
 *
 * The arena is one allocation of the driver's virtual memory management, exported as a descriptor
 * and mapped once by each worker. The ticket page is a sealed memfd that each side registers, so
 * that device and CPU read and write the same words: a lane raises a ticket by a stream write, a
 * worker's stream waits for it without the host, the watchdog raises it from the CPU.
 *
 * Each lane is a stream. Copies run on the copy engines and need no kernel, so they do not take the
 * device away from the process that computes. Marks come from a host function behind the lane's
 * work, on a second stream: a host function holds its stream up until the host has run it (some 10
 * microseconds), which the lane's next copy must not pay for. Against a thread that polls events
 * this costs no core and wakes nobody in vain.
 *
 * Forced tickets. A stream write stores its value; it does not take the larger one. So a write
 * that was enqueued before a force can put a smaller value back when it is carried out. That does
 * no lasting harm: dev_mem_next_mark() raises forced tickets again each time it has a mark to give,
 * and all callers put a mark behind their tickets (executor/memory/transmit.c). Until then a waiter
 * may have to wait for the writes in front of that mark, which do come: a lane waits for nobody.
 */
#ifndef SH_RUNTIME_DEVICE_CUDA_CUDA_MEM_H
#define SH_RUNTIME_DEVICE_CUDA_CUDA_MEM_H

#include "common/shm.h"
#include "common/units.h"
#include "runtime/device/backend.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#define CUDA_N_FDS 2 /* arena, tickets: what cuda__mem_export gives */

/* ------------------------------------------------------------------ cuda_arena.c */

struct cuda_context {
    CUdevice device;
    CUcontext context; /* OWNED reference to the primary context; NULL when not open */
};
/* Makes the context current in the calling thread. sched: CU_CTX_SCHED_*, how this process waits
 * for the device. Fails: SH_E_NOTFOUND without driver or device, SH_E_UNSUPPORTED naming what the
 * device lacks. */
int cuda__context_open(uint32_t ordinal, unsigned sched, struct cuda_context *out,
                       struct sh_err *err);
void cuda__context_close(struct cuda_context *c);
/* Waits until the stream (NULL: none) has nothing more to do, but not beyond `end_ns` of
 * sh_clock_ns(): false. A dead context counts as idle. */
bool cuda__wait_idle(cudaStream_t s, int64_t end_ns);
#define CUDA_CLOSE_NS SH_S(5)                                /* what closing may wait for */
int cuda__stream_new(cudaStream_t *out, struct sh_err *err); /* ahead of those without priority */
int cuda__event_new(cudaEvent_t *out, struct sh_err *err);   /* without times */

struct cuda_arena {
    CUmemGenericAllocationHandle handle;
    unsigned char *base; /* device pointer of offset 0 */
    size_t bytes;        /* mapped: whole granules */
    bool has_handle, is_reserved, is_mapped;
};
/* What an arena leaves on the device: a context takes some 500 MiB, and workers try out what they
 * compile. */
#define CUDA_RESERVE ((size_t)1 << 30)
/* Zeroed. is_shared: can be exported, and must leave CUDA_RESERVE. Fails: SH_E_DEVMEM saying how
 * much is free. */
int cuda__arena_create(CUdevice device, size_t bytes, bool is_shared, struct cuda_arena *out,
                       struct sh_err *err);
int cuda__arena_import(CUdevice device, int fd, size_t bytes, struct cuda_arena *out,
                       struct sh_err *err); /* fd stays the caller's */
void cuda__arena_fini(struct cuda_arena *a);

struct cuda_tickets {
    struct sh_shm shm; /* fd -1 and base NULL when there are none */
    CUdeviceptr device;
    bool is_registered;
};
int cuda__tickets_create(struct cuda_tickets *out, struct sh_err *err);
int cuda__tickets_import(int fd, struct cuda_tickets *out,
                         struct sh_err *err); /* fd stays the caller's */
void cuda__tickets_fini(struct cuda_tickets *t);
static inline uint32_t *cuda__ticket(const struct cuda_tickets *t, uint32_t slot)
{
    return (uint32_t *)t->shm.base + slot;
}

/* Page-locks memory for copies of this process; a mapping that cannot be written is locked for
 * copies to the device only. */
int cuda__host_lock(void *base, size_t bytes, struct sh_err *err);
void cuda__host_unlock(void *base);
/* Page-locks memory that kernels of this process read; *out: what they call it. */
int cuda__host_reach(const void *base, size_t bytes, const void **out, struct sh_err *err);

/* ------------------------------------------------------------------ cuda_mem.c */

int cuda__mem_open(const struct dev_mem_conf *c, struct dev_mem **out, struct sh_err *err);
void cuda__mem_close(struct dev_mem *m);
int cuda__mem_export(const struct dev_mem *m, int *fds, size_t *n_fds, struct sh_err *err);
int cuda__mem_host_lock(struct dev_mem *m, void *base, size_t bytes, struct sh_err *err);
void cuda__mem_host_unlock(struct dev_mem *m, void *base);
int cuda__mem_copy(struct dev_mem *m, uint32_t lane, enum dev_dir dir, size_t off, void *host,
                   size_t bytes, struct sh_err *err);
int cuda__mem_move(struct dev_mem *m, uint32_t lane, size_t dst, size_t src, size_t bytes,
                   struct sh_err *err);
int cuda__mem_zero(struct dev_mem *m, uint32_t lane, size_t off, size_t bytes, struct sh_err *err);
int cuda__mem_ticket(struct dev_mem *m, uint32_t lane, uint32_t slot, uint32_t value,
                     struct sh_err *err);
int cuda__mem_rehearse(struct dev_mem *m, struct sh_err *err);
int cuda__mem_mark(struct dev_mem *m, uint32_t lane, uint64_t cookie, struct sh_err *err);
int cuda__mem_event_fd(const struct dev_mem *m);
bool cuda__mem_next_mark(struct dev_mem *m, uint64_t *cookie);
void cuda__ticket_force(struct dev_mem *m, uint32_t slot, uint32_t value);
uint32_t cuda__ticket_value(const struct dev_mem *m, uint32_t slot);

/* ------------------------------------------------------------------ cuda_stage.c */

/* Copies between the arena and pageable host memory, through page-locked memory in between: the
 * driver's own way runs at a seventh of the link's speed, and waits for the stream. */
struct cuda_stage;
int cuda__stage_new(cudaStream_t s, struct cuda_stage **out, struct sh_err *err);
void cuda__stage_free(struct cuda_stage *g); /* drops what was not drained */
bool cuda__stage_is_needed(const void *host, size_t bytes);
int cuda__stage_upload(struct cuda_stage *g, void *device, const void *host, size_t bytes,
                       struct sh_err *err);
/* `host` is filled by a later call, at the latest by cuda__stage_settle or _drain. */
int cuda__stage_download(struct cuda_stage *g, void *host, const void *device, size_t bytes,
                         struct sh_err *err);
int cuda__stage_settle(struct cuda_stage *g, struct sh_err *err); /* waits for downloads alone */
void cuda__stage_drain(struct cuda_stage *g);                     /* when the stream is idle */

#endif
