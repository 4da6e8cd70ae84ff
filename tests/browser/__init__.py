"""A package, so that the browser can be its fixture: it ends with the last of these tests.

Playwright's loop runs in the thread of the tests; one that lived on would forbid `asyncio.run` to
the tests of the other folders.
"""
