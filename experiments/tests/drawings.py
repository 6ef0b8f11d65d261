"""What an SVG file shows, as far as it is the same on every machine: the numbers that are drawn, and the words."""

import json
import re
from xml.etree import ElementTree

import numpy as np

DESCRIPTION = "{http://purl.org/dc/elements/1.1/}description"
TEXT = "{http://www.w3.org/2000/svg}text"
# Ticks and their offsets; where they are is for matplotlib to decide.
TICK = re.compile(r"[×+\-−\d.,e]*")


def numbers(svg):
    """Return an array for each mark, NaN where it has a gap."""
    described = ElementTree.fromstring(svg).find(f".//{DESCRIPTION}")
    return [np.array(mark, dtype=float) for mark in json.loads(described.text)]


def words(svg):
    """Return all texts but ticks, in alphabetical order."""
    texts = ("".join(text.itertext()).strip() for text in ElementTree.fromstring(svg).iter(TEXT))
    return sorted(text for text in texts if not TICK.fullmatch(text))
