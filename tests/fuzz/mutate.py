"""Changes of ONNX models, each a way in which a file may be wrong or hostile. See mutations.py.

A mutation takes (model, r, pool): a ModelProto to be changed, a random.Random, and all seeds. It
raises Nothing where the model has nothing that it could change.
"""
import math
import struct

from onnx import AttributeProto, ModelProto, TensorProto, helper

EXTREMES = (0, 1, -1, 2, 3, 7, -2, 255, 65536, 2 ** 31 - 1, 2 ** 31, -2 ** 31, 2 ** 40, 2 ** 62,
            2 ** 63 - 1, -2 ** 63)
SPECIALS = (0.0, -0.0, float("nan"), float("inf"), float("-inf"), 3.4e38, 1e-45, -1.0, 0.5, 1e10)
WORDS = (b"", b"NOTSET", b"SAME_UPPER", b"linear", b"a" * 5000, b"\xff\xfe\x00", b"%s%n", b"NHWC",
         b"bij,bjk->bik", b"i" * 60 + b"->", b"...->...", b"mul", b"reflect", b"bidirectional")
INTS = {TensorProto.INT64: "q", TensorProto.INT32: "i", TensorProto.INT8: "b",
        TensorProto.UINT8: "B", TensorProto.BOOL: "B", TensorProto.INT16: "h",
        TensorProto.UINT16: "H", TensorProto.UINT32: "I", TensorProto.UINT64: "Q"}
FLOATS = {TensorProto.FLOAT: "f", TensorProto.DOUBLE: "d", TensorProto.FLOAT16: "e"}
DEPTH = 30       # of nesting: protobuf's own limit is 100 messages in each other
LINKS = 3000     # of a chain of nodes
GROWING_LINKS = 300  # of such that make more of what comes in: that is work, and not a fault
GROW = {"MaxPool", "AveragePool", "LpPool", "Conv", "ConvTranspose", "Pad", "Resize", "Upsample", "Tile", "Expand",
        "Col2Im", "MaxUnpool", "DepthToSpace", "CenterCropPad"}
MOST_VALUES = 4096  # of an input that becomes a constant
DOUBLINGS = 60   # of functions that call the next one twice


class Nothing(Exception):
    pass


def pick(r, items):
    items = list(items)
    if not items:
        raise Nothing
    return r.choice(items)


def graphs_of(graph):
    yield graph
    for n in graph.node:
        for a in n.attribute:
            for g in ([a.g] if a.HasField("g") else []) + list(a.graphs):
                yield from graphs_of(g)


def nodes(model):
    return [n for g in graphs_of(model.graph) for n in g.node]


def attributes(model):
    return [a for n in nodes(model) for a in n.attribute]


def tensors(model):
    return [t for g in graphs_of(model.graph) for t in g.initializer] + \
        [a.t for a in attributes(model) if a.HasField("t")]


def values(model):
    return [v for g in graphs_of(model.graph) for v in (*g.input, *g.output, *g.value_info)
            if v.type.HasField("tensor_type")]


def names(model):
    return [x for n in nodes(model) for x in (*n.input, *n.output)] + [t.name for t in tensors(model)]


# ------------------------------------------------------------------ tensors

def tensor_dims(model, r, pool):
    t = pick(r, tensors(model))
    way = r.randrange(4)
    if way == 0 or not t.dims:
        t.dims.insert(r.randint(0, len(t.dims)), r.choice(EXTREMES))
    elif way == 1:
        del t.dims[r.randrange(len(t.dims))]
    else:
        t.dims[r.randrange(len(t.dims))] = r.choice(EXTREMES)


def packed(code, x):
    try:
        return struct.pack("<" + code, x)
    except (struct.error, OverflowError):
        return b"\xff" * struct.calcsize(code)


def tensor_values(model, r, pool):
    """Scales of 0 and NaN, shapes, axes, indices and trip counts beyond all bounds."""
    t = pick(r, tensors(model))
    everywhere = r.random() < 0.3
    code = INTS.get(t.data_type) or FLOATS.get(t.data_type) or pick(r, [])
    choices = EXTREMES if t.data_type in INTS else SPECIALS
    if t.raw_data:
        size, data = struct.calcsize(code), bytearray(t.raw_data)
        count = len(data) // size
        for k in range(count) if everywhere else [r.randrange(max(1, count))]:
            data[k * size:(k + 1) * size] = packed(code, r.choice(choices))
        t.raw_data = bytes(data)
        return
    field = pick(r, [f for f in (t.int64_data, t.int32_data, t.float_data, t.double_data) if f])
    for k in range(len(field)) if everywhere else [r.randrange(len(field))]:
        try:
            field[k] = r.choice(choices)
        except ValueError:
            field[k] = -1


def tensor_bytes(model, r, pool):
    t = pick(r, tensors(model))
    if r.random() < 0.5:
        t.raw_data = t.raw_data[:r.randint(0, len(t.raw_data))]
    else:
        t.raw_data = t.raw_data + bytes(r.randrange(256) for _ in range(r.randint(1, 64)))


def tensor_type(model, r, pool):
    pick(r, tensors(model)).data_type = r.randint(-1, 27)


def tensor_external(model, r, pool):
    t = pick(r, tensors(model))
    t.data_location = TensorProto.EXTERNAL
    if r.random() < 0.8:
        t.ClearField("raw_data")
    t.dims[:] = [4]
    t.data_type = TensorProto.FLOAT
    del t.external_data[:]
    for key, options in (("location", model_places(r)), ("offset", numbers(r)), ("length", numbers(r))):
        if r.random() < 0.8:
            t.external_data.add(key=key, value=options)


def model_places(r):
    return r.choice(("data.bin", "../secret.bin", "SECRET", "link.bin", "pipe", "m.onnx", "", ".", "..",
                     "/dev/zero", "sub/../../secret.bin", "data.bin/x", "x" * 5000, "sub"))


def numbers(r):
    return r.choice(("0", "16", "4", "-1", "", "x", "1e3", "18446744073709551616", "9223372036854775807",
                     "4294967296", "0x10", " 4"))


# ------------------------------------------------------------------ inputs and outputs

def value_dims(model, r, pool):
    v = pick(r, values(model)).type.tensor_type
    if not v.shape.dim or r.random() < 0.2:
        v.shape.dim.add().dim_value = r.choice(EXTREMES)
    elif r.random() < 0.2:
        v.ClearField("shape")
    else:
        d = v.shape.dim[r.randrange(len(v.shape.dim))]
        if r.random() < 0.6:
            d.dim_value = r.choice(EXTREMES)
        else:
            d.dim_param = r.choice(("N", "", "length", "2*N+1", "\u00e9" * 300, "N"))


def open_sizes(model, r, pool):
    """Sizes that the file leaves open, the same ones under the same name: the batch, a length, a width."""
    known = sorted({d.dim_value for v in values(model) for d in v.type.tensor_type.shape.dim if d.dim_value > 1})
    names_of = dict(zip(r.sample(known, min(len(known), r.randint(1, 3))), ("length", "batch", "width")))
    if not names_of:
        raise Nothing
    for v in (*model.graph.input, *model.graph.output):
        for i, d in enumerate(v.type.tensor_type.shape.dim):
            if d.dim_value in names_of and (i == 0) <= (r.random() < 0.9):
                d.dim_param = names_of[d.dim_value]
    del model.graph.value_info[:]


def value_type(model, r, pool):
    pick(r, values(model)).type.tensor_type.elem_type = r.randint(-1, 27)


def value_name(model, r, pool):
    pick(r, values(model)).name = r.choice((*names(model)[:50], "", "x" * 5000))


def outputs(model, r, pool):
    model.graph.output.add().CopyFrom(pick(r, values(model)))


def constant(model, r, pool, but=""):
    """What a request would bring is in the file: scales, zero points, indices, sizes, conditions, trip counts."""
    given = {t.name for t in model.graph.initializer}
    v = pick(r, [v for v in model.graph.input if v.type.HasField("tensor_type") and v.name not in given and v.name != but])
    kind, dims = v.type.tensor_type.elem_type, dims_of(v)
    n = math.prod(dims)
    code = INTS.get(kind) or FLOATS.get(kind)
    if not code or not 0 <= n <= MOST_VALUES:
        raise Nothing
    odd, every = EXTREMES if kind in INTS else SPECIALS, r.random() < 0.3
    usual = (0, 1, 2, 3) if kind in INTS else (0.5, 1.0, -2.0, 0.01)
    values = [r.choice(odd if every or r.random() < 0.1 else usual) for _ in range(n)]
    model.graph.initializer.add(name=v.name, data_type=kind, dims=dims,
                                raw_data=b"".join(packed(code, x) for x in values))
    model.graph.input.remove(v)


# ------------------------------------------------------------------ what exporters say of constants

NAMES = ("expand_3", "onnx::Add_12", "onnx::MatMul_7", "slice_1", "unsqueeze@linear_2:1", "net.0.weight", "net.0.bias",
         "net.weight_u", "net.weight_v", "net.weight_orig", "pos_embed", "attn_mask", "exp_2", "sub", "val_12", "W@rows",
         "expand_3@rows", "expand_3@index", "expand_3@shape", "a" * 63, "a" * 64, "a." + "b" * 300, ".", "@", "_12", "'",
         "net.\u00e9", "%s%n")
KIND, FOLDED = "pkg.torch.export.graph_signature.InputSpec.kind", "pkg.onnxscript.optimizer.folded_from"
KINDS = ("PARAMETER", "PARAMETER", "PARAMETER", "BUFFER", "CONSTANT_TENSOR", "", "x" * 5000)
SOURCES = ("['exp', 'net.weight']", "['expand', 'net.token']", "['running_mean']", "['", "''", "'", "[]",
           "'" + "x" * 70 + "'", "'a', " * 2000)
CALL = "%%y : [num_users=1] = call_function[target=torch.ops.aten.%s](args = (%s), kwargs = {})"
CALLS = tuple(CALL % c for c in (
    ("embedding.default", "%t, %i, 0"), ("embedding.default", "%t, %i, 1"), ("embedding.default", "%t, %i, -7"),
    ("embedding.default", "%t, %i, 9223372036854775808"), ("embedding.default", ","), ("conv2d.default", "%x, %w, None"),
    ("conv2d.default", "%x, %w, %b, [1, 1]"), ("conv2d.default", "((((("), ("linear.default", "%x, %w, %b"),
    ("batch_norm.default", "%x, %w, %b, %m, %v, 0.1, 1e-05"), ("batch_norm.default", "%x, %w, %b, %m, %v, nan, 1e-400"),
    ("batch_norm.default", ", None, 1, 0.5"))) + ("", "), kwargs", ")" * 5000)
RULES = ("FuseBatchNormIntoConv", "RemoveOptionalBiasFromConv", "RemoveOptionalBiasFromGemm", "")
SCOPES = ("['', 'net', 'net.0', 'conv2d']", "['', 'net', 'net.1', 'batch_norm_3']", "[", "[]", "['" + "x" * 5000 + "', '']",
          "', '", "','")
PROPS = (("pkg.torch.onnx.name_scopes", SCOPES), ("pkg.torch.onnx.fx_node", CALLS), ("pkg.onnxscript.rewriter.rule_name", RULES))
MOST_NUMBERS = 65536


def rename(graph, old, new):
    for g in graphs_of(graph):
        for n in g.node:
            n.input[:] = [new if x == old else x for x in n.input]
        for x in (*g.initializer, *g.input, *g.output, *g.value_info):
            x.name = new if x.name == old else x.name


def named(model, r, pool):
    """Names tell which constants are parameters, and which of them were moved or computed."""
    rename(model.graph, pick(r, model.graph.initializer).name, r.choice(NAMES))


def inputs_of_floats(model):
    given = {t.name for t in model.graph.initializer}
    return [v for v in model.graph.input if v.type.tensor_type.elem_type == TensorProto.FLOAT and v.name not in given]


def dims_of(v):
    return [d.dim_value if d.WhichOneof("value") == "dim_value" else 2 for d in v.type.tensor_type.shape.dim]


def add_weight(model, name, dims, r):
    """Numbers that follow no formula, but some rows may be the same."""
    n = math.prod(dims)
    if not 0 < n <= MOST_NUMBERS:
        raise Nothing
    numbers = [r.gauss(0, 1) for _ in range(n)]
    if r.random() < 0.2 and n > 1:
        numbers = (numbers[:n // 2] * 3)[:n]
    model.graph.initializer.add(name=name, data_type=TensorProto.FLOAT, dims=dims, raw_data=struct.pack("<%df" % n, *numbers))


def weights(model, r, pool):
    """An input becomes a constant that is like a weight."""
    v = pick(r, inputs_of_floats(model))
    add_weight(model, v.name, dims_of(v), r)
    model.graph.input.remove(v)
    rename(model.graph, v.name, r.choice(NAMES) if r.random() < 0.5 else "net.%s.weight" % v.name)


def learns(model, r, pool):
    """One input is left, and is scaled by what learns; the others are in the file."""
    x = pick(r, inputs_of_floats(model))
    for v in [v for v in model.graph.input if v.name != x.name]:
        if v in inputs_of_floats(model):
            add_weight(model, v.name, dims_of(v), r)
            model.graph.input.remove(v)
            rename(model.graph, v.name, "net.%s.weight" % v.name)
    while len(model.graph.input) > 1 and any(v.name != x.name for v in model.graph.input):
        constant(model, r, pool, but=x.name)
    scale, name = "net.scale", x.name
    add_weight(model, scale, dims_of(x)[r.choice((0, 1)):], r)
    x.name = "the_input"
    model.graph.node.insert(0, helper.make_node("Mul", ["the_input", scale], [name]))


def copies(model, r, pool):
    """The same numbers once more, turned or in another shape, for one of those that use them."""
    t = pick(r, [t for t in model.graph.initializer if t.raw_data])
    n = pick(r, [n for n in nodes(model) if t.name in n.input])
    other = model.graph.initializer.add()
    other.CopyFrom(t)
    other.name = r.choice(NAMES)
    if r.random() < 0.5:
        other.dims[:] = r.choice((list(reversed(t.dims)), [1, *t.dims], [d for d in t.dims if d != 1], [*t.dims, 1]))
    n.input[list(n.input).index(t.name)] = other.name


def said(model, r, pool):
    """What the file has of the module, as PyTorch's newer exporter writes it."""
    for t in model.graph.initializer:
        if r.random() < 0.7:
            v = model.graph.value_info.add()
            v.CopyFrom(helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)))
            key, words = r.choice(((KIND, KINDS), (FOLDED, SOURCES)))
            v.metadata_props.add(key=key, value=r.choice(words))
    for n in model.graph.node:
        for key, words in PROPS:
            if r.random() < 0.5:
                n.metadata_props.add(key=key, value=r.choice(words))


# ------------------------------------------------------------------ attributes

def attribute_value(model, r, pool):
    a = pick(r, attributes(model))
    if a.type == AttributeProto.INT:
        a.i = r.choice(EXTREMES)
    elif a.type == AttributeProto.FLOAT:
        a.f = r.choice(SPECIALS)
    elif a.type == AttributeProto.STRING:
        a.s = r.choice(WORDS)
    elif a.type == AttributeProto.INTS:
        if a.ints and r.random() < 0.7:
            a.ints[r.randrange(len(a.ints))] = r.choice(EXTREMES)
        else:
            a.ints.extend([r.choice(EXTREMES)] * r.choice((1, 2, 9, 1000)))
    elif a.type == AttributeProto.FLOATS:
        a.floats.extend([r.choice(SPECIALS)] * r.choice((1, 9)))
    else:
        raise Nothing


def attribute_type(model, r, pool):
    pick(r, attributes(model)).type = r.randint(0, 15)


def attribute_gone(model, r, pool):
    n = pick(r, [n for n in nodes(model) if n.attribute])
    del n.attribute[r.randrange(len(n.attribute))]


def attribute_foreign(model, r, pool):
    """One that another operator has."""
    pick(r, nodes(model)).attribute.append(pick(r, attributes(pick(r, pool))))


# ------------------------------------------------------------------ nodes

def node_operator(model, r, pool):
    pick(r, nodes(model)).op_type = pick(r, nodes(pick(r, pool))).op_type


def node_inputs(model, r, pool):
    n = pick(r, [n for n in nodes(model) if n.input])
    way, at = r.randrange(5), r.randrange(len(n.input))
    if way == 0:
        n.input[at] = ""
    elif way == 1:
        del n.input[at]
    elif way == 2:
        n.input.append(n.input[at])
    elif way == 3:
        n.input[at] = pick(r, names(model))
    else:
        n.input[:] = reversed(n.input)


def node_outputs(model, r, pool):
    n = pick(r, [n for n in nodes(model) if n.output])
    at = r.randrange(len(n.output))
    if r.random() < 0.5:
        n.output[at] = pick(r, names(model))
    else:
        n.output.extend(["more%d" % k for k in range(r.choice((1, 5, 200)))])


def node_gone(model, r, pool):
    g = pick(r, [g for g in graphs_of(model.graph) if g.node])
    del g.node[r.randrange(len(g.node))]


def node_order(model, r, pool):
    g = pick(r, [g for g in graphs_of(model.graph) if len(g.node) > 1])
    shuffled = list(g.node)
    r.shuffle(shuffled)
    del g.node[:]
    g.node.extend(shuffled)


def node_chain(model, r, pool):
    """Its output through the same operator, thousands of times."""
    n = pick(r, [n for n in model.graph.node if n.input and len(n.output) == 1])
    last, value = n.output[0], n.output[0]
    for k in range(min(GROWING_LINKS if n.op_type in GROW else LINKS, 2000000 // (n.ByteSize() + 1))):
        c = model.graph.node.add()
        c.CopyFrom(n)
        c.name = ""
        c.input[0], c.output[0] = value, "%s_%d" % (last, k)
        value = c.output[0]
    for o in model.graph.output:
        if o.name == last:
            o.name = value


def splice(model, r, pool):
    """A value of the model goes into another one."""
    other, value = ModelProto(), pick(r, names(model))
    other.CopyFrom(pick(r, pool))
    if not other.graph.input:
        raise Nothing
    first = other.graph.input[0].name
    for n in other.graph.node:
        n.input[:] = [value if x == first else "o_" + x if x else x for x in n.input]
        n.output[:] = ["o_" + x if x else x for x in n.output]
    for t in other.graph.initializer:
        t.name = "o_" + t.name
    for o in (*other.graph.output, *other.graph.input[1:]):
        o.name = "o_" + o.name
    model.graph.node.extend(other.graph.node)
    model.graph.initializer.extend(other.graph.initializer)
    model.graph.input.extend(other.graph.input[1:])
    model.graph.output.extend(other.graph.output)


# ------------------------------------------------------------------ bombs

def nest(model, r, pool):
    """Branches in branches."""
    n = pick(r, [n for n in model.graph.node if n.output])
    inner = list(n.output)
    outs = [helper.make_tensor_value_info(x, 1, None) for x in inner]
    body = helper.make_graph([n], "b", [], outs)
    for _ in range(r.choice((1, 5, DEPTH))):
        node = helper.make_node("If", ["deep_condition"], inner, then_branch=body, else_branch=body) \
            if len(body.SerializeToString()) < 100000 else \
            helper.make_node("If", ["deep_condition"], inner, then_branch=body)
        body = helper.make_graph([node], "b", [], outs)
    n.CopyFrom(body.node[0])
    model.graph.initializer.append(helper.make_tensor("deep_condition", TensorProto.BOOL, [], [True]))


def functions(model, r, pool):
    """Each calls the next one twice; the last may call the first."""
    n = pick(r, [n for n in model.graph.node if n.input and n.output])
    depth = r.choice((2, 5, DOUBLINGS))
    imports = [o for o in model.opset_import]
    model.opset_import.append(helper.make_opsetid("bomb", 1))
    for k in range(depth):
        last = "Bomb%d" % (k + 1)
        calls = [helper.make_node(last, ["x"], ["m"], domain="bomb"),
                 helper.make_node(last, ["m"], ["y"], domain="bomb")]
        if k == depth - 1:
            calls = [helper.make_node("Bomb0", ["x"], ["y"], domain="bomb")] if r.random() < 0.3 else \
                [helper.make_node("Relu", ["x"], ["y"])]
        model.functions.append(helper.make_function("bomb", "Bomb%d" % k, ["x"], ["y"], calls,
                                                    [*imports, helper.make_opsetid("bomb", 1)]))
    n.op_type, n.domain = "Bomb0", "bomb"
    del n.attribute[:], n.input[1:], n.output[1:]


def loop(model, r, pool):
    """Over a node of the model, as often as a number says, or an input."""
    n = pick(r, [n for n in model.graph.node if n.input and len(n.output) == 1])
    y = n.output[0]
    step = type(n)()
    step.CopyFrom(n)
    step.input[0], step.output[0] = "carried", "next"
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go_on"]), step], "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("carried", 1, None)],
        [helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
         helper.make_tensor_value_info("next", 1, None)])
    n.CopyFrom(helper.make_node("Loop", ["trips", "", n.input[0]], [y], body=body))
    model.graph.initializer.append(
        helper.make_tensor("trips", TensorProto.INT64, [], [r.choice((0, 3, 1000, 2 ** 31, 2 ** 62))]))


# ------------------------------------------------------------------ the file

def opset(model, r, pool):
    pick(r, model.opset_import).version = r.choice((*range(1, 26), 0, -1, 2 ** 40))


def domain(model, r, pool):
    pick(r, nodes(model)).domain = r.choice(("ai.onnx", "com.microsoft", "", "ai.onnx.ml", "x" * 5000))


def of_bytes(data, r):
    """The same for what is no longer a message."""
    data = bytearray(data)
    for _ in range(r.choice((1, 1, 4, 50))):
        at = r.randrange(len(data) + 1)
        way = r.randrange(4)
        if way == 0 and at < len(data):
            data[at] ^= 1 << r.randrange(8)
        elif way == 1:
            data[at:at] = bytes([r.choice((0, 1, 0x7f, 0x80, 0xff))]) * r.choice((1, 2, 10))
        elif way == 2:
            del data[at:at + r.choice((1, 2, 8, 1000))]
        elif at < len(data):
            data[at] = r.randrange(256)
    return bytes(data[:r.randrange(len(data) + 1)] if r.random() < 0.1 else data)


ALL = (named, weights, weights, weights, copies, copies, said, tensor_dims, tensor_values, tensor_values, tensor_bytes, tensor_type, tensor_external,
       constant, constant, constant, open_sizes, open_sizes, value_dims, value_dims, value_type,
       value_name, outputs, attribute_value, attribute_value,
       attribute_value, attribute_type, attribute_gone, attribute_foreign, node_operator,
       node_operator, node_inputs, node_inputs, node_outputs, node_gone, node_order, node_chain,
       splice, splice, nest, functions, loop, opset, domain)
