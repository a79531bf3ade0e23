/* onnx_restore.c - see onnx_restore.h. */
#include "runtime/model/onnx_restore.h"

#include "runtime/model/names.h"
#include "runtime/model/onnx_again.h"
#include "runtime/model/onnx_clips.h"
#include "runtime/model/onnx_forms.h"
#include "runtime/model/onnx_held.h"
#include "runtime/model/onnx_inner.h"
#include "runtime/model/onnx_live.h"
#include "runtime/model/onnx_moved.h"
#include "runtime/model/onnx_parts.h"
#include "runtime/model/onnx_rows.h"
#include "runtime/model/onnx_shared.h"
#include "runtime/model/onnx_sums.h"
#include "runtime/model/onnx_tie.h"
#include "runtime/model/onnx_unfold.h"
#include "runtime/model/onnx_untie.h"

/* What is said of a value once more is dropped: else a short text would be the work of a long one,
 * for each of the steps. */
static int say_once(Onnx__GraphProto *g, struct sh_err *err)
{
    struct names said;
    size_t n = 0;
    int rc = names_init(&said, err);

    for (size_t i = 0; i < g->n_value_info; i++) {
        Onnx__ValueInfoProto *v = g->value_info[i];

        if (!rc && v->name && names_get(&said, v->name) != NAMES_NONE) {
            onnx__value_info_proto__free_unpacked(v, NULL); /* as onnx_file_free() does */
            continue;
        }
        if (!rc)
            rc = names_put_first(&said, v->name, 0, err);
        g->value_info[n++] = v;
    }
    g->n_value_info = n;
    names_fini(&said);
    return rc;
}

int onnx_restore(Onnx__ModelProto *m, struct onnx_source *source, const struct param_kinds *kinds,
                 struct onnx_restored *out, struct sh_err *err)
{
    int rc = say_once(m->graph, err);

    if (!rc)
        rc = onnx_live(m, err);
    if (!rc)
        rc = onnx_left_out(m, kinds, out->left_out, err);
    if (!rc)
        rc = onnx_inner(m, err);
    if (!rc)
        rc = onnx_clips(m, source, kinds, err);
    if (!rc)
        rc = onnx_unfold(m, source, &out->n_unfolded, &out->n_folded, err);
    if (!rc)
        rc = onnx_literals(m, source, kinds, err);
    if (!rc)
        rc = onnx_moved(m, source, kinds, err);
    if (!rc)
        rc = onnx_parts(m, source, kinds, err);
    if (!rc)
        rc = onnx_forms(m, source, kinds, &out->n_unbounded, err);
    if (!rc)
        rc = onnx_again(m, source, kinds, &out->n_guessed, err);
    if (!rc)
        rc = onnx_sums(m, source, kinds, err);
    if (!rc)
        rc = onnx_rows(m, source, kinds, err);
    if (!rc)
        rc = onnx_tie(m, source, err);
    if (!rc)
        rc = onnx_shared(m, source, kinds, err);
    if (!rc)
        rc = onnx_untie(m, source, kinds, &out->n_untied, err);
    if (!rc)
        rc = onnx_held(m, err);
    return rc;
}
