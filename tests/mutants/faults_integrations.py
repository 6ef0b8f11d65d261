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
ESTIMATORS = partial(among, "test_sklearn_estimators")
SEARCH = partial(among, "test_sklearn_search")
PIPELINES = partial(among, "test_sklearn_pipelines")
COVERED = SEARCH("test_the_whole_search_meets_epsilon_and_one_training_costs_less")

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
           "_norm([a - b for a, b in zip(one, other, strict=True)])", "0.0",
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
    # scikit-learn: fits that nobody counts, choices that cost nothing, and facts read off rows
    Mutant("searches may clone an estimator of private rows", "PrivateEstimator.__sklearn_clone__", "not self.public_rows",
           "not self.epsilon", ESTIMATORS("test_a_search_cannot_clone_an_estimator_of_private_rows_and_trains_nothing")),
    Mutant("an estimator trains on private rows again", "PrivateEstimator.mark_spent", "not self.public_rows", "self.public_rows",
           ESTIMATORS("test_an_estimator_trains_on_private_rows_once_and_survives_a_pickle")),
    Mutant("a fit does not draw from the budget", "PrivateEstimator.begin",
           "budget=self.check_unspent()", "budget=self.check_unspent() and None",
           ESTIMATORS("test_a_budget_pays_for_every_fit_and_refuses_the_one_that_it_does_not_cover")),
    Mutant("public rows get a guarantee", "PrivateEstimator.adopt",
           "None if self.public_rows else ", "", ESTIMATORS("test_public_rows_can_be_searched_and_have_no_guarantee")),
    Mutant("classes are sorted", "public_facts.read_labels",
           "np.asarray(labels)", "np.sort(labels)", ESTIMATORS("test_a_classifier_learns_and_keeps_the_order_of_the_classes")),
    Mutant("one target decides how the others are read", "public_facts.read_target",
           "np.array(y, dtype=object) if isinstance(y, list | tuple) or kind == \"c\" else y", "np.array(y)",
           ESTIMATORS("test_one_target_does_not_decide_how_the_others_are_read")),
    Mutant("a series of labels is converted at once, so that one stops the fit", "public_facts.read_target",
           "cells := read_series(y)", "cells := None", ESTIMATORS("test_a_label_that_python_has_no_object_for_is_undeclared")),
    Mutant("the type of an array of labels, which one label decides, leads to a refusal", "public_facts.with_target",
           "cells = _to_column(values)", "cells = _to_column(values)\n"
           "if values.dtype.kind == \"b\" and not {\"True\", \"1\"} & {*(schema.classes or ())}:\n"
           "    raise InvalidArgumentError(\"y\", \"an array of bool\", \"labels that are classes\")",
           ESTIMATORS("test_booleans_that_are_no_classes_are_undeclared_whether_one_is_missing_or_not")),
    Mutant("one cell of a list decides how the others are read", "public_facts.read_rows",
           "_to_objects(rows)", "np.array(rows)", ESTIMATORS("test_one_cell_of_a_list_does_not_decide_how_the_others_are_read")),
    Mutant("a complex cell is text, like all others of its column", "cells._text", "value.real if value.imag == 0 else None",
           "str(value)", ESTIMATORS("test_a_complex_cell_counts_if_it_is_real_and_does_not_change_or_show_the_others")),
    Mutant("a search states the cost of one training", "search.tune",
           "result.training, stated", "result.training", COVERED),
    Mutant("noise covers one training of a search", "search.tune",
           "number=law) for each", "number=geometric(1.0)) for each", COVERED),
    Mutant("functions of all rows count as public", "pipelines._is_harmless",
           "isinstance(function, np.ufunc)", "callable(function)", PIPELINES("test_steps_that_learn_nothing_from_rows_are_not")),
]  # fmt: skip
