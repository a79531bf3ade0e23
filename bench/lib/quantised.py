"""Quantised models as their tools write them, with random weights: what they cost is what trained
ones cost.

  resnet50   torchvision's, exported, then onnxruntime's static quantiser: QDQ, I8 activations with
             zero points, I8 weights by channel
  bert       BERT for questions and answers, written here as exporters write it: its products of
             weights between QuantizeLinear and DequantizeLinear, attention and norms in floats
"""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


class Bert:
    """quantised False: the same model in FP32, its weights what the integers mean. is_dynamic: for texts
    of any length up to that given."""

    def __init__(self, layers, width, heads, inner, length, vocabulary=30522, quantised=True, seed=1,
                 is_dynamic=False):
        self.layers, self.width, self.heads, self.inner = layers, width, heads, inner
        self.length, self.vocabulary, self.quantised = length, vocabulary, quantised
        self.is_dynamic = is_dynamic
        self.random = np.random.default_rng(seed)
        self.nodes, self.tensors, self.n = [], [], 0

    def const(self, array):
        self.n += 1
        name = f"c{self.n}"
        self.tensors.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def op(self, kind, *inputs, **attributes):
        self.n += 1
        name = f"{kind}_{self.n}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def floats(self, *shape, scale=0.02):
        return self.const((self.random.standard_normal(shape, np.float32) * scale))

    def quantise(self, x, scale):
        s, z = self.const(np.float32(scale)), self.const(np.int8(0))
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, s, z), s, z)

    def weight(self, rows, columns):
        q = self.random.integers(-127, 128, (rows, columns), np.int8)
        scale = (self.random.random(columns, np.float32) + 0.5) * np.float32(0.035 / 73)
        if not self.quantised:
            return self.const(q.astype(np.float32) * scale)
        return self.op("DequantizeLinear", self.const(q), self.const(scale),
                       self.const(np.zeros(columns, np.int8)), axis=1)

    def linear(self, x, rows, columns, scale=None):
        if self.quantised and scale:
            x = self.quantise(x, scale)
        y = self.op("MatMul", x, self.weight(rows, columns))
        return self.op("Add", self.floats(columns), y)

    def norm(self, x):
        return self.op("LayerNormalization", x, self.const(np.ones(self.width, np.float32)),
                       self.floats(self.width), axis=-1, epsilon=1e-12)

    def split(self, x):
        x = self.op("Reshape", x, self.const(np.int64([0, 0, self.heads, self.width // self.heads])))
        return self.op("Transpose", x, perm=[0, 2, 1, 3])

    def attention(self, x, mask):
        d = self.width // self.heads
        if self.quantised:
            x = self.quantise(x, 4 / 127)
        q, k, v = (self.split(self.linear(x, self.width, self.width)) for _ in range(3))
        s = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        s = self.op("Add", self.op("Div", s, self.const(np.float32(d ** 0.5))), mask)
        y = self.op("Transpose", self.op("MatMul", self.op("Softmax", s, axis=-1), v),
                    perm=[0, 2, 1, 3])
        return self.op("Reshape", y, self.const(np.int64([0, 0, self.width])))

    def gelu(self, x):
        e = self.op("Erf", self.op("Div", x, self.const(np.float32(2 ** 0.5))))
        y = self.op("Mul", x, self.op("Add", e, self.const(np.float32(1))))
        return self.op("Mul", y, self.const(np.float32(0.5)))

    def layer(self, x, mask):
        y = self.linear(self.attention(x, mask), self.width, self.width, 2 / 127)
        x = self.norm(self.op("Add", y, x))
        y = self.gelu(self.linear(x, self.width, self.inner, 4 / 127))
        y = self.linear(y, self.inner, self.width, 4 / 127)
        return self.norm(self.op("Add", y, x))

    def mask(self):
        m = self.op("Cast", "attention_mask", to=TensorProto.FLOAT)
        m = self.op("Unsqueeze", m, self.const(np.int64([1, 2])))
        m = self.op("Sub", self.const(np.float32(1)), m)
        return self.op("Mul", m, self.const(np.float32(np.finfo(np.float32).min)))

    def positions(self):
        table = self.floats(1, self.length, self.width, scale=0.1)
        if not self.is_dynamic:
            return table
        length = self.op("Shape", "input_ids", start=1, end=2)
        return self.op("Slice", table, self.const(np.int64([0])), length, self.const(np.int64([1])))

    def model(self):
        x = self.op("Gather", self.floats(self.vocabulary, self.width, scale=1.0), "input_ids")
        x = self.norm(self.op("Add", x, self.positions()))
        mask = self.mask()
        for _ in range(self.layers):
            x = self.layer(x, mask)
        self.nodes.append(helper.make_node("Identity", [self.linear(x, self.width, 2)], ["logits"]))
        shape = ["n", "length" if self.is_dynamic else self.length]
        inputs = [helper.make_tensor_value_info(k, TensorProto.INT64, shape)
                  for k in ("input_ids", "attention_mask")]
        outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape + [2])]
        graph = helper.make_graph(self.nodes, "bert", inputs, outputs, self.tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def resnet50(folder, size=224):
    """Paths of the FP32 model and of the quantised one."""
    import torch
    import torchvision
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Pictures(CalibrationDataReader):
        def __init__(self):
            random = np.random.default_rng(0)
            self.left = [random.standard_normal((1, 3, size, size), np.float32) for _ in range(2)]

        def get_next(self):
            return {"x": self.left.pop()} if self.left else None

    torch.manual_seed(0)
    net = torchvision.models.resnet50().eval()
    for m in net.modules():
        if isinstance(m, torch.nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.5, 1.5)
    plain, quantised = f"{folder}/resnet50.onnx", f"{folder}/resnet50-int8.onnx"
    torch.onnx.export(net, torch.zeros(1, 3, size, size), plain, dynamo=False, opset_version=OPSET,
                      input_names=["x"], output_names=["y"],
                      dynamic_axes={"x": {0: "n"}, "y": {0: "n"}})
    quant_pre_process(plain, f"{folder}/resnet50-folded.onnx")
    quantize_static(f"{folder}/resnet50-folded.onnx", quantised, Pictures(),
                    quant_format=QuantFormat.QDQ, per_channel=True)
    return plain, quantised


def bert(folder, name, quantised=True, **sizes):
    path = f"{folder}/{name}{'-int8' if quantised else ''}.onnx"
    onnx.save(Bert(quantised=quantised, **sizes).model(), path)
    return path
