/* init.c - see init.h.
 *
 * The use of a parameter is looked up twice: in the graph, where norms and recurrent layers are
 * still intact, and then in the operations, where a product knows how many numbers it sums, however
 * its operand was moved before. The first use counts.
 */
#include "runtime/model/init.h"

#include "common/mem.h"
#include "runtime/device/philox.h"
#include "runtime/model/names.h"

#include <math.h>
#include <string.h>

#define MAX_MOVES 16 /* between a parameter and its use */

/* ------------------------------------------------------------------ where a tensor comes from */

static const struct dev_op *init_writer(const struct ir *ir, const struct ir_uses *u, uint32_t t)
{
    const uint32_t at = u->writer[ir_root(ir, t)];

    return at == DEV_NONE ? NULL : &ir->g.ops[at];
}

static bool is_move_op(const struct dev_op *op)
{
    return op->kind == DEV_OP_TRANSPOSE || op->kind == DEV_OP_COPY || op->kind == DEV_OP_EXPAND ||
           op->kind == DEV_OP_SLICE;
}

/* The parameter that t is, seen through what only moves numbers; DEV_NONE: it is none. */
static uint32_t param_of(const struct ir *ir, const struct ir_uses *u, uint32_t t)
{
    for (int i = 0; i < MAX_MOVES && t != DEV_NONE; i++) {
        const uint32_t root = ir_root(ir, t);
        const struct dev_op *op;

        if (ir->info[root].state == IR_PARAM)
            return root;
        op = init_writer(ir, u, root);
        t = op && is_move_op(op) ? op->in[0] : DEV_NONE;
    }
    return DEV_NONE;
}

/* The operation that computed t, seen through the same. NULL: none. */
static const struct dev_op *source_of(const struct ir *ir, const struct ir_uses *u, uint32_t t)
{
    const struct dev_op *op = init_writer(ir, u, t);

    for (int i = 0; i < MAX_MOVES && op && is_move_op(op); i++)
        op = init_writer(ir, u, op->in[0]);
    return op;
}

static void set_init(struct ir *ir, uint32_t param, enum ir_init_kind kind, double bound)
{
    if (param != DEV_NONE && ir->info[param].init.kind == IR_INIT_NONE)
        ir->info[param].init = (struct ir_init){.kind = kind, .bound = (float)bound};
}

/* ------------------------------------------------------------------ by the graph */

struct by_name {
    struct ir *ir;
    const struct graph *g;
    struct names params;
};

static void set_value(const struct by_name *b, const struct graph_node *n, uint32_t in,
                      enum ir_init_kind kind, double bound)
{
    uint32_t at = NAMES_NONE;

    if (in < n->n_in && n->in[in] != GRAPH_NONE)
        at = names_get(&b->params, b->g->values[n->in[in]].name);
    if (at != NAMES_NONE)
        set_init(b->ir, at, kind, bound);
}

static int list_params(struct by_name *b, struct sh_err *err)
{
    int rc = names_init(&b->params, err);

    for (uint32_t i = 0; i < b->ir->g.n_tensors && !rc; i++)
        if (b->ir->info[i].state == IR_PARAM &&
            names_get(&b->params, ir_t(b->ir, i)->name) == NAMES_NONE)
            rc = names_put(&b->params, ir_t(b->ir, i)->name, i, err);
    return rc;
}

static void by_graph(const struct by_name *b)
{
    const struct graph *const g = b->g;
    static const char *const NORMS[] = {"BatchNormalization", "InstanceNormalization",
                                        "GroupNormalization", "LayerNormalization",
                                        "RMSNormalization"};
    static const char *const CELLS[] = {"LSTM", "GRU", "RNN"};

    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct graph_node *n = &g->nodes[i];

        for (size_t k = 0; k < SH_ARRAY_LEN(NORMS); k++)
            if (strcmp(n->op, NORMS[k]) == 0) {
                set_value(b, n, 1, IR_INIT_ONES, 0);
                set_value(b, n, 2, IR_INIT_ZEROS, 0);
            }
        for (size_t k = 0; k < SH_ARRAY_LEN(CELLS); k++)
            if (strcmp(n->op, CELLS[k]) == 0 && n->n_in > 2 && n->in[2] != GRAPH_NONE &&
                g->values[n->in[2]].rank == 3)
                for (uint32_t in = 1; in <= 3; in++)
                    set_value(b, n, in, IR_INIT_UNIFORM,
                              1 / sqrt((double)SH_MAX(g->values[n->in[2]].dims[2], INT64_C(1))));
    }
}

/* ------------------------------------------------------------------ by the operations */

/* 1 / sqrt of how many numbers of its input a result of a layer depends on, as PyTorch counts; 0:
 * no layer. *w: the operand that is its weight. */
static double bound_of(const struct ir *ir, const struct ir_uses *u, const struct dev_op *op,
                       uint32_t *w)
{
    const struct dev_tensor *t;
    int64_t n;

    *w = DEV_NONE;
    if (op->kind == DEV_OP_CONV || op->kind == DEV_OP_CONV_BWD_DATA) {
        *w = op->in[1];
        t = ir_t(ir, *w);
        n = dev_tensor_elements(t) / t->dims[0];
    } else if (op->kind == DEV_OP_MATMUL) {
        const bool is_b = param_of(ir, u, op->in[1]) != DEV_NONE;
        const bool last = is_b ? op->u.matmul.trans_b : !op->u.matmul.trans_a;

        *w = op->in[is_b];
        t = ir_t(ir, *w);
        n = t->rank < 2 ? t->dims[0] : t->dims[t->rank - (last ? 1 : 2)];
    } else {
        return 0;
    }
    return 1 / sqrt((double)SH_MAX(n, INT64_C(1)));
}

/* A norm, or one whose scale is an operation of its own. */
static bool is_norm(const struct ir *ir, const struct ir_uses *u, const struct dev_op *op)
{
    if (op->kind == DEV_OP_BINARY && op->u.binary.kind == DEV_BIN_MUL) {
        const struct dev_op *a = source_of(ir, u, op->in[0]), *b = source_of(ir, u, op->in[1]);

        return (a && a->kind == DEV_OP_LAYERNORM) || (b && b->kind == DEV_OP_LAYERNORM);
    }
    return op->kind == DEV_OP_LAYERNORM;
}

/* What is added to a layer's or a norm's result, or multiplies that of a norm. */
static void by_binary(struct ir *ir, const struct ir_uses *u, const struct dev_op *op)
{
    for (uint32_t k = 0; k < 2; k++) {
        const uint32_t param = param_of(ir, u, op->in[k]);
        const struct dev_op *other = source_of(ir, u, op->in[1 - k]);
        uint32_t w;

        if (param == DEV_NONE || !other)
            continue;
        if (other->kind == DEV_OP_LAYERNORM && op->u.binary.kind == DEV_BIN_MUL)
            set_init(ir, param, IR_INIT_ONES, 0);
        else if (op->u.binary.kind == DEV_BIN_ADD && bound_of(ir, u, other, &w) > 0 &&
                 param_of(ir, u, w) != DEV_NONE)
            set_init(ir, param, IR_INIT_UNIFORM, bound_of(ir, u, other, &w));
        else if (op->u.binary.kind == DEV_BIN_ADD && is_norm(ir, u, other))
            set_init(ir, param, IR_INIT_ZEROS, 0);
    }
}

static void by_op(struct ir *ir, const struct ir_uses *u, const struct dev_op *op)
{
    uint32_t w;
    const double bound = bound_of(ir, u, op, &w);

    if (bound > 0) {
        set_init(ir, param_of(ir, u, w), IR_INIT_UNIFORM, bound);
        if (op->kind != DEV_OP_CONV_BWD_DATA && op->n_in > 2 && param_of(ir, u, w) != DEV_NONE)
            set_init(ir, param_of(ir, u, op->in[2]), IR_INIT_UNIFORM, bound);
    } else if (op->kind == DEV_OP_GATHER && ir_t(ir, op->in[0])->rank == 2) {
        set_init(ir, param_of(ir, u, op->in[0]), IR_INIT_NORMAL, 1);
    } else if (op->kind == DEV_OP_LAYERNORM || op->kind == DEV_OP_BN_TRAIN) {
        set_init(ir, op->n_in > 1 ? param_of(ir, u, op->in[1]) : DEV_NONE, IR_INIT_ONES, 0);
        set_init(ir, op->n_in > 2 ? param_of(ir, u, op->in[2]) : DEV_NONE, IR_INIT_ZEROS, 0);
    } else if (op->kind == DEV_OP_BINARY) {
        by_binary(ir, u, op);
    }
    if (op->kind == DEV_OP_BN_TRAIN) {
        ir->info[ir_root(ir, op->in[3])].init.kind = IR_INIT_ZEROS;
        ir->info[ir_root(ir, op->in[4])].init.kind = IR_INIT_ONES;
    }
}

/* Tables first: one that is the last product too begins as a table. */
static void by_ops(struct ir *ir, const struct ir_uses *u)
{
    for (uint32_t i = 0; i < ir->g.n_ops; i++)
        if (ir->g.ops[i].kind == DEV_OP_GATHER)
            by_op(ir, u, &ir->g.ops[i]);
    for (uint32_t i = 0; i < ir->g.n_ops; i++)
        by_op(ir, u, &ir->g.ops[i]);
}

/* What nothing is known of keeps its value, as does what was not asked for. */
static struct init_count leave_out(struct ir *ir, const struct train_spec *t)
{
    struct init_count c = {.first_kept = ""};

    for (uint32_t i = 0; i < ir->g.n_tensors; i++) {
        struct ir_info *info = &ir->info[i];
        const char *name = ir_t(ir, i)->name;

        if (info->state != IR_PARAM && info->state != IR_STAT)
            continue;
        if ((t->init && !ir_is_named(ir, i, t->init)) || ir_is_named(ir, i, t->frozen)) {
            info->init.kind = IR_INIT_NONE;
            continue;
        }
        c.drawn += info->init.kind != IR_INIT_NONE;
        if (info->init.kind == IR_INIT_NONE && c.kept++ == 0)
            c.first_kept = name;
    }
    return c;
}

int init_note(struct ir *ir, const struct graph *g, const struct train_spec *t,
              struct init_count *count, struct sh_err *err)
{
    struct by_name b = {.ir = ir, .g = g};
    struct ir_uses u;
    int rc;

    *count = (struct init_count){.first_kept = ""};
    if (!t->draws)
        return SH_OK;
    rc = ir_uses_init(&u, ir) ? list_params(&b, err) : ir_done(ir, err);
    if (!rc) {
        by_graph(&b);
        by_ops(ir, &u);
        *count = leave_out(ir, t);
    }
    names_fini(&b.params);
    ir_uses_fini(&u);
    return rc;
}

/* ------------------------------------------------------------------ numbers */

/* FNV-1a. */
static uint64_t name_hash(const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

static double unit_of_word(uint32_t word) /* above 0, below 1 */
{
    return ((double)word + 0.5) / 4294967296.0;
}

void init_fill(const struct ir_init *how, uint64_t seed, const char *name, float *to, int64_t n)
{
    const uint64_t key = (seed + 1) * 0x9e3779b97f4a7c15u ^ name_hash(name);

    for (int64_t i = 0; i < n; i++) {
        const uint64_t block = (uint64_t)i / 2;
        const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), 0x696e6974, 0};
        uint32_t words[4];
        double a, b;

        dev_philox(key, counter, words);
        a = unit_of_word(words[i % 2 * 2]);
        b = unit_of_word(words[i % 2 * 2 + 1]);
        to[i] = how->kind == IR_INIT_ONES    ? 1
                : how->kind == IR_INIT_ZEROS ? 0
                : how->kind == IR_INIT_UNIFORM
                    ? (float)((2 * a - 1) * (double)how->bound)
                    : (float)(sqrt(-2 * log(a)) * cos(6.283185307179586 * b) * (double)how->bound);
    }
}
