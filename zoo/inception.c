/* inception.c - Inception-v3 (Szegedy et al., 2015) as torchvision builds it, without the auxiliary
 * head. BatchNorm with eps 1e-3. */
#include "zoo/zoo.h"

#include <math.h>
#include <stdio.h>

/* One step of a branch: a convolution, or an average pool before it. */
struct step {
    const char *name;
    int64_t out, kh, kw, stride, ph, pw;
};

struct branch {
    const char *pool; /* NULL, "AveragePool" (3x3, stride 1, padded) or "MaxPool" (3x3, stride 2) */
    struct step step[6]; /* ends with name NULL */
};

static uint32_t basic(struct zoo *z, uint32_t x, const char *module, const struct step *s,
                      int64_t *channels)
{
    struct zoo_conv c = {*channels, s->out, s->kh, s->kw, s->stride, s->ph, s->pw};
    char conv[96], bn[96];

    snprintf(conv, sizeof(conv), "%s%s%s.conv", module, *module ? "." : "", s->name);
    snprintf(bn, sizeof(bn), "%s%s%s.bn", module, *module ? "." : "", s->name);
    *channels = s->out;
    return zoo_unary(z, zoo_batchnorm(z, zoo_conv(z, x, conv, &c, false), bn, s->out, 1e-3, 1),
                     "Relu");
}

static uint32_t run_branch(struct zoo *z, uint32_t x, const char *module, const struct branch *b,
                           int64_t *channels)
{
    if (b->pool)
        x = zoo_pool(z, x, b->pool, 3, b->pool[0] == 'A' ? 1 : 2, b->pool[0] == 'A' ? 1 : 0);
    for (const struct step *s = b->step; s->name; s++)
        x = basic(z, x, module, s, channels);
    return x;
}

static uint32_t run_module(struct zoo *z, uint32_t x, const char *module, const struct branch *b,
                           uint32_t n, int64_t *channels)
{
    uint32_t out[6];
    int64_t sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        int64_t c = *channels;

        out[i] = run_branch(z, x, module, &b[i], &c);
        sum += c;
    }
    *channels = sum;
    return zoo_concat(z, out, n);
}

static uint32_t module_a(struct zoo *z, uint32_t x, const char *m, int64_t pool_out, int64_t *ch)
{
    const struct branch b[4] = {
        {NULL, {{"branch1x1", 64, 1, 1, 1, 0, 0}}},
        {NULL, {{"branch5x5_1", 48, 1, 1, 1, 0, 0}, {"branch5x5_2", 64, 5, 5, 1, 2, 2}}},
        {NULL,
         {{"branch3x3dbl_1", 64, 1, 1, 1, 0, 0},
          {"branch3x3dbl_2", 96, 3, 3, 1, 1, 1},
          {"branch3x3dbl_3", 96, 3, 3, 1, 1, 1}}},
        {"AveragePool", {{"branch_pool", pool_out, 1, 1, 1, 0, 0}}},
    };

    return run_module(z, x, m, b, 4, ch);
}

static uint32_t module_b(struct zoo *z, uint32_t x, const char *m, int64_t *ch)
{
    static const struct branch B[3] = {
        {NULL, {{"branch3x3", 384, 3, 3, 2, 0, 0}}},
        {NULL,
         {{"branch3x3dbl_1", 64, 1, 1, 1, 0, 0},
          {"branch3x3dbl_2", 96, 3, 3, 1, 1, 1},
          {"branch3x3dbl_3", 96, 3, 3, 2, 0, 0}}},
        {"MaxPool", {{0}}},
    };

    return run_module(z, x, m, B, 3, ch);
}

static uint32_t module_c(struct zoo *z, uint32_t x, const char *m, int64_t c7, int64_t *ch)
{
    const struct branch b[4] = {
        {NULL, {{"branch1x1", 192, 1, 1, 1, 0, 0}}},
        {NULL,
         {{"branch7x7_1", c7, 1, 1, 1, 0, 0},
          {"branch7x7_2", c7, 1, 7, 1, 0, 3},
          {"branch7x7_3", 192, 7, 1, 1, 3, 0}}},
        {NULL,
         {{"branch7x7dbl_1", c7, 1, 1, 1, 0, 0},
          {"branch7x7dbl_2", c7, 7, 1, 1, 3, 0},
          {"branch7x7dbl_3", c7, 1, 7, 1, 0, 3},
          {"branch7x7dbl_4", c7, 7, 1, 1, 3, 0},
          {"branch7x7dbl_5", 192, 1, 7, 1, 0, 3}}},
        {"AveragePool", {{"branch_pool", 192, 1, 1, 1, 0, 0}}},
    };

    return run_module(z, x, m, b, 4, ch);
}

static uint32_t module_d(struct zoo *z, uint32_t x, const char *m, int64_t *ch)
{
    static const struct branch B[3] = {
        {NULL, {{"branch3x3_1", 192, 1, 1, 1, 0, 0}, {"branch3x3_2", 320, 3, 3, 2, 0, 0}}},
        {NULL,
         {{"branch7x7x3_1", 192, 1, 1, 1, 0, 0},
          {"branch7x7x3_2", 192, 1, 7, 1, 0, 3},
          {"branch7x7x3_3", 192, 7, 1, 1, 3, 0},
          {"branch7x7x3_4", 192, 3, 3, 2, 0, 0}}},
        {"MaxPool", {{0}}},
    };

    return run_module(z, x, m, B, 3, ch);
}

/* Two of its branches fork once more at their end: 1x3 beside 3x1. */
static uint32_t module_e(struct zoo *z, uint32_t x, const char *m, int64_t *ch)
{
    static const struct step ONE = {"branch1x1", 320, 1, 1, 1, 0, 0};
    static const struct step STEM[2][2] = {
        {{"branch3x3_1", 384, 1, 1, 1, 0, 0}},
        {{"branch3x3dbl_1", 448, 1, 1, 1, 0, 0}, {"branch3x3dbl_2", 384, 3, 3, 1, 1, 1}},
    };
    static const struct step FORK[2][2] = {
        {{"branch3x3_2a", 384, 1, 3, 1, 0, 1}, {"branch3x3_2b", 384, 3, 1, 1, 1, 0}},
        {{"branch3x3dbl_3a", 384, 1, 3, 1, 0, 1}, {"branch3x3dbl_3b", 384, 3, 1, 1, 1, 0}},
    };
    static const struct branch POOL = {"AveragePool", {{"branch_pool", 192, 1, 1, 1, 0, 0}}};
    uint32_t out[4];
    int64_t c = *ch;

    out[0] = basic(z, x, m, &ONE, &c);
    for (int i = 0; i < 2; i++) {
        uint32_t y = x, fork[2];

        c = *ch;
        for (int k = 0; k <= i; k++)
            y = basic(z, y, m, &STEM[i][k], &c);
        for (int k = 0; k < 2; k++) {
            int64_t in = c;

            fork[k] = basic(z, y, m, &FORK[i][k], &in);
        }
        out[i + 1] = zoo_concat(z, fork, 2);
    }
    c = *ch;
    out[3] = run_branch(z, x, m, &POOL, &c);
    *ch = 2048;
    return zoo_concat(z, out, 4);
}

int zoo_inception_v3(struct zoo *z, struct graph **out)
{
    static const struct step STEM[5] = {
        {"Conv2d_1a_3x3", 32, 3, 3, 2, 0, 0},  {"Conv2d_2a_3x3", 32, 3, 3, 1, 0, 0},
        {"Conv2d_2b_3x3", 64, 3, 3, 1, 1, 1},  {"Conv2d_3b_1x1", 80, 1, 1, 1, 0, 0},
        {"Conv2d_4a_3x3", 192, 3, 3, 1, 0, 0},
    };
    int64_t ch = 3;
    uint32_t x = zoo_input(z, "x", SH_F32, 4, (const int64_t[]){-1, 3, 299, 299});

    for (int i = 0; i < 5; i++) {
        x = basic(z, x, "", &STEM[i], &ch);
        if (i == 2 || i == 4)
            x = zoo_pool(z, x, "MaxPool", 3, 2, 0);
    }
    x = module_a(z, x, "Mixed_5b", 32, &ch);
    x = module_a(z, x, "Mixed_5c", 64, &ch);
    x = module_a(z, x, "Mixed_5d", 64, &ch);
    x = module_b(z, x, "Mixed_6a", &ch);
    x = module_c(z, x, "Mixed_6b", 128, &ch);
    x = module_c(z, x, "Mixed_6c", 160, &ch);
    x = module_c(z, x, "Mixed_6d", 160, &ch);
    x = module_c(z, x, "Mixed_6e", 192, &ch);
    x = module_d(z, x, "Mixed_7a", &ch);
    x = module_e(z, x, "Mixed_7b", &ch);
    x = module_e(z, x, "Mixed_7c", &ch);
    x = zoo_dropout(z, zoo_unary(z, x, "GlobalAveragePool"), 0.5);
    x = zoo_linear(z, zoo_flatten(z, x), "fc", ch, 1000, 1 / sqrt((double)ch));
    return zoo_finish(z, x, 1000, out);
}
