"""Docstrings and comments that name a module, or a member of one, name what there is."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Final

from tests.source_trees import ROOT, source_nodes

PRODUCT: Final = ("app", "backend", "spark", "migrations")
# `package.module`, `module.name`, `package.module.Class.method`.
REFERENCE: Final = re.compile(r"`([a-z_]\w*(?:\.\w+)+)`")
# Settings of Kafka, Spark and obstore, and files, begin like modules of ours.
OTHERS: Final = re.compile(
    r"(bootstrap|controller\.quorum|kafka|log\.dirs?|metadata\.log|remote\.log|replica\.alter|sasl\.jaas|spark\.python)\b.*"
    r"|(store|client)\.(aws_endpoint|allow_http)"
    r"|.*\.(bytes|days|enable|enabled|id|ids|interval|ms|name|properties|timeout)"
    r"|.*\.(py|pyi|tsv|json|toml|md|sh)"
)


def _modules() -> dict[str, Path]:
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for folder in (*PRODUCT, "tests")
        for path in (ROOT / folder).rglob("*.py")
    }


@cache
def _names(path: Path) -> frozenset[str]:
    """Every name that the module defines, imports or uses."""
    names = set()
    for node in source_nodes(path):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                names.add(name)
            case ast.alias(name=name, asname=alias):
                names.add(alias or name)
    return frozenset(names)


def test_a_module_that_a_text_names_is_there() -> None:
    modules = _modules()
    by_ending: dict[str, list[Path]] = defaultdict(list)
    for module, path in modules.items():
        parts = module.split(".")
        for start in range(len(parts)):
            by_ending[".".join(parts[start:])].append(path)
    beginnings = {part for module in modules for part in module.split(".")}

    def is_there(reference: str) -> bool:
        parts = reference.split(".")
        for size in range(len(parts), 0, -1):
            paths = by_ending.get(".".join(parts[:size]))
            if paths:
                return size == len(parts) or any(parts[size] in _names(path) for path in paths)
        return False

    dead = [
        f"{path.relative_to(ROOT)}: {reference}"
        for module, path in modules.items()
        if module.startswith(PRODUCT)
        for reference in REFERENCE.findall(path.read_text())
        if reference.partition(".")[0] in beginnings and not OTHERS.fullmatch(reference) and not is_there(reference)
    ]
    assert not dead, "\n".join(dead)
