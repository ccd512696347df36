"""What ends a run before its time; the message is one sentence for the user."""


class TrainingError(ValueError):
    """Training cannot begin or go on."""


class Interrupted(TrainingError):  # noqa: N818 - what the user wanted, no error
    """Training was told to stop, and has saved what it did."""
