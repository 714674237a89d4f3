"""The commands that call a function of Python and print its result."""

from pathlib import Path
from typing import Any

from widefield.cli.output import Notes, print_json, print_line, print_result
from widefield.cli.signature import Json, like
from widefield.core.names import count_text


@like("demo")
def demo(*, json: Json = False, **arguments: Any) -> None:
    """Run the demo, and print its table."""
    from widefield.core.hardware import keep_freed_memory
    from widefield.workflows.demo import demo as call

    keep_freed_memory()
    notes = Notes()
    print_result(call(**arguments, on_note=notes.on_note), notes, json=json)


@like("probe")
def probe(*, json: Json = False, **arguments: Any) -> None:
    """Probe, and print a table of the tasks."""
    from widefield.workflows.probe import probe as call

    notes = Notes()
    print_result(call(**arguments, on_note=notes.on_note), notes, json=json)


@like("audit")
def audit(
    *, plant: str = "", out: Path | None = None, json: Json = False, **arguments: Any
) -> None:
    """Audit, and print a table of the tasks."""
    from widefield.audits.audit import audit as call

    plants = tuple(name for name in plant.split(",") if name)
    notes = Notes()
    result = call(**arguments, plant=plants, out=out, on_note=notes.on_note)
    print_result(result, notes, json=json)
    if out is not None and result.report is None:
        raise ValueError(f"{out} was not written: the notes say why; --json keeps an audit")


@like("explore")
def explore(*, out: Path, tables: Path | None = None, json: Json = False, **arguments: Any) -> None:
    """Write the page, and print what was found."""
    from widefield.workflows.explore import explore as call

    notes = Notes()
    found = call(**arguments, out=out, tables=tables, on_note=notes.on_note)
    lines = [f"{out}: {len(found.dataset)} {found.dataset.kind}"]
    if tables is not None:
        lines.insert(0, f"{tables}: {', '.join(found.data_tables())}")
    print_result(found, notes, *lines, json=json, out=out, tables=tables)


@like("classify")
def classify(*, out: Path, json: Json = False, **arguments: Any) -> None:
    """Predict classes, and print their cross-validated accuracy."""
    from widefield.workflows.classify import classify as call
    from widefield.workflows.classify import page_of

    notes = Notes()
    result = call(**arguments, out=out, on_note=notes.on_note)
    files, lines = {"out": out}, [f"{out}: the prediction of each example"]
    if result.kind == "classes":
        files["page"] = page_of(out)
        lines.insert(0, f"{page_of(out)}: the least certain predictions, to be corrected")
    print_result(result, notes, *lines, json=json, **files)


@like("search")
def search(*, out: Path, json: Json = False, **arguments: Any) -> None:
    """Write the page and the table, and print the nearest examples."""
    from widefield.workflows.search import search as call
    from widefield.workflows.search import table_of

    notes = Notes()
    found = call(**arguments, out=out, on_note=notes.on_note)
    line = f"{out}, {table_of(out)}: {len(found.paths)} examples"
    print_result(found, notes, line, json=json, out=out, table=table_of(out))


@like("embed")
def embed(*, out: Path, json: Json = False, **arguments: Any) -> None:
    """Write features, and print how many."""
    from widefield.workflows.embed import embed as call

    notes = Notes()
    embedding = call(**arguments, out=out, on_note=notes.on_note)
    n, dim = embedding.features.shape
    print_result(embedding, notes, f"{out}: {n} x {dim} features", json=json, out=out)


@like("recover")
def recover(*, feature: str | None = None, out: Path, json: Json = False, **arguments: Any) -> None:
    """Train an encoder further, and print the accuracies before and after."""
    from widefield.workflows.recover import recover as call

    notes = Notes()
    result = call(**arguments, feature=feature, out=out, on_note=notes.on_note)
    trained_on, scored_on = result.examples
    line = (
        f"{out}: encoder and wide readout after {count_text(result.epochs, 'epoch')} on "
        f"{trained_on} examples, {result.seconds:.0f} s; scored on {scored_on} others"
    )
    print_result(result, notes, line, json=json, out=out)


@like("views")
def views(*, views: str = "", out: Path, json: Json = False, **arguments: Any) -> None:
    """Draw views, and print what each policy does."""
    from widefield.workflows.draw_views import draw_views

    notes = Notes()
    policies: dict[str, Any] = {"views": tuple(views.split(","))} if views else {}
    found = draw_views(**arguments, **policies, out=out, on_note=notes.on_note)
    if json:
        print_json({**found.to_json(), "out": str(out)})
        return
    for name, summary in found.policies.items():
        print_line(f"{name}: {summary.removesuffix('.')}")
    notes.print_others(found.notes)
    print_line(f"{out}: {count_text(len(found.paths), 'example')}, each with its views beside it")
