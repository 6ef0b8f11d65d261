"""Files of many users' data: tweets, plays and ratings, as published, from the caller's folder."""

from __future__ import annotations

__all__ = ["FILES", "UserFile", "open_file"]

import gzip
import io
import lzma
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from privet.data import DataUnavailableError

_UNPACK: Mapping[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.decompress, ".xz": lzma.decompress}


@dataclass(frozen=True)
class UserFile:
    """A file with many users' data.

    Args:
        name: name of the file, uncompressed.
        content: its format and columns.
        published: where it is published.
        clients: number of private users of the published file, as `clients.split` counts them: public.
    """

    name: str
    content: str
    published: str
    clients: int


FILES: Mapping[str, UserFile] = {
    "sent140": UserFile(
        "sent140_users.csv", "a table with the columns user, label (0 or 1) and text",
        "Sentiment140, https://huggingface.co/datasets/stanfordnlp/sentiment140", 2053,
    ),
    "shakespeare": UserFile(
        "shakespeare_roles.jsonl", 'a JSON object a line, with the keys "user" and "text"',
        "The Complete Works of William Shakespeare, https://www.gutenberg.org/ebooks/100", 240,
    ),
    "movielens": UserFile(
        "ratings.csv", "a table with the columns userId, movieId and rating",
        "MovieLens, ml-latest-small, https://grouplens.org/datasets/movielens/", 429,
    ),
}  # fmt: skip


def open_file(data: str, folder: str | None) -> io.StringIO:
    """Return the text of a file, plain or compressed by gzip or xz.

    Raises:
        DataUnavailableError: there is no folder, or it lacks the file.
    """
    wanted = FILES[data]
    for suffix, unpack in _UNPACK.items():
        if folder is not None and (path := Path(folder) / f"{wanted.name}{suffix}").is_file():
            return io.StringIO(unpack(path.read_bytes()).decode("utf-8"))
    raise DataUnavailableError(
        f"{data} needs {wanted.name}, plain, .gz or .xz: {wanted.content}. "
        f"{'No folder was given' if folder is None else f'{folder} lacks it'}; name its folder by --folder. "
        f"Published: {wanted.published}"
    )
