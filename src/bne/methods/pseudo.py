"""Domains that are clusters of the training images, and BNE with them: no domain labels."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed, nn

from bne.core.embedding import Embedding
from bne.core.moments import in_processes
from bne.core.options import check_least
from bne.methods.bne import BNE
from bne.methods.method import Look, Method, register

Labels = NDArray[np.int64]


def find_clusters(points: NDArray[np.float32], count: int, smallest: int) -> Labels:
    """Clusters points by k-means, with as many threads as torch has.

    Args:
        points: (N, D).
        count: how many clusters.
        smallest: a cluster of fewer points takes in those nearest to its centre, from clusters that
            can spare them, until it has so many, or its even share of all.

    Returns:
        (N,), each point's cluster.

    Raises:
        ValueError: There are fewer points than clusters.
    """
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    if len(points) < count:
        raise ValueError(f"{len(points)} images cannot make {count} clusters: ask for fewer")
    with threadpool_limits(torch.get_num_threads()):  # otherwise all cores, beside other runs too
        model = KMeans(count, n_init=10, random_state=0).fit(points)
        apart = model.transform(points)
    labels: Labels = model.labels_.astype(np.int64)
    smallest = min(smallest, len(points) // count)
    sizes = np.bincount(labels, minlength=count)
    for cluster, distances in enumerate(apart.T):
        for point in np.argsort(distances, kind="stable"):
            if sizes[cluster] >= smallest:
                break
            if sizes[labels[point]] > smallest:
                sizes[labels[point]] -= 1
                sizes[cluster] += 1
                labels[point] = cluster
    return labels


def match(new: Labels, old: Labels, count: int) -> Labels:
    """Renumbers clusters such that as many points as possible keep their number.

    Args:
        new: (N,), each point's cluster.
        old: (N,), the cluster it was in before.
        count: how many clusters.

    Returns:
        (N,), `new` under other numbers.
    """
    from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

    shared = np.zeros((count, count), dtype=np.int64)
    np.add.at(shared, (new, old), 1)
    _, number = linear_sum_assignment(shared, maximize=True)
    renumbered: Labels = number[new]
    return renumbered


def cluster_names(clusters: int | None, domains: Sequence[str]) -> list[str]:
    """The names of so many clusters; None makes as many as there are source domains.

    Raises:
        ValueError: There are none.
    """
    check_least(1, clusters=clusters)
    return [f"cluster {number}" for number in range(1, 1 + (clusters or len(domains)))]


class Clustered(Method):
    """A method whose domains are clusters of the training images.

    A subclass calls `start_clusters` and says where images lie.

    Attributes:
        cluster_names: of the domains.
        assignment: (N,), the cluster of each training image, in the order of `members`; empty
            before the first epoch.
        assigned: the epoch in which it was made; -1 before the first.
    """

    own_domains: ClassVar[bool] = True
    assignment: Tensor
    assigned: Tensor

    def start_clusters(self, names: Sequence[str], refresh: int, smallest: int) -> None:
        """Prepares the state, in the constructor.

        Args:
            names: of the clusters.
            refresh: epochs between two clusterings.
            smallest: the fewest images of a cluster, as in `find_clusters`.

        Raises:
            ValueError: A number is below 1.
        """
        check_least(1, refresh=refresh, smallest=smallest)
        self.cluster_names = list(names)
        self.refresh = refresh
        self.smallest = smallest
        self.register_buffer("assignment", torch.empty(0, dtype=torch.long))
        self.register_buffer("assigned", torch.tensor(-1))
        self.register_load_state_dict_pre_hook(_make_room)  # type: ignore[no-untyped-call]

    @abstractmethod
    def points(self, images: Iterator[Tensor]) -> Tensor:
        """Where images lie, (N, D) float32 on the CPU; they come (B, 3, H, W) at a time."""

    def members(
        self, members: Mapping[str, Sequence[int]], epoch: int, look: Look
    ) -> Mapping[str, Sequence[int]]:
        """The images of every cluster, found anew every `refresh` epochs."""
        images = [number for domain in members.values() for number in domain]
        known = len(self.assignment) == len(images)
        if len(self.assignment) and not known:
            raise ValueError(
                f"the clusters are those of {len(self.assignment)} training images, but there are "
                f"{len(images)}: go on with the images the run began with"
            )
        if not known or (epoch % self.refresh == 0 and int(self.assigned) != epoch):
            self._assign(images, look)
            self.assigned.fill_(epoch)
        found: dict[str, list[int]] = {name: [] for name in self.cluster_names}
        for number, cluster in zip(images, self.assignment.tolist(), strict=True):
            found[self.cluster_names[cluster]].append(number)
        return found

    @torch.no_grad()
    def _assign(self, images: Sequence[int], look: Look) -> None:
        training = self.training
        self.eval()
        points = self.points(look(images))
        self.train(training)
        count = len(self.cluster_names)
        labels = find_clusters(points.numpy(), count, self.smallest)
        if len(self.assignment):
            labels = match(labels, self.assignment.cpu().numpy(), count)
        self.assignment = torch.from_numpy(labels).to(self.assignment.device)
        if in_processes():
            distributed.broadcast(self.assignment, 0)  # rounding may differ between processes


@register(
    "bne-pseudo",
    "the latent space that we propose allows a spontaneous and stark division between domain "
    "clusters",
)
class BNEPseudo(Clustered, BNE):
    """BNE whose domains are clusters of the training images in the space of domains.

    The images are clustered by k-means on their means and standard deviations, as the Wasserstein
    distance takes them but with every layer counting alike. First they are placed by the pretrained
    network, later by the network as it has become; a cluster then keeps the number of the former
    one it shares most images with, and so its statistics.

    Args:
        model: the plain network.
        domains: the source domains' names; only their number is used, and only by default.
        clusters: how many domains to find; None finds as many as there are source domains.
        refresh: epochs between two clusterings.
        smallest: the fewest images of a cluster, where there are enough; a smaller one takes in
            those nearest to it.
        **options: of `BNE`.
    """

    def __init__(
        self,
        model: nn.Module,
        domains: Sequence[str],
        *,
        clusters: int | None = None,
        refresh: int = 5,
        smallest: int = 64,
        **options: Any,
    ) -> None:
        names = cluster_names(clusters, domains)
        super().__init__(model, names, **options)
        self.start_clusters(names, refresh, smallest)

    def points(self, images: Iterator[Tensor]) -> Tensor:
        """The images' means and standard deviations, every layer to scale."""
        everyone = Embedding.cat([self.net.embed(part) for part in images])
        layers = [
            torch.cat([everyone.mean[:, piece], everyone.std[:, piece]], dim=1).float()
            for piece in everyone.slices.values()
        ]
        return torch.cat([_scaled(layer) for layer in layers], dim=1).cpu()


def _scaled(points: Tensor) -> Tensor:
    """Points, (N, D), around 0 at a mean squared distance of 1."""
    apart = points - points.mean(0)
    spread = apart.square().sum(1).mean().sqrt()
    return apart / spread.clamp_min(torch.finfo(spread.dtype).tiny)


def _make_room(method: Clustered, state_dict: Mapping[str, Any], prefix: str, *_: Any) -> None:
    """Lets an assignment of any length be loaded."""
    value = state_dict.get(f"{prefix}assignment")
    if isinstance(value, Tensor):
        method.assignment = method.assignment.new_empty(value.shape)
