"""Batch norm of a plain network that torch has traced, folded into its convolutions."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.fusion import fuse_conv_bn_weights

if TYPE_CHECKING:
    from torch.fx import GraphModule

aten = torch.ops.aten
CONVOLUTIONS = {
    getattr(kind, overload)
    for kind in (aten.conv1d, aten.conv2d, aten.conv3d)
    for overload in ("default", "padding")
}


def fold_batch_norm(module: GraphModule) -> None:
    """Folds every batch norm that follows a convolution, where nothing else takes its output.

    Args:
        module: a network that `torch.export` has traced for use; it is changed.
    """
    graph: Any = module.graph
    for norm in graph.find_nodes(op="call_function", target=aten.batch_norm.default):
        before, *statistics, _, _, eps, _ = norm.args
        if before.target not in CONVOLUTIONS or len(before.users) > 1:
            continue
        images, weight, bias, *how = (*before.args, None)[: max(3, len(before.args))]
        own = (weight, bias, *statistics)
        if any(one is not None and one.op != "get_attr" for one in own):
            continue  # which are computed, as standardized weights are
        kernel, shift, scale, offset, mean, var = (
            one and attrgetter(one.target)(module) for one in own
        )
        folded = fuse_conv_bn_weights(kernel, shift, mean, var, eps, scale, offset)
        with graph.inserting_before(before):
            made = []
            for name, values in zip(("weight", "bias"), folded, strict=True):
                module.register_parameter(f"{before.name}_{name}", values)
                made.append(graph.get_attr(f"{before.name}_{name}"))
        before.args = (images, *made, *how)
        norm.replace_all_uses_with(before)
        graph.erase_node(norm)
    graph.eliminate_dead_code()
    used = {node.target for node in graph.find_nodes(op="get_attr")}
    for name in {*dict(module.named_parameters()), *dict(module.named_buffers())} - used:
        owner, _, own_name = name.rpartition(".")
        delattr(module.get_submodule(owner), own_name)
    module.recompile()
