"""D-SAM of D'Innocente and Caputo: one aggregation module per domain beside a shared backbone."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bne.methods.baselines import DeepAll
from bne.methods.features import classifier, classifier_name
from bne.methods.method import register
from bne.methods.places import at_outputs, layer_of, stages


class Aggregation(nn.Module):
    """Joins the features of all stages, one after another, and classifies what comes out.

    A node joins what the one before it gave, averaged to the size of its own map, with that map, by
    a 1 × 1 convolution and ReLU. The last one joins means with the features that the classifier
    would see.

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
        found, old = list(stages(model).items())[:-1], classifier(model)
        sizes = [width for _, width in found], old.in_features, old.out_features
        self._stages, self._place = [name for name, _ in found], classifier_name(model)
        modules = Modules(Aggregation(*sizes) for _ in domains)
        model.set_submodule(self._place, modules.to(old.weight))

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
        with at_outputs(self.net, dict.fromkeys(self._stages, maps.append)):
            features = self.net(images)
        modules = layer_of(self.net, self._place)
        assert isinstance(modules, Modules)
        return modules.logits(maps, features)
