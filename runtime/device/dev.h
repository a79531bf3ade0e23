/* dev.h - the contract between Shunt and a device back end; the only way to a device.
 *
 * A back end is a shared object, lib/shunt-dev-<kind>.so, with the tables of backend.h. Two faces:
 *
 *   memory face   used by the executor: the arena, copies on lanes, tickets, scrubbing
 *   compute face  used by a worker: import the arena, prepare plans, run them, wait for tickets
 *
 * The arena is one range of device memory, divided into DEV_BLOCK blocks. Messages and calls carry
 * offsets into it, never pointers. Tickets are 32-bit words in a page that both faces see. The
 * memory face writes a value after the copies enqueued before it on the same lane; the compute face
 * enqueues a wait until word >= value (cyclic: (int32_t)(word - value) >= 0). Words only ever grow.
 *
 * Threads    One dev_mem, dev or dev_plan belongs to ONE thread, except for dev_ticket_force().
 * Order      Calls marked [enqueue] return at once and take effect in the order of their lane or of
 * the
 *            dev's stream. Host memory passed to them is BORROWED until a later mark or sync.
 * Failure    SH_E_DEVMEM: nothing happened; SH_E_DEVLOST: the context is dead, only exiting the
 * process
 *            helps; SH_E_UNSUPPORTED: names the operation.
 *
 * Callers use the wrappers below, never the tables: dev.c checks arguments once, there.
 */
#ifndef SH_RUNTIME_DEVICE_DEV_H
#define SH_RUNTIME_DEVICE_DEV_H

#include "common/err.h"
#include "common/precision.h"
#include "runtime/device/op.h"
#include "runtime/device/prepared.h"

#define DEV_BLOCK ((size_t)2 << 20)
#define DEV_ALIGN 256u         /* bytes; of tensors inside an image, state or workspace */
#define DEV_PAGE 4096u         /* bytes; of what is protected apart from others (dev_task) */
#define DEV_TABLES_ALIGN 4096u /* of the first table in an image: a page of host memory */
#define DEV_MAX_FDS 4          /* most that dev_mem_export returns */
#define DEV_N_TICKETS 33024u
#define DEV_MAX_LANES 8

struct dev_lib; /* a loaded back end */
struct dev_mem; /* memory face */
struct dev;     /* compute face */
struct dev_plan;

enum dev_dir { DEV_H2D, DEV_D2H };

/* Loads a back end from ../lib beside the executable. kind: "cpu", "cuda". *out: OWNED,
 * dev_lib_close(). */
int dev_lib_open(const char *kind, struct dev_lib **out, struct sh_err *err);
void dev_lib_close(struct dev_lib *l);
const char *dev_spins(int64_t workers, int64_t threads); /* value for the environment of workers */
/* As dev_lib_open(), for a table that is linked in (tests). KEEPS ops. */
struct dev_ops;
int dev_lib_wrap(const struct dev_ops *ops, struct dev_lib **out, struct sh_err *err);

/* ------------------------------------------------------------------ memory face */

struct dev_mem_conf {
    uint32_t ordinal;
    size_t pool_bytes;      /* rounded down to whole blocks */
    double copy_gb_per_s;   /* cpu: slows copies to this rate, 0: as fast as memory */
    double copy_latency_us; /* cpu: fixed cost of one copy */
    uint32_t n_lanes;       /* 1 .. DEV_MAX_LANES; lane n_lanes-1 is for device-to-host */
    /* By which link each lane copies; 0: the device's own. Lanes of one link share its rate, links
     * have theirs beside each other: measure a lane of each. */
    uint8_t links[DEV_MAX_LANES];
};
/* Fails: SH_E_UNSUPPORTED: the device has no other links than its own. */
int dev_mem_open(const struct dev_lib *l, const struct dev_mem_conf *c, struct dev_mem **out,
                 struct sh_err *err);
uint32_t dev_mem_n_links(const struct dev_mem *m); /* 1 + the largest of conf.links */
bool dev_mem_is_queued(const struct dev_mem *m);   /* false: its memory is the host's */
void dev_mem_close(struct dev_mem *m);             /* waits for enqueued work (at most 5 s) */
size_t dev_mem_bytes(const struct dev_mem *m);
/* Has a pool room for the weights of a model, or for the state of training (trains), beside the
 * workspace of a batch? Fails: SH_E_TOOBIG, with all sizes and what to do. */
int dev_check_fits(size_t pool, size_t kept, size_t ws, int64_t batch, bool trains,
                   struct sh_err *err);
/* Including what others use; 0: unknown. */
size_t dev_mem_device_bytes(const struct dev_mem *m);
const char *dev_mem_device_name(const struct dev_mem *m); /* BORROWED; "": unknown */
const char *dev_mem_pci_bus_id(const struct dev_mem *m);  /* BORROWED; "": unknown, or none */
/* Descriptors that a worker needs for dev_open; BORROWED until close. */
int dev_mem_export(const struct dev_mem *m, int fds[static DEV_MAX_FDS], size_t *n_fds,
                   struct sh_err *err);
/* Page-locks host memory for copies. Off the path: while the driver locks pages (of 240 MiB for 11
 * ms on an H200), no thread of the process can enqueue anything. */
int dev_mem_host_lock(struct dev_mem *m, void *base, size_t bytes, struct sh_err *err);
void dev_mem_host_unlock(struct dev_mem *m, void *base);
/* The same piece by piece, for who does something else in between: *locked, 0 at first, counts the
 * bytes from base on that are locked, and each call adds a piece, or takes the last one away.
 * Copies may cross their borders, and that of what is locked so far. */
int dev_mem_host_lock_next(struct dev_mem *m, void *base, size_t bytes, size_t *locked,
                           struct sh_err *err);
void dev_mem_host_unlock_last(struct dev_mem *m, void *base, size_t *locked);
static inline void dev_mem_host_unlock_all(struct dev_mem *m, void *base, size_t *locked)
{
    while (*locked)
        dev_mem_host_unlock_last(m, base, locked);
}
int dev_mem_copy(struct dev_mem *m, uint32_t lane, enum dev_dir dir, size_t arena_off, void *host,
                 size_t bytes, struct sh_err *err); /* [enqueue] */
int dev_mem_move(struct dev_mem *m, uint32_t lane, size_t dst_off, size_t src_off, size_t bytes,
                 struct sh_err *err); /* [enqueue] within the arena, may overlap */
int dev_mem_zero(struct dev_mem *m, uint32_t lane, size_t off, size_t bytes,
                 struct sh_err *err); /* [enqueue] scrub */
int dev_mem_ticket(struct dev_mem *m, uint32_t lane, uint32_t slot, uint32_t value,
                   struct sh_err *err); /* [enqueue] */
/* What `lane` gets from now on begins when all that `after` has got so far is done: two lanes have
 * no order otherwise. Only where the device has other links. */
int dev_mem_follow(struct dev_mem *m, uint32_t lane, uint32_t after,
                   struct sh_err *err); /* [enqueue] */
/* Copies a little on lane 0, between memory of the device object's own. What a driver needs to
 * enqueue a copy leaves the processor's caches after a while, and the next copy takes ten times as
 * long: call this now and then while the lane has nothing to do. */
int dev_mem_rehearse(struct dev_mem *m, struct sh_err *err); /* [enqueue] */
/* Once everything enqueued on the lane so far is done, dev_mem_next_mark() returns `cookie`. */
int dev_mem_mark(struct dev_mem *m, uint32_t lane, uint64_t cookie,
                 struct sh_err *err);          /* [enqueue] */
int dev_mem_event_fd(const struct dev_mem *m); /* readable when there are marks */
bool dev_mem_next_mark(struct dev_mem *m, uint64_t *cookie);
/* Any thread: raises a ticket to `value` at once, from the CPU. The watchdog frees waiters with
 * it. */
void dev_ticket_force(struct dev_mem *m, uint32_t slot, uint32_t value);
uint32_t dev_ticket_value(const struct dev_mem *m, uint32_t slot);
/* Cost of a copy = alpha_ns + bytes * beta_ns (least squares over several sizes). Blocks < 1 s. At
 * start only: fails with SH_E_CONFLICT while other marks are out. Keeps the arena's contents. */
int dev_mem_measure(struct dev_mem *m, uint32_t lane, double *alpha_ns, double *beta_ns,
                    struct sh_err *err);

/* ------------------------------------------------------------------ compute face */

struct dev_conf {
    uint32_t ordinal;
    uint32_t threads; /* cpu: threads of one worker; 0: all cores */
    size_t arena_bytes;
    const int *fds; /* BORROWED during the call, from dev_mem_export */
    size_t n_fds;   /* 0: a private arena of arena_bytes, for shunt-run and tests */
    bool deterministic;
    bool verify_launches;  /* dev_plan_replay() */
    const char *tune_path; /* BORROWED during the call. File shared by the workers of a device, with
                              the fastest kernels measured. NULL: choose without measuring */
};
int dev_open(const struct dev_lib *l, const struct dev_conf *c, struct dev **out,
             struct sh_err *err);
void dev_close(struct dev *d);
/* Everything that images depend on; "". */
void dev_identity(const struct dev *d, char *out, size_t size);
/* Other memory for a dev with a shared arena. Nothing may be enqueued. Fail: SH_E_DEVMEM: the dev
 * is unchanged; remap: SH_E_UNSUPPORTED.
 * remap: maps the arena of these descriptors, which it has, again, to measure what mapping once
 * saves; the old mapping is removed
 * own_memory: offsets then refer to `bytes` of its own zeroed memory; 0: back to the arena */
int dev_remap(struct dev *d, const int *fds, size_t n_fds, struct sh_err *err);
int dev_own_memory(struct dev *d, size_t bytes, struct sh_err *err);
struct dev_reach {     /* a range of the arena */
    size_t off, bytes; /* off: a multiple of DEV_PAGE */
    bool is_written;
};
#define DEV_MAX_TASK 4
/* Names what the following calls use of a shared arena. If the device supports it, access to other
 * parts, or a write to a read-only part, ends the process. Ranges do not overlap; nothing may be
 * enqueued. Before the first call everything is accessible. Where pages of memory are larger than
 * DEV_PAGE, one that two ranges share is as the first has it. Guards against mistakes: the process
 * can undo it. */
int dev_task(struct dev *d, const struct dev_reach *ranges, size_t n, struct sh_err *err);
bool dev_is_queued(const struct dev *d); /* [enqueue]: calls return before the device is done */

/* Page-locks host memory that uploads and downloads use often; for speed only. */
int dev_host_lock(struct dev *d, void *base, size_t bytes, struct sh_err *err);
void dev_host_unlock(struct dev *d, void *base);
/* [enqueue]; host memory BORROWED until dev_sync. */
int dev_upload(struct dev *d, size_t arena_off, const void *host, size_t bytes, struct sh_err *err);
/* [enqueue] as dev_upload, but the compute units read the memory: an upload would wait behind whole
 * copies that other processes have given to the device. Memory that is not page-locked is
 * uploaded. */
int dev_fetch(struct dev *d, size_t arena_off, const void *host, size_t bytes, struct sh_err *err);
int dev_download(struct dev *d, void *host, size_t arena_off, size_t bytes, struct sh_err *err);
int dev_fill(struct dev *d, size_t arena_off, int byte, size_t bytes, struct sh_err *err);
int dev_move(struct dev *d, size_t dst_off, size_t src_off, size_t bytes,
             struct sh_err *err); /* within the arena; no overlap */
struct dev_packed { /* a layer that came packed (runtime/pack/pack.h); offsets in the arena */
    size_t at, packed_bytes; /* multiples of PACK_ALIGN */
    size_t to, bytes;        /* to: a multiple of DEV_ALIGN */
};
bool dev_can_unpack(const struct dev *d);
/* [enqueue] Unpacks layers, as if one after the other; a layer may be written over those that are
 * unpacked by then. Where one is not as it was packed, what is in its place then means nothing, and
 * this call fails, or each dev_sync until dev_take_damage(): SH_E_IO, which others may be too. */
int dev_unpack(struct dev *d, const struct dev_packed *layers, size_t n, struct sh_err *err);
/* After dev_sync: was something not as it was packed? That is told once. */
bool dev_take_damage(struct dev *d);
/* Can operations read host memory by themselves? Blocks the first time: it is tried with a page. */
bool dev_can_reach_host(struct dev *d);
/* Lets them read a mapping, which need not be writable, until dev_leave_host(). Page-locks it:
 * blocks, off the path. *out: what it is called in dev_bases; BORROWED. Fails: SH_E_UNSUPPORTED,
 * SH_E_NOMEM. */
int dev_reach_host(struct dev *d, const void *base, size_t bytes, const void **out,
                   struct sh_err *err);
void dev_leave_host(struct dev *d, const void *base); /* nothing that reads it is enqueued */
/* [enqueue] Uploads that travel while the stream computes, on a second stream; only these two calls
 * order the streams:
 * fence: later prefetches come after all that the stream holds now
 * join: what the stream gets later comes after all prefetches so far */
int dev_prefetch(struct dev *d, size_t arena_off, const void *host, size_t bytes,
                 struct sh_err *err);
int dev_prefetch_fence(struct dev *d, struct sh_err *err);
int dev_prefetch_join(struct dev *d, struct sh_err *err);
/* [enqueue] nothing enqueued later starts before the ticket. cpu: blocks; SH_E_TIMEOUT after
 * timeout_ms. */
int dev_wait(struct dev *d, uint32_t slot, uint32_t value, int64_t timeout_ms, struct sh_err *err);
/* Has the ticket come? For a host that may also stop waiting for another reason. */
bool dev_has_ticket(const struct dev *d, uint32_t slot, uint32_t value);
int dev_sync(struct dev *d, struct sh_err *err); /* including prefetches; SH_E_IO: dev_unpack */
/* [enqueue] marks this place of the stream; the last mark counts. */
int dev_mark(struct dev *d, struct sh_err *err);
/* Waits for everything before the mark, downloads included, but not for what came after it. */
int dev_sync_mark(struct dev *d, struct sh_err *err);
/* Waits until at most `n` operations are queued. cpu: returns at once (nothing is ever queued). */
int dev_throttle(struct dev *d, uint32_t n, struct sh_err *err);

/* Chooses how each tensor is stored and which kernels run; sets `bytes` and `stored` of every
 * tensor of g, and `alias_of` of those that an operation need not write: their bytes are those of
 * its operand.
 * Deterministic: two processes with the same arguments choose the same. g: BORROWED for the life of
 * the plan. layout_of: NULL, or a plan of the same model at another batch size with whose stored
 * weight layouts this one must agree (one image serves all batch sizes).
 * Fails: SH_E_UNSUPPORTED, naming operation and node. */
int dev_plan_new(struct dev *d, struct dev_graph *g, enum dev_precision p,
                 const struct dev_plan *layout_of, struct dev_plan **out, struct sh_err *err);
void dev_plan_free(struct dev_plan *p);
struct dev *dev_plan_dev(const struct dev_plan *p); /* for which it was made */
/* Private scratch of operation `op` in the workspace, bytes, and where the planner put it. */
size_t dev_plan_scratch_bytes(const struct dev_plan *p, uint32_t op);
void dev_plan_set_scratch(struct dev_plan *p, uint32_t op, size_t ws_offset);
/* Private bytes in the workspace for the whole run, and where they are. */
size_t dev_plan_keep_bytes(const struct dev_plan *p);
void dev_plan_set_keep(struct dev_plan *p, size_t ws_offset);
/* After all offsets are set: creates what depends on them. */
int dev_plan_finish(struct dev_plan *p, struct sh_err *err);
/* Convert host memory: logical row-major F32 (or the tensor's dtype if not floating) <-> stored
 * bytes. */
int dev_plan_pack(struct dev_plan *p, uint32_t tensor, const void *plain, void *stored,
                  struct sh_err *err);
int dev_plan_unpack(struct dev_plan *p, uint32_t tensor, const void *stored, void *plain,
                    struct sh_err *err);

struct dev_bases { /* arena offsets */
    size_t image, state, workspace, tables;
    const void *host_tables; /* NULL, or where the tables are instead: dev_reach_host() ... */
    size_t host_bytes;       /* ... which can read so much there */
    int64_t step;            /* training: number of committed steps; for dropout */
    struct dev_turn turn;
};
/* [enqueue] Runs operations [from, to). A run begins at 0; a later call that continues it must have
 * the same bases, unless the executor moved all the bytes. */
int dev_plan_run(struct dev_plan *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                 struct sh_err *err);
/* Blocks; off the path. Runs the plan on made-up data, in its own memory and not in the arena, so
 * that everything loaded at first use is there when a request comes. ns: NULL, or time of each
 * operation, f64[n_ops]; 0: unknown. Fails: SH_E_DEVMEM: the device has no such memory left; the
 * plan can still be used. */
int dev_plan_warm(struct dev_plan *p, double *ns, struct sh_err *err);
/* Recorded launches that a warmed plan repeats instead of asking for them each time (dev_conf).
 * If the device verifies them, they were compared with those of a run without records, and after
 * any difference none is repeated. */
#define DEV_REPLAY_MAP(X)                                                                     \
    X(NONE, "none")         /* no records: not wanted, not warmed up, or the device cannot */ \
    X(TRUSTED, "trusted")   /* repeated without a comparison */                               \
    X(VERIFIED, "verified") /* the same launches elsewhere, and the same results */           \
    X(UNSTEADY, "unsteady") /* the same launches; results differ without records too */       \
    X(LAUNCHES, "launches") /* off: other launches elsewhere */                               \
    X(RESULTS, "results")   /* off: other results */
enum dev_replay {
#define X(name, text) DEV_REPLAY_##name,
    DEV_REPLAY_MAP(X)
#undef X
        DEV_N_REPLAYS
};
enum dev_replay dev_plan_replay(const struct dev_plan *p);
const char *dev_replay_name(enum dev_replay r);
/* How many times dev_plan_warm() of a plan ended so. */
uint32_t dev_n_replay(const struct dev *d, enum dev_replay r);
/* Blocks; off the path. Makes later calls with these arguments cheap, if it can (prepared.h). */
int dev_plan_prepare(struct dev_plan *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                     struct sh_err *err);
uint32_t dev_n_prepared(const struct dev *d); /* ranges prepared now, of all plans */
/* Blocking: best of `repeat` runs of each operation, nanoseconds into ns[n_ops]. */
int dev_plan_profile(struct dev_plan *p, const struct dev_bases *b, uint32_t repeat, double *ns,
                     struct sh_err *err);

#endif
