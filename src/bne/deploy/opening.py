"""Whatever holds a model, opened for prediction; torch is imported only if the model needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bne.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

    from bne.deploy.manifest import Manifest
    from bne.deploy.predict import Looks


def open_engine(path: Path, device: str, **mode: Any) -> tuple[Looks, Manifest]:
    """The network of a model file, a run's folder or an exported file, and what is known of it.

    Args:
        path: of the file or folder.
        device: "auto", "cpu" or "cuda"; exported files run on the CPU.
        **mode: how the model answers, see `bne.deploy.modes.set_mode`.

    Raises:
        DataError: There is no model, or a damaged one.
        SettingsError: There is no such device, or the model cannot answer so.
    """
    if path.suffix.lower() == ".onnx" and path.is_file():
        from bne.deploy.onnx import OnnxEngine

        if asked := [name for name, value in mode.items() if value is not None]:
            raise SettingsError(
                f"--{asked[0]}: an exported model answers as it was exported; export it anew."
            )
        engine = OnnxEngine.load(path)
        return engine, engine.model
    from bne.deploy.classifier import Classifier
    from bne.training.environment import choose_device

    model = Classifier.load(path, choose_device(device), **mode)
    return model.engine, model.info
