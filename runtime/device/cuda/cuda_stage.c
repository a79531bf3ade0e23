/* cuda_stage.c - copies of pageable host memory through a ring of page-locked slots.
 *
 * Each slot has an event behind the last copy that uses it; small copies share a slot. What is
 * downloaded waits in its slot until the copy is done: until the slot is needed again, somebody
 * waits for it, or the stream is known to be idle.
 */
#include "common/mem.h"
#include "runtime/device/cuda/cuda.h"
#include "runtime/device/cuda/cuda_mem.h"

#include <stdlib.h>

#define SLOT_BYTES ((size_t)1 << 20) /* 48 of 55 GB/s: the memcpy beside it is slower anyway */
#define N_SLOTS 8u
#define MAX_LATE 256u
#define ALIGN 64u

struct late { /* downloaded, or about to be, and not yet where it belongs */
    void *host;
    const unsigned char *from;
    size_t bytes;
    uint32_t slot;
};

struct cuda_stage {
    cudaStream_t stream;   /* BORROWED */
    unsigned char *memory; /* OWNED, page-locked: N_SLOTS slots */
    cudaEvent_t done[N_SLOTS];
    uint32_t at; /* the slot in use */
    size_t used; /* bytes of it */
    struct late late[MAX_LATE];
    uint32_t n_late;
};

int cuda__stage_new(cudaStream_t s, struct cuda_stage **out, struct sh_err *err)
{
    struct cuda_stage *g = calloc(1, sizeof(*g));
    void *memory = NULL;
    int rc;

    *out = NULL;
    if (!g)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the staging of copies");
    g->stream = s;
    if (cudaHostAlloc(&memory, N_SLOTS * SLOT_BYTES, cudaHostAllocPortable) != cudaSuccess) {
        cudaGetLastError();
        rc = SH_FAIL(err, SH_E_NOMEM, "could not page-lock %zu MiB of host memory",
                     N_SLOTS * SLOT_BYTES >> 20);
        goto out;
    }
    g->memory = memory;
    rc = SH_OK;
    for (uint32_t i = 0; i < N_SLOTS && !rc; i++)
        rc = cuda__event_new(&g->done[i], err);
    if (rc)
        goto out;
    *out = g;
    g = NULL;
out:
    cuda__stage_free(g);
    return rc;
}

void cuda__stage_free(struct cuda_stage *g)
{
    if (!g)
        return;
    for (uint32_t i = 0; i < N_SLOTS; i++)
        if (g->done[i])
            cudaEventDestroy(g->done[i]);
    if (g->memory)
        cudaFreeHost(g->memory);
    free(g);
}

static bool is_locked(const void *p)
{
    struct cudaPointerAttributes a = {.type = cudaMemoryTypeUnregistered};

    if (cudaPointerGetAttributes(&a, p) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    return a.type == cudaMemoryTypeHost;
}

bool cuda__stage_is_needed(const void *host, size_t bytes)
{
    return !is_locked(host) || !is_locked((const unsigned char *)host + bytes - 1);
}

/* Hands over what lies in `slot`, or in all of them. Their copies are done. */
static void hand_slot_over(struct cuda_stage *g, uint32_t slot)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < g->n_late; i++) {
        if (slot == N_SLOTS || g->late[i].slot == slot)
            memcpy(g->late[i].host, g->late[i].from, g->late[i].bytes);
        else
            g->late[kept++] = g->late[i];
    }
    g->n_late = kept;
}

int cuda__stage_settle(struct cuda_stage *g, struct sh_err *err)
{
    int rc = SH_OK;

    for (uint32_t i = 0; i < g->n_late && !rc; i++)
        rc = cuda__check(cudaEventSynchronize(g->done[g->late[i].slot]), "wait for a copy", err);
    if (!rc)
        hand_slot_over(g, N_SLOTS);
    return rc;
}

void cuda__stage_drain(struct cuda_stage *g)
{
    hand_slot_over(g, N_SLOTS);
    g->used = 0;
}

/* Room for `bytes` (at most a slot) in the ring; waits for the oldest copies if it is full. */
static int take_stage_slot(struct cuda_stage *g, size_t bytes, unsigned char **out,
                           struct sh_err *err)
{
    int rc = SH_OK;

    if (bytes > SLOT_BYTES - g->used) {
        uint32_t next = (g->at + 1) % N_SLOTS;

        rc = cuda__check(cudaEventSynchronize(g->done[next]), "wait for a copy", err);
        if (rc)
            return rc;
        hand_slot_over(g, next);
        g->at = next;
        g->used = 0;
    }
    *out = g->memory + g->at * SLOT_BYTES + g->used;
    g->used += SH_ALIGN_UP(bytes, (size_t)ALIGN);
    return SH_OK;
}

static int copy_staged(struct cuda_stage *g, void *dst, const void *src, size_t bytes,
                       enum cudaMemcpyKind kind, struct sh_err *err)
{
    int rc = cuda__check(cudaMemcpyAsync(dst, src, bytes, kind, g->stream), "enqueue a copy", err);

    return rc ? rc
              : cuda__check(cudaEventRecord(g->done[g->at], g->stream), "record an event", err);
}

int cuda__stage_upload(struct cuda_stage *g, void *device, const void *host, size_t bytes,
                       struct sh_err *err)
{
    for (size_t at = 0; at < bytes; at += SLOT_BYTES) {
        size_t n = SH_MIN(bytes - at, SLOT_BYTES);
        unsigned char *room = NULL;
        int rc = take_stage_slot(g, n, &room, err);

        if (rc)
            return rc;
        memcpy(room, (const unsigned char *)host + at, n);
        rc = copy_staged(g, (unsigned char *)device + at, room, n, cudaMemcpyHostToDevice, err);
        if (rc)
            return rc;
    }
    return SH_OK;
}

int cuda__stage_download(struct cuda_stage *g, void *host, const void *device, size_t bytes,
                         struct sh_err *err)
{
    for (size_t at = 0; at < bytes; at += SLOT_BYTES) {
        size_t n = SH_MIN(bytes - at, SLOT_BYTES);
        unsigned char *room = NULL;
        int rc = SH_OK;

        if (g->n_late == MAX_LATE) { /* many small ones in one slot */
            rc = cuda__check(cudaEventSynchronize(g->done[g->at]), "wait for a copy", err);
            if (rc)
                return rc;
            hand_slot_over(g, N_SLOTS); /* events of one stream: the slots before it are done too */
        }
        rc = take_stage_slot(g, n, &room, err);
        if (!rc)
            rc = copy_staged(g, room, (const unsigned char *)device + at, n, cudaMemcpyDeviceToHost,
                             err);
        if (rc)
            return rc;
        g->late[g->n_late++] = (struct late){
            .host = (unsigned char *)host + at, .from = room, .bytes = n, .slot = g->at};
    }
    return SH_OK;
}
