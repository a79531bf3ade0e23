/* loop_bags.c - loops of PyTorch's nn.EmbeddingBag: see loop_form.h.
 *
 * The exporter takes the rows of all ids, [n, d], and then goes from bag to bag: it adds, averages
 * or takes the largest of rows [offsets[i], offsets[i + 1]) of bag i. With padding_idx it goes from
 * id to id within and lists those that are not padding, so that how many there are the data decide.
 * All bags together are [bags, longest, d], what is no member hidden, reduced along the middle
 * axis. Without this a bag is a dozen nodes, so thousands of bags would be too many, and padding
 * could not be trained.
 */
#include "common/mem.h"
#include "runtime/model/loop_form.h"

#include <math.h>
#include <stdlib.h>

#define MAX_MEMBERS ((int64_t)1 << 24) /* of all bags, each as long as the longest */

enum bag_mode { BAG_SUM, BAG_MEAN, BAG_MAX };

/* The exporter puts what a loop carries into any order: the sequence first (s2) and then the number
 * of the bag (s3), or the other way; within likewise, the place (t2) and the list (t3). */
#define BAGS(seq, i, row) \
    "Less(Add(" i ",CastLike(1," i ")),@);" seq("SequenceInsert(", ",If(Equal(" row(i) ")))")
#define SEQ_FIRST(before, behind) before "s2" behind ";#2"
#define SEQ_LAST(before, behind) "#2;" before "s3" behind
#define PLAIN(i)                                                                               \
    "Slice(A,Reshape(" i ",-1),Add(#4,CastLike(1,#4))),Slice(A,Add(#4,CastLike(1,#4)),Add(#4," \
    "CastLike(2,#4)))),zeros,"
#define PLAIN_SUM(i) PLAIN(i) "ReduceSum(Slice(B,#7,#12),0"
#define PLAIN_MEAN(i)                                                                             \
    PLAIN(i)                                                                                      \
    "If(Equal(" i ",Sub(@,1)),If(Greater(Sub(Shape?(B),#7),CastLike(0,#17)),Div(ReduceSum(Slice(" \
    "C,#7,#12),0),#17),#21),ReduceMean(#20,0)"
#define FIXED_MEAN(i)                                                                           \
    PLAIN(i)                                                                                    \
    "If(Equal(" i ",@),If(Greater(Sub(@,#7),CastLike(0,#15)),Div(ReduceSum(Slice(B,#7,#12),0)," \
    "#15),#19),ReduceMean(#18,0)"
#define PLAIN_MAX(i) PLAIN(i) "ReduceMax(If(Equal(" i ",Sub(@,1)),Slice(B,#7,@),Slice(B,#7,#12)),0"
#define FIXED_MAX(i) PLAIN(i) "ReduceMax(If(Equal(" i ",@),Slice(B,#7,@),Slice(B,#7,#12)),0"
#define RANGE(i) ",Less(Gather0(A," i "),Gather0(A,Add(" i ",CastLike(1," i ")))),"
#define LISTED(j, list)                                                                        \
    "If(Not(Equal(If(Less(Gather0(B," j "),CastLike(0,#12)),Add(#12,@),#12),@)),Concat0(" list \
    ",Reshape(" j ",-1))," list ")"
#define PLACE_FIRST(i) \
    "Size(Loop.1(" RANGE(i) "#4,,Less(Add(t2,CastLike(1,t2)),#7),#10," LISTED("t2", "t3") ")"
#define PLACE_LAST(i) \
    "Size(Loop(" RANGE(i) ",#4,Less(Add(t3,CastLike(1,t3)),#7)," LISTED("t3", "t2") ",#10)"
#define PADDED(op) "),CastLike(0,#23)),zeros," op "(Gather0(C,#22),0"
#define FIRST_SUM(i) PLACE_FIRST(i) PADDED("ReduceSum")
#define FIRST_MEAN(i) PLACE_FIRST(i) PADDED("ReduceMean")
#define FIRST_MAX(i) PLACE_FIRST(i) PADDED("ReduceMax")
#define LAST_SUM(i) PLACE_LAST(i) PADDED("ReduceSum")
#define LAST_MEAN(i) PLACE_LAST(i) PADDED("ReduceMean")
#define LAST_MAX(i) PLACE_LAST(i) PADDED("ReduceMax")
#define EITHER(row, mode, rows, pads)               \
    {BAGS(SEQ_FIRST, "s3", row), mode, rows, pads}, \
    {                                               \
        BAGS(SEQ_LAST, "s2", row), mode, rows, pads \
    }

/* @: how many bags there are, then of padded ones how many rows the table has and which is padding.
 * The last bag of others ends with the rows, of which Shape? and @ say how many: see
 * ends_with_rows(). */
static const struct bag_form {
    const char *text;
    enum bag_mode mode;
    char rows; /* which letter they are */
    bool is_padded;
} FORMS[] = {
    EITHER(PLAIN_SUM, BAG_SUM, 'B', false),   EITHER(PLAIN_MEAN, BAG_MEAN, 'C', false),
    EITHER(FIXED_MEAN, BAG_MEAN, 'B', false), EITHER(PLAIN_MAX, BAG_MAX, 'B', false),
    EITHER(FIXED_MAX, BAG_MAX, 'B', false),   EITHER(FIRST_SUM, BAG_SUM, 'C', true),
    EITHER(FIRST_MEAN, BAG_MEAN, 'C', true),  EITHER(FIRST_MAX, BAG_MAX, 'C', true),
    EITHER(LAST_SUM, BAG_SUM, 'C', true),     EITHER(LAST_MEAN, BAG_MEAN, 'C', true),
    EITHER(LAST_MAX, BAG_MAX, 'C', true),
};

struct bags {
    struct shape_ctx *c;
    const struct bag_form *form;
    uint32_t rows, ids; /* ids: GRAPH_NONE where nothing is padding */
    int64_t table, padding;
    int64_t n, longest;
    int64_t *offsets; /* OWNED: [n + 1] */
    bool is_even;     /* all bags are as long, one behind the other, and nothing is left */
};

/* ---------------------------------------------------------------- what is given */

static bool read_offsets(struct bags *b, uint32_t v, int64_t n_rows)
{
    const struct graph_value *of = rw_v(b->c, v);

    if (!of->data || !shape__is_int(of->dtype) || of->rank != 1 || of->dims[0] != b->n + 1 ||
        b->n < 1)
        return false;
    b->offsets = malloc((size_t)(b->n + 1) * sizeof(*b->offsets));
    if (!b->offsets) {
        SH_FAIL(b->c->err, SH_E_NOMEM, "could not allocate the offsets of bags");
        return false;
    }
    for (int64_t i = 0; i <= b->n; i++) {
        b->offsets[i] = shape__get_i64(of->dtype, of->data, (size_t)i);
        if (b->offsets[i] < (i ? b->offsets[i - 1] : 0) || b->offsets[i] > n_rows)
            return false;
        if (i)
            b->longest = SH_MAX(b->longest, b->offsets[i] - b->offsets[i - 1]);
    }
    b->is_even = n_rows == b->n * b->longest && b->offsets[b->n] == n_rows;
    return b->longest > 0 && b->n <= MAX_MEMBERS / b->longest &&
           (b->ids != GRAPH_NONE || b->offsets[b->n] == n_rows);
}

/* Does the last bag end with the rows, and no other? Which one is the last, and how many rows there
 * are, are numbers of the text. */
static bool ends_with_rows(const struct bags *b, const struct loop_form *f, const int64_t *numbers)
{
    const int64_t last = strstr(b->form->text, "Sub(@,1)") ? numbers[1] - 1 : numbers[1];
    const int64_t n_rows = rw_v(b->c, b->rows)->dims[0];
    const struct graph_value *of = b->form->rows == 'C' ? rw_v(b->c, f->given[1]) : NULL;

    if (b->form->is_padded || b->form->mode == BAG_SUM)
        return true;
    if (last != b->n - 1)
        return false;
    if (of)
        return of->rank == 1 && of->dims[0] == n_rows;
    return b->form->mode == BAG_MAX ? numbers[2] >= n_rows : numbers[2] == n_rows;
}

static bool read_bags(struct bags *b, const struct loop_form *f, const int64_t *numbers)
{
    const uint32_t rows = f->given[b->form->rows - 'A'];
    const struct graph_value x = *rw_v(b->c, rows);
    const bool is_padded = b->form->is_padded;

    b->n = numbers[0];
    b->rows = rows;
    b->ids = is_padded ? f->given[1] : GRAPH_NONE;
    b->table = is_padded ? numbers[1] : 0;
    b->padding = is_padded ? numbers[2] : 0;
    if (x.rank != 2 || shape__is_int(x.dtype) || x.dtype == SH_BOOL)
        return false;
    if (is_padded && (rw_v(b->c, b->ids)->rank != 1 || rw_v(b->c, b->ids)->dims[0] != x.dims[0] ||
                      !shape__is_int(rw_v(b->c, b->ids)->dtype)))
        return false;
    return ends_with_rows(b, f, numbers) && read_offsets(b, f->given[0], x.dims[0]);
}

/* ---------------------------------------------------------------- all bags together */

/* [rows, ...] -> [bags, longest, ...]; what is behind a shorter bag is any row. */
static uint32_t by_bag(const struct bags *b, uint32_t x)
{
    const struct graph_value v = *rw_v(b->c, x);
    int64_t dims[SH_MAX_RANK] = {b->n, b->longest, v.dims[1]}, *at;

    if (b->is_even)
        return rw_reshape(b->c, x, v.rank + 1, dims);
    at = rw_alloc(b->c, SH_I64, b->n * b->longest);
    for (int64_t i = 0; i < b->n && at; i++)
        for (int64_t k = 0; k < b->longest; k++)
            at[i * b->longest + k] = b->offsets[i] + k < b->offsets[i + 1] ? b->offsets[i] + k : 0;
    return rw2_with(b->c, "Gather", x, rw_const(b->c, SH_I64, 2, dims, at), RW_INT("axis", 0));
}

/* BOOL [bags, longest]: does it count? GRAPH_NONE: everything does. */
static uint32_t members(const struct bags *b)
{
    struct shape_ctx *c = b->c;
    const int64_t dims[2] = {b->n, b->longest};
    uint32_t ids, is, within;
    bool *in;

    if (b->ids == GRAPH_NONE && b->is_even)
        return GRAPH_NONE;
    in = rw_alloc(c, SH_BOOL, b->n * b->longest);
    for (int64_t i = 0; i < b->n * b->longest && in; i++)
        in[i] = i % b->longest < b->offsets[i / b->longest + 1] - b->offsets[i / b->longest];
    within = rw_const(c, SH_BOOL, 2, dims, in);
    if (b->ids == GRAPH_NONE || c->err->rc)
        return within;
    ids = by_bag(b, rw_cast(c, b->ids, SH_I64));
    is = rw2(c, "Less", ids, rw_number(c, SH_I64, 0)); /* from the end */
    ids = rw3(c, "Where", is, rw2(c, "Add", ids, rw_number(c, SH_I64, (double)b->table)), ids);
    is = rw1(c, "Not", rw2(c, "Equal", ids, rw_number(c, SH_I64, (double)b->padding)));
    return b->is_even ? is : rw2(c, "And", is, within);
}

static uint32_t reduce_bags(const struct bags *b)
{
    static const char *const OPS[] = {"ReduceSum", "ReduceMean", "ReduceMax"};
    struct shape_ctx *c = b->c;
    const enum sh_dtype type = rw_v(c, b->rows)->dtype;
    const enum bag_mode mode = b->form->mode;
    const uint32_t in = members(b);
    const int64_t one = 1, two = 2;
    uint32_t x = by_bag(b, b->rows), hidden, count;

    if (in == GRAPH_NONE || c->err->rc)
        return rw_reduce(c, OPS[mode], x, &one, 1, false);
    hidden = rw_number(c, type, mode == BAG_MAX ? -INFINITY : 0);
    x = rw3(c, "Where", rw2(c, "Unsqueeze", in, rw_list(c, &two, 1)), x, hidden);
    x = rw_reduce(c, mode == BAG_MAX ? "ReduceMax" : "ReduceSum", x, &one, 1, false);
    if (mode == BAG_SUM)
        return x;
    count = rw_reduce(c, "ReduceSum", rw_cast(c, in, type), &one, 1, true);
    if (mode == BAG_MEAN)
        return rw2(c, "Div", x, rw2(c, "Max", count, rw_number(c, type, 1)));
    return rw3(c, "Where", rw2(c, "Greater", count, rw_number(c, type, 0)), x,
               rw_number(c, type, 0));
}

/* ---------------------------------------------------------------- the loop */

/* Its sequence, which it carries as state `at`, is only put together again; it begins at bag 0. */
static bool is_joined(const struct run *r, const struct loop_known *l, uint32_t at)
{
    const uint32_t v = l->node->n_out > at ? l->node->out[at] : GRAPH_NONE;
    const struct graph_value *first = rw_v(&r->c, l->state[1 - at]);
    int64_t axis, is_new;

    if (v == GRAPH_NONE || !first->data || !shape__is_int(first->dtype) ||
        graph_elements(first) != 1 || shape__get_i64(first->dtype, first->data, 0) != 0)
        return false;
    for (uint32_t i = 0; i < r->from->n_nodes; i++)
        for (uint32_t k = 0; k < r->from->nodes[i].n_in; k++) {
            const struct graph_node *n = &r->from->nodes[i];

            if (n->in[k] == v &&
                (strcmp(n->op, "ConcatFromSequence") != 0 || graph_int(n, "axis", 1, &axis, NULL) ||
                 axis != 0 || graph_int(n, "new_axis", 0, &is_new, NULL) || is_new != 0))
                return false;
        }
    return true;
}

bool loop_bags(struct run *r, const struct loop_known *l)
{
    int64_t numbers[LOOP_FORM_NUMBERS] = {0};
    struct bags b = {.c = &r->c};
    struct loop_form f = {0};
    const uint32_t at = run__is_sequence(l->state[0]) ? 0 : 1;
    bool is = false;
    uint32_t all;

    if (!is_joined(r, l, at) || loop_form_read(r, &l->of, &f) || !f.text) {
        free(f.text);
        return false;
    }
    for (size_t i = 0; i < SH_ARRAY_LEN(FORMS) && !b.form; i++)
        if (loop_form_is(f.text, FORMS[i].text, NULL, numbers))
            b.form = &FORMS[i];
    free(f.text);
    is = b.form && read_bags(&b, &f, numbers);
    if (is) {
        all = reduce_bags(&b);
        l->out[1 - at] = rw_number(&r->c, SH_I64, (double)b.n);
        if (r->c.err->rc == SH_OK)
            run__add_sequence(r, &all, 1, &l->out[at], r->c.err);
    }
    free(b.offsets);
    return is;
}
