"""Students of a teacher: docs/start.md."""

from pages.format import percent, read, table


def distill() -> str:
    """Return the linear-probe accuracy of the teacher and of each student."""
    result = read("distill")
    seconds = {name: f"{value:.0f}" for name, value in result["processor_seconds"].items()}
    rows = [
        [name, percent(accuracy), seconds.get(name, "")]
        for name, accuracy in result["accuracy"].items()
    ]
    return table(["encoder", "CIFAR-10, %", "CPU seconds"], rows)
