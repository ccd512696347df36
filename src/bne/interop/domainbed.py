"""Methods as algorithms that DomainBed can train and test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bne.methods import check_options, create, find
from bne.models import build
from bne.models.registry import Preprocessing
from bne.models.registry import find as find_backbone
from bne.training.loop import UNLABELLED, TrainingStep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    Minibatches = Sequence[tuple[Tensor, Tensor]]


def domainbed_algorithm(
    method: str, backbone: str = "resnet18", weights: str | Path | None = None, **options: Any
) -> type[nn.Module]:
    """A class with DomainBed's contract; a subclass of its `Algorithm` where that is installed.

    Its instances are made as `(input_shape, num_classes, num_domains, hparams)`. Adam trains them
    with `hparams["lr"]` and `hparams["weight_decay"]`; the first `hparams["warm_up"]` steps, by
    default none, are the warm-up of methods that have one.

    Args:
        method: its name, see `bne.methods.entries`.
        backbone: its name, see `bne.models.list_models`.
        weights: initial weights, as `bne.models.build` takes them.
        **options: of the method.

    Raises:
        ValueError: The method, an option or the backbone is unknown, the method forms domains of
            its own, or the weights want images normalized in another way than DomainBed's.
    """
    check_options(method, options)
    kind = find(method).method
    if kind.own_domains or options.get("balanced") is False:
        raise ValueError(
            f"method {method!r} sorts all training images anew, which DomainBed does not show it: "
            "choose a method that keeps the domains"
        )
    wanted, given = find_backbone(backbone).preprocessing, Preprocessing(size=224)
    if weights is not None and (wanted.mean, wanted.std) != (given.mean, given.std):
        raise ValueError(
            f"the weights of {backbone!r} are for images normalized by mean {wanted.mean} and std "
            f"{wanted.std}, but DomainBed's are by ImageNet's: choose another backbone"
        )
    parent: Any = _parent()

    class Algorithm(parent):  # type: ignore[misc]  # known only when it runs
        """One method under DomainBed's contract."""

        steps: Tensor

        def __init__(
            self,
            input_shape: Sequence[int],
            num_classes: int,
            num_domains: int,
            hparams: Mapping[str, Any],
        ) -> None:
            super().__init__(input_shape, num_classes, num_domains, hparams)
            if input_shape[0] != 3:
                raise ValueError(
                    f"images have {input_shape[0]} channels, but {backbone!r} takes 3: choose a "
                    "dataset of RGB images"
                )
            self.warm_up = hparams.get("warm_up", 0)
            names = [f"source {number}" for number in range(num_domains)]
            self.domain_count = num_domains
            self.method = create(
                method,
                build(backbone, num_classes, weights),
                [*names, "target"] if kind.uses_target else names,
                options,
            )
            self.optimizer = torch.optim.Adam(
                [p for p in self.method.parameters() if p.requires_grad],
                lr=hparams["lr"],
                weight_decay=hparams["weight_decay"],
            )
            self.register_buffer("steps", torch.tensor(0))

        def update(
            self, minibatches: Minibatches, unlabeled: Sequence[Tensor] | None = None
        ) -> dict[str, float]:
            """Trains for one step.

            Args:
                minibatches: images, (N, 3, H, W), and labels, (N,), of each source domain.
                unlabeled: images of each test domain, (N, 3, H, W), for methods that use them.

            Returns:
                The loss.
            """
            if len(minibatches) != self.domain_count:
                raise ValueError(
                    f"there are {len(minibatches)} minibatches, but {self.domain_count} domains: "
                    "give one of each"
                )
            batches = list(minibatches)
            if kind.uses_target:
                batches.append(_target(unlabeled, method, batches[0][1]))
            images = torch.cat([x for x, _ in batches])
            labels = torch.cat([y for _, y in batches])
            sizes = torch.tensor([len(y) for _, y in batches])
            domains = torch.arange(len(batches)).repeat_interleave(sizes).to(labels.device)
            self.method.begin_epoch(int(self.steps), self.warm_up)
            self.method.train()
            loss = torch.zeros((), device=images.device)
            TrainingStep(self.method, self.optimizer, loss)(images, labels, domains)
            self.steps += 1
            return {"loss": loss.item()}

        def predict(self, x: Tensor) -> Tensor:
            """The logits of images of unknown domain, (N, classes), always in evaluation mode.

            Args:
                x: (N, 3, H, W).
            """
            training = self.training
            self.eval()
            try:
                return self.method.predict(x)
            finally:
                self.train(training)

    Algorithm.__name__ = Algorithm.__qualname__ = method
    return Algorithm


class _StandIn(nn.Module):
    """What DomainBed's `Algorithm` does when made, where DomainBed is not installed."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__()
        *_, self.hparams = arguments


def _parent() -> type[nn.Module]:
    try:
        from domainbed.algorithms import Algorithm  # type: ignore[import-not-found]
    except ImportError:
        return _StandIn
    parent: type[nn.Module] = Algorithm
    return parent


def _target(unlabeled: Sequence[Tensor] | None, method: str, like: Tensor) -> tuple[Tensor, Tensor]:
    """All test domains' images as one domain, with labels that count for nothing."""
    if not unlabeled:
        raise ValueError(
            f"method {method!r} learns from unlabeled images of the target: run DomainBed with "
            "--task domain_adaptation and --uda_holdout_fraction"
        )
    images = torch.cat(list(unlabeled))
    return images, like.new_full((len(images),), UNLABELLED)
