/* cpu_dev.c - the table of the cpu back end, and its compute device: arena, threads, tickets. */
#include "common/clock.h"
#include "common/mem.h"
#include "common/spawn.h"
#include "common/units.h"
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/cpu/cpu_mem.h"
#include "runtime/device/cpu/cpu_wide.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define N_FDS 2 /* arena, tickets: what cpu__mem_export gives */
#define PRIMITIVE_CACHE 4096

static struct cpu_dev *cpu_dev_of(struct dev *d)
{
    return (struct cpu_dev *)d;
}

static int map_fd(int fd, size_t bytes, struct sh_shm *out, struct sh_err *err)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    int rc;

    if (copy < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not take a descriptor of the arena");
    rc = sh_shm_map(copy, bytes, true, out, err);
    close(copy); /* the mapping is enough; a descriptor would map anything */
    out->fd = -1;
    return rc;
}

static int map_private(size_t bytes, unsigned char **out, struct sh_err *err)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (base == MAP_FAILED)
        return SH_FAIL_ERRNO(err, SH_E_DEVMEM, "could not reserve an arena of %zu bytes", bytes);
    madvise(base, bytes, MADV_HUGEPAGE); /* a wish; without it only slower */
    *out = base;
    return SH_OK;
}

static int map_arena(struct cpu_dev *d, const struct dev_conf *c, struct sh_err *err)
{
    int rc;

    if (c->n_fds == N_FDS) {
        rc = map_fd(c->fds[0], c->arena_bytes, &d->arena, err);
        if (!rc)
            rc = map_fd(c->fds[1], DEV_N_TICKETS * sizeof(uint32_t), &d->tickets, err);
        d->memory = d->arena.base;
        return rc;
    }
    if (c->n_fds != 0)
        return SH_FAIL(err, SH_E_BUG, "the cpu device needs %d descriptors, not %zu", N_FDS,
                       c->n_fds);
    rc = map_private(c->arena_bytes, &d->memory, err);
    d->is_private = rc == SH_OK;
    return rc;
}

static int cpu_remap(struct dev *base, const int *fds, size_t n_fds, struct sh_err *err)
{
    struct cpu_dev *d = cpu_dev_of(base);
    struct sh_shm arena;
    int rc;

    if (n_fds != N_FDS || !d->arena.base || d->own)
        return SH_FAIL(err, SH_E_BUG, "only a shared arena can be mapped anew");
    rc = map_fd(fds[0], base->arena_bytes, &arena, err);
    if (rc)
        return rc;
    sh_shm_fini(&d->arena);
    d->arena = arena;
    d->memory = arena.base;
    d->has_task = false;
    d->n_task = 0;
    return SH_OK;
}

static int protect(struct cpu_dev *d, size_t off, size_t bytes, int prot, struct sh_err *err)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t from = SH_ALIGN_UP(off, page);
    const size_t end = SH_MIN(SH_ALIGN_UP(off + bytes, page), d->arena.bytes);

    if (from >= end || mprotect((char *)d->arena.base + from, end - from, prot) == 0)
        return SH_OK;
    return SH_FAIL_ERRNO(err, SH_E_NOMEM, "could not change what is in reach of the arena");
}

static bool has_reach(const struct dev_reach *list, size_t n, const struct dev_reach *r)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].off == r->off && list[i].bytes == r->bytes &&
            list[i].is_written == r->is_written)
            return true;
    return false;
}

/* Each page that is there costs some 40 ns each way: what stays in reach is left as it is. */
static int cpu_task(struct dev *base, const struct dev_reach *ranges, size_t n, struct sh_err *err)
{
    struct cpu_dev *d = cpu_dev_of(base);
    int rc = SH_OK;

    if (!d->arena.base)
        return SH_OK;
    if (!d->has_task)
        rc = protect(d, 0, d->arena.bytes, PROT_NONE, err);
    for (size_t i = 0; !rc && i < d->n_task; i++)
        if (!has_reach(ranges, n, &d->task[i]))
            rc = protect(d, d->task[i].off, d->task[i].bytes, PROT_NONE, err);
    for (size_t i = 0; !rc && i < n; i++)
        if (!has_reach(d->task, d->n_task, &ranges[i]))
            rc = protect(d, ranges[i].off, ranges[i].bytes,
                         ranges[i].is_written ? PROT_READ | PROT_WRITE : PROT_READ, err);
    d->has_task = rc == SH_OK; /* else the next one begins with all of it */
    d->n_task = rc ? 0 : n;
    for (size_t i = 0; i < d->n_task; i++)
        d->task[i] = ranges[i];
    return rc;
}

static int cpu_own_memory(struct dev *base, size_t bytes, struct sh_err *err)
{
    struct cpu_dev *d = cpu_dev_of(base);
    unsigned char *own = NULL;
    int rc = SH_OK;

    if (!d->arena.base)
        return SH_FAIL(err, SH_E_BUG, "the memory is private already");
    if (bytes)
        rc = map_private(bytes, &own, err);
    if (rc)
        return rc;
    if (d->own)
        munmap(d->own, d->own_bytes);
    d->own = own;
    d->own_bytes = bytes;
    d->memory = own ? own : d->arena.base;
    return SH_OK;
}

static void cpu_close(struct dev *base)
{
    struct cpu_dev *d = cpu_dev_of(base);

    if (!d)
        return;
    if (d->stream)
        dnnl_stream_destroy(d->stream);
    if (d->engine)
        dnnl_engine_destroy(d->engine);
    if (d->is_private)
        munmap(d->memory, d->base.arena_bytes);
    if (d->own)
        munmap(d->own, d->own_bytes);
    sh_shm_fini(&d->arena);
    sh_shm_fini(&d->tickets);
    free(d);
}

static int cpu_open(const struct dev_conf *c, struct dev **out, struct sh_err *err)
{
    struct cpu_dev *d;
    dnnl_status_t s;
    int rc;

    *out = NULL;
    if (c->ordinal != 0)
        return SH_FAIL(err, SH_E_NOTFOUND, "cpu device %u does not exist, there is only 0",
                       c->ordinal);
    d = calloc(1, sizeof(*d));
    if (!d)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate device");
    d->arena.fd = d->tickets.fd = -1;
    d->base.arena_bytes = c->arena_bytes;
    /* More threads than cores would only wait for each other at every barrier. */
    d->threads = c->threads ? SH_MIN(c->threads, 4 * sh_cores()) : sh_cores();
    rc = map_arena(d, c, err);
    if (rc)
        goto out;
    cpu__set_threads(d->threads);
    s = dnnl_engine_create(&d->engine, dnnl_cpu, 0);
    if (s == dnnl_success)
        s = dnnl_stream_create(&d->stream, d->engine, dnnl_stream_in_order);
    if (s == dnnl_success)
        s = dnnl_set_primitive_cache_capacity(PRIMITIVE_CACHE);
    if (s != dnnl_success) {
        rc = SH_FAIL(err, s == dnnl_out_of_memory ? SH_E_NOMEM : SH_E_BUG,
                     "could not start the cpu device (oneDNN status %d)", (int)s);
        goto out;
    }
    *out = &d->base;
    d = NULL;
out:
    cpu_close(d ? &d->base : NULL);
    return rc;
}

/* ------------------------------------------------------------------ stream: nothing is queued */

static int cpu_upload(struct dev *d, size_t off, const void *host, size_t bytes, struct sh_err *err)
{
    (void)err;
    memcpy(cpu_dev_of(d)->memory + off, host, bytes);
    return SH_OK;
}

static int cpu_download(struct dev *d, void *host, size_t off, size_t bytes, struct sh_err *err)
{
    (void)err;
    memcpy(host, cpu_dev_of(d)->memory + off, bytes);
    return SH_OK;
}

static int cpu_fill(struct dev *d, size_t off, int byte, size_t bytes, struct sh_err *err)
{
    (void)err;
    memset(cpu_dev_of(d)->memory + off, byte, bytes);
    return SH_OK;
}

static int cpu_move(struct dev *d, size_t dst, size_t src, size_t bytes, struct sh_err *err)
{
    (void)err;
    memcpy(cpu_dev_of(d)->memory + dst, cpu_dev_of(d)->memory + src, bytes);
    return SH_OK;
}

static int cpu_unpack(struct dev *d, const struct dev_packed *layers, size_t n, struct sh_err *err)
{
    unsigned char *memory = cpu_dev_of(d)->memory;
    int rc = SH_OK;

    for (size_t i = 0; !rc && i < n; i++)
        rc = pack_unpack(memory + layers[i].at, layers[i].packed_bytes, memory + layers[i].to,
                         layers[i].bytes, err);
    cpu_dev_of(d)->is_damaged |= rc != SH_OK;
    return rc;
}

static bool cpu_take_damage(struct dev *d)
{
    const bool is = cpu_dev_of(d)->is_damaged;

    cpu_dev_of(d)->is_damaged = false;
    return is;
}

static int cpu_reach(struct dev *d, const void *base, size_t bytes, const void **out,
                     struct sh_err *err)
{
    (void)d, (void)bytes, (void)err;
    *out = base;
    return SH_OK;
}

static void cpu_leave(struct dev *d, const void *base)
{
    (void)d, (void)base;
}

static int cpu_wait(struct dev *d, uint32_t slot, uint32_t value, int64_t timeout_ms,
                    struct sh_err *err)
{
    const uint32_t *word = (const uint32_t *)cpu_dev_of(d)->tickets.base;
    int64_t limit_ns = SH_MS(SH_MIN(timeout_ms, INT64_MAX / SH_MS(2)));
    int64_t end = sh_clock_ns() + limit_ns;

    if (!word)
        return SH_FAIL(err, SH_E_BUG, "a private arena has no tickets to wait for");
    word += slot;
    for (;;) {
        uint32_t seen = __atomic_load_n(word, __ATOMIC_ACQUIRE);
        int64_t left = end - sh_clock_ns();

        if ((int32_t)(seen - value) >= 0)
            return SH_OK;
        if (left <= 0 || sh_futex_wait(word, seen, left) == SH_E_TIMEOUT)
            if ((int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) < 0)
                return SH_FAIL(err, SH_E_TIMEOUT,
                               "ticket %u did not reach %u within %lld ms (it is %u)", slot, value,
                               (long long)timeout_ms, seen);
    }
}

static bool cpu_has_ticket(const struct dev *base, uint32_t slot, uint32_t value)
{
    const uint32_t *word = ((const struct cpu_dev *)base)->tickets.base;

    return word && (int32_t)(__atomic_load_n(word + slot, __ATOMIC_ACQUIRE) - value) >= 0;
}

static int cpu_sync(struct dev *d, struct sh_err *err)
{
    dnnl_status_t s = dnnl_stream_wait(cpu_dev_of(d)->stream);

    return s == dnnl_success
               ? SH_OK
               : SH_FAIL(err, SH_E_DEVLOST, "oneDNN stream failed with status %d", (int)s);
}

/* "model name : Intel(R) ..." of the first core. */
static void cpu_name(char *out, size_t size)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[256];

    out[0] = '\0';
    while (f && !out[0] && fgets(line, sizeof(line), f))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':'))
            snprintf(out, size, "%.*s", (int)strcspn(strchr(line, ':'), "\n"), strchr(line, ':'));
    if (f)
        fclose(f);
}

static bool cpu_identity(const struct dev *base, char *out, size_t size)
{
    const dnnl_version_t *v = dnnl_version();
    char name[96];

    cpu_name(name, sizeof(name));
    return (size_t)snprintf(out, size, "onednn=%d.%d.%d/%.16s isa=%d cpu%s threads=%d", v->major,
                            v->minor, v->patch, v->hash, (int)dnnl_get_effective_cpu_isa(), name,
                            (int)((const struct cpu_dev *)base)->threads) < size;
}

const struct dev_mem_ops CPU__MEM = {
    .open = cpu__mem_open,
    .close = cpu__mem_close,
    .export_fds = cpu__mem_export,
    .copy = cpu__mem_copy,
    .move = cpu__mem_move,
    .zero = cpu__mem_zero,
    .ticket = cpu__mem_ticket,
    .follow = cpu__mem_follow,
    .mark = cpu__mem_mark,
    .event_fd = cpu__mem_event_fd,
    .next_mark = cpu__mem_next_mark,
    .ticket_force = cpu__ticket_force,
    .ticket_value = cpu__ticket_value,
};

const struct dev_stream_ops CPU__STREAM = {
    .open = cpu_open,
    .close = cpu_close,
    .identity = cpu_identity,
    .remap = cpu_remap,
    .own_memory = cpu_own_memory,
    .task = cpu_task,
    .upload = cpu_upload,
    .download = cpu_download,
    .fill = cpu_fill,
    .move = cpu_move,
    .unpack = cpu_unpack,
    .take_damage = cpu_take_damage,
    .reach = cpu_reach,
    .leave = cpu_leave,
    .wait = cpu_wait,
    .has_ticket = cpu_has_ticket,
    .sync = cpu_sync,
};
