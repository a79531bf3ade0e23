/* filekind.c - see filekind.h. */
#include "common/filekind.h"

#include "common/mem.h"

#include <stdbool.h>
#include <string.h>

static const struct {
    enum sh_file_kind kind;
    const char *head;
    size_t n;
} MAGIC[] = {
    {SH_FILE_ZIP, "PK\x03\x04", 4},    {SH_FILE_ZIP, "PK\x05\x06", 4}, /* an empty one */
    {SH_FILE_PICKLE, "\x80\x02", 2},                                   /* its protocol */
    {SH_FILE_PICKLE, "\x80\x03", 2},   {SH_FILE_PICKLE, "\x80\x04", 2},
    {SH_FILE_PICKLE, "\x80\x05", 2},   {SH_FILE_HDF5, "\x89HDF\r\n\x1a\n", 8},
    {SH_FILE_GZIP, "\x1f\x8b\x08", 3}, {SH_FILE_NUMPY, "\x93NUMPY", 6},
    {SH_FILE_GGUF, "GGUF", 4},         {SH_FILE_LFS, "version https://git-lfs", 23},
    {SH_FILE_JPEG, "\xff\xd8\xff", 3}, {SH_FILE_PNG, "\x89PNG\r\n\x1a\n", 8},
    {SH_FILE_PARQUET, "PAR1", 4},
};

static const char *const TEXTS[SH_N_FILE_KINDS] = {
    [SH_FILE_OTHER] = "something else",
    [SH_FILE_ONNX] = "an ONNX file",
    [SH_FILE_SAFETENSORS] = "a safetensors file",
    [SH_FILE_ZIP] = "a zip file, such as torch.save of PyTorch writes",
    [SH_FILE_PICKLE] = "a pickle of Python, such as older PyTorch writes",
    [SH_FILE_HDF5] = "an HDF5 file, such as Keras writes",
    [SH_FILE_GZIP] = "a gzip file: unpack it first",
    [SH_FILE_NUMPY] = "an array of NumPy",
    [SH_FILE_GGUF] = "a GGUF file",
    [SH_FILE_LFS] = "a pointer of Git LFS: `git lfs pull` fetches the file itself",
    [SH_FILE_JPEG] = "a JPEG picture",
    [SH_FILE_PNG] = "a PNG picture",
    [SH_FILE_PARQUET] = "a Parquet file: write it as .npz or .csv",
    [SH_FILE_TAR] = "a tar file",
    [SH_FILE_TEXT] = "text",
};

/* The length of a header of less than 4 GiB, then the header, which is JSON. Its length may look
 * like the magic number of others, so this comes before them. */
static bool is_safetensors(const unsigned char *p, size_t n)
{
    return n > 8 && p[8] == '{' && memcmp(p + 4, "\0\0\0", 4) == 0;
}

/* ir_version, then who made it, its domain, its graph or its opsets. */
static bool is_onnx(const unsigned char *p, size_t n)
{
    return n > 2 && p[0] == 0x08 && p[1] < 0x20 && memchr("\x12\x1a\x22\x28\x32\x3a\x42", p[2], 7);
}

/* Its first entry's name may look like anything, so this comes before the others. */
static bool is_tar(const unsigned char *p, size_t n)
{
    return n >= 263 && p[0] && memcmp(p + 257, "ustar", 5) == 0 && (!p[262] || p[262] == ' ');
}

static bool is_text_bytes(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((p[i] < ' ' && !memchr("\t\n\r\f", p[i], 4)) || p[i] == 0x7f)
            return false;
    return n > 0;
}

enum sh_file_kind sh_file_kind(const void *head, size_t n)
{
    n = SH_MIN(n, (size_t)SH_FILE_HEAD);
    if (is_safetensors(head, n))
        return SH_FILE_SAFETENSORS;
    if (is_tar(head, n))
        return SH_FILE_TAR;
    for (size_t i = 0; i < SH_ARRAY_LEN(MAGIC); i++)
        if (n >= MAGIC[i].n && memcmp(head, MAGIC[i].head, MAGIC[i].n) == 0)
            return MAGIC[i].kind;
    if (is_onnx(head, n))
        return SH_FILE_ONNX;
    return is_text_bytes(head, n) ? SH_FILE_TEXT : SH_FILE_OTHER;
}

const char *sh_file_kind_text(enum sh_file_kind kind)
{
    return kind < SH_N_FILE_KINDS ? TEXTS[kind] : TEXTS[SH_FILE_OTHER];
}
