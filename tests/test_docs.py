"""Every code block of the documentation runs: Python is executed, commands and configurations are run, make targets exist."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from privet.cli import main

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEXTS = {path: path.read_text(encoding="utf-8") for path in DOCUMENTS}
BLOCKS = [
    pytest.param(language, body, id=f"{path.relative_to(ROOT)}:{text[: match.start()].count(chr(10)) + 1}")
    for path, text in TEXTS.items()
    for match in BLOCK.finditer(text)
    for language, body in [match.groups()]
    if language != "text"
]


def commands(body):
    joined = body.replace("\\\n", " ")
    return [shlex.split(line, comments=True) for line in joined.splitlines() if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize(("language", "body"), BLOCKS)
def test_block_runs(language, body, tmp_path, monkeypatch):
    pytest.importorskip("sklearn", reason="the examples train on scikit-learn's digits")
    monkeypatch.chdir(tmp_path)
    if language == "python":
        exec(compile(body, "<documentation>", "exec"), {"__name__": "__main__"})
        return
    if language == "toml":
        (tmp_path / "run.toml").write_text(body, encoding="utf-8")
        body = "privet train --config run.toml --out run --quiet"
        language = "sh"
    assert language == "sh", f"a block of an unknown language: {language!r}"
    for command in commands(body):
        if command[0] == "privet":
            with pytest.raises(SystemExit) as stop:
                main(command[1:])
            assert stop.value.code == 0, command
        else:
            assert command[0] == "make", command
            subprocess.run(["make", "--dry-run", *command[1:]], cwd=ROOT, check=True, capture_output=True)


def test_relative_links_lead_somewhere():
    for path, text in TEXTS.items():
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (path.parent / target).exists(), f"{path.name}: {target}"
