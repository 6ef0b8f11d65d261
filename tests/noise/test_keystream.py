import ast
import os
import threading

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from privet.noise import Keystream, SecureSource
from privet.noise import sources as module
from privet.noise.sources import ROOM


def test_words_are_uniform(holds_twice):
    stream = Keystream()

    def experiment():
        words = stream.words(1 << 18)
        bits = np.unpackbits(words.view(np.uint8)).reshape(-1, 64)
        by_bit = (bits.sum(0) - len(bits) / 2) / np.sqrt(len(bits) / 4)
        # A word has 64 bits in its own order of significance, so every byte position is looked at on its own.
        places = words.view(np.uint8).reshape(-1, 8).T
        return {
            "bytes": stats.chisquare(np.bincount(words.view(np.uint8), minlength=256)).pvalue,
            "bits": stats.chi2.sf((by_bit**2).sum(), 64),
            "neighbouring bytes": stats.chisquare(np.bincount(places[0].astype(int) * 256 + places[1], minlength=1 << 16)).pvalue,
            **{f"byte {i}": stats.chisquare(np.bincount(place, minlength=256)).pvalue for i, place in enumerate(places)},
        }

    holds_twice(experiment)


MODES = pytest.mark.parametrize("mode", [module._counter, modes.GCM], ids=["counter", "galois"])


@MODES
def test_the_words_are_those_of_the_standard(mode, monkeypatch):
    """AES-256 in counter mode, as in Galois/counter mode: test case 14 of its specification, and a long stream in pieces."""
    monkeypatch.setattr(module, "_mode", lambda: mode)
    assert Keystream(bytes(32)).words(2).tobytes().hex() == "cea7403d4d606b6e074ec5d3baf39d18"
    known = {32: bytes(range(32)), 12: bytes(range(100, 112))}
    monkeypatch.setattr(os, "urandom", known.__getitem__)
    counter = modes.CTR(known[12] + (2).to_bytes(4, "big"))
    whole = Cipher(algorithms.AES(known[32]), counter).encryptor().update(bytes(8 * 50_000))
    stream = Keystream()
    filled = np.full(20_001 + ROOM, 7.0)
    pieces = [stream.words(9_999).tobytes(), stream.words(20_000).tobytes()]
    stream.fill(filled)
    assert b"".join([*pieces, filled[:-ROOM].tobytes()]) == whole
    assert filled[-ROOM:].tolist() == [7.0] * ROOM


@MODES
def test_a_nonce_serves_for_less_than_its_count_has_room_for_and_another_follows(mode, monkeypatch):
    assert module._STRETCH < 16 * (2**32 - 2)
    monkeypatch.setattr(module, "_mode", lambda: mode)
    monkeypatch.setattr(module, "_STRETCH", 8 * 1000)
    stream, found = Keystream(bytes(32)), b""
    for size in (10, 990, 1000, 2500, 500):
        found += stream.words(size).tobytes()
    expected = [
        Cipher(algorithms.AES(bytes(32)), modes.CTR(nonce.to_bytes(12, "big") + (2).to_bytes(4, "big"))).encryptor()
        for nonce in range(5)
    ]
    assert found == b"".join(cipher.update(bytes(8000)) for cipher in expected)


def test_asking_twice_or_once_never_repeats_a_word_and_neither_do_instances():
    stream = Keystream()
    words = [stream.words(size) for size in (0, 1, 3, 1000, 50_000)] + [Keystream().words(1000) for _ in range(4)]
    together = np.concatenate(words)
    assert together.dtype == np.uint64
    assert len(np.unique(together)) == len(together) == 55_004


def test_threads_never_see_the_same_words():
    stream, found = Keystream(), []
    start = threading.Barrier(8)

    def draw():
        start.wait()
        found.extend(stream.words(97) for _ in range(50))

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    words = np.concatenate(found)
    assert len(np.unique(words)) == len(words) == 8 * 50 * 97


def test_a_fork_gets_a_new_stream():
    def draw(source):
        return source.words(2).tolist(), source.normal(2).tolist()

    sources = [SecureSource(), SecureSource()]
    for source in sources:
        draw(source)
    read, write = os.pipe()
    for _ in range(2):
        if not (child := os.fork()):
            os.write(write, repr([draw(source) for source in sources]).encode() + b"\n")
            os._exit(0)
        os.waitpid(child, 0)
    os.close(write)
    processes = [[draw(source) for source in sources], *map(ast.literal_eval, os.read(read, 10_000).decode().splitlines())]
    os.close(read)
    assert len(processes) == 3
    for tier in (0, 1):
        for kind in (0, 1):
            assert len({tuple(process[tier][kind]) for process in processes}) == 3
