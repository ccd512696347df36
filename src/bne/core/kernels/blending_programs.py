"""The kernels of `bne.core.kernels.blending`, in Triton's language.

Arguments that are None are settled in compilation, and so is every `if` about them.
"""

import triton
import triton.language as tl


@triton.jit
def combine(
    x, scales, y, slopes, offsets, out,
    rows, positions, channels, row_stride, position_stride, channel_stride,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Gives x * scale + offset or x * scale + y * slope + offset, by row and channel."""
    row = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    position = tl.program_id(2) * HEIGHT + tl.arange(0, HEIGHT)
    known = channel < channels
    mask = (position < positions)[:, None] & known[None, :]
    place = row * channels + channel
    where = position[:, None] * position_stride + channel[None, :] * channel_stride
    where += row * row_stride
    value = tl.load(x + where, mask=mask, other=0).to(tl.float32)
    value = value * tl.load(scales + place, mask=known, other=0)[None, :]
    value += tl.load(offsets + place, mask=known, other=0)[None, :]
    if y is not None:
        other = tl.load(y + where, mask=mask, other=0).to(tl.float32)
        value += other * tl.load(slopes + place, mask=known, other=0)[None, :]
    tl.store(out + where, value.to(out.dtype.element_ty), mask=mask)


@triton.jit
def blend(
    own_mean, own_var, domains, members, running_mean, running_var, shares, gammas, betas,
    known_mean, known_var, count, mean, var, scales, shifts,
    eps, values, rows, channels, gamma_stride, beta_stride,
    LEANING: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Statistics of a domain's members, and the mixture of them and its images' own, as a map."""
    domain = tl.program_id(0)
    channel = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    there = channel < channels
    group = domain * channels + channel
    middle = tl.load(running_mean + group, mask=there, other=0).to(tl.float32)
    spread = tl.load(running_var + group, mask=there, other=1).to(tl.float32)
    if members is not None:
        total = tl.zeros((ROWS, WIDTH), tl.float32)
        number = tl.zeros((ROWS,), tl.float32)
        for start in range(0, rows, ROWS):
            row = start + tl.arange(0, ROWS)
            ours = tl.load(domains + row, mask=row < rows, other=-1) == domain
            ours = ours & (tl.load(members + row, mask=ours, other=0) != 0)
            place = row[:, None] * channels + channel[None, :]
            total += tl.load(own_mean + place, mask=ours[:, None] & there[None, :], other=0)
            number += ours.to(tl.float32)
        images = tl.sum(number, 0)
        batch_mean = tl.sum(total, 0) / tl.maximum(images, 1)
        total = tl.zeros((ROWS, WIDTH), tl.float32)
        for start in range(0, rows, ROWS):
            row = start + tl.arange(0, ROWS)
            ours = tl.load(domains + row, mask=row < rows, other=-1) == domain
            ours = ours & (tl.load(members + row, mask=ours, other=0) != 0)
            place = row[:, None] * channels + channel[None, :]
            wanted = ours[:, None] & there[None, :]
            apart = tl.load(own_mean + place, mask=wanted, other=0) - batch_mean[None, :]
            within = tl.load(own_var + place, mask=wanted, other=0)
            total += tl.where(wanted, within + apart * apart, 0)
        # Of one image too: it has more than one value per channel.
        middle = tl.where(images > 0, batch_mean, middle)
        spread = tl.where(images > 0, tl.sum(total, 0) / tl.maximum(images, 1), spread)
        tl.store(count + domain, images * values)
    else:
        tl.store(count + domain, 0.0)
    tl.store(known_mean + group, middle, mask=there)
    tl.store(known_var + group, spread, mask=there)
    deviation = tl.sqrt(spread + eps)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        ours = tl.load(domains + row, mask=row < rows, other=-1) == domain
        place = row[:, None] * channels + channel[None, :]
        wanted = ours[:, None] & there[None, :]
        own = tl.load(own_mean + place, mask=wanted, other=0)
        within = tl.load(own_var + place, mask=wanted, other=1)
        if LEANING:
            share = tl.load(shares + row, mask=ours, other=0).to(tl.float32)[:, None]
            mixed = middle[None, :] + share * (own - middle[None, :])
            between = deviation[None, :] + share * (tl.sqrt(within + eps) - deviation[None, :])
            mixed_var = between * between - eps
            scale = 1 / between
        else:
            share = tl.sigmoid(tl.load(shares + domain).to(tl.float32))
            mixed = own + share * (middle[None, :] - own)
            mixed_var = within + share * (spread[None, :] - within)
            scale = tl.rsqrt(mixed_var + eps)
        if gammas is not None:
            gamma = tl.load(gammas + domain * gamma_stride + channel, mask=there, other=0)
            scale = scale * gamma.to(tl.float32)[None, :]
        shift = -mixed * scale
        if betas is not None:
            beta = tl.load(betas + domain * beta_stride + channel, mask=there, other=0)
            shift += beta.to(tl.float32)[None, :]
        tl.store(mean + place, mixed, mask=wanted)
        tl.store(var + place, mixed_var, mask=wanted)
        tl.store(scales + place, scale, mask=wanted)
        tl.store(shifts + place, shift, mask=wanted)


@triton.jit
def blend_gradient(
    totals, products, own_mean, own_var, domains, members, shares, known_mean, known_var, count,
    mean, var, scales, dgammas, dbetas, dshares, slopes, offsets,
    eps, values, rows, channels,
    LEANING: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """From the sums over every row of dy and dy * x̂: all that the statistics hand back."""
    domain = tl.program_id(0)
    channel = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    there = channel < channels
    group = domain * channels + channel
    middle = tl.load(known_mean + group, mask=there, other=0)
    spread = tl.load(known_var + group, mask=there, other=1)
    if not LEANING:
        share = tl.sigmoid(tl.load(shares + domain).to(tl.float32))
    to_beta = tl.zeros((ROWS, WIDTH), tl.float32)
    to_gamma = tl.zeros((ROWS, WIDTH), tl.float32)
    to_middle = tl.zeros((ROWS, WIDTH), tl.float32)
    to_spread = tl.zeros((ROWS, WIDTH), tl.float32)
    to_share = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        ours = tl.load(domains + row, mask=row < rows, other=-1) == domain
        place = row[:, None] * channels + channel[None, :]
        wanted = ours[:, None] & there[None, :]
        total = tl.load(totals + place, mask=wanted, other=0)
        product = tl.load(products + place, mask=wanted, other=0)
        scale = tl.load(scales + place, mask=wanted, other=0)
        to_beta += total
        to_gamma += product
        if LEANING:  # the domain's part; of its deviation first
            part = 1 - tl.load(shares + row, mask=ours, other=0).to(tl.float32)[:, None]
            to_middle -= part * scale * total
            to_spread -= part * scale * product
            if dshares is not None:
                apart = tl.load(own_mean + place, mask=wanted, other=0) - middle[None, :]
                within = tl.load(own_var + place, mask=wanted, other=1)
                wider = tl.sqrt(within + eps) - tl.sqrt(spread + eps)[None, :]
                moved = tl.where(wanted, -scale * (total * apart + product * wider), 0)
                slot = row * tl.num_programs(1) + tl.program_id(1)
                tl.store(dshares + slot, tl.sum(moved, 1), mask=ours)
        else:
            root = tl.rsqrt(tl.load(var + place, mask=wanted, other=1) + eps)
            to_mean = -scale * total
            to_var = -0.5 * scale * root * product
            to_middle += share * to_mean
            to_spread += share * to_var
            apart = middle[None, :] - tl.load(own_mean + place, mask=wanted, other=0)
            wider = spread[None, :] - tl.load(own_var + place, mask=wanted, other=0)
            to_share += tl.where(wanted, to_mean * apart + to_var * wider, 0)
    tl.store(dbetas + group, tl.sum(to_beta, 0), mask=there)
    tl.store(dgammas + group, tl.sum(to_gamma, 0), mask=there)
    images = 1.0
    if members is not None:
        images = tl.maximum(tl.load(count + domain) / values, 1)
    middle_gradient = tl.sum(to_middle, 0) / images
    spread_gradient = tl.sum(to_spread, 0) / images
    if LEANING:
        spread_gradient = 0.5 * spread_gradient * tl.rsqrt(spread + eps)
    elif dshares is not None:
        slot = domain * tl.num_programs(1) + tl.program_id(1)
        tl.store(dshares + slot, tl.sum(tl.sum(to_share, 0), 0) * share * (1 - share))
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        ours = tl.load(domains + row, mask=row < rows, other=-1) == domain
        place = row[:, None] * channels + channel[None, :]
        wanted = ours[:, None] & there[None, :]
        scale = tl.load(scales + place, mask=wanted, other=0)
        own = tl.load(own_mean + place, mask=wanted, other=0)
        if LEANING:
            part = tl.load(shares + row, mask=ours, other=0).to(tl.float32)[:, None]
            root = tl.rsqrt(tl.load(own_var + place, mask=wanted, other=1) + eps)
        else:
            part = 1 - share
            root = tl.rsqrt(tl.load(var + place, mask=wanted, other=1) + eps)
        to_mean = -part * scale * tl.load(totals + place, mask=wanted, other=0)
        to_var = -0.5 * part * scale * root * tl.load(products + place, mask=wanted, other=0)
        if members is not None:
            member = (tl.load(members + row, mask=ours, other=0) != 0)[:, None]
            apart = own - middle[None, :]
            through = middle_gradient[None, :] + 2 * apart * spread_gradient[None, :]
            to_mean += tl.where(member, through, 0)
            to_var += tl.where(member, spread_gradient[None, :], 0)
        slope = 2 * to_var / values
        tl.store(slopes + place, slope, mask=wanted)
        tl.store(offsets + place, to_mean / values - slope * own, mask=wanted)
