"""What is known of a backbone before it is built."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor, nn

from bne.models.inputs import Preprocessing

StateDict = dict[str, Tensor]


@dataclass(frozen=True)
class Backbone:
    """How to make a network, and which weights fit it.

    Attributes:
        create: Makes the network for a number of classes, with a freshly initialised classifier.
        classifier: Dotted names of the layers that give the logits.
        preprocessing: What it expects of its input.
        downloads: Pretrained weights by the name of their source; each call returns a state dict.
        optional: Beginnings of the names of tensors that a weights file may leave out.
        from_caffe: Turns Caffe's layers into a state dict, for networks that have Caffe weights.
    """

    create: Callable[[int], nn.Module]
    classifier: tuple[str, ...]
    preprocessing: Preprocessing
    downloads: Mapping[str, Callable[[], StateDict]] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    from_caffe: Callable[[Mapping[str, list[Tensor]]], StateDict] | None = None
