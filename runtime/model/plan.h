/* plan.h - where every tensor lives: offsets in the image, the state and the workspace.
 *
 * Image      WEIGHTs in order of first use, each at a multiple of DEV_ALIGN. An operation that is
 *            the first to use a weight begins a new layer; op.layer is the last layer begun (0
 *            before the first), so an operation needs exactly the groups with layers up to
 *            op.layer. More than PLAN_LAYER_MOST is several layers, whatever the weights in it: it
 *            is copied and unpacked in parts.
 *            TABLEs come last, in order of first use. They make up layers of their own, for which
 *            no operation waits: where they are, a run says (struct dev_bases). Their offsets count
 *            from the first one, which begins at a multiple of DEV_TABLES_ALIGN in the image; what
 *            lies before that belongs to the layer before.
 * State      STATE tensors in numerical order: first those that operations write, then, from a
 *            multiple of DEV_PAGE on, those that none does.
 * Workspace  everything else. A class of aliases lives from its first write (before the run for
 * INPUT and
 *            LABEL) to its last read (the end of the run for OUTPUT, KEEP and integer inputs);
 *            scratch lives
 *            during its operation, the device's `keep` bytes during the whole run. Classes that
 *            live at the
 *            same time never share bytes. Several greedy orders are tried and the best result wins;
 *            deterministic.
 */
#ifndef SH_RUNTIME_MODEL_PLAN_H
#define SH_RUNTIME_MODEL_PLAN_H

#include "common/err.h"
#include "runtime/device/op.h"

#define PLAN_LAYER_MOST ((uint64_t)8 << 20) /* bytes; what does not fit takes several layers */

struct plan {
    uint64_t *layer_ends; /* OWNED, plan_fini(): end of layer i in the image */
    size_t image_bytes, state_bytes, workspace_bytes;
    size_t written_bytes; /* of the state, from its beginning on: no operation writes the rest */
    uint32_t n_tables;    /* so many of the last layers are of them */
    size_t tables_at;     /* where they begin; image_bytes if there are none */
    size_t live_bytes;    /* most bytes alive at one operation: no plan can be smaller */
    size_t *scratch;      /* OWNED: workspace offset of each operation's scratch; SIZE_MAX: none */
    size_t keep;          /* workspace offset of the keep bytes; 0: none */
};

/* tensors[].bytes are set; scratch_bytes[op] (BORROWED) may be NULL. Sets tensors[].offset,
 * ops[].layer and n_layers. Fails: SH_E_NOMEM, SH_E_TOOBIG, SH_E_BUG (read before written). */
int plan_make(struct dev_graph *g, const size_t *scratch_bytes, size_t keep_bytes, struct plan *out,
              struct sh_err *err);
void plan_fini(struct plan *p);

#endif
