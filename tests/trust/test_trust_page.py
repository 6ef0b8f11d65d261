"""Documents name tests that exist, and the catalogue of failures is complete."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted((ROOT / "docs").rglob("*.md"))
NAMED = [
    pytest.param(path, *match.groups(), id=f"{path.name}: {match[2]}")
    for path in DOCUMENTS
    for match in re.finditer(r"`(tests/[\w/]+\.py)::(\w+)`", path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize(("document", "file", "name"), NAMED)
def test_every_test_that_a_document_names_exists(document, file, name):
    assert re.search(rf"^def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), (
        f"{document.name} names {file}::{name}"
    )


def test_every_folder_and_file_of_tests_that_a_document_names_exists():
    for document in DOCUMENTS:
        for place in re.findall(r"`(tests/[\w/.]+)`", document.read_text(encoding="utf-8")):
            assert (ROOT / place).exists(), f"{document.name} names {place}"


def test_the_catalogue_has_every_number_once():
    numbers = re.findall(r"^\| (\d+) \|", (ROOT / "docs" / "trust.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(numbers) >= 63
    assert list(map(int, numbers)) == list(range(1, len(numbers) + 1))
