import ast
import os
import threading

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from privet.noise import FastSource, Keystream, SecureSource
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


def test_the_words_are_those_of_the_standard(monkeypatch):
    """AES-256 in counter mode, NIST SP 800-38A, F.5.5: the output blocks, and a long stream however it is asked for."""
    key = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4"
    known = {32: bytes.fromhex(key), 16: bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")}
    monkeypatch.setattr(os, "urandom", known.__getitem__)
    first = "0bdf7df1591716335e9a8b15c860c502" + "5a6e699d536119065433863c8f657b94"
    assert Keystream().words(4).tobytes().hex() == first
    whole = Cipher(algorithms.AES(known[32]), modes.CTR(known[16])).encryptor().update(bytes(8 * 50_000))
    stream = Keystream()
    filled = np.full(20_001 + ROOM, 7.0)
    pieces = [stream.words(9_999).tobytes(), stream.words(20_000).tobytes()]
    stream.fill(filled)
    assert b"".join([*pieces, filled[:-ROOM].tobytes()]) == whole


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

    sources = [SecureSource(), FastSource()]
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
