"""`bne serve`: a trained model behind HTTP."""

from pathlib import Path
from typing import Annotated

import typer

from bne.cli import common
from bne.errors import SettingsError, require

EPILOG = "Example: bne serve model.bne --port 8000"


def serve(
    model: common.ModelOrGraph,
    host: Annotated[
        str, typer.Option(help="Address to listen at; 0.0.0.0 is all of this machine's.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with the key that clients must send; or set BNE_API_KEY.",
            show_default="no key is needed",
        ),
    ] = None,
    max_batch: Annotated[
        int | None,
        typer.Option(
            min=1, help="Images shown to the network together.", show_default="as the device likes"
        ),
    ] = None,
    max_delay_ms: Annotated[
        float, typer.Option(min=0, help="How long an image may wait for others.")
    ] = 5.0,
    max_queue: Annotated[int, typer.Option(min=1, help="Images in work; more are a 503.")] = 512,
    max_body_mb: Annotated[float, typer.Option(min=0.001, help="Of a request.")] = 32.0,
    max_megapixels: Annotated[float, typer.Option(min=0.001, max=64, help="Of an image.")] = 64.0,
    max_images: Annotated[int, typer.Option(min=1, help="Of a request.")] = 64,
    timeout: Annotated[
        float,
        typer.Option(min=0.1, help="Seconds for a request to arrive, and then to be answered."),
    ] = 30.0,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="To decode and compute with.", show_default="one per core"),
    ] = None,
    lean: common.Lean = None,
    mix: common.Mix = None,
    nearest: common.Nearest = None,
    device: common.Device = "auto",
) -> None:
    """Serve a model: POST /predict, /domains, /healthz, /readyz, /metrics, and a page at /.

    A new model file is taken over while the server runs. Ctrl-C answers what was asked, then stops.
    """
    import logging

    for library in ("fastapi", "uvicorn", "prometheus_client", "python_multipart"):
        require(library, "serve")
    from bne.server import apart
    from bne.server.app import Limits, Server
    from bne.server.live import Live
    from bne.server.running import read_key, run

    if max_images > max_queue:
        raise SettingsError(f"--max-images {max_images}: the queue has room for {max_queue} only.")
    key = read_key(api_key_file)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    limits = Limits(
        body=int(max_body_mb * 10**6),
        pixels=int(max_megapixels * 10**6),
        images=max_images,
        queue=max_queue,
        seconds=timeout,
        batch=max_batch,
        delay=max_delay_ms / 1000,
        threads=threads,
    )
    mode = {"lean": lean, "mix": mix, "nearest": nearest}
    live = Live(model, device, threads, mode, load=apart.load)
    known = live.model.info
    if known.expected:
        typer.echo(known.expected["sentence"], err=True)
    run(
        Server(live, limits, key),
        host,
        port,
        lambda address: typer.echo(f"Model {live.model.id} answers at {address}.", err=True),
    )
