"""The words of docstrings, constants and functions, by rules that can be counted.

A number here may only fall. Lower it with the change that lowers the count.
"""

import ast
import re
from pathlib import Path

from tests.repository.source_lines import docstrings_of

PACKAGE = Path(__file__).parents[2] / "tracelab"
FILES = [path for path in PACKAGE.rglob("*.py") if not {"docs", "workloads"} & {*path.parts}]
QUESTIONS = {"What", "Whether", "Which", "How", "Where", "When", "Why", "Who", "Whose"}
ADVERBS = {"Of", "So", "That", "Those", "These", "Its", "By", "From", "In", "Some", "Everything"}
# Prepositions that stand for a verb or a noun in the name of a function, and quantifiers that stand
# for MIN_ and MAX_ in that of a constant.
PREPOSITIONS = ("of", "by", "with", "in", "to", "from", "for", "at", "as", "on", "without")
QUANTIFIERS = (
    "MOST",
    "LEAST",
    "LONGEST",
    "FEWEST",
    "FEW",
    "ALIKE",
    "SAME",
    "SOME",
    "USUAL",
    "RARE",
)
PHRASES = re.compile(
    r"\b(nobody|is none|are none|such a one|so many|so much|at once|asked for|but for)\b"
    r"|\b(is|are) (said|told)\b"
)

MAX_QUESTIONS = 1
MAX_ADVERBS = 15
MAX_PHRASES = 16
MAX_PREPOSITIONS = 19  # four are `to_pandas` and others, as data frames call them
MAX_QUANTIFIERS = 0
MAX_TRAILING_COMMENTS = 108
MAX_DOCSTRING_LINES = 6_435


def first_words():
    for path in FILES:
        for _, text in docstrings_of(path):
            yield text.value.value.split()[0].strip(",:;.")


def texts():
    for path in FILES:
        for _, text in docstrings_of(path):
            yield " ".join(text.value.value.split())


def names():
    """Yield the name of each function, and of each constant of a module."""
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield "function", node.name.strip("_")
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else ()
            for target in (t for x in targets for t in getattr(x, "elts", [x])):
                if isinstance(target, ast.Name):
                    yield "constant", target.id.strip("_")


def count_names(kind, firsts):
    return sum(1 for what, name in names() if what == kind and name.split("_")[0] in firsts)


def test_no_docstring_begins_with_a_question():
    assert sum(word in QUESTIONS for word in first_words()) <= MAX_QUESTIONS


def test_no_docstring_begins_with_a_preposition_or_a_pronoun():
    assert sum(word in ADVERBS for word in first_words()) <= MAX_ADVERBS


def test_docstrings_name_things():
    assert sum(len(PHRASES.findall(text)) for text in texts()) <= MAX_PHRASES


def test_functions_are_verbs_or_nouns():
    assert count_names("function", PREPOSITIONS) <= MAX_PREPOSITIONS


def test_constants_are_limits_or_nouns():
    assert count_names("constant", QUANTIFIERS) <= MAX_QUANTIFIERS


def test_names_say_what_a_trailing_comment_would():
    lines = (line for path in FILES for line in path.read_text(encoding="utf-8").splitlines())
    ends = re.compile(r"^[A-Z_, 0-9]+ = [\d_.e-]+(, [\d_.e-]+)*  # ")
    assert sum(bool(ends.match(line)) for line in lines) <= MAX_TRAILING_COMMENTS


def test_docstrings_are_short():
    lines = sum(text.end_lineno - text.lineno + 1 for p in FILES for _, text in docstrings_of(p))
    assert lines <= MAX_DOCSTRING_LINES
