/* cuda_conv_tune.c - the fastest method for a problem, by measuring.
 *
 * Each method runs once on noise, and must have written its result; then N_RUNS runs of it are
 * timed, captured as a graph so that the host's speed does not count. What is far behind the best
 * is dropped at once; what is near it is measured again at the end, in turns. Methods that cannot
 * be captured are none: a ready model runs as one graph.
 *
 * Memory is taken for the time being from the device, outside of the arena. If there is none, there
 * is no measuring; if there is too little for some method, what is chosen among the others is good
 * for this process alone.
 */
#include "common/clock.h"
#include "common/mem.h"
#include "common/units.h"
#include "runtime/device/cuda/cuda_conv.h"

#define N_RUNS 16
#define ROUNDS 2       /* of a first look */
#define FINAL_ROUNDS 4 /* each, of those that are near the best */
#define MAX_NEAR 6
#define NEAR 1.15      /* times the best */
#define HOPELESS 1.6   /* times the best: not worth a second round */
#define FAR 5.0        /* times the best, of one run alone: not worth a round */
#define SAME 1.03      /* times the best: then less workspace wins */
#define LARGE_COST 1.1 /* a workspace above CONV_GOOD_WORKSPACE must save this much */
#define LAUNCH_NS 50e3 /* what the host may need to launch it */
#define BUDGET_NS SH_S(3)
#define PROBE ((size_t)4096) /* bytes of a result that are looked at, at its begin and its end */

struct tuner {
    struct cuda_dev *d;
    const struct conv_problem *p;
    struct conv_args args; /* device memory; args.scratch: OWNED by itself */
    unsigned char *memory; /* OWNED: what the other arguments lie in */
    size_t scratch_bytes, result_bytes;
    void *result;
    cudaEvent_t from, to;               /* OWNED */
    struct conv_method *near[MAX_NEAR]; /* OWNED */
    int n_near, n_tried;
    bool is_short; /* of memory for a method */
    double best_ns;
    int64_t deadline_ns;
};

/* ------------------------------------------------------------------ memory */

static size_t elements_of_dims(const int64_t d[4])
{
    return (size_t)(d[0] * d[1] * d[2] * d[3]);
}

static void *take_noise(struct tuner *t, size_t *at, enum cuda_type type, size_t n, uint32_t seed)
{
    void *p = t->memory + *at;

    *at += SH_ALIGN_UP(n * cuda__type_bytes(type), (size_t)DEV_ALIGN);
    k_conv_noise(t->d->stream, (int)type, (int64_t)n, seed, p);
    return p;
}

static bool take_tuner_memory(struct tuner *t)
{
    const struct conv_problem *p = t->p;
    const size_t x = elements_of_dims(p->x), w = elements_of_dims(p->w), y = elements_of_dims(p->y);
    const size_t item = cuda__type_bytes(p->type);
    size_t at = 0;

    if (cudaMallocAsync((void **)&t->memory,
                        x * SH_MAX(item, sizeof(float)) + w * item + 2 * y * item +
                            (size_t)p->y[1] * item + 5 * (size_t)DEV_ALIGN,
                        t->d->stream) != cudaSuccess) {
        t->memory = NULL;
        return false;
    }
    t->args.x = take_noise(t, &at, p->is_raw ? p->raw_type : p->type, x, 1);
    t->args.w = take_noise(t, &at, p->type, w, 2);
    t->args.y = take_noise(t, &at, p->type, y, 3);
    t->args.z = p->has_z ? take_noise(t, &at, p->type, y, 4) : NULL;
    t->args.bias = p->has_bias ? take_noise(t, &at, p->type, (size_t)p->y[1], 5) : NULL;
    t->result = p->pass == DNN_FORWARD    ? t->args.y
                : p->pass == DNN_BWD_DATA ? t->args.x
                                          : t->args.w;
    t->result_bytes = item * (p->pass == DNN_FORWARD ? y : p->pass == DNN_BWD_DATA ? x : w);
    return cudaEventCreate(&t->from) == cudaSuccess && cudaEventCreate(&t->to) == cudaSuccess;
}

static void give_tuner_memory(struct tuner *t)
{
    if (t->from)
        cudaEventDestroy(t->from);
    if (t->to)
        cudaEventDestroy(t->to);
    if (t->args.scratch)
        cudaFreeAsync(t->args.scratch, t->d->stream);
    if (t->memory)
        cudaFreeAsync(t->memory, t->d->stream);
    cudaStreamSynchronize(t->d->stream);
    /* What went wrong here was the method's end, not the caller's. A lost context stays lost. */
    (void)cudaGetLastError();
}

static bool take_tuner_scratch(struct tuner *t, size_t bytes)
{
    if (bytes <= t->scratch_bytes)
        return true;
    if (t->args.scratch)
        cudaFreeAsync(t->args.scratch, t->d->stream);
    t->args.scratch = NULL;
    t->scratch_bytes = 0;
    if (cudaMallocAsync((void **)&t->args.scratch, bytes, t->d->stream) != cudaSuccess) {
        t->args.scratch = NULL;
        t->is_short = true;
        (void)cudaGetLastError();
        return false;
    }
    t->scratch_bytes = bytes;
    return true;
}

/* ------------------------------------------------------------------ measuring */

/* Before a run the result is filled with ones, a NaN in every type: are there any left? */
static bool is_result_written(const struct tuner *t)
{
    const size_t item = cuda__type_bytes(t->p->type), n = SH_MIN(t->result_bytes, PROBE);
    unsigned char begin[PROBE], end[PROBE];
    bool is = true;

    if (cudaMemcpyAsync(begin, t->result, n, cudaMemcpyDeviceToHost, t->d->stream) != cudaSuccess ||
        cudaMemcpyAsync(end, (const char *)t->result + t->result_bytes - n, n,
                        cudaMemcpyDeviceToHost, t->d->stream) != cudaSuccess ||
        cudaStreamSynchronize(t->d->stream) != cudaSuccess)
        return false;
    for (size_t i = 0; i + item <= n && is; i += item)
        is = memcmp(begin + i, "\xff\xff\xff\xff", item) != 0 &&
             memcmp(end + i, "\xff\xff\xff\xff", item) != 0;
    return is;
}

static bool run_method_once(struct tuner *t, const struct conv_method *m, struct dnn_pack *pack)
{
    return cudaMemsetAsync(t->result, 0xff, t->result_bytes, t->d->stream) == cudaSuccess &&
           cuda__conv_run(t->d, t->p, m, pack, &t->args, NULL) == SH_OK &&
           cudaGetLastError() == cudaSuccess && is_result_written(t);
}

/* *out: OWNED. */
static bool capture_method(struct tuner *t, const struct conv_method *m, struct dnn_pack *pack,
                           cudaGraphExec_t *out)
{
    cudaGraph_t g = NULL;
    int rc = SH_OK;
    bool ok;

    if (cudaStreamBeginCapture(t->d->stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess)
        return false;
    for (int i = 0; i < N_RUNS && !rc; i++)
        rc = cuda__conv_run(t->d, t->p, m, pack, &t->args, NULL);
    ok = cudaStreamEndCapture(t->d->stream, &g) == cudaSuccess && !rc &&
         cudaGraphInstantiate(out, g, 0) == cudaSuccess;
    if (g)
        cudaGraphDestroy(g);
    return ok;
}

static double time_graph(struct tuner *t, cudaGraphExec_t exec)
{
    float ms = 0;

    if (cudaEventRecord(t->from, t->d->stream) != cudaSuccess ||
        cudaGraphLaunch(exec, t->d->stream) != cudaSuccess ||
        cudaEventRecord(t->to, t->d->stream) != cudaSuccess ||
        cudaEventSynchronize(t->to) != cudaSuccess ||
        cudaEventElapsedTime(&ms, t->from, t->to) != cudaSuccess)
        return 0;
    return (double)ms * 1e6 / N_RUNS;
}

/* Some engines take a hundred times as long for a depthwise problem as others. */
static bool is_far(struct tuner *t, const struct conv_method *m, struct dnn_pack *pack)
{
    float ms = 0;

    return t->best_ns > 0 && cudaEventRecord(t->from, t->d->stream) == cudaSuccess &&
           cuda__conv_run(t->d, t->p, m, pack, &t->args, NULL) == SH_OK &&
           cudaEventRecord(t->to, t->d->stream) == cudaSuccess &&
           cudaEventSynchronize(t->to) == cudaSuccess &&
           cudaEventElapsedTime(&ms, t->from, t->to) == cudaSuccess &&
           (double)ms * 1e6 > t->best_ns * FAR + LAUNCH_NS;
}

/* Sets m->ns to the best of these rounds and of earlier ones; false: it does not work. */
static bool measure_method(struct tuner *t, struct conv_method *m, int rounds)
{
    struct dnn_pack pack = {.desc = NULL};
    cudaGraphExec_t exec = NULL;
    bool ok = take_tuner_scratch(t, cuda__conv_scratch(m)) && run_method_once(t, m, &pack) &&
              !is_far(t, m, &pack) && capture_method(t, m, &pack, &exec) &&
              cudaGraphLaunch(exec, t->d->stream) == cudaSuccess;

    for (int i = 0; i < rounds && ok; i++) {
        double ns = time_graph(t, exec);

        ok = ns > 0;
        if (ok && (m->ns == 0 || ns < m->ns))
            m->ns = ns;
        if (t->best_ns > 0 && m->ns > t->best_ns * HOPELESS)
            break;
    }
    if (!ok) /* a part of it may be under way */
        cudaStreamSynchronize(t->d->stream);
    if (exec)
        cudaGraphExecDestroy(exec);
    dnn_pack_fini(&pack);
    (void)cudaGetLastError();
    return ok;
}

/* ------------------------------------------------------------------ choosing */

/* TAKES m: in place of the slowest of the near, or nowhere. */
static void keep_near(struct tuner *t, struct conv_method *m)
{
    int slot = t->n_near;

    if (slot == MAX_NEAR) {
        slot = 0;
        for (int i = 1; i < MAX_NEAR; i++)
            if (t->near[i]->ns > t->near[slot]->ns)
                slot = i;
        if (t->near[slot]->ns <= m->ns) {
            cuda__conv_drop(m);
            return;
        }
        cuda__conv_drop(t->near[slot]);
    } else {
        t->n_near++;
    }
    t->near[slot] = m;
}

static bool visit_method(void *ctx, struct conv_method *m)
{
    struct tuner *t = ctx;

    t->n_tried++;
    if (measure_method(t, m, ROUNDS) && (t->best_ns == 0 || m->ns <= t->best_ns * NEAR)) {
        t->best_ns = t->best_ns == 0 ? m->ns : SH_MIN(t->best_ns, m->ns);
        keep_near(t, m);
    } else {
        cuda__conv_drop(m);
    }
    return t->n_near > 0 && sh_clock_ns() > t->deadline_ns;
}

static bool has_full(const struct tuner *t)
{
    for (int i = 0; i < t->n_near; i++)
        if (t->near[i]->how == CONV_FULL || t->near[i]->how == CONV_GEMM)
            return true;
    return false;
}

static void try_all(struct tuner *t)
{
    /* Ours first: engines of cuDNN that take depthwise problems may be so slow that the time for
     * trying is over with the first ones. */
    static const struct conv_search SEARCHES[] = {
        {.how = CONV_OWN, .limit = 1},   {.how = CONV_FULL, .limit = 40},
        {.how = CONV_GEMM, .limit = 6},  {.how = CONV_LINEAR, .limit = 12},
        {.how = CONV_BARE, .limit = 12}, {.how = CONV_FULL, .limit = 3, .may_compile = true},
    };
    const struct k_conv k = cuda__conv_direct(t->p, 0);
    const bool has_own = k_conv_has_kernel(&k, (int)t->p->type);
    int64_t widths[4];
    int n = cuda__conv_widths(t->p, widths);

    for (size_t i = 0; i < SH_ARRAY_LEN(SEARCHES); i++)
        for (int w = 0; w < n; w++) {
            struct conv_search s = SEARCHES[i];

            s.padded = widths[w];
            s.max_workspace = CONV_MAX_WORKSPACE;
            if ((s.how == CONV_OWN && !has_own) || (s.may_compile && has_full(t)))
                continue;
            if (cuda__conv_each(t->d, t->p, &s, visit_method, t))
                return;
        }
}

static double method_cost(const struct conv_method *m)
{
    return m->ns * (cuda__conv_scratch(m) > CONV_GOOD_WORKSPACE ? LARGE_COST : 1.0);
}

/* Of two that are as fast: the one with less workspace, as far as it matters. */
static bool is_faster_method(const struct conv_method *a, const struct conv_method *b)
{
    const size_t grain = (size_t)1 << 20;
    size_t left = cuda__conv_scratch(a) / grain, right = cuda__conv_scratch(b) / grain;

    return left != right ? left < right : a->ns < b->ns;
}

/* The winner's place in near[], or -1. */
static int choose_method(struct tuner *t)
{
    double least = 0;
    int best = -1;

    for (int round = 0; round < FINAL_ROUNDS; round++)
        for (int i = 0; i < t->n_near && t->n_near > 1; i++)
            if (t->near[i]->ns <= t->best_ns * NEAR && measure_method(t, t->near[i], 1))
                t->best_ns = SH_MIN(t->best_ns, t->near[i]->ns);
    for (int i = 0; i < t->n_near; i++)
        if (least == 0 || method_cost(t->near[i]) < least)
            least = method_cost(t->near[i]);
    for (int i = 0; i < t->n_near; i++)
        if (method_cost(t->near[i]) <= least * SAME &&
            (best < 0 || is_faster_method(t->near[i], t->near[best])))
            best = i;
    return best;
}

bool cuda__conv_fastest(struct cuda_dev *d, const struct conv_problem *p, int *n_tried,
                        struct conv_method **out)
{
    struct tuner t = {.d = d, .p = p, .deadline_ns = sh_clock_ns() + BUDGET_NS};
    int best = -1;

    *out = NULL;
    if (take_tuner_memory(&t)) {
        try_all(&t);
        best = choose_method(&t);
    }
    for (int i = 0; i < t.n_near; i++)
        if (i == best)
            *out = t.near[i];
        else
            cuda__conv_drop(t.near[i]);
    *n_tried = t.n_tried;
    give_tuner_memory(&t);
    return *out && !t.is_short;
}
