/* onnx_padding.c - table rows that stand for padding: training leaves them unchanged.
 *
 * nn.Embedding(padding_idx=k) gives row k no gradient, and ONNX's Gather cannot express k.
 * PyTorch's newer exporter writes the call beside the node. If nothing is written, a table has such
 * a row if exactly one of its rows is zeros: it begins as zeros and never learns.
 */
#include "common/mem.h"
#include "runtime/model/onnx_calls.h"
#include "runtime/model/onnx_reader.h"

#include <stdio.h>
#include <stdlib.h>

/* "...aten.embedding.default](args = (%table, %indices, 0), kwargs = {})"; -1 without a third. */
static bool read_embedding_call(const char *call, int64_t *row)
{
    const char *at = strstr(call, "aten.embedding.default](args = ("), *end;
    long long k;

    end = at ? strstr(at, "), kwargs") : NULL;
    if (!end)
        return false;
    for (int commas = 0; at < end && commas < 2; at++)
        commas += *at == ',';
    *row = at < end && sscanf(at, "%lld", &k) == 1 ? (int64_t)k : -1;
    return true;
}

int reader_padding(struct reader *r, const Onnx__NodeProto *p, struct graph_node *n)
{
    char *call = onnx_call(p);
    int64_t row;
    int rc = SH_OK;

    if (call && !graph__attr(n, GRAPH_PADDING) && read_embedding_call(call, &row))
        rc = graph_set_int(n, GRAPH_PADDING, row, r->err);
    free(call);
    return rc;
}

/* -1: none of its rows is zeros, or several are. */
static int64_t row_of_zeros(const struct graph_value *table)
{
    const float *x = table->data;
    int64_t found = -1;

    for (int64_t i = 0; i < table->dims[0]; i++, x += table->dims[1]) {
        int64_t k = 0;

        while (k < table->dims[1] && x[k] == 0)
            k++;
        if (k < table->dims[1])
            continue;
        if (found >= 0)
            return -1;
        found = i;
    }
    return found;
}

int graph__find_padding(struct graph *g, struct sh_err *err)
{
    int rc = SH_OK;

    for (uint32_t i = 0; i < g->n_nodes && rc == SH_OK; i++) {
        struct graph_node *n = &g->nodes[i];
        const struct graph_value *table;
        int64_t axis = 0;

        if (strcmp(n->op, "Gather") != 0 || n->n_in != 2 || graph__attr(n, GRAPH_PADDING))
            continue;
        table = &g->values[n->in[0]];
        if (graph_int(n, "axis", 0, &axis, NULL) == SH_OK && axis == 0 && table->is_param &&
            table->data && table->dtype == SH_F32 && table->rank == 2)
            rc = graph_set_int(n, GRAPH_PADDING, row_of_zeros(table), err);
    }
    return rc;
}
