"""`widefield demo`."""

from pathlib import Path

from widefield.cli.output import percent, print_json, print_line, print_table


def demo(
    *,
    out: Path = Path("demo"),
    audio: bool = False,
    windows: bool = False,
    data: Path | None = None,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Take the whole tour on built-in photos, words or motion, in minutes on a laptop CPU.

    Parameters
    ----------
    out
        Write the runs and report.html to this folder.
    audio
        Train on spoken words with a background instead of photos.
    windows
        Train on made windows of an accelerometer instead of photos.
    data
        Take a folder of sounds in class folders, in the place of the words.
    seed
        Seed every random draw.
    json
        Print one JSON object.
    """
    from widefield.core.hardware import keep_freed_memory
    from widefield.workflows.demo import COLUMNS
    from widefield.workflows.demo import demo as call

    keep_freed_memory()
    done = call(out=out, audio=audio, windows=windows, data=data, seed=seed)
    if json:
        print_json(done.to_json())
        return
    rows = [
        [task, *(percent(row[column].accuracy) for column in COLUMNS)]
        for task, row in done.table.items()
    ]
    print_table("linear probe on held-out examples, %", ["task", *COLUMNS], rows)
    print_line(done.pretrained.health.line())
    print_line(f"look at {done.report}  ({done.seconds:.0f} s)")
