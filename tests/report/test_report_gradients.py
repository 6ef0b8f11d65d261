"""A gradient study in a report is marked on the page, in the figure and in the table of releases."""

from __future__ import annotations

import json

from privet import report
from privet.evaluation.studies import WARNING, Observation
from privet.report.releases import ReleaseStatus, list_releases
from privet.report.run_files import read

OBSERVATIONS = [
    Observation(step, (0.1, 2.0, 30.0 / step), 0.7, 0.4, 2 / 3, 0.9, 0.3, {"0": 0.2, "2": float("inf")})
    for step in (100, 200, 300)
]


def studied(write_run):
    directory = write_run()
    content = {"private": False, "warning": WARNING, "observations": [one.to_dict() for one in OBSERVATIONS]}
    (directory / "study.json").write_text(json.dumps(content, allow_nan=False), encoding="utf-8")
    return directory


def test_section_and_figure_are_marked(write_run):
    directory = studied(write_run)
    source = report.write(directory).read_text(encoding="utf-8")
    section = source[source.index("<h2>Gradient study</h2>") :].split("</section>")[0]
    assert "NOT PRIVATE: computed from raw gradients" in section
    drawn = sorted((directory / "figures").glob("gradients-*.svg"))
    assert [one.read_text(encoding="utf-8").count("NOT PRIVATE") for one in drawn] == [1, 1, 1, 1]
    assert section.count("<svg") == 4


def test_it_is_unprotected(write_run):
    (release,) = (one for one in list_releases(read(studied(write_run))) if "study.json" in one.files)
    assert release.status is ReleaseStatus.UNPROTECTED


def test_runs_without_a_study_have_no_such_section(report_of):
    assert "Gradient study" not in report_of()
