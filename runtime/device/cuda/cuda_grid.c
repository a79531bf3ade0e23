/* cuda_grid.c - the memory through which the blocks of a grid tell each other, and the host,
 * something (grid.cuh). Private to the worker, outside of the arena.
 *
 * Faults: a kernel that meets an index outside its table, or a label that is no class, writes
 * struct k_fault to a page of host memory; the host looks there whenever it has waited for the
 * stream. So does one that finds packed weights damaged.
 */
#include "runtime/device/cuda/cuda.h"

int cuda__grid_open(struct cuda_dev *d, struct sh_err *err)
{
    const size_t bytes = K_ARRIVALS * sizeof(*d->arrivals);
    int rc = cuda__check(cudaHostAlloc((void **)&d->fault, sizeof(*d->fault) + sizeof(*d->damaged),
                                       cudaHostAllocMapped),
                         "allocate a page that kernels report to", err);

    if (rc)
        return rc;
    *d->fault = (struct k_fault){.op = 0};
    d->damaged = (uint32_t *)(d->fault + 1);
    *d->damaged = 0;
    rc = cuda__check(cudaMalloc((void **)&d->arrivals, bytes), "allocate counters of blocks", err);
    if (!rc) /* before the kernels, which the stream does not order with what other streams do */
        rc = cuda__check(cudaMemsetAsync(d->arrivals, 0, bytes, d->stream),
                         "clear the counters of blocks", err);
    return rc;
}

void cuda__grid_close(struct cuda_dev *d)
{
    if (d->fault)
        cudaFreeHost(d->fault);
    if (d->arrivals)
        cudaFree(d->arrivals);
    d->fault = NULL;
    d->arrivals = NULL;
}

int cuda__fault_check(struct cuda_dev *d, struct sh_err *err)
{
    const struct dev_graph *g = d->running ? d->running->base.g : NULL;
    const struct dev_op *op;
    struct k_fault f;

    if (d->fault && *(volatile uint32_t *)d->damaged) { /* an index may be bad for that reason */
        *d->fault = (struct k_fault){.op = 0};
        return SH_FAIL(err, SH_E_IO, "packed weights are damaged");
    }
    if (!d->fault || *(volatile uint32_t *)&d->fault->op == 0)
        return SH_OK;
    f = *d->fault;
    *d->fault = (struct k_fault){.op = 0};
    op = g && f.op - 1 < g->n_ops ? &g->ops[f.op - 1] : NULL;
    if (op && op->kind == DEV_OP_LOSS_XENT)
        return SH_FAIL(err, SH_E_INVALID, "label %lld at position %u is not a class from 0 to %lld",
                       (long long)f.value, f.at, (long long)g->tensors[op->in[0]].dims[1] - 1);
    return SH_FAIL(err, SH_E_INVALID,
                   "%s (node \"%s\"): index %lld at position %u is outside the table",
                   op ? dev_op_name(op->kind) : "GATHER", op && op->name ? op->name : "?",
                   (long long)f.value, f.at);
}
