/* cuda_graph.c - runs of an inference plan as CUDA graphs: one for all of its operations where the
 * weights are there, one for each group of layers where they still arrive.
 *
 * Launching some hundred kernels one by one costs the host more time than the device needs for a
 * small model; a graph of them costs one launch. A graph holds addresses, so it is for one pair of
 * bases; they are captured off the path, by dev_plan_prepare.
 */
#include "common/clock.h"
#include "common/mem.h"
#include "executor/device/cuda/cuda.h"
#include "executor/device/cuda/cuda_mem.h"

#include <stdlib.h>

struct cuda_graph {
    struct range {
        const unsigned char *arena; /* where it was mapped */
        size_t image, workspace;
        uint32_t from, to; /* operations */
    } of[DEV_MAX_PREPARED];
    cudaGraphExec_t exec[DEV_MAX_PREPARED]; /* OWNED */
    uint64_t used[DEV_MAX_PREPARED];        /* the turn of the last use: the oldest makes room */
    uint64_t turn;
    uint32_t n;
};

static struct range range_of(const struct cuda_plan *p, const struct dev_bases *b, uint32_t from,
                             uint32_t to)
{
    return (struct range){.arena = cuda__dev(p)->arena,
                          .image = b->image,
                          .workspace = b->workspace,
                          .from = from,
                          .to = to};
}

/* g->n if there is none. */
static uint32_t find(const struct cuda_graph *g, const struct range *r)
{
    uint32_t i = 0;

    while (i < g->n &&
           (g->of[i].from != r->from || g->of[i].to != r->to || g->of[i].arena != r->arena ||
            g->of[i].image != r->image || g->of[i].workspace != r->workspace))
        i++;
    return i;
}

bool cuda__graph_launch(struct cuda_plan *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                        int *rc, struct sh_err *err)
{
    const struct range r = range_of(p, b, from, to);
    struct cuda_graph *g = p->graphs;
    uint32_t i = g ? find(g, &r) : 0;

    if (!g || i == g->n)
        return false;
    g->used[i] = ++g->turn;
    *rc = cuda__check(cudaGraphLaunch(g->exec[i], cuda__dev(p)->stream), "launch a run", err);
    return true;
}

static int capture(struct cuda_plan *p, const struct dev_bases *b, uint32_t from, uint32_t to,
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

static uint32_t oldest(const struct cuda_graph *g)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < g->n; i++)
        if (g->used[i] < g->used[best])
            best = i;
    return best;
}

/* TAKES exec, which may be running. NULL is allowed. */
static void destroy(const struct cuda_plan *p, cudaGraphExec_t exec)
{
    if (exec && cuda__wait_idle(cuda__dev(p)->stream, sh_clock_ns() + CUDA_CLOSE_NS))
        cudaGraphExecDestroy(exec);
}

int cuda__graph_capture(struct cuda_plan *p, const struct dev_bases *b, uint32_t from, uint32_t to,
                        struct sh_err *err)
{
    const struct range r = range_of(p, b, from, to);
    cudaGraphExec_t exec = NULL;
    struct cuda_graph *g;
    uint32_t i;
    int rc;

    if (!p->graphs)
        p->graphs = calloc(1, sizeof(*p->graphs));
    g = p->graphs;
    if (!g)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate the graphs of a plan");
    if (find(g, &r) < g->n)
        return SH_OK;
    rc = capture(p, b, from, to, &exec, err);
    if (rc) {
        destroy(p, exec);
        return rc;
    }
    i = g->n < DEV_MAX_PREPARED ? g->n++ : oldest(g);
    destroy(p, g->exec[i]);
    g->exec[i] = exec;
    g->of[i] = r;
    g->used[i] = ++g->turn;
    return SH_OK;
}

void cuda__graphs_free(struct cuda_plan *p)
{
    for (uint32_t i = 0; p->graphs && i < p->graphs->n; i++)
        destroy(p, p->graphs->exec[i]);
    free(p->graphs);
    p->graphs = NULL;
}
