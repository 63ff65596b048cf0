"""The encoder as an ONNX graph, for guards in other languages (extra ``onnx``)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from advice.shields.encoder import REACH, SLOPE, EncoderWeights
from advice.types import AdviceError


def export_onnx(weights: EncoderWeights, path: Path | str) -> None:
    """Write a float32 graph ``features (N, d) -> latent (N, latent)``; features are raw."""
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise AdviceError(
            "export_onnx needs the package onnx, which was not found: install advice-rl[onnx]"
        ) from None
    constants = {**weights._asdict(), "low": np.array(-REACH), "high": np.array(REACH)}
    nodes = [
        helper.make_node("Sub", ["features", "centre"], ["centred"]),
        helper.make_node("Div", ["centred", "reach"], ["scaled"]),
        helper.make_node("Clip", ["scaled", "low", "high"], ["clipped"]),
        helper.make_node("Gemm", ["clipped", "w1", "b1"], ["hidden"]),
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
