"""Ways to damage a file, and words that fit nowhere."""

import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ODD = (
    *["", " ", "-1", "0", "1.5", "nan", "inf", "1e99", "9" * 25, "9" * 5000, "None", "True", "abc"],
    *["é", "\x1b[2J\x07", "\udcff", "a" * 300, "a" * 5000, "../..", "/", ".", "~", "-", "--"],
    *[
        "/dev/null",
        "/proc/self/mem",
        "/proc/x/y",
        "[1,2]",
        '{"a":1}',
        "a\nb",
        "photos+",
        "+",
        "a+b",
    ],
    *["timm:", "torchvision:", "timm:hf-hub:a/b", "@", "#", "%s", "${HOME}", "*", "a/b/c", "run"],
    *["data.npz", "taken.npz", "taken", "dangling", "run/run.yaml", "w.pth", "audit.json", "x.svg"],
)
"""Words that fit nowhere, or somewhere else."""


def truncate(file: Path, rng: random.Random) -> None:
    file.write_bytes(file.read_bytes()[: rng.randrange(file.stat().st_size + 1)])


def flip(file: Path, rng: random.Random) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(rng.choice((1, 1, 8)) if content else 0):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)


def overwrite(file: Path, rng: random.Random) -> None:
    content = (
        b"",
        b"\0" * 99,
        b"\xff\xfe" * 9,
        b"PK\x05\x06" + bytes(18),
        b"{}",
        b"[]",
        b"null",
        b"a,b\n1",
    )
    file.write_bytes(rng.choice(content))


def append(file: Path, rng: random.Random) -> None:
    file.write_bytes(file.read_bytes() + rng.randbytes(rng.choice((1, 20))))


def remove(file: Path, rng: random.Random) -> None:
    file.unlink()


def into_folder(file: Path, rng: random.Random) -> None:
    file.unlink()
    file.mkdir()


def into_link(file: Path, rng: random.Random) -> None:
    file.unlink()
    file.symlink_to(rng.choice(("gone", file.name, "/dev/null", "..")))


def into_pipe(file: Path, rng: random.Random) -> None:
    file.unlink()
    os.mkfifo(file)


def exchange(file: Path, rng: random.Random) -> None:
    others = [p for p in file.parents[0].rglob("*") if p.is_file()]
    file.write_bytes(rng.choice(others).read_bytes())


def swell(file: Path, rng: random.Random) -> None:
    os.truncate(file, 2**34)  # sparse: it takes no room


def edit_text(file: Path, rng: random.Random) -> None:
    """Change a line or a value of a text file."""
    lines = file.read_text("utf-8", errors="replace").splitlines() or [""]
    place = rng.randrange(len(lines))
    name, separator, _ = lines[place].partition(":")
    odd = rng.choice([word for word in ODD if len(word) < 400 and word.isprintable()])
    match rng.randrange(4):
        case 0:
            lines[place] = f"{name}{separator or ':'} {odd}"
        case 1:
            del lines[place]
        case 2:
            lines.insert(place, lines[place])
        case _:
            lines[place] = (
                f"{name}: {rng.choice(('&a [*a]', '*b', '{', '- -', '!!python/name:os'))}"
            )
    file.write_text("\n".join(lines), "utf-8")


def edit_json(file: Path, rng: random.Random) -> None:
    """Put another value into a node of a JSON file."""
    node = root = json.loads(file.read_text())
    values: tuple[Any, ...] = (None, -1, 1e308, "x", [], {}, True, [[]], "\x1b[2J", 10**30, ["a"])
    while True:
        keys: Sequence[Any] = list(node) if isinstance(node, dict) else range(len(node))
        key = rng.choice(keys)
        if isinstance(node[key], dict | list) and node[key] and rng.random() < 0.8:
            node = node[key]
            continue
        if rng.random() < 0.2:
            del node[key]
        else:
            node[key] = rng.choice(values)
        break
    file.write_text(json.dumps(root))


DAMAGE: tuple[Callable[[Path, random.Random], None], ...] = (
    *(
        truncate,
        flip,
        overwrite,
        append,
        remove,
        into_folder,
        into_link,
        into_pipe,
        exchange,
        swell,
    ),
)
