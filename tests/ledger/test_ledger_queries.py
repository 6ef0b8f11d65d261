import os
import signal

import pytest

from privet.errors import BudgetExhaustedError, LedgerError
from privet.ledger import Ledger, journal, read_history

PLAN = {"format": 1, "delta": 1e-5}
QUERIES = {"holdout": 3.5, "class counts": 9.0}


def made(path, **options):
    return Ledger.create(PLAN, [2.3] * 40, path, 16, queries=QUERIES, **options)


def reopened(path, queries=QUERIES):
    return Ledger.open(PLAN, [2.3] * 40, path, 16, queries=queries)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger"


def test_a_query_is_on_disk_before_its_token_exists(path, monkeypatch):
    ledger, synced, real = made(path), [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (synced.append(path.read_bytes()), real(descriptor)))
    assert ledger.reserve_query("holdout").multiplier == 3.5
    assert b'"query": "holdout"' in synced[-1]


def test_a_query_is_paid_for_once(path):
    ledger = made(path)
    ledger.reserve_query("holdout")
    for _ in range(2):
        with pytest.raises(BudgetExhaustedError, match="was reserved before"):
            ledger.reserve_query("holdout")
        ledger.close()
        ledger = reopened(path)
    ledger.close()


def test_a_query_that_is_not_in_the_plan_is_refused(path):
    with pytest.raises(BudgetExhaustedError, match="not in the plan"):
        made(path).reserve_query("another")


def test_an_answer_is_read_again_to_the_last_bit(path):
    ledger = made(path)
    ledger.reserve_query("holdout")
    ledger.record_answer("holdout", [0.1 + 0.2, -1e300])
    ledger.close()
    assert reopened(path).answers == {"holdout": (0.1 + 0.2, -1e300)}


@pytest.mark.parametrize("times", [0, 2])
def test_an_answer_is_recorded_once_and_only_after_payment(path, times):
    ledger = made(path)
    if times:
        ledger.reserve_query("holdout")
        ledger.record_answer("holdout", [1.0])
    with pytest.raises(LedgerError, match="not reserved, or has an answer"):
        ledger.record_answer("holdout", [2.0])


def test_a_process_killed_after_payment_leaves_a_query_that_counts_and_is_lost(path):
    child = os.fork()
    if not child:
        made(path).reserve_query("holdout")
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    ledger = reopened(path)
    assert (ledger.lost, ledger.answers, ledger.queried) == ({"holdout"}, {}, True)
    with pytest.raises(BudgetExhaustedError):
        ledger.reserve_query("holdout")


def test_a_payment_that_cannot_be_made_durable_gives_no_token(path, monkeypatch):
    ledger = made(path)

    def refuse(descriptor):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(LedgerError, match="no noise was drawn"):
        ledger.reserve_query("holdout")


def test_steps_reserved_before_a_query_are_returned_before_it(path):
    ledger = made(path)
    ledger.reserve()
    ledger.reserve_query("class counts")
    assert ledger.spent == 1
    ledger.reserve()
    ledger.close()
    history, _, _ = read_history(path)
    assert (history.spent, history.queries) == (2, {"class counts": 9.0})


def test_queries_move_the_anchor_so_that_a_rollback_shows(path, tmp_path):
    ledger = made(path, anchor=tmp_path / "anchor")
    before = path.read_bytes()
    ledger.reserve_query("holdout")
    ledger.close()
    path.write_bytes(before)
    with pytest.raises(LedgerError, match="rolled back"):
        reopened(path)


@pytest.mark.parametrize("record", [
    {"record": "query", "query": "holdout", "multiplier": 3.5},
    {"record": "answer", "query": "class counts", "values": [1.0]},
    {"record": "answer", "query": "holdout", "values": ["many"]},
])  # fmt: skip
def test_records_that_contradict_the_others_are_refused(path, record):
    ledger = made(path)
    ledger.reserve_query("holdout")
    ledger.close()
    with journal.Journal(path, "the ledger") as chain:
        chain.append(record)
    with pytest.raises(LedgerError):
        reopened(path)


@pytest.mark.parametrize("queries", [{}, {"holdout": 3.4}])
def test_a_query_that_is_not_the_plans_is_found(path, queries):
    ledger = made(path)
    ledger.reserve_query("holdout")
    ledger.close()
    with pytest.raises(LedgerError, match="that is not the plan's"):
        reopened(path, queries)
