import math
import pickle
import warnings

import numpy as np
import pandas
import pytest
import torch

pytest.importorskip("sklearn", minversion="1.6")

from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import check_estimator

from privet import Budget, load, tables
from privet.errors import BudgetExhaustedError, InvalidArgumentError, PrivetWarning
from privet.integrations.sklearn import PrivateClassifier, PrivateRegressor, PublicScaler
from privet.integrations.sklearn.public_facts import declare_numbers, read_rows
from privet.plan import Plan
from privet.tables.cells import UNDECLARED, to_words
from privet.tuning.defaults import choose_defaults

pytestmark = [pytest.mark.usefixtures("brief_runs"), pytest.mark.filterwarnings("ignore::privet.errors.PrivetWarning")]

QUICK = {"epsilon": 20.0, "delta": 1e-4, "feature_bounds": (0, 1), "steps": 5, "random_state": 0}
# Checks that compare two fits on equal rows: they differ even with hardly any noise, which has no seed and must not have one.
NOT_REPEATABLE = {
    PrivateClassifier: ["check_fit_idempotent", "check_supervised_y_2d"],
    PrivateRegressor: [
        "check_fit_idempotent", "check_supervised_y_2d", "check_regressor_data_not_an_array", "check_regressors_int",
    ],
}  # fmt: skip


def rows(count=200, seed=0):
    random = np.random.default_rng(seed)
    features = random.uniform(0, 1, (count, 3))
    return features, np.where(features[:, 0] > 0.5, "old", "new")


def classifier(**settings):
    return PrivateClassifier(**{**QUICK, "model": "logistic", "classes": ["old", "new"], **settings})


def regressor(**settings):
    return PrivateRegressor(**{**QUICK, "model": "linear", "target_bounds": (0, 10), **settings})


def fails(name, estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            getattr(estimator_checks, name)(type(estimator).__name__, estimator)
        except AssertionError:
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "model"), [(PrivateClassifier, "logistic"), (PrivateRegressor, "linear")])
def test_only_checks_that_repeat_a_fit_fail(kind, model):
    settings = {"delta": 1e-4, "model": model, "public_rows": True}
    estimator = kind(epsilon=1.2e4, steps=15, **settings)
    found = check_estimator(
        estimator, expected_failed_checks=dict.fromkeys(NOT_REPEATABLE[kind], "noise has no seed"), on_fail=None, on_skip=None
    )
    assert {check["check_name"] for check in found if check["status"] == "failed"} == set()
    assert sum(check["status"] == "passed" for check in found) > 40
    noisy = kind(epsilon=5.0, steps=2, **settings)
    assert all(any(fails(name, noisy) for _ in range(20)) for name in NOT_REPEATABLE[kind][:2])


def test_a_classifier_learns_and_keeps_the_order_of_the_classes():
    features, labels = rows(2000)
    found = classifier(steps=50).fit(features, labels)
    assert found.classes_.tolist() == ["old", "new"]
    assert found.score(features, labels) > 0.8
    probabilities = found.predict_proba(features)
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(2000))
    assert (found.classes_[probabilities.argmax(axis=1)] == found.predict(features)).all()
    assert ((found.decision_function(features) > 0) == (found.predict(features) == "new")).all()


@pytest.mark.parametrize("labels", [["old", "new"], [3, 7], [False, True]], ids=str)
def test_a_fitted_classifier_is_opened_again_from_its_directory(labels, tmp_path):
    frame = pandas.DataFrame(rows()[0], columns=["a", "b", "c"])
    target = np.array(labels)[(frame["a"] > 0.5).astype(int)]
    found = classifier(classes=labels, directory=tmp_path / "fit", purpose="to find a bed").fit(frame, target)
    opened = PrivateClassifier.load(tmp_path / "fit")
    assert opened.predict(frame).tolist() == found.predict(frame).tolist()
    assert (opened.predict_proba(frame) == found.predict_proba(frame)).all()
    assert (opened.classes_.tolist(), opened.epsilon_, opened.plan_) == (labels, found.epsilon_, found.plan_)
    assert (opened.n_features_in_, opened.feature_names_in_.tolist()) == (3, ["a", "b", "c"])
    assert (opened.guarantee_.purpose, opened.forecast_) == ("to find a bed", found.forecast_)
    assert (tmp_path / "fit" / "guarantee.md").read_text(encoding="utf-8") == f"# Guarantee\n\n{found.guarantee_}\n"
    assert not found.guarantee_.user_code
    assert load(tmp_path / "fit").predict({"a": [0.1], "b": [0.2], "c": [0.3]})[0] in map(str, labels)
    with pytest.raises(BudgetExhaustedError):
        opened.fit(frame, target)
    with pytest.raises(InvalidArgumentError, match=r"of a PrivateRegressor\. It is of PrivateClassifier"):
        PrivateRegressor.load(tmp_path / "fit")


def test_a_regression_and_a_fit_with_a_schema_are_opened_again(tmp_path):
    features, labels = rows()
    found = regressor(directory=tmp_path / "number").fit(features, 10 * features[:, 0])
    opened = PrivateRegressor.load(tmp_path / "number")
    assert (opened.predict(features) == found.predict(features)).all()
    assert opened.get_params()["schema"] == found.schema_
    frame = pandas.DataFrame(features, columns=["a", "b", "c"]).assign(note="-")
    columns = (*((name, tables.Number(0, 1)) for name in "abc"), ("note", tables.Ignore()))
    schema = tables.Schema(columns, "age", tables.Classification(("old", "new")))
    found = PrivateClassifier(**{**QUICK, "feature_bounds": None}, schema=schema, directory=tmp_path / "schema")
    found.fit(frame, labels)
    assert (PrivateClassifier.load(tmp_path / "schema").predict(frame) == found.predict(frame)).all()
    (tmp_path / "schema" / "estimator.json").unlink()
    with pytest.raises(InvalidArgumentError, match="that of a fitted estimator"):
        PrivateClassifier.load(tmp_path / "schema")


def test_public_rows_have_no_guarantee_in_their_directory_either(tmp_path):
    PrivateClassifier(public_rows=True, steps=2, model="logistic", directory=tmp_path / "fit").fit(*rows())
    opened = PrivateClassifier.load(tmp_path / "fit")
    assert (opened.guarantee_, opened.epsilon_) == (None, math.inf)
    assert "NO PRIVACY (ε = ∞): the rows were declared public" in (tmp_path / "fit" / "guarantee.md").read_text(encoding="utf-8")


def test_a_regression_learns_and_stays_within_the_bounds():
    features, _ = rows(2000)
    found = regressor(steps=50).fit(features, 10 * features[:, 0])
    assert found.score(features, 10 * features[:, 0]) > 0.5
    predicted = found.predict(100 * features)
    assert predicted.min() >= 0
    assert predicted.max() <= 10


@pytest.mark.parametrize("classes", [[3, 1, 2], [2.5, 0.5], [False, True], ["b", "a"]])
def test_predictions_are_labels_of_the_type_that_was_given(classes):
    features, _ = rows()
    labels = np.array(classes)[np.arange(200) % len(classes)]
    for given in (labels, labels.tolist()):
        prepared = classifier(classes=classes).prepare(features, given)
        assert prepared.dataset.train.tensors[1].tolist() == [place % len(classes) for place in range(200)]
    found = classifier(classes=classes).fit(features, labels).predict(features)
    assert found.dtype == labels.dtype
    assert {*found.tolist()} <= {*classes}


@pytest.mark.parametrize(("estimator", "name"), [
    (classifier(feature_bounds=None), "feature_bounds"),
    (classifier(feature_bounds=(0, [1, 2])), "feature_bounds"),
    (classifier(feature_bounds=(1, 0)), "feature_bounds of 'x0'"),
    (classifier(feature_bounds={"x0": (0, 1)}), "feature_bounds"),
    (classifier(classes=None), "classes"),
    (classifier(classes=["one"]), "classes"),
    (regressor(target_bounds=None), "target_bounds"),
    (regressor(target_bounds=(0, math.inf)), "target_bounds"),
    (classifier(model="linear"), "model"),
    (regressor(model="logistic"), "model"),
    (classifier(delta=0.1), "delta"),
], ids=str)  # fmt: skip
def test_a_missing_public_fact_or_a_wrong_setting_is_named_before_anything_is_spent(estimator, name):
    features, _ = rows()
    with pytest.raises(InvalidArgumentError, match=f"^{name} is "):
        estimator.fit(features, features[:, 0])
    estimator.check_unspent()


PRIVATE = [math.nan, math.inf, -math.inf, 1e300, None, "word", {"a": 1}, True, b"?", 1 + 2j, 10**400]


@pytest.mark.parametrize(("cell", "make"), [*zip(PRIVATE, [classifier, regressor] * 6, strict=False)])
def test_no_cell_raises_or_changes_the_encoding_of_other_rows(make, cell):
    """A list holds the rows, whose types are mixed by one cell; neighbours differ in the features and the target of one row."""
    features, labels = rows(20)
    target = labels.tolist() if make is classifier else features[:, 1].tolist()
    before = make().prepare(features.tolist(), target)
    changed, changed_target = features.tolist(), [*target]
    changed[3][1] = changed_target[3] = cell
    after = make().prepare(changed, changed_target)
    assert (after.plan, after.architecture, after.defaults) == (before.plan, before.architecture, before.defaults)
    for own, other in zip(before.dataset.train.tensors, after.dataset.train.tensors, strict=True):
        assert own.dtype == other.dtype
        assert (np.delete(own.numpy(), 3, 0) == np.delete(other.numpy(), 3, 0)).all()
    assert np.abs(after.dataset.train.tensors[0].numpy()).max() <= 1
    make(steps=2).fit(changed, changed_target)


def test_one_target_does_not_decide_how_the_others_are_read():
    """NumPy makes floats of the list, in which the first two are equal."""
    prepared = classifier(classes=[2**53, 2**53 + 1]).prepare(rows(3)[0], [2**53, 2**53 + 1, 0.5])
    assert prepared.dataset.train.tensors[1].tolist() == [0, 1, UNDECLARED]


def test_one_cell_of_a_list_does_not_decide_how_the_others_are_read():
    """NumPy makes floats of the list, and would round the first cell."""
    frame = read_rows(classifier(), [[2**53 + 1], [0.5], [True]], reset=True)
    assert to_words(frame.columns["x0"]).distinct == (str(2**53 + 1), "0.5", "True")


@pytest.mark.parametrize("frame", [False, True])
def test_a_complex_cell_counts_if_it_is_real_and_does_not_change_or_show_the_others(frame):
    """pandas makes all cells of such a column complex, and scikit-learn's message shows them."""
    features = np.round(rows(4)[0], 3)
    found = []
    for cell in (0.5, 0.5 + 0j, 1j, math.nan):
        table = [[cell, 0.5, 0.5], *features.tolist()]
        target = [cell, *features[:, 1].tolist()]
        given = (pandas.DataFrame(table), pandas.Series(target)) if frame else (table, target)
        prepared = regressor(target_bounds=(0, 1)).prepare(*given)
        found.append(torch.cat([prepared.dataset.train.tensors[0], prepared.dataset.train.tensors[1][:, None]], 1))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
    torch.testing.assert_close(found[2], found[3], rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(found[0][1:], found[2][1:], rtol=0, atol=0)


@pytest.mark.parametrize("make", [classifier, regressor])
@pytest.mark.parametrize("change", [
    lambda features, target: (features.astype(complex), target),
    lambda features, target: (features, target.astype(complex)),
    lambda features, target: (features[:, 0], target),
    lambda features, target: (features[:, 0].tolist(), target),
    lambda features, target: ([*features[:-1].tolist(), [0.123]], target),
])  # fmt: skip
def test_errors_about_types_and_shapes_do_not_show_rows(make, change):
    features = np.full((4, 3), 0.123)
    with pytest.raises(ValueError) as caught:
        make().prepare(*change(features, features[:, 0]))
    assert "0.123" not in str(caught.value)
    assert "1.23" not in str(caught.value)


@pytest.mark.parametrize(("classes", "labels"), [
    ([0, 1], [False, True, True]),
    (["0", "1"], [False, True, True]),
    ([False, True], [0, 1, 1]),
    ([False, True], [0.0, 1.0, 1.0]),
    (["no", "yes"], [b"no", b"yes", b"yes"]),
    ([b"no", b"yes"], [b"no", b"yes", b"yes"]),
], ids=str)  # fmt: skip
def test_booleans_are_numbers_and_bytes_are_text_among_labels(classes, labels):
    for given in (labels, np.array(labels), np.array(labels, dtype=object)):
        prepared = classifier(classes=classes).prepare(rows(3)[0], given)
        assert prepared.dataset.train.tensors[1].tolist() == [0, 1, 1]


def test_a_label_that_python_has_no_object_for_is_undeclared():
    pyarrow = pytest.importorskip("pyarrow")
    polars = pytest.importorskip("polars")
    encoded = pyarrow.array([b"old", b"J\xf6rg", b"new"], pyarrow.binary())
    labels = pyarrow.chunked_array([pyarrow.Array.from_buffers(pyarrow.string(), 3, encoded.buffers())])
    days = polars.Series([0, 10**8, 1]).cast(polars.Date)
    for given, classes in ((labels, ["old", "new"]), (labels.chunk(0), ["old", "new"]),
                           (pandas.Series(pandas.arrays.ArrowExtensionArray(labels)), ["old", "new"]),
                           (days, ["1970-01-01", "1970-01-02"])):  # fmt: skip
        try:
            prepared = classifier(classes=classes).prepare(rows(3)[0], given)
        except Exception as error:
            pytest.fail(f"raised {type(error).__name__}")
        assert prepared.dataset.train.tensors[1].tolist() == [0, UNDECLARED, 1]


@pytest.mark.parametrize("kind", ["int64", "Int64", "int64[pyarrow]", "category", "object"])
def test_labels_of_every_kind_of_series_are_read_alike(kind):
    labels = pandas.Series([1, 0, 1], dtype=kind)
    assert classifier(classes=[0, 1]).prepare(rows(3)[0], labels).dataset.train.tensors[1].tolist() == [1, 0, 1]
    assert classifier(classes=None, public_rows=True).prepare(rows(3)[0], labels).schema.classes == ("0", "1")


def test_booleans_that_are_no_classes_are_undeclared_whether_one_is_missing_or_not():
    for given in (np.array([True, False]), np.array([True, None]), pandas.Series([True, False])):
        try:
            prepared = classifier().prepare(rows(2)[0], given)
        except InvalidArgumentError:
            pytest.fail("the type of the array, which one label decides, led to a refusal")
        assert prepared.dataset.train.tensors[1].tolist() == [UNDECLARED] * 2


def test_what_is_not_a_label_or_a_target_contributes_no_gradient():
    features, labels = rows(20)
    prepared = classifier().prepare(features, [*labels[:19], "neither"])
    model = prepared.architecture.build()
    assert prepared.task.loss(model, prepared.dataset.train.tensors)[19] == 0
    prepared = regressor().prepare(features, [*features[:19, 0], math.nan])
    losses = prepared.task.loss(prepared.architecture.build(), prepared.dataset.train.tensors)
    assert losses[19] == 0
    assert losses.isfinite().all()


def test_numbers_are_clipped_missing_ones_are_in_the_middle_and_booleans_are_numbers():
    estimator = classifier(feature_bounds=([0, 0, -1], 2)).prepare([[5, 1, math.nan], [True, -3, 2]], ["old", "new"])
    assert estimator.dataset.train.tensors[0].tolist() == [[1.0, 0.0, 0.0], [0.0, -1.0, 1.0]]
    prepared = regressor(target_bounds=(0, 1)).prepare(rows(2)[0], np.array([True, False]))
    assert prepared.dataset.train.tensors[1].tolist() == [1, -1]


def test_settings_that_are_not_given_are_the_defaults_of_the_number_of_rows():
    features, labels = rows(3000)
    facts = {"epsilon": 1.0, "delta": 1e-5}
    found = classifier(**facts, model=None, steps=None).prepare(features, labels)
    chosen = choose_defaults("table", 3000, **facts, reads=2.5e5)
    assert found.architecture.name == "table"
    assert found.architecture.options["numbers"] == [0, 1, 2]
    assert (found.plan.steps, found.plan.sampling.batch_size) == (chosen.steps, chosen.batch_size)
    assert found.plan.clipping.bound == chosen.bound
    other = classifier(**facts, model="mlp", steps=7, batch_size=30, bound=0.2, model_options={"width": 5})
    found = other.prepare(features, labels)
    assert (found.plan.steps, found.plan.sampling.batch_size, found.plan.clipping.bound) == (7, 30, 0.2)
    assert found.architecture.options["width"] == 5


@pytest.mark.parametrize("make", [classifier, regressor])
def test_the_statement_is_that_of_the_training_and_names_what_it_does_not_cover(make):
    features, _ = rows()
    found = make(epsilon=0.7).fit(features, features[:, 0])
    assert found.epsilon_ == found.guarantee_.epsilon <= 0.7
    assert found.plan_.epsilon() == found.epsilon_
    assert found.guarantee_.examples == found.plan_.examples == 200
    assert "A public schema" in str(found.guarantee_)
    assert any("check_pipeline" in text for text in found.guarantee_.not_covered)
    assert found.forecast_.examples == 200


def test_a_hopeless_plan_warns():
    features, labels = rows(50)
    with pytest.warns(PrivetWarning, match="hopeless"):
        classifier(epsilon=0.01).fit(features, labels)


def test_an_estimator_trains_on_private_rows_once_and_survives_a_pickle():
    features, labels = rows()
    found = classifier().fit(features, labels)
    restored = pickle.loads(pickle.dumps(found))
    assert (restored.predict_proba(features) == found.predict_proba(features)).all()
    assert (restored.guarantee_, restored.plan_) == (found.guarantee_, found.plan_)
    for again in (found, restored):
        with pytest.raises(BudgetExhaustedError, match="trained on private rows already"):
            again.fit(features, labels)


def test_a_budget_pays_for_every_fit_and_refuses_the_one_that_it_does_not_cover(tmp_path):
    features, labels = rows()
    budget = Budget.create(tmp_path / "budget", epsilon=1.5, delta=1e-4, examples=200)
    estimator = classifier(epsilon=0.5, budget=str(budget.path))
    one = estimator.fit(features, labels).epsilon_
    two = regressor(epsilon=0.5, budget=budget).fit(features, features[:, 0])
    assert max(one, two.epsilon_) < budget.account().total() <= 1.5
    estimator.fit(features, labels)
    with pytest.raises(BudgetExhaustedError):
        regressor(epsilon=1.2, budget=budget).fit(features, features[:, 0])
    assert budget.account().total() <= 1.5
    with pytest.raises(InvalidArgumentError, match=r"plan\.examples"):
        estimator.fit(features[:100], labels[:100])


def refusal(search):
    """Return what a search is refused with; "" if it starts."""
    try:
        search()
    except InvalidArgumentError as error:
        return str(error)
    except ValueError:  # of scikit-learn, where fits were tried
        pass
    return ""


def test_a_search_cannot_clone_an_estimator_of_private_rows_and_trains_nothing(monkeypatch):
    features, labels = rows()
    trained = []
    monkeypatch.setattr(PrivateClassifier, "begin", lambda *arguments: trained.append(arguments))
    for estimator in (classifier(), make_pipeline(PublicScaler((0, 1)), classifier(feature_bounds=(-1, 1)))):
        name = "bound" if isinstance(estimator, PrivateClassifier) else "privateclassifier__bound"
        search = GridSearchCV(estimator, {name: [0.1, 1.0]}, cv=2)
        assert "privet.integrations.sklearn.tune" in refusal(lambda search=search: search.fit(features, labels))
        assert "public_rows" in refusal(lambda estimator=estimator: cross_val_score(estimator, features, labels, cv=2))
    assert not trained


def test_public_rows_can_be_searched_and_have_no_guarantee():
    features, labels = rows()
    search = GridSearchCV(PrivateClassifier(epsilon=20.0, steps=5, public_rows=True), {"model": ["logistic", "table"]}, cv=2)
    found = search.fit(features, labels).best_estimator_
    assert found.guarantee_ is None
    assert math.isinf(found.epsilon_)
    assert found.classes_.tolist() == ["new", "old"]
    with pytest.raises(InvalidArgumentError, match="budget"):
        classifier(public_rows=True, budget="budget").fit(features, labels)


def test_the_random_state_decides_the_initial_weights_only():
    features, labels = rows()
    built = [classifier(model="mlp", random_state=state) for state in (0, 0, 1)]
    weights, outputs = [], []
    for estimator in built:
        prepared = estimator.prepare(features, labels)
        with estimator.begin(prepared, estimator.calibrate(prepared.plan)) as training:
            weights.append(next(training.model.parameters()).detach().clone())
            training.run()
            outputs.append(estimator.adopt(prepared, training).decision_function(features))
    assert (weights[0] == weights[1]).all()
    assert not (weights[0] == weights[2]).all()
    assert not (outputs[0] == outputs[1]).all()


def test_equal_plans_are_calibrated_once(monkeypatch):
    features, labels = rows(173)
    asked = []
    calibrate = Plan.calibrate
    monkeypatch.setattr(Plan, "calibrate", lambda plan, epsilon: asked.append(epsilon) or calibrate(plan, epsilon))
    found = [classifier(epsilon=0.321).fit(features, labels) for _ in range(2)]
    assert asked == [0.321]
    assert found[0].plan_ == found[1].plan_


def test_frames_are_read_by_name_and_a_schema_reads_categories():
    frame = pandas.DataFrame({"age": [20.0, 40.0, None] * 40, "job": ["own", "state", "?"] * 40, "id": range(120)})
    labels = ["yes", "no", "no"] * 40
    columns = (("age", tables.Number(0, 100)), ("job", tables.Category(("own", "state"))))
    schema = tables.Schema(columns, "member", tables.Classification(("no", "yes")))
    found = classifier(feature_bounds=None, classes=None, schema=schema).fit(frame, labels)
    assert found.plan_.schema == found.schema_ == schema
    assert found.n_features_in_ == 3
    assert found.feature_names_in_.tolist() == ["age", "job", "id"]
    assert found.classes_.tolist() == ["no", "yes"]
    assert {*found.predict(frame)} <= {"no", "yes"}
    with pytest.raises(ValueError, match="feature names"):
        found.predict(frame[["job", "age", "id"]])
    bounds = {"age": (0, 100), "job": (0, 1), "id": (0, 1e6)}
    prepared = classifier(feature_bounds=bounds, classes=["yes", "no"]).prepare(frame, labels)
    assert prepared.schema.feature_names == ("age", "job", "id")


@pytest.mark.parametrize(("bounds", "expected"), [
    ((0, 9), [(0, 9), (0, 9), (0, 9)]),
    (([0, 1, 2], 9), [(0, 9), (1, 9), (2, 9)]),
    (np.array([[0, 1, 2], [7, 8, 9]]), [(0, 7), (1, 8), (2, 9)]),
    ([(0, 7), (1, 8), (2, 9)], [(0, 7), (1, 8), (2, 9)]),
    (((0, 7), (1, 8), (2, 9)), [(0, 7), (1, 8), (2, 9)]),
    ([(0, 1), (2, 3)], [(0, 1), (2, 3)]),
    (((0, 1), (2, 3)), [(0, 2), (1, 3)]),
    (((0, 20), (0, 2)), [(0, 20), (0, 2)]),
    ([0, 9], [(0, 9), (0, 9)]),
    ([(0, 9)], [(0, 9)]),
], ids=str)  # fmt: skip
def test_bounds_are_one_pair_or_one_for_each_feature(bounds, expected):
    names = [f"x{place}" for place in range(len(expected))]
    found = declare_numbers("feature_bounds", names, bounds)
    assert [(column.lower, column.upper) for column in found] == expected


@pytest.mark.parametrize(("bounds", "message"), [
    ([(0, 7), (1, 8)], r"is \[\(0, 7\), \(1, 8\)\]; it must be .*a list of one \(low, high\) per feature.*for 3 features"),
    ([(0, 7), (8, 1), (2, 9)], r"of 'x1' is \(8.0, 1.0\); it must be two finite numbers, the lower one first"),
    ([(0, 1)] * 50, "is '50 entries'; it must be .*for 3 features"),
    ([(0, 1, 2)] * 3, "is .*for 3 features"),
])  # fmt: skip
def test_wrong_bounds_are_shown(bounds, message):
    with pytest.raises(InvalidArgumentError, match=f"^feature_bounds {message}"):
        declare_numbers("feature_bounds", ["x0", "x1", "x2"], bounds)


def test_the_path_of_a_schema_stands_for_it(tmp_path):
    schema = tables.Schema((("x0", tables.Number(0, 1)),), "y", tables.Classification(("no", "yes")))
    (tmp_path / "own.toml").write_text(schema.to_toml(), encoding="utf-8")
    estimator = classifier(schema=str(tmp_path / "own.toml"), classes=None, feature_bounds=None)
    assert estimator.prepare(*rows()).schema == schema


@pytest.mark.parametrize("setting", [{"feature_bounds": (0, 1)}, {"classes": ["no", "yes"]}, {"schema": "file.toml"}])
def test_a_schema_takes_the_place_of_bounds_and_classes(setting):
    schema = tables.Schema((("x0", tables.Number(0, 1)),), "y", tables.Classification(("no", "yes")))
    estimator = classifier(**{"schema": schema, "classes": None, "feature_bounds": None, **setting})
    with pytest.raises(InvalidArgumentError, match=rf"(^|: ){next(iter(setting))} is "):
        estimator.fit(*rows())


@pytest.mark.parametrize(("columns", "task", "make"), [
    ((("x0", tables.Number(0, 1)), ("who", tables.UserId())), tables.Classification(("no", "yes")), classifier),
    ((("x0", tables.Number(0, 1)),), tables.Regression(0, 1), classifier),
    ((("x0", tables.Number(0, 1)),), tables.Classification(("no", "yes")), regressor),
])  # fmt: skip
def test_a_schema_for_users_or_another_task_is_refused(columns, task, make):
    public = {"classes": None} if make is classifier else {"target_bounds": None}
    with pytest.raises(InvalidArgumentError, match=r"^schema is "):
        make(schema=tables.Schema(columns, "y", task), feature_bounds=None, **public).fit(*rows())


@pytest.mark.parametrize("make", [classifier, regressor])
def test_predictions_need_a_fit_and_the_same_number_of_features(make):
    features, _ = rows()
    with pytest.raises(NotFittedError):
        make().predict(features)
    with pytest.raises(ValueError, match="3 features"):
        make().fit(features, features[:, 0]).predict(features[:, :2])


def test_estimators_are_refused_in_several_processes(monkeypatch):
    """Each of the processes that torchrun started would spend the whole ε."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setenv("WORLD_SIZE", "2")
    inputs, targets = rows()
    with pytest.raises(InvalidArgumentError, match=r"world is 'one process of 2'.*start the script without torchrun"):
        classifier().fit(inputs, targets)
