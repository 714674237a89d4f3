"""The command: `python -m studies list | run ID... | judge ID... | page`."""

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from studies import page, registry, runner
from studies.packs import Packs, generated
from studies.study import SCALES, ScaleName, Study
from widefield.core.names import check_name

WORK = Path(__file__).parent / "work"


def main(words: list[str] | None = None) -> int:
    """Parse and run a command; return its exit status."""
    args = _parser().parse_args(words)
    try:
        args.call(args)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: the same command goes on", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    commands = parser.add_subparsers(required=True)
    listing = commands.add_parser("list", help="every row of the papers, and what decides it")
    listing.add_argument("--json", action="store_true")
    listing.set_defaults(call=_list)
    run = commands.add_parser("run", help="train and measure what is missing")
    run.add_argument("ids", nargs="+", metavar="ID", help="of a study or finding; all for all")
    run.add_argument("--scale", default="cpu", help=f"one of {', '.join(SCALES)}")
    run.add_argument("--data", type=Path, default=Path("data"), help="folder of the data packs")
    run.add_argument("--work", type=Path, default=WORK, help="folder that keeps trained encoders")
    run.add_argument("--results", type=Path, default=runner.RESULTS)
    run.add_argument("--processes", type=int, default=os.cpu_count(), help="runs at a time")
    run.add_argument("--dry-run", action="store_true", help="print the runs and their time")
    run.add_argument("--anew", action="store_true", help="drop the results that are there")
    run.set_defaults(call=_run)
    again = commands.add_parser("judge", help="decide findings again, from the runs that are kept")
    again.add_argument("ids", nargs="+", metavar="ID", help="of a study or finding; all for all")
    again.add_argument("--results", type=Path, default=runner.RESULTS)
    again.set_defaults(call=_judge)
    written = commands.add_parser("page", help="write docs/studies.md from the results")
    written.set_defaults(call=lambda args: page.write())
    return parser


def _list(args: argparse.Namespace) -> None:
    rows = page.listing()
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(f"{row['id']:28} {row['by']:34} {row['status']}")


def _run(args: argparse.Namespace) -> None:
    check_name("scale", args.scale, SCALES)
    if args.processes < 1:
        raise ValueError(f"--processes must be 1 or more, got {args.processes}")
    packs = (
        generated(args.work / "generated")
        if args.scale == "tiny"
        else Packs(args.data, args.work / "drawn")
    )
    own = {name: _own_command(name) for name in args.ids}
    commands = [command for command in own.values() if command]
    chosen = _chosen([name for name, command in own.items() if not command], args.scale)
    if args.dry_run:
        print("".join(f"{command}\n" for command in commands), end="")
        for study in chosen:
            _print_plan(study, args, packs)
        return
    for command in commands:
        if subprocess.run([sys.executable, "-m", *shlex.split(command)], check=False).returncode:
            raise ValueError(f"{command} failed")
    for study in chosen:
        _run_one(study, args, packs)


def _judge(args: argparse.Namespace) -> None:
    """Rewrite what follows from the runs of a study in each of its results."""
    names = list(registry.studies()) if args.ids == ["all"] else args.ids
    for study in map(registry.study, names):
        for path in sorted(args.results.glob(f"{study.id}.*.json")):
            runner.write(path, runner.judged(study, runner.read(path)))


def _own_command(name: str) -> str | None:
    """Return the test or lab that decides a row of the papers; None for a study.

    Raises:
        ValueError: the row has another command, or none.
    """
    row = next((row for row in registry.rows() if row["id"] == name), None)
    if row is None or "study" in row:
        return None
    command = page.command(row)
    if not command.startswith(("pytest ", "widefield lab ")):
        raise ValueError(f"{name} is no study: " + (f"`{command}`" if command else "not run yet"))
    return command


def _chosen(ids: list[str], scale: ScaleName) -> list[Study]:
    """Return the studies that are named, each once."""
    names = list(registry.studies()) if ids == ["all"] else ids
    chosen = {study.id: study for study in map(registry.study, names)}
    for study in list(chosen.values()):
        if scale in study.scales:
            continue
        if study.commit and ids != ["all"]:
            raise ValueError(f"{study.id} is closed: git checkout {study.commit} has its code")
        if ids != ["all"]:
            why = study.missing.get(scale, f"it has {', '.join(study.scales)}")
            raise ValueError(f"{study.id} has no scale {scale}: {why}")
        del chosen[study.id]
    return list(chosen.values())


def _print_plan(study: Study, args: argparse.Namespace, packs: Packs) -> None:
    kept = runner.Results(study, args.scale, folder=args.results)
    left, every = len(kept.missing), len(runner.tasks(study, args.scale, kept.runs))
    minutes = runner.seconds_ahead(kept, packs) / args.processes / 60
    print(f"{study.id}: {left} of {every} runs, {minutes:.0f} min")


def _run_one(study: Study, args: argparse.Namespace, packs: Packs) -> None:
    if args.anew:
        (args.results / f"{study.id}.{args.scale}.json").unlink(missing_ok=True)
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed} runs")
    with Progress(*columns, TimeRemainingColumn(), transient=True) as bar:
        shown: TaskID = bar.add_task(study.id, total=None)
        kept = runner.run_study(
            study,
            args.scale,
            packs=packs,
            work=args.work,
            processes=args.processes,
            results=args.results,
            progress=lambda _, done, total: bar.update(shown, completed=done, total=total),
        )
    folder = runner.FIGURES if args.results == runner.RESULTS else args.results
    drawn = runner.draw(study, args.scale, packs=packs, work=args.work, folder=folder)
    for name, verdict in kept.content.get("findings", {}).items():
        print(f"{name}: {verdict['verdict']} ({page.size_of(verdict)})")
    print(f"{study.id}: {kept.path}" + (f" and {drawn}" if drawn else ""))


if __name__ == "__main__":
    raise SystemExit(main())
