"""A progress bar is drawn on terminals and in notebooks, in the latter without ipywidgets, and nowhere else."""

import io
import sys
import textwrap
import types

import pytest
import rich.console

from privet._utils import progress


class Handle:
    """The handle of a display, as IPython has it: what is displayed is replaced."""

    def __init__(self, bundle):
        self.bundles = [bundle]

    def update(self, bundle, *, raw):
        assert raw
        self.bundles.append(bundle)


@pytest.fixture
def notebook(monkeypatch):
    """A notebook without ipywidgets; returns its displays."""
    displays = []

    def display(bundle, *, raw, display_id):
        assert raw
        assert display_id
        displays.append(Handle(bundle))
        return displays[-1]

    package, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    module.display = package.display = display
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    return displays


def steps(total=100):
    with progress.progress_bar("step {task.completed:,}/{task.total:,}", "ε {task.fields[epsilon]}") as bar:
        task = bar.add_task("<training>", total=total, epsilon="0")
        for number in range(1, total + 1):
            bar.update(task, completed=number, epsilon=f"{number / 100:.2f}")


def test_a_notebook_shows_one_line_that_is_replaced(notebook, monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN", 0.0)
    steps()
    (handle,) = notebook
    texts = [bundle["text/plain"] for bundle in handle.bundles]
    assert all("\n" not in text for text in texts)
    assert "50%" in texts[49]
    assert "step 50/100 ε 0.50" in texts[49]
    assert "step 100/100 ε 1.00" in texts[-1]
    assert texts[49].count("━") < texts[-1].count("━")


def test_its_html_is_escaped_text(notebook):
    steps()
    bundle = notebook[0].bundles[-1]
    assert bundle.keys() == {"text/plain", "text/html"}
    assert "&lt;training&gt;" in bundle["text/html"]
    assert "<training>" not in bundle["text/html"]


def test_a_notebook_is_redrawn_seldom_and_at_the_end(notebook):
    steps(2000)
    (handle,) = notebook
    assert len(handle.bundles) < 200
    assert "step 2,000/2,000" in handle.bundles[-1]["text/plain"]


def test_an_exception_ends_the_bar_and_goes_on(notebook):
    def failing():
        with progress.progress_bar() as bar:
            bar.add_task("training", total=2)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        failing()
    assert "0%" in notebook[0].bundles[-1]["text/plain"]


def test_a_log_file_gets_nothing(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    steps()
    assert stream.getvalue() == ""


def test_it_can_be_switched_off(notebook):
    with progress.progress_bar(shown=False) as bar:
        bar.update(bar.add_task("training", total=2), completed=1)
    assert notebook == []


def test_a_cell_of_jupyter_shows_it():
    """In a real kernel, if there is one."""
    nbclient = pytest.importorskip("nbclient", reason="Jupyter")
    nbformat = pytest.importorskip("nbformat", reason="Jupyter")
    pytest.importorskip("ipykernel", reason="Jupyter")
    cell = nbformat.v4.new_code_cell(
        textwrap.dedent("""
            from privet._utils.progress import progress_bar
            with progress_bar() as bar:
                bar.update(bar.add_task("training", total=2), completed=2)
        """)
    )
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbclient.NotebookClient(notebook, timeout=100, kernel_name="python3").execute()
    (output,) = cell.outputs
    assert output.output_type == "display_data"
    assert "training" in output.data["text/html"]
    assert "100%" in output.data["text/plain"]
