/* loop_form.h - loops over what was found, with a body that is known.
 *
 * How often such a loop runs, the data decide, and so do sizes within its body, such as those of a
 * mask on its picture. No fixed program has either. But if a turn is known for what it computes
 * (torchvision's masks and keypoints), all turns together are an expression of fixed sizes.
 *
 *   shape_loop.c  asks before it gives up
 *   loop_form.c   what a body computes, as text
 *   loop_known.c  the texts that are known, and their expressions
 *   loop_bags.c   those of PyTorch's nn.EmbeddingBag
 */
#ifndef SH_RUNTIME_MODEL_LOOP_FORM_H
#define SH_RUNTIME_MODEL_LOOP_FORM_H

#include "runtime/model/shape_run.h"

#define LOOP_FORM_GIVEN 10u
#define LOOP_FORM_NUMBERS 8u

struct loop_form {
    char *text;                      /* OWNED; NULL: it is none that could be known */
    uint32_t given[LOOP_FORM_GIVEN]; /* values of the new graph, named A, B, ... in the text */
    uint32_t n_given;
};

struct loop_form_of {
    const struct graph_node *body; /* what gives its inputs */
    uint32_t first;                /* node of the body */
    const uint32_t *results;       /* values of the old graph: what the body gives */
    uint32_t n_results;
};

/* Fails: SH_E_NOMEM. */
int loop_form_read(struct run *r, const struct loop_form_of *of, struct loop_form *f);
/* Is it `known`, in which $k stands for size[k - 1], and each @ for any integer, put into *numbers?
 */
bool loop_form_is(const char *text, const char *known, const int64_t *size,
                  int64_t numbers[static LOOP_FORM_NUMBERS]);

/* ---- for shape_loop.c */
struct loop_known { /* a loop without rows */
    const struct graph_node *node;
    struct loop_form_of of; /* results: whether it goes on, and the next state */
    const uint32_t *state;  /* its first values */
    uint32_t trips, n_state;
    uint32_t *out; /* [n_state]: its last ones, if it is known */
};

/* Is it known? Then all it computes is there. */
bool loop_known(struct run *r, const struct loop_known *l);
/* Does it put sums, means or maxima of rows into a sequence, a bag in each turn? Then *out and the
 * next are there likewise, in the order of the state: a sequence of one tensor with all bags, and
 * how many they are. */
bool loop_bags(struct run *r, const struct loop_known *l);

#endif
