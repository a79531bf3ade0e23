/* filekind.h - what a file is, by its first bytes: for the message to whoever gave a wrong one.
 *
 * A known kind is certain enough to refuse the file where another one is wanted; what is of none is
 * left to those who read all of it.
 */
#ifndef SH_COMMON_FILEKIND_H
#define SH_COMMON_FILEKIND_H

#include <stddef.h>

enum sh_file_kind {
    SH_FILE_OTHER, /* not known, or empty */
    SH_FILE_ONNX,
    SH_FILE_SAFETENSORS,
    SH_FILE_ZIP,
    SH_FILE_PICKLE,
    SH_FILE_HDF5,
    SH_FILE_GZIP,
    SH_FILE_NUMPY,
    SH_FILE_GGUF,
    SH_FILE_LFS,
    SH_FILE_JPEG,
    SH_FILE_PNG,
    SH_FILE_PARQUET,
    SH_FILE_TAR,
    SH_FILE_TEXT,
    SH_N_FILE_KINDS
};

#define SH_FILE_HEAD 512 /* so many bytes of its beginning are enough, fewer if it has no more */

enum sh_file_kind sh_file_kind(const void *head, size_t n);
/* "a zip file, such as torch.save of PyTorch writes". Static; of OTHER "something else". */
const char *sh_file_kind_text(enum sh_file_kind kind);

#endif
