"""Signals that are held back between two steps."""

import signal

import pytest

from widefield.train.interrupt import StopRequest


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("other", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_noted_once_and_the_first_is_delivered(
    sign: signal.Signals, other: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[int] = []
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda number, frame: received.append(number))
    with StopRequest() as request:
        signal.raise_signal(sign)
        signal.raise_signal(other)  # a shell and a scheduler at once
        assert (request.signal, received) == (sign, [])
        monkeypatch.setattr("widefield.train.interrupt.STOP_TIMEOUT", -1.0)
        signal.raise_signal(other)  # an impatient user
        assert received == [other]
    request.send_signal(request.signal)
    assert received == [other, sign]


def test_handlers_are_given_back() -> None:
    before = [signal.getsignal(sign) for sign in (signal.SIGINT, signal.SIGTERM)]
    with StopRequest() as request:
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert [signal.getsignal(sign) for sign in (signal.SIGINT, signal.SIGTERM)] == before
    request.send_signal(request.signal)  # nothing came, nothing happens


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopRequest() as request:
            signal.raise_signal(signal.SIGINT)
            assert request.signal == 0
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
