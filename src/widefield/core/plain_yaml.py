"""The subset of YAML that settings need, without aliases, which could expand without bound."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from widefield.core.files import check_plain_file

MAX_BYTES = 16 * 2**20
"""Maximum size of a file; it has room for many class names."""
# Chosen by hand: PyYAML calls itself once a level.
MAX_DEPTH = 20
"""Maximum levels of nesting."""


class _Loader(yaml.SafeLoader):
    """Loader of plain values without aliases, duplicate keys or deep nesting."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias (*name): write the values out")
        if self.depth == MAX_DEPTH:
            raise yaml.YAMLError(f"it is nested more than {MAX_DEPTH} levels deep")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep=deep)
        if len(mapping) < len(node.value):
            raise yaml.YAMLError("a name stands twice in it")
        return mapping


class _Dumper(yaml.SafeDumper):
    """Dumper without aliases, which `_Loader` does not accept."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


# Floats such as 1e-3, as the options of commands take them; YAML 1.1 requires a decimal point.
for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"),
        list("-+0123456789"),
    )


def read_yaml(path: Path) -> Any:
    try:
        check_plain_file(path, largest=MAX_BYTES)
        return yaml.load(path.read_text("utf-8"), Loader=_Loader)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError, TypeError) as error:
        message = " ".join(str(error).split())
        raise ValueError(f"{path} cannot be read as YAML: {message}") from error


def yaml_text(values: Any) -> str:
    # Unescaped, these would be parsed as line ends.
    line_ends = set("\x85\u2028\u2029") & set(json.dumps(values, ensure_ascii=False))
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=not line_ends)
