"""On the built site, examples of the reference are code, and no public method is missing."""

import inspect
import os
import pkgutil
from pathlib import Path

import pytest

from browser import open_page

BUILT = os.environ.get("PRIVET_SITE")
pytestmark = pytest.mark.skipif(
    BUILT is None, reason="`make docs` builds the site, names its folder in PRIVET_SITE and runs this"
)

# What a page shows: examples by where they stand, identifiers of Python names, and links to base classes.
INSPECT = """() => {
  const walker = document.createTreeWalker(document.querySelector("article"), NodeFilter.SHOW_TEXT);
  const quoted = [];
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim();
    if (text.startsWith(">>>") && !walker.currentNode.parentElement.closest("pre code")) quoted.push(text.slice(0, 80));
  }
  const code = [...document.querySelectorAll("pre code")].map((element) => element.innerText);
  const examples = code.filter((text) => text.startsWith(">>>"));
  const shown = [...document.querySelectorAll("[id^='privet.']")].map((element) => element.id);
  return {quoted, examples, shown};
}"""


@pytest.fixture(scope="module")
def pages():
    """Return what each page of the reference shows."""
    found = {}
    with open_page() as page:
        for path in sorted(Path(BUILT, "reference").glob("*.html")):
            page.goto(path.resolve().as_uri())
            found[path.name] = page.evaluate(INSPECT)
    return found


def test_examples_are_code_with_a_line_for_each_line(pages):
    assert {name: page["quoted"] for name, page in pages.items() if page["quoted"]} == {}
    assert all(page["examples"] for page in pages.values())
    for text in (text for page in pages.values() for text in page["examples"]):
        assert ">>>" not in text.replace("\n>>>", "")[3:], text


def list_methods(kind):
    """Return the public methods and properties with a docstring that a class has from Privet."""
    found = (pair for each in kind.__mro__ if each.__module__.startswith("privet.") for pair in vars(each).items())
    plain = {name: getattr(value, "fget", None) or getattr(value, "__func__", value) for name, value in found}
    return [name for name, value in plain.items() if not name.startswith("_") and inspect.isfunction(value) and value.__doc__]


def test_every_public_method_is_shown_with_its_class_or_with_a_base_on_the_pages(pages):
    shown = {name for page in pages.values() for name in page["shown"]}
    kinds = {value: name for name in shown if inspect.isclass(value := pkgutil.resolve_name(name))}
    missing = [
        f"{own}.{name}"
        for kind, own in kinds.items()
        for name in list_methods(kind)
        if not any(f"{kinds.get(base)}.{name}" in shown for base in kind.__mro__)
    ]
    assert len(kinds) > 100
    assert missing == []
    assert {f"privet.plan.Plan.{name}" for name in ("epsilon", "calibrate", "total_steps", "to_json")} <= shown
