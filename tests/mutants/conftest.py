"""The score of the mutation gate, at the end of a run that tried some."""

from __future__ import annotations

_TRIED = "test_the_suite_sees["


def score(passed, failed):
    """What to print of the node ids of tests that passed and failed; None if no mutant was tried."""
    killed, survivors = ([name for name in names if _TRIED in name] for names in (passed, failed))
    if not (killed or survivors):
        return None
    return f"mutants: {len(killed)} of {len(killed) + len(survivors)} killed"


def pytest_terminal_summary(terminalreporter):
    stats = terminalreporter.stats
    ids = [[report.nodeid for kind in kinds for report in stats.get(kind, ())] for kinds in (("passed",), ("failed", "error"))]
    said = score(*ids)
    if said is not None:
        terminalreporter.write_line(said)
