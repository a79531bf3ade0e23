/* dev.h - the contract between Shunt and a device back end; the only way to a device.
 *
 * A back end is a shared object, lib/shunt-dev-<kind>.so, with the tables of backend.h. Two faces:
 *
 *   memory face   used by the executor: the arena, copies on lanes, tickets, scrubbing
 *   compute face  used by a worker: import the arena, prepare plans, run them, wait for tickets
 *
 * The arena is one range of device memory, cut into DEV_BLOCK blocks. Messages and calls carry
 * offsets into it, never pointers. Tickets are 32-bit words in a page that both faces see: the
 * memory face writes a value after the copies enqueued before it on the same lane, the compute face
 * enqueues a wait until word >= value (cyclic: (int32_t)(word - value) >= 0). Words only ever grow.
 *
 * Threads    One dev_mem, dev or dev_plan belongs to ONE thread, except dev_ticket_force().
 * Order      Calls marked [enqueue] return at once and take effect in order of their lane or of the
 *            dev's stream. Host memory handed to them is BORROWED until a later mark or sync.
 * Failure    SH_E_DEVMEM: nothing happened; SH_E_DEVLOST: the context is dead, only exiting the
 *            process helps; SH_E_UNSUPPORTED: names the operation.
 * Callers use the wrappers below, never the table: checks live there, once (dev.c).
 */
#ifndef SH_RUNTIME_DEVICE_DEV_H
#define SH_RUNTIME_DEVICE_DEV_H

#include "common/err.h"
#include "common/precision.h"
#include "runtime/device/op.h"
#include "runtime/device/prepared.h"

#define DEV_BLOCK ((size_t)2 << 20)
#define DEV_ALIGN 256u /* of tensors inside an image, state or workspace */
#define DEV_MAX_FDS 4  /* what dev_mem_export gives */
#define DEV_N_TICKETS 1024u
#define DEV_MAX_LANES 8

struct dev_lib; /* a loaded back end */
struct dev_mem; /* memory face */
struct dev;     /* compute face */
struct dev_plan;

enum dev_dir { DEV_H2D, DEV_D2H };

/* kind: "cpu", "cuda", "fake". Looks beside the executable: ../lib. *out: OWNED,
 * dev_lib_close(). */
int dev_lib_open(const char *kind, struct dev_lib **out, struct sh_err *err);
void dev_lib_close(struct dev_lib *l);
const char *dev_spins(int64_t workers, int64_t threads); /* for the environment of workers */
/* The same for a table that is linked in (tests of the executor with the fake). KEEPS ops. */
struct dev_ops;
int dev_lib_wrap(const struct dev_ops *ops, struct dev_lib **out, struct sh_err *err);

/* ------------------------------------------------------------------ memory face */

struct dev_mem_conf {
    uint32_t ordinal;
    size_t pool_bytes;      /* rounded down to whole blocks */
    double copy_gb_per_s;   /* cpu: slows copies to this rate, 0 = as fast as memory */
    double copy_latency_us; /* cpu: fixed cost of one copy */
    uint32_t n_lanes;       /* 1 .. DEV_MAX_LANES; lane n_lanes-1 is meant for device-to-host */
};
int dev_mem_open(const struct dev_lib *l, const struct dev_mem_conf *c, struct dev_mem **out,
                 struct sh_err *err);
bool dev_mem_is_queued(const struct dev_mem *m); /* false where its memory is the host's */
void dev_mem_close(struct dev_mem *m);           /* waits for what is enqueued (at most 5 s) */
size_t dev_mem_bytes(const struct dev_mem *m);
/* Is there room in a pool for the weights of a model, or the state of training (trains), beside the
 * workspace of a batch? Fails: SH_E_TOOBIG, with all sizes and what to do. */
int dev_check_fits(size_t pool, size_t kept, size_t ws, int64_t batch, bool trains,
                   struct sh_err *err);
size_t dev_mem_device_bytes(const struct dev_mem *m);     /* with what others use; 0: not known */
const char *dev_mem_device_name(const struct dev_mem *m); /* BORROWED; "": not known */
/* Descriptors that a worker needs for dev_open; BORROWED until close. */
int dev_mem_export(const struct dev_mem *m, int fds[static DEV_MAX_FDS], size_t *n_fds,
                   struct sh_err *err);
/* Page-locks host memory that copies will use; once, off the path. */
int dev_mem_host_lock(struct dev_mem *m, void *base, size_t bytes, struct sh_err *err);
void dev_mem_host_unlock(struct dev_mem *m, void *base);
int dev_mem_copy(struct dev_mem *m, uint32_t lane, enum dev_dir dir, size_t arena_off, void *host,
                 size_t bytes, struct sh_err *err); /* [enqueue] */
int dev_mem_move(struct dev_mem *m, uint32_t lane, size_t dst_off, size_t src_off, size_t bytes,
                 struct sh_err *err); /* [enqueue] within the arena, may overlap */
int dev_mem_zero(struct dev_mem *m, uint32_t lane, size_t off, size_t bytes,
                 struct sh_err *err); /* [enqueue] scrub */
int dev_mem_ticket(struct dev_mem *m, uint32_t lane, uint32_t slot, uint32_t value,
                   struct sh_err *err); /* [enqueue] */
/* When everything enqueued on the lane so far is done, dev_mem_next_mark() gives `cookie`. */
int dev_mem_mark(struct dev_mem *m, uint32_t lane, uint64_t cookie,
                 struct sh_err *err);          /* [enqueue] */
int dev_mem_event_fd(const struct dev_mem *m); /* readable when marks are there */
bool dev_mem_next_mark(struct dev_mem *m, uint64_t *cookie);
/* Any thread: raises a ticket to `value` at once, from the CPU. How the watchdog frees a waiter. */
void dev_ticket_force(struct dev_mem *m, uint32_t slot, uint32_t value);
uint32_t dev_ticket_value(const struct dev_mem *m, uint32_t slot);
/* Cost of a copy = alpha_ns + bytes * beta_ns (least squares over sizes). Blocks < 1 s. At start
 * only: fails with SH_E_CONFLICT while marks of others are out. Keeps what is in the arena. */
int dev_mem_measure(struct dev_mem *m, uint32_t lane, double *alpha_ns, double *beta_ns,
                    struct sh_err *err);

/* ------------------------------------------------------------------ compute face */

struct dev_conf {
    uint32_t ordinal;
    uint32_t threads; /* cpu: threads of one worker; 0 = all cores */
    size_t arena_bytes;
    const int *fds; /* BORROWED during the call, from dev_mem_export */
    size_t n_fds;   /* 0: a private arena of arena_bytes, for shunt-run and tests */
    bool deterministic;
    const char *tune_path; /* BORROWED during the call. File shared by the workers of one device:
                              which kernels measured fastest. NULL: chosen without measuring */
};
int dev_open(const struct dev_lib *l, const struct dev_conf *c, struct dev **out,
             struct sh_err *err);
void dev_close(struct dev *d);
void dev_identity(const struct dev *d, char *out, size_t size); /* what images hang on; or "" */
/* Other memory for a dev with a shared arena. Nothing may be enqueued. Fail: SH_E_DEVMEM: the dev
 * is as it was; remap: SH_E_UNSUPPORTED.
 * remap: the arena of these descriptors, which it has, mapped anew, to measure what mapping it once
 * spares; the old mapping goes
 * own_memory: offsets mean zeroed memory of its own of `bytes`; 0: the arena again, that goes */
int dev_remap(struct dev *d, const int *fds, size_t n_fds, struct sh_err *err);
int dev_own_memory(struct dev *d, size_t bytes, struct sh_err *err);
struct dev_reach { /* a range of the arena */
    size_t off, bytes;
    bool is_written;
};
#define DEV_MAX_TASK 4
/* What the calls that follow touch of a shared arena: where the device permits, an access to other
 * parts, or a write to what is only read, ends the process. Ranges do not overlap; nothing may be
 * enqueued. All is in reach before the first call. For mistakes: the process can undo it. */
int dev_task(struct dev *d, const struct dev_reach *ranges, size_t n, struct sh_err *err);
bool dev_is_queued(const struct dev *d); /* [enqueue]: calls return before the device is done */

/* Page-locks host memory that uploads and downloads will use often; a wish, for speed. */
int dev_host_lock(struct dev *d, void *base, size_t bytes, struct sh_err *err);
void dev_host_unlock(struct dev *d, void *base);
/* [enqueue]; host memory BORROWED until dev_sync. */
int dev_upload(struct dev *d, size_t arena_off, const void *host, size_t bytes, struct sh_err *err);
/* [enqueue] as dev_upload, but the compute units read it: an upload waits behind the copies that
 * other processes have given the device, each of them whole. Memory that is not page-locked is
 * uploaded. */
int dev_fetch(struct dev *d, size_t arena_off, const void *host, size_t bytes, struct sh_err *err);
int dev_download(struct dev *d, void *host, size_t arena_off, size_t bytes, struct sh_err *err);
int dev_fill(struct dev *d, size_t arena_off, int byte, size_t bytes, struct sh_err *err);
int dev_move(struct dev *d, size_t dst_off, size_t src_off, size_t bytes,
             struct sh_err *err); /* within the arena, no overlap */
/* Uploads that travel while the stream computes: on a second stream, so nothing orders them with
 * the first but two calls. [enqueue]
 * fence: what is prefetched from now on comes after all that the stream holds now
 * join: what the stream gets from now on comes after all that has been prefetched */
int dev_prefetch(struct dev *d, size_t arena_off, const void *host, size_t bytes,
                 struct sh_err *err);
int dev_prefetch_fence(struct dev *d, struct sh_err *err);
int dev_prefetch_join(struct dev *d, struct sh_err *err);
/* [enqueue] nothing later starts before the ticket. cpu: blocks; SH_E_TIMEOUT after timeout_ms. */
int dev_wait(struct dev *d, uint32_t slot, uint32_t value, int64_t timeout_ms, struct sh_err *err);
/* Has the ticket come? For a wait of the host's that something else may end too. */
bool dev_has_ticket(const struct dev *d, uint32_t slot, uint32_t value);
int dev_sync(struct dev *d, struct sh_err *err); /* prefetches too */
/* [enqueue] notes this place of the stream; the last one counts. */
int dev_mark(struct dev *d, struct sh_err *err);
/* Waits for what lies before the mark, downloads included, and not for what was enqueued after. */
int dev_sync_mark(struct dev *d, struct sh_err *err);
/* Waits until at most `n` operations are queued. cpu: returns at once (nothing is ever queued). */
int dev_throttle(struct dev *d, uint32_t n, struct sh_err *err);

/* Chooses how each tensor is stored and which kernels run; fills `bytes` of every tensor of g.
 * Deterministic: two processes with the same arguments choose the same. g is BORROWED as long as
 * the plan lives. layout_of: NULL, or a plan of the same model at another batch size whose stored
 * weight layouts this one must share (one image serves all batch sizes).
 * Fails: SH_E_UNSUPPORTED naming operation and node. */
int dev_plan_new(struct dev *d, struct dev_graph *g, enum dev_precision p,
                 const struct dev_plan *layout_of, struct dev_plan **out, struct sh_err *err);
void dev_plan_free(struct dev_plan *p);
struct dev *dev_plan_dev(const struct dev_plan *p); /* which it was made for */
/* Private scratch that operation `op` needs in the workspace, and where the planner put it. */
size_t dev_plan_scratch_bytes(const struct dev_plan *p, uint32_t op);
void dev_plan_set_scratch(struct dev_plan *p, uint32_t op, size_t ws_offset);
/* Private bytes that live in the workspace through the whole run, and where they lie. */
size_t dev_plan_keep_bytes(const struct dev_plan *p);
void dev_plan_set_keep(struct dev_plan *p, size_t ws_offset);
/* After all offsets are set: creates what needs them. */
int dev_plan_finish(struct dev_plan *p, struct sh_err *err);
/* Host memory, logical row-major F32 (or the tensor's dtype if not floating) <-> stored bytes. */
int dev_plan_pack(struct dev_plan *p, uint32_t tensor, const void *plain, void *stored,
                  struct sh_err *err);
int dev_plan_unpack(struct dev_plan *p, uint32_t tensor, const void *stored, void *plain,
                    struct sh_err *err);

struct dev_bases { /* arena offsets */
    size_t image, state, workspace;
    int64_t step; /* training: number of committed steps; for dropout */
    struct dev_turn turn;
};
/* [enqueue] runs operations [from, to). A run begins at 0; what a later call continues must be at
 * the same bases, unless the executor moved all the bytes. */
int dev_plan_run(struct dev_plan *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                 struct sh_err *err);
/* Blocking, off the path: runs the plan on zeros, in memory of its own and not in the arena, so
 * that whatever is loaded at first use is there when a request comes. ns: NULL, or what each
 * operation took, f64[n_ops]; 0 where that is not known. Fails with SH_E_DEVMEM when the device has
 * no such memory left; the plan is as good as before. */
int dev_plan_warm(struct dev_plan *p, double *ns, struct sh_err *err);
/* Blocking, off the path: makes later calls with these arguments cheap, if it can (prepared.h). */
int dev_plan_prepare(struct dev_plan *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                     struct sh_err *err);
uint32_t dev_n_prepared(const struct dev *d); /* ranges that are prepared now, of all plans */
/* Blocking: best of `repeat` runs of each operation, nanoseconds into ns[n_ops]. */
int dev_plan_profile(struct dev_plan *p, const struct dev_bases *b, uint32_t repeat, double *ns,
                     struct sh_err *err);

#endif
