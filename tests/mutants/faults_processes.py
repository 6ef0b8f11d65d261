"""Faults of training in several processes: what ranks sum, draw, pay for and tell each other."""

from functools import partial

from mutant import Mutant, among

RESULTS = partial(among, "test_equal_results")
SAME = RESULTS("test_two_processes_give_the_parameters_of_one")
SHARDS = RESULTS("test_a_sharded_data_set_gives_what_the_whole_one_gives")
SHARES = partial(among, "test_shares_of_noise")
TOGETHER = partial(among, "test_ranks_refuse_together")
SHARDED = partial(among, "test_sharded_models")
BY_MODULE = SHARDED("test_two_ranks_with_shards_give_the_parameters_of_one_process[False]")
GATHERED = SHARDED("test_two_ranks_with_shards_give_the_parameters_of_one_process[True]")
PASSES = partial(among, "test_module_passes")

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
    Mutant("the rounding of shards alone is covered", "ShardedModel.sizes", "self.shards[name].numel() if", "total.numel() if",
           PASSES("test_the_noise_of_shards_is_that_of_one_process")),
    Mutant("all shards have the first coordinates' noise", "ShardedModel._first_coordinate", "* self.world.rank)", "* 0)",
           BY_MODULE),
    Mutant("the statistics of one rank are released", "ShardedModel.scatter", "every.sum(0)", "every[0]", GATHERED),
    Mutant("a rank takes the rows of another", "reduce_rows", "rows[name] * (rank + 1)) - rows[name] * rank",
           "rows[name] * (size - rank)) - rows[name] * (size - 1 - rank)", BY_MODULE),
    Mutant("examples whose pass fails are left out", "ShardedSums._sum_by_module", "examples if has_failed", "None if has_failed",
           BY_MODULE),
    Mutant("ranks stop with rank 0", "ShardedSums._sum_by_module", "if not any(more for more, _ in told):",
           "if not told[0][0]:", SHARDED("test_ranks_take_different_numbers_of_passes")),
    Mutant("modules are gathered in any order", "ModulePasses._gather", "self.order is not None and", "False and",
           PASSES("test_a_pass_that_gathers_out_of_order_fails_before_it_gathers")),
    Mutant("memory that the sum reads is freed", "ModulePasses.is_needed", "self._recorder is not None and", "False and",
           BY_MODULE),
    Mutant("a parameter without memory is read", "_refuse_freed", "not x.untyped_storage().size()", "False",
           PASSES("test_a_parameter_is_not_read_where_it_has_no_memory")),
    Mutant("a checkpoint has the rows in another order", "to_whole", "leaf.full_tensor()", "leaf.full_tensor().roll(1, 0)",
           SHARDED("test_a_run_resumes_in_any_number_of_processes_and_its_model_is_whole[AdamW, scheduler-2-1]")),
    Mutant("every rank restores the first rows", "ShardedState._take", "rows * self._model.world.rank", "0",
           SHARDED("test_a_run_resumes_in_any_number_of_processes_and_its_model_is_whole[adaptive-2-3]")),
]  # fmt: skip
