"""Commands answer in prose, and with --json in one object on the last line of standard output."""

import re
import subprocess
import sys
from dataclasses import fields

import pytest
from asked import ask, refused, succeed, told

import privet
from privet.cli._verbs.train import TrainOptions
from privet.cli.main import VERBS


def run(capsys, command):
    return told(capsys, *command.split())


def values(capsys, command):
    return succeed(capsys, *command.split())


QUESTION = "--examples 60000 --batch-size 256 --delta 1e-5"


def test_epsilon_is_the_published_value(capsys):
    found = values(capsys, f"epsilon {QUESTION} --steps 3515 --noise-multiplier 1.1")
    assert found["epsilon"] == pytest.approx(1.13371, rel=2e-3)
    assert found["direction"] == "upper bound"


def test_epochs_and_steps_give_the_same_epsilon(capsys):
    steps = values(capsys, f"epsilon {QUESTION} --steps 3515 --noise-multiplier 1.1 --accountant rdp")
    epochs = values(capsys, f"epsilon {QUESTION} --epochs 15 --noise-multiplier 1.1 --accountant rdp")
    assert steps == epochs


def test_a_full_batch_has_no_amplification(capsys):
    rest = "--examples 1599 --batch-size 1599 --delta 1e-5 --steps 2000 --noise-multiplier 35 --accountant rdp"
    full, poisson = (values(capsys, f"epsilon {rest} --sampling {name}") for name in ("full-batch", "poisson"))
    assert full == poisson


@pytest.mark.parametrize("accountant", ["rdp", "basic"])
def test_noise_and_epsilon_are_inverse(capsys, accountant):
    question = f"{QUESTION} --steps 40 --accountant {accountant}"
    found = values(capsys, f"noise {question} --epsilon 2")
    spent = values(capsys, f"epsilon {question} --noise-multiplier {found['noise_multiplier']!r}")["epsilon"]
    assert 2 * (1 - 1e-3) < spent == found["epsilon"] <= 2


def test_steps_are_the_most_that_a_budget_allows(capsys):
    budget = "--noise-multiplier 1.3 --sampling poisson --accountant rdp"
    steps = values(capsys, f"steps {QUESTION} --epsilon 1.5 {budget}")["steps"]
    within, beyond = (values(capsys, f"epsilon {QUESTION} --steps {n} {budget}")["epsilon"] for n in (steps, steps + 1))
    assert within <= 1.5 < beyond


def test_the_unit_is_named(capsys):
    question = f"epsilon {QUESTION} --steps 10 --noise-multiplier 2 --accountant rdp"
    assert "for one user (" in run(capsys, f"{question} --unit user")
    assert "for one example (in a group of 4; groups fixed in advance) (" in run(
        capsys, f"{question} --unit group:4 --adjacency replace-one"
    )


SMALL = "epsilon --examples 5000 --batch-size 50 --steps 40 --noise-multiplier 1.7 --delta 1e-5"


def test_epsilon_is_explained(capsys):
    found = values(capsys, f"{SMALL} --explain")
    assert 0 < found["advantage"] < 1
    assert 0.001 < found["tpr_at_fpr_0.1%"] < found["tpr_at_fpr_1%"] < 1
    assert found["bayes_risk"] < 0.5
    assert len(found["profile"]["epsilon"]) == len(found["profile"]["delta"]) > 10
    text = run(capsys, f"{SMALL} --explain")
    assert "What it means: an attacker" in text
    assert "These (ε, δ) pairs all hold: (0.0, " in text


def test_epsilon_without_noise_is_explained(capsys):
    found = values(
        capsys, "epsilon --examples 500 --batch-size 50 --steps 4 --noise-multiplier 0 --delta 1e-5 --explain --compare"
    )
    assert (found["epsilon"], found["advantage"], found["bayes_risk"]) == ("inf", 1.0, 0.0)
    assert {row["epsilon"] for row in found["comparison"]} == {"inf"}


@pytest.mark.parametrize(("sampling", "covering"), [
    ("poisson", "pld rdp moments strong basic edgeworth gdp"),
    ("fixed-size --adjacency replace-one", "pld rdp"),
    ("truncated-poisson", "pld"),
])  # fmt: skip
def test_every_accountant_answers_or_gives_a_reason(capsys, sampling, covering):
    command = f"{SMALL} --sampling {sampling}"
    rows = values(capsys, f"{command} --compare")["comparison"]
    assert " ".join(row["accountant"] for row in rows if row["covers"]) == covering
    for row in rows:
        if row["covers"]:
            assert values(capsys, f"{command} --accountant {row['accountant']}")["epsilon"] == row["epsilon"]
        else:
            assert row["why_not"] in run(capsys, f"{command} --compare")


def test_dp_accounting_verifies_on_request(capsys):
    found = values(capsys, f"{SMALL} --verify")
    assert found["verified"] is True
    assert found["dp_accounting_epsilon"] == pytest.approx(found["epsilon"], rel=3e-3)
    text = run(capsys, f"{SMALL} --verify")
    assert "computes ε = " in text
    silent = values(capsys, f"{SMALL} --sampling fixed-size --adjacency replace-one --verify")
    assert (silent["verified"], silent["dp_accounting_epsilon"]) == (None, None)


def test_an_epsilon_that_is_too_small_fails_verification(capsys):
    code, out, err = ask(capsys, *f"{SMALL} --accountant gdp --verify".split())
    assert code == 2
    assert "ε = " in out
    assert err.startswith("privet: error: verification failed: dp-accounting ")
    assert err.count("\n") == 1


def test_the_comparison_is_drawn(capsys, tmp_path):
    path = tmp_path / "figures" / "epsilon.svg"
    assert values(capsys, f"{SMALL} --figure {path}")["figure"] == str(path)
    assert "PLD" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("options", ["--noise-multiplier 0", "--noise-multiplier 0.001 --accountant gdp"])
def test_infinity_is_answered_in_words(capsys, options):
    text = run(capsys, f"epsilon --examples 5000 --batch-size 50 --steps 40 --delta 1e-5 {options}")
    assert text.startswith("ε = ∞: ")
    assert ("no privacy without noise" in text) == options.endswith(" 0")


def test_a_large_delta_gets_a_caution(capsys):
    text = run(capsys, "epsilon --examples 100 --batch-size 10 --steps 1 --noise-multiplier 2 --delta 0.01 --accountant rdp")
    assert "one random record" in text


def headings_of(text, indent):
    return re.findall(rf"^{indent}([A-Z][a-z]+(?: [a-z,]+)*):$", text, flags=re.MULTILINE)


def test_train_lists_its_options_by_topic_and_the_common_ones_first(capsys):
    """The help of a first training fits on two screens; the rest is below "Advanced"."""
    text = run(capsys, "train --help")
    common, advanced = text.split("\nAdvanced:\n")
    assert len(common.split()) <= 400
    assert headings_of(common, "") == [
        "Data", "Privacy", "Sampling and length", "Model and optimizer", "Clipping", "Run", "Options",
    ]  # fmt: skip
    assert headings_of(advanced, "  ") == [
        "Data", "Privacy", "Sampling and length", "Model and optimizer", "Clipping",
        "Correlated noise, momentum and sparsification", "Run",
    ]  # fmt: skip
    first, last = (
        re.findall(r"^ {2,4}--([a-z-]+)", part, flags=re.MULTILINE) for part in (common.partition("Data:\n")[2], advanced)
    )
    assert {"data", "delta", "epsilon", "out", "help"} <= {*first}
    assert {"target", "clipping", "noise", "log"} <= {*last}
    assert len([*first, *last]) == len({*first, *last}) == len(fields(TrainOptions)) + 1  # --help


def test_without_a_verb_the_help_is_shown(capsys):
    assert "Commands:" in run(capsys, "")


def test_the_help_and_the_version_need_no_pytorch():
    for argument, said in (("--help", "Commands:"), ("--version", f"privet {privet.__version__}")):
        code = (
            "import sys\nfrom privet.cli import main\n"
            f"try:\n    main([{argument!r}])\nexcept SystemExit as end:\n    print(end.code, 'torch' in sys.modules)"
        )
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert said in found
        assert found.splitlines()[-1] == "0 False"


def test_every_command_has_help_and_a_misspelt_one_is_corrected(capsys):
    for verb in (*VERBS, "reproduce", "data list", "data fetch"):
        text = run(capsys, f"{verb} --help")
        assert f"Usage: privet {verb}" in text
        assert ("Example: privet" in text) or verb in ("budget", "data", "schema", "ledger", "reproduce", "data list")
    assert refused(capsys, "trian") == "privet: error: No such command 'trian'. Did you mean 'train'?\n"


def test_data_list_names_every_set(capsys):
    assert {entry["name"] for entry in values(capsys, "data list")["data"]} >= {"mnist", "fashion-mnist", "digits"}
    assert "mnist" in run(capsys, "data list")


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "privet", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"privet {privet.__version__}\n"
