/* tables.h - which tables of embeddings a run reads in place, in host memory, row by row.
 *
 * A copy of all the weights brings a table of which a run needs few rows: 94 of BERT-base's 438 MB,
 * for 3 MB of rows. So a WEIGHT becomes a TABLE (runtime/device/op.h) if
 *   - nothing reads it but GATHER along the first axis. A table that is an output projection too
 *     is read by a product, and a part of the image as before; so is what an alias names;
 *   - the indices come out of the run. Constant ones leave few rows of a table in the image anyway;
 *   - reading the rows saves at least half of what the copy costs (struct tables_cost).
 * If nothing else is in the image, nothing becomes a table.
 *
 * What shares an image, for other batches or sizes, has the same tables as the first program, which
 * is the one for the largest batch.
 */
#ifndef SH_RUNTIME_MODEL_TABLES_H
#define SH_RUNTIME_MODEL_TABLES_H

#include "runtime/model/ir.h"

struct tables_cost {
    double copy_ns, link_ns; /* of a copy, and of each byte in it */
    double reach_ns;         /* of each byte that is read in place */
    bool any;                /* whatever it saves, if a run needs less than all rows */
};

#define TABLES_LEAST_BYTES 4096u /* smaller ones stay, with `any` too */
#define TABLES_LEAST_NS 50e3     /* what one has to save of a run for which all is copied */

/* Does a table of so many bytes pay, of which runs read `rows`? */
bool tables_pays(const struct tables_cost *c, uint64_t bytes, uint64_t rows);
/* Fail: SH_E_NOMEM. */
int tables_choose(struct ir *ir, const struct tables_cost *c, struct sh_err *err);
int tables_follow(struct ir *ir, const struct ir *share, struct sh_err *err);
uint64_t tables_rows_bytes(const struct ir *ir); /* that a run reads of all its tables, at most */

#endif
