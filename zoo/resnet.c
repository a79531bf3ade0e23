/* resnet.c - ResNet (He et al., 2015) as torchvision builds it: the stride of a bottleneck is in
 * its
 * 3x3 convolution. And the small CNN for 8x8 digits. */
#include "zoo/zoo.h"

#include <math.h>
#include <stdio.h>

#define BN_EPS 1e-5
#define LAST_GAMMA 0.25f

struct stage {
    int blocks;
    int64_t width, stride;
};

static uint32_t conv_bn(struct zoo *z, uint32_t x, const char *conv, const char *bn,
                        const struct zoo_conv *c, float gamma)
{
    return zoo_batchnorm(z, zoo_conv(z, x, conv, c, false), bn, c->out, BN_EPS, gamma);
}

static struct zoo_conv square(int64_t in, int64_t out, int64_t k, int64_t stride)
{
    return (struct zoo_conv){in, out, k, k, stride, k / 2, k / 2};
}

/* name: "layer1.0". The convolutions are k[0..n), channels in -> width ... -> out. */
static uint32_t block(struct zoo *z, uint32_t x, const char *name, int64_t in, int64_t width,
                      int64_t stride, bool bottleneck)
{
    int64_t out = bottleneck ? width * 4 : width;
    struct zoo_conv convs[3];
    int n = bottleneck ? 3 : 2;
    uint32_t y = x, shortcut = x;
    char conv[64], bn[64];

    convs[0] = bottleneck ? square(in, width, 1, 1) : square(in, width, 3, stride);
    convs[1] = square(width, width, 3, bottleneck ? stride : 1);
    convs[2] = square(width, out, 1, 1);
    for (int i = 0; i < n; i++) {
        snprintf(conv, sizeof(conv), "%s.conv%d", name, i + 1);
        snprintf(bn, sizeof(bn), "%s.bn%d", name, i + 1);
        y = conv_bn(z, y, conv, bn, &convs[i], i + 1 == n ? LAST_GAMMA : 1);
        if (i + 1 < n)
            y = zoo_unary(z, y, "Relu");
    }
    if (stride != 1 || in != out) {
        struct zoo_conv down = square(in, out, 1, stride);

        snprintf(conv, sizeof(conv), "%s.downsample.0", name);
        snprintf(bn, sizeof(bn), "%s.downsample.1", name);
        shortcut = conv_bn(z, x, conv, bn, &down, 1);
    }
    return zoo_unary(z, zoo_binary(z, "Add", y, shortcut), "Relu");
}

int zoo_resnet(struct zoo *z, int depth, struct graph **out)
{
    static const int BLOCKS[3][4] = {{2, 2, 2, 2}, {3, 4, 6, 3}, {3, 8, 36, 3}};
    const int *blocks = BLOCKS[depth == 18 ? 0 : depth == 50 ? 1 : 2];
    const struct zoo_conv stem = square(3, 64, 7, 2);
    bool bottleneck = depth > 34;
    int64_t channels = 64;
    uint32_t x;

    x = zoo_input(z, "x", SH_F32, 4, (const int64_t[]){-1, 3, 224, 224});
    x = zoo_unary(z, conv_bn(z, x, "conv1", "bn1", &stem, 1), "Relu");
    x = zoo_pool(z, x, "MaxPool", 3, 2, 1);
    for (int s = 0; s < 4; s++) {
        int64_t width = (int64_t)64 << s;

        for (int b = 0; b < blocks[s]; b++) {
            char name[32];

            snprintf(name, sizeof(name), "layer%d.%d", s + 1, b);
            x = block(z, x, name, channels, width, s > 0 && b == 0 ? 2 : 1, bottleneck);
            channels = bottleneck ? width * 4 : width;
        }
    }
    x = zoo_flatten(z, zoo_unary(z, x, "GlobalAveragePool"));
    x = zoo_linear(z, x, "fc", channels, 1000, 1 / sqrt((double)channels));
    return zoo_finish(z, x, 1000, out);
}

int zoo_digits_cnn(struct zoo *z, struct graph **out)
{
    const struct zoo_conv c1 = square(1, 32, 3, 1), c2 = square(32, 64, 3, 1);
    uint32_t x = zoo_input(z, "x", SH_F32, 4, (const int64_t[]){-1, 1, 8, 8});

    x = zoo_unary(z, conv_bn(z, x, "conv1", "bn1", &c1, 1), "Relu");
    x = zoo_unary(z, conv_bn(z, x, "conv2", "bn2", &c2, 1), "Relu");
    x = zoo_flatten(z, zoo_pool(z, x, "MaxPool", 2, 2, 0));
    x = zoo_unary(z, zoo_linear(z, x, "fc1", 64 * 4 * 4, 128, sqrt(2.0 / (64 * 4 * 4))), "Relu");
    x = zoo_linear(z, x, "fc2", 128, 10, 1 / sqrt(128.0));
    return zoo_finish(z, x, 10, out);
}
