/* train_spec.h - what a training job asks for. docs/training.md describes each field.
 *
 * API and worker read the same spec with the same function, so that what the API has taken no
 * worker refuses. Defaults are PyTorch's.
 */
#ifndef SH_COMMON_TRAIN_SPEC_H
#define SH_COMMON_TRAIN_SPEC_H

#include "common/augment.h"
#include "common/dim.h"
#include "common/dtype.h"
#include "common/json.h"
#include "common/precision.h"

/* Words of a spec: X(end of the enum's name, word), with SEP between two of them. */
#define TRAIN_LOSSES(X, SEP)                                  \
    X(LOSS_XENT, "cross-entropy")                             \
    SEP X(LOSS_BCE, "binary-cross-entropy") /* with logits */ \
        SEP                                                   \
        X(LOSS_MSE, "mse") SEP                                \
        X(LOSS_L1, "l1") SEP                                  \
        X(LOSS_HUBER, "huber")
#define TRAIN_SCHEDULES(X, SEP)                                                              \
    X(CONSTANT, "constant")                                                                  \
    SEP X(LINEAR, "linear") SEP X(COSINE, "cosine") SEP X(STEPWISE, "step") SEP X(ONE_CYCLE, \
                                                                                  "one-cycle")
#define TRAIN_OPTIMIZERS(X, SEP) X(SGD, "sgd") SEP X(ADAM, "adam") SEP X(ADAMW, "adamw")
/* Less is better of the first two. */
#define TRAIN_METRICS(X, SEP)                                                                    \
    X(BY_LOSS, "loss")                                                                           \
    SEP X(BY_PERPLEXITY, "perplexity") SEP X(BY_ACCURACY, "accuracy") SEP X(BY_TOP5, "top5") SEP \
    X(BY_F1, "f1")
#define TRAIN_WORD(id, word) word
#define TRAIN_ID(id, word) TRAIN_##id,

enum train_loss { TRAIN_LOSSES(TRAIN_ID, ) TRAIN_N_LOSSES };
enum train_schedule { TRAIN_SCHEDULES(TRAIN_ID, ) TRAIN_N_SCHEDULES };
enum train_optim { TRAIN_OPTIMIZERS(TRAIN_ID, ) TRAIN_N_OPTIMIZERS };
enum train_metric { TRAIN_NO_METRIC, TRAIN_METRICS(TRAIN_ID, ) TRAIN_N_METRICS };

#define TRAIN_IGNORE_INDEX -100 /* the label that PyTorch leaves out */
#define TRAIN_MAX_CLASSES 100000u
#define TRAIN_TOP 5 /* of TRAIN_BY_TOP5 */
#define TRAIN_MAX_HEADS 8u
#define TRAIN_MAX_TENSOR 128u /* bytes of a name, with its end */
#define TRAIN_MAX_GLOBS 64u
#define TRAIN_MAX_GLOB 255u
#define TRAIN_MIN_SCALE 1e-6
#define TRAIN_MAX_SCALE 1e30
#define TRAIN_MAX_SKIPPED 30 /* updates in a row, for gradients that are not finite: then it ends */
#define TRAIN_MAX_INPUTS 64u /* of which some may be pictures */

struct train_head {                /* one output and its loss */
    char output[TRAIN_MAX_TENSOR]; /* of the model; "": the first */
    char labels[TRAIN_MAX_TENSOR]; /* name of the label tensor in the dataset */
    double weight;                 /* of this loss in the sum */
    enum train_loss loss;
    int64_t class_axis;     /* of the output; 0: by the shapes, see train_class_axis() */
    int64_t ignore_index;   /* XENT */
    double label_smoothing; /* XENT */
    double delta;           /* HUBER */
    const json_t *weights; /* XENT: of each class; BCE: of positive targets, one or each; or NULL */

    /* No part of a spec. */
    uint32_t label_rank; /* of the dataset's labels, with the axis of the samples; 0: not known */
    int64_t label_dims[SH_MAX_RANK];
};

struct train_spec { /* json_t: BORROWED from the spec */
    struct train_head heads[TRAIN_MAX_HEADS];
    uint32_t n_heads; /* 1 or more; with more than one each names its output */
    enum train_optim optimizer;
    double lr, momentum, weight_decay, beta1, beta2, eps;
    bool nesterov;
    struct {
        enum train_schedule kind;
        int64_t warmup_steps, every;        /* every: STEPWISE */
        double warmup_start, end, gamma;    /* of the rate; end: LINEAR and COSINE */
        double peak_at, divide, end_divide; /* ONE_CYCLE */
    } schedule;
    double clip_norm, clip_value;    /* of the gradients; 0: none */
    const json_t *no_decay, *frozen; /* globs of names, one or a list; NULL: none */
    bool no_decay_vectors;           /* biases, and what norms have: all of one axis */
    bool draws;                      /* parameters begin with random numbers, */
    const json_t *init;              /* those with these names (globs); NULL: all */
    int64_t accumulate;              /* steps of one update */
    double ema;                      /* decay of the weights' mean; 0: none is kept */
    struct {                         /* what the gradient of the loss is multiplied by */
        double init;                 /* 0: nothing */
        double growth, backoff;      /* 1: it stays */
        int64_t interval;            /* updates after which it grows */
    } scale;
    struct {
        int64_t every;          /* steps between two; 0: none */
        enum train_metric best; /* what is kept is best by; TRAIN_NO_METRIC: the last */
        uint32_t head;          /* whose metrics count, but for the loss, which is of all */
        int64_t patience;       /* without a gain, then it ends; 0: goes on */
        double min_delta;       /* what counts as a gain is more than this */
    } evaluation;
    int64_t batch, steps, epochs; /* steps or epochs, the other 0 */
    uint64_t seed;
    enum dev_precision precision;
    bool shuffle; /* each epoch in an order drawn from (seed, epoch); else in file order */
    int64_t shuffle_window; /* samples that are mixed at a time; 0: runtime/model/order.h */
    bool publish;
    int64_t checkpoint_interval_ms; /* 0: only when needed for a stop */
    struct augment augment;         /* of every input that is a picture */

    /* No part of a spec. */
    struct sh_sizes sizes;    /* of symbols: those of the dataset */
    uint64_t byte_inputs;     /* bit i: the dataset has input i, a picture, as UINT8 */
    int64_t conv_piece_bytes; /* 0: CONV_PIECE_BYTES; less for tests */
};

/* Unknown fields, and such as do not belong to the loss or the optimizer, are refused. All that is
 * wrong is among err->faults, below "spec". */
int train_spec_read(const json_t *spec, struct train_spec *out, struct sh_err *err);

/* The axis of an output [batch, ...] of `rank` axes that holds the classes; labels have its shape
 * without that axis. As the spec says; else the one that fits the labels' shape, 1 before the last;
 * where that is not known, 1 as PyTorch has it, and of three axes the last, as transformers write
 * logits. dims: axis 0 is not looked at, and what is below 1 is any length. Fails: SH_E_INVALID: no
 * axis does; *out is the one looked at first. */
int train_class_axis(const struct train_head *t, const char *output, uint32_t rank,
                     const int64_t *dims, uint32_t *out, struct sh_err *err);
/* The learning rate of an update, counted from 0, of so many. Of these alone, so that a job that
 * goes on from a checkpoint has the rates it would have had. */
double train_rate(const struct train_spec *t, int64_t update, int64_t updates);
/* The step with which the update that this step is part of begins, and how many it has. */
void train_group(const struct train_spec *t, int64_t step, int64_t steps, int64_t *first,
                 int64_t *n);
const char *train_metric_name(enum train_metric m);
/* Is a parameter's name among `globs`? NULL: no. */
bool train_names(const json_t *globs, const char *name);
/* Are there as many weights as classes (BCE: elements of the output's last axis)? */
int train_check_weights(const struct train_head *t, int64_t n, struct sh_err *err);

#endif
