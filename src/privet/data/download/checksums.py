"""Verification of checksums."""

from __future__ import annotations

__all__ = ["ChecksumError", "require_md5", "require_sha256"]

import hashlib

from privet.errors import PrivetError


class ChecksumError(PrivetError):
    """The data differ from the published data: they are damaged, or not what their name says."""


def require_md5(what: str, content: bytes, expected: str) -> None:
    """Raise ChecksumError unless the MD5 of `content` is `expected`, in hexadecimal.

    The publishers of the classic data sets give MD5 sums. Collisions require control over *both* files; replacing a published
    file requires a second preimage, for which no practical attack on MD5 is known.
    """
    _require(what, "MD5", hashlib.md5(content, usedforsecurity=False).hexdigest(), expected)


def require_sha256(what: str, content: bytes, expected: str) -> None:
    """Raise ChecksumError unless the SHA-256 of `content` is `expected`, in hexadecimal."""
    _require(what, "SHA-256", hashlib.sha256(content).hexdigest(), expected)


def _require(what: str, kind: str, found: str, expected: str) -> None:
    if found != expected:
        raise ChecksumError(f"{what} has {kind} {found} instead of {expected}")
