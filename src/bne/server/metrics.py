"""What a server counts, for Prometheus."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

if TYPE_CHECKING:
    from collections.abc import Callable

    from bne.server.live import Model
    from bne.server.told import Told

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
PERCENTILES = (10, 25, 50, 75, 90, 95, 99, 100)


class Metrics:
    """Counters of one server.

    Args:
        pending: tells how many images are in the queue.
        network: tells the number of the process that the network runs in.
    """

    def __init__(self, pending: Callable[[], float], network: Callable[[], int | str]) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        ProcessCollector("bne_network", network, registry=self._registry)
        self._requests = self._make(Counter, "requests", "Answers by path and status.", "path code")
        self._seconds = self._make(
            Histogram, "request_seconds", "Time to answer.", "path", buckets=SECONDS
        )
        self._batch = self._make(
            Histogram, "batch_images", "Images that the network saw together.", buckets=SIZES
        )
        self._classes = self._make(Counter, "images", "Images by predicted class.", "class")
        self._nearest = self._make(Counter, "nearest", "Images by nearest domain.", "domain")
        self._unusual = self._make(
            Histogram,
            "unusual_percent",
            "How many of 100 held-out source images lie nearer to a domain.",
            buckets=PERCENTILES,
        )
        self._windows = self._make(Counter, "windows", "Windows of images that were tested.")
        self._alarms = self._make(
            Counter, "window_alarms", "Those that seem to come from a domain not known."
        )
        self._p_value = self._make(
            Gauge, "window_p_value", "How probable the last window is in a known domain, if any."
        )
        self.bad = self._make(Counter, "bad_images", "Images that could not be read.")
        self._model = self._make(
            Gauge, "model_info", "The model that answers.", "id method backbone"
        )
        self.swaps = self._make(Counter, "model_swaps", "New models taken over.")
        self.swap_failures = self._make(
            Counter, "model_swap_failures", "New model files that could not be loaded."
        )
        self._of = cache(
            lambda path, code: (self._requests.labels(path, code), self._seconds.labels(path))
        )
        queue = self._make(Gauge, "queue_images", "Images decoded, waiting or looked at.")
        queue.set_function(pending)

    def _make(self, kind: Any, name: str, text: str, labels: str = "", **options: Any) -> Any:
        return kind(f"bne_{name}", text, labels.split(), registry=self._registry, **options)

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self._registry)

    def answered(self, path: str, code: int, seconds: float) -> None:
        """Counts an answer."""
        number, times = self._of(path, code)
        number.inc()
        times.observe(seconds)

    def seen(self, told: Told) -> None:
        """Counts the images of a batch, and the windows that they complete."""
        for window in told.windows:
            self._windows.inc()
            self._alarms.inc(window.alarm)
            self._p_value.set(window.p_value)
        self._batch.observe(len(told.rows))
        for name, count in told.classes.items():
            self._classes.labels(name).inc(count)
        for name, count in told.nearest.items():
            self._nearest.labels(name).inc(count)
        for value in told.unusual:
            self._unusual.observe(value)

    def model(self, model: Model) -> None:
        """Names the model that answers from now on, which has tested no window yet."""
        self._p_value.set(math.nan)
        self._model.clear()
        self._model.labels(model.id, model.info.method, model.info.backbone).set(1)
