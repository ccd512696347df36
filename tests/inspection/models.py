"""Small trained networks on small images, for analysis."""

from pathlib import Path

import torch

from bne.data.cache import PreparedImages
from bne.data.feed import Feed
from bne.data.images import ImageFile, ImageSet
from bne.data.splits import hold_out
from bne.data.transform import EvalTransform
from bne.inspection.analysis import Analysis, analyse_images
from bne.methods import create
from bne.models import build, preprocessing
from bne.recipes.schema import Recipe
from bne.training.model_folder import ModelInfo, Trained

SOURCES, TARGET, CLASSES = ("art", "cartoon", "photo"), ("dslr", "webcam"), ("cat", "dog", "emu")
SIZE = 32


def images_of(counts: dict[str, int]) -> PreparedImages:
    """Noise, brighter from domain to domain, of classes in turn."""
    domains = tuple(counts)
    files, pixels = [], []
    generator = torch.Generator().manual_seed(0)
    for number, (domain, count) in enumerate(counts.items()):
        for place in range(count):
            label = place % len(CLASSES)
            name = f"{domain}/{CLASSES[label]}/{place}.png"
            files.append(ImageFile(name, label, number, bytes, "stamp"))
            noise = torch.randint(0, 40, (SIZE, SIZE, 3), generator=generator)
            colour = torch.randint(0, 150, (3,), generator=generator)
            pixels.append(noise + colour + 15 * number)
    stack = torch.stack(pixels).to(torch.uint8)
    return PreparedImages(ImageSet(domains, CLASSES, tuple(files)), stack, Path())


def trained(method: str, **options: object) -> Trained:
    """A method with random weights whose branches have seen their domains."""
    torch.manual_seed(0)
    prepared = images_of({**dict.fromkeys(SOURCES, 25), "dslr": 30, "webcam": 20})
    splits = hold_out(prepared.images, SOURCES, 0.2)
    made = create(method, build("small_cnn", len(CLASSES)), SOURCES, options)
    transform = EvalTransform(preprocessing("small_cnn"), SIZE)
    inputs = transform(prepared.pixels.permute(0, 3, 1, 2))
    for layer in made.modules():
        if hasattr(layer, "momentum"):
            layer.momentum = 1.0
    made.train().observe(inputs[:75], torch.arange(3).repeat_interleave(25))
    made.eval()
    state = made.state_dict()
    with torch.no_grad():  # answers that vary with the image and with the branch
        for key, buffer in state.items():
            if key.endswith("running_mean"):
                buffer += 0.02 * torch.randn_like(buffer)
        for key, bias in state.items():
            if key.endswith("fc.bias"):  # some methods have heads of their own instead
                bias -= made.predict(inputs).mean(0)
    recipe = Recipe(method=method, target=TARGET, options=options, backbone="small_cnn")
    device = torch.device("cpu")
    return Trained(made, transform, prepared, Feed(prepared, device), splits, recipe, device)


def analysis(
    method: str = "bne", domains: tuple[str, ...] = (*SOURCES, *TARGET), **settings
) -> tuple[Trained, Analysis]:
    """Of a method with random weights, on all its images unless `images` says otherwise."""
    options = settings.pop("options", {})
    model = trained(method, **options)
    transform = model.transform.to_dict()
    info = ModelInfo("small_cnn", CLASSES, SOURCES, method, options, transform, None)
    given = model.method, model.transform, info, model.prepared, domains
    return model, analyse_images(*given, **settings)
