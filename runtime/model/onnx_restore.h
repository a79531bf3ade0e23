/* onnx_restore.h - the parameters of a file as the module has them: what an exporter merged, wrote
 * twice or computed, each once and by itself. Reading and exporting do the same, and so find the
 * same names.
 */
#ifndef SH_RUNTIME_MODEL_ONNX_RESTORE_H
#define SH_RUNTIME_MODEL_ONNX_RESTORE_H

#include "runtime/model/onnx_file.h"
#include "runtime/model/onnx_literals.h"
#include "runtime/model/param_kinds.h"

struct onnx_restored {
    uint32_t n_unfolded, n_folded; /* norms that came back, that are lost: onnx_unfold.h */
    uint32_t n_untied;             /* parameters that were one: onnx_untie.h */
    uint32_t n_guessed;            /* numbers that may match by chance: onnx_again.h */
    uint32_t n_unbounded;          /* parameters whose bound is lost: onnx_forms.h */
    char left_out[ONNX_LEFT_OUT];  /* a parameter; "": none: onnx_literals.h */
};

/* Fails as its steps: SH_E_NOMEM, SH_E_TOOBIG, and as onnx_tensor_take(). */
int onnx_restore(Onnx__ModelProto *m, struct onnx_source *source, const struct param_kinds *kinds,
                 struct onnx_restored *out, struct sh_err *err);

#endif
