"""What the documentation shows is what happens: its Python is run, its links lead somewhere."""

from __future__ import annotations

import codeop
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_UNRUN = 6
"""Those that want a GPU, a tool that is not here, or are a part of an example that is run."""
LINKED = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "examples", "benchmarks", "deploy")


def _pages_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pages", ROOT / "tests/docs/pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["pages"] = module
    spec.loader.exec_module(module)
    return module


PAGES = _pages_module()


@pytest.mark.parametrize("page", [str(path.relative_to(ROOT)) for path in PAGES.pages()])
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "WEFT_TUNE_RESULTS": str(tmp_path / "results"),
        "PYTHONPATH": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/docs/pages.py"), str(ROOT / page)],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4_000:]


def test_few_blocks_are_not_run() -> None:
    unrun = [page for page in PAGES.pages() for block in PAGES.blocks_of(page.read_text()) if not block.is_run]
    assert len(unrun) <= MAX_UNRUN


def test_no_block_of_python_escapes_the_tests() -> None:
    for page in PAGES.pages():
        text = page.read_text()
        shown = [block for block in PAGES.blocks_of(text) if f"```python\n{block.code}" in text]
        assert len(shown) == text.count("```python"), f"{page}: a block is indented, or its fence is another one"


def test_every_shown_block_can_be_pasted_into_an_interactive_session() -> None:
    broken = []
    for page in PAGES.pages():
        text = page.read_text()
        for block in PAGES.blocks_of(text):
            line = _where_a_prompt_ends_it_early(block.code)
            if line is not None and f"```python\n{block.code}" in text:
                broken.append(f"{page.relative_to(ROOT)}:{block.line + line + 1}")
    assert broken == []


def test_a_block_with_an_empty_line_in_a_class_can_not_be_pasted() -> None:
    assert _where_a_prompt_ends_it_early("class A:\n    x = 1\n\n    y = 2\n") == 3
    assert _where_a_prompt_ends_it_early("for x in y:\n    z\nw\n") == 2
    assert _where_a_prompt_ends_it_early("class A:\n    x = 1\n    y = 2\n\nw\n") is None


def _where_a_prompt_ends_it_early(code: str) -> int | None:
    """The line at which Python's prompt, up to 3.12, finds an error: an empty line ends a class, a function, a loop."""
    compiler, entered = codeop.CommandCompiler(), []
    for number, line in enumerate(f"{code}\n".split("\n")):
        entered.append(line)
        try:
            is_whole = compiler("\n".join(entered), symbol="single") is not None
        except SyntaxError:
            return number
        if is_whole:
            entered = []
    return None


def test_what_a_block_must_print_is_compared(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint('one', 1.5)\n```\n\n<!-- like:\none …\n-->\n\n```text\none 2.5\n```\n")
    PAGES.run_page(page)
    page.write_text("```python\nprint('one')\n```\n\n```text\ntwo\n```\n")
    with pytest.raises(AssertionError, match="the page says"):
        PAGES.run_page(page)


def test_pages_show_what_a_run_has_printed_and_no_ellipsis_for_it() -> None:
    unlike = [
        f"{page.relative_to(ROOT)}:{block.line}"
        for page in PAGES.pages()
        for block in PAGES.blocks_of(page.read_text())
        if block.output is not None and ("…" in block.output or not block.may_print(block.output))
    ]
    assert unlike == []


def test_every_link_between_pages_leads_somewhere() -> None:
    dead = []
    for page in _linked_pages():
        for target in re.findall(r"\]\(([^)\s]+)\)", _prose(page.read_text())):
            path, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", target):
                continue  # another site's
            there = (page.parent / path).resolve() if path else page
            if not there.exists() or (anchor and there.suffix == ".md" and anchor not in _anchors(there)):
                dead.append(f"{page.relative_to(ROOT)}: {target}")
    assert dead == []


def _linked_pages() -> list[Path]:
    found = [ROOT / name for name in LINKED]
    return [page for path in found for page in (sorted(path.rglob("*.md")) if path.is_dir() else [path])]


def _prose(text: str) -> str:
    return re.sub(r"^```.*?^```$|`[^`\n]+`", "", text, flags=re.MULTILINE | re.DOTALL)


def _anchors(page: Path) -> set[str]:
    """As GitHub and MyST make them from headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
