"""Schemas, and tables with any cells whatever, as hypothesis draws them."""

from hypothesis import strategies as st

from privet.tables import Boolean, Category, Classification, Date, Identifier, Ignore, Number, Regression, Schema, Text, UserId

# Text as it occurs in cells: no surrogates, which no file in UTF-8 holds.
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
NAMES = WORDS.map(str.strip).filter(bool)
VALUES = st.lists(NAMES, min_size=1, max_size=5, unique=True).map(tuple)
BOUNDS = st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9)).filter(lambda ends: ends[1] - ends[0] > 1e-3).map(tuple)
# What is most likely to upset a reader of numbers, values or words.
CELLS = st.one_of(
    st.none(), WORDS, st.integers(-(2**70), 2**70), st.floats(), st.booleans(),
    st.sampled_from(["2020-02-29", "20200230", "01.02.1999"]),
    st.sampled_from(["", "?", "nan", "inf", "-inf", "1e400", "0x10", "1_0", "١", "\x00", "true", "½", "9" * 5000]),
)  # fmt: skip


@st.composite
def numbers(draw):
    lower, upper = draw(BOUNDS)
    missing = draw(st.sampled_from(["neutral", "indicator", lower, upper]))
    scale, outside = draw(st.sampled_from(["linear", "log"])), draw(st.sampled_from(["clip", "missing"]))
    return Number(lower, upper, scale, outside, missing)


@st.composite
def categories(draw):
    values = draw(VALUES)
    usual = ["neutral", "indicator", values[0]]
    return Category(values, draw(st.sampled_from(usual)), draw(st.sampled_from([*usual, "missing"])))


COLUMNS = st.one_of(
    numbers(),
    categories(),
    st.sampled_from(["neutral", "indicator", "true", "false"]).map(lambda missing: Boolean(missing=missing)),
    st.just(Boolean(true=("Male",), false=("Female",))),
    st.integers(1, 20).map(Text),
    st.sampled_from(["", "%d.%m.%Y", "%y%m%d"]).map(lambda form: Date("1970-01-01", "2060-12-31", form)),
)


@st.composite
def tasks(draw):
    if draw(st.booleans()):
        words = st.text("abcdefgh <>=-%", min_size=1).map(str.strip).filter(bool)
        return Classification(tuple(draw(st.lists(words, min_size=2, max_size=5, unique=True))))
    lower, upper = draw(BOUNDS)
    return Regression(lower, upper, draw(st.sampled_from(["linear", "log"])), draw(st.sampled_from(["clip", "missing"])))


@st.composite
def schemas(draw):
    names = draw(st.lists(NAMES, min_size=2, max_size=5, unique=True))
    kinds = [draw(COLUMNS), *(draw(st.one_of(COLUMNS, st.sampled_from([Ignore(), Identifier()]))) for _ in names[2:])]
    if len(kinds) > 1 and draw(st.booleans()):
        kinds[-1] = UserId()
    missing = draw(st.sampled_from([("", "?", "NA"), ("", "-9"), ()]))
    return Schema(tuple(zip(names[1:], kinds, strict=True)), names[0], draw(tasks()), missing)


@st.composite
def tables(draw, least=1):
    """Draw a schema, and a table with its columns and any cells."""
    schema, number = draw(schemas()), draw(st.integers(least, 6))
    return schema, {name: draw(st.lists(CELLS, min_size=number, max_size=number)) for name in schema.kinds}
