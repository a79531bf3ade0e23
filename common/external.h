/* external.h - finds the other files that hold tensors of an ONNX file ("external data").
 *
 * For the sender of a model: it walks the file and parses nothing but these names. Whoever accepts
 * models from strangers reads them with runtime/model/onnx.h.
 */
#ifndef SH_COMMON_EXTERNAL_H
#define SH_COMMON_EXTERNAL_H

#include <stdbool.h>
#include <stddef.h>

/* A file of this name beside the model in a tar file gives initializers their values, by name
 * (runtime/model/onnx_weights.h). */
#define SH_EXTERNAL_WEIGHTS "initializers.safetensors"
/* metadata_props of a model: which constants are buffers, and which parameters, whatever else the
 * file says or does not say. Names with commas between, with * and ? as in file names. */
#define SH_EXTERNAL_BUFFERS "shunt.buffers"
#define SH_EXTERNAL_PARAMETERS "shunt.parameters"
/* Likewise, which inputs requests bring as bytes: JSON (common/preprocess.h). */
#define SH_EXTERNAL_PREPROCESS "shunt.preprocess"
/* The same as a file beside the model in a tar file, which counts more. */
#define SH_EXTERNAL_PREPROCESS_FILE "preprocess.json"

/* Called with a name, not NUL-terminated, for each tensor stored there. False: stop. */
typedef bool sh_external_fn(const char *location, size_t n, void *arg);

/* False: the file is damaged, or fn has stopped; names before that place were reported. */
bool sh_external_each(const void *onnx, size_t bytes, sh_external_fn *fn, void *arg);

/* Does the text of this path stay below its starting folder? "a/b" does; "/a", "a/../b" and "./a"
 * do not. */
bool sh_external_inside(const char *path);
/* Opens such a path below the folder, to read; neither the file nor a folder on the way may be a
 * link. Returns -1 with errno if one is: ELOOP, or ENOTDIR for a folder. */
int sh_external_open(int folder, const char *path);

#endif
