"""Options and help of a command, from the source code of its Python function.

The function is parsed and not imported, because importing torch takes seconds.
"""

import ast
import inspect
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from cyclopts import Parameter

import widefield
from widefield.cli.help import grouped
from widefield.cli.inputs import check_inputs
from widefield.core.shared_arguments import SHARED_ARGUMENTS, arguments_of

Command = Callable[..., None]

Json = Annotated[bool, Parameter(help="Print one JSON object.")]
"""Type of the option `--json`."""

TYPES: dict[str, Any] = {
    **{kind.__name__: kind for kind in (str, int, float, bool, Path)},
    "EncoderSpec": str,
    "Data": str,
    "ImageSize": int | str,
    "Recipe": str,
    "Labels": Path,
}
"""Type of an option by the name of its type in Python."""


def like(
    module: str, *, function: str | None = None, without: Collection[str] = ()
) -> Callable[[Command], Command]:
    """Give a command the parameters and the help of a function in `module`, by default of its name.

    Parameters that the command declares have its type and default. Those in `without`, `quiet` and
    callbacks are left out.
    """

    def decorator(command: Command) -> Command:
        functions = (node for node in _tree(module).body if isinstance(node, ast.FunctionDef))
        call = next(node for node in functions if node.name == (function or command.__name__))
        doc = inspect.cleandoc(ast.get_docstring(call) or "")
        texts = SHARED_ARGUMENTS | arguments_of(doc)
        declared = dict(inspect.signature(command).parameters)
        excluded = {*without, "quiet", "on_note", "on_step", "on_epoch"}
        common = [p for p in _parameters(call, module) if p.name not in excluded]
        parameters = [_merged(p, declared.pop(p.name, None)) for p in common]
        parameters += [p for p in declared.values() if p.kind is p.KEYWORD_ONLY]
        signature = inspect.Signature(
            [p.replace(annotation=_annotation(p, texts.get(p.name))) for p in parameters]
        )

        types = {p.arg: ast.unparse(p.annotation) for p in _arguments(call) if p.annotation}
        types = {name: text.removesuffix(" | None") for name, text in types.items()}

        def wrapper(*args: Any, **kwargs: Any) -> None:
            values = {**dict(zip(signature.parameters, args, strict=False)), **kwargs}
            check_inputs(values, types)  # before torch is imported
            command(**values)

        wrapper.__name__, wrapper.__doc__ = command.__name__, plain(doc.partition("\n")[0])
        wrapper.__signature__ = signature  # type: ignore[attr-defined]
        return grouped(wrapper)

    return decorator


def plain(text: str) -> str:
    """Return a docstring's text for the command line, without what follows "In Python".

    Example:
        >>> plain("a `.csv` file. In Python also a table.")
        'A .csv file.'
    """
    text = text.partition(" In Python")[0].replace("`", "")
    return text[:1].upper() + text[1:]


def _annotation(parameter: inspect.Parameter, text: str | None) -> Any:
    """Return the type of a parameter with its help; flags that are off have no negation."""
    settings: dict[str, Any] = {} if text is None else {"help": plain(text)}
    if parameter.default is False:
        settings["negative"] = ()
    return cast(Any, Annotated)[parameter.annotation, Parameter(**settings)]


def _merged(parameter: inspect.Parameter, declared: inspect.Parameter | None) -> inspect.Parameter:
    """Return a parameter of the function, replaced by that of the command if there is one."""
    if declared is None:
        return parameter
    kind = declared.kind if declared.kind is declared.KEYWORD_ONLY else parameter.kind
    return declared.replace(kind=kind)


def _arguments(call: ast.FunctionDef) -> list[ast.arg]:
    return [*call.args.args, *call.args.kwonlyargs]


def _parameters(call: ast.FunctionDef, module: str) -> list[inspect.Parameter]:
    """Return the parameters of a function, positional or keyword-only."""
    positional, names = call.args.args, call.args.kwonlyargs
    no_default = [None] * (len(positional) - len(call.args.defaults))
    defaults = [*no_default, *call.args.defaults, *call.args.kw_defaults]
    kinds: list[Any] = [inspect.Parameter.POSITIONAL_ONLY] * len(positional)
    kinds += [inspect.Parameter.KEYWORD_ONLY] * len(names)
    return [
        inspect.Parameter(
            argument.arg,
            kind,
            default=inspect.Parameter.empty if default is None else ast.literal_eval(default),
            annotation=_type_of(argument.annotation, module),
        )
        for argument, kind, default in zip([*positional, *names], kinds, defaults, strict=True)
    ]


def _type_of(node: ast.expr | None, module: str) -> Any:
    """Return the type of an option for an annotation; `Any` if there is none."""
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
            source, alias = _alias(name, module)
            return _type_of(alias, source)
    return Any


def _alias(name: str, module: str) -> tuple[str, ast.expr | None]:
    """Return the module that defines a name of `module`, and its value."""
    for node in _tree(module).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                return module, value
            case ast.ImportFrom(module=str(source), names=names):
                if any(alias_node.name == name for alias_node in names):
                    return _alias(name, source)
    return module, None


@cache
def _tree(module: str) -> ast.Module:
    path = Path(widefield.__file__).parents[1] / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8")) if file.exists() else ast.parse("")
