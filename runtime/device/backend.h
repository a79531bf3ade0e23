/* backend.h - what a back end provides: three small tables, and one that holds them. Callers use
 * the wrappers in dev.h, which document each call; nothing else reads the tables.
 *
 * A back end exports `const struct dev_ops shunt_dev_ops`. Its struct dev_mem, dev and dev_plan
 * have those of this header as their first member; the open wrappers set `ops`. The first calls of
 * each table are required. The later ones may be NULL, and the comment says what then happens.
 * dev.c checks both when it loads a back end.
 */
#ifndef SH_RUNTIME_DEVICE_BACKEND_H
#define SH_RUNTIME_DEVICE_BACKEND_H

#include "runtime/device/dev.h"

#define DEV_ABI (29000u + DEV_N_OPS) /* +1000 on ANY change of what is here, or of op.h */

struct dev_mem {
    const struct dev_ops *ops;
    size_t bytes;
    uint32_t n_lanes, n_links;
    char device_name[64]; /* product name; "": unknown */
    char pci_bus_id[32];  /* "": unknown, or none */
    size_t device_bytes;  /* all its memory; 0: unknown */
};
struct dev {
    const struct dev_ops *ops;
    size_t arena_bytes;
    size_t shared_bytes; /* size of the arena that dev_own_memory has replaced; 0: never */
    struct dev_prepared_all prepared;
    uint32_t n_replay[DEV_N_REPLAYS];                              /* counted by dev_plan_warm */
    enum { DEV_REACH_UNTRIED, DEV_REACH_YES, DEV_REACH_NO } reach; /* of dev_can_reach_host */
};
struct dev_plan {
    struct dev *dev;
    struct dev_graph *g;
    enum dev_replay replay; /* of the last dev_plan_warm */
};

struct dev_mem_ops { /* the memory face */
    int (*open)(const struct dev_mem_conf *, struct dev_mem **, struct sh_err *);
    void (*close)(struct dev_mem *);
    int (*export_fds)(const struct dev_mem *, int *fds, size_t *n_fds, struct sh_err *);
    int (*copy)(struct dev_mem *, uint32_t, enum dev_dir, size_t, void *, size_t, struct sh_err *);
    int (*move)(struct dev_mem *, uint32_t, size_t, size_t, size_t, struct sh_err *);
    int (*zero)(struct dev_mem *, uint32_t, size_t, size_t, struct sh_err *);
    int (*ticket)(struct dev_mem *, uint32_t, uint32_t, uint32_t, struct sh_err *);
    void (*ticket_force)(struct dev_mem *, uint32_t, uint32_t);
    uint32_t (*ticket_value)(const struct dev_mem *, uint32_t);
    int (*mark)(struct dev_mem *, uint32_t, uint64_t, struct sh_err *);
    int (*event_fd)(const struct dev_mem *);
    bool (*next_mark)(struct dev_mem *, uint64_t *);
    /* both or neither; NULL: memory is not locked */
    int (*host_lock)(struct dev_mem *, void *, size_t, struct sh_err *);
    void (*host_unlock)(struct dev_mem *, void *);
    /* NULL: a copy takes as long after a pause. */
    int (*rehearse)(struct dev_mem *, struct sh_err *);
    /* NULL: the device has one link. */
    int (*follow)(struct dev_mem *, uint32_t, uint32_t, struct sh_err *);
};

struct dev_stream_ops { /* the compute face: the device and its stream */
    int (*open)(const struct dev_conf *, struct dev **, struct sh_err *);
    void (*close)(struct dev *);
    int (*own_memory)(struct dev *, size_t bytes, struct sh_err *);
    int (*upload)(struct dev *, size_t, const void *, size_t, struct sh_err *);
    int (*download)(struct dev *, void *, size_t, size_t, struct sh_err *);
    int (*fill)(struct dev *, size_t, int, size_t, struct sh_err *);
    int (*move)(struct dev *, size_t, size_t, size_t, struct sh_err *);
    int (*wait)(struct dev *, uint32_t, uint32_t, int64_t, struct sh_err *);
    bool (*has_ticket)(const struct dev *, uint32_t, uint32_t);
    int (*sync)(struct dev *, struct sh_err *);
    bool (*identity)(const struct dev *, char *out, size_t size); /* false or NULL: unknown */
    /* NULL: not supported. */
    int (*remap)(struct dev *, const int *fds, size_t n_fds, struct sh_err *);
    /* NULL: no fence. */
    int (*task)(struct dev *, const struct dev_reach *, size_t, struct sh_err *);
    /* both or neither; NULL: not supported. Ranges are checked, and that `at` and `to` are
     * aligned. */
    int (*unpack)(struct dev *, const struct dev_packed *, size_t, struct sh_err *);
    bool (*take_damage)(struct dev *);
    /* both or neither; NULL: operations reach no host memory. reach: where they find it */
    int (*reach)(struct dev *, const void *, size_t, const void **, struct sh_err *);
    void (*leave)(struct dev *, const void *);
    /* NULL: an upload. */
    int (*fetch)(struct dev *, size_t, const void *, size_t, struct sh_err *);
    int (*throttle)(struct dev *, uint32_t, struct sh_err *); /* NULL: nothing is ever queued */
    /* both or neither; NULL: memory is not locked */
    int (*host_lock)(struct dev *, void *, size_t, struct sh_err *);
    void (*host_unlock)(struct dev *, void *);
    /* all three or none; NULL: an upload */
    int (*prefetch)(struct dev *, size_t, const void *, size_t, struct sh_err *);
    int (*prefetch_fence)(struct dev *, struct sh_err *);
    int (*prefetch_join)(struct dev *, struct sh_err *);
    /* both or neither; NULL: sync */
    int (*mark)(struct dev *, struct sh_err *);
    int (*sync_mark)(struct dev *, struct sh_err *);
};

struct dev_plan_ops { /* the compute face: plans */
    int (*create)(struct dev *, struct dev_graph *, enum dev_precision, const struct dev_plan *,
                  struct dev_plan **, struct sh_err *);
    void (*free)(struct dev_plan *);
    size_t (*scratch_bytes)(const struct dev_plan *, uint32_t);
    void (*set_scratch)(struct dev_plan *, uint32_t, size_t);
    int (*finish)(struct dev_plan *, struct sh_err *);
    int (*pack)(struct dev_plan *, uint32_t, const void *, void *, struct sh_err *);
    int (*unpack)(struct dev_plan *, uint32_t, const void *, void *, struct sh_err *);
    int (*run)(struct dev_plan *, const struct dev_bases *, uint32_t, uint32_t, struct sh_err *);
    int (*profile)(struct dev_plan *, const struct dev_bases *, uint32_t, double *,
                   struct sh_err *);
    int (*warm)(struct dev_plan *, double *, struct sh_err *); /* NULL: nothing to warm */
    int (*prepare)(struct dev_plan *, const struct dev_bases *, uint32_t, uint32_t,
                   struct sh_err *); /* NULL: nothing to prepare */
    /* both or neither; NULL: nothing is kept */
    size_t (*keep_bytes)(const struct dev_plan *);
    void (*set_keep)(struct dev_plan *, size_t);
};

struct dev_ops {
    uint32_t abi;
    const char *name;
    bool is_queued; /* dev_is_queued */
    const struct dev_mem_ops *mem;
    const struct dev_stream_ops *stream;
    const struct dev_plan_ops *plan;
};

int dev__check_tensor(const struct dev_graph *g, uint32_t i, struct sh_err *err);
int dev__check_op(const struct dev_graph *g, uint32_t i, struct sh_err *err);
int dev__check_quant(const struct dev_graph *g, const struct dev_op *op, struct sh_err *err);
int dev__check_pick(const struct dev_graph *g, const struct dev_op *op, struct sh_err *err);
/* Fails with SH_E_NOTFOUND, saying what to install. why: the dynamic linker's message. */
int dev__not_loaded(const char *kind, const char *why, struct sh_err *err);

#endif
