import ast
import copy
import pickle
import subprocess
import sys
import threading

import numpy as np
from scipy import stats

from privet.noise import Keystream


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


def test_asking_twice_or_once_never_repeats_a_word():
    stream = Keystream()
    words = np.concatenate([stream.words(size) for size in (0, 1, 3, 1000, 50_000)])
    assert words.dtype == np.uint64
    assert len(np.unique(words)) == len(words) == 51_004


def test_instances_copies_and_pickles_have_streams_of_their_own():
    stream = Keystream()
    stream.words(4)
    streams = [stream, Keystream(), copy.copy(stream), copy.deepcopy(stream), pickle.loads(pickle.dumps(stream))]
    words = np.concatenate([each.words(1000) for each in streams])
    assert len(np.unique(words)) == len(words)


def test_a_pickle_holds_no_secret():
    one, other = Keystream(), Keystream()
    one.words(10)
    assert pickle.dumps(one) == pickle.dumps(other)


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


FORK = """
import os
from privet.noise import SOURCES

def draw(source):
    return source.words(2).tolist(), source.normal(2).tolist()

sources = [SOURCES["secure"](), SOURCES["fast"]()]
for source in sources:
    draw(source)
read, write = os.pipe()
for _ in range(2):
    if os.fork() == 0:
        os.write(write, repr([draw(source) for source in sources]).encode() + b"\\n")
        os._exit(0)
    os.wait()
os.close(write)
print(repr([draw(source) for source in sources]))
print(os.read(read, 10000).decode())
"""


def test_a_fork_gets_a_stream_of_its_own():
    result = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    processes = [ast.literal_eval(line) for line in result.stdout.split("\n") if line]
    assert len(processes) == 3
    for tier in (0, 1):
        for kind in (0, 1):
            assert len({tuple(process[tier][kind]) for process in processes}) == 3
