/* cuda_graph.c - runs of an inference plan as CUDA graphs: one for all of its operations where the
 * weights are there, one for each group of layers where they still arrive.
 *
 * Launching some hundred kernels one by one costs the host more time than the device needs for a
 * small model; a graph of them costs one launch. A graph holds addresses, so it is for one pair of
 * bases; they are captured off the path, by dev_plan_prepare.
 */
#include "common/clock.h"
#include "runtime/device/cuda/cuda.h"
#include "runtime/device/cuda/cuda_mem.h"

static struct dev_range launch_range(const struct cuda_plan *p, const struct dev_bases *b,
                                     uint32_t from, uint32_t to)
{
    return (struct dev_range){.arena = cuda__dev(p)->arena,
                              .host_tables = b->host_tables,
                              .image = b->image,
                              .workspace = b->workspace,
                              .tables = b->tables,
                              .from = from,
                              .to = to};
}

bool cuda__graph_launch(struct cuda_plan *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                        int *rc, struct sh_err *err)
{
    const struct dev_range r = launch_range(p, b, from, to);
    cudaGraphExec_t exec = p->graphs ? dev_prepared_find(p->graphs, &r) : NULL;

    if (!exec)
        return false;
    *rc = cuda__check(cudaGraphLaunch(exec, cuda__dev(p)->stream), "launch a run", err);
    return true;
}

static int capture_ops(struct cuda_plan *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                       cudaGraphExec_t *out, struct sh_err *err)
{
    cudaStream_t s = cuda__dev(p)->stream;
    cudaGraph_t graph = NULL;
    cudaError_t end;
    int rc;

    rc = cuda__check(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal),
                     "begin to capture a run", err);
    if (rc)
        return rc;
    rc = cuda__enqueue(p, b, from, to, err);
    end = cudaStreamEndCapture(s, &graph); /* also after a failure: the stream must be usable */
    if (!rc)
        rc = cuda__check(end, "capture a run", err);
    if (!rc)
        rc = cuda__check(cudaGraphInstantiate(out, graph, 0), "instantiate a run", err);
    if (!rc)
        rc = cuda__check(cudaGraphUpload(*out, s), "upload a run", err);
    if (rc) /* that the capture was given up has been said; no later launch is to blame for it */
        (void)cudaGetLastError();
    if (graph)
        cudaGraphDestroy(graph);
    return rc;
}

/* TAKES exec, which may be running. NULL is allowed. */
static void destroy_exec(const struct cuda_plan *p, cudaGraphExec_t exec)
{
    if (exec && cuda__wait_idle(cuda__dev(p)->stream, sh_clock_ns() + CUDA_CLOSE_NS))
        cudaGraphExecDestroy(exec);
}

int cuda__graph_capture(struct cuda_plan *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                        struct sh_err *err)
{
    const struct dev_range r = launch_range(p, b, from, to);
    cudaGraphExec_t exec = NULL;
    int rc = SH_OK;

    if (!p->graphs)
        rc = dev_prepared_new(&p->base.dev->prepared, &p->graphs, err);
    if (rc || dev_prepared_find(p->graphs, &r))
        return rc;
    rc = capture_ops(p, b, from, to, &exec, err);
    destroy_exec(p, rc ? exec : dev_prepared_add(p->graphs, &r, exec));
    return rc;
}

void cuda__graphs_free(struct cuda_plan *p)
{
    cudaGraphExec_t exec;

    while (p->graphs && (exec = dev_prepared_pop(p->graphs)))
        destroy_exec(p, exec);
    dev_prepared_free(p->graphs);
    p->graphs = NULL;
}
