"""Lines of source that count: code without comments and docstrings; and docstrings."""

import ast
import tokenize

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings_of(path):
    """Yield each documented node of a file with the expression that is its docstring."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False):
            yield node, node.body[0]


def count_code(path):
    """Count the lines that hold a token other than a comment or a docstring."""
    prose = {
        line for _, text in docstrings_of(path) for line in range(text.lineno, text.end_lineno + 1)
    }
    with tokenize.open(path) as stream:
        code = {
            line
            for token in tokenize.generate_tokens(stream.readline)
            if token.type not in _NO_CODE
            for line in range(token.start[0], token.end[0] + 1)
        }
    return len(code - prose)
