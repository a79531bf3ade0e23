/* dev.c - loads a back end and guards its door: every call of the contract is checked here, once.
 *
 * What a wrapper checks is what every back end would have to check: ranges of the arena, lanes,
 * ticket slots, operation ranges. A violation is a bug of the caller, so it is SH_E_BUG.
 */
#include "common/mem.h"
#include "common/spawn.h"
#include "runtime/device/backend.h"

#include <ctype.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_KIND 16
#define SPINS "20000" /* of libgomp: a millisecond or less */

struct dev_lib {
    void *handle; /* OWNED; NULL for a table that was handed in */
    const struct dev_ops *ops;
};

/* ------------------------------------------------------------------ loading */

/* Are the first `bytes` of a table calls, each of them? */
static bool has_calls(const void *table, size_t bytes)
{
    void (*call)(void);

    for (size_t at = 0; table && at < bytes; at += sizeof(call)) {
        memcpy(&call, (const char *)table + at, sizeof(call));
        if (!call)
            return false;
    }
    return table != NULL;
}

static bool has_pairs(const struct dev_ops *o)
{
    return !o->mem->host_lock == !o->mem->host_unlock &&
           !o->stream->host_lock == !o->stream->host_unlock &&
           !o->stream->prefetch == !o->stream->prefetch_fence &&
           !o->stream->prefetch == !o->stream->prefetch_join &&
           !o->stream->unpack == !o->stream->take_damage &&
           !o->stream->reach == !o->stream->leave && !o->stream->mark == !o->stream->sync_mark &&
           !o->plan->keep_bytes == !o->plan->set_keep;
}

static int ops_check(const struct dev_ops *o, struct sh_err *err)
{
    if (o->abi != DEV_ABI)
        return SH_FAIL(err, SH_E_BUG, "device back end \"%s\" has ABI %u, this program needs %u",
                       o->name ? o->name : "?", o->abi, DEV_ABI);
    if (!o->name || !has_calls(o->mem, offsetof(struct dev_mem_ops, host_lock)) ||
        !has_calls(o->stream, offsetof(struct dev_stream_ops, identity)) ||
        !has_calls(o->plan, offsetof(struct dev_plan_ops, warm)))
        return SH_FAIL(err, SH_E_BUG, "device back end \"%s\" lacks a required call",
                       o->name ? o->name : "?");
    if (!has_pairs(o))
        return SH_FAIL(err, SH_E_BUG, "device back end \"%s\" has half of a pair", o->name);
    return SH_OK;
}

/* <folder of the executable>/../lib/shunt-dev-<kind>.so */
static int lib_path(const char *kind, char *out, size_t size, struct sh_err *err)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    char *slash;
    int len;

    if (n < 0)
        return SH_FAIL_ERRNO(err, SH_E_IO, "could not find out where this program lies");
    exe[n] = '\0';
    slash = strrchr(exe, '/');
    if (slash)
        *slash = '\0';
    len = snprintf(out, size, "%s/../lib/shunt-dev-%s.so", exe, kind);
    if (len < 0 || (size_t)len >= size)
        return SH_FAIL(err, SH_E_TOOBIG, "the path of this program is too long");
    return SH_OK;
}

static bool kind_is_valid(const char *kind)
{
    size_t n = kind ? strlen(kind) : 0;

    if (n == 0 || n > MAX_KIND)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!islower((unsigned char)kind[i]) && !isdigit((unsigned char)kind[i]))
            return false;
    return true;
}

int dev__not_loaded(const char *kind, const char *why, struct sh_err *err)
{
    static const char LINKS[] = "install CUDA and cuDNN, then run bin/shunt-cuda-libs (in a source "
                                "tree deploy/cuda-libs.sh), which finds them";
    static const struct {
        const char *lib, *hint; /* lib: how its name begins */
    } HINTS[] = {
        {"libcuda.so", "install the NVIDIA driver, which brings it"},
        {"libcudart", LINKS},
        {"libcudnn", LINKS},
        {"libcublas", LINKS},
    };
    int rc = SH_OK;

    for (size_t i = 0; i < SH_ARRAY_LEN(HINTS) && !rc; i++)
        if (strncmp(why, HINTS[i].lib, strlen(HINTS[i].lib)) == 0)
            rc = SH_FAIL(err, SH_E_NOTFOUND,
                         "device back end \"%s\" cannot be loaded without %.*s; %s", kind,
                         (int)SH_MIN(strcspn(why, ":"), (size_t)64), why, HINTS[i].hint);
    if (!rc)
        rc = SH_FAIL(err, SH_E_NOTFOUND,
                     "device back end \"%s\" cannot be loaded; is shunt-dev-%s.so installed?", kind,
                     kind);
    sh_err_detail(err, "%s", why);
    return rc;
}

/* How many threads of all processes run or want to; SIZE_MAX: not known. */
static size_t n_running(void)
{
    FILE *f = fopen("/proc/loadavg", "re");
    size_t n = SIZE_MAX;

    if (f && fscanf(f, "%*f %*f %*f %zu/", &n) != 1)
        n = SIZE_MAX;
    if (f)
        fclose(f);
    return n;
}

/* Between two operations threads of OpenMP wait some microseconds: where a core is free for each,
 * they spin, for a millisecond at most, since waking them costs as much as a small operation. Where
 * cores are shared, one that spins takes the core from a copy lane or from another worker: on two
 * busy cores a layer of 0.3 ms then takes 5 ms. The runtime reads both once, when it is loaded with
 * the cpu back end. Whoever set them before knows better. */
static int set_waits(struct sh_err *err)
{
    const unsigned cores = sh_cores();
    const bool is_idle = cores > 1 && n_running() <= SH_MAX(1, cores / 2); /* with this one */

    if (setenv("OMP_WAIT_POLICY", "passive", 0) != 0 ||
        setenv("GOMP_SPINCOUNT", is_idle ? SPINS : "0", 0) != 0)
        return SH_FAIL_ERRNO(err, SH_E_NOMEM, "could not set the wait policy of OpenMP");
    return SH_OK;
}

/* A core for each thread of all workers, and one for everybody else? */
const char *dev_spins(int64_t workers, int64_t threads)
{
    const int64_t cores = sh_cores();

    return workers * (threads > 0 ? threads : cores) < cores ? "GOMP_SPINCOUNT=" SPINS
                                                             : "GOMP_SPINCOUNT=0";
}

int dev_lib_open(const char *kind, struct dev_lib **out, struct sh_err *err)
{
    char path[PATH_MAX];
    struct dev_lib *l = NULL;
    int rc;

    *out = NULL;
    if (!kind_is_valid(kind)) {
        rc = SH_FAIL(err, SH_E_INVALID, "device kind \"%.32s\" is not a name like \"cpu\"",
                     kind ? kind : "");
        goto out;
    }
    rc = lib_path(kind, path, sizeof(path), err);
    if (rc)
        goto out;
    l = calloc(1, sizeof(*l));
    if (!l) {
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate device library");
        goto out;
    }
    if (strcmp(kind, "cpu") == 0) {
        rc = set_waits(err);
        if (rc)
            goto out;
    }
    /* Never unmapped: runtimes (OpenMP, CUDA) keep threads in their code after the last call. */
    l->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!l->handle) {
        rc = dev__not_loaded(kind, dlerror(), err);
        goto out;
    }
    l->ops = dlsym(l->handle, "shunt_dev_ops");
    if (!l->ops) {
        rc = SH_FAIL(err, SH_E_BUG, "device back end \"%s\" exports no table of calls", kind);
        goto out;
    }
    rc = ops_check(l->ops, err);
    if (rc)
        goto out;
    *out = l;
    l = NULL;
out:
    dev_lib_close(l);
    return rc;
}

int dev_lib_wrap(const struct dev_ops *ops, struct dev_lib **out, struct sh_err *err)
{
    struct dev_lib *l;
    int rc;

    *out = NULL;
    rc = ops_check(ops, err);
    if (rc)
        return rc;
    l = calloc(1, sizeof(*l));
    if (!l)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate device library");
    l->ops = ops;
    *out = l;
    return SH_OK;
}

void dev_lib_close(struct dev_lib *l)
{
    if (!l)
        return;
    if (l->handle)
        dlclose(l->handle);
    free(l);
}

/* ------------------------------------------------------------------ memory face */

static int check_range(size_t off, size_t bytes, size_t total, const char *what, struct sh_err *err)
{
    if (off > total || bytes > total - off)
        return SH_FAIL(err, SH_E_BUG, "%s of %zu bytes at %zu leaves the arena of %zu bytes", what,
                       bytes, off, total);
    return SH_OK;
}

static int check_lane(const struct dev_mem *m, uint32_t lane, struct sh_err *err)
{
    if (lane >= m->n_lanes)
        return SH_FAIL(err, SH_E_BUG, "lane %u does not exist, there are %u", lane, m->n_lanes);
    return SH_OK;
}

static uint32_t count_links(const struct dev_mem_conf *c)
{
    uint32_t n = 1;

    for (uint32_t i = 0; i < c->n_lanes; i++)
        n = SH_MAX(n, c->links[i] + 1u);
    return n;
}

int dev_mem_open(const struct dev_lib *l, const struct dev_mem_conf *c, struct dev_mem **out,
                 struct sh_err *err)
{
    struct dev_mem_conf conf = *c;
    uint32_t n_links;
    int rc;

    *out = NULL;
    conf.pool_bytes = c->pool_bytes / DEV_BLOCK * DEV_BLOCK;
    if (conf.pool_bytes == 0)
        return SH_FAIL(err, SH_E_INVALID, "pool_bytes = %zu is less than one block of %zu bytes",
                       c->pool_bytes, DEV_BLOCK);
    if (c->n_lanes < 1 || c->n_lanes > DEV_MAX_LANES)
        return SH_FAIL(err, SH_E_INVALID, "%u copy lanes are not in the range 1 to %d", c->n_lanes,
                       DEV_MAX_LANES);
    if (!(c->copy_gb_per_s >= 0) || !(c->copy_latency_us >= 0) || c->copy_latency_us > 1e6)
        return SH_FAIL(err, SH_E_INVALID, "copy rate and latency cannot be negative or unlimited");
    n_links = count_links(c);
    if (n_links > DEV_MAX_LANES)
        return SH_FAIL(err, SH_E_INVALID, "%u links to the device are more than %d", n_links,
                       DEV_MAX_LANES);
    if (n_links > 1 && !l->ops->mem->follow)
        return SH_FAIL(err, SH_E_UNSUPPORTED, "device \"%s\" copies by one link, not by %u",
                       l->ops->name, n_links);
    rc = l->ops->mem->open(&conf, out, err);
    if (rc)
        return rc;
    (*out)->ops = l->ops;
    (*out)->n_links = n_links;
    return SH_OK;
}

uint32_t dev_mem_n_links(const struct dev_mem *m)
{
    return m->n_links;
}

bool dev_mem_is_queued(const struct dev_mem *m)
{
    return m->ops->is_queued;
}

void dev_mem_close(struct dev_mem *m)
{
    if (m)
        m->ops->mem->close(m);
}

size_t dev_mem_bytes(const struct dev_mem *m)
{
    return m->bytes;
}

int dev_check_fits(size_t pool, size_t kept, size_t ws, int64_t batch, bool trains,
                   struct sh_err *err)
{
    if (kept <= pool && ws <= pool - SH_ALIGN_UP(kept, DEV_BLOCK))
        return SH_OK;
    return SH_FAIL(err, SH_E_TOOBIG,
                   "%s %zu MiB of device memory for %s and %zu MiB for a batch of %" PRId64
                   ", the pool has %zu MiB; lower %s or raise pool-bytes",
                   trains ? "training needs" : "the model needs", kept >> 20,
                   trains ? "its state" : "weights", ws >> 20, batch, pool >> 20,
                   trains ? "the batch" : "max_batch");
}

size_t dev_mem_device_bytes(const struct dev_mem *m)
{
    return m->device_bytes;
}

const char *dev_mem_device_name(const struct dev_mem *m)
{
    return m->device_name;
}

const char *dev_mem_pci_bus_id(const struct dev_mem *m)
{
    return m->pci_bus_id;
}

int dev_mem_export(const struct dev_mem *m, int fds[static DEV_MAX_FDS], size_t *n_fds,
                   struct sh_err *err)
{
    return m->ops->mem->export_fds(m, fds, n_fds, err);
}

int dev_mem_host_lock(struct dev_mem *m, void *base, size_t bytes, struct sh_err *err)
{
    if (!base || bytes == 0)
        return SH_FAIL(err, SH_E_BUG, "no host memory to lock");
    return m->ops->mem->host_lock ? m->ops->mem->host_lock(m, base, bytes, err) : SH_OK;
}

void dev_mem_host_unlock(struct dev_mem *m, void *base)
{
    if (m->ops->mem->host_unlock && base)
        m->ops->mem->host_unlock(m, base);
}

int dev_mem_copy(struct dev_mem *m, uint32_t lane, enum dev_dir dir, size_t arena_off, void *host,
                 size_t bytes, struct sh_err *err)
{
    int rc = check_lane(m, lane, err);

    if (!rc)
        rc = check_range(arena_off, bytes, m->bytes, "copy", err);
    if (!rc && (!host || (dir != DEV_H2D && dir != DEV_D2H)))
        rc = SH_FAIL(err, SH_E_BUG, "copy without host memory or direction");
    return rc ? rc : m->ops->mem->copy(m, lane, dir, arena_off, host, bytes, err);
}

int dev_mem_move(struct dev_mem *m, uint32_t lane, size_t dst_off, size_t src_off, size_t bytes,
                 struct sh_err *err)
{
    int rc = check_lane(m, lane, err);

    if (!rc)
        rc = check_range(dst_off, bytes, m->bytes, "move", err);
    if (!rc)
        rc = check_range(src_off, bytes, m->bytes, "move", err);
    return rc ? rc : m->ops->mem->move(m, lane, dst_off, src_off, bytes, err);
}

int dev_mem_zero(struct dev_mem *m, uint32_t lane, size_t off, size_t bytes, struct sh_err *err)
{
    int rc = check_lane(m, lane, err);

    if (!rc)
        rc = check_range(off, bytes, m->bytes, "scrub", err);
    return rc ? rc : m->ops->mem->zero(m, lane, off, bytes, err);
}

int dev_mem_ticket(struct dev_mem *m, uint32_t lane, uint32_t slot, uint32_t value,
                   struct sh_err *err)
{
    int rc = check_lane(m, lane, err);

    if (!rc && slot >= DEV_N_TICKETS)
        rc = SH_FAIL(err, SH_E_BUG, "ticket %u does not exist, there are %u", slot, DEV_N_TICKETS);
    return rc ? rc : m->ops->mem->ticket(m, lane, slot, value, err);
}

int dev_mem_follow(struct dev_mem *m, uint32_t lane, uint32_t after, struct sh_err *err)
{
    int rc = check_lane(m, lane, err);

    if (!rc)
        rc = check_lane(m, after, err);
    if (!rc && (lane == after || !m->ops->mem->follow))
        rc = SH_FAIL(err, SH_E_BUG, "lane %u cannot follow lane %u", lane, after);
    return rc ? rc : m->ops->mem->follow(m, lane, after, err);
}

int dev_mem_mark(struct dev_mem *m, uint32_t lane, uint64_t cookie, struct sh_err *err)
{
    int rc = check_lane(m, lane, err);

    return rc ? rc : m->ops->mem->mark(m, lane, cookie, err);
}

int dev_mem_event_fd(const struct dev_mem *m)
{
    return m->ops->mem->event_fd(m);
}

bool dev_mem_next_mark(struct dev_mem *m, uint64_t *cookie)
{
    return m->ops->mem->next_mark(m, cookie);
}

void dev_ticket_force(struct dev_mem *m, uint32_t slot, uint32_t value)
{
    if (slot < DEV_N_TICKETS)
        m->ops->mem->ticket_force(m, slot, value);
}

uint32_t dev_ticket_value(const struct dev_mem *m, uint32_t slot)
{
    return slot < DEV_N_TICKETS ? m->ops->mem->ticket_value(m, slot) : 0;
}

/* ------------------------------------------------------------------ compute face */

int dev_open(const struct dev_lib *l, const struct dev_conf *c, struct dev **out,
             struct sh_err *err)
{
    int rc;

    *out = NULL;
    if (c->arena_bytes == 0 || c->n_fds > DEV_MAX_FDS || (c->n_fds > 0 && !c->fds))
        return SH_FAIL(err, SH_E_BUG, "arena of %zu bytes with %zu descriptors", c->arena_bytes,
                       c->n_fds);
    rc = l->ops->stream->open(c, out, err);
    if (!rc)
        (*out)->ops = l->ops;
    return rc;
}

void dev_close(struct dev *d)
{
    if (d)
        d->ops->stream->close(d);
}

int dev_remap(struct dev *d, const int *fds, size_t n_fds, struct sh_err *err)
{
    if (n_fds == 0 || n_fds > DEV_MAX_FDS)
        return SH_FAIL(err, SH_E_BUG, "an arena with %zu descriptors", n_fds);
    if (!d->ops->stream->remap)
        return SH_FAIL(err, SH_E_UNSUPPORTED, "the %s device cannot map its arena anew",
                       d->ops->name);
    return d->ops->stream->remap(d, fds, n_fds, err);
}

int dev_own_memory(struct dev *d, size_t bytes, struct sh_err *err)
{
    int rc = d->ops->stream->own_memory(d, bytes, err);

    if (rc)
        return rc;
    if (!d->shared_bytes)
        d->shared_bytes = d->arena_bytes;
    d->arena_bytes = bytes ? bytes : d->shared_bytes;
    return SH_OK;
}

int dev_task(struct dev *d, const struct dev_reach *ranges, size_t n, struct sh_err *err)
{
    const size_t all = d->shared_bytes ? d->shared_bytes : d->arena_bytes;

    if (n > DEV_MAX_TASK)
        return SH_FAIL(err, SH_E_BUG, "a task with %zu ranges, at most %d", n, DEV_MAX_TASK);
    for (size_t i = 0; i < n; i++)
        if (ranges[i].off > all || ranges[i].bytes > all - ranges[i].off ||
            ranges[i].off % DEV_PAGE)
            return SH_FAIL(err, SH_E_BUG, "a task's range of %zu bytes at %zu, in an arena of %zu",
                           ranges[i].bytes, ranges[i].off, all);
    return d->ops->stream->task ? d->ops->stream->task(d, ranges, n, err) : SH_OK;
}

bool dev_is_queued(const struct dev *d)
{
    return d->ops->is_queued;
}

int dev_host_lock(struct dev *d, void *base, size_t bytes, struct sh_err *err)
{
    if (!base || bytes == 0)
        return SH_FAIL(err, SH_E_BUG, "no host memory to lock");
    return d->ops->stream->host_lock ? d->ops->stream->host_lock(d, base, bytes, err) : SH_OK;
}

void dev_host_unlock(struct dev *d, void *base)
{
    if (d->ops->stream->host_unlock && base)
        d->ops->stream->host_unlock(d, base);
}

int dev_upload(struct dev *d, size_t arena_off, const void *host, size_t bytes, struct sh_err *err)
{
    int rc = check_range(arena_off, bytes, d->arena_bytes, "upload", err);

    return rc ? rc : d->ops->stream->upload(d, arena_off, host, bytes, err);
}

int dev_fetch(struct dev *d, size_t arena_off, const void *host, size_t bytes, struct sh_err *err)
{
    int rc = check_range(arena_off, bytes, d->arena_bytes, "fetch", err);

    if (rc)
        return rc;
    return d->ops->stream->fetch ? d->ops->stream->fetch(d, arena_off, host, bytes, err)
                                 : d->ops->stream->upload(d, arena_off, host, bytes, err);
}

int dev_download(struct dev *d, void *host, size_t arena_off, size_t bytes, struct sh_err *err)
{
    int rc = check_range(arena_off, bytes, d->arena_bytes, "download", err);

    return rc ? rc : d->ops->stream->download(d, host, arena_off, bytes, err);
}

int dev_fill(struct dev *d, size_t arena_off, int byte, size_t bytes, struct sh_err *err)
{
    int rc = check_range(arena_off, bytes, d->arena_bytes, "fill", err);

    return rc ? rc : d->ops->stream->fill(d, arena_off, byte, bytes, err);
}

int dev_move(struct dev *d, size_t dst_off, size_t src_off, size_t bytes, struct sh_err *err)
{
    int rc = check_range(dst_off, bytes, d->arena_bytes, "move", err);

    if (!rc)
        rc = check_range(src_off, bytes, d->arena_bytes, "move", err);
    if (!rc && bytes > 0 && dst_off < src_off + bytes && src_off < dst_off + bytes)
        rc = SH_FAIL(err, SH_E_BUG, "move of %zu bytes from %zu to %zu overlaps itself", bytes,
                     src_off, dst_off);
    return rc ? rc : d->ops->stream->move(d, dst_off, src_off, bytes, err);
}

bool dev_can_unpack(const struct dev *d)
{
    return d->ops->stream->unpack != NULL;
}

int dev_unpack(struct dev *d, const struct dev_packed *layers, size_t n, struct sh_err *err)
{
    int rc = SH_OK;

    if (!dev_can_unpack(d))
        return SH_FAIL(err, SH_E_UNSUPPORTED, "the device cannot unpack weights");
    for (size_t i = 0; !rc && i < n; i++) {
        const struct dev_packed *l = &layers[i];

        rc = check_range(l->at, l->packed_bytes, d->arena_bytes, "unpacking", err);
        if (!rc)
            rc = check_range(l->to, l->bytes, d->arena_bytes, "unpacking", err);
        if (!rc && (l->at % PACK_ALIGN || l->packed_bytes % PACK_ALIGN || l->to % DEV_ALIGN ||
                    (l->at < l->to + l->bytes && l->to < l->at + l->packed_bytes)))
            rc = SH_FAIL(err, SH_E_BUG, "a layer cannot be unpacked from %zu to %zu", l->at, l->to);
    }
    return rc || n == 0 ? rc : d->ops->stream->unpack(d, layers, n, err);
}

bool dev_take_damage(struct dev *d)
{
    return d->ops->stream->take_damage && d->ops->stream->take_damage(d);
}

int dev_prefetch(struct dev *d, size_t arena_off, const void *host, size_t bytes,
                 struct sh_err *err)
{
    int rc = check_range(arena_off, bytes, d->arena_bytes, "prefetch", err);

    if (rc)
        return rc;
    return d->ops->stream->prefetch ? d->ops->stream->prefetch(d, arena_off, host, bytes, err)
                                    : d->ops->stream->upload(d, arena_off, host, bytes, err);
}

int dev_prefetch_fence(struct dev *d, struct sh_err *err)
{
    return d->ops->stream->prefetch_fence ? d->ops->stream->prefetch_fence(d, err) : SH_OK;
}

int dev_prefetch_join(struct dev *d, struct sh_err *err)
{
    return d->ops->stream->prefetch_join ? d->ops->stream->prefetch_join(d, err) : SH_OK;
}

int dev_wait(struct dev *d, uint32_t slot, uint32_t value, int64_t timeout_ms, struct sh_err *err)
{
    if (slot >= DEV_N_TICKETS || timeout_ms < 0)
        return SH_FAIL(err, SH_E_BUG, "wait for ticket %u of %u", slot, DEV_N_TICKETS);
    return d->ops->stream->wait(d, slot, value, timeout_ms, err);
}

bool dev_has_ticket(const struct dev *d, uint32_t slot, uint32_t value)
{
    return slot < DEV_N_TICKETS && d->ops->stream->has_ticket(d, slot, value);
}

int dev_sync(struct dev *d, struct sh_err *err)
{
    return d->ops->stream->sync(d, err);
}

int dev_mark(struct dev *d, struct sh_err *err)
{
    return d->ops->stream->mark ? d->ops->stream->mark(d, err) : SH_OK;
}

int dev_sync_mark(struct dev *d, struct sh_err *err)
{
    return d->ops->stream->sync_mark ? d->ops->stream->sync_mark(d, err)
                                     : d->ops->stream->sync(d, err);
}

int dev_throttle(struct dev *d, uint32_t n, struct sh_err *err)
{
    return d->ops->stream->throttle ? d->ops->stream->throttle(d, n, err) : SH_OK;
}

int dev_plan_new(struct dev *d, struct dev_graph *g, enum dev_precision p,
                 const struct dev_plan *layout_of, struct dev_plan **out, struct sh_err *err)
{
    int rc = SH_OK;

    *out = NULL;
    for (uint32_t i = 0; i < g->n_tensors && !rc; i++)
        rc = dev__check_tensor(g, i, err);
    for (uint32_t i = 0; i < g->n_ops && !rc; i++)
        rc = dev__check_op(g, i, err);
    if (!rc && layout_of && layout_of->dev->ops != d->ops)
        rc = SH_FAIL(err, SH_E_BUG, "layouts can only be shared on one kind of device");
    return rc ? rc : d->ops->plan->create(d, g, p, layout_of, out, err);
}

void dev_plan_free(struct dev_plan *p)
{
    if (p)
        p->dev->ops->plan->free(p);
}

struct dev *dev_plan_dev(const struct dev_plan *p)
{
    return p->dev;
}

size_t dev_plan_scratch_bytes(const struct dev_plan *p, uint32_t op)
{
    return op < p->g->n_ops ? p->dev->ops->plan->scratch_bytes(p, op) : 0;
}

void dev_plan_set_scratch(struct dev_plan *p, uint32_t op, size_t ws_offset)
{
    if (op < p->g->n_ops)
        p->dev->ops->plan->set_scratch(p, op, ws_offset);
}

size_t dev_plan_keep_bytes(const struct dev_plan *p)
{
    return p->dev->ops->plan->keep_bytes ? p->dev->ops->plan->keep_bytes(p) : 0;
}

void dev_plan_set_keep(struct dev_plan *p, size_t ws_offset)
{
    if (p->dev->ops->plan->set_keep)
        p->dev->ops->plan->set_keep(p, ws_offset);
}

int dev_plan_finish(struct dev_plan *p, struct sh_err *err)
{
    return p->dev->ops->plan->finish(p, err);
}

static int check_pack(const struct dev_plan *p, uint32_t tensor, const void *a, const void *b,
                      struct sh_err *err)
{
    if (tensor >= p->g->n_tensors || !a || !b)
        return SH_FAIL(err, SH_E_BUG, "no tensor %u to pack", tensor);
    return SH_OK;
}

int dev_plan_pack(struct dev_plan *p, uint32_t tensor, const void *plain, void *stored,
                  struct sh_err *err)
{
    int rc = check_pack(p, tensor, plain, stored, err);

    return rc ? rc : p->dev->ops->plan->pack(p, tensor, plain, stored, err);
}

int dev_plan_unpack(struct dev_plan *p, uint32_t tensor, const void *stored, void *plain,
                    struct sh_err *err)
{
    int rc = check_pack(p, tensor, plain, stored, err);

    return rc ? rc : p->dev->ops->plan->unpack(p, tensor, stored, plain, err);
}

int dev_plan_run(struct dev_plan *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                 struct sh_err *err)
{
    if (from > to || to > p->g->n_ops)
        return SH_FAIL(err, SH_E_BUG, "operations %u to %u of %u", from, to, p->g->n_ops);
    return p->dev->ops->plan->run(p, b, from, to, err);
}

void dev_identity(const struct dev *d, char *out, size_t size)
{
    char text[256] = "";
    int n;

    out[0] = '\0';
    if (!d->ops->stream->identity || !d->ops->stream->identity(d, text, sizeof(text)))
        return;
    n = snprintf(out, size, "%s abi=%u %s", d->ops->name, DEV_ABI, text);
    if (n < 0 || (size_t)n >= size)
        out[0] = '\0';
}

int dev_plan_warm(struct dev_plan *p, double *ns, struct sh_err *err)
{
    int rc;

    for (uint32_t i = 0; ns && i < p->g->n_ops; i++)
        ns[i] = 0;
    if (!p->dev->ops->plan->warm)
        return SH_OK;
    p->replay = DEV_REPLAY_NONE;
    rc = p->dev->ops->plan->warm(p, ns, err);
    p->dev->n_replay[p->replay]++;
    return rc;
}

enum dev_replay dev_plan_replay(const struct dev_plan *p)
{
    return p->replay;
}

const char *dev_replay_name(enum dev_replay r)
{
    static const char *const NAMES[DEV_N_REPLAYS] = {
#define X(name, text) [DEV_REPLAY_##name] = text,
        DEV_REPLAY_MAP(X)
#undef X
    };

    return NAMES[r];
}

uint32_t dev_n_replay(const struct dev *d, enum dev_replay r)
{
    return d->n_replay[r];
}

int dev_plan_prepare(struct dev_plan *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                     struct sh_err *err)
{
    return p->dev->ops->plan->prepare ? p->dev->ops->plan->prepare(p, b, from, to, err) : SH_OK;
}

uint32_t dev_n_prepared(const struct dev *d)
{
    return d->prepared.n;
}

int dev_plan_profile(struct dev_plan *p, const struct dev_bases *b, uint32_t repeat, double *ns,
                     struct sh_err *err)
{
    if (repeat == 0 || !ns)
        return SH_FAIL(err, SH_E_BUG, "profile needs at least one run");
    return p->dev->ops->plan->profile(p, b, repeat, ns, err);
}
