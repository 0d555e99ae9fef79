"""How Sphinx makes the site: `make docs`.

The source folder is the whole repository, so that links between pages, to the benchmarks and to examples are the same
here as in the repository.
"""

from __future__ import annotations

import importlib.metadata
import re
from typing import Any

from pygments.lexers.special import TextLexer

project = "Weft"
copyright = "the Weft authors"
release = importlib.metadata.version("weft")
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/README.md",
    "benchmarks/**/README.md",
    "deploy/README.md",
    "examples/README.md",
]
exclude_patterns = [".venv*", "build"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.header"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
autodoc_mock_imports = ["jax", "optax"]
default_role = "code"
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"Weft {release}"
html_logo = html_favicon = "../src/weft/dashboard/static/icon.svg"
html_static_path: list[str] = []
html_copy_source = False

_DOCTEST = re.compile(r"^\s*>>>")
_OPTION = re.compile(r"^( +)([\w, ()]+: .*)")


def _as_restructured_text(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with `code` in backticks: a paragraph ends before an example and before a list, options
    that stand indented below a heading are a list."""
    made: list[str] = []
    hanging = 0
    for line in lines:
        begins = _DOCTEST.match(line) and not _DOCTEST.match(made[-1] if made else "")
        is_indented_less = bool(made) and _indent(line) < _indent(made[-1])
        if option := _OPTION.match(line):
            made += ["", f"{option[1]}* {option[2]}"]
            hanging = len(option[1])
            continue
        if hanging and _indent(line) > hanging:
            made.append(" " * (hanging + 2) + line.lstrip())
            continue
        hanging = 0
        if (begins or is_indented_less) and made and made[-1].strip():
            made.append("")
        made.append(line.replace("**", r"\*\*") if "**" in line and line.count("**") % 2 else line)
    lines[:] = made


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip()) if line.strip() else 0


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _as_restructured_text)
    app.add_lexer("mermaid", TextLexer)
