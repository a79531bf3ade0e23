/* import.h - the two commands of shunt-import. Both print one JSON object on standard output,
 * whether the file is accepted or refused. If the process dies instead, the file was hostile.
 */
#ifndef SH_RUNTIME_IMPORT_IMPORT_H
#define SH_RUNTIME_IMPORT_IMPORT_H

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

struct import_conf {
    char *onnx, *dir, *state, *out, *buckets;
    bool training, beside;
    int64_t memory_bytes, cpu_seconds, file_bytes;
};

/* package: ONNX file -> package folder. export: ONNX file + state -> ONNX file.
 * Fails only if the reply could not be written, or the command or its options are wrong. */
int import_run(const char *command, const struct import_conf *c, struct sh_err *err);

#endif
