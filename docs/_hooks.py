"""Hooks of the site's build: folders in the navigation, links to files that are no pages, and the reference."""

import re
from pathlib import Path, PurePosixPath

from griffe import Alias, Extension

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#]+)\)")
EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)  # with its output, up to an empty line


class Reference(Extension):
    """Examples are blocks of code, and no method is missing because a class inherits it."""

    def on_object(self, *, obj, **_):
        """Put examples between fences, since `>>>` is a quotation in Markdown."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(r"\n```pycon\n\g<0>\n```", obj.docstring.value)

    def on_package(self, *, pkg, **_):
        """Give the classes of the pages the docstrings that they inherit, and the methods of bases that no page shows."""
        pages = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference").glob("*.md"))
        named = [pkg[name] for name in re.findall(rf"^::: {pkg.name}\.(\S+)$", pages, re.MULTILINE)]
        named += [module[name] for module in named if module.is_module for name in module.exports or ()]
        shown = {one.canonical_path: one.final_target if one.is_alias else one for one in named if one.is_class}
        for one in shown.values():
            bases = [base for base in one.mro() if base.canonical_path in shown]
            for name, member in one.inherited_members.items():
                found = member.final_target
                if not any(name in base.all_members for base in bases) and (found.is_function or found.has_labels("property")):
                    one.members[name] = Alias(name, found, parent=one)
            for name, member in ((name, member) for base in one.mro() for name, member in base.members.items()):
                if name in one.members and one.members[name].docstring is None:
                    one.members[name].docstring = member.docstring


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
