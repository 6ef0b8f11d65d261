"""Any command line gives an answer and status 0, or one line and status 2 without side effects."""

import numpy as np
import pytest
from fuzzing import command, fuzzed, left_over, misspelt
from hypothesis import given
from hypothesis import strategies as st

COMMANDS = [line.split() for line in (
    "epsilon --examples 600 --batch-size 20 --steps 5 --noise-multiplier 1.1 --delta 1e-4 --accountant rdp --unit user",
    "epsilon --examples 600 --batch-size 20 --epochs 2 --noise-multiplier 1.1 --delta 1e-4 --accountant rdp "
    "--adjacency zero-out --json",
    "noise --examples 600 --batch-size 20 --steps 5 --epsilon 3 --delta 1e-4 --accountant rdp",
    "steps --examples 600 --batch-size 20 --noise-multiplier 3 --epsilon 3 --delta 1e-4 --accountant rdp --sampling poisson",
    "budget create new.budget --epsilon 3 --delta 1e-5 --examples 40 --part a --part b --plans fixed",
    "budget show old.budget --json",
    "ledger show nowhere",
    "ledger verify nowhere --json",
    "audit --plan nowhere.json --observations 10000 --out found.json",
    "check nowhere.py --out found.json --quiet",
    "report nowhere elsewhere --out compared --json",
    "reproduce nowhere.toml --seeds 2 --arm one --jobs 1 --quiet",
    "data fetch nowhere --folder .",
    "train --data mine.npz --classes 3 --model gpt --steps 2 --epsilon 3 --delta 1e-3 --clipping psac --stability 0.1 "
    "--style module --optimizer adam --optimizer-options {} --lr 0.1 --seed 1 --views 2 --augment flip --device cpu --quiet",
    "train --resume nowhere --adopt --quiet",
)]  # fmt: skip


@fuzzed(60)
@given(st.sampled_from(COMMANDS).flatmap(misspelt))
def test_any_words_are_answered_or_refused(tmp_path_factory, words):
    folder = tmp_path_factory.mktemp("words")
    np.savez(folder / "mine.npz", x_train=np.eye(20, 4), y_train=np.arange(20) % 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        before = {path.name for path in folder.iterdir()}
        if command(*words) == 2:
            assert {path.name for path in folder.iterdir()} == before
        assert not left_over(folder)
