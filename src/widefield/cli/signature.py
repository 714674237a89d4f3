"""Options and help of a command, read from the source of the Python call that it makes.

Nothing is imported for them: torch takes seconds, and help is to be there at once.
"""

import ast
import inspect
import re
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from cyclopts import Parameter

import widefield
from widefield.cli.help import grouped

Command = Callable[..., None]

Json = Annotated[bool, Parameter(help="Print one JSON object.")]
"""Type of the option `--json`."""

TYPES: dict[str, Any] = {
    **{kind.__name__: kind for kind in (str, int, float, bool, Path)},
    "EncoderSpec": str,
    "Data": str,
    "Recipe": str,
    "Labels": Path,
}
"""What the word of an option is where the Python call takes a type of this name."""


def like(module: str, *, without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Give a command the parameters and the help of the call of its name in `module`.

    A parameter that the command declares itself has the command's type and default. Those in
    `without` are left out, as are `quiet`, whose opposite a terminal wants, and callbacks.

    Args:
        module: full name of the module.
        without: names of parameters that the command line does not have.
    """

    def decorate(command: Command) -> Command:
        call = _call(module, command.__name__)
        doc = inspect.cleandoc(ast.get_docstring(call) or "")
        texts = arguments_of(doc)
        own = dict(inspect.signature(command).parameters)
        left_out = {*without, "quiet", "on_step", "on_epoch"}
        shared = [p for p in _parameters(call, module) if p.name not in left_out]
        chosen = [_merged(p, own.pop(p.name, None)) for p in shared]
        chosen += [p for p in own.values() if p.kind is p.KEYWORD_ONLY]
        signature = inspect.Signature(
            [p.replace(annotation=_annotation(p, texts.get(p.name))) for p in chosen]
        )

        def called(*args: Any, **kwargs: Any) -> None:
            command(**dict(zip(signature.parameters, args, strict=False)), **kwargs)

        called.__name__, called.__doc__ = command.__name__, plain(doc.partition("\n")[0])
        called.__signature__ = signature  # type: ignore[attr-defined]
        return grouped(called)

    return decorate


def arguments_of(doc: str) -> dict[str, str]:
    """Return the text on each argument in a docstring of Google's style.

    Example:
        >>> arguments_of('''Add.
        ...
        ... Args:
        ...     x: first
        ...         term.
        ...     y: second term.
        ... ''')
        {'x': 'first term.', 'y': 'second term.'}
    """
    section = re.search(r"^Args:\n((?:    .*\n|\n)*)", f"{doc}\n", re.MULTILINE)
    found = re.findall(r"^ {4}(\w+): (.*\n(?: {8}.*\n)*)", section[1] if section else "", re.M)
    return {name: " ".join(text.split()) for name, text in found}


def plain(text: str) -> str:
    """Return a docstring's text as the command line shows it.

    What follows "In Python" is not for the prompt.

    Example:
        >>> plain("a `.csv` file. In Python also a table.")
        'A .csv file.'
    """
    text = text.partition(" In Python")[0].replace("`", "")
    return text[:1].upper() + text[1:]


def _annotation(parameter: inspect.Parameter, text: str | None) -> Any:
    """Return the type of a parameter with its help; a switch that is off has no opposite."""
    settings: dict[str, Any] = {} if text is None else {"help": plain(text)}
    if parameter.default is False:
        settings["negative"] = ()
    return cast(Any, Annotated)[parameter.annotation, Parameter(**settings)]


def _merged(parameter: inspect.Parameter, own: inspect.Parameter | None) -> inspect.Parameter:
    """Return a parameter of the call as the command declares it, if it does."""
    if own is None:
        return parameter
    kind = own.kind if own.kind is own.KEYWORD_ONLY else parameter.kind
    return own.replace(kind=kind)


def _parameters(call: ast.FunctionDef, module: str) -> list[inspect.Parameter]:
    """Return the parameters of a call; those that may be given by position are to be so given."""
    places, names = call.args.args, call.args.kwonlyargs
    no_default = [None] * (len(places) - len(call.args.defaults))
    defaults = [*no_default, *call.args.defaults, *call.args.kw_defaults]
    kinds: list[Any] = [inspect.Parameter.POSITIONAL_ONLY] * len(places)
    kinds += [inspect.Parameter.KEYWORD_ONLY] * len(names)
    return [
        inspect.Parameter(
            argument.arg,
            kind,
            default=inspect.Parameter.empty if default is None else ast.literal_eval(default),
            annotation=_type_of(argument.annotation, module),
        )
        for argument, kind, default in zip([*places, *names], kinds, defaults, strict=True)
    ]


def _type_of(node: ast.expr | None, module: str) -> Any:
    """Return the type of the word for an annotation; one that no word can be is `Any`."""
    match node:
        case ast.Constant(value=None):
            return None
        case ast.BinOp(left=left, right=right):
            first, second = _type_of(left, module), _type_of(right, module)
            return Path if (first, second) == (str, Path) else first | second
        case ast.Subscript(value=ast.Name(id="Literal"), slice=choices):
            return cast(Any, Literal)[ast.literal_eval(choices)]
        case ast.Name(id=name) if name in TYPES:
            return TYPES[name]
        case ast.Name(id=name):
            home, alias = _alias(name, module)
            return _type_of(alias, home)
    return Any


def _alias(name: str, module: str) -> tuple[str, ast.expr | None]:
    """Return in which module a name of `module` is defined, and as what."""
    for node in _tree(module).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                return module, value
            case ast.ImportFrom(module=str(home), names=names):
                if any(imported.name == name for imported in names):
                    return _alias(name, home)
    return module, None


def _call(module: str, name: str) -> ast.FunctionDef:
    calls = (node for node in _tree(module).body if isinstance(node, ast.FunctionDef))
    return next(call for call in calls if call.name == name)


@cache
def _tree(module: str) -> ast.Module:
    path = Path(widefield.__file__).parents[1] / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8")) if file.exists() else ast.parse("")
