"""Documents: every defect gives the same kind of error, in one line."""

import pytest

from privet._utils.documents import DocumentError, from_json, from_toml, read_text


@pytest.mark.parametrize("text", ["{", "9" * 5000, "[" * 100_000, '{"a": NaNN}', r'"\ud800"', r'{"a\uDC00": 1}'])
def test_json_that_does_not_parse(text):
    with pytest.raises(DocumentError) as refusal:
        from_json(text)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("text", ["a", "a = " + "9" * 5000, "a = " + "[" * 100_000])
def test_toml_that_does_not_parse(text):
    with pytest.raises(DocumentError):
        from_toml(text)


def test_files_that_are_no_text(tmp_path):
    (tmp_path / "bytes").write_bytes(b"\x80\x02")
    for name in ("bytes", "nowhere", "."):
        with pytest.raises(DocumentError):
            read_text(tmp_path / name)


def test_what_is_right_is_read(tmp_path):
    (tmp_path / "text").write_text("ε", encoding="utf-8")
    assert read_text(tmp_path / "text") == "ε"
    assert from_json('{"a": [1]}') == {"a": [1]}
    assert from_json(r'"\ud83d\ude00"') == "\N{GRINNING FACE}"
    assert from_toml("a = [1]") == {"a": [1]}
