"""Tables of what the processes of a run exchange, and how long they wait."""

from pages.format import percent, read, table, whole


def exchanged() -> str:
    """Return the table of bytes that a process receives in a step, by method."""
    head = ["method", "loss of one process", "gradients", "buffers", "gathered", "their gradients"]
    rows = []
    for row in read("processes")["bytes"]:
        needs = "with `--gather-distributed`" if row["gathers"] else "always"
        sizes = [row[key] for key in ("gradients", "buffers", "gathered", "gathered_gradients")]
        rows.append([f"`{row['method']}`", needs, *(f"{size / 1e6:.2f}" for size in sizes)])
    return table(head, rows)


def waiting() -> str:
    """Return the table of speed and waiting by the number of processes."""
    head = ["processes", "processor, ms", "images/s", "idle, %", "waiting, %"]
    rows = [
        [
            str(row["processes"]),
            f"{row['processor_ms_per_image']:.2f}",
            whole(row["images_per_second"]),
            percent(row["idle"]),
            percent(max(0.0, row["waiting"])),  # clocks differ by microseconds
        ]
        for row in read("processes")["times"]
    ]
    return table(head, rows)
