"""YAML as far as a list of settings needs it: names and values, and no way to make them explode."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from widefield.core.files import refuse_strange

MAX_BYTES = 16 * 2**20
"""Bytes of a file at most: many class names, and no more."""
DEEPEST = 20
"""Levels of nesting at most."""


class _Loader(yaml.SafeLoader):
    """Reads plain values; refuses aliases, names that stand twice, and deep nesting."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node that is no alias and not too deep."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias (*name): write the values out")
        if self.depth == DEEPEST:
            raise yaml.YAMLError(f"it is nested more than {DEEPEST} levels deep")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping in which no name stands twice."""
        mapping = super().construct_mapping(node, deep=deep)
        if len(mapping) < len(node.value):
            raise yaml.YAMLError("a name stands twice in it")
        return mapping


class _Dumper(yaml.SafeDumper):
    """Writes values out wherever they stand, as `_Loader` reads them."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return that there are none."""
        return True


# As everybody writes them, and as the options of commands take them; YAML 1.1 asks for a point.
for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+"), list("-+0123456789")
    )


def read_yaml(path: Path) -> Any:
    """Return the plain values in the file `path`.

    Raises:
        ValueError: it is too large, no text or no YAML, or has aliases or a name twice.
    """
    try:
        refuse_strange(path, largest=MAX_BYTES)
        return yaml.load(path.read_text("utf-8"), Loader=_Loader)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError, TypeError) as error:
        words = " ".join(str(error).split())
        raise ValueError(f"{path} cannot be read as YAML: {words}") from error


def yaml_text(values: Any) -> str:
    """Return plain values as YAML, in their order.

    Example:
        >>> yaml_text({"epochs": 3, "views": ["flip"]})
        'epochs: 3\\nviews:\\n- flip\\n'
    """
    # Written as they are, these would be read back as line ends.
    breaks = set("\x85\u2028\u2029") & set(json.dumps(values, ensure_ascii=False))
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=not breaks)
