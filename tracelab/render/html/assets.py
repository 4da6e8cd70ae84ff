"""The page's own styles and scripts, and the policy that lets a browser run those alone."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from markupsafe import Markup

_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&"}


# A comment that has its lines for itself.
_COMMENT = re.compile(r"^[ \t]*/\*(?:(?!\*/).)*\*/[ \t]*$", re.DOTALL | re.MULTILINE)


@cache
def asset(name: str) -> str:
    """A file of this package; of a style or a script what a browser needs.

    Comments of whole lines and indentation are left out. No text in these files goes over several
    lines, so that none is changed.
    """
    text = files(__package__).joinpath(name).read_text("utf-8")
    if name.endswith(".j2"):
        return text
    lines = map(str.strip, _COMMENT.sub("", text).splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def content_security_policy(
    scripts: Sequence[str], styles: Sequence[str], *, is_served: bool
) -> str:
    """Nothing but these very scripts and styles; a page that is served may ask its own server.

    >>> content_security_policy(["1"], [], is_served=False).split("; ")[1]
    "script-src 'sha256-a4ayc/80/OGda4BO/1o/V0etpOqiLx1JwB5S3beHW0s='"
    """
    rules = {
        "default-src": "'none'",
        "script-src": _hashes(scripts),
        "style-src": _hashes(styles),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    if is_served:
        rules["connect-src"] = "'self'"
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _hashes(texts: Sequence[str]) -> str:
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(x).decode()}'" for x in digests) or "'none'"


def script_json(content: Any) -> Markup:
    r"""JSON that can stand in a script element, whatever names are in it.

    >>> print(script_json({"name": "</script>"}))
    {"name":"\u003c/script\u003e"}
    """
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(_ESCAPES))
