/* filekind.h - recognises a file by its first bytes, for the message about a wrong file.
 *
 * A recognised kind is certain enough to refuse the file where another kind is wanted. The others
 * are left to those who read the whole file.
 */
#ifndef SH_COMMON_FILEKIND_H
#define SH_COMMON_FILEKIND_H

#include <stddef.h>

enum sh_file_kind {
    SH_FILE_OTHER, /* unknown, or empty */
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

#define SH_FILE_HEAD 512 /* bytes of its beginning that are enough, or the whole file */

enum sh_file_kind sh_file_kind(const void *head, size_t n);
/* "a zip file, such as torch.save of PyTorch writes". Static; for OTHER "something else". */
const char *sh_file_kind_text(enum sh_file_kind kind);

#endif
