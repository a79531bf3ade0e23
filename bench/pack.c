/* pack.c - what packing makes of the weights in a safetensors file (FP32): the bits that a number
 * takes beside those that the entropy of its exponents would, how fast they are packed and unpacked
 * by one core, and how fast a device unpacks them.
 *
 *     pack FILE tf32|fp32|fp16|bf16 [cpu|cuda]
 *
 * Numbers of matrices are rounded as registration rounds them; in tf32, those of embeddings and of
 * vectors stay. --raw FILE writes what was packed, for other packers (bench/peers/pack.py). */
#include "runtime/pack/pack.h"

#include "common/clock.h"
#include "common/half.h"
#include "common/mem.h"
#include "common/safetensors.h"
#include "runtime/device/dev.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 21
#define MAX_LAYERS 4096u

struct weights {
    unsigned char *image, *packed, *back; /* OWNED */
    struct dev_packed layers[MAX_LAYERS]; /* offsets in `packed` and `image` */
    uint32_t n;
    size_t bytes, packed_bytes, numbers;
    double entropy; /* of exponents, bits of all numbers */
};

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* To the nearest, ties to even. */
static uint32_t to_tf32(uint32_t u)
{
    return (u + 0xfffu + (u >> 13 & 1u)) & ~0x1fffu;
}

static void count_entropy(struct weights *w, const size_t counts[256], size_t n)
{
    for (int e = 0; e < 256; e++)
        if (counts[e])
            w->entropy -= (double)counts[e] * log2((double)counts[e] / (double)n);
}

/* The tensor as a layer at `to`. Returns its bytes. */
static size_t store(struct weights *w, const struct sh_st_tensor *t, enum pack_type type, bool tf32,
                    unsigned char *to)
{
    const size_t n = t->bytes / sizeof(float);
    size_t counts[256] = {0};

    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        uint16_t h;
        float x;

        memcpy(&u, (const char *)t->data + i * sizeof(u), sizeof(u));
        memcpy(&x, &u, sizeof(x));
        if (type == PACK_32) {
            u = tf32 ? to_tf32(u) : u;
            memcpy(to + i * sizeof(u), &u, sizeof(u));
            counts[u >> 23 & 255]++;
        } else {
            h = type == PACK_F16 ? sh_f16_of(x) : sh_bf16_of(x);
            memcpy(to + i * sizeof(h), &h, sizeof(h));
            counts[type == PACK_F16 ? h >> 10 & 31 : h >> 7 & 255]++;
        }
    }
    count_entropy(w, counts, n);
    w->numbers += n;
    return n * (type == PACK_32 ? 4 : 2);
}

/* What kernels read in full precision in a model in tf32. */
static bool is_read_whole(const struct sh_st_tensor *t)
{
    return t->rank < 2 || strstr(t->name, "embed") != NULL;
}

static int add_layer(struct weights *w, const struct sh_st_tensor *t, const char *precision,
                     enum pack_type type, int64_t *pack_ns, struct sh_err *err)
{
    struct dev_packed *l = &w->layers[w->n];
    const bool tf32 = strcmp(precision, "tf32") == 0 && !is_read_whole(t);
    const size_t bytes = store(w, t, type, tf32, w->image + w->bytes);
    const size_t all = SH_ALIGN_UP(bytes, DEV_ALIGN);
    int64_t began;
    int rc;

    memset(w->image + w->bytes + bytes, 0, all - bytes);
    *l = (struct dev_packed){.at = w->packed_bytes, .to = w->bytes, .bytes = all};
    began = sh_clock_ns();
    rc = pack_layer(w->image + w->bytes, all, &(struct pack_span){.bytes = all, .type = type}, 1,
                    w->packed + w->packed_bytes, &l->packed_bytes, err);
    *pack_ns += sh_clock_ns() - began;
    w->packed_bytes += l->packed_bytes;
    w->bytes += all;
    w->n++;
    return rc;
}

static int unpack_here(struct weights *w, int64_t *ns, struct sh_err *err)
{
    const int64_t began = sh_clock_ns();
    int rc = SH_OK;

    for (uint32_t i = 0; !rc && i < w->n; i++)
        rc = pack_unpack(w->packed + w->layers[i].at, w->layers[i].packed_bytes,
                         w->back + w->layers[i].to, w->layers[i].bytes, err);
    *ns = sh_clock_ns() - began;
    if (!rc && memcmp(w->back, w->image, w->bytes) != 0)
        rc = SH_FAIL(err, SH_E_BUG, "other weights came out");
    return rc;
}

/* Median of whole calls, launches and the wait included. */
static int time_on_device(struct weights *w, struct dev *d, int64_t *ns, struct sh_err *err)
{
    const size_t at = SH_ALIGN_UP(w->bytes, DEV_BLOCK);
    int64_t took[ROUNDS];
    int rc = dev_upload(d, at, w->packed, w->packed_bytes, err);

    for (uint32_t i = 0; i < w->n; i++)
        w->layers[i].at += at;
    for (int k = 0; !rc && k < ROUNDS; k++) {
        rc = dev_sync(d, err);
        took[k] = sh_clock_ns();
        if (!rc)
            rc = dev_unpack(d, w->layers, w->n, err);
        if (!rc)
            rc = dev_sync(d, err);
        took[k] = sh_clock_ns() - took[k];
    }
    if (!rc)
        rc = dev_download(d, w->back, 0, w->bytes, err);
    if (!rc)
        rc = dev_sync(d, err);
    if (!rc && memcmp(w->back, w->image, w->bytes) != 0)
        rc = SH_FAIL(err, SH_E_BUG, "other weights came out of the device");
    if (!rc) {
        qsort(took, ROUNDS, sizeof(took[0]), compare);
        *ns = took[ROUNDS / 2];
    }
    return rc;
}

static int bench_device(struct weights *w, const char *kind, struct sh_err *err)
{
    struct dev_conf c = {.threads = 1,
                         .arena_bytes =
                             SH_ALIGN_UP(w->bytes + w->packed_bytes, DEV_BLOCK) + 4 * DEV_BLOCK};
    struct dev_lib *lib = NULL;
    struct dev *d = NULL;
    int64_t ns = 0;
    int rc = dev_lib_open(kind, &lib, err);

    if (!rc)
        rc = dev_open(lib, &c, &d, err);
    if (!rc)
        rc = time_on_device(w, d, &ns, err);
    if (!rc)
        printf("  device   unpacks in %.3f ms, %.0f GB/s written\n", (double)ns / 1e6,
               (double)w->bytes / (double)ns);
    dev_close(d);
    dev_lib_close(lib);
    return rc;
}

static int write_raw(const struct weights *w, const char *path, struct sh_err *err)
{
    FILE *f = fopen(path, "we");
    bool ok = f && fwrite(w->image, 1, w->bytes, f) == w->bytes;

    if (f && fclose(f) != 0)
        ok = false;
    return ok ? SH_OK : SH_FAIL_ERRNO(err, SH_E_IO, "could not write %s", path);
}

static int bench(const struct sh_st *st, const char *precision, const char *kind, const char *raw,
                 struct sh_err *err)
{
    struct weights *w = calloc(1, sizeof(*w));
    const enum pack_type type = strcmp(precision, "fp16") == 0   ? PACK_F16
                                : strcmp(precision, "bf16") == 0 ? PACK_BF16
                                                                 : PACK_32;
    int64_t pack_ns = 0, unpack_ns = 0;
    size_t most = 0;
    int rc = SH_OK;

    for (size_t i = 0; i < sh_st_count(st); i++)
        most += pack_bound(sh_st_at(st, i)->bytes, 1);
    if (w) {
        w->image = malloc(most);
        w->packed = aligned_alloc(PACK_ALIGN, SH_ALIGN_UP(most, (size_t)PACK_ALIGN));
        w->back = malloc(most);
    }
    if (!w || !w->image || !w->packed || !w->back)
        rc = SH_FAIL(err, SH_E_NOMEM, "could not allocate the weights");
    for (size_t i = 0; !rc && i < sh_st_count(st) && w->n < MAX_LAYERS; i++)
        if (sh_st_at(st, i)->dtype == SH_F32 && sh_st_at(st, i)->bytes)
            rc = add_layer(w, sh_st_at(st, i), precision, type, &pack_ns, err);
    if (!rc)
        rc = unpack_here(w, &unpack_ns, err);
    if (!rc)
        printf("%s: %u layers, %.1f MB to %.1f MB, %.4f; %.2f bits a number, exponents %.2f by "
               "their entropy\n  one core packs %.0f MB/s, unpacks %.0f MB/s\n",
               precision, w->n, (double)w->bytes / 1e6, (double)w->packed_bytes / 1e6,
               (double)w->packed_bytes / (double)w->bytes,
               8 * (double)w->packed_bytes / (double)w->numbers, w->entropy / (double)w->numbers,
               (double)w->bytes * 1e3 / (double)pack_ns,
               (double)w->bytes * 1e3 / (double)unpack_ns);
    if (!rc && raw)
        rc = write_raw(w, raw, err);
    if (!rc && kind)
        rc = bench_device(w, kind, err);
    if (w) {
        free(w->image);
        free(w->packed);
        free(w->back);
    }
    free(w);
    return rc;
}

int main(int argc, char **argv)
{
    struct sh_err err = {0};
    struct sh_st *st = NULL;
    const char *raw = NULL;
    int rc;

    if (argc > 2 && strcmp(argv[1], "--raw") == 0) {
        raw = argv[2];
        argv += 2;
        argc -= 2;
    }
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: pack [--raw FILE] FILE tf32|fp32|fp16|bf16 [cpu|cuda]\n");
        return EXIT_FAILURE;
    }
    rc = sh_st_open(argv[1], &st, &err);
    if (!rc)
        rc = bench(st, argv[2], argc > 3 ? argv[3] : NULL, raw, &err);
    sh_st_close(st);
    if (rc)
        fprintf(stderr, "%s\n", err.msg);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
