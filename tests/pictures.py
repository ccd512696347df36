"""Pictures that a small network learns to tell apart in a second."""

from pathlib import Path

from PIL import Image

DOMAINS, CLASSES = ("art", "photo", "sketch"), ("cat", "dog")


def write_pictures(root: Path, count: int = 6, domains: tuple[str, ...] = DOMAINS) -> Path:
    """Stripes along or across, in another colour in each domain."""
    for number, domain in enumerate(domains):
        for label, name in enumerate(CLASSES):
            folder = root / domain / name
            folder.mkdir(parents=True)
            for place in range(count):
                picture = Image.linear_gradient("L").resize((32, 32)).rotate(90 * label)
                colour = tuple(60 * (number == k) + 10 * place for k in range(3))
                mixed = Image.blend(picture.convert("RGB"), Image.new("RGB", (32, 32), colour), 0.4)
                mixed.save(folder / f"{place}.png")
    return root
