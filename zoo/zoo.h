/* zoo.h - writing standard architectures as ONNX with seeded random weights, so that no download is
 * needed.
 *
 * A builder keeps the first failure and turns every later call into nothing, so that an
 * architecture reads as a list of layers; zoo_finish() reports it. Values are numbers of the graph.
 * Parameters carry PyTorch's names. Weights: He initialisation for convolutions (normal, fan out),
 * normal with 0.02 for transformers, as the papers do. The last BatchNorm of a residual block
 * starts with gamma 0.25, so that activations stay in range in inference form, where nothing
 * normalises random weights.
 */
#ifndef SH_ZOO_ZOO_H
#define SH_ZOO_ZOO_H

#include "runtime/model/graph.h"

enum zoo_form { ZOO_INFERENCE, ZOO_TRAINING };

struct zoo {
    struct graph *g; /* OWNED until zoo_finish() */
    enum zoo_form form;
    uint64_t rng;
    int rc;
    struct sh_err *err; /* KEEPS */
};

struct zoo_conv {
    int64_t in, out; /* channels */
    int64_t kh, kw, stride, ph, pw;
};

int zoo_init(struct zoo *z, enum zoo_form form, uint64_t seed, struct sh_err *err);
void zoo_fini(struct zoo *z);
/* Marks the output [N, classes], checks the whole graph, hands it over. *out: OWNED,
 * graph_free(). */
int zoo_finish(struct zoo *z, uint32_t output, int64_t classes, struct graph **out);

/* name: PyTorch's module name; parameters are "<name>.weight" and so on. */
uint32_t zoo_input(struct zoo *z, const char *name, enum sh_dtype t, int rank, const int64_t *dims);
uint32_t zoo_param(struct zoo *z, const char *name, int rank, const int64_t *dims, double std);
uint32_t zoo_fill(struct zoo *z, const char *name, int rank, const int64_t *dims, float v);
uint32_t zoo_const_i64(struct zoo *z, int rank, const int64_t *dims, const int64_t *v);
uint32_t zoo_const_f32(struct zoo *z, float v); /* scalar */
/* One node with one output; name may be NULL. *node: the node for attributes, or NULL. */
uint32_t zoo_node(struct zoo *z, const char *name, const char *op, const uint32_t *in,
                  uint32_t n_in, struct graph_node **node);
void zoo_attr_int(struct zoo *z, struct graph_node *n, const char *name, int64_t v);
void zoo_attr_float(struct zoo *z, struct graph_node *n, const char *name, double v);
void zoo_attr_ints(struct zoo *z, struct graph_node *n, const char *name, const int64_t *v,
                   size_t k);

uint32_t zoo_conv(struct zoo *z, uint32_t x, const char *name, const struct zoo_conv *c, bool bias);
uint32_t zoo_batchnorm(struct zoo *z, uint32_t x, const char *name, int64_t channels, double eps,
                       float gamma);
uint32_t zoo_unary(struct zoo *z, uint32_t x, const char *op);
uint32_t zoo_binary(struct zoo *z, const char *op, uint32_t a, uint32_t b);
uint32_t zoo_pool(struct zoo *z, uint32_t x, const char *op, int64_t k, int64_t stride,
                  int64_t pad);
uint32_t zoo_concat(struct zoo *z, const uint32_t *x, uint32_t n);
uint32_t zoo_flatten(struct zoo *z, uint32_t x);
uint32_t zoo_dropout(struct zoo *z, uint32_t x, double ratio); /* x itself in inference form */
/* Gemm with transB, weights [out, in]. */
uint32_t zoo_linear(struct zoo *z, uint32_t x, const char *name, int64_t in, int64_t out,
                    double std);

/* The architectures. *out: OWNED. */
int zoo_resnet(struct zoo *z, int depth, struct graph **out); /* 18, 50, 152; x [N,3,224,224] */
int zoo_inception_v3(struct zoo *z, struct graph **out); /* x [N,3,299,299], no auxiliary head */
/* Sequence classification, 2 classes: input_ids, attention_mask I64 [N, seq]. */
int zoo_bert_base(struct zoo *z, int64_t seq, struct graph **out);
int zoo_digits_cnn(struct zoo *z, struct graph **out); /* x [N,1,8,8], 10 classes */

#endif
