/* cuda_arena.c - what both faces hold: the device's context, the arena, the ticket page. */
#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"
#include "runtime/device/cuda/cuda.h"
#include "runtime/device/cuda/cuda_mem.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#define POLL_NS SH_US(200)

/* ------------------------------------------------------------------ context */

static int check_cuda_device(CUdevice d, struct sh_err *err)
{
    static const struct {
        CUdevice_attribute attribute;
        const char *what;
    } NEEDED[] = {
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, "unified addressing"},
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "virtual memory management"},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
         "memory that is shared by descriptor"},
        {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, "registered host memory"},
    };

    for (size_t i = 0; i < SH_ARRAY_LEN(NEEDED); i++) {
        int has = 0, rc;

        rc = cuda__check_drv(cuDeviceGetAttribute(&has, NEEDED[i].attribute, d),
                             "ask for the properties of the device", err);
        if (rc)
            return rc;
        if (!has)
            return SH_FAIL(err, SH_E_UNSUPPORTED, "this CUDA device (or its driver) lacks %s",
                           NEEDED[i].what);
    }
    return SH_OK;
}

static int start_cuda(struct sh_err *err)
{
    const char *why = NULL;
    CUresult e = cuInit(0);
    int rc;

    if (e == CUDA_SUCCESS)
        return SH_OK;
    cuGetErrorString(e, &why);
    rc = SH_FAIL(err, SH_E_NOTFOUND,
                 "CUDA cannot be started: %s; a driver for CUDA %d.%d or newer is needed",
                 why ? why : "unknown error", CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
    sh_err_detail(err, "cuInit: %d", (int)e);
    return rc;
}

int cuda__context_open(uint32_t ordinal, unsigned sched, struct cuda_context *out,
                       struct sh_err *err)
{
    struct cuda_context c = {.context = NULL};
    int n = 0, rc;

    *out = c;
    rc = start_cuda(err);
    if (!rc)
        rc = cuda__check_drv(cuDeviceGetCount(&n), "count the CUDA devices", err);
    if (rc)
        return rc;
    if (ordinal >= (uint32_t)n)
        return SH_FAIL(err, SH_E_NOTFOUND, "cuda device %u does not exist, there are %d (from 0)",
                       ordinal, n);
    rc = cuda__check_drv(cuDeviceGet(&c.device, (int)ordinal), "find the CUDA device", err);
    if (!rc)
        rc = check_cuda_device(c.device, err);
    /* Of the whole process: both faces in one process wait as the one that was opened last. */
    if (!rc)
        rc = cuda__check_drv(cuDevicePrimaryCtxSetFlags(c.device, sched),
                             "choose how to wait for the device", err);
    if (!rc)
        rc = cuda__check_drv(cuDevicePrimaryCtxRetain(&c.context, c.device),
                             "create a context on the device", err);
    if (!rc)
        rc = cuda__check_drv(cuCtxSetCurrent(c.context), "enter the device's context", err);
    if (rc)
        cuda__context_close(&c);
    *out = c;
    return rc;
}

void cuda__context_close(struct cuda_context *c)
{
    if (c->context)
        cuDevicePrimaryCtxRelease(c->device);
    c->context = NULL;
}

int cuda__stream_new(cudaStream_t *out, struct sh_err *err)
{
    int least = 0, greatest = 0;
    int rc = cuda__check(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                         "ask for the priorities of streams", err);

    return rc ? rc
              : cuda__check(cudaStreamCreateWithPriority(out, cudaStreamNonBlocking, greatest),
                            "create a stream", err);
}

int cuda__event_new(cudaEvent_t *out, struct sh_err *err)
{
    return cuda__check(cudaEventCreateWithFlags(out, cudaEventDisableTiming), "create an event",
                       err);
}

bool cuda__wait_idle(cudaStream_t s, int64_t end_ns)
{
    const struct timespec step = {.tv_nsec = POLL_NS};

    while (s && cudaStreamQuery(s) == cudaErrorNotReady) {
        if (sh_clock_ns() > end_ns)
            return false;
        nanosleep(&step, NULL);
    }
    return true;
}

/* ------------------------------------------------------------------ arena */

static CUmemAllocationProp prop_of(CUdevice device, bool is_shared)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                                 .requestedHandleTypes =
                                     is_shared ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                               : CU_MEM_HANDLE_TYPE_NONE};
}

/* Both sides round alike: a mapping covers the whole handle. */
static int round_up(CUdevice device, bool is_shared, size_t bytes, size_t *out, struct sh_err *err)
{
    CUmemAllocationProp prop = prop_of(device, is_shared);
    size_t granule = 0;
    int rc = cuda__check_drv(
        cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
        "ask for the granularity of device memory", err);

    if (!rc)
        rc = sh_add_size(bytes, granule - 1, out, err);
    if (!rc)
        *out = *out / granule * granule;
    return rc;
}

static int map_cuda_arena(CUdevice device, struct cuda_arena *a, struct sh_err *err)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at = 0;
    int rc = cuda__check_drv(cuMemAddressReserve(&at, a->bytes, 0, 0, 0),
                             "reserve addresses for the arena", err);

    if (rc)
        return rc;
    a->base = (unsigned char *)at;
    a->is_reserved = true;
    rc = cuda__check_drv(cuMemMap(at, a->bytes, 0, a->handle, 0), "map the arena", err);
    if (rc)
        return rc;
    a->is_mapped = true;
    return cuda__check_drv(cuMemSetAccess(at, a->bytes, &access, 1), "open the arena for access",
                           err);
}

/* Without the reserve no worker could start. */
static int check_reserve(const struct cuda_arena *a, struct sh_err *err)
{
    size_t free_bytes = 0, total = 0;
    int rc = cuda__check_drv(cuMemGetInfo(&free_bytes, &total), "ask for free device memory", err);

    if (rc || (free_bytes >= CUDA_RESERVE && a->bytes <= free_bytes - CUDA_RESERVE))
        return rc;
    return SH_FAIL(err, SH_E_DEVMEM,
                   "a pool of %zu MiB does not fit: %zu of the device's %zu MiB are free, and "
                   "workers need at least %zu of them beside the pool; lower pool-bytes, or end "
                   "what else uses the device",
                   a->bytes >> 20, free_bytes >> 20, total >> 20, CUDA_RESERVE >> 20);
}

static int allocate_arena(CUdevice device, bool is_shared, struct cuda_arena *a, struct sh_err *err)
{
    CUmemAllocationProp prop = prop_of(device, is_shared);
    CUresult e = cuMemCreate(&a->handle, a->bytes, &prop, 0);

    a->has_handle = e == CUDA_SUCCESS;
    return e == CUDA_ERROR_OUT_OF_MEMORY ? cuda__no_memory(a->bytes, err)
                                         : cuda__check_drv(e, "allocate device memory", err);
}

int cuda__arena_create(CUdevice device, size_t bytes, bool is_shared, struct cuda_arena *out,
                       struct sh_err *err)
{
    struct cuda_arena a = {.base = NULL};
    int rc = round_up(device, is_shared, bytes, &a.bytes, err);

    if (!rc && is_shared)
        rc = check_reserve(&a, err);
    if (!rc)
        rc = allocate_arena(device, is_shared, &a, err);
    if (!rc)
        rc = map_cuda_arena(device, &a, err);
    /* The other back ends begin with zeroes, and nothing may come from whoever had the memory. */
    if (!rc)
        rc = cuda__check_drv(cuMemsetD8Async((CUdeviceptr)a.base, 0, a.bytes, CU_STREAM_LEGACY),
                             "clear the arena", err);
    if (!rc)
        rc = cuda__check_drv(cuStreamSynchronize(CU_STREAM_LEGACY), "clear the arena", err);
    if (rc)
        cuda__arena_fini(&a);
    *out = a;
    return rc;
}

int cuda__arena_import(CUdevice device, int fd, size_t bytes, struct cuda_arena *out,
                       struct sh_err *err)
{
    struct cuda_arena a = {.base = NULL};
    int rc = round_up(device, true, bytes, &a.bytes, err);

    if (!rc)
        rc = cuda__check_drv(
            cuMemImportFromShareableHandle(&a.handle, (void *)(intptr_t)fd,
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            "import the arena", err);
    a.has_handle = rc == SH_OK;
    if (!rc)
        rc = map_cuda_arena(device, &a, err);
    if (rc)
        cuda__arena_fini(&a);
    *out = a;
    return rc;
}

void cuda__arena_fini(struct cuda_arena *a)
{
    if (a->is_mapped)
        cuMemUnmap((CUdeviceptr)a->base, a->bytes);
    if (a->is_reserved)
        cuMemAddressFree((CUdeviceptr)a->base, a->bytes);
    if (a->has_handle)
        cuMemRelease(a->handle);
    *a = (struct cuda_arena){.base = NULL};
}

/* ------------------------------------------------------------------ tickets */

static int register_page(struct cuda_tickets *t, struct sh_err *err)
{
    int rc = cuda__check_drv(
        cuMemHostRegister(t->shm.base, t->shm.bytes,
                          CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
        "register the ticket page", err);

    t->is_registered = rc == SH_OK;
    if (!rc)
        rc = cuda__check_drv(cuMemHostGetDevicePointer(&t->device, t->shm.base, 0),
                             "map the ticket page into the device", err);
    if (rc)
        cuda__tickets_fini(t);
    return rc;
}

int cuda__tickets_create(struct cuda_tickets *out, struct sh_err *err)
{
    int rc;

    *out = (struct cuda_tickets){.shm = {.fd = -1}};
    rc = sh_shm_create("shunt-tickets", DEV_N_TICKETS * sizeof(uint32_t), &out->shm, err);
    return rc ? rc : register_page(out, err);
}

int cuda__tickets_import(int fd, struct cuda_tickets *out, struct sh_err *err)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0), rc;

    *out = (struct cuda_tickets){.shm = {.fd = -1}};
    if (copy < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not take a descriptor of the ticket page");
    rc = sh_shm_map(copy, DEV_N_TICKETS * sizeof(uint32_t), true, &out->shm, err);
    if (rc) {
        close(copy);
        return rc;
    }
    return register_page(out, err);
}

void cuda__tickets_fini(struct cuda_tickets *t)
{
    if (t->is_registered)
        cuMemHostUnregister(t->shm.base);
    t->is_registered = false;
    sh_shm_fini(&t->shm);
}

/* ------------------------------------------------------------------ host memory */

int cuda__host_lock(void *base, size_t bytes, struct sh_err *err)
{
    cudaError_t e = cudaHostRegister(base, bytes, cudaHostRegisterPortable);

    if (e == cudaSuccess)
        return SH_OK;
    cudaGetLastError();
    if (e == cudaErrorHostMemoryAlreadyRegistered)
        return SH_FAIL(err, SH_E_BUG, "host memory is page-locked twice");
    /* Images are mapped for reading only, and say so nowhere but here. */
    if (cudaHostRegister(base, bytes, cudaHostRegisterPortable | cudaHostRegisterReadOnly) ==
        cudaSuccess)
        return SH_OK;
    cudaGetLastError();
    if (e == cudaErrorMemoryAllocation)
        return SH_FAIL(err, SH_E_NOMEM,
                       "could not page-lock %zu MiB of host memory: there is not so much free, or "
                       "the limit of locked memory is lower (ulimit -l, LimitMEMLOCK)",
                       bytes >> 20);
    return cuda__check(e, "page-lock host memory", err);
}

/* Pages that this process may not write have to be announced as such; where the device does not
 * know that, the mapping is refused. */
int cuda__host_reach(const void *base, size_t bytes, const void **out, struct sh_err *err)
{
    const unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    void *host = (void *)(uintptr_t)base;
    CUdeviceptr at = 0;
    CUresult e = cuMemHostRegister(host, bytes, flags | CU_MEMHOSTREGISTER_READ_ONLY);
    int rc;

    *out = NULL;
    if (e == CUDA_ERROR_NOT_SUPPORTED)
        e = cuMemHostRegister(host, bytes, flags);
    if (e == CUDA_ERROR_OUT_OF_MEMORY)
        return SH_FAIL(err, SH_E_NOMEM,
                       "could not page-lock %zu MiB of host memory: there is not so much free, or "
                       "the limit of locked memory is lower (ulimit -l, LimitMEMLOCK)",
                       bytes >> 20);
    rc = cuda__check_drv(e, "page-lock host memory for kernels", err);
    if (rc)
        return rc;
    rc = cuda__check_drv(cuMemHostGetDevicePointer(&at, host, 0), "map host memory into the device",
                         err);
    if (rc)
        cuMemHostUnregister(host);
    *out = rc ? NULL : (const void *)at;
    return rc;
}

void cuda__host_unlock(void *base)
{
    if (cudaHostUnregister(base) != cudaSuccess)
        cudaGetLastError(); /* it was never locked, or the context is dead */
}
