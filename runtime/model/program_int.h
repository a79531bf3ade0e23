/* program_int.h - a program, for the files that make and write it. */
#ifndef SH_RUNTIME_MODEL_PROGRAM_INT_H
#define SH_RUNTIME_MODEL_PROGRAM_INT_H

#include "runtime/model/ir.h"
#include "runtime/model/plan.h"
#include "runtime/model/program.h"

struct program {
    struct graph *g; /* at one batch size */
    struct ir *ir;
    struct dev_plan *dp;
    struct plan plan;
    struct program_io *inputs, *outputs, labels[TRAIN_MAX_HEADS];
    struct indices *indices; /* NULL of a training program */
    struct program_state_entry *state;
    uint32_t *gradients; /* of each entry of the state: tensor, or DEV_NONE */
    char **state_names;  /* OWNED: names that the entries borrow */
    char **op_labels;
    uint32_t *sent; /* tensors: constants that go with each run */
    uint32_t n_state, n_ops, n_sent;
    uint64_t seed; /* training: of what begins with numbers that are drawn */
    struct init_count drawn;
};

/* A part of the image, under its own name. */
bool program__is_weight(const struct program *p, uint32_t t);

#endif
