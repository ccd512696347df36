"""YAML as people write it."""

from __future__ import annotations

import re
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """Plain values only; a key that stands twice is an error instead of hiding the first."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    problem="a key must be a text", problem_mark=key.start_mark
                )
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key.value} is there twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Quotes what `_Loader` would take for something else."""


# PyYAML takes 1e-4, which has no point, for a text.
for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789")
    )


def parse(text: str | bytes) -> Any:
    """The numbers, texts, lists and groups that a text stands for.

    Raises:
        ValueError: It is not YAML, or has a key twice; the message says where.
    """
    try:
        return yaml.load(text, _Loader)  # noqa: S506  a safe loader
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def dump(content: object) -> str:
    """The text that `parse` reads the same content from."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
