"""Why a cut is refused: one small class for each reason, so that a caller can tell them apart."""

from __future__ import annotations

from gapsl.common.errors import InputError


class CutError(InputError):
    """The model cannot be trained in two halves as it is; the message says what to change."""


class RunError(CutError):
    """A half fails on a batch of the shape it is going to get."""


class ActivationError(CutError):
    """What leaves the device is not one floating-point tensor with the batch in front."""


class LogitsError(CutError):
    """What leaves the server is not one row of logits for each sample."""


class InPlaceError(CutError):
    """A half overwrites what it was given."""


class SmallBatchError(CutError):
    """A half cannot work on a single sample."""


class GradientError(CutError):
    """A gradient does not arrive where it is needed."""


class SecondDerivativeError(CutError):
    """The server's half cannot be differentiated twice."""


class SharedParameterError(CutError):
    """The halves own a tensor in common, which two machines cannot."""


class LazyError(CutError):
    """A layer does not know its size yet, so there is nothing to send, count or average."""
