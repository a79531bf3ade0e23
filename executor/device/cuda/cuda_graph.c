/* cuda_graph.c - a whole run of an inference plan as one CUDA graph.
 *
 * Launching some hundred kernels one by one costs the host more time than the device needs for a
 * small model; a graph of them costs one launch. A graph holds addresses, so there is one for each
 * pair of bases at which the plan lately ran; they are captured off the path, by dev_plan_prepare.
 */
#include "common/clock.h"
#include "common/mem.h"
#include "executor/device/cuda/cuda.h"
#include "executor/device/cuda/cuda_mem.h"

#include <stdlib.h>

#define MAX_GRAPHS 4 /* of one plan: places where its image and workspace lately were */

struct cuda_graph {
    struct {
        cudaGraphExec_t exec;       /* OWNED; NULL: free */
        const unsigned char *arena; /* where it was mapped */
        size_t image, workspace;
        uint64_t used; /* the turn of its last use: the oldest makes room */
    } at[MAX_GRAPHS];
    uint64_t turn;
};

static int find(const struct cuda_plan *p, const struct dev_bases *b)
{
    const struct cuda_graph *g = p->graphs;

    for (int i = 0; g && i < MAX_GRAPHS; i++)
        if (g->at[i].exec && g->at[i].arena == cuda__dev(p)->arena && g->at[i].image == b->image &&
            g->at[i].workspace == b->workspace)
            return i;
    return -1;
}

bool cuda__graph_launch(struct cuda_plan *p, const struct dev_bases *b, int *rc, struct sh_err *err)
{
    struct cuda_graph *g = p->graphs;
    int i = find(p, b);

    if (i < 0)
        return false;
    g->at[i].used = ++g->turn;
    *rc = cuda__check(cudaGraphLaunch(g->at[i].exec, cuda__dev(p)->stream), "launch a run", err);
    return true;
}

static int capture(struct cuda_plan *p, const struct dev_bases *b, cudaGraphExec_t *out,
                   struct sh_err *err)
{
    cudaStream_t s = cuda__dev(p)->stream;
    cudaGraph_t graph = NULL;
    cudaError_t end;
    int rc;

    rc = cuda__check(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal),
                     "begin to capture a run", err);
    if (rc)
        return rc;
    rc = cuda__enqueue(p, b, 0, p->base.g->n_ops, err);
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

static int oldest(const struct cuda_graph *g)
{
    int best = 0;

    for (int i = 1; i < MAX_GRAPHS; i++)
        if (!g->at[i].exec || (g->at[best].exec && g->at[i].used < g->at[best].used))
            best = i;
    return best;
}

/* TAKES exec, which may be running. NULL is allowed. */
static void destroy(const struct cuda_plan *p, cudaGraphExec_t exec)
{
    if (exec && cuda__wait_idle(cuda__dev(p)->stream, sh_clock_ns() + CUDA_CLOSE_NS))
        cudaGraphExecDestroy(exec);
}

int cuda__graph_capture(struct cuda_plan *p, const struct dev_bases *b, struct sh_err *err)
{
    cudaGraphExec_t exec = NULL;
    int i, rc;

    if (!p->graphs)
        p->graphs = calloc(1, sizeof(*p->graphs));
    if (!p->graphs)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the graphs of a plan");
    if (find(p, b) >= 0)
        return SH_OK;
    rc = capture(p, b, &exec, err);
    if (rc) {
        destroy(p, exec);
        return rc;
    }
    i = oldest(p->graphs);
    destroy(p, p->graphs->at[i].exec);
    p->graphs->at[i].exec = exec;
    p->graphs->at[i].arena = cuda__dev(p)->arena;
    p->graphs->at[i].image = b->image;
    p->graphs->at[i].workspace = b->workspace;
    p->graphs->at[i].used = ++p->graphs->turn;
    return SH_OK;
}

void cuda__graphs_free(struct cuda_plan *p)
{
    for (int i = 0; p->graphs && i < MAX_GRAPHS; i++)
        destroy(p, p->graphs->at[i].exec);
    free(p->graphs);
    p->graphs = NULL;
}
