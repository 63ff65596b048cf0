"""The encoder as an ONNX graph, for guards in other languages (extra ``onnx``)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from advice.shields.encoder import REACH, SLOPE, Encoder
from advice.types import AdviceError


def export_onnx(encoder: Encoder, path: Path | str) -> None:
    """Write a float32 graph ``features (N, d) -> latent (N, latent)``; features are raw."""
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise AdviceError(
            "export_onnx needs the package onnx, which was not found: install advice-rl[onnx]"
        ) from None
    weights, power = encoder.weights, encoder.power
    constants = {**weights._asdict(), "low": np.array(-REACH), "high": np.array(REACH)}
    bend = []
    if (power > 1).any():
        constants |= {"half": np.array(0.5), "one": np.array(1.0), "zero": np.array(0.0)}
        constants |= {"two": np.array(2.0), "power": power}
        bend = [
            helper.make_node("Mul", ["clipped", "half"], ["halved"]),
            helper.make_node("Add", ["halved", "half"], ["place"]),
            helper.make_node("Max", ["place", "zero"], ["share"]),
            helper.make_node("Pow", ["share", "power"], ["raised"]),
            helper.make_node("Mul", ["raised", "two"], ["doubled"]),
            helper.make_node("Sub", ["doubled", "one"], ["shifted"]),
            helper.make_node("Min", ["shifted", "high"], ["bent"]),
            helper.make_node("Greater", ["power", "one"], ["bends"]),
            helper.make_node("Where", ["bends", "bent", "clipped"], ["inputs"]),
        ]
    nodes = [
        helper.make_node("Sub", ["features", "centre"], ["centred"]),
        helper.make_node("Div", ["centred", "reach"], ["scaled"]),
        helper.make_node("Clip", ["scaled", "low", "high"], ["clipped"]),
        *bend,
        helper.make_node("Gemm", ["inputs" if bend else "clipped", "w1", "b1"], ["hidden"]),
        helper.make_node("LeakyRelu", ["hidden"], ["active"], alpha=SLOPE),
        helper.make_node("Gemm", ["active", "w2", "b2"], ["latent"]),
    ]
    size, latent = len(weights.centre), len(weights.b2)
    graph = helper.make_graph(
        nodes,
        "advice_encoder",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["N", size])],
        [helper.make_tensor_value_info("latent", TensorProto.FLOAT, ["N", latent])],
        [numpy_helper.from_array(x.astype(np.float32), name) for name, x in constants.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="advice"
    )
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
