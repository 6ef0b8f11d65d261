"""Figure of a federated run: test results against the bytes that clients have sent and received."""

from __future__ import annotations

__all__ = ["draw"]

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure as Canvas

from privet.evaluation.colours import INK, ORANGE
from privet.report import numbers
from privet.report.figures.svg import PANEL, Figure, render
from privet.report.run_files import Measurement

_HEIGHT = 2.6  # inches


def draw(measurements: Sequence[Measurement]) -> Iterator[Figure]:
    """Yield the figure `communication`, if test results were recorded together with bytes.

    Args:
        measurements: of a run, in order of its rounds.
    """
    shares = [(m, 100 * m.test_accuracy) for m in measurements if m.test_accuracy is not None]
    errors = [(m, m.test_error) for m in measurements if m.test_error is not None]
    found, axis = (shares, "test accuracy in %") if shares else (errors, "test RMSE")
    points = [(m.communicated, m.communicated_dense, value) for m, value in found if m.communicated and m.communicated_dense]
    if not points:
        return
    sent, dense, values = zip(*points, strict=True)
    power, unit = (1e9, "GB") if dense[-1] >= 1e9 else (1e6, "MB") if dense[-1] >= 1e6 else (1e3, "kB")
    sparse = sent != dense

    def drawing(canvas: Canvas) -> None:
        axes = canvas.subplots()
        if sparse:
            axes.plot([size / power for size in dense], values, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), label="dense")
        axes.plot([size / power for size in sent], values, color=ORANGE, linewidth=1.6, label="as sent")
        axes.set(xlabel=f"{unit} sent and received by all clients", ylabel=axis)
        axes.set_xlim(left=0)
        axes.grid(axis="y")
        if sparse:
            axes.legend(loc="lower right", frameon=False)

    shown = f"{values[-1]:.4g} after {numbers.format_bytes(sent[-1])}"
    caption = "Dashed: the same results if updates were sent whole." if sparse else ""
    yield Figure(
        "communication",
        "Test result by bytes",
        render("communication", drawing, (PANEL, _HEIGHT)),
        f"Line chart of the test result against the bytes that clients sent and received; {axis} is {shown}.",
        caption,
    )
