"""Faults in the loops of hosts: lost steps repeated, losses that leak, arguments unchecked, nodes that answer for others."""

from functools import partial

from mutant import Mutant, among

TRAINER = partial(among, "test_private_trainer")
RESUME = partial(among, "test_trainer_resume")
ARGUMENTS = partial(among, "test_trainer_arguments")
LOSS = partial(among, "test_label_loss")
SFT = partial(among, "test_private_sft")
PADDING = partial(among, "test_padding")
NODES = partial(among, "test_flower")

MUTANTS = [
    Mutant("steps that were spent are taken again", "PrivateTrainerMixin.training_step",
           "if self.training.steps_spent <= self.state.global_step:", "if True:",
           RESUME("test_a_resumed_run_ends_at_the_last_step_with_its_schedule[llama]")),
    Mutant("the host logs its loss", "PrivateTrainerMixin.log",
           "logs.pop(name, None)", "pass", TRAINER("test_what_the_host_logs_is_the_same_for_other_private_data")),
    Mutant("the privacy beside weights is that of the plan", "write_privacy", '"epsilon": guarantee.epsilon',
           '"epsilon": training.plan.epsilon()', TRAINER("test_what_is_saved_can_be_loaded_and_states_its_privacy")),
    Mutant("the host clips the noised sum", "arguments.apply_plan", "args.max_steps, args.max_grad_norm = steps, 0.0",
           "args.max_steps = steps", TRAINER("test_an_update_is_the_mean_of_clipped_gradients_of_the_models_own_loss")),
    Mutant("later changes of arguments go unnoticed", "PrivateTrainerMixin._check_arguments",
           "arguments.check_arguments(self.args, self.refused)", "pass",
           ARGUMENTS("test_it_is_refused_as_well_if_it_is_set_later[data_seed]")),
    Mutant("a trainer of one's own may compute on whole batches", "check_overrides",
           "not in _HOSTS", "in ()", ARGUMENTS("test_overrides_that_training_would_leave_out_are_refused[compute_loss-True]")),
    Mutant("epochs of the host need not be the plan's", "arguments.apply_plan",
           "if meant != steps:", "if False:", ARGUMENTS("test_steps_and_batch_size_agree_with_the_plan[options4-False]")),
    Mutant("the labels of all examples divide the loss", "label_loss.loss", ".sum(1).clamp(min=1)", ".sum().clamp(min=1)",
           LOSS("test_each_loss_is_that_of_the_model_for_the_example_alone[causal]")),
    Mutant("labels are compared with the wrong predictions", "label_loss.loss", "logits[:, -labels.shape[1] - 1 : -1]",
           "logits[:, -labels.shape[1] :]", LOSS("test_each_loss_is_that_of_the_model_for_the_example_alone[causal]")),
    Mutant("examples are padded past what the model takes", "_collate_within", "if longest < length", "if longest > length",
           PADDING("test_no_example_is_padded_past_what_the_model_takes[limits1-lengths1]")),
    Mutant("padding that changes gradients stays", "padding.padding_changes",
           "_norm([_difference(a, b) for a, b in zip(one, other, strict=True)])", "0.0",
           PADDING("test_where_padding_changes_the_gradient_examples_have_their_own_lengths[positions shift]")),
    Mutant("packing is allowed", "trl._REFUSED",
           '"packing": Refused(_UNIT_IS_LOST)', '"packing": Refused(_UNIT_IS_LOST, (False, True))',
           SFT("test_what_would_void_the_guarantee_is_refused_by_name[packing]")),
    Mutant("a text that cannot be prepared contributes a made-up one", "trl._without_labels",
           "if row[_LOST]", "if False", SFT("test_texts_that_cannot_be_prepared_keep_their_place_and_their_user")),
    Mutant("texts without labels are dropped, so that their number shows", "trl.Rows.filter",
           "return self", "return Rows.of(unwrap(self).filter(*args, **options), self.made_up)",
           SFT("test_texts_that_cannot_be_prepared_keep_their_place_and_their_user")),
    Mutant("tokenizers warn of one text", "trl._never",
           "return False", "return True", SFT("test_nothing_is_logged_because_of_one_text")),
    Mutant("users are those of other rows", "PrivateSFTTrainer._private_parts", "list(self.train_dataset[self._user_column])",
           "sorted(self.train_dataset[self._user_column])", SFT("test_users_stay_with_their_rows_when_trl_shuffles")),
    Mutant("nodes answer for clients of others", "_read_replies",
           "asked.get(reply.metadata.src_node_id, ())", "[each for own in asked.values() for each in own]",
           NODES("test_a_node_may_not_answer_for_clients_of_another_or_of_none_nor_twice")),
    Mutant("answers to earlier rounds count", "_read_replies", "reply.metadata.group_id != str(number)", "False",
           NODES("test_what_is_no_message_of_the_client_counts_as_zero[the answer is for another round-dense]")),
    Mutant("rounds begin without all nodes", "FlowerPopulation.__init__",
           "here >= set(nodes)", "len(here) > 0", NODES("test_the_whole_population_is_waited_for")),
    Mutant("nodes are told the mask of another block", "_tell", "selection.block, selection.zeros", "0, selection.zeros",
           NODES("test_nodes_answer_with_what_the_simulation_sums[flat-random]")),
]  # fmt: skip
