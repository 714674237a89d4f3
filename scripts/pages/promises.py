"""What the kills, the full disks and the hostile calls of `docs/promises.md` came to."""

from pages.format import read, whole


def torture() -> str:
    """Return in a sentence how trainings end that were killed at random and at weak points."""
    found = read("torture")
    kills, points = found["at_random"], found["at_weak_points"]
    return (
        f"A training killed at {whole(kills['kills'])} random instants, once a run, and resumed: "
        f"{whole(kills['identical'])} endings are bit for bit that of the run left alone. Killed "
        f"where it would hurt most, {points['identical']} of {points['kills']} are "
        "([result](../benchmarks/results/torture.json), `make torture KILLS=1000`)."
    )


def steps() -> str:
    """Return in two sentences what became of commands that were killed, or found no room."""
    return " ".join(
        _of_steps(name, what)
        for name, what in (("kills", "were killed"), ("full_disk", "found the disk full"))
    )


def _of_steps(name: str, what: str) -> str:
    commands = [command for command in read(name)["commands"].values() if command["kills"]]
    steps, broken = (sum(command[key] for command in commands) for key in ("kills", "broken"))
    return (
        f"{len(commands)} commands {what} at each step in which they touch a file, "
        f"{whole(steps)} steps in all: {broken} left something torn, lost or behind, or ended in "
        f"more than a line ([result](../benchmarks/results/{name}.json))."
    )


def calls() -> str:
    """Return in a sentence how many of the calls that a grammar made break a promise."""
    found = read("hostile")
    kinds = ("tracebacks", "hangs", "silent_misreadings", "lost_files")
    counted = ", ".join(f"{found[kind]} {kind.replace('_', ' ')}" for kind in kinds)
    return (
        f"{whole(found['calls'])} calls with odd words, damaged files and strange data: {counted} "
        f"and {found['others']} other breaks ([result](../benchmarks/results/hostile.json), "
        "`make hostile N=5000`)."
    )
