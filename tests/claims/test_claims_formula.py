"""The calculator for formulas that are data: right arithmetic, and nothing else gets through."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxrbench.claims.formula import Formula, FormulaError


def value(text, **inputs):
    ends = {name: given if isinstance(given, tuple) else (given, given) for name, given in inputs.items()}
    return Formula(text, inputs).value(ends)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("-2 ** 2", -4), ("2 ** -1", 0.5), ("7 / 2", 3.5),
        ("min(3, 1, 2)", 1), ("max(3, 1)", 3), ("ceil(0.56)", 1), ("floor(-0.5)", -1), ("abs(-3)", 3),
        ("+4", 4),
    ],
)  # fmt: skip
def test_arithmetic(text, expected):
    assert value(text) == (expected, expected)


def test_a_range_is_carried_by_its_ends():
    assert value("a * b", a=(3.0, 5.0), b=2.0) == (6, 10)
    assert value("1 - 1 / a", a=(1.25, 2.0)) == (pytest.approx(0.2), 0.5)
    assert value("a - b", a=(1.0, 2.0), b=(10.0, 20.0)) == (-19, -8)


@pytest.mark.parametrize(
    ("text", "message", "offset"),
    [
        ("__import__('os').system('true')", "Call is not allowed", 0),
        ("a.real", "Attribute is not allowed", 0),
        ("1 + (lambda: 1)()", "Call is not allowed", 4),
        ("[1][0]", "Subscript is not allowed", 0),
        ("1 if a else 2", "IfExp is not allowed", 0),
        ("a < 1", "Compare is not allowed", 0),
        ("a and 1", "BoolOp is not allowed", 0),
        ("'x'", "Constant is not allowed", 0),
        ("1j", "Constant is not allowed", 0),
        ("True", "truth values", 0),
        ("7 // 2", "BinOp is not allowed", 0),
        ("7 % 2", "BinOp is not allowed", 0),
        ("not a", "UnaryOp is not allowed", 0),
        ("min(a, key=a)", "Call is not allowed", 0),
        ("min()", "min with 0 arguments", 0),
        ("ceil(1, 2)", "ceil with 2 arguments", 0),
        ("eval(1)", "Call is not allowed", 0),
        ("2 * abc", "unknown name 'abc'", 4),
        ("2 *", "not a formula", None),
        ("1; 2", "not a formula", None),
        ("a = 1", "not a formula", None),
        ("", "not a formula", None),
        ("1" + "+1" * 200, "longer than", 0),
    ],
)
def test_anything_but_arithmetic_is_refused(text, message, offset):
    with pytest.raises(FormulaError, match=message) as error:
        Formula(text, {"a"})
    if offset is not None:
        assert error.value.offset == offset


def test_an_unknown_name_offers_the_nearest():
    with pytest.raises(FormulaError, match="did you mean 'price'"):
        Formula("prise * 2", {"price"})


@pytest.mark.parametrize(
    "text", ["1 / a", "a ** -1", "9 ** 9 ** 9", "(0 - 1) ** 0.5", "2 ** 1024", "1e308 * 10"]
)
def test_a_formula_without_a_finite_value_fails(text):
    with pytest.raises(FormulaError):
        value(text, a=0.0)


@settings(deadline=None)
@given(st.text(max_size=40))
def test_no_text_does_more_than_fail(text):
    try:
        result = value(text)
    except FormulaError:
        return
    assert all(isinstance(end, float) for end in result)
