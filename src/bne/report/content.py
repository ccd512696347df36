"""All that an analysis of a trained model holds, before it is drawn."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from bne.core.ensemble import DomainEnsemble
from bne.inspection.examples import Example, describe, remarkable
from bne.inspection.maps import Map, choose_layers, make_maps
from bne.inspection.numbers import Numbers, latent_numbers
from bne.inspection.observe import observe, sample

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from bne.data.cache import PreparedImages
    from bne.data.transform import EvalTransform
    from bne.inspection.observe import Observed
    from bne.methods import Method
    from bne.training.model_folder import ModelInfo

POINTS = 2000  # on a map: more take long to lay out, and their pictures fill the page
DISTANCES = 60_000  # on a map, each in several maps: as many points as that allows
FEW_POINTS = "There are too few images for a map."
SAME_WEIGHTS = (
    "All images have the same weights: none is more confident or more mixed than another."
)


@dataclass(frozen=True, eq=False)
class Analysis:
    """A trained model on some images.

    Attributes:
        info: about the model.
        prepared: the images.
        observed: what the model says of those drawn.
        numbers: as `bne.inspection.numbers.latent_numbers` gives them.
        maps: of all layers together, then of single ones; none where there is no such space.
        points: the images on the maps, in their order.
        examples: images worth a look, by what they are.
        seed: by which images were drawn and maps laid out.
        data: the name of the data.
        network: which of a run's networks the model is, in a sentence.
    """

    info: ModelInfo
    prepared: PreparedImages
    observed: Observed
    numbers: Numbers
    maps: Sequence[Map]
    points: Sequence[Example]
    examples: Mapping[str, Sequence[Example]]
    seed: int
    data: str = ""
    network: str = ""

    @property
    def seen(self) -> tuple[str, ...]:
        """The domains of the images that the model was trained on."""
        return tuple(name for name in self.observed.domains if name in self.info.domains)

    @property
    def images(self) -> dict[str, dict[str, int]]:
        """By domain: how many were used, how many of these held out, and how many there are."""
        observed, all_images = self.observed, self.prepared.images
        return {
            domain: {
                "used": len(observed.rows_of(domain)),
                "held_out": int(observed.held_out[observed.rows_of(domain)].sum()),
                "there": len(all_images.indices_of([domain])),
            }
            for domain in observed.domains
        }

    @property
    def chosen(self) -> int:
        """The image whose distances are drawn first, a row of the maps: a typical unseen one.

        Its weights are nearest to the mean of its domain, the first unseen one if there is any.
        """
        weights = torch.tensor([list(point.weights.values()) for point in self.points])
        unseen = [i for i, p in enumerate(self.points) if p.domain not in self.seen]
        first = self.points[unseen[0] if unseen else 0].domain
        rows = torch.tensor([i for i, p in enumerate(self.points) if p.domain == first])
        off = (weights[rows] - weights[rows].mean(0)).abs().sum(1)
        return int(rows[off.argmin()])

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts and lists, for JSON."""
        return {
            "model": {
                "method": self.info.method,
                "backbone": self.info.backbone,
                "trained_on": list(self.info.domains),
                "classes": list(self.info.classes),
                "bne": self.info.bne,
            },
            "images": self.images,
            "seed": self.seed,
            "branches": list(self.observed.branches),
            **self.numbers,
            "examples": {
                kind: [asdict(one) for one in found] for kind, found in self.examples.items()
            },
            "map_images": [point.name for point in self.points],
            "maps": {
                one.name: {"images": one.images.tolist(), "domains": one.domains.tolist()}
                for one in self.maps
            },
        }


def analyse_images(
    method: Method,
    transform: EvalTransform,
    info: ModelInfo,
    prepared: PreparedImages,
    domains: Sequence[str],
    *,
    layers: Sequence[str] | None = None,
    images: int = 500,
    held_out: Collection[int] = (),
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> Analysis:
    """Shows images to a trained model and studies what it says of them.

    Args:
        method: the model, on the device, in evaluation mode.
        transform: from prepared images to its input.
        info: about the model.
        prepared: the images.
        domains: to study, seen or not.
        layers: to map; by default the first, the middle and the last.
        images: at most so many of each domain, drawn at random.
        held_out: the numbers of those kept from training, of the domains trained on.
        seed: of the draw and of the maps.
        device: to compute on.

    Raises:
        DataError: A domain, class or layer is unknown, or the model's answers are not finite.
    """
    if layers is not None and isinstance(method.net, DomainEnsemble):
        choose_layers(method.net.domain_embeddings().layers, layers)  # before images are shown
    members = sample(prepared.images, domains, images, seed)
    observed = observe(
        method,
        transform,
        info.classes,
        prepared,
        members,
        points=min(POINTS, DISTANCES // max(1, len(info.domains))),
        held_out=held_out,
        device=device,
    )
    numbers = latent_numbers(observed)
    maps: list[Map] = []
    points: list[Example] = []
    if observed.location is not None:
        chosen = choose_layers(observed.location.points.layers, layers)
        maps = make_maps(observed, chosen, seed)
        rows = observed.location.rows.tolist() if maps else []
        points = [describe(observed, prepared.images, row) for row in rows]
        if not maps:
            numbers["left_out"].append(FEW_POINTS)
    examples = remarkable(observed, prepared.images)
    if observed.weighing is not None and not examples:
        numbers["left_out"].append(SAME_WEIGHTS)
    return Analysis(info, prepared, observed, numbers, maps, points, examples, seed)
