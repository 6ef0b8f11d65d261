"""Digests, and the one error for bytes that do not have theirs."""

from __future__ import annotations

import hashlib

from privet.errors import PrivetError


class ChecksumError(PrivetError):
    """Data differ from what was published: damaged, or not what their name says."""


def require_md5(what: str, content: bytes, expected: str) -> None:
    """Raise ChecksumError unless the MD5 of `content` is `expected`, in hexadecimal.

    MD5 is what the publishers of the classic data sets give. Collisions can be built by whoever makes *both* files;
    swapping a published file for another takes a second preimage, which nobody can compute.
    """
    _require(what, "MD5", hashlib.md5(content, usedforsecurity=False).hexdigest(), expected)


def require_sha256(what: str, content: bytes, expected: str) -> None:
    """Raise ChecksumError unless the SHA-256 of `content` is `expected`, in hexadecimal."""
    _require(what, "SHA-256", hashlib.sha256(content).hexdigest(), expected)


def _require(what: str, kind: str, found: str, expected: str) -> None:
    if found != expected:
        raise ChecksumError(f"{what} has {kind} {found} instead of {expected}")
