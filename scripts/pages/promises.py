"""Results of kills, full disks, hostile calls and installations: docs/promises.md, versions.md."""

from pages.format import read, whole


def torture() -> str:
    """Return the results of killed and resumed trainings in a sentence."""
    found = read("torture")
    kills, points = found["at_random"], found["at_weak_points"]
    return (
        f"A training was killed at {whole(kills['kills'])} random instants, once a run, and "
        f"resumed: {whole(kills['identical'])} results are bit-identical to the uninterrupted "
        f"run. Of kills at critical points, {points['identical']} of {points['kills']} are "
        "([result](../benchmarks/results/torture.json), `make torture KILLS=1000`)."
    )


def steps() -> str:
    """Return the results of killed commands and of full disks in two sentences."""
    return " ".join(
        _of_steps(name, what)
        for name, what in (("kills", "were killed"), ("full_disk", "had a full disk"))
    )


def _of_steps(name: str, what: str) -> str:
    commands = [command for command in read(name)["commands"].values() if command["kills"]]
    steps, broken = (sum(command[key] for command in commands) for key in ("kills", "broken"))
    return (
        f"{len(commands)} commands {what} at each step that touches a file, {whole(steps)} steps "
        f"in all: {broken} left a damaged, missing or extra file, or printed more than one line "
        f"([result](../benchmarks/results/{name}.json))."
    )


def calls() -> str:
    """Return how many generated calls break a guarantee in a sentence."""
    found = read("hostile")
    kinds = ("tracebacks", "hangs", "silent_misreadings", "lost_files")
    counted = ", ".join(f"{found[kind]} {kind.replace('_', ' ')}" for kind in kinds)
    return (
        f"{whole(found['calls'])} calls with invalid arguments, damaged files and unusual data: "
        f"{counted} and {found['others']} other violations "
        "([result](../benchmarks/results/hostile.json), `make hostile N=5000`)."
    )


def release() -> str:
    """Return in which environments the wheel was tried, and what it installs, in two sentences."""
    found = read("release")["environments"]
    names = [name.replace(", ", " (") + ")" for name in found]
    first = next(iter(found.values()))
    return (
        f"The wheel was last installed into new environments with {', '.join(names[:-1])} and "
        f"{names[-1]}: README's commands and {first['tests'].split()[0]} tests of the public API "
        f"passed in each. Its first installation has {first['packages']} packages of "
        f"{first['megabytes'] / 1000:.1f} GB, most of it torch "
        "([result](../benchmarks/results/release.json), `make release-check SAVE=1`)."
    )
