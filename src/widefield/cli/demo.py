"""`widefield demo`."""

from pathlib import Path

from widefield.cli.output import percent, print_json, print_line, print_table


def demo(*, out: Path = Path("demo"), seed: int = 0, json: bool = False) -> None:
    """Take the whole tour on built-in photos, in minutes on a laptop CPU.

    Parameters
    ----------
    out
        Write the runs and report.html to this folder.
    seed
        Seed every random draw.
    json
        Print one JSON object.
    """
    from widefield.train.hardware import keep_freed_memory
    from widefield.workflows.demo import COLUMNS
    from widefield.workflows.demo import demo as call

    keep_freed_memory()
    done = call(out=out, seed=seed)
    if json:
        print_json(done.to_json())
        return
    rows = [
        [task, *(percent(row[column].accuracy) for column in COLUMNS)]
        for task, row in done.table.items()
    ]
    print_table("linear probe on held-out photos, %", ["task", *COLUMNS], rows)
    print_line(done.pretrained.health.line())
    print_line(f"look at {done.report}  ({done.seconds:.0f} s)")
