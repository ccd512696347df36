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
    var = tl.sum(squares, 0) / size - shift * shift
    var = tl.where(var < 0, 0.0, var)  # `maximum` would make 0 of NaN
    place = (row * chunks + part) * channels + channel
    tl.store(means + place, tl.sum(origin, 0) + shift, mask=known)
    tl.store(variances + place, var, mask=known)


@triton.jit
def statistics(
    means, variances, mean, var, count, running_mean, running_var, of_row, members,
    rows, positions, channels, chunk, chunks,
    PARTS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Pools the chunks of every group by the law of total variance."""
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
        middle = tl.where(size > 1, middle, old_mean)
        spread = tl.where(size > 1, spread, old_var)
    else:  # as a fresh layer's: nothing is known of a domain without a variance
        middle = tl.where(size > 1, middle, 0.0)
        spread = tl.where(size > 1, spread, 1.0)
    tl.store(mean + place, middle, mask=known)
    tl.store(var + place, spread, mask=known)
    tl.store(count + group, size)


@triton.jit
def track(
    mean, var, count, running_mean, running_var, tracked, momentum, channels, WIDTH: tl.constexpr
):  # fmt: skip
    """Lets the running statistics of every group follow, if all its channels are finite."""
    group = tl.program_id(0)
    if tl.load(count + group) > 1:
        unhealthy = tl.zeros((WIDTH,), tl.int32)
        for start in range(0, channels, WIDTH):
            channel = start + tl.arange(0, WIDTH)
            known = channel < channels
            place = group.to(tl.int64) * channels + channel
            middle = tl.load(mean + place, mask=known, other=0)
            spread = tl.load(var + place, mask=known, other=0)
            finite = (tl.abs(middle) < float("inf")) & (tl.abs(spread) < float("inf"))
            unhealthy += tl.where(finite, 0, 1)
        if tl.sum(unhealthy, 0) == 0:
            seen = tl.load(tracked + group) + 1
            tl.store(tracked + group, seen)
            step = tl.maximum(momentum, 1 / seen.to(tl.float32))
            for start in range(0, channels, WIDTH):
                channel = start + tl.arange(0, WIDTH)
                known = channel < channels
                place = group.to(tl.int64) * channels + channel
                middle = tl.load(mean + place, mask=known, other=0)
                old = tl.load(running_mean + place, mask=known, other=0).to(tl.float32)
                tl.store(running_mean + place, _between(old, middle, step), mask=known)
                spread = tl.load(var + place, mask=known, other=0)
                old = tl.load(running_var + place, mask=known, other=0).to(tl.float32)
                tl.store(running_var + place, _between(old, spread, step), mask=known)


@triton.jit
def _between(old, new, step):
    """A step from old to new, as `torch.lerp` takes it: a step of 1 gives the new to the digit."""
    return tl.where(step < 0.5, old + step * (new - old), new - (new - old) * (1 - step))


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
def lean(
    x, y, mean, var, weight, bias, of_row, share, eps,
    rows, positions, channels, row_stride, position_stride, channel_stride,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """As `apply`, at a point between given statistics and the row's own, which are made here."""
    row = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    known = channel < channels
    here = row * row_stride + channel * channel_stride
    # Measured from a value of the channel itself, the squares keep their digits.
    origin = tl.load(x + here, mask=known, other=0).to(tl.float32)
    total = tl.zeros((HEIGHT, WIDTH), tl.float32)
    squares = tl.zeros((HEIGHT, WIDTH), tl.float32)
    for start in range(0, positions, HEIGHT):
        position = start + tl.arange(0, HEIGHT)
        mask = (position < positions)[:, None] & known[None, :]
        where = here[None, :] + position[:, None] * position_stride
        value = tl.load(x + where, mask=mask, other=0, eviction_policy="evict_last")
        value = tl.where(mask, value.to(tl.float32) - origin[None, :], 0)
        total += value
        squares += value * value
    away = tl.sum(total, 0) / positions
    spread = tl.sum(squares, 0) / positions - away * away
    spread = tl.where(spread < 0, 0.0, spread)  # `maximum` would make 0 of NaN
    group = row
    if of_row is not None:
        group = tl.load(of_row + row)
    place = group * channels + channel
    step = tl.load(share).to(tl.float32)
    middle = tl.load(mean + place, mask=known, other=0).to(tl.float32)
    middle = middle + step * (origin + away - middle)
    deviation = tl.sqrt(tl.load(var + place, mask=known, other=1).to(tl.float32) + eps)
    deviation = deviation + step * (tl.sqrt(spread + eps) - deviation)
    scale = 1 / deviation
    if weight is not None:
        scale = scale * tl.load(weight + channel, mask=known, other=0).to(tl.float32)
    shift = -middle * scale
    if bias is not None:
        shift += tl.load(bias + channel, mask=known, other=0).to(tl.float32)
    for start in range(0, positions, HEIGHT):
        position = start + tl.arange(0, HEIGHT)
        mask = (position < positions)[:, None] & known[None, :]
        where = here[None, :] + position[:, None] * position_stride
        value = tl.load(x + where, mask=mask, other=0, eviction_policy="evict_first")
        value = value.to(tl.float32) * scale[None, :] + shift[None, :]
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
            # Fewer than two values are normalized by the population, which is constant.
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


@triton.jit
def max_pool(
    x, y, places, height, width, out_height, out_width,
    CHANNELS: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr,
    DOWN: tl.constexpr, ACROSS: tl.constexpr, ABOVE: tl.constexpr, BESIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The maxima of a line of windows, and the place in its window where each was found first."""
    line = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ours = at < out_width * CHANNELS
    top = (line % out_height).to(tl.int32) * DOWN - ABOVE
    left = at // CHANNELS * ACROSS - BESIDE
    here = x + line // out_height * height * width * CHANNELS + at % CHANNELS
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    place = tl.full((BLOCK,), -1, tl.int32)
    for i in tl.static_range(HIGH):
        for j in tl.static_range(WIDE):
            row = top + i
            column = left + j
            right = tl.where((row >= 0) & (row < height), width, 0)
            inside = ours & (column >= 0) & (column < right)
            value = tl.load(here + (row * width + column) * CHANNELS, mask=inside, other=0)
            value = value.to(tl.float32)
            # As torch has it on a CPU: NaN is passed on, and if all are -inf the first counts.
            taken = inside & ((value > best) | (value != value) | (place < 0))
            best = tl.where(taken, value, best)
            place = tl.where(taken, i * WIDE + j, place)
    to = line * out_width * CHANNELS + at
    tl.store(y + to, best, mask=ours)
    if places is not None:
        tl.store(places + to, place, mask=ours)


@triton.jit
def max_pool_gradient(
    dy, dx, places, height, width, out_height, out_width,
    CHANNELS: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr,
    DOWN: tl.constexpr, ACROSS: tl.constexpr, ABOVE: tl.constexpr, BESIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of a line of the images, gathered from the windows that it lies in."""
    line = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ours = at < width * CHANNELS
    row = (line % height).to(tl.int32) + ABOVE
    column = at // CHANNELS + BESIDE
    windows = line // height * out_height * out_width * CHANNELS + at % CHANNELS
    total = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range((HIGH + DOWN - 1) // DOWN):
        for j in tl.static_range((WIDE + ACROSS - 1) // ACROSS):
            down = row // DOWN - i
            across = column // ACROSS - j
            below = row - down * DOWN
            beside = column - across * ACROSS
            right = tl.where((down >= 0) & (down < out_height) & (below < HIGH), out_width, 0)
            inside = ours & (across >= 0) & (across < right) & (beside < WIDE)
            window = windows + (down * out_width + across) * CHANNELS
            place = tl.load(places + window, mask=inside, other=-1)
            found = inside & (place == below * WIDE + beside)
            total += tl.load(dy + window, mask=found, other=0).to(tl.float32)
    tl.store(dx + line * width * CHANNELS + at, total, mask=ours)
