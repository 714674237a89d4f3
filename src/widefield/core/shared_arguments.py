"""Arguments that several calls share, each described once.

Importing it loads neither torch nor numpy: the command line takes its help from the same texts.
"""

import inspect
import re
import textwrap
from collections.abc import Callable
from typing import TypeVar

Call = TypeVar("Call", bound=Callable[..., object])

_SECTION = re.compile(r"^Args:\n((?:    .*\n|\n)*)", re.MULTILINE)


def arguments_of(doc: str) -> dict[str, str]:
    """Return the text of each argument in a docstring of Google's style."""
    section = _SECTION.search(f"{doc}\n")
    found = re.findall(r"^ {4}(\w+): (.*\n(?: {8}.*\n)*)", section[1] if section else "", re.M)
    return {name: " ".join(text.split()) for name, text in found}


SHARED_ARGUMENTS = arguments_of("""
Args:
    encoder: a run's folder, a file of weights, `timm:NAME`, `torchvision:NAME`, `random` or
        `pixels`. In Python also a module; it is never changed. Its images are normalized as its
        `pretrained_cfg` states, those of torchvision's modules as for ImageNet, and those of any
        other module lie in [0, 1].
    data: images or sounds, as `pretrain` takes them.
    labels: a `.csv` file in place of the labels of the data: column path, and one for each task.
        Examples without one of them are left out. In Python also a table, as `classify` takes it.
    group: examples that belong together, such as frames of a video: a column of the labels, a
        label array, folder:1 for the first folder of a path, or regex:PATTERN for what its first
        ( ) matches. No group is divided, and intervals count groups; by default as in the run, for
        its data.
    exclude: a `.csv` file with the columns path and decision, as the pages save it; examples with
        the decision exclude are left out. In Python also a table or path -> decision.
    features: pooled, wide for these and directions of earlier stages and of the input, feature-map
        for those before pooling, or projected for those after the projector of the run.
    dim: width of wide features; default: see `fit_readout`.
    max_examples: take a class-balanced first N examples.
    image_size: side of square images, or HEIGHTxWIDTH, for an encoder that no run trained; by
        default the size of the encoder, or of the data.
    out: an `.html` file, which loads no other files.
    overwrite: replace existing files.
    quiet: show no progress.
    on_note: called before the work with each note on the data and the encoder, such as `print`.
""")
"""Text of each argument, unless the docstring of a call has another one."""


_ERRORS = "Raises:\n    ValueError: invalid input; the message names the remedy.\n\n"


def describe_arguments(call: Call) -> Call:
    """Add shared arguments, in the order of its names, and errors to the docstring of a call."""
    doc = f"{inspect.cleandoc(call.__doc__ or '')}\n"
    texts = SHARED_ARGUMENTS | arguments_of(doc)
    lines = [
        textwrap.fill(f"    {name}: {texts[name]}", width=92, subsequent_indent=" " * 8)
        for name in inspect.signature(call).parameters
        if name in texts
    ]

    def completed(section: re.Match[str]) -> str:
        settings = re.findall(r"^ {4}\*\*.*\n(?: {8}.*\n)*", section[1], re.MULTILINE)
        errors = "" if "Raises:" in doc else _ERRORS
        return "\n".join(["Args:", *lines, *(text.rstrip() for text in settings)]) + f"\n\n{errors}"

    call.__doc__ = _SECTION.sub(completed, doc)
    return call
