import os
import signal
import stat
import threading

import pytest

from privet.errors import BudgetExhaustedError, LedgerError
from privet.ledger import Ledger, ledger, read, read_history
from privet.ledger.history import Machine
from privet.noise import Token

PLAN = {"format": 1, "examples": 100, "delta": 1e-5}


def made(path, total=40, block=16, **options):
    return Ledger.create(PLAN, [2.3] * total, path, block, **options)


def reopened(path, plan=PLAN, total=40, block=16, **options):
    return Ledger.open(plan, [2.3] * total, path, block, **options)


def crashed(one):
    """Do to a ledger what the end of its process does."""
    os.close(one._chain._descriptor)
    if one._anchor is not None:
        os.close(one._anchor._descriptor)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger"


def test_cost_is_on_disk_before_a_token_exists(path, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (synced.append(path.read_bytes()), real(descriptor)))
    token = made(path).reserve()
    assert (token.step, token.multiplier) == (1, 2.3)
    assert b'"reserve"' in synced[-1]


def test_the_file_and_its_place_in_the_folder_are_durable_before_anything_is_reserved(path, monkeypatch):
    kinds = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (kinds.append(os.fstat(descriptor).st_mode), real(descriptor)))
    made(path)
    assert [stat.S_ISDIR(mode) for mode in kinds] == [True, False]


def test_the_first_record_says_whose_it_is_and_what_made_it(path):
    made(path, facts={"accountant": "pld"})
    first = read(path, "the ledger").records[0]
    assert first["plan"] == PLAN
    assert first["facts"]["accountant"] == "pld"
    assert first["versions"].keys() == {"privet", "torch", "numpy", "scipy"}
    assert first["machine"].keys() == {"host", "boot"}
    assert len(first["run"]) == 32


def test_tokens_number_the_steps_and_end_with_the_plan(path):
    one = made(path, total=20)
    assert [one.reserve().step for _ in range(20)] == list(range(1, 21))
    assert one.next_step is None
    with pytest.raises(BudgetExhaustedError, match="all 20 steps"):
        one.reserve()


def test_a_crash_counts_the_whole_reserved_block(path):
    first = made(path)
    first.reserve()
    crashed(first)
    assert reopened(path).spent == 16


def test_closing_gives_back_only_what_was_never_handed_out(path):
    one = made(path)
    for _ in range(3):
        one.reserve()  # handed out: counts, whether or not noise was drawn
    one.close()
    again = reopened(path)
    assert again.spent == 3
    assert again.reserve().step == 4


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_ledger_counts_its_steps_in_a_file_or_in_memory_and_says_when_it_was_closed(path, in_memory):
    one = made(None if in_memory else path, total=3)
    assert [one.reserve().step for _ in range(3)] == [1, 2, 3]
    assert one.next_step is None
    one.close()
    with pytest.raises(LedgerError, match="it was closed"):
        one.reserve()


def test_an_existing_ledger_is_not_recreated_and_a_missing_one_not_resumed(path):
    with pytest.raises(LedgerError, match="has no ledger"):
        reopened(path)
    made(path).close()
    with pytest.raises(LedgerError, match="already the ledger of a run"):
        made(path)


def test_what_prepares_a_run_is_done_under_the_lock_and_before_the_first_record(path):
    def prepare():
        assert path.read_bytes() == b""
        with pytest.raises(LedgerError, match="in use"):
            made(path)

    made(path, prepare=prepare)


def test_a_run_that_ended_before_its_first_record_can_be_started_but_not_resumed(path):
    def pulled():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(path, prepare=pulled)
    with pytest.raises(LedgerError, match="never began"):
        reopened(path)
    assert made(path).reserve().step == 1


def test_another_plan_is_refused_and_the_field_is_named(path):
    made(path).close()
    with pytest.raises(LedgerError, match=r"delta was 1e-05, now 0\.001"):
        reopened(path, plan={**PLAN, "delta": 1e-3})


@pytest.mark.parametrize("multipliers", [[2.3] * 15 + [2.4] * 25, [2.3] * 10])
def test_steps_that_are_not_the_plans_are_refused(path, multipliers):
    one = made(path)
    one.reserve()
    crashed(one)
    with pytest.raises(LedgerError, match="are not the first of the plan's"):
        Ledger.open(PLAN, multipliers, path)


def test_two_owners_are_refused(path):
    first = made(path)
    with pytest.raises(LedgerError, match="in use by another process"):
        reopened(path)
    assert first.reserve().step == 1


def test_a_refused_opening_leaves_the_lock_to_others(path):
    made(path).close()
    with pytest.raises(LedgerError) as refusal:  # holds on to the frame, and to what is in it
        reopened(path, plan={})
    assert refusal.value
    assert reopened(path).reserve().step == 1


def test_a_failing_disk_stops_before_any_noise_and_for_good(path, monkeypatch):
    one = made(path)

    def fail(descriptor):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(LedgerError, match="no noise was drawn"):
        one.reserve()
    monkeypatch.undo()
    with pytest.raises(LedgerError, match="could not be made durable"):
        one.reserve()
    one.close()
    assert reopened(path).spent in (0, 16)


def test_a_full_disk_stops_before_any_noise(path, monkeypatch):
    one = made(path)
    monkeypatch.setattr(os, "write", lambda descriptor, line: len(line) - 1)
    with pytest.raises(LedgerError, match="No space left"):
        one.reserve()


def test_a_disk_that_fails_when_steps_are_given_back_leaves_them_counted(path, monkeypatch):
    one = made(path)
    one.reserve()
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(LedgerError, match="No space left"):
        one.close()
    monkeypatch.undo()
    assert not one.held
    one.close()
    assert one.spent == 16
    assert reopened(path).spent in (1, 16)  # the line is there, or is not: nothing was drawn for the other fifteen


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupt_in_the_middle_of_a_write_leaves_a_ledger_that_can_be_opened_again(path, monkeypatch, when):
    one = made(path)
    real = os.write

    def write(descriptor, line):
        if when == "before":
            raise KeyboardInterrupt
        real(descriptor, line)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(KeyboardInterrupt):
        one.reserve()
    monkeypatch.undo()
    with pytest.raises(LedgerError, match="interrupted"):
        one.reserve()
    one.give_back()
    assert one.held
    one.close()
    assert reopened(path).spent == {"before": 0, "after": 16}[when]


def test_interrupts_at_any_moment_neither_break_the_chain_nor_count_less_than_was_handed_out(path):
    handed_out = 0
    for _ in range(30):
        one = reopened(path, total=2_000_000, block=3) if path.exists() else made(path, total=2_000_000, block=3)
        timer = threading.Timer(0.003, signal.raise_signal, [signal.SIGINT])
        try:
            timer.start()
            while True:
                token = one.reserve()
                handed_out = max(handed_out, token.step)
        except KeyboardInterrupt:
            pass
        finally:
            timer.join()
        one.close()
        assert read_history(path)[0].spent >= handed_out


def test_a_fork_can_neither_reserve_nor_spend_nor_give_back(path):
    one = made(path)
    token = one.reserve()
    assert isinstance(token, Token)
    child = os.fork()
    if child == 0:
        refused = 0
        for attempt in (one.reserve, token.spend):
            try:
                attempt()
            except LedgerError:
                refused += 1
        one.close()
        os._exit(0 if refused == 2 and not one.held else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert token.spend() == 2.3
    assert one.reserve().step == 2


def test_a_fork_that_outlives_its_parent_does_not_keep_the_lock(path):
    begun, end = os.pipe(), os.pipe()
    parent = os.fork()
    if parent == 0:
        one = made(path)
        one.reserve()
        if os.fork() == 0:  # such as a process that reads data
            os.close(end[1])
            os.write(begun[1], b".")
            os.read(end[0], 1)  # until the test closes its own
        os._exit(0)
    os.waitpid(parent, 0)
    os.read(begun[0], 1)
    try:
        spent = reopened(path).spent
    except LedgerError:
        spent = None
    os.close(end[1])
    assert spent == 16


def test_the_file_is_the_owners_only(path):
    made(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_checkpoint_is_known_by_its_tip(path):
    one = made(path)
    tip = one.tip
    one.reserve()
    one.close()
    again = reopened(path)
    assert again.includes(tip)
    assert not again.includes("0" * 64)


@pytest.mark.parametrize("other", [Machine("elsewhere", "same"), Machine("here", "later")])
def test_another_machine_has_to_be_accepted_and_is_then_remembered(path, monkeypatch, other):
    monkeypatch.setattr(Machine, "here", staticmethod(lambda: Machine("here", "same")))
    made(path).close()
    monkeypatch.setattr(Machine, "here", staticmethod(lambda: other))
    with pytest.raises(LedgerError, match="adopt=True"):
        reopened(path)
    reopened(path, adopt=True).close()
    reopened(path).close()
    sessions = [record.get("adopted") for record in read(path, "the ledger").records]
    assert sessions == [None, True, False]


def test_a_ledger_of_another_format_is_refused(path):
    made(path).close()
    tampered(path, lambda records: records[0].update(format=99))
    with pytest.raises(LedgerError, match="format 2"):
        reopened(path)


def tampered(path, change):
    """Rewrite a ledger with right checksums and an unbroken chain."""
    from privet.ledger import journal

    records = list(read(path, "the ledger").records)
    change(records)
    tip, lines = "0" * 64, []
    for record in records:
        lines.append(journal._line({**record, "previous": tip}))
        tip = journal._hash(lines[-1])
    path.write_bytes(b"".join(lines))


@pytest.mark.parametrize("change", [
    lambda records: records[2].update(count=17),
    lambda records: records[2].update(first=2),
    lambda records: records[2].update(count=0, multipliers=[]),
    lambda records: records[3].update(count=17, first=0),
    lambda records: records[3].update(count=-3, first=20),
    lambda records: records.append(dict(records[3])),
    lambda records: records.insert(2, {"record": "amnesty"}),
    lambda records: records[1].update(machine="mine"),
    lambda records: records[0].pop("run"),
    lambda records: records[1].update(machine={"host": 3}),
    lambda records: records.pop(0),
])  # fmt: skip
def test_records_that_make_no_sense_are_refused_though_nothing_is_damaged(path, change):
    made(path).close()
    one = reopened(path)
    one.reserve()
    one.close()
    tampered(path, change)
    with pytest.raises(LedgerError):
        reopened(path)


@pytest.fixture
def anchor(tmp_path):
    return tmp_path / "elsewhere"


def copied(path):
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    return copy


def test_a_copy_of_a_run_that_continued_is_refused(path, anchor):
    one = made(path, anchor=anchor)
    one.reserve()
    one.close()
    copy = copied(path)
    one = reopened(path)
    one.reserve()
    one.close()
    with pytest.raises(LedgerError, match="ahead of the ledger"):
        reopened(copy)
    assert reopened(path).reserve().step == 3


def test_two_copies_cannot_run_at_once(path, anchor):
    one = made(path, anchor=anchor)
    with pytest.raises(LedgerError, match=r"the anchor .* in use"):
        reopened(copied(path))
    assert one.reserve().step == 1


def test_a_missing_anchor_is_refused_once_a_step_was_reserved(path, anchor):
    made(path, anchor=anchor).close()
    anchor.unlink()
    one = reopened(path)
    one.reserve()
    one.close()
    anchor.unlink()
    with pytest.raises(LedgerError, match="is missing"):
        reopened(path)


@pytest.mark.parametrize("lines", [0, 0.5, 1, 1.5])
def test_an_anchor_that_was_cut_off_is_refused_once_a_step_was_reserved(path, anchor, lines):
    one = made(path, anchor=anchor)
    one.reserve()
    one.close()
    whole = anchor.read_bytes().splitlines(keepends=True)
    anchor.write_bytes(b"".join(whole[: int(lines)]) + whole[int(lines)][: 20 if lines % 1 else 0])
    for _ in range(2):
        with pytest.raises(LedgerError, match="emptied or cut off"):
            reopened(path)
    anchor.write_bytes(b"".join(whole))
    assert reopened(path).reserve().step == 2


@pytest.mark.parametrize("lines", [0, 1])
def test_a_crash_before_the_first_tip_is_no_copy(path, anchor, lines):
    made(path, anchor=anchor).close()
    anchor.write_bytes(b"".join(anchor.read_bytes().splitlines(keepends=True)[:lines]))
    assert reopened(path).reserve().step == 1


def test_the_anchor_moves_before_the_token_and_after_the_ledger(path, anchor, monkeypatch):
    one = made(path, anchor=anchor)
    order = []
    real = os.fsync
    sizes = {path: path.stat().st_size, anchor: anchor.stat().st_size}

    def fsync(descriptor):
        order.extend(name for name, size in sizes.items() if name.stat().st_size > size and name not in order)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    one.reserve()
    assert order == [path, anchor]


def test_an_anchor_that_refuses_leaves_no_token(path, anchor):
    one = made(path, anchor=anchor)
    os.close(one._anchor._descriptor)
    with pytest.raises(LedgerError, match="the anchor"):
        one.reserve()
    with pytest.raises(LedgerError, match="interrupted"):
        one.reserve()


def test_a_crash_between_ledger_and_anchor_is_no_copy(path, anchor, monkeypatch):
    one = made(path, anchor=anchor)
    monkeypatch.setattr(ledger, "move_anchor", lambda anchor, tip: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        one.reserve()
    monkeypatch.undo()
    crashed(one)
    assert reopened(path).spent == 16


def test_an_anchor_has_one_run(path, anchor, tmp_path):
    made(path, anchor=anchor).close()
    with pytest.raises(LedgerError, match="another run"):
        made(tmp_path / "other", anchor=anchor)
