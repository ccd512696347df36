"""Amplitude mixing against a plain loop over numpy's Fourier transform."""

import numpy as np
import pytest
import torch

from bne.data.mixing import AmplitudeMixing, Mixture, mix_amplitudes

DOMAINS = torch.tensor([0] * 4 + [2] * 4 + [3] * 4)
EVERYONE = torch.arange(12)


def test_amplitudes_are_mixed_and_phases_kept() -> None:
    generator = torch.Generator().manual_seed(0)
    for height, width in ((8, 6), (7, 9)):
        images = torch.rand(5, 3, height, width, generator=generator, dtype=torch.double)
        own, partners = torch.tensor([1, 2, 4]), torch.tensor([2, 2, 0])
        shares = torch.tensor([0.3, 0.0, 0.9])
        found = mix_amplitudes(images, Mixture(torch.arange(5), own, partners, shares))
        for row, (i, j, share) in enumerate(
            zip(own.tolist(), partners.tolist(), shares.double().tolist(), strict=True)
        ):
            for channel in range(3):
                first, second = (np.fft.fft2(images[k, channel].numpy()) for k in (i, j))
                amplitude = (1 - share) * np.abs(first) + share * np.abs(second)
                expected = np.fft.ifft2(amplitude * np.exp(1j * np.angle(first)))
                assert np.abs(expected.imag).max() < 1e-12
                np.testing.assert_allclose(found[row, channel], expected.real, atol=1e-12)
        assert torch.equal(found[1], images[2])  # a share of 0 changes no bit


def test_black_images_and_batches_without_a_change_are_finite() -> None:
    images = torch.zeros(2, 3, 4, 4)
    mixture = Mixture(EVERYONE[:2], EVERYONE[:2], EVERYONE[:2].flip(0), torch.tensor([0.5, 0.5]))
    assert torch.equal(mix_amplitudes(images, mixture), images)
    assert torch.equal(mix_amplitudes(images, mixture._replace(shares=torch.zeros(2))), images)


@pytest.mark.parametrize("kind", ["random", "other domain"])
def test_partners_and_shares_are_drawn_evenly(kind: str) -> None:
    mixing, counts = AmplitudeMixing(kind, 0.5), torch.zeros(12, 12)  # type: ignore[arg-type]
    shares = []
    for step in range(1000):
        mixture = mixing.plan(step, EVERYONE, DOMAINS)
        mixed = mixture.shares > 0
        assert torch.equal(mixture.partners[~mixed], EVERYONE[~mixed])
        counts[EVERYONE[mixed], mixture.partners[mixed]] += 1
        shares.append(mixture.shares[mixed])
    mates = ~torch.eye(12, dtype=torch.bool) if kind == "random" else DOMAINS[:, None] != DOMAINS
    assert not counts[~mates].any()
    mean = 500 / int(mates[0].sum())
    assert (counts[mates] - mean).abs().max() < 4.5 * mean**0.5
    quarters = torch.histc(torch.cat(shares), 4, 0, 1) / len(torch.cat(shares))
    assert (quarters - 0.25).abs().max() < 0.02


@pytest.mark.parametrize("kind", ["random", "other domain"])
def test_the_parts_of_processes_are_those_of_the_whole(kind: str) -> None:
    mixing = AmplitudeMixing(kind, 0.7, seed=3)  # type: ignore[arg-type]
    whole = mixing.plan(5, EVERYONE, DOMAINS)
    assert torch.equal(whole.positions, EVERYONE)
    assert torch.equal(whole.own, EVERYONE)
    share = torch.tensor([2, 3, 6, 7, 10, 11])
    part = mixing.plan(5, share, DOMAINS)
    assert torch.equal(part.positions[part.own], share)
    assert torch.equal(part.positions[part.partners], whole.partners[share])
    assert torch.equal(part.shares, whole.shares[share])
    for other in (
        mixing.plan(6, EVERYONE, DOMAINS),
        AmplitudeMixing("random", 0.7, 4).plan(5, EVERYONE, DOMAINS),
    ):
        assert not torch.equal(other.shares, whole.shares)


def test_an_image_without_a_partner_stays_as_it_is() -> None:
    alone = AmplitudeMixing("other domain", 1.0).plan(0, EVERYONE, torch.zeros(12).long())
    assert not alone.shares.any()
    assert not AmplitudeMixing("random", 1.0).plan(0, EVERYONE[:1], DOMAINS[:1]).shares.any()
    assert AmplitudeMixing("random", 1.0).plan(0, EVERYONE, DOMAINS).shares.all()
