/* param_forms.h - a constant of which an exporter says what it computed it from: one parameter, by
 * functions that can be undone. */
#ifndef SH_RUNTIME_MODEL_PARAM_FORMS_H
#define SH_RUNTIME_MODEL_PARAM_FORMS_H

#include "runtime/model/param_kinds.h"

#define PARAM_FORM_STEPS 3
#define PARAM_FORM_NAME 200

struct param_step;

struct param_form {
    char param[PARAM_FORM_NAME];                      /* what the module calls it */
    const struct param_step *steps[PARAM_FORM_STEPS]; /* from the parameter to the constant */
    int n_steps, n_free, axis; /* free: whose order is not known; of a Softmax */
    bool is_bounded;           /* by a clamp, somewhere between */
};

/* Of the constant `name` and the names that the exporter lists: "['A_log', 'exp']" of "neg". Moves
 * and clamps may be among them, which leave a number as it is. false: something else is, or more
 * than one parameter. The order of the steps is not known yet. */
bool param_form_read(const char *name, const char *list, const struct param_kinds *kinds,
                     struct param_form *out);
/* The same of a constant of which nothing is said, but whose numbers are those of a Softmax. */
void param_form_softmax(struct param_form *out);
/* Of a constant whose numbers are those of parameters, taken once or several times, some of them
 * negated: nothing else is among the names. */
bool param_form_signs(const char *name, const char *list, const struct param_kinds *kinds);
struct param_move {
    char param[PARAM_FORM_NAME];
    bool turns, repeats; /* another order of its numbers; some may be there several times */
};

/* Of a constant that is all of one parameter, moved. */
bool param_form_moved(const char *name, const char *list, const struct param_kinds *kinds,
                      struct param_move *out);
/* Of a constant that is some numbers of one parameter, in their order. */
bool param_form_part(const char *name, const char *list, const struct param_kinds *kinds,
                     char param[static PARAM_FORM_NAME]);
/* Is a constant one parameter and nothing else, but for the order of its numbers? One without a
 * name of its own may be a transposed one; other functions of one parameter have theirs. */
bool param_form_is_one(const char *name, const char *list, const struct param_kinds *kinds);
/* Is it one parameter, moved, and numbers of the code added to it or it taken from them? Trained as
 * it is, it goes the same ways. */
bool param_form_shifted(const char *name, const char *list, const struct param_kinds *kinds,
                        char param[static PARAM_FORM_NAME]);
/* Of a constant that is one parameter, expanded: the name of the parameter. */
bool param_form_expanded(const char *name, const char *list, const struct param_kinds *kinds,
                         char param[static PARAM_FORM_NAME]);
/* Of a number that was taken from a softmax of one parameter, or of several that were joined: the
 * name of the first, and all of them with the softmax, by which those of one are alike. */
bool param_form_taken(const char *name, const char *list, const struct param_kinds *kinds,
                      char param[static PARAM_FORM_NAME], char row[static PARAM_FORM_NAME]);
/* Of a constant that is one parameter times masks, or one side of a diagonal of it (*cuts), maybe
 * moved: the name of the parameter. */
bool param_form_product(const char *name, const char *list, const struct param_kinds *kinds,
                        char param[static PARAM_FORM_NAME], bool *cuts);
/* out: the parameter's numbers, from F32 numbers at x, unaligned. Finds the order of the steps, and
 * the axis. false: no order, or more than one, gives numbers from which the same would be computed,
 * or a bound has held them. */
bool param_form_undo(struct param_form *f, const void *x, int rank, const int64_t *dims,
                     float *out);
/* Of a constant that is zeros: those of a first state, moved, times parameters, and so whatever the
 * parameters become. */
bool param_form_of_zeros(const char *name, const char *list, const struct param_kinds *kinds);
/* Of a constant that is one parameter times one buffer: their names. */
bool param_form_pair(const char *name, const char *list, const struct param_kinds *kinds,
                     char param[static PARAM_FORM_NAME], char buffer[static PARAM_FORM_NAME]);
/* Of a constant that is the sum of two parameters, moved before and after: their names. */
bool param_form_sum(const char *name, const char *list, const struct param_kinds *kinds,
                    char of[static 2][PARAM_FORM_NAME]);
/* Training the constant is something else than training what it was computed of: an operation that
 * changes gradients is among the names, or two parameters were added, or parts of one, or one to
 * itself. Not where rows were looked
 * up: then the names may be of what computed their numbers, unless integers have no such
 * operation. */
bool param_form_is_lost(const char *name, const char *list, const struct param_kinds *kinds);
/* It is of one parameter that has a single letter for a name, as papers call what was drawn. */
bool param_form_is_letter(const char *list, const struct param_kinds *kinds);
/* Numbers of the parameter may be below 0 where those that come out of undoing are above. */
bool param_form_loses_signs(const struct param_form *f);
/* ONNX's operator for a step. */
const char *param_form_op(const struct param_form *f, int step);

#endif
