/* infer_plan.h - the body of an inference request: parsed, and checked against the model. Pure.
 *
 * The body is a JSON object, then the bytes of the binary tensors in the order of "inputs".
 * Everything is compared with what the model declares; messages name the tensor, what it is and
 * what is wanted.
 */
#ifndef SH_API_INFER_INFER_PLAN_H
#define SH_API_INFER_INFER_PLAN_H

#include "api/cache/catalog.h"

struct plan_shm {       /* a tensor's place in a client's shared memory */
    const char *region; /* BORROWED from the plan's JSON; NULL: not in shared memory */
    uint64_t offset, bytes;
};

struct plan_input { /* in the model's order */
    bool given;
    size_t bytes;       /* of the whole tensor, as requested */
    size_t run_bytes;   /* the same, padded */
    const char *binary; /* BORROWED from the body; NULL: in data or shm */
    const json_t *data; /* BORROWED from the plan's JSON */
    struct plan_shm shm;
};

struct plan_output { /* in the order of the reply */
    size_t index;    /* in the model's outputs */
    bool binary;
    struct plan_shm shm;
};

struct infer_plan {
    const json_t *json; /* BORROWED: `own`, or what plan_read() was given */
    json_t *own;        /* OWNED; NULL: none */
    const char *id;     /* BORROWED from json; NULL if absent */
    int64_t batch;
    struct sh_sizes sizes; /* of the version's symbols, as requested */
    struct sh_sizes run;   /* sizes of the run: the same, or padded to buckets */
    bool is_padded;        /* the two differ */
    int64_t timeout_us;    /* 0: none */
    uint32_t priority;     /* higher goes first; 0: the model's */
    struct plan_input in[CAT_MAX_IO];
    struct plan_output out[CAT_MAX_IO];
    size_t n_out;
    size_t out_bytes[CAT_MAX_IO]; /* model's order */
    size_t run_out_bytes[CAT_MAX_IO],
        out_off[CAT_MAX_IO];   /* as the model writes them to the slot */
    int64_t count[CAT_MAX_IO]; /* length of the axis that a run decides; set by plan_cut() */
    size_t brought_bytes;      /* room for inputs that are not binary data of the body */
    size_t all_out_bytes;
};

struct plan_limits {
    size_t json;  /* bytes */
    int64_t size; /* of a symbol */
};

/* header_bytes: length of the JSON part. *out: zeroed; or its json is the JSON part, parsed, and
 * outlives it. Fails: SH_E_INVALID, SH_E_UNSUPPORTED, SH_E_TOOBIG. */
int plan_read(const struct cat_version *v, const char *body, size_t body_bytes, size_t header_bytes,
              const struct plan_limits *most, struct infer_plan *out, struct sh_err *err);
void plan_fini(struct infer_plan *p);
/* Is a mask, whose data at `data` is as received, all zeros somewhere along the padded axis? */
bool plan_masks_all(const struct cat_tensor *t, const struct infer_plan *p, const char *data);
/* Runs it at its own sizes, in the room that it has. */
int plan_as_it_is(const struct cat_version *v, struct infer_plan *p, struct sh_err *err);
/* Copies the data of input t from `from`, padded with zeros, to `to`, which has run_bytes and may
 * be the same place. */
int plan_pad(const struct cat_tensor *t, const struct infer_plan *p, const char *from, char *to,
             struct sh_err *err);
/* Cuts the outputs, as the model has written them, in place to the requested sizes, and to as many
 * elements as there are. */
int plan_cut(const struct cat_version *v, struct infer_plan *p, char *outputs, struct sh_err *err);
/* Dimensions of t for the request's batch and sizes, and its bytes. */
int plan_shape(const struct cat_tensor *t, const struct infer_plan *p, int64_t dims[SH_MAX_RANK],
               size_t *bytes, struct sh_err *err);

/* infer_json.c: numbers to bytes and back. */
/* data: flat or nested array. dst: room for n elements. */
int tensor_from_json(const struct cat_tensor *t, const json_t *data, void *dst, size_t n,
                     struct sh_err *err);
/* Appends "[1,2,...]". Fails: SH_E_NAN (a number that JSON cannot express), SH_E_UNSUPPORTED. */
struct sh_buf;
int tensor_to_json(const struct cat_tensor *t, const void *src, size_t n, struct sh_buf *out,
                   struct sh_err *err);
/* The JSON part of the reply. outputs: the output slot's memory. *binary: some output is binary. */
int plan_reply(const struct cat_version *v, const struct infer_plan *p, const char *outputs,
               struct sh_buf *head, bool *binary, struct sh_err *err);

#endif
