"""Analyses of tiny networks on tiny images."""

from bne.engine.saved import ModelInfo
from bne.report.content import Analysis, analyse_images
from tests.evaluation.models import CLASSES, SOURCES, TARGET, trained


def analysis(method: str = "bne", domains: tuple[str, ...] = (*SOURCES, *TARGET), **settings):
    """Of a method with random weights, on all its images unless `images` says otherwise."""
    options = settings.pop("options", {})
    model = trained(method, **options)
    info = ModelInfo(
        "small_cnn", CLASSES, SOURCES, method, options, model.transform.to_dict(), None
    )
    found: Analysis = analyse_images(
        model.method, model.transform, info, model.prepared, domains, **settings
    )
    return model, found
