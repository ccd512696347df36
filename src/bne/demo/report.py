"""The demo's result as one HTML page that needs nothing else."""

from __future__ import annotations

import base64
import io
from html import escape
from typing import TYPE_CHECKING

from bne.benchmark.tables import Cell, average
from bne.demo.experiment import METHODS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from bne.data.cache import PreparedImages
    from bne.demo.experiment import Outcome, Settings, Unseen


def cells(outcomes: Sequence[Outcome], method: str) -> dict[str, Cell]:
    """A method's accuracy on each target."""
    own = [outcome for outcome in outcomes if outcome.method == method]
    found = {o.target: {p.seed: p.accuracy for p in own if p.target == o.target} for o in own}
    return {target: Cell(values, len(values)) for target, values in found.items()}


_STYLE = """
:root { color-scheme: light dark; --line: #8884; --bar: #4a7fd4; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse } .wide { overflow-x: auto }
th, td { padding: .3rem .8rem; text-align: right; white-space: nowrap }
tr { border-bottom: 1px solid var(--line) }
th:first-child, td:first-child { text-align: left }
.strip img, figure img { image-rendering: pixelated; width: 3rem; height: 3rem; margin: 1px }
.examples { display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: 1rem }
figure { margin: 0; display: flex; gap: .8rem } figure img { width: 5rem; height: 5rem }
figcaption { flex: 1; font-size: .85rem } .wrong { color: #c33 }
.bar { display: block; height: .35rem; background: var(--bar); border-radius: 2px }
"""


def page(prepared: PreparedImages, outcomes: Sequence[Outcome], settings: Settings) -> str:
    """The page.

    Args:
        prepared: the images that were compared on.
        outcomes: of `bne.demo.compare`.
        settings: of all runs.
    """
    domains = prepared.images.domains
    seeds = len({outcome.seed for outcome in outcomes})
    strips = "".join(_strip(prepared, domain) for domain in domains)
    examples = "".join(_examples(domain, outcomes) for domain in domains)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>BNE demo</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>
<body><h1>Digits from a domain never seen</h1>
<p>Handwritten digits, drawn in {len(domains)} ways. A network learns from all ways but one and is
tested on that one. DeepAll merges what it learns from; BNE gives every way its own batch-norm
statistics and, for each new image, mixes the answers by how near their domain is.</p>
{strips}
<h2>Accuracy on the unseen domain, in percent</h2>
<div class="wide">{_table(domains, outcomes)}</div>
<p>Mean ± standard error over {seeds} seeds. Both methods have the same small network, initial
weights, batches ({settings.per_domain} images a domain), steps ({settings.steps}; BNE's first
{settings.warm_up_steps} are its warm-up) and optimiser, and are tested as the last step leaves
them; a step of BNE takes longer. The drawings were made such that one never seen is hard for
DeepAll, so the gap is this set's and no benchmark's; the draw of digits shown here played no part
in that.</p>
<h2>Where unseen images lie among the known domains</h2>
<p>Each bar is the weight of a known domain in BNE's answer (first seed).</p>
{examples}
</body></html>
"""


def _table(domains: Iterable[str], outcomes: Sequence[Outcome]) -> str:
    head = "".join(f"<th>{escape(domain)}</th>" for domain in domains)
    rows = "".join(
        f"<tr><td>{method}</td>"
        + "".join(f"<td>{cell}</td>" for cell in cells(outcomes, method).values())
        + f"<td>{average(list(cells(outcomes, method).values()))}</td></tr>"
        for method in METHODS
    )
    return f"<table><tr><th>unseen:</th>{head}<th>average</th></tr>{rows}</table>"


def _strip(prepared: PreparedImages, domain: str) -> str:
    numbers = prepared.images.indices_of([domain])
    shown = numbers[:: max(1, len(numbers) // 14)][:14]
    pictures = "".join(_picture(prepared.pixels[n], prepared.images.files[n].name) for n in shown)
    return f'<div class="strip"><b>{escape(domain)}</b><br>{pictures}</div>'


def _examples(domain: str, outcomes: Sequence[Outcome]) -> str:
    first = next(o for o in outcomes if o.target == domain and o.examples)
    figures = "".join(map(_figure, first.examples))
    return f'<h3>{escape(domain)} unseen</h3><div class="examples">{figures}</div>'


def _figure(unseen: Unseen) -> str:
    verdict = "right" if unseen.answer == unseen.truth else "wrong"
    bars = "".join(
        f'{escape(name)} {weight:.0%}<span class="bar" style="width:{weight:.0%}"></span>'
        for name, weight in unseen.weights.items()
    )
    return (
        f"<figure>{_picture(unseen.pixels, unseen.name)}<figcaption>"
        f'<b class="{verdict}">a {unseen.truth}, seen as {unseen.answer}</b><br>{bars}'
        "</figcaption></figure>"
    )


def _picture(pixels: Tensor, name: str) -> str:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(buffer, "PNG")
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="{escape(name)}" src="data:image/png;base64,{data}">'
