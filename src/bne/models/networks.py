"""Networks that no library has: the paper's AlexNets with batch norm, and a small one for demos."""

from collections import OrderedDict
from collections.abc import Mapping

from torch import Tensor, nn

from bne.errors import require

_CONVOLUTIONS = ("conv1", "conv2", "conv3", "conv4", "conv5")
_HIDDEN = ("fc6", "fc7")
# Channels, kernel and stride of each convolution: images of 32×32 become maps of 16, 8, 4 and 4.
_BLOCKS = ((16, 5, 2), (32, 3, 2), (64, 3, 2), (128, 3, 1))


def alexnet_bn(num_classes: int) -> nn.Module:
    """Build torchvision's AlexNet and put a BN between each convolution and its ReLU.

    The convolutions and the fully connected layers keep torchvision's key names, so its weights
    fit; the BN layers are ``features.bn1`` to ``features.bn5``.
    """
    model: nn.Module = require("torchvision").models.alexnet(num_classes=num_classes)
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    convolutions = 0
    for name, layer in model.get_submodule("features").named_children():
        layers[name] = layer
        if isinstance(layer, nn.Conv2d):
            convolutions += 1
            layers[f"bn{convolutions}"] = nn.BatchNorm2d(layer.out_channels)
    model.set_submodule("features", nn.Sequential(layers))
    return model


def alexnet_cvgj(
    num_classes: int,
    channels: tuple[int, int, int, int, int] = (96, 256, 384, 384, 256),
    hidden: int = 4096,
) -> nn.Sequential:
    """Build AlexNet with BN on its input and after every layer but the last; no dropout, no LRN.

    It takes RGB images in 0..255, (N, 3, 227, 227), and returns logits, (N, num_classes). Only the
    BN of the input has a scale and a bias, as in the published network.

    Args:
        num_classes: Outputs of ``fc8``.
        channels: Filters of the five convolutions.
        hidden: Outputs of ``fc6`` and ``fc7``.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict(data_bn=nn.BatchNorm2d(3))

    def add_convolution(name: str, layer: nn.Conv2d) -> None:
        layers[name] = layer
        layers[f"{name}_bn"] = nn.BatchNorm2d(layer.out_channels, affine=False)
        layers[f"{name}_relu"] = nn.ReLU(inplace=True)

    def add_pool(name: str) -> None:
        # Caffe rounds the size of pooled maps up, PyTorch by default down.
        layers[name] = nn.MaxPool2d(kernel_size=3, stride=2, ceil_mode=True)

    def add_hidden(name: str, inputs: int) -> None:
        layers[name] = nn.Linear(inputs, hidden)
        layers[f"{name}_bn"] = nn.BatchNorm1d(hidden, affine=False)
        layers[f"{name}_relu"] = nn.ReLU(inplace=True)

    c1, c2, c3, c4, c5 = channels
    add_convolution("conv1", nn.Conv2d(3, c1, kernel_size=11, stride=4))
    add_pool("pool1")
    add_convolution("conv2", nn.Conv2d(c1, c2, kernel_size=5, padding=2, groups=2))
    add_pool("pool2")
    add_convolution("conv3", nn.Conv2d(c2, c3, kernel_size=3, padding=1))
    add_convolution("conv4", nn.Conv2d(c3, c4, kernel_size=3, padding=1, groups=2))
    add_convolution("conv5", nn.Conv2d(c4, c5, kernel_size=3, padding=1, groups=2))
    add_pool("pool5")
    layers["flatten"] = nn.Flatten()
    add_hidden("fc6", inputs=c5 * 6 * 6)
    add_hidden("fc7", inputs=hidden)
    layers["fc8"] = nn.Linear(hidden, num_classes)
    return nn.Sequential(layers)


def from_caffe(layers: Mapping[str, list[Tensor]]) -> dict[str, Tensor]:
    """Turn the blobs of the published ``.caffemodel`` into a state dict of `alexnet_cvgj`.

    Raises:
        ValueError: If a layer is missing, unknown, or has another number of blobs than it should.
    """
    unread = dict(layers)

    def take(name: str, *axes: int) -> list[Tensor]:
        blobs = unread.pop(name, [])
        if len(blobs) != len(axes):
            raise ValueError(f"layer {name!r} has {len(blobs)} blobs instead of {len(axes)}")
        return [_unpad(blob, count) for blob, count in zip(blobs, axes, strict=True)]

    state: dict[str, Tensor] = {}
    state["data_bn.weight"], state["data_bn.bias"] = take("data/scale", 1, 1)
    for name in ("data", *_CONVOLUTIONS, *_HIDDEN):
        # Caffe stores sums of statistics, and in the third blob what to divide them by.
        mean, variance, count = take(f"{name}/bn", 1, 1, 0)
        scale = 1 / count.item() if count.item() else 0.0
        state[f"{name}_bn.running_mean"] = mean * scale
        state[f"{name}_bn.running_var"] = variance * scale
    for name in _CONVOLUTIONS:
        state[f"{name}.weight"], state[f"{name}.bias"] = take(name, 4, 1)
    for name in (*_HIDDEN, "fc8"):
        state[f"{name}.weight"], state[f"{name}.bias"] = take(name, 2, 1)
    if unread:
        raise ValueError(f"AlexNet_cvgj has no layer {min(unread)!r}")

    # Caffe's network sees BGR images, ours RGB.
    for name in ("weight", "bias", "running_mean", "running_var"):
        state[f"data_bn.{name}"] = state[f"data_bn.{name}"].flip(0)
    state["conv1.weight"] = state["conv1.weight"].flip(1)
    return state


def _unpad(blob: Tensor, axes: int) -> Tensor:
    """Drop the leading axes of length 1 with which the V1 format pads every shape to four."""
    while blob.ndim > axes and blob.shape[0] == 1:
        blob = blob[0]
    if blob.ndim != axes:
        raise ValueError(f"a blob of shape {tuple(blob.shape)} should have {axes} axes")
    return blob


def small_cnn(num_classes: int) -> nn.Module:
    """Build four blocks of convolution, BN and ReLU, a mean over the map, and a linear layer.

    The BN layers are ``bn1`` to ``bn4``; each sees several values per channel even in one image, so
    all of them have a place in the embedding.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    inputs = 3
    for number, (outputs, kernel, stride) in enumerate(_BLOCKS, start=1):
        layers[f"conv{number}"] = nn.Conv2d(
            inputs, outputs, kernel, stride, padding=kernel // 2, bias=False
        )
        layers[f"bn{number}"] = nn.BatchNorm2d(outputs)
        layers[f"relu{number}"] = nn.ReLU(inplace=True)
        inputs = outputs
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    layers["fc"] = nn.Linear(inputs, num_classes)
    return nn.Sequential(layers)
