"""The paper's Algorithm 1 and its forward passes, with plain loops and nothing clever.

Written from the paper alone and slow on purpose: one image at a time, one layer at a time, one
domain at a time. A network is a list of stages: a `Norm`, or a function of one image's activation.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass
class Norm:
    """Batch norm: shared weight and bias, one population mean and variance a domain."""

    weight: Tensor
    bias: Tensor
    means: list[Tensor]
    variances: list[Tensor]
    eps: float = 1e-5


@dataclass
class Step:
    """What one training step computes."""

    logits: list[Tensor] = field(default_factory=list)
    weights: list[list[Tensor]] = field(default_factory=list)
    distances: list[list[Tensor]] = field(default_factory=list)
    loss: Tensor | None = None


def statistics(xs):
    """Mean and biased variance of each channel over a list of images."""
    means, variances = [], []
    for channel in range(xs[0].shape[0]):
        values = torch.cat([x[channel].reshape(-1) for x in xs])
        mean = values.sum() / len(values)
        means.append(mean)
        variances.append(((values - mean) ** 2).sum() / len(values))
    return torch.stack(means), torch.stack(variances)


def normalise(norm, x, mean, var):
    channels = [
        (x[c] - mean[c]) / torch.sqrt(var[c] + norm.eps) * norm.weight[c] + norm.bias[c]
        for c in range(x.shape[0])
    ]
    return torch.stack(channels)


def under_batch_statistics(stages, images, own, domain, update):
    """All images under one domain, by the batch statistics of the images that are its own."""
    xs = list(images)
    for stage in stages:
        if isinstance(stage, Norm):
            members = [x for x, mine in zip(xs, own, strict=True) if mine]
            known = sum(x[0].numel() for x in members) > 1  # or there is no batch variance
            mean, var = stage.means[domain], stage.variances[domain]
            if known:
                mean, var = statistics(members)
            if update and known:
                with torch.no_grad():
                    stage.means[domain] = 0.99 * stage.means[domain] + 0.01 * mean
                    stage.variances[domain] = 0.99 * stage.variances[domain] + 0.01 * var
            xs = [normalise(stage, x, mean, var) for x in xs]
        else:
            xs = [stage(x) for x in xs]
    return xs


def under_population_statistics(stages, x, domain):
    for stage in stages:
        if isinstance(stage, Norm):
            x = normalise(stage, x, stage.means[domain], stage.variances[domain])
        else:
            x = stage(x)
    return x


def instance_statistics(stages, x):
    """One image under instance normalisation: its embedding, a list of (layer, mean, var)."""
    embedding = []
    for stage in stages:
        if isinstance(stage, Norm):
            if x[0].numel() == 1:  # no instance variance: the domains' middle, no embedding
                mean = sum(stage.means) / len(stage.means)
                var = sum(stage.variances) / len(stage.variances)
            else:
                mean, var = statistics([x])
                embedding.append((stage, mean, var))
            x = normalise(stage, x, mean, var)
        else:
            x = stage(x)
    return embedding


def root(x):
    """The square root; its slope at 0, which is infinite, is taken to be 0."""
    return torch.where(x > 0, x, 1).sqrt() * (x > 0)


def wasserstein(mean_p, var_p, mean_q, var_q):
    """The paper's equation for two Gaussians with diagonal covariances C_p and C_q."""
    trace = (var_p + var_q - 2 * root(root(var_q) * var_p * root(var_q))).sum()
    return ((mean_p - mean_q) ** 2).sum() + trace


def mixture(stages, x, branch_logits, step):
    embedding = instance_statistics(stages, x)
    domains = range(len(branch_logits))
    distances = [
        sum(wasserstein(n.means[d], n.variances[d], mean, var) for n, mean, var in embedding)
        for d in domains
    ]
    similarities = [1 / distance for distance in distances]
    total = sum(similarities)
    logits = sum(w * f for w, f in zip(similarities, branch_logits, strict=True)) / total
    step.distances.append(distances)
    step.weights.append([w / total for w in similarities])
    step.logits.append(logits)


def training_step(stages, images, labels, domains, num_domains, branch_statistics):
    """Algorithm 1 on one batch, the loss averaged over it.

    With "population" it is the algorithm as printed: three passes. With "batch" the first and the
    third are one: branch d normalises by the batch statistics of domain d's images in that branch.
    """
    step = Step()
    branches = {}
    for d in range(num_domains):
        own = [domain == d for domain in domains]
        if branch_statistics == "population":
            batch = [image for image, mine in zip(images, own, strict=True) if mine]
            under_batch_statistics(stages, batch, [True] * len(batch), d, update=True)
        else:
            branches[d] = under_batch_statistics(stages, images, own, d, update=True)
    for i, image in enumerate(images):
        if branch_statistics == "population":
            logits = [under_population_statistics(stages, image, d) for d in range(num_domains)]
        else:
            logits = [branches[d][i] for d in range(num_domains)]
        mixture(stages, image, logits, step)
    step.loss = sum(map(F.cross_entropy, step.logits, labels)) / len(labels)
    return step


def predict(stages, images, num_domains):
    """Test time: every image alone, mixed by its distances from the domains."""
    step = Step()
    for image in images:
        logits = [under_population_statistics(stages, image, d) for d in range(num_domains)]
        mixture(stages, image, logits, step)
    return step
