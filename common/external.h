/* external.h - which other files the tensors of an ONNX file lie in ("external data").
 *
 * For who sends a model: the file is walked, nothing is parsed but these names. Who takes a model
 * from strangers reads it with runtime/model/onnx.h.
 */
#ifndef SH_COMMON_EXTERNAL_H
#define SH_COMMON_EXTERNAL_H

#include <stdbool.h>
#include <stddef.h>

/* A file of this name beside the model in a tar file gives initializers their values by name
 * (runtime/model/onnx_weights.h). */
#define SH_EXTERNAL_WEIGHTS "initializers.safetensors"

/* A name, not NUL-terminated, once for each tensor that lies there. False: enough. */
typedef bool sh_external_fn(const char *location, size_t n, void *arg);

/* False: it is damaged, or fn has had enough; names before that place were told. */
bool sh_external_each(const void *onnx, size_t bytes, sh_external_fn *fn, void *arg);

/* Is it a path that stays below the folder where it starts, by its text? "a/b", neither "/a" nor
 * "a/../b" nor "./a". */
bool sh_external_inside(const char *path);
/* Opens such a path below the folder, for reading; neither the file nor a folder on the way may be
 * a link. Returns -1 with errno: ELOOP, or ENOTDIR for a folder, where one is. */
int sh_external_open(int folder, const char *path);

#endif
