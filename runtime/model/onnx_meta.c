/* onnx_meta.c - see onnx_meta.h. */
#include "runtime/model/onnx_meta.h"

#include "runtime/model/param_forms.h"
#include "runtime/model/param_joins.h"
#include "runtime/model/param_rules.h"

#include <stdlib.h>
#include <string.h>

/* metadata_props of NodeProto, ValueInfoProto and GraphProto; IR version 10 and later */
enum { OF_NODE = 9, OF_VALUE = 4, OF_GRAPH = 16 };

#define MAX_LENGTH 10 /* bytes of a number before a message */

const uint8_t *onnx_unknown(const ProtobufCMessageUnknownField *u, uint32_t tag, size_t *len)
{
    size_t at = 0;

    if (u->tag != tag || u->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
        return NULL;
    while (at < u->len && (u->data[at] & 0x80)) /* its length */
        at++;
    if (at >= u->len)
        return NULL;
    *len = u->len - at - 1;
    return u->data + at + 1;
}

static char *text_under(const ProtobufCMessage *m, uint32_t tag, const char *key)
{
    char *out = NULL;

    for (size_t i = 0; i < m->n_unknown_fields && !out; i++) {
        size_t len;
        const uint8_t *data = onnx_unknown(&m->unknown_fields[i], tag, &len);
        Onnx__StringStringEntryProto *e =
            data ? onnx__string_string_entry_proto__unpack(NULL, len, data) : NULL;

        if (e && e->key && e->value && strcmp(e->key, key) == 0)
            out = strdup(e->value);
        if (e)
            onnx__string_string_entry_proto__free_unpacked(e, NULL);
    }
    return out;
}

char *onnx_meta(const Onnx__NodeProto *n, const char *key)
{
    return text_under(&n->base, OF_NODE, key);
}

const char *onnx_told(const Onnx__ModelProto *m, const char *key)
{
    for (size_t i = m->n_metadata_props; i-- > 0;) { /* the newest is the last */
        const Onnx__StringStringEntryProto *e = m->metadata_props[i];

        if (e->key && e->value && strcmp(e->key, key) == 0)
            return e->value;
    }
    return "";
}

bool onnx_is_as_written(const Onnx__ModelProto *m)
{
    const Onnx__GraphProto *g = m->graph;
    bool has = false, is = m->producer_name && strcmp(m->producer_name, "pytorch") == 0;
    bool scopes = false; /* nodes have names as "/fc/Gemm": only this exporter gives them */

    for (size_t i = 0; i < g->n_node && !has; i++) {
        has = g->node[i]->op_type && strcmp(g->node[i]->op_type, "Constant") == 0;
        scopes |= g->node[i]->name && g->node[i]->name[0] == '/';
    }
    for (size_t i = 0; i < g->n_initializer && is && !has; i++) {
        const Onnx__TensorProto *t = g->initializer[i];
        const enum sh_dtype type = sh_dtype_from_onnx(t->data_type);

        is = !t->name || strchr(t->name, '@') || !param_is_made_up(t->name) ||
             (scopes && param_is_word(t->name)) || /* a module may call it "t", or "mean" */
             (param_is_folded(t->name) && type != SH_I64 && type != SH_I32);
    }
    return is;
}

static char *onnx_value_meta(const Onnx__ValueInfoProto *v, const char *key)
{
    return text_under(&v->base, OF_VALUE, key);
}

#define SIGNATURE "pkg.torch.export.ExportedProgram.graph_signature"
#define KIND "pkg.torch.export.graph_signature.InputSpec.kind"
#define FOLDED_FROM "pkg.onnxscript.optimizer.folded_from"

char *onnx_folded_from(const Onnx__ValueInfoProto *v)
{
    return onnx_value_meta(v, FOLDED_FROM);
}

int onnx_fold_from(Onnx__ValueInfoProto *v, const char *list, struct sh_err *err)
{
    Onnx__StringStringEntryProto e = ONNX__STRING_STRING_ENTRY_PROTO__INIT;
    size_t n;
    uint8_t *data;

    e.key = (char[]){FOLDED_FROM};
    e.value = (char *)(uintptr_t)list;
    n = onnx__string_string_entry_proto__get_packed_size(&e);
    data = malloc(n + MAX_LENGTH);
    if (!data)
        return SH_FAIL(err, SH_E_NOMEM, "could not allocate %zu bytes", n);
    for (size_t i = 0; i < v->base.n_unknown_fields; i++) {
        ProtobufCMessageUnknownField *u = &v->base.unknown_fields[i];
        size_t len, at = 0;
        const uint8_t *old = onnx_unknown(u, OF_VALUE, &len);
        Onnx__StringStringEntryProto *is =
            old ? onnx__string_string_entry_proto__unpack(NULL, len, old) : NULL;
        const bool same = is && is->key && strcmp(is->key, FOLDED_FROM) == 0;

        if (is)
            onnx__string_string_entry_proto__free_unpacked(is, NULL);
        if (!same)
            continue;
        for (len = n; len > 127; len >>= 7)
            data[at++] = (uint8_t)(len | 128);
        data[at++] = (uint8_t)len;
        u->len = at + onnx__string_string_entry_proto__pack(&e, data + at);
        free(u->data);
        u->data = data;
        return SH_OK;
    }
    free(data);
    return SH_OK;
}

int onnx_kinds(const Onnx__GraphProto *g, struct param_kinds *out, struct sh_err *err)
{
    return param_kinds_read(out, text_under(&g->base, OF_GRAPH, SIGNATURE), err);
}

bool onnx_says_kind(const Onnx__ValueInfoProto *v)
{
    char *kind = onnx_value_meta(v, KIND);
    const bool says = kind;

    free(kind);
    return says;
}

enum graph_said onnx_said(const Onnx__ValueInfoProto *v, const struct param_kinds *kinds)
{
    char *kind = onnx_value_meta(v, KIND);
    char *from = kind ? NULL : onnx_folded_from(v);
    enum graph_said said = GRAPH_SAID_NOTHING;

    if ((kind && strcmp(kind, "PARAMETER") == 0) ||
        (from && param_form_is_one(v->name, from, kinds)))
        said = GRAPH_SAID_PARAM;
    else if ((kind && strcmp(kind, "BUFFER") == 0) || (from && param_is_of_code(from, kinds)))
        said = GRAPH_SAID_BUFFER;
    free(kind);
    free(from);
    return said;
}

bool onnx_is_shifted(const Onnx__ValueInfoProto *v, const struct param_kinds *kinds,
                     char param[static PARAM_FORM_NAME])
{
    char *from = onnx_folded_from(v);
    const bool is = from && param_form_shifted(v->name, from, kinds, param);

    free(from);
    return is;
}

bool onnx_is_part(const Onnx__ValueInfoProto *v, const struct param_kinds *kinds,
                  char param[static PARAM_FORM_NAME])
{
    char *from = onnx_folded_from(v);
    const bool is = from && param_form_part(v->name, from, kinds, param);

    free(from);
    return is;
}

bool onnx_is_expanded(const Onnx__ValueInfoProto *v, const struct param_kinds *kinds,
                      char param[static PARAM_FORM_NAME])
{
    char *from = onnx_folded_from(v);
    const bool is = from && param_form_expanded(v->name, from, kinds, param);

    free(from);
    return is;
}

bool onnx_is_computed(const Onnx__ValueInfoProto *v, const struct param_kinds *kinds)
{
    char *from = onnx_folded_from(v);
    const bool is = from && param_form_is_lost(v->name, from, kinds);

    free(from);
    return is;
}

bool onnx_is_repeated(const Onnx__ValueInfoProto *v, const struct param_kinds *kinds)
{
    char *from = onnx_folded_from(v);
    struct param_move is;
    const bool repeated = from && param_form_moved(v->name, from, kinds, &is) && is.repeats;

    free(from);
    return repeated;
}

bool onnx_is_of_zeros(const Onnx__ValueInfoProto *v, const struct param_kinds *kinds)
{
    char *from = onnx_folded_from(v);
    const bool is = from && param_form_of_zeros(v->name, from, kinds);

    free(from);
    return is;
}

bool onnx_is_letter(const Onnx__ValueInfoProto *v, const struct param_kinds *kinds)
{
    char *from = onnx_folded_from(v);
    const bool is = from && param_form_is_letter(from, kinds);

    free(from);
    return is;
}

bool onnx_is_taken(const Onnx__ValueInfoProto *v, const struct param_kinds *kinds)
{
    char *from = onnx_folded_from(v);
    const bool is = from && strchr(from, '\'') && !param_is_of_code(from, kinds) &&
                    !param_is_computed(v->name, from, kinds);

    free(from);
    return is;
}

bool onnx_is_detached(const Onnx__ValueInfoProto *v)
{
    char *from = onnx_folded_from(v);
    const bool is = from && param_is_detached(from);

    free(from);
    return is;
}

char *onnx_only_param(const Onnx__ValueInfoProto *v, const struct param_kinds *kinds)
{
    char *from = onnx_folded_from(v), *only = NULL;
    size_t n = 0, found = 0;

    for (const char *p = from ? param_next_name(from, &n) : NULL; p;
         p = param_next_name(p + n + 1, &n)) {
        char *name = strndup(p, n);

        if (!name || param_kind(kinds, name) != GRAPH_SAID_PARAM || strcmp(name, v->name) == 0) {
            free(name);
            continue;
        }
        free(only);
        only = name;
        found++;
    }
    free(from);
    if (found == 1)
        return only;
    free(only);
    return NULL;
}
