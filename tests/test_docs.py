"""Every code block of the documentation runs, every link leads somewhere, and no line is longer than an editor shows."""

import ast
import contextlib
import inspect
import pkgutil
import re
import shlex
import subprocess
from pathlib import Path

import pytest

import privet
from privet.cli import main
from privet.gradients.core.recorder import Recorder

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = {path: path.read_text(encoding="utf-8") for path in DOCUMENTS}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROSE = {path: BLOCK.sub("", text) for path, text in TEXTS.items()}
# A block of TOML that begins with the name of a file is that file; any other is a configuration to train by.
NAMED = re.compile(r"# (\S+\.toml)\n")
# Their examples take minutes together, and what they show has tests of its own.
SLOW = {"algorithms", "audit", "evaluation", "federated", "predictions", "results", "sklearn", "transformers"}
OPTIONAL = ("sklearn", "transformers", "peft", "trl", "pandas", "tensorboard", "flwr")


def name(path):
    return path.relative_to(ROOT).as_posix()


def blocks(path):
    """Yield language, line and text of every block that can be run."""
    for match in BLOCK.finditer(TEXTS[path]):
        language, body = match.groups()
        if language != "text":
            yield language, TEXTS[path][: match.start()].count("\n") + 1, body


def commands(body):
    joined = body.replace("\\\n", " ")
    return [shlex.split(line, comments=True) for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def run(command, place):
    if command[0] == "make":
        subprocess.run(["make", "--dry-run", *command[1:]], cwd=ROOT, check=True, capture_output=True)
        return
    assert command[0] == "privet", f"{place}: {command}"
    words, _, file = " ".join(map(shlex.quote, command)).partition(" '>' ")
    with contextlib.ExitStack() as stack:
        if file:
            stack.enter_context(contextlib.redirect_stdout(stack.enter_context(Path(file).open("w", encoding="utf-8"))))
        stop = stack.enter_context(pytest.raises(SystemExit))
        main(shlex.split(words)[1:])
    assert stop.value.code == 0, f"{place}: {command}"


@pytest.mark.parametrize("path", [
    pytest.param(path, id=name(path), marks=pytest.mark.slow if path.stem in SLOW else ())
    for path in DOCUMENTS if any(blocks(path))
])  # fmt: skip
def test_a_page_runs_from_top_to_bottom(path, tmp_path, monkeypatch):
    """The blocks of a page share a folder, and each Python block stands by itself."""
    for package in OPTIONAL:
        if package == "sklearn" or package in TEXTS[path]:
            pytest.importorskip(package, reason=f"the examples use {package}")
    if path.name != "README.md":  # in which a report is drawn: that takes longer than to train
        monkeypatch.setattr("privet.runs.run.report.write", lambda directory: directory / "report.html")
        monkeypatch.setattr("privet.runs.run.RESAMPLES", 20)
    monkeypatch.chdir(tmp_path)
    for language, line, body in blocks(path):
        if language == "python":
            # Blank lines in front, so that a traceback shows the line of the page.
            exec(compile("\n" * line + body, str(path), "exec"), {"__name__": "__main__"})
            continue
        if language == "toml" and (named := NAMED.match(body)):
            (tmp_path / named[1]).write_text(body, encoding="utf-8")
            continue
        if language == "toml":
            (tmp_path / "run.toml").write_text(body, encoding="utf-8")
            language, body = "sh", "privet train --config run.toml --out run-of-toml --quiet"
        assert language == "sh", f"{name(path)}:{line} is of an unknown language: {language!r}"
        for command in commands(body):
            run(command, f"{name(path)}:{line}")


def read_of_privet(body):
    """Return the names that a block reads of the package itself, and those of the modules that it imports."""
    tree = list(ast.walk(ast.parse(body)))
    attributes = [node for node in tree if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
    imported = {part.name for node in tree if isinstance(node, ast.Import) for part in node.names}
    imported |= {node.module for node in tree if isinstance(node, ast.ImportFrom)}
    return {node.attr for node in attributes if node.value.id == "privet"}, {
        module.split(".")[1] for module in imported if module.startswith("privet.")
    }


def test_a_block_imports_what_it_reads():
    """In a process of its own; here, other blocks and tests have imported all modules."""
    for path in DOCUMENTS:
        for language, line, body in blocks(path):
            if language == "python":
                read, imported = read_of_privet(body)
                assert read <= {*privet.__all__, *imported, "__version__"}, f"{name(path)}:{line}"


def anchors(text):
    """Return the anchors that headings get, on the site and where Markdown is shown as it is."""
    outside = BLOCK.sub("", text)
    titles = re.findall(r"^#+ +(.*?)\s*$", outside, re.MULTILINE)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", re.sub(r"[`*]", "", title)).strip().lower()) for title in titles}


def test_links_lead_to_files_and_headings():
    for path in DOCUMENTS:
        for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", PROSE[path]):
            found = (path.parent / target).resolve() if target else path
            assert found.exists(), f"{name(path)} leads to {target}, which does not exist"
            if anchor:
                assert anchor in anchors(found.read_text(encoding="utf-8")), f"{name(path)}: no heading {target}#{anchor}"


def test_a_name_in_the_text_exists():
    """Names of Privet, commands of make, source files, folders and tests."""
    targets = {*re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)}
    sources = [path.as_posix() for root in (ROOT / "src", ROOT / "experiments" / "src") for path in root.rglob("*.*")]
    for path, prose in PROSE.items():
        for each in re.findall(r"`((?!tests|benchmarks|docs|examples)\w+/[\w/]+\.(?:py|cpp))`", prose):
            assert any(source.endswith(f"/{each}") for source in sources), f"{name(path)} names {each}"
        for each in re.findall(r"`(privet(?:\.[a-z_]\w*)+)", prose):
            pkgutil.resolve_name(each)  # raises if there is none
        assert {*re.findall(r"`make ([\w-]+)", prose)} <= targets, name(path)
        for each in re.findall(r"`((?:tests|benchmarks|docs)/[\w/.-]+)[`:]", prose):
            assert (ROOT / each).exists(), f"{name(path)} names {each}"


def test_the_methods_of_the_recorder_are_those_of_the_guide():
    """Under their names and the names of their arguments."""
    (_, table) = TEXTS[ROOT / "docs" / "guide" / "extending.md"].split("| method of `Recorder` | returns |\n|---|---|\n")
    rows = re.findall(r"^\| `(\w+)\(([^)]*)\)`", table.split("\n\n")[0], re.MULTILINE)
    assert len(rows) >= 5
    for method, arguments in rows:
        own = list(inspect.signature(getattr(Recorder, method)).parameters.values())[1:]
        assert arguments.split(", ") == [str(each).partition(":")[0] for each in own if each.default is each.empty], method


def test_the_navigation_has_every_page():
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r"^ +- [^:]+: (\S+)$", site, re.MULTILINE))
    folders = {entry for entry in listed if entry.endswith("/")}
    for path in (ROOT / "docs").rglob("*.md"):
        page = path.relative_to(ROOT / "docs")
        if path.match("results/*/*.md"):
            continue  # tables of single experiments, to which the index of the results leads
        assert page.as_posix() in listed or f"{page.parent.as_posix()}/" in folders, f"mkdocs.yml does not list {page}"


def test_lines_are_shorter_than_120_characters():
    lines = ((name(path), line) for path, prose in PROSE.items() for line in prose.splitlines())
    assert not [(page, line) for page, line in lines if len(line) >= 120 and not line.startswith("|")]


def test_the_readme_is_read_in_two_minutes():
    assert len(TEXTS[ROOT / "README.md"].splitlines()) <= 150
