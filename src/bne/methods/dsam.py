"""D-SAM of D'Innocente and Caputo: one aggregation module per domain beside a shared backbone."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bne.methods.baselines import DeepAll
from bne.methods.features import classifier, classifier_name
from bne.methods.method import register
from bne.methods.places import at_outputs, layer_of, stages

WIDTH, DROPOUT = 2, 0.5  # of nodes in ResNets, as the authors have it


class Aggregation(nn.Module):
    """Joins the features of all stages, one after another, and classifies what comes out.

    A node joins what the one before it gave, averaged to the size of its own map, with that map, by
    a 1 × 1 convolution and ReLU. The last one joins means with the features that the classifier
    would see. It is for networks that are no ResNets.

    Args:
        widths: the channels of the stages but the last.
        features: the number of the classifier's inputs.
        classes: the number of logits.
    """

    def __init__(self, widths: Sequence[int], features: int, classes: int) -> None:
        super().__init__()
        before = [0, *widths]
        self.nodes = nn.ModuleList(
            nn.Conv2d(last + own, own, 1) for last, own in zip(before[:-1], widths, strict=True)
        )
        self.last = nn.Linear(before[-1] + features, features)
        self.classifier = nn.Linear(features, classes)

    def forward(self, maps: Sequence[Tensor], features: Tensor) -> Tensor:
        """(N, classes), from maps, (N, C, H, W) each, and features, (N, F)."""
        joined: Tensor | None = None
        for node, own in zip(self.nodes, maps, strict=True):
            given = own
            if joined is not None:
                smaller = F.adaptive_avg_pool2d(joined, (own.shape[2], own.shape[3]))
                given = torch.cat([smaller, own], dim=1)
            joined = F.relu(node(given))
        if joined is not None:
            features = torch.cat([joined.mean((2, 3)), features], dim=1)
        logits: Tensor = self.classifier(F.relu(self.last(features)))
        return logits


class Node(nn.Module):
    """Joins what came so far with a residual block's map, by a 1 × 1 convolution and ReLU.

    Where a stage starts, what came so far is made smaller first: of the places that remain, a
    1 × 1 convolution and ReLU.

    Args:
        before: the channels of what came so far.
        own: those of the map.
        starts: whether the block starts a stage.
    """

    def __init__(self, before: int, own: int, starts: bool) -> None:
        super().__init__()
        self.smaller = nn.Conv2d(before, before, 1) if starts else None
        self.join = nn.Sequential(
            nn.Dropout2d(DROPOUT), nn.Conv2d(before + own, WIDTH * own, 1), nn.ReLU()
        )

    def forward(self, before: Tensor, own: Tensor) -> Tensor:
        """(N, WIDTH * C, H, W), from (N, B, 2 H, 2 W) at the start of a stage and (N, C, H, W)."""
        if self.smaller is not None:
            rows, columns = (-(-before.shape[d] // own.shape[d]) for d in (2, 3))
            before = F.relu(self.smaller(before[:, :, ::rows, ::columns]))
        joined: Tensor = self.join(torch.cat([before, own], dim=1))
        return joined


class BlockAggregation(nn.Module):
    """Joins the maps of a ResNet's blocks, one after another, and classifies the mean at the end.

    Args:
        blocks: the channels of each block's map, and whether it starts a stage.
        classes: the number of logits.
    """

    def __init__(self, blocks: Sequence[tuple[int, bool]], classes: int) -> None:
        super().__init__()
        before = [blocks[0][0], *(WIDTH * own for own, _ in blocks[1:])]
        self.nodes = nn.ModuleList(
            Node(last, own, starts) for last, (own, starts) in zip(before, blocks[1:], strict=False)
        )
        self.classifier = nn.Sequential(nn.Dropout(DROPOUT), nn.Linear(before[-1], classes))

    def forward(self, maps: Sequence[Tensor], _: Tensor) -> Tensor:
        """(N, classes), from maps, (N, C, H, W) each; the network's own features play no part."""
        joined = maps[0]
        for node, own in zip(self.nodes, maps[1:], strict=True):
            joined = node(joined, own)
        logits: Tensor = self.classifier(joined.mean((2, 3)))
        return logits


class Modules(nn.ModuleList):
    """The modules of all domains, in the place of the classifier, whose learning rate they get.

    Since they need the maps of earlier stages too, the network itself only gives its features.
    """

    def forward(self, features: Tensor) -> Tensor:
        """The features as they are."""
        return features

    def logits(self, maps: Sequence[Tensor], features: Tensor) -> Tensor:
        """(N, K, classes), every module's answer."""
        return torch.stack([module(maps, features) for module in self], dim=1)


@register(
    "d-sam",
    "methods relying on ad-hoc architectures to tackle the domain generalization problem",
)
class DSAM(DeepAll):
    """A backbone for all domains and one aggregation module per source domain.

    An image trains the backbone and its own domain's module; in use the mean of all decides.

    Args:
        model: the plain network.
        domains: the source domains' names.
    """

    def __init__(self, model: nn.Module, domains: Sequence[str]) -> None:
        super().__init__(model, domains)
        found, old = stages(model), classifier(model)
        blocks = _blocks(model, found) if old.in_features == [*found.values()][-1] else {}
        sizes = [*found.values()][:-1], old.in_features, old.out_features
        modules = Modules(
            BlockAggregation([*blocks.values()], old.out_features)
            if blocks
            else Aggregation(*sizes)
            for _ in domains
        )
        self._maps, self._classifier = [*blocks] or [*found][:-1], classifier_name(model)
        model.set_submodule(self._classifier, modules.to(old.weight))

    @classmethod
    def cost(
        cls, epoch: int, warm_up: int, domains: int, options: Mapping[str, Any]
    ) -> tuple[str, float, float]:
        """One pass; a module takes about a quarter of one more in ResNet-18."""
        return cls.stage, 1 + domains / 4, 1 + domains / 4

    def loss(self, images: Tensor, labels: Tensor, domains: Tensor) -> Tensor:
        """Cross-entropy of every image's own module."""
        logits = self._answers(images)
        own = domains.unsqueeze(1) == torch.arange(logits.shape[1], device=domains.device)
        return self.cross_entropy((own.unsqueeze(2) * logits).sum(1), labels)

    def predict(self, images: Tensor) -> Tensor:
        """The mean of all modules' logits."""
        return self._answers(images).mean(1)

    def _answers(self, images: Tensor) -> Tensor:
        """(N, K, classes)."""
        maps: list[Tensor] = []
        with at_outputs(self.net, dict.fromkeys(self._maps, maps.append)):
            features = self.net(images)
        modules = layer_of(self.net, self._classifier)
        assert isinstance(modules, Modules)
        return modules.logits(maps, features)


def _blocks(model: nn.Module, found: Mapping[str, int]) -> dict[str, tuple[int, bool]]:
    """The blocks of a ResNet's stages: the channels of their maps, and whether they start one."""
    blocks: dict[str, tuple[int, bool]] = {}
    for name, width in found.items():
        stage = model.get_submodule(name)
        if not (isinstance(stage, nn.Sequential) and all(any(b.children()) for b in stage)):
            return {}
        parts = enumerate(stage.named_children())
        blocks |= {f"{name}.{part}": (width, n == 0) for n, (part, _) in parts}
    return blocks
