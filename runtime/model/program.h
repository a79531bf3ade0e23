/* program.h - a model compiled for one device: static schedule, static memory plan.
 *
 * program_infer and program_train own the lowered dev_graph, its memory plan and the device plan.
 * Offsets are relative to three bases (struct dev_bases): image or state, and workspace.
 *
 * A program belongs to the thread of its dev.
 */
#ifndef SH_RUNTIME_MODEL_PROGRAM_H
#define SH_RUNTIME_MODEL_PROGRAM_H

#include "common/train_spec.h"
#include "runtime/device/dev.h"
#include "runtime/model/graph.h"
#include "runtime/model/init.h"
#include "runtime/model/tables.h"

#include <jansson.h>

struct program;

struct program_io {   /* one input, output or label */
    const char *name; /* BORROWED */
    enum sh_dtype dtype;
    uint32_t rank;
    int64_t dims[SH_MAX_RANK];
    size_t offset, bytes; /* in the workspace, plain row-major */
    /* Output: 1 + an axis of which only the first elements are valid, and where in the workspace an
     * I64 says how many; 0: all are valid. */
    uint32_t counted;
    size_t count_offset;
};

/* share: NULL, or an inference program of the same model with which it shares the image. *out:
 * OWNED, program_free(). g: BORROWED for the life of the program. */
int program_infer(struct dev *d, const struct graph *g, const struct graph_sizes *at,
                  enum dev_precision p, const struct program *share, struct program **out,
                  struct sh_err *err);
/* The same, for a first program; the large tables that it is to find in place (tables.h) lie at the
 * end of its image. What shares the image has the same ones. */
int program_infer_tables(struct dev *d, const struct graph *g, const struct graph_sizes *at,
                         enum dev_precision p, const struct tables_cost *cost, struct program **out,
                         struct sh_err *err);
int program_train(struct dev *d, const struct graph *g, const struct train_spec *t,
                  struct program **out, struct sh_err *err);
/* The forward pass to the outputs of t's heads, in order, as after training. It uses the parameters
 * (their means, if kept) and running statistics in the state of `trained`, a training program of
 * the same g, t and d. Its own constants follow that state: program_state_bytes() covers both, and
 * its program_write_state() comes before that of `trained`. */
int program_evaluate(struct dev *d, const struct graph *g, const struct train_spec *t,
                     const struct program *trained, struct program **out, struct sh_err *err);
void program_free(struct program *p);

uint32_t program_n_ops(const struct program *p);
uint32_t program_n_layers(const struct program *p);
/* What to say beside a loss that is not a number: "", or that samples may have chosen what the file
 * has not, where that would come out so. */
const char *program_nan_hint(const struct program *p);
/* Training: first operation of the update. */
uint32_t program_update_begin(const struct program *p);
/* First operation of `layer` or a later one: the group that starts with this layer must have
 * arrived before it. */
uint32_t program_layer_begin(const struct program *p, uint32_t layer);
const char *program_op_label(const struct program *p, uint32_t op); /* "CONV layer1.0.conv1" */

size_t program_image_bytes(const struct program *p);
size_t program_state_bytes(const struct program *p);
/* Training, and evaluation, which writes nothing itself: so many of the first bytes of the state a
 * step may write; it reads the rest at most. A multiple of DEV_PAGE. */
size_t program_written_bytes(const struct program *p);
size_t program_workspace_bytes(const struct program *p);
/* Where layer i's weights end in the image (cumulative; layer_end[n_layers-1] = image bytes). */
const uint64_t *program_layer_ends(const struct program *p);

/* So many of the last layers are tables, of which a run says where they are (struct dev_bases), and
 * for which no operation waits. They begin at program_tables_at() in the image, at a multiple of
 * 4096 bytes. */
uint32_t program_n_tables(const struct program *p);
size_t program_tables_at(const struct program *p);
/* Bytes of them that a run reads, at most. */
uint64_t program_rows_bytes(const struct program *p);

/* Writes the image (program_image_bytes) in order of use, in the device's layouts; whatever is
 * there, the same bytes each time. */
int program_write_image(struct program *p, void *image, struct sh_err *err);
/* What numbers the image holds, from its first byte to its last. *out: OWNED, free(). */
int program_spans(const struct program *p, struct pack_span **out, size_t *n, struct sh_err *err);
/* Writes the initial training state: parameters and running statistics from the graph, optimizer
 * state zero. */
int program_write_state(struct program *p, void *state, struct sh_err *err);

size_t program_n_inputs(const struct program *p);
size_t program_n_outputs(const struct program *p);
const struct program_io *program_input(const struct program *p, size_t i);
const struct program_io *program_output(const struct program *p, size_t i);
/* Inference: can it run on these `bytes` of input i, of one sample or more? Finds what indices.h
 * says. Any address. Fails: SH_E_INVALID; positions count from `sample`. */
int program_check_sample(const struct program *p, size_t i, const void *sample, size_t bytes,
                         struct sh_err *err);
/* Training: labels of a head; NULL: no more heads, or its labels are computed, not read. */
const struct program_io *program_label(const struct program *p, size_t head);
/* Classes of a head with cross-entropy; 0: its labels are not classes. */
int64_t program_n_classes(const struct program *p, size_t head);
/* Training: offset of the loss, F32 in the workspace; and the operation before which it is
 * there. */
size_t program_loss_offset(const struct program *p);
uint32_t program_loss_end(const struct program *p);
/* Training: what is initialised randomly. BORROWED from p. */
const struct init_count *program_drawn(const struct program *p);
/* Training: offset in the state of the DEV_SCALER floats of the loss scale. False: none. */
bool program_scaler(const struct program *p, size_t *offset);

/* Training state by name: parameters and running statistics under the initializers' names,
 * optimizer state as "<name>#momentum", "<name>#m", "<name>#v", "<name>#sum", "loss#scale", means
 * as "<name>#ema"; kind tells which. All plain F32. (Constants of a training program are in the
 * state too, without a name, and never change.) */
enum program_state_kind {
    PROGRAM_STATE_PARAM,
    PROGRAM_STATE_STAT,
    PROGRAM_STATE_OPTIM,
    PROGRAM_STATE_EMA
};
struct program_state_entry {
    const char *name;
    enum program_state_kind kind;
    uint32_t rank;
    int64_t dims[SH_MAX_RANK];
    size_t offset, bytes; /* in the state */
    bool has_gradient;    /* PARAM on which the loss depends */
};
size_t program_n_state(const struct program *p);
const struct program_state_entry *program_state(const struct program *p, size_t i);
/* Reads the gradient of entry i, plain and without the loss scale, into out[bytes / 4]. Blocks.
 * Valid if exactly the operations before update_begin have run. Fails: SH_E_INVALID: it has
 * none. */
int program_gradient(struct program *p, const struct dev_bases *b, size_t i, float *out,
                     struct sh_err *err);

/* Sets the parts of the bases that depend on the step, out of `steps`. */
void program_turn(const struct train_spec *t, int64_t step, int64_t steps, struct dev_bases *b);
/* [enqueue] operations [from, to); with the first go the constants that follow from sizes. */
int program_run(struct program *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                struct sh_err *err);
int program_warm(struct program *p, double *op_ns, struct sh_err *err);
enum dev_replay program_replay(const struct program *p); /* since it was warmed up */
int program_prepare(struct program *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                    struct sh_err *err);
int program_profile(struct program *p, const struct dev_bases *b, uint32_t repeat, double *op_ns,
                    struct sh_err *err); /* op_ns[n_ops] */

#endif
