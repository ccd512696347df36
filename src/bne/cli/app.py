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
from bne.cli.help import Command, Group

# An image too large is refused with a sentence of our own; PIL's warning would come on top.
warnings.filterwarnings("ignore", "Image size .* exceeds limit")

app = typer.Typer(
    name="bne",
    cls=Group,
    epilog="BNE_DEBUG=1 shows where an error came from.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command(cls=Command, epilog=demo.EPILOG)(demo.demo)
app.add_typer(data.app, name="data")
app.command(cls=Command, epilog=train.EPILOG)(train.train)
app.command(cls=Command, epilog=tune.EPILOG)(tune.tune)
app.command(cls=Command, epilog=benchmark.EPILOG)(benchmark.benchmark)
app.command(cls=Command, epilog=evaluate.EPILOG)(evaluate.evaluate)
app.command(cls=Command, epilog=analyze.EPILOG)(analyze.analyze)
app.command(cls=Command, epilog=bundle.EPILOG)(bundle.bundle)
app.command(cls=Command, epilog=predict.EPILOG)(predict.predict)
app.command(cls=Command, epilog=export.EPILOG)(export.export)
app.command(cls=Command, epilog=serve.EPILOG)(serve.serve)
app.command(cls=Command, epilog=monitor.EPILOG)(monitor.monitor)
app.command(cls=Command, epilog=enroll.ENROLL)(enroll.enroll)
app.command(cls=Command, epilog=enroll.FORGET)(enroll.forget)
app.command(cls=Command, epilog=verify.EPILOG)(verify.verify)


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
    from bne.training.environment import keep_memory

    keep_memory()
