"""Faults in the scikit-learn integration: fits that nobody counts, choices that cost nothing, and facts read off rows."""

from functools import partial

from mutant import Mutant, among

ESTIMATORS = partial(among, "test_sklearn_estimators")
SEARCH = partial(among, "test_sklearn_search")
PIPELINES = partial(among, "test_sklearn_pipelines")
COVERED = SEARCH("test_the_whole_search_meets_epsilon_and_one_training_costs_less")

MUTANTS = [
    Mutant("searches may clone an estimator of private rows", "PrivateEstimator.__sklearn_clone__", "not self.public_rows",
           "not self.epsilon", ESTIMATORS("test_a_search_cannot_clone_an_estimator_of_private_rows_and_trains_nothing")),
    Mutant("an estimator trains on private rows again", "PrivateEstimator.mark_spent", "not self.public_rows", "self.public_rows",
           ESTIMATORS("test_an_estimator_trains_on_private_rows_once_and_survives_a_pickle")),
    Mutant("a fit does not draw from the budget", "PrivateEstimator.begin",
           "budget=self.check_unspent()", "budget=self.check_unspent() and None",
           ESTIMATORS("test_a_budget_pays_for_every_fit_and_refuses_the_one_that_it_does_not_cover")),
    Mutant("public rows get a guarantee", "PrivateEstimator.adopt",
           "self.guarantee_ = None", "pass", ESTIMATORS("test_public_rows_can_be_searched_and_have_no_guarantee")),
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
           "result.training, result.guarantee", "result.training", COVERED),
    Mutant("noise covers one training of a search", "search.tune",
           "number=law) , setting", "number=geometric(1.0)), setting", COVERED),
    Mutant("functions of all rows count as public", "pipelines._is_harmless",
           "isinstance(function, np.ufunc)", "callable(function)", PIPELINES("test_steps_that_learn_nothing_from_rows_are_not")),
]  # fmt: skip
