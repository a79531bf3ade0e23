/* onnx_calls.c - see onnx_calls.h. */
#include "runtime/model/onnx_calls.h"

#include "common/mem.h"
#include "runtime/model/onnx_meta.h"

#include <ctype.h>

char *onnx_call(const Onnx__NodeProto *n)
{
    return onnx_meta(n, "pkg.torch.onnx.fx_node");
}

const char *onnx_call_args(const char *call)
{
    return strstr(call, "(args = (");
}

const char *onnx_call_next(const char *p, char name[static ONNX_CALL_NAME])
{
    size_t n = 0;

    p = strchr(p, '%');
    for (p = p ? p + 1 : NULL; p && (isalnum((unsigned char)p[n]) || p[n] == '_');)
        n++;
    if (!p)
        return NULL;
    n = SH_MIN(n, (size_t)ONNX_CALL_NAME - 1);
    memcpy(name, p, n);
    name[n] = '\0';
    return p;
}

bool onnx_call_is_param(const char *arg, const char *param)
{
    const size_t n = strlen(arg);
    bool is = n == strlen(param) + 2 && arg[1] == '_';

    for (size_t i = 2; i < n && is; i++)
        is = arg[i] == param[i - 2] || !isalnum((unsigned char)param[i - 2]);
    return is;
}

static bool is_call_of(const char *arg, const char *input)
{
    return strcmp(arg, input) == 0 || onnx_call_is_param(arg, input);
}

static const char *input_of(const Onnx__NodeProto *n, size_t k)
{
    return n->input[k] ? n->input[k] : "";
}

struct args {
    char names[ONNX_CALL_MOST][ONNX_CALL_NAME];
    size_t n;
};

static bool read_args(const char *call, struct args *out)
{
    char name[ONNX_CALL_NAME];

    out->n = 0;
    for (const char *p = onnx_call_args(call); p && (p = onnx_call_next(p, name));) {
        if (out->n == ONNX_CALL_MOST)
            return false;
        memcpy(out->names[out->n++], name, sizeof(name));
    }
    return true;
}

static bool is_among_args(const struct args *args, const char *input)
{
    bool is = false;

    for (size_t i = 0; i < args->n && !is; i++)
        is = is_call_of(args->names[i], input);
    return is;
}

static bool is_among_inputs(const Onnx__NodeProto *n, const char *arg)
{
    bool is = false;

    for (size_t k = 0; k < n->n_input && !is; k++)
        is = is_call_of(arg, input_of(n, k));
    return is;
}

bool onnx_called_with(const Onnx__NodeProto *n, const char *call, size_t k,
                      char name[static ONNX_CALL_NAME])
{
    size_t inputs = 0, others = 0, which = 0;
    struct args args;
    bool same;

    if (n->n_input > ONNX_CALL_MOST || !read_args(call, &args))
        return false;
    same = is_among_args(&args, input_of(n, k));
    for (size_t i = 0; i < n->n_input; i++) {
        which = i == k ? inputs : which;
        inputs += input_of(n, i)[0] && !is_among_args(&args, input_of(n, i));
    }
    for (size_t i = 0; i < args.n; i++) {
        const char *one = args.names[i];

        if (same ? is_call_of(one, input_of(n, k)) : !is_among_inputs(n, one)) {
            if (same || others++ == which)
                sh_strlcpy(name, one, ONNX_CALL_NAME);
        }
    }
    return same || (others == inputs && which < inputs);
}
