"""The kernels themselves, in Triton's language.

Arguments that are None are settled in compilation, and so is every `if` about them.
"""

import triton
import triton.language as tl


@triton.jit
def moments(
    x, means, variances, members,
    rows, positions, channels, row_stride, position_stride, channel_stride, chunk, chunks,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Mean and variance of every chunk of every row that is a member."""
    row = tl.program_id(0).to(tl.int64)
    if members is not None:
        if tl.load(members + row) == 0:
            return
    part = tl.program_id(2)
    channel = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    known = channel < channels
    first = part * chunk
    last = tl.minimum(first + chunk, positions)
    here = x + row * row_stride + channel * channel_stride
    # Measured from a value of the channel itself, the squares keep their digits.
    origin = tl.load(here + first * position_stride, mask=known, other=0).to(tl.float32)[None, :]
    total = tl.zeros((HEIGHT, WIDTH), tl.float32)
    squares = tl.zeros((HEIGHT, WIDTH), tl.float32)
    for start in range(first, last, HEIGHT):
        position = start + tl.arange(0, HEIGHT)
        mask = (position < last)[:, None] & known[None, :]
        value = tl.load(here[None, :] + position[:, None] * position_stride, mask=mask, other=0)
        value = tl.where(mask, value.to(tl.float32) - origin, 0)
        total += value
        squares += value * value
    size = (last - first).to(tl.float32)
    shift = tl.sum(total, 0) / size
    var = tl.maximum(tl.sum(squares, 0) / size - shift * shift, 0)
    place = (row * chunks + part) * channels + channel
    tl.store(means + place, tl.sum(origin, 0) + shift, mask=known)
    tl.store(variances + place, var, mask=known)


@triton.jit
def statistics(
    means, variances, mean, var, count, running_mean, running_var, of_row, members, momentum,
    rows, positions, channels, chunk, chunks,
    PARTS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Pools the chunks of every group by the law of total variance; follows the population."""
    group = tl.program_id(0)
    channel = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    known = channel < channels
    begin = 0
    end = rows * chunks
    if of_row is None:
        begin = group * chunks
        end = begin + chunks
    sizes = tl.zeros((PARTS,), tl.float32)
    totals = tl.zeros((PARTS, WIDTH), tl.float32)
    for start in range(begin, end, PARTS):
        part = start + tl.arange(0, PARTS)
        ours = part < end
        if of_row is not None:
            ours = ours & (tl.load(of_row + part // chunks, mask=ours, other=-1) == group)
            ours = ours & (tl.load(members + part // chunks, mask=ours, other=0) != 0)
        size = tl.minimum(chunk, positions - part % chunks * chunk).to(tl.float32)
        size = tl.where(ours, size, 0)
        place = part.to(tl.int64)[:, None] * channels + channel[None, :]
        wanted = ours[:, None] & known[None, :]
        totals += size[:, None] * tl.load(means + place, mask=wanted, other=0)
        sizes += size
    size = tl.sum(sizes, 0)
    middle = tl.sum(totals, 0) / tl.maximum(size, 1)
    spreads = tl.zeros((PARTS, WIDTH), tl.float32)
    for start in range(begin, end, PARTS):
        part = start + tl.arange(0, PARTS)
        ours = part < end
        if of_row is not None:
            ours = ours & (tl.load(of_row + part // chunks, mask=ours, other=-1) == group)
            ours = ours & (tl.load(members + part // chunks, mask=ours, other=0) != 0)
        weight = tl.minimum(chunk, positions - part % chunks * chunk).to(tl.float32)
        place = part.to(tl.int64)[:, None] * channels + channel[None, :]
        wanted = ours[:, None] & known[None, :]
        apart = tl.load(means + place, mask=wanted, other=0) - middle[None, :]
        spread = tl.load(variances + place, mask=wanted, other=0) + apart * apart
        spreads += tl.where(wanted, weight[:, None] * spread, 0)
    spread = tl.sum(spreads, 0) / tl.maximum(size, 1)
    place = group.to(tl.int64) * channels + channel
    if running_mean is not None:
        old_mean = tl.load(running_mean + place, mask=known, other=0).to(tl.float32)
        old_var = tl.load(running_var + place, mask=known, other=1).to(tl.float32)
        if size > 1:
            new_mean = old_mean + momentum * (middle - old_mean)
            new_var = old_var + momentum * (spread - old_var)
            tl.store(running_mean + place, new_mean, mask=known)
            tl.store(running_var + place, new_var, mask=known)
        else:
            middle = old_mean
            spread = old_var
    tl.store(mean + place, middle, mask=known)
    tl.store(var + place, spread, mask=known)
    tl.store(count + group, size)


@triton.jit
def apply(
    x, y, mean, var, weight, bias, of_row, eps,
    rows, positions, channels, row_stride, position_stride, channel_stride,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """(x - mean) / sqrt(var + eps) * γ + β."""
    row = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    position = tl.program_id(2) * HEIGHT + tl.arange(0, HEIGHT)
    known = channel < channels
    mask = (position < positions)[:, None] & known[None, :]
    group = row
    if of_row is not None:
        group = tl.load(of_row + row)
    place = group * channels + channel
    scale = tl.rsqrt(tl.load(var + place, mask=known, other=1).to(tl.float32) + eps)
    if weight is not None:
        scale = scale * tl.load(weight + channel, mask=known, other=0).to(tl.float32)
    shift = -tl.load(mean + place, mask=known, other=0).to(tl.float32) * scale
    if bias is not None:
        shift += tl.load(bias + channel, mask=known, other=0).to(tl.float32)
    where = position[:, None] * position_stride + channel[None, :] * channel_stride
    where += row * row_stride
    value = tl.load(x + where, mask=mask, other=0).to(tl.float32)
    value = value * scale[None, :] + shift[None, :]
    tl.store(y + where, value.to(y.dtype.element_ty), mask=mask)


@triton.jit
def gradient_sums(
    x, dy, totals, products, mean, var, of_row, eps,
    rows, positions, channels, row_stride, position_stride, channel_stride, chunk, chunks,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Sums of dy and dy * x̂ over every chunk of every row."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(2)
    channel = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    known = channel < channels
    group = row
    if of_row is not None:
        group = tl.load(of_row + row)
    place = group * channels + channel
    middle = tl.load(mean + place, mask=known, other=0).to(tl.float32)
    scale = tl.rsqrt(tl.load(var + place, mask=known, other=1).to(tl.float32) + eps)
    first = part * chunk
    last = tl.minimum(first + chunk, positions)
    here = row * row_stride + channel * channel_stride
    total = tl.zeros((HEIGHT, WIDTH), tl.float32)
    product = tl.zeros((HEIGHT, WIDTH), tl.float32)
    for start in range(first, last, HEIGHT):
        position = start + tl.arange(0, HEIGHT)
        mask = (position < last)[:, None] & known[None, :]
        where = here[None, :] + position[:, None] * position_stride
        slope = tl.load(dy + where, mask=mask, other=0).to(tl.float32)
        value = tl.load(x + where, mask=mask, other=0).to(tl.float32) - middle[None, :]
        total += slope
        product += slope * value
    place = (row * chunks + part) * channels + channel
    tl.store(totals + place, tl.sum(total, 0), mask=known)
    tl.store(products + place, tl.sum(product, 0) * scale, mask=known)


@triton.jit
def gradient(
    totals, products, dbias, dweight, slopes, offsets, mean, var, count, weight, of_row,
    dmean, dvar, eps, CONSTANT: tl.constexpr, rows, channels, chunks,
    PARTS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Sums over every group, and what its statistics hand back to each of its members' values."""
    group = tl.program_id(0)
    channel = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    known = channel < channels
    begin = 0
    end = rows * chunks
    if of_row is None:
        begin = group * chunks
        end = begin + chunks
    total = tl.zeros((PARTS, WIDTH), tl.float32)
    product = tl.zeros((PARTS, WIDTH), tl.float32)
    for start in range(begin, end, PARTS):
        part = start + tl.arange(0, PARTS)
        ours = part < end
        if of_row is not None:
            ours = ours & (tl.load(of_row + part // chunks, mask=ours, other=-1) == group)
        place = part.to(tl.int64)[:, None] * channels + channel[None, :]
        wanted = ours[:, None] & known[None, :]
        total += tl.load(totals + place, mask=wanted, other=0)
        product += tl.load(products + place, mask=wanted, other=0)
    to_bias = tl.sum(total, 0)
    to_weight = tl.sum(product, 0)
    place = group.to(tl.int64) * channels + channel
    tl.store(dbias + place, to_bias, mask=known)
    tl.store(dweight + place, to_weight, mask=known)
    if not CONSTANT:
        middle = tl.load(mean + place, mask=known, other=0)
        scale = tl.rsqrt(tl.load(var + place, mask=known, other=1) + eps)
        size = tl.load(count + group)
        gain = scale
        if weight is not None:
            gain = gain * tl.load(weight + channel, mask=known, other=0).to(tl.float32)
        to_mean = -gain * to_bias
        to_var = -0.5 * gain * scale * to_weight
        if dmean is not None:
            to_mean += tl.load(dmean + place, mask=known, other=0).to(tl.float32)
        if dvar is not None:
            to_var += tl.load(dvar + place, mask=known, other=0).to(tl.float32)
        slope = 2 * to_var / tl.maximum(size, 1)
        offset = to_mean / tl.maximum(size, 1) - slope * middle
        if of_row is not None:
            # Fewer than two values are normalised by the population, which is constant.
            slope = tl.where(size > 1, slope, 0)
            offset = tl.where(size > 1, offset, 0)
        tl.store(slopes + place, slope, mask=known)
        tl.store(offsets + place, offset, mask=known)


@triton.jit
def gradient_apply(
    x, dy, dx, slopes, offsets, var, weight, of_row, members, eps, CONSTANT: tl.constexpr,
    rows, positions, channels, row_stride, position_stride, channel_stride,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The gradient of the input: of its own output, and through its group's statistics."""
    row = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    position = tl.program_id(2) * HEIGHT + tl.arange(0, HEIGHT)
    known = channel < channels
    mask = (position < positions)[:, None] & known[None, :]
    group = row
    if of_row is not None:
        group = tl.load(of_row + row)
    place = group * channels + channel
    scale = tl.rsqrt(tl.load(var + place, mask=known, other=1).to(tl.float32) + eps)
    if weight is not None:
        scale = scale * tl.load(weight + channel, mask=known, other=0).to(tl.float32)
    where = position[:, None] * position_stride + channel[None, :] * channel_stride
    where += row * row_stride
    gradient = tl.load(dy + where, mask=mask, other=0).to(tl.float32) * scale[None, :]
    if not CONSTANT:
        member = 1
        if members is not None:
            member = tl.load(members + row).to(tl.int32)
        if member != 0:
            slope = tl.load(slopes + place, mask=known, other=0)
            offset = tl.load(offsets + place, mask=known, other=0)
            value = tl.load(x + where, mask=mask, other=0).to(tl.float32)
            gradient += value * slope[None, :] + offset[None, :]
    tl.store(dx + where, gradient.to(dx.dtype.element_ty), mask=mask)
