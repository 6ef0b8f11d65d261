"""Faults of training in several processes: what ranks sum, draw, pay for and tell each other."""

from functools import partial

from mutant import Mutant, among

RESULTS = partial(among, "test_equal_results")
SAME = RESULTS("test_two_processes_give_the_parameters_of_one")
SHARDS = RESULTS("test_a_sharded_data_set_gives_what_the_whole_one_gives")
SHARES = partial(among, "test_shares_of_noise")
TOGETHER = partial(among, "test_ranks_refuse_together")

MUTANTS = [
    Mutant("every rank sums the whole draw", "World.take", "return first, draw[first:stop]", "return 0, draw", SAME),
    Mutant("an example between two ranks is left out", "World.take", "(self.rank + 1) // self.size",
           "(self.rank + 1) // self.size - (self.rank == 0)", SAME),
    Mutant("reading begins with the same random numbers on every rank", "World.take",
           "return first, draw[first:stop]", "return 0, draw[first:stop]", SAME),
    Mutant("a shard begins at the first example", "World.check_examples", "sum(sizes[: self.rank]), own", "0, own", SHARDS),
    Mutant("each rank draws for itself", "World.make_words", "if self.size == 1 or not source.private:", "if source.private:",
           SHARES("test_ranks_draw_alike_and_every_purpose_and_training_has_its_own_stream")),
    Mutant("all purposes share one stream", "World.make_words", "purpose.encode()", 'b""',
           SHARES("test_ranks_draw_alike_and_every_purpose_and_training_has_its_own_stream")),
    Mutant("all trainings share one key", "World.begin", "None, self.agree_on_key()", "None, self._key or self.agree_on_key()",
           SHARES("test_ranks_draw_alike_and_every_purpose_and_training_has_its_own_stream")),
    Mutant("other parts pass", "record_together", "if every[0].get(name) != other.get(name)", "if name is None",
           TOGETHER("test_what_one_rank_refuses_ends_the_training_on_all[another rate]")),
    Mutant("one of several processes trains alone", "World.check_complete", "!= self.size:", "< self.size:",
           TOGETHER("test_training_without_a_world_in_several_processes_is_refused_on_every_rank")),
    Mutant("an error on one rank is not told", "World.report", "self.size > 1 and self._over is None", "False",
           TOGETHER("test_what_one_rank_refuses_ends_the_training_on_all[a model that is not supported]")),
    Mutant("an interrupt leaves other ranks in a reduction", "Loop._step",
           "contextlib.nullcontext() if self._owners is None else hold_signals()", "contextlib.nullcontext()",
           TOGETHER("test_an_interrupt_between_collectives_waits_for_their_end")),
    Mutant("the last coordinate of a share has no owner", "scatter_sums", "if low < high:", "if low < high - 1:",
           SHARES("test_every_coordinate_has_one_owner_and_shares_join_to_the_sum")),
    Mutant("all shares have the first coordinates' noise", "draw_shares", "[first : first + len(part)]", "[: len(part)]", SAME),
]  # fmt: skip
