/* onnx_pack.c - see onnx_pack.h. */
#include "runtime/model/onnx_pack.h"

#include "common/mem.h"
#include "common/ustar.h"
#include "runtime/model/atomic_file.h"
#include "runtime/model/onnx.h"
#include "runtime/model/onnx_tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MODEL "model.onnx"
#define DATA MODEL ".data"
#define SMALL 1024 /* bytes; such tensors stay in the graph */
#define ALIGN 64

struct moved { /* the data of an initializer while they are not in it */
    Onnx__TensorProto *t;
    ProtobufCBinaryData raw;
    uint64_t offset;
};

struct pack {
    struct moved *moved;
    size_t n;
    uint64_t bytes; /* of DATA */
};

static int move_out(struct pack *p, Onnx__TensorProto *t, struct sh_err *err)
{
    const ProtobufCBinaryData raw = t->raw_data;
    int rc;

    if (!t->has_raw_data || t->raw_data.len < SMALL)
        return SH_OK;
    p->bytes = SH_ALIGN_UP(p->bytes, (uint64_t)ALIGN);
    t->raw_data = (ProtobufCBinaryData){0, NULL};
    rc = onnx_tensor_point(t, DATA, p->bytes, raw.len, err);
    p->moved[p->n++] = (struct moved){.t = t, .raw = raw, .offset = p->bytes};
    p->bytes += raw.len;
    return rc;
}

static int put_pack_header(FILE *f, const char *name, uint64_t bytes, struct sh_err *err)
{
    char block[USTAR_BLOCK];
    int rc = ustar_write(name, bytes, 0, block, err);

    if (!rc)
        fwrite(block, 1, sizeof(block), f); /* an error stays in the stream: commit looks */
    return rc;
}

static void put_zeros(FILE *f, uint64_t n)
{
    static const char ZERO[2 * USTAR_BLOCK];

    fwrite(ZERO, 1, (size_t)n, f); /* at most two blocks */
}

static int put_data(const struct pack *p, FILE *f, struct sh_err *err)
{
    uint64_t at = 0;
    int rc = put_pack_header(f, DATA, p->bytes, err);

    for (size_t i = 0; i < p->n && rc == SH_OK; i++) {
        const struct moved *m = &p->moved[i];

        put_zeros(f, m->offset - at);
        if (fwrite(m->raw.data, 1, m->raw.len, f) != m->raw.len)
            rc = SH_FAIL_ERRNO(err, SH_E_IO, "could not write a file");
        at = m->offset + m->raw.len;
    }
    put_zeros(f, ustar_padded(at) - at);
    put_zeros(f, 2 * (uint64_t)USTAR_BLOCK);
    return rc;
}

static int write_pack(const struct pack *p, const char *path, const Onnx__ModelProto *m,
                      struct sh_err *err)
{
    struct atomic_file a = {0};
    uint64_t graph = onnx__model_proto__get_packed_size(m);
    int rc;

    if (graph > ONNX_MAX_FILE_BYTES)
        return SH_FAIL(err, SH_E_TOOBIG, "an ONNX file cannot hold %" PRIu64 " bytes", graph);
    rc = atomic_file_open(&a, path, err);
    if (!rc)
        rc = put_pack_header(a.f, MODEL, graph, err);
    if (!rc) {
        onnx_file_put(a.f, m);
        put_zeros(a.f, ustar_padded(graph) - graph);
        rc = put_data(p, a.f, err);
    }
    if (!rc)
        rc = atomic_file_commit(&a, err);
    atomic_file_close(&a);
    return rc;
}

int onnx_pack_save(const char *path, Onnx__ModelProto *m, struct sh_err *err)
{
    Onnx__GraphProto *g = m->graph;
    struct pack p = {.moved = calloc(g->n_initializer + 1, sizeof(*p.moved))};
    int rc = p.moved ? SH_OK : SH_FAIL(err, SH_E_NOMEM, "could not allocate an export");

    for (size_t i = 0; i < g->n_initializer && rc == SH_OK; i++)
        rc = move_out(&p, g->initializer[i], err);
    if (!rc)
        rc = write_pack(&p, path, m, err);
    for (size_t i = 0; i < p.n; i++)
        p.moved[i].t->raw_data = p.moved[i].raw;
    free(p.moved);
    return rc;
}
