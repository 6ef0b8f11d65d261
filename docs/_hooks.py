"""Hooks of the site's build: folders in the navigation, and links to files of the repository that are no pages."""

import re
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#]+)\)")


def on_config(config):
    """Expand a folder in the navigation into its pages, README.md first."""
    config.nav = [{title: _pages(entry) for title, entry in item.items()} for item in config.nav]
    return config


def _pages(entry):
    if not isinstance(entry, str) or not entry.endswith("/"):
        return entry
    names = sorted(path.name for path in (ROOT / "docs" / entry).glob("*.md"))
    return [entry + name for name in sorted(names, key="README.md".__ne__)]


def on_page_markdown(markdown, page, **_):
    """Replace links that lead out of docs/ by the path in the repository: the site has no address of the repository."""

    def without_link(match):
        text, target = match.groups()
        place = (ROOT / "docs" / PurePosixPath(page.file.src_uri).parent / target).resolve()
        if place.is_relative_to(ROOT / "docs"):
            return match[0]
        path = place.relative_to(ROOT).as_posix()
        return f"`{path}`" if path in text else f"{text} (`{path}`)"

    return LINK.sub(without_link, markdown)
