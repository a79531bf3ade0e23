/* safetensors.h - read and write the safetensors format: u64 header length, JSON header, raw bytes.
 *
 * Files are untrusted: header size, offsets, overlaps, shapes and lengths are checked before any
 * tensor is returned. Reading maps the file and copies nothing. Not thread-safe.
 */
#ifndef SH_COMMON_SAFETENSORS_H
#define SH_COMMON_SAFETENSORS_H

#include "common/dtype.h"
#include "common/err.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>

#define SH_ST_MAX_HEADER (64u << 20)
#define SH_ST_MAX_TENSORS 65536u

struct sh_st; /* an open file */

struct sh_st_tensor {
    const char *name; /* BORROWED until sh_st_close */
    enum sh_dtype dtype;
    size_t rank;
    int64_t dims[SH_MAX_RANK];
    const void *data; /* BORROWED; not aligned */
    size_t bytes;
};

int sh_st_open(const char *path, struct sh_st **out, struct sh_err *err); /* OWNED, sh_st_close() */
int sh_st_open_fd(int fd, struct sh_st **out, struct sh_err *err);        /* the caller closes fd */
/* The same over memory. KEEPS data. */
int sh_st_open_mem(const void *data, size_t bytes, struct sh_st **out, struct sh_err *err);
void sh_st_close(struct sh_st *s);
size_t sh_st_count(const struct sh_st *s);
const struct sh_st_tensor *sh_st_at(const struct sh_st *s, size_t i); /* in the order of the data */
/* NULL: not found. */
const struct sh_st_tensor *sh_st_find(const struct sh_st *s, const char *name);
/* Offset of the tensor's data from the start of the file. */
size_t sh_st_offset(const struct sh_st *s, const struct sh_st_tensor *t);
const char *sh_st_meta(const struct sh_st *s, const char *key); /* "__metadata__"; NULL if none */

/* Writes tensors and metadata pairs {key, value, ..., NULL} in the given order. The data section
 * starts at a multiple of 64 bytes and has no holes: the format forbids them and the reader refuses
 * them. sh_st_write() is atomic and durable: temporary file in the same folder, fsync, rename,
 * fsync of the folder. An interrupted or failed write leaves the old file. Fails: SH_E_DISKFULL,
 * SH_E_IO. */
int sh_st_write(const char *path, const struct sh_st_tensor *t, size_t n, const char *const *meta,
                struct sh_err *err);
/* The header, for a caller who writes the data itself (data pointers are not used). *out: OWNED,
 * free(). *file_bytes: header and all data. */
int sh_st_head(const struct sh_st_tensor *t, size_t n, const char *const *meta, void **out,
               size_t *head_bytes, size_t *file_bytes, struct sh_err *err);

#endif
