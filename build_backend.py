"""The build backend: wheels and sdists by scikit-build-core, editable installs by setuptools.

An editable install of setuptools is one line with the path of `src`. That of scikit-build-core puts a finder in front of all
others, so that PYTHONPATH no longer decides which copy of the source is imported, and a test of a changed copy would test the
installed one.
"""

from scikit_build_core.build import (
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
]


def get_requires_for_build_editable(config_settings=None):
    """Return what the other two need: setuptools, which a wheel does not."""
    return ["setuptools>=77"]


def prepare_metadata_for_build_editable(metadata_directory, config_settings=None):
    """Write the metadata of an editable install."""
    from setuptools import build_meta

    return build_meta.prepare_metadata_for_build_editable(metadata_directory, config_settings)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Build the wheel of an editable install. It needs no compiler: kernels are compiled when they are first used."""
    from setuptools import build_meta

    return build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
