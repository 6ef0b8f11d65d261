import re

from privet.evaluation import tabulate

TABLES = {
    "brier": 0.0312,
    "calibration": tabulate([0.99] * 9000 + [0.7] * 1000, [True] * 9825 + [False] * 175).to_dict(),
    "true_class": tabulate([0.99] * 9825 + [0.1] * 175, [True] * 9825 + [False] * 175).to_dict(),
    "intervals": {"brier": [0.0302, 0.0322], "expected_calibration_error": [0.019, 0.0241]},
}


def test_numbers_and_figure_are_in_their_section(report_of):
    source = report_of(evaluation=TABLES)
    table, section = source[source.index("<h2>Test set</h2>") :].split("</section>")[:2]
    assert re.findall(r"<td[^>]*>([^<]*)</td>", table[table.index("Brier") :])[:2] == ["0.0312", "0.0302 to 0.0322"]
    assert "2.15\N{NO-BREAK SPACE}%" in table
    assert "1.90 to 2.41\N{NO-BREAK SPACE}%" in table
    assert "<h2>Calibration</h2>" in section
    assert section.count("<svg") == 3
    assert "Reliability diagram" in section
    assert "10,000 test examples" in section
