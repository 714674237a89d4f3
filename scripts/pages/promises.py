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
