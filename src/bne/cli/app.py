"""`bne`: all verbs together."""

import warnings
from typing import Annotated

import typer

from bne import __version__
from bne.cli import (
    analyze,
    benchmark,
    bundle,
    data,
    demo,
    enroll,
    evaluate,
    export,
    monitor,
    predict,
    serve,
    train,
    tune,
    verify,
)

# An image too large is refused with a sentence of our own; PIL's warning would come on top.
warnings.filterwarnings("ignore", "Image size .* exceeds limit")

app = typer.Typer(
    name="bne",
    epilog="BNE_DEBUG=1 shows where an error came from.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command(epilog=demo.EPILOG)(demo.demo)
app.add_typer(data.app, name="data")
app.command(epilog=train.EPILOG)(train.train)
app.command(epilog=tune.EPILOG)(tune.tune)
app.command(epilog=benchmark.EPILOG)(benchmark.benchmark)
app.command(epilog=evaluate.EPILOG)(evaluate.evaluate)
app.command(epilog=analyze.EPILOG)(analyze.analyze)
app.command(epilog=bundle.EPILOG)(bundle.bundle)
app.command(epilog=predict.EPILOG)(predict.predict)
app.command(epilog=export.EPILOG)(export.export)
app.command(epilog=serve.EPILOG)(serve.serve)
app.command(epilog=monitor.EPILOG)(monitor.monitor)
app.command(epilog=enroll.ENROLL)(enroll.enroll)
app.command(epilog=enroll.FORGET)(enroll.forget)
app.command(epilog=verify.EPILOG)(verify.verify)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bne {__version__}")
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print and exit."),
    ] = False,
) -> None:
    """Batch Normalization Embeddings for domain generalization."""
