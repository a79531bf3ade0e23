/* train_option.h - the fields of a training job's spec, from train_option.def, as a table. */
#ifndef SH_COMMON_TRAIN_OPTION_H
#define SH_COMMON_TRAIN_OPTION_H

#include "common/alias.h"
#include "common/field.h"
#include "common/job.h"
#include "common/states.h"
#include "common/train_spec.h"

/* The objects of a spec: X(part, its member of the spec, the names that `of` counts). SPEC is the
 * spec itself. */
#define TRAIN_PARTS(X)                                           \
    X(SPEC, "", NULL)                                            \
    X(LOSS, "loss", TRAIN_LOSSES(TRAIN_WORD, ","))               \
    X(OPTIMIZER, "optimizer", TRAIN_OPTIMIZERS(TRAIN_WORD, ",")) \
    X(SCHEDULE, "schedule", TRAIN_SCHEDULES(TRAIN_WORD, ","))    \
    X(SCALE, "loss_scale", NULL)                                 \
    X(EVALUATION, "evaluation", NULL)

enum train_part {
#define X(part, member, names) TRAIN_##part,
    TRAIN_PARTS(X)
#undef X
        TRAIN_N_PARTS
};

#define TRAIN_INITS "version,random"
#define TRAIN_IF(name) (1u << TRAIN_##name)
#define TRAIN_WARM (~TRAIN_IF(ONE_CYCLE))

/* A spec, field by field. Strings and objects are BORROWED; NULL: not given. */
struct train_reading {
    struct train_spec t;
    struct train_head head; /* a loss */
    int64_t seed;
    const char *labels, *precision, *publish_as;
    const char *name, *output, *head_labels, *of_output, *best; /* of the parts */
    json_t *loss, *optimizer, *schedule, *scale, *evaluation, *augment;
    json_t *class_weights, *pos_weight;
    json_t *any; /* its members are read by name */
};

extern const struct sh_field TRAIN_FIELDS[];
extern const size_t TRAIN_N_FIELDS;
extern const struct sh_fields TRAIN_PART_FIELDS[TRAIN_N_PARTS];
const char *train_part_member(enum train_part part); /* "" for SPEC */
const char *train_part_names(enum train_part part);  /* "sgd,adam"; NULL: it has no names */
const struct sh_field *train_field(enum train_part part, const char *name); /* or NULL */
/* Prints the tables of docs/training.md, each after a line "fields PART". */
void train_print_docs(FILE *out);

#endif
