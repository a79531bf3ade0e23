/* bert.c - BERT-base (Devlin et al., 2018): 12 layers, 768 wide, 12 heads, with a classifier on the
 * pooled first token. GELU with erf; LayerNorm eps 1e-12; the attention mask adds -10000. */
#include "zoo/zoo.h"

#include <math.h>
#include <stdio.h>

#define WIDTH 768
#define HEADS 12
#define FFN 3072
#define VOCAB 30522
#define POSITIONS 512
#define STD 0.02
#define DROPOUT 0.1

static uint32_t layernorm(struct zoo *z, uint32_t x, const char *name)
{
    const int64_t dim = WIDTH;
    uint32_t in[3] = {x, 0, 0}, y;
    struct graph_node *n;
    char p[96];

    snprintf(p, sizeof(p), "%s.weight", name);
    in[1] = zoo_fill(z, p, 1, &dim, 1);
    snprintf(p, sizeof(p), "%s.bias", name);
    in[2] = zoo_fill(z, p, 1, &dim, 0);
    y = zoo_node(z, name, "LayerNormalization", in, 3, &n);
    zoo_attr_int(z, n, "axis", -1);
    zoo_attr_float(z, n, "epsilon", 1e-12);
    return y;
}

/* MatMul and bias over [N, seq, in]; weights stand as [in, out]. */
static uint32_t dense(struct zoo *z, uint32_t x, const char *name, int64_t in, int64_t out)
{
    uint32_t w, b;
    char p[96];

    snprintf(p, sizeof(p), "%s.weight", name);
    w = zoo_param(z, p, 2, (const int64_t[]){in, out}, STD);
    snprintf(p, sizeof(p), "%s.bias", name);
    b = zoo_fill(z, p, 1, &out, 0);
    return zoo_binary(z, "Add", zoo_binary(z, "MatMul", x, w), b);
}

static uint32_t reshape(struct zoo *z, uint32_t x, const int64_t *shape, int64_t rank)
{
    return zoo_binary(z, "Reshape", x, zoo_const_i64(z, 1, &rank, shape));
}

static uint32_t transpose(struct zoo *z, uint32_t x, const int64_t perm[static 4])
{
    struct graph_node *n;
    uint32_t y = zoo_node(z, NULL, "Transpose", &x, 1, &n);

    zoo_attr_ints(z, n, "perm", perm, 4);
    return y;
}

static uint32_t heads(struct zoo *z, uint32_t x, const char *layer, const char *part, int64_t seq,
                      bool keys)
{
    static const int64_t ROWS[4] = {0, 2, 1, 3}, COLUMNS[4] = {0, 2, 3, 1};
    const int64_t split[4] = {-1, seq, HEADS, WIDTH / HEADS};
    char name[96];

    snprintf(name, sizeof(name), "%s.attention.self.%s", layer, part);
    x = reshape(z, dense(z, x, name, WIDTH, WIDTH), split, 4);
    return transpose(z, x, keys ? COLUMNS : ROWS);
}

static uint32_t attention(struct zoo *z, uint32_t x, uint32_t mask, const char *layer, int64_t seq)
{
    static const int64_t ROWS[4] = {0, 2, 1, 3};
    const int64_t joined[3] = {-1, seq, WIDTH};
    uint32_t q = heads(z, x, layer, "query", seq, false), k = heads(z, x, layer, "key", seq, true);
    uint32_t v = heads(z, x, layer, "value", seq, false), s;
    struct graph_node *n;
    char name[96];

    s = zoo_binary(z, "Div", zoo_binary(z, "MatMul", q, k), zoo_const_f32(z, sqrtf(WIDTH / HEADS)));
    s = zoo_binary(z, "Add", s, mask);
    s = zoo_node(z, NULL, "Softmax", &s, 1, &n);
    zoo_attr_int(z, n, "axis", -1);
    s = zoo_dropout(z, s, DROPOUT);
    s = reshape(z, transpose(z, zoo_binary(z, "MatMul", s, v), ROWS), joined, 3);
    snprintf(name, sizeof(name), "%s.attention.output.dense", layer);
    s = zoo_binary(z, "Add", zoo_dropout(z, dense(z, s, name, WIDTH, WIDTH), DROPOUT), x);
    snprintf(name, sizeof(name), "%s.attention.output.LayerNorm", layer);
    return layernorm(z, s, name);
}

static uint32_t gelu(struct zoo *z, uint32_t x)
{
    uint32_t e = zoo_unary(z, zoo_binary(z, "Div", x, zoo_const_f32(z, sqrtf(2))), "Erf");

    e = zoo_binary(z, "Mul", x, zoo_binary(z, "Add", e, zoo_const_f32(z, 1)));
    return zoo_binary(z, "Mul", e, zoo_const_f32(z, 0.5f));
}

static uint32_t feed_forward(struct zoo *z, uint32_t x, const char *layer)
{
    uint32_t y;
    char name[96];

    snprintf(name, sizeof(name), "%s.intermediate.dense", layer);
    y = gelu(z, dense(z, x, name, WIDTH, FFN));
    snprintf(name, sizeof(name), "%s.output.dense", layer);
    y = zoo_binary(z, "Add", zoo_dropout(z, dense(z, y, name, FFN, WIDTH), DROPOUT), x);
    snprintf(name, sizeof(name), "%s.output.LayerNorm", layer);
    return layernorm(z, y, name);
}

static uint32_t embed(struct zoo *z, uint32_t ids, int64_t seq)
{
    uint32_t words, positions, types, x;
    int64_t index[POSITIONS];

    for (int64_t i = 0; i < seq; i++)
        index[i] = i;
    words = zoo_param(z, "bert.embeddings.word_embeddings.weight", 2,
                      (const int64_t[]){VOCAB, WIDTH}, STD);
    positions = zoo_param(z, "bert.embeddings.position_embeddings.weight", 2,
                          (const int64_t[]){POSITIONS, WIDTH}, STD);
    types = zoo_param(z, "bert.embeddings.token_type_embeddings.weight", 2,
                      (const int64_t[]){2, WIDTH}, STD);
    x = zoo_binary(z, "Gather", words, ids);
    x = zoo_binary(z, "Add", x,
                   zoo_binary(z, "Gather", types,
                              zoo_const_i64(z, 1, (const int64_t[]){1}, (const int64_t[]){0})));
    x = zoo_binary(z, "Add", x,
                   zoo_binary(z, "Gather", positions, zoo_const_i64(z, 1, &seq, index)));
    return zoo_dropout(z, layernorm(z, x, "bert.embeddings.LayerNorm"), DROPOUT);
}

/* (1 - mask) * -10000 as [N, 1, 1, seq]. */
static uint32_t bert_mask_bias(struct zoo *z, uint32_t mask, int64_t seq)
{
    struct graph_node *n;
    uint32_t m = zoo_node(z, NULL, "Cast", &mask, 1, &n);

    zoo_attr_int(z, n, "to", sh_dtype_onnx(SH_F32));
    m = reshape(z, m, (const int64_t[]){-1, 1, 1, seq}, 4);
    m = zoo_binary(z, "Sub", zoo_const_f32(z, 1), m);
    return zoo_binary(z, "Mul", m, zoo_const_f32(z, -10000));
}

int zoo_bert_base(struct zoo *z, int64_t seq, struct graph **out)
{
    const int64_t dims[2] = {-1, seq}, one = 1, zero = 0;
    uint32_t ids, mask, x;
    struct graph_node *n;

    if (seq < 1 || seq > POSITIONS)
        return SH_FAIL(z->err, SH_E_INVALID, "a sequence has 1 to %d tokens", POSITIONS);
    ids = zoo_input(z, "input_ids", SH_I64, 2, dims);
    mask = zoo_input(z, "attention_mask", SH_I64, 2, dims);
    mask = bert_mask_bias(z, mask, seq);
    x = embed(z, ids, seq);
    for (int i = 0; i < 12; i++) {
        char layer[48];

        snprintf(layer, sizeof(layer), "bert.encoder.layer.%d", i);
        x = feed_forward(z, attention(z, x, mask, layer, seq), layer);
    }
    /* The first token: a scalar index drops the axis. */
    x = zoo_node(z, NULL, "Gather", (const uint32_t[]){x, zoo_const_i64(z, 0, &one, &zero)}, 2, &n);
    zoo_attr_int(z, n, "axis", 1);
    x = zoo_unary(z, zoo_linear(z, x, "bert.pooler.dense", WIDTH, WIDTH, STD), "Tanh");
    x = zoo_linear(z, zoo_dropout(z, x, DROPOUT), "classifier", WIDTH, 2, STD);
    return zoo_finish(z, x, 2, out);
}
