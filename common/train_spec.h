/* train_spec.h - the spec of a training job. docs/training.md describes each field.
 *
 * The API and workers read a spec with the same function, so that no worker refuses what the API
 * has accepted. Defaults are PyTorch's.
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
/* For the first two, less is better. */
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

#define TRAIN_IGNORE_INDEX -100 /* the label that PyTorch ignores */
#define TRAIN_MAX_CLASSES 100000u
#define TRAIN_TOP 5 /* for TRAIN_BY_TOP5 */
#define TRAIN_MAX_HEADS 8u
#define TRAIN_MAX_TENSOR 128u /* bytes of a name, with its NUL */
#define TRAIN_MAX_GLOBS 64u
#define TRAIN_MAX_GLOB 255u
#define TRAIN_MIN_SCALE 1e-6
#define TRAIN_MAX_SCALE 1e30
/* consecutive updates with gradients that are not finite; then the job ends */
#define TRAIN_MAX_SKIPPED 30
#define TRAIN_MAX_INPUTS 64u /* some of them may be pictures */

struct train_head {                /* one output and its loss */
    char output[TRAIN_MAX_TENSOR]; /* of the model; "": the first */
    char labels[TRAIN_MAX_TENSOR]; /* name of the label tensor in the dataset */
    double weight;                 /* weight of this loss in the sum */
    enum train_loss loss;
    int64_t class_axis;     /* of the output; 0: by the shapes (train_class_axis()) */
    int64_t ignore_index;   /* XENT */
    double label_smoothing; /* XENT */
    double delta;           /* HUBER */
    const json_t *weights;  /* XENT: for each class; BCE: for positive targets, one or each; NULL */

    /* Not part of the spec. */
    uint32_t label_rank; /* of the dataset's labels, including the sample axis; 0: unknown */
    int64_t label_dims[SH_MAX_RANK];
};

struct train_spec { /* json_t: BORROWED from the spec */
    struct train_head heads[TRAIN_MAX_HEADS];
    uint32_t n_heads; /* at least 1; if more, each names its output */
    enum train_optim optimizer;
    double lr, momentum, weight_decay, beta1, beta2, eps;
    bool nesterov;
    struct {
        enum train_schedule kind;
        int64_t warmup_steps, every;        /* every: STEPWISE */
        double warmup_start, end, gamma;    /* factors of the rate; end: LINEAR and COSINE */
        double peak_at, divide, end_divide; /* ONE_CYCLE */
    } schedule;
    double clip_norm, clip_value;    /* of the gradients; 0: none */
    const json_t *no_decay, *frozen; /* globs of names, one or a list; NULL: none */
    bool no_decay_vectors;           /* biases and parameters of norms: all with one axis */
    bool draws;                      /* initialises parameters randomly: */
    const json_t *init;              /* those with these names (globs); NULL: all */
    int64_t accumulate;              /* steps in one update */
    double ema;                      /* decay of the weights' running mean; 0: none */
    struct {                         /* factor of the loss's gradient */
        double init;                 /* 0: no scaling */
        double growth, backoff;      /* 1: constant */
        int64_t interval;            /* updates after which it grows */
    } scale;
    struct {
        int64_t every;          /* steps between evaluations; 0: none */
        enum train_metric best; /* metric of the best state; TRAIN_NO_METRIC: keeps the last */
        uint32_t head;          /* head whose metrics count, except the loss, which is the sum */
        int64_t patience;       /* evaluations without a gain, then training ends; 0: never */
        double min_delta;       /* a gain must exceed this */
    } evaluation;
    int64_t batch, steps, epochs; /* steps or epochs, the other 0 */
    uint64_t seed;
    enum dev_precision precision;
    bool shuffle; /* each epoch in an order drawn from (seed, epoch); else in file order */
    int64_t shuffle_window; /* samples shuffled at a time; 0: as runtime/model/order.h */
    bool publish;
    int64_t checkpoint_interval_ms; /* 0: only when needed for a stop */
    struct augment augment;         /* for every input that is a picture */

    /* Not part of the spec. */
    struct sh_sizes sizes;    /* of symbols, from the dataset */
    uint64_t byte_inputs;     /* bit i: input i is a picture that the dataset has as UINT8 */
    int64_t conv_piece_bytes; /* 0: CONV_PIECE_BYTES; smaller in tests */
};

/* Refuses unknown fields and fields that do not belong to the loss or optimizer. All faults go to
 * err->faults, below "spec". */
int train_spec_read(const json_t *spec, struct train_spec *out, struct sh_err *err);

/* The axis that holds the classes, of an output [batch, ...] with `rank` axes; labels have its
 * shape without that axis. It is the one the spec names; else the one that fits the labels' shape,
 * preferring 1 to the last; if that is unknown, 1, as in PyTorch, but the last of three axes, as
 * transformers write logits. dims: axis 0 is ignored, and below 1 means any length. Fails:
 * SH_E_INVALID: no axis fits; *out is then the first one tried. */
int train_class_axis(const struct train_head *t, const char *output, uint32_t rank,
                     const int64_t *dims, uint32_t *out, struct sh_err *err);
/* The learning rate of an update, counted from 0, out of `updates`. Depends on nothing else, so
 * that a job that resumes from a checkpoint has the same rates. */
double train_rate(const struct train_spec *t, int64_t update, int64_t updates);
/* First step, and number of steps, of the update that contains this step. */
void train_group(const struct train_spec *t, int64_t step, int64_t steps, int64_t *first,
                 int64_t *n);
const char *train_metric_name(enum train_metric m);
/* Does a parameter's name match one of `globs`? NULL: no. */
bool train_names(const json_t *globs, const char *name);
/* Are there as many weights as classes (BCE: elements of the output's last axis)? */
int train_check_weights(const struct train_head *t, int64_t n, struct sh_err *err);

#endif
