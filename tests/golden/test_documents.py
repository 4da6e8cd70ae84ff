"""The figures of the documents are those of today: ``make documents`` writes them anew."""

import pytest

from tests.documents import DOCUMENTS

pytestmark = pytest.mark.whole_corpus


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_document_holds_the_figures_of_today(document):
    text = document.path.read_text(encoding="utf-8")
    assert document.renew(text) == text, "make documents"
