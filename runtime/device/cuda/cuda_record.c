/* cuda_record.c - the launches of an operation, found out once and then made without asking for
 * them again.
 *
 * cuDNN and cuBLASLt, and our checks around them, cost the host some 14 microseconds an operation;
 * its launch costs two or three. What they launch depends on nothing but the addresses. So when a
 * plan is warmed up, each operation is captured (not run) at three places, and what it launches is
 * read from the graphs: kernels, fills and copies within the plan's memory, one after the other.
 *
 * Where the parameters of the three differ, they must differ by just as much as one of the bases
 * was moved: then that is an address, and a relocation says which base it counts from. All bytes of
 * the second and third capture follow from the first and the relocations, or there is no record:
 * the operation then goes on as before. So does one that depends on the step, and one that forks,
 * copies from the host or allocates. The three places are not aligned alike, and the steps differ,
 * so a choice made by either shows as well.
 *
 * A record is tried out before it is kept. Its parameters are patched when the bases change. With
 * --verify-launches what was found is not trusted: at both ends of the arena, which were not looked
 * at before, the operation is captured once more, and all bytes must be those of the patched one.
 * One that is not takes all records of the plan with it. cuda_verify.c then compares results.
 *
 * SHUNT_CUDA_RECORD in the environment: 0 leaves all this out, "list" writes to standard error what
 * is recorded, and of what is not, why. For tests of the two comparisons, "spoil-launches" and
 * "spoil-results" put the addresses of one record 256 bytes off, before the first or between the
 * two. */
#include "runtime/device/cuda/cuda_record.h"

#include "common/conf.h"
#include "common/mem.h"

#include <stdio.h>
#include <stdlib.h>

#define N_SETS 3
#define MAX_NODES 66            /* of one operation, with the kernel in front */
#define MAX_ARGS 1024           /* of all its kernels */
#define MAX_BYTES (256u << 10)  /* of their parameters */
#define MAX_ATTRS 6             /* of one launch */
#define STEP_ALIGN 64u          /* of the parameters of one launch, as the largest type of CUDA's */
#define MAX_BEYOND (64ll << 20) /* an address that a kernel gets may lie beside its tensor */
#define ADDRESS_MASK (~0ull >> 16) /* what lies above, in a descriptor of a tensor say, stays */

/* What our own kernels get is defined to the last byte, too. */
_Static_assert(sizeof(struct k_operand) == sizeof(void *) + 2 * sizeof(int), "no padding");

enum step_kind { STEP_KERNEL = 1, STEP_FILL, STEP_COPY };

/* Compared byte by byte between captures: what is not used is 0. */
struct step {
    enum step_kind kind;
    uint32_t first_arg, n_args;
    size_t at;           /* of its bytes: parameters; or dst; or dst, src */
    CUfunction function; /* BORROWED from the module: lives as long as the plan's engines */
    CUlaunchConfig config;
    CUlaunchAttribute attrs[MAX_ATTRS];
    CUDA_MEMSET_NODE_PARAMS fill; /* without dst */
    size_t copy_bytes;
};

struct reloc {
    uint32_t at; /* of 8 bytes */
    enum cuda_space space;
    uint64_t off; /* from the base, and what else the 8 bytes hold */
};

struct cuda_record {
    struct step *steps; /* OWNED; NULL: there is no record */
    uint32_t n_steps, n_relocs;
    unsigned char *bytes;               /* OWNED */
    void **args;                        /* OWNED: each points into bytes */
    struct reloc *relocs;               /* OWNED */
    unsigned char *base[CUDA_N_SPACES]; /* which `bytes` are for */
};

/* How far each set lies behind the memory that the plan was tried in. No number is the difference
 * of two others, so a difference of addresses is not taken for one. */
static const uint32_t SHIFT[N_SETS][CUDA_N_SPACES] = {
    {0, 0, 0, 0},
    {257 * DEV_ALIGN, 769 * DEV_ALIGN, 1543 * DEV_ALIGN, 1789 * DEV_ALIGN},
    {1283 * DEV_ALIGN, 389 * DEV_ALIGN, 643 * DEV_ALIGN, 1117 * DEV_ALIGN},
};
static const int64_t STEP[N_SETS] = {0, 1, 6};
#define STEP_AT_ENDS 11

struct trace { /* one capture, read */
    struct step steps[MAX_NODES];
    uint32_t n_steps, n_args;
    size_t arg[MAX_ARGS]; /* where it lies in bytes */
    unsigned char bytes[MAX_BYTES];
    size_t n_bytes;
};

struct maker {
    struct cuda_plan *plan;
    const struct cuda_call *call; /* of the memory that the plan was tried in */
    struct trace *traces;         /* OWNED N_SETS */
    struct reloc *relocs;         /* OWNED MAX_BYTES / 8 */
    uint32_t n_relocs;
    const char *why;  /* there is no record */
    const char *mode; /* SHUNT_CUDA_RECORD, or "" */
};

static bool refuse_record(struct maker *m, const char *why)
{
    m->why = why;
    return false;
}

/* ------------------------------------------------------------------ reading a capture */

static struct step *add_trace_step(struct maker *m, struct trace *t, enum step_kind kind)
{
    struct step *s = &t->steps[t->n_steps];

    if (t->n_steps == MAX_NODES) {
        refuse_record(m, "too many launches");
        return NULL;
    }
    memset(s, 0, sizeof(*s));
    t->n_steps++;
    t->n_bytes = SH_ALIGN_UP(t->n_bytes, (size_t)STEP_ALIGN);
    s->kind = kind;
    s->at = t->n_bytes;
    return s;
}

static bool put_bytes(struct maker *m, struct trace *t, size_t at, const void *from, size_t size)
{
    if (at > MAX_BYTES || size > MAX_BYTES - at)
        return refuse_record(m, "too many parameters");
    memcpy(t->bytes + at, from, size);
    t->n_bytes = SH_MAX(t->n_bytes, at + size);
    return true;
}

/* Either an array of pointers to the parameters or one block of them. */
static const unsigned char *param_at(const CUDA_KERNEL_NODE_PARAMS *k, uint32_t i, size_t off,
                                     size_t size)
{
    const unsigned char *block = NULL;
    size_t block_bytes = 0;

    if (k->kernelParams)
        return k->kernelParams[i];
    for (void **x = k->extra; x && x[0] != CU_LAUNCH_PARAM_END; x += 2) {
        if (x[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            block = x[1];
        else if (x[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            block_bytes = *(const size_t *)x[1];
        else
            return NULL;
    }
    return block && off <= block_bytes && size <= block_bytes - off ? block + off : NULL;
}

static bool read_params(struct maker *m, struct trace *t, struct step *s,
                        const CUDA_KERNEL_NODE_PARAMS *k)
{
    size_t off, size;

    s->first_arg = t->n_args;
    while (cuFuncGetParamInfo(s->function, s->n_args, &off, &size) == CUDA_SUCCESS) {
        const unsigned char *p = param_at(k, s->n_args, off, size);

        if (!p || t->n_args == MAX_ARGS)
            return refuse_record(m, p ? "too many parameters" : "parameters that cannot be read");
        if (!put_bytes(m, t, s->at + off, p, size))
            return false;
        t->arg[t->n_args++] = s->at + off;
        s->n_args++;
    }
    return s->n_args > 0 || refuse_record(m, "parameters of unknown sizes");
}

static void add_attr(struct step *s, CUlaunchAttributeID id, const CUlaunchAttributeValue *v)
{
    CUlaunchAttribute *a = &s->attrs[s->config.numAttrs++];

    a->id = id;
    memcpy(&a->value, v, sizeof(*v));
}

/* What a stream gives to its launches anyway (priority, domains of synchronisation) and hints about
 * caches are left out. */
static bool read_launch_attrs(struct maker *m, CUgraphNode node, bool overlaps, struct step *s)
{
    static const struct {
        CUlaunchAttributeID id;
        bool is_needed;
    } ATTRS[] = {
        {CU_LAUNCH_ATTRIBUTE_COOPERATIVE, true},
        {CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, true},
        {CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION, false},
        {CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, false},
        {CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, false},
    };
    CUlaunchAttributeValue v;

    for (size_t i = 0; i < SH_ARRAY_LEN(ATTRS); i++) {
        bool is_set = false;

        memset(&v, 0, sizeof(v));
        if (cuGraphKernelNodeGetAttribute(node, ATTRS[i].id, &v) != CUDA_SUCCESS) {
            if (ATTRS[i].is_needed)
                return refuse_record(m, "a launch whose attributes cannot be read");
            continue;
        }
        switch (ATTRS[i].id) {
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
            is_set = v.cooperative != 0;
            break;
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: /* preferredClusterDim lies alike */
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
            is_set = v.clusterDim.x > 1 || v.clusterDim.y > 1 || v.clusterDim.z > 1;
            break;
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
            is_set = v.clusterSchedulingPolicyPreference != CU_CLUSTER_SCHEDULING_POLICY_DEFAULT;
            break;
        default: /* of the carveout, 0 may mean that none was asked for */
            is_set = v.sharedMemCarveout > 0 && v.sharedMemCarveout <= 100;
        }
        if (is_set)
            add_attr(s, ATTRS[i].id, &v);
    }
    memset(&v, 0, sizeof(v));
    v.programmaticStreamSerializationAllowed = 1;
    if (overlaps)
        add_attr(s, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, &v);
    return true;
}

static bool read_kernel(struct maker *m, CUgraphNode node, bool overlaps, struct trace *t)
{
    struct step *s = add_trace_step(m, t, STEP_KERNEL);
    CUDA_KERNEL_NODE_PARAMS k = {.func = NULL};

    if (!s)
        return false;
    if (cuGraphKernelNodeGetParams(node, &k) != CUDA_SUCCESS)
        return refuse_record(m, "a kernel that cannot be read");
    s->function = k.func;
    if (!s->function && cuKernelGetFunction(&s->function, k.kern) != CUDA_SUCCESS)
        return refuse_record(m, "a kernel that cannot be read");
    s->config.gridDimX = k.gridDimX;
    s->config.gridDimY = k.gridDimY;
    s->config.gridDimZ = k.gridDimZ;
    s->config.blockDimX = k.blockDimX;
    s->config.blockDimY = k.blockDimY;
    s->config.blockDimZ = k.blockDimZ;
    s->config.sharedMemBytes = k.sharedMemBytes;
    return read_params(m, t, s, &k) && read_launch_attrs(m, node, overlaps, s);
}

static bool read_fill(struct maker *m, CUgraphNode node, struct trace *t)
{
    struct step *s = add_trace_step(m, t, STEP_FILL);
    CUDA_MEMSET_NODE_PARAMS f = {.dst = 0};

    if (!s)
        return false;
    if (cuGraphMemsetNodeGetParams(node, &f) != CUDA_SUCCESS ||
        (f.elementSize != 1 && f.elementSize != 2 && f.elementSize != 4))
        return refuse_record(m, "a fill that cannot be read");
    s->fill.value = f.value;
    s->fill.elementSize = f.elementSize;
    s->fill.width = f.width;
    s->fill.height = f.height;
    s->fill.pitch = f.height > 1 ? f.pitch : 0;
    return put_bytes(m, t, s->at, &f.dst, sizeof(f.dst));
}

/* That both ends are the plan's memory is seen by the relocations. */
static bool read_copy(struct maker *m, CUgraphNode node, struct trace *t)
{
    struct step *s = add_trace_step(m, t, STEP_COPY);
    CUDA_MEMCPY3D c = {.srcXInBytes = 0};

    if (!s)
        return false;
    if (cuGraphMemcpyNodeGetParams(node, &c) != CUDA_SUCCESS || c.Height > 1 || c.Depth > 1 ||
        (c.srcMemoryType != CU_MEMORYTYPE_DEVICE && c.srcMemoryType != CU_MEMORYTYPE_UNIFIED) ||
        (c.dstMemoryType != CU_MEMORYTYPE_DEVICE && c.dstMemoryType != CU_MEMORYTYPE_UNIFIED) ||
        c.srcXInBytes || c.srcY || c.srcZ || c.dstXInBytes || c.dstY || c.dstZ)
        return refuse_record(m, "a copy that is not plain and on the device");
    s->copy_bytes = c.WidthInBytes;
    return put_bytes(m, t, s->at, &c.dstDevice, sizeof(c.dstDevice)) &&
           put_bytes(m, t, s->at + sizeof(c.dstDevice), &c.srcDevice, sizeof(c.srcDevice));
}

static bool read_launch_node(struct maker *m, CUgraphNode node, bool overlaps, struct trace *t)
{
    CUgraphNodeType type;

    if (cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
        return refuse_record(m, "a capture that cannot be read");
    switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return read_kernel(m, node, overlaps, t);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return read_fill(m, node, t);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return read_copy(m, node, t);
    default:
        return refuse_record(m, "more than kernels, fills and copies");
    }
}

/* Nodes in their order, which must be the only one; the first is the kernel in front, which shows
 * whether the second may overlap with what comes before it. */
static bool read_launch_graph(struct maker *m, CUgraph g, struct trace *t)
{
    CUgraphNode nodes[MAX_NODES], from[MAX_NODES], to[MAX_NODES], at = NULL;
    CUgraphEdgeData data[MAX_NODES];
    size_t n = 0, n_edges = MAX_NODES, e;

    memset(t->bytes, 0, t->n_bytes); /* of the operation before: gaps are compared as well */
    t->n_steps = t->n_args = 0;
    t->n_bytes = 0;
    if (cuGraphGetNodes(g, NULL, &n) != CUDA_SUCCESS || n < 1 || n >= MAX_NODES ||
        cuGraphGetNodes(g, nodes, &n) != CUDA_SUCCESS ||
        cuGraphGetEdges(g, from, to, data, &n_edges) != CUDA_SUCCESS)
        return refuse_record(m, "a capture that cannot be read");
    if (n_edges != n - 1)
        return refuse_record(m, "launches that may run at the same time");
    for (size_t i = 0; i < n && !at; i++) {
        for (e = 0; e < n_edges && to[e] != nodes[i]; e++)
            continue;
        at = e == n_edges ? nodes[i] : NULL;
    }
    for (size_t i = 1; i < n; i++) {
        for (e = 0; e < n_edges && from[e] != at; e++)
            continue;
        if (e == n_edges)
            return refuse_record(m, "launches that may run at the same time");
        at = to[e];
        if (!read_launch_node(m, at,
                              data[e].type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC &&
                                  data[e].from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                              t))
            return false;
    }
    t->n_bytes = SH_ALIGN_UP(t->n_bytes, (size_t)STEP_ALIGN);
    return t->n_steps > 0 || refuse_record(m, "it launches nothing");
}

/* Padding between the parameters holds what an earlier call left on the stack, addresses too: from
 * here on the same each time. */
static __attribute__((noinline)) void clear_stack(void)
{
    unsigned char room[32 << 10];

    explicit_bzero(room, sizeof(room));
}

static bool capture_trace(struct maker *m, uint32_t op,
                          unsigned char *const base[static CUDA_N_SPACES], int64_t step,
                          struct trace *t)
{
    struct cuda_call c = *m->call;
    struct sh_err err = {0};
    cudaGraph_t g = NULL;
    cudaError_t end;
    bool ok;
    int rc;

    memcpy(c.base, base, sizeof(c.base));
    c.step = step;
    if (cudaStreamBeginCapture(c.stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess)
        return refuse_record(m, "a stream that cannot be captured");
    k_delay(c.stream, 0);
    clear_stack();
    rc = cuda__run_op(m->plan, &c, op, &err);
    end = cudaStreamEndCapture(c.stream, &g); /* also after a failure: the stream must be usable */
    ok = !rc && end == cudaSuccess && g;
    ok = ok ? read_launch_graph(m, g, t) : refuse_record(m, "it cannot be captured");
    if (g)
        cudaGraphDestroy(g);
    cudaGetLastError();
    return ok;
}

/* ------------------------------------------------------------------ comparing */

static uint64_t load64(const unsigned char *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof(v));
    return v;
}

static uint32_t load32(const unsigned char *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof(v));
    return v;
}

static bool same_at(const struct trace *t, size_t at, size_t size)
{
    return memcmp(t[0].bytes + at, t[1].bytes + at, size) == 0 &&
           memcmp(t[0].bytes + at, t[2].bytes + at, size) == 0;
}

/* The 8 bytes at `at` as an address: false if they are none. */
static bool find_space(const struct maker *m, size_t at, struct reloc *out)
{
    const struct trace *t = m->traces;
    const uint64_t v = load64(t[0].bytes + at);

    for (int s = 0; s < CUDA_N_SPACES; s++) {
        const uint64_t base = (uint64_t)(uintptr_t)m->call->base[s];
        const int64_t off = (int64_t)((v & ADDRESS_MASK) - base);

        if (m->call->base[s] && load64(t[1].bytes + at) - v == SHIFT[1][s] &&
            load64(t[2].bytes + at) - v == SHIFT[2][s] && off >= -MAX_BEYOND &&
            off <= (int64_t)m->plan->extent[s] + MAX_BEYOND) {
            *out = (struct reloc){.at = (uint32_t)at, .space = (enum cuda_space)s, .off = v - base};
            return true;
        }
    }
    return false;
}

/* But for the bytes. */
static bool same_steps(const struct trace *a, const struct trace *b)
{
    return a->n_steps == b->n_steps && a->n_bytes == b->n_bytes && a->n_args == b->n_args &&
           memcmp(a->steps, b->steps, a->n_steps * sizeof(a->steps[0])) == 0;
}

static bool compare_traces(struct maker *m)
{
    const struct trace *t = m->traces;

    m->n_relocs = 0;
    for (int i = 1; i < N_SETS; i++)
        if (!same_steps(&t[0], &t[i]))
            return refuse_record(m, "other launches at other addresses");
    for (size_t at = 0; at < t[0].n_bytes; at += 4) {
        if (same_at(t, at, 4))
            continue;
        if (at + 8 > t[0].n_bytes || !find_space(m, at, &m->relocs[m->n_relocs]))
            return refuse_record(m, "a parameter that changes and is no address");
        m->n_relocs++;
        at += 4;
    }
    for (uint32_t i = 0; i < t[0].n_steps; i++) {
        const struct step *s = &t[0].steps[i];
        uint32_t ends = 0;

        for (uint32_t k = 0; k < m->n_relocs && s->kind == STEP_COPY; k++)
            ends += m->relocs[k].at == s->at || m->relocs[k].at == s->at + sizeof(CUdeviceptr);
        if (s->kind == STEP_COPY && ends != 2)
            return refuse_record(m, "a copy from or to memory that is not the plan's");
    }
    return true;
}

/* ------------------------------------------------------------------ a record */

static void record_fini(struct cuda_record *r)
{
    free(r->steps);
    free(r->bytes);
    free(r->args);
    free(r->relocs);
    *r = (struct cuda_record){.steps = NULL};
}

static void *copy_of(const void *from, size_t bytes)
{
    void *to = aligned_alloc(STEP_ALIGN, SH_ALIGN_UP(bytes + 1, (size_t)STEP_ALIGN));

    return to ? memcpy(to, from, bytes) : NULL;
}

static bool keep_record(struct maker *m, struct cuda_record *r)
{
    const struct trace *t = &m->traces[0];

    *r = (struct cuda_record){.n_steps = t->n_steps, .n_relocs = m->n_relocs};
    memcpy(r->base, m->call->base, sizeof(r->base));
    r->steps = copy_of(t->steps, t->n_steps * sizeof(*t->steps));
    r->bytes = copy_of(t->bytes, t->n_bytes);
    r->relocs = copy_of(m->relocs, m->n_relocs * sizeof(*m->relocs));
    r->args = calloc((size_t)t->n_args + 1, sizeof(*r->args));
    if (!r->steps || !r->bytes || !r->relocs || !r->args) {
        record_fini(r);
        return refuse_record(m, "no memory");
    }
    for (uint32_t i = 0; i < t->n_args; i++)
        r->args[i] = r->bytes + t->arg[i];
    for (uint32_t i = 0; i < r->n_steps; i++) {
        r->steps[i].config.hStream = m->call->stream;
        r->steps[i].config.attrs = r->steps[i].config.numAttrs ? r->steps[i].attrs : NULL;
    }
    return true;
}

static CUresult launch_step(const struct cuda_record *r, const struct step *s)
{
    void **args = r->args + s->first_arg;
    CUresult e = cuLaunchKernelEx(&s->config, s->function, args, NULL);

    /* How much of it a kernel may have is set for the function, and an operation that is not
     * recorded may have set it to less since. */
    if (e == CUDA_ERROR_INVALID_VALUE && s->config.sharedMemBytes > 0 &&
        cuFuncSetAttribute(s->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                           (int)s->config.sharedMemBytes) == CUDA_SUCCESS)
        e = cuLaunchKernelEx(&s->config, s->function, args, NULL);
    return e;
}

static CUresult launch_fill(CUdeviceptr dst, const CUDA_MEMSET_NODE_PARAMS *f, CUstream stream)
{
    const unsigned short v16 = (unsigned short)f->value;
    const unsigned char v8 = (unsigned char)f->value;
    const bool is_flat = f->height <= 1;

    switch (f->elementSize) {
    case 4:
        return is_flat ? cuMemsetD32Async(dst, f->value, f->width, stream)
                       : cuMemsetD2D32Async(dst, f->pitch, f->value, f->width, f->height, stream);
    case 2:
        return is_flat ? cuMemsetD16Async(dst, v16, f->width, stream)
                       : cuMemsetD2D16Async(dst, f->pitch, v16, f->width, f->height, stream);
    default:
        return is_flat ? cuMemsetD8Async(dst, v8, f->width, stream)
                       : cuMemsetD2D8Async(dst, f->pitch, v8, f->width, f->height, stream);
    }
}

static void patch(struct cuda_record *r, unsigned char *const base[static CUDA_N_SPACES])
{
    for (uint32_t i = 0; i < r->n_relocs; i++) {
        const struct reloc *l = &r->relocs[i];
        const uint64_t v = (uint64_t)(uintptr_t)base[l->space] + l->off;

        memcpy(r->bytes + l->at, &v, sizeof(v));
    }
    memcpy(r->base, base, sizeof(r->base));
}

static CUresult run_record(struct cuda_record *r, const struct cuda_call *c)
{
    CUresult e = CUDA_SUCCESS;

    if (memcmp(r->base, c->base, sizeof(r->base)) != 0)
        patch(r, c->base);
    for (uint32_t i = 0; i < r->n_steps && e == CUDA_SUCCESS; i++) {
        const struct step *s = &r->steps[i];
        const unsigned char *at = r->bytes + s->at;

        if (s->kind == STEP_KERNEL)
            e = launch_step(r, s);
        else if (s->kind == STEP_FILL)
            e = launch_fill(load64(at), &s->fill, c->stream);
        else
            e = cuMemcpyDtoDAsync(load64(at), load64(at + sizeof(CUdeviceptr)), s->copy_bytes,
                                  c->stream);
    }
    return e;
}

bool cuda__record_run(struct cuda_plan *p, struct cuda_call *c, uint32_t op, int *rc,
                      struct sh_err *err)
{
    struct cuda_record *r = p->records ? &p->records[op] : NULL;
    CUresult e;

    if (!r || !r->steps)
        return false;
    e = run_record(r, c);
    c->op = &p->base.g->ops[op];
    *rc = e == CUDA_SUCCESS ? SH_OK : cuda__launch_failed(c, e, err);
    return true;
}

void cuda__records_free(struct cuda_plan *p)
{
    for (uint32_t i = 0; p->records && i < p->base.g->n_ops; i++)
        record_fini(&p->records[i]);
    free(p->records);
    p->records = NULL;
}

/* ------------------------------------------------------------------ making them */

static bool make_op_record(struct maker *m, uint32_t op)
{
    struct cuda_record *r = &m->plan->records[op];
    unsigned char *base[CUDA_N_SPACES];

    if (m->plan->ops[op].by_step)
        return refuse_record(m, "it depends on the step");
    for (int i = 0; i < N_SETS; i++) {
        for (int s = 0; s < CUDA_N_SPACES; s++)
            base[s] = m->call->base[s] ? m->call->base[s] + SHIFT[i][s] : NULL;
        if (!capture_trace(m, op, base, STEP[i], &m->traces[i]))
            return false;
    }
    if (!compare_traces(m) || !keep_record(m, r))
        return false;
    if (run_record(r, m->call) == CUDA_SUCCESS)
        return true;
    record_fini(r);
    return refuse_record(m, "its launches are refused");
}

/* The first or the last place of the plan in the arena; false: it has none. */
static bool find_end(const struct maker *m, bool is_last, unsigned char *base[static CUDA_N_SPACES])
{
    const struct cuda_dev *d = m->call->dev;
    size_t size[CUDA_N_SPACES], all = 0, at;

    for (int s = 0; s < CUDA_N_SPACES; s++) {
        size[s] = SH_ALIGN_UP(m->plan->extent[s], (size_t)DEV_ALIGN);
        if (size[s] > d->base.arena_bytes - all)
            return false;
        all += size[s];
    }
    at = is_last ? (d->base.arena_bytes - all) / DEV_ALIGN * DEV_ALIGN : 0;
    for (int s = 0; s < CUDA_N_SPACES; s++) {
        base[s] = size[s] ? d->arena + at : NULL;
        at += size[s];
    }
    return true;
}

/* For "list": where a launch in the arena differs from its record. */
static void tell_bytes(const struct cuda_record *r, const struct trace *t, int end)
{
    for (size_t at = 0; at < t->n_bytes; at += 4) {
        const struct step *s = t->steps;
        const char *name = "";
        uint32_t k = 0;

        if (memcmp(r->bytes + at, t->bytes + at, 4) == 0)
            continue;
        while (s + 1 < t->steps + t->n_steps && s[1].at <= at)
            s++;
        while (k + 1 < s->n_args && t->arg[s->first_arg + k + 1] <= at)
            k++;
        if (s->kind == STEP_KERNEL)
            cuFuncGetName(&name, s->function);
        fprintf(stderr,
                "record: end %d, launch %td %s, parameter %u, bytes from %zu: recorded %08x, "
                "launched %08x\n",
                end, s - t->steps, name, k, s->n_args ? at - t->arg[s->first_arg + k] : at - s->at,
                load32(r->bytes + at), load32(t->bytes + at));
    }
}

/* Does a record that was just made hold at both ends of the arena? True if the plan has no place
 * there. */
static bool record_holds(struct maker *m, uint32_t op)
{
    struct cuda_record *r = &m->plan->records[op];
    struct trace *t = &m->traces[1]; /* the first is what the record was made from */
    unsigned char *base[CUDA_N_SPACES];

    for (int end = 0; end < 2 && find_end(m, end == 1, base); end++) {
        if (!capture_trace(m, op, base, STEP_AT_ENDS, t))
            return false;
        patch(r, base);
        if (!same_steps(&m->traces[0], t))
            return refuse_record(m, "its launches are others in the arena");
        if (memcmp(r->bytes, t->bytes, t->n_bytes) == 0)
            continue;
        if (strcmp(m->mode, "list") == 0)
            tell_bytes(r, t, end);
        return refuse_record(m, "its parameters are others in the arena");
    }
    return true;
}

/* For tests: puts the addresses of one record off. */
static void spoil(struct maker *m, struct cuda_record *r, const char *when)
{
    if (strcmp(m->mode, when) != 0 || r->n_relocs == 0)
        return;
    for (uint32_t i = 0; i < r->n_relocs; i++)
        r->relocs[i].off += DEV_ALIGN;
    memset(r->base, 0, sizeof(r->base)); /* to be patched */
    m->mode = "";
}

static void tell_of_record(const struct maker *m, uint32_t op, bool holds)
{
    const struct dev_op *o = &m->plan->base.g->ops[op];
    const struct cuda_record *r = &m->plan->records[op];

    if (r->steps && holds)
        fprintf(stderr, "record: %u %s (node \"%s\"): %u launches, %u addresses\n", op,
                dev_op_name(o->kind), o->name ? o->name : "", r->n_steps, r->n_relocs);
    else
        fprintf(stderr, "record: %u %s (node \"%s\"): %s: %s\n", op, dev_op_name(o->kind),
                o->name ? o->name : "", holds ? "none" : "all are off", m->why);
}

/* False: what was recorded does not hold. */
static bool make_all(struct maker *m)
{
    struct cuda_plan *p = m->plan;
    const bool verifies = m->call->dev->verify_launches;
    bool all_hold = true;

    k_delay(m->call->stream, 0); /* a kernel must not be loaded while a stream is captured */
    for (uint32_t i = 0; i < p->base.g->n_ops; i++) {
        bool ok = true;

        if (!p->ops[i].run)
            continue;
        if (make_op_record(m, i) && verifies) {
            spoil(m, &p->records[i], "spoil-launches");
            ok = record_holds(m, i);
            spoil(m, &p->records[i], "spoil-results");
            p->base.replay = DEV_REPLAY_VERIFIED;
        } else if (p->records[i].steps) {
            p->base.replay = DEV_REPLAY_TRUSTED;
        }
        if (strcmp(m->mode, "list") == 0)
            tell_of_record(m, i, ok);
        all_hold = all_hold && ok;
    }
    return all_hold;
}

void cuda__records_make(struct cuda_plan *p, const struct cuda_call *c)
{
    const char *mode = sh_conf_env("SHUNT_CUDA_RECORD");
    struct maker m = {.plan = p, .call = c, .mode = mode ? mode : ""};

    cuda__records_free(p);
    if (strcmp(m.mode, "0") == 0)
        return;
    m.traces = calloc(N_SETS, sizeof(*m.traces));
    m.relocs = calloc(MAX_BYTES / 8, sizeof(*m.relocs));
    p->records = calloc((size_t)p->base.g->n_ops + 1, sizeof(*p->records));
    if (m.traces && m.relocs && p->records && !make_all(&m)) {
        cuda__records_free(p);
        p->base.replay = DEV_REPLAY_LAUNCHES;
    }
    cudaGetLastError();
    free(m.traces);
    free(m.relocs);
}
