"""`widefield pretrain`: its options are the fields of the recipe."""

import dataclasses
import inspect
import typing
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from widefield.cli.output import print_json, print_line
from widefield.recipe import Recipe, setting_help


def with_recipe_options(command: typing.Callable[..., None]) -> typing.Callable[..., None]:
    """Spell out `**settings` as one option for each field of the recipe."""
    options = [_option(field) for field in dataclasses.fields(Recipe)]
    signature = inspect.signature(command)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    command.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in [*own, *options]}
    return command


def _option(field: dataclasses.Field[Any]) -> inspect.Parameter:
    text = setting_help()[field.name]
    if field.default is not None:
        text = f"{text} [default: {field.default}]"
    hint = typing.get_type_hints(Recipe)[field.name]
    kind = typing.cast(Any, Annotated)[hint | None, Parameter(help=text, show_default=False)]
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind
    )


@with_recipe_options
def pretrain(
    data: str,
    /,
    *,
    out: Path,
    recipe: str = "default",
    resume: bool = False,
    json: bool = False,
    **settings: Any,
) -> None:
    """Train an encoder on unlabelled data, in a folder that can be resumed.

    Parameters
    ----------
    data
        photos, cifar10, a folder of images or a .npz file; +digits, +shapes, +letters plant one.
    out
        Folder of the run; must not hold another one.
    recipe
        default, or paper for the published settings.
    resume
        Go on with the run in --out, with its own settings.
    json
        Print one JSON object.
    """
    from widefield.methods.gather import rank_and_world
    from widefield.workflows.pretrain import pretrain as call

    given = {name: value for name, value in settings.items() if value is not None}
    done = call(data, out=out, recipe=recipe, resume=resume, **given)
    rank, _ = rank_and_world()
    if rank > 0:
        raise SystemExit(0 if done.finished else 130)
    if json:
        health = dataclasses.asdict(done.health)
        print_json(
            {
                "run": str(done.run),
                "steps": done.steps,
                "images_per_second": round(done.images_per_second, 1),
                "data_wait": round(done.data_wait, 4),
                "health": health,
                "finished": done.finished,
            }
        )
    elif done.finished:
        print_line(f"{done.run}: {done.steps} steps, {done.images_per_second:,.0f} images/s")
        print_line(done.health.line())
        print_line(f"next: widefield probe {done.run}")
    if not done.finished:
        print_line(f"stopped; go on with: widefield pretrain {data} --out {done.run} --resume")
        raise SystemExit(130)
