import os
import signal
import threading

import pytest

from bne.training import environment as module
from bne.training.environment import SIGNALS, noticed


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_noted_and_a_later_one_does_what_it_did(number, monkeypatch) -> None:
    seen = []
    before = signal.signal(number, lambda *_: seen.append(number))
    try:
        with noticed() as interruption:
            assert not interruption.wanted
            os.kill(os.getpid(), number)
            assert interruption.wanted
            os.kill(os.getpid(), number)
            assert seen == []  # so soon it is the same one, passed on by torchrun
            monkeypatch.setattr(module, "ECHO", 0.0)
            os.kill(os.getpid(), number)
            assert seen == [number]
        os.kill(os.getpid(), number)
        assert seen == [number, number]
    finally:
        signal.signal(number, before)


def test_other_threads_change_no_signals() -> None:
    found = []

    def work() -> None:
        with noticed() as interruption:
            found.append((interruption.wanted, signal.getsignal(signal.SIGINT)))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(False, before)]
