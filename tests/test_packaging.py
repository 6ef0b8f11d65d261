import re
import tomllib
from pathlib import Path

import privet

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_is_in_the_wheel():
    there = {str(path.parent.relative_to(ROOT)) for path in (ROOT / "src").glob("*/__init__.py")}
    assert there <= set(PROJECT["tool"]["scikit-build"]["wheel"]["packages"])


def test_experiments_are_a_distribution_of_their_own_with_the_same_version():
    """`privet reproduce` appears where it is installed."""
    own = tomllib.loads((ROOT / "experiments" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert own["version"] == privet.__version__
    assert f"privet[data]=={privet.__version__}" in own["dependencies"]
    assert set(own["entry-points"]["privet.commands"]) == {"reproduce"}
    assert "entry-points" not in PROJECT["project"]


def test_there_is_one_version():
    written = PROJECT["tool"]["scikit-build"]["metadata"]["version"]["input"]
    assert ROOT / written == Path(privet.__file__)
    cited = re.search(r"^version: *[\"']?([^\"'\s]+)", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited is not None
    assert cited[1] == privet.__version__
