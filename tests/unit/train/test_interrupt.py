"""Signals that are held back between two steps."""

import signal

import pytest

from widefield.train.interrupt import StopRequest


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_noted_once_and_then_delivered(sign: signal.Signals) -> None:
    received: list[int] = []
    before = signal.signal(sign, lambda number, frame: received.append(number))
    try:
        with StopRequest() as request:
            signal.raise_signal(sign)
            assert (request.signal, received) == (sign, [])
            signal.raise_signal(sign)  # the second is not held back
            assert received == [sign]
        request.deliver(request.signal)
        assert received == [sign, sign]
    finally:
        signal.signal(sign, before)


def test_handlers_are_given_back() -> None:
    before = [signal.getsignal(sign) for sign in (signal.SIGINT, signal.SIGTERM)]
    with StopRequest() as request:
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert [signal.getsignal(sign) for sign in (signal.SIGINT, signal.SIGTERM)] == before
    request.deliver(request.signal)  # nothing came, nothing happens


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopRequest() as request:
            signal.raise_signal(signal.SIGINT)
            assert request.signal == 0
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
