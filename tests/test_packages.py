"""The layout's rules, read off the source: who imports whom, and which line may stand where."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from textwrap import indent

import pytest

from api import promised_names
from widefield.methods import METHODS

SOURCE = Path(__file__).parents[1] / "src" / "widefield"
LABS = SOURCE.with_name("widefield_labs")

ORDER = (
    {"core", "version"},
    {"data", "views", "encoders", "head", "metrics", "report"},
    {"methods"},
    {"config", "losses"},
    {"probes"},
    {"train"},
    {"inference"},
    {"workflows"},
    {"audits"},
    {"cli"},
)
"""Packages, the lowest first: one imports those of lower levels, and none of its own level."""

LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}

ENTRY_POINTS = {"__init__", "__main__"}
"""Files above all packages."""

HOMES = {
    r"\.backward\(": ("train/",),
    r"\bmatplotlib\b": ("report/",),
    r"(?<![.\w])print\(": ("cli/",),
    r"\bsvdvals\b": ("metrics/",),
    r"\.topk\(": ("metrics/neighbors.py",),
    r"\breset_running_stats\b": ("probes/untrained.py",),
}

ONCE = {
    "Outcome": "probes/outcome.py",
    "untrained_floor": "probes/untrained.py",
    "nearest_rows": "metrics/neighbors.py",
    "Standardization": "probes/standardize.py",
}
"""What every probe shares: the outcome, the untrained floor, the search for neighbors, and the
standardization of features."""

MAY_NAME_METHODS = ("methods/", "config/", "losses.py")
"""Where a method is defined or chosen."""

FOR_LABS = ("widefield.core", "widefield.methods", "widefield.head")
"""What a lab may import: the losses and the head that its claim is about."""


def modules(root: Path = SOURCE) -> dict[str, ast.Module]:
    """Return every file of a package, parsed, under its path in it."""
    return {str(p.relative_to(root)): _parsed(p) for p in sorted(root.rglob("*.py"))}


@cache
def _parsed(path: Path) -> ast.Module:
    """Return a file, with what a package exports by its stub as imports of types."""
    text, stub = path.read_text(), path.with_suffix(".pyi")
    if stub.exists():
        package = ".".join(path.parent.relative_to(SOURCE.parent).parts)
        exports = stub.read_text().replace("from . ", f"from {package} ")
        exports = exports.replace("from .", f"from {package}.")
        text += "\nif TYPE_CHECKING:\n" + indent(exports, "    ")
    return ast.parse(text)


def package(name: str) -> str:
    """Return the package, or the module beside the packages, that a file belongs to."""
    return name.partition("/")[0].removesuffix(".py")


def imports(tree: ast.Module, *, at_run_time: bool = False) -> set[str]:
    """Return what a file imports, anywhere in it, as full names."""
    found: set[str] = set()
    for node in _without_type_imports(tree) if at_run_time else ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def imported_packages(tree: ast.Module, *, at_run_time: bool = False) -> set[str]:
    """Return the packages of widefield whose names a file imports."""
    names = imports(tree, at_run_time=at_run_time)
    return {n.split(".")[1] for n in names if n.startswith("widefield.")} & LEVEL.keys()


def _without_type_imports(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from _without_type_imports(child)


def without_docstrings(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield every node but strings that stand alone."""
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            if not (isinstance(node, ast.Expr) and isinstance(child, ast.Constant)):
                yield child


@cache
def code(tree: ast.Module) -> str:
    """Return the source without docstrings, comments, and sentences such as error messages."""
    bare = ast.parse(ast.unparse(tree))
    for node in ast.walk(bare):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            node.value = ""
    return ast.unparse(bare)


def public_names(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Return the public classes and type aliases that a file defines, and its public constants."""
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    variables: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and not _is_type_variable(node.value):
            named = [name for target in node.targets for name in ast.walk(target)]
        else:
            named = [node.target] if isinstance(node, ast.AnnAssign) else []
        variables |= {name.id for name in named if isinstance(name, ast.Name)}
    constants = {name for name in variables if name.isupper()}
    types = {name for name in classes | variables - constants if not name.startswith("_")}
    return types, {name for name in constants if not name.startswith("_")}


def _is_type_variable(value: ast.expr) -> bool:
    return ast.unparse(value).startswith(("TypeVar(", "ParamSpec("))


def check(rule: Callable[[str, ast.Module], object], why: str, root: Path = SOURCE) -> None:
    """Fail with `why` and the files that break a rule, each with what the rule found in it."""
    found = {name: rule(name, tree) for name, tree in modules(root).items()}
    broken = [f"{name}: {problem}" for name, problem in found.items() if problem]
    assert not broken, "\n".join([why, *broken])


def test_every_file_is_in_a_package_of_the_list() -> None:
    here = {package(name) for name in modules()}
    assert here == ENTRY_POINTS | LEVEL.keys(), (
        "ORDER says which package may import which: add a new one at its level, and to the table "
        f"of docs/architecture.md ({here ^ (ENTRY_POINTS | LEVEL.keys())})"
    )


def test_packages_import_lower_ones_only() -> None:
    def rule(name: str, tree: ast.Module) -> list[str]:
        own = package(name)
        if own in ENTRY_POINTS:
            return []
        imported = imported_packages(tree)
        return sorted(other for other in imported - {own} if LEVEL[other] >= LEVEL[own])

    check(
        rule,
        "Imports go down the levels of ORDER, so that a part can be read, tested and loaded "
        "without those above it: move what is shared to a lower package, or let the caller hand "
        "it over.",
    )


def file_imports(trees: dict[str, ast.Module], package: str = SOURCE.name) -> dict[str, set[str]]:
    """Return file -> files of the package that it imports, also for the type checker alone."""
    homes = {_dotted(package, name): name for name in trees}

    def home(name: str) -> str | None:
        return homes.get(name, homes.get(name.rpartition(".")[0]))

    return {
        name: {file for file in map(home, imports(tree)) if file not in (None, name, "__init__.py")}
        for name, tree in trees.items()
        if name != "__init__.py"
    }


def _dotted(package: str, name: str) -> str:
    return f"{package}/{name}".removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def circle(arrows: dict[str, set[str]]) -> list[str]:
    """Return files of which each imports the next one and the last the first; none if none do."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return []
        found = next(filter(None, (visit(n, [*path, name]) for n in sorted(arrows[name]))), [])
        done.add(name)
        return found

    return next(filter(None, (visit(name, []) for name in arrows)), [])


@pytest.mark.parametrize("root", [SOURCE, LABS], ids=lambda path: path.name)
def test_files_import_each_other_in_no_circle(root: Path) -> None:
    found = circle(file_imports(modules(root), root.name))
    assert not found, (
        f"{' -> '.join(found)}: none of these can be read before the others. Move what two of them "
        "need to a third one, or hand it over as an argument"
    )


MAX_LINES, MAX_ARGUMENTS = 60, 9
"""Of a function, without its docstring; the public calls have as many arguments as users need."""


def sizes(tree: ast.Module) -> Iterator[tuple[str, int, int]]:
    """Yield name, lines without the docstring, and number of arguments of each function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = node.body[0]
            text = ast.get_docstring(node, clean=False)
            docstring = 0 if text is None else (first.end_lineno or 0) - first.lineno + 1
            arguments = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
            count = (
                len(arguments) + len(node.args.kwonlyargs) - (arguments[:1] in (["self"], ["cls"]))
            )
            yield node.name, (node.end_lineno or 0) - node.lineno + 1 - docstring, count


def test_functions_are_short_and_take_few_arguments() -> None:
    public = {name.rpartition(".")[2] for name in promised_names()}

    def rule(_: str, tree: ast.Module) -> list[str]:
        return [
            f"{name} has {lines} lines and {arguments} arguments"
            for name, lines, arguments in sizes(tree)
            if lines > MAX_LINES or (arguments > MAX_ARGUMENTS and name not in public)
        ]

    check(
        rule,
        f"A function has at most {MAX_LINES} lines and {MAX_ARGUMENTS} arguments: name its steps, "
        "and give what belongs together as one value.",
    )


@pytest.mark.parametrize("phrase", HOMES)
def test_some_lines_belong_to_one_package(phrase: str) -> None:
    def rule(name: str, tree: ast.Module) -> object:
        return not name.startswith(HOMES[phrase]) and re.search(phrase, code(tree))

    check(
        rule,
        f"Only {' and '.join(HOMES[phrase])} may hold {phrase}: one place trains, one draws, one "
        "prints. Call what stands there, or return the value to it.",
    )


def test_no_method_is_named_outside_its_package() -> None:
    def rule(name: str, tree: ast.Module) -> list[str]:
        if name.startswith(MAY_NAME_METHODS):
            return []
        strings = [n.value for n in without_docstrings(tree) if isinstance(n, ast.Constant)]
        named = METHODS.keys() & {value for value in strings if isinstance(value, str)}
        return sorted(named)

    check(
        rule,
        "A method is one file and an entry of METHODS; elsewhere its name would be a special case "
        "that the next method lacks: ask the method, by an attribute or a hook of `Method`.",
    )


def test_learning_rates_have_one_default() -> None:
    def rule(name: str, tree: ast.Module) -> list[str]:
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        return [
            function.name
            for function in functions
            for argument, default in zip(
                function.args.kwonlyargs, function.args.kw_defaults, strict=True
            )
            if argument.arg == "lr" and default is not None
        ]

    check(
        rule,
        "The measured learning rate stands on the settings of its method or views alone: make `lr` "
        "of the function required.",
    )


@pytest.mark.parametrize("kind", [0, 1], ids=["classes and type aliases", "constants"])
def test_public_names_stand_for_one_thing(kind: int) -> None:
    homes = defaultdict(list)
    for file, tree in modules().items():
        for name in public_names(tree)[kind]:
            homes[name].append(file)
    twice = [f"{name}: {', '.join(files)}" for name, files in homes.items() if len(files) > 1]
    assert not twice, "\n".join(
        [
            "One name with two meanings has to be looked up each time it is read: name what is "
            "different, import what is the same, or begin a name that only its file uses with _.",
            *twice,
        ]
    )


def test_what_probes_share_is_defined_once() -> None:
    found = defaultdict(list)
    carriers = []
    for file, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found[node.name].append(file)
            if isinstance(node, ast.ClassDef) and re.search(
                r"Score$|Probe(Result|Score)", node.name
            ):
                carriers.append(f"{file}: {node.name}")
    assert {name: found[name] for name in ONCE} == {name: [file] for name, file in ONCE.items()}
    assert not carriers, f"{carriers}: what a probe scored is an Outcome, whatever the measure"


def test_labs_import_what_their_claims_are_about() -> None:
    def rule(name: str, tree: ast.Module) -> list[str]:
        widefield = {n for n in imports(tree) if n.split(".")[0] == "widefield"}
        return sorted(n for n in widefield if not n.startswith(tuple(f"{a}." for a in FOR_LABS)))

    check(
        rule,
        f"A lab checks a formula of {', '.join(FOR_LABS)} on data of its own, and nothing of a "
        "run: write the rest of its simulation in src/widefield_labs.",
        root=LABS,
    )


def test_labs_are_imported_by_their_command_alone() -> None:
    def rule(name: str, tree: ast.Module) -> list[str]:
        labs = {n for n in imports(tree, at_run_time=True) if n.startswith("widefield_labs")}
        return [] if name == "cli/lab.py" else sorted(labs)

    check(
        rule,
        "The labs stand beside the product, which loads without them: only `widefield lab` may "
        "import them. Write what both need in a module of the product that a lab may import.",
    )


@pytest.mark.parametrize(
    "code",
    [
        "import widefield.cli.app",
        "from widefield.cli import main; sys.argv = ['widefield', '--help']; main()",
    ],
)
def test_no_other_command_loads_the_labs(code: str) -> None:
    program = (
        f"import sys\ntry:\n    {code}\nexcept SystemExit: pass\n"
        "loaded = [name for name in sys.modules if name.startswith('widefield_labs')]\n"
        "assert not loaded, f'imported without `widefield lab`: {loaded}'"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


def test_an_encoder_loads_without_the_readers_of_weights() -> None:
    program = (
        "import sys, widefield.encoders.encoder\n"
        "found = [name for name in sys.modules if name.startswith('widefield.encoders.weights')]\n"
        "assert not found, f'a training step would load {found}: import it where it is used'"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


STEP = ("train/step.py", "methods/simclr.py")
"""A step of the default objective of two views, from which a newcomer reads on."""


def closure(starts: Iterable[str]) -> set[str]:
    """Return the files that some files import when they run, and what these import in turn."""
    found, todo = set[str](), list(starts)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            names = imports(modules()[name], at_run_time=True)
            todo += {file for each in names for file in files_of(each)}
    return found


def files_of(name: str) -> list[str]:
    """Return the file of the module that a full name is, or is in; none of other packages."""
    parts = name.split(".")[1:] if name.startswith("widefield.") else []
    modules_of = ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
    files = [f"{module}{end}" for module in modules_of for end in (".py", "/__init__.py")]
    return [file for file in files if file in modules()][:1]


def test_a_step_is_read_in_an_hour() -> None:
    lines = {name: (SOURCE / name).read_text().count("\n") for name in sorted(closure(STEP))}
    too_much = len(lines) > 24 or sum(lines.values()) > 2600
    assert not too_much, (
        "A newcomer reads what a step imports: import types under TYPE_CHECKING, and write what a "
        f"step does not need in a file of its own ({len(lines)} files, {sum(lines.values())} "
        f"lines: {lines})"
    )


IMPORTING = """
from widefield.config.recipe import Recipe
import widefield.cli
def f(lr, *, seed): "simclr"
"""


def test_the_rules_see_what_they_forbid() -> None:
    """Each reading of the source, on source that breaks a rule."""
    tree = ast.parse(f'{IMPORTING}\nif TYPE_CHECKING:\n    import widefield.train\nx = "byol"')
    assert imported_packages(tree) == {"config", "cli", "train"}
    assert imported_packages(tree, at_run_time=True) == {"config", "cli"}
    strings = [n.value for n in without_docstrings(tree) if isinstance(n, ast.Constant)]
    assert strings == ["byol"]
    message = code(
        ast.parse('raise ValueError(f"{x}: call loss.backward() once")\nloss.backward()')
    )
    assert message.count("backward") == 1
    long = ast.parse('def f(self, a, *, b):\n    """Add."""\n    return a + b')
    assert list(sizes(long)) == [("f", 2, 2)]
    first, second = ast.parse("import widefield.b"), ast.parse("from widefield.a import x")
    arrows = file_imports({"a.py": first, "b.py": second})
    assert circle(arrows) == ["a.py", "b.py"]
    assert circle(arrows | {"b.py": set()}) == []
    names = ast.parse("class A: ...\nclass _B: ...\nSize = tuple[int, int]\nONE, _TWO = 1, 2\n")
    assert public_names(names) == ({"A", "Size"}, {"ONE"})


def test_names_of_test_files_are_unique() -> None:
    """Two of one name import as one module, and pytest then refuses whichever it reads second."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)
