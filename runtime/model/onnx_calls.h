/* onnx_calls.h - what PyTorch's newer exporter notes at each node: the call that it came of, with
 * the names that its arguments had before the exporter merged and moved anything. */
#ifndef SH_RUNTIME_MODEL_ONNX_CALLS_H
#define SH_RUNTIME_MODEL_ONNX_CALLS_H

#include "runtime/model/onnx_file.h"

#define ONNX_CALL_NAME 256
#define ONNX_CALL_MOST 32 /* arguments or inputs of one that says what its inputs were */

/* "%mul : [num_users=1] = call_function[target=...](args = (%x, 0.1), kwargs = {})"; NULL: nothing
 * is noted. OWNED, free(). */
char *onnx_call(const Onnx__NodeProto *n);
/* The arguments of a call; NULL: it has none. */
const char *onnx_call_args(const char *call);
/* The name of the next argument that has one. Returns where it begins; NULL: there is none. */
const char *onnx_call_next(const char *p, char name[static ONNX_CALL_NAME]);
/* Is the argument what the exporter calls the parameter: "p_net_0_scale" of net.0.scale? */
bool onnx_call_is_param(const char *arg, const char *param);
/* What input k of the node was called with. false: the call does not say, as when it became several
 * nodes: arguments and inputs that have each other's names are paired, and so are the others in
 * their order, where they are as many; or more than ONNX_CALL_MOST of either. */
bool onnx_called_with(const Onnx__NodeProto *n, const char *call, size_t k,
                      char name[static ONNX_CALL_NAME]);

#endif
