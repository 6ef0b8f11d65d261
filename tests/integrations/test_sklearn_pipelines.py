import numpy as np
import pytest

pytest.importorskip("sklearn", minversion="1.6")

from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, PolynomialFeatures, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from privet.errors import InvalidArgumentError, PrivetWarning
from privet.integrations.sklearn import PrivateClassifier, PublicOneHot, PublicScaler, check_pipeline

ROWS = np.random.default_rng(0).uniform(0, 1, (200, 2))
LABELS = (ROWS[:, 0] > 0.5).astype(int)
pytestmark = pytest.mark.usefixtures("brief_runs")


def classifier():
    return PrivateClassifier(epsilon=20.0, delta=1e-4, feature_bounds=(-1, 1), classes=[0, 1], model="logistic", steps=5)


@pytest.mark.parametrize("transformer", [PublicScaler((-100, 100)), PublicOneHot([1, 2, 3])], ids=str)
def test_transformers_pass_all_checks(transformer):
    found = check_estimator(transformer, on_fail=None, on_skip=None)
    assert {check["check_name"] for check in found if check["status"] == "failed"} == set()
    assert sum(check["status"] == "passed" for check in found) > 40


@pytest.mark.parametrize("transformer", [PublicScaler((0, 1), missing="indicator"), PublicOneHot([[0.25], ["a", "b"]])], ids=str)
def test_a_row_is_transformed_alone_whatever_other_rows_hold(transformer):
    rows = [[0.25, "a"], [None, float("nan")], ["word", {"x": 1}], [1e300, -float("inf")], [True, "b"]]
    together = transformer.fit(rows).transform(rows)
    for row, own in zip(rows, together, strict=True):
        alone = type(transformer)(**transformer.get_params()).transform([row])
        assert (alone == own).all()
    assert np.abs(together).max() <= 1
    assert together.shape[1] == len(transformer.get_feature_names_out())


NUMBERS = [1.0, 2.0, 0.25, np.nan]


@pytest.mark.parametrize("transformer", [PublicScaler((0, 9)), PublicOneHot([1, 2.0, 0.25], missing="indicator")], ids=str)
@pytest.mark.parametrize("one", ["word", np.nan, 1e300, True, 2**63], ids=str)
def test_one_cell_of_an_array_does_not_change_the_features_of_the_others(transformer, one):
    for numbers in (NUMBERS, [1, 2, 3]):
        found = transformer.transform(np.array([*numbers, one])[:, None])[:-1]
        assert found.tolist() == transformer.transform(np.array(numbers)[:, None]).tolist()


def test_features_have_the_names_of_their_columns():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": [20.0, None], "colour": ["red", "blue"]})
    parts = [("age", PublicScaler({"age": (0, 100)}, missing="indicator"), ["age"]),
             ("colour", PublicOneHot([["red", "white"]], unknown="indicator"), ["colour"])]  # fmt: skip
    transformer = ColumnTransformer(parts, verbose_feature_names_out=False)
    found = transformer.set_output(transform="pandas").fit_transform(frame)
    assert [*found] == ["age", "age is missing", "colour=red", "colour=white", "colour is unknown"]
    assert found.to_numpy().tolist() == [[pytest.approx(-0.6), 0, 1, 0, 0], [0, 1, 0, 0, 1]]


@pytest.mark.parametrize(("transformer", "name"), [
    (PublicScaler(), "bounds"),
    (PublicScaler((0, [1, 2, 3])), "bounds"),
    (PublicScaler((0, 1), missing="mean"), "missing"),
    (PublicOneHot(), "categories"),
    (PublicOneHot([["a"]]), "categories"),
    (PublicOneHot("ab"), "categories"),
], ids=str)  # fmt: skip
def test_constants_that_do_not_fit_are_named(transformer, name):
    with pytest.raises(InvalidArgumentError, match=rf"^{name} is "):
        transformer.fit(ROWS)


def test_steps_that_learn_from_rows_are_named():
    union = FeatureUnion([("components", PCA(1)), ("norm", Normalizer())])
    columns = ColumnTransformer(
        [("gaps", SimpleImputer(), [0]), ("drop", "drop", [1])], remainder=make_pipeline(StandardScaler())
    )
    assert check_pipeline(make_pipeline(union, columns, classifier())) == (
        "featureunion__components (PCA)",
        "columntransformer__gaps (SimpleImputer)",
        "columntransformer__remainder__standardscaler (StandardScaler)",
    )
    assert check_pipeline(StandardScaler()) == ("standardscaler (StandardScaler)",)


def test_steps_that_learn_nothing_from_rows_are_not():
    frozen = FrozenEstimator(StandardScaler().fit(ROWS))
    steps = [PublicScaler((0, 1)), PublicOneHot([1]), Normalizer(), PolynomialFeatures(), FunctionTransformer(np.log1p), frozen]
    assert check_pipeline(make_pipeline(*steps, "passthrough", classifier())) == ()
    assert check_pipeline(FunctionTransformer(lambda rows: rows - rows.mean(0))) != ()


@pytest.mark.filterwarnings("ignore:.*(signal|batches):privet.errors.PrivetWarning")
@pytest.mark.parametrize("nested", [False, True])
def test_a_pipeline_warns_of_them_by_name_and_the_statement_says_so(nested):
    last = classifier()
    inner = Pipeline([("norm", Normalizer()), ("model", last)]) if nested else last
    with pytest.warns(PrivetWarning, match=r"^scale \(StandardScaler\) of the pipeline learned from the private rows"):
        Pipeline([("scale", StandardScaler()), ("last", inner)]).fit(ROWS, LABELS)
    assert any("scale (StandardScaler)" in text for text in last.guarantee_.not_covered)
    assert "scale (StandardScaler)" in str(last.guarantee_)


@pytest.mark.filterwarnings("ignore:.*(signal|batches):privet.errors.PrivetWarning")
def test_a_pipeline_that_fits_something_else_is_not_warned_of():
    class Wrapper(StandardScaler):
        def fit(self, X, y=None):
            self.inner = classifier().fit(X, LABELS)
            return super().fit(X)

    pipeline = Pipeline([("scale", StandardScaler()), ("wrapper", Wrapper())]).fit(ROWS)
    assert not any("of the pipeline" in text for text in pipeline["wrapper"].inner.guarantee_.not_covered)


@pytest.mark.filterwarnings("ignore:.*(signal|batches):privet.errors.PrivetWarning")
def test_a_pipeline_of_public_constants_does_not_warn():
    pipeline = Pipeline([("scale", PublicScaler((0, 1))), ("model", classifier())]).fit(ROWS, LABELS)
    assert not any("of the pipeline" in text for text in pipeline["model"].guarantee_.not_covered)
    assert pipeline.predict(ROWS).shape == (200,)
