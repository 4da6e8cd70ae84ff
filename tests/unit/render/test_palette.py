"""Colors of the page: few, and told apart by everybody."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from tracelab.render.palette import page_kinds

MAX_COLORS = 9
INKS = ("#101214", "#ffffff")  # of names on bars, as timeline_paint.js chooses
# Machado, Oliveira and Fernandes, 2009: what is seen without red, green and blue cones.
SEEN_BY = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
               [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
               [0.004733, 0.691367, 0.303900]],
}  # fmt: skip


def linear(color):
    """Red, green and blue of #rrggbb as shares of light."""
    parts = np.array([int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def luminance(color):
    return float(linear(color) @ [0.2126, 0.7152, 0.0722])


def lab(light):
    """CIE L*a*b* of linear light, D65."""
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    x, y, z = np.cbrt(np.maximum(to_xyz @ np.clip(light, 0, 1) / [0.9505, 1, 1.089], 1e-6))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("theme", ["color", "dark"])
class TestPageKinds:
    def test_they_have_nine_colors(self, theme):
        assert len({getattr(kind, theme) for kind in page_kinds().values()}) <= MAX_COLORS

    def test_names_on_them_can_be_read(self, theme):
        for kind in page_kinds().values():
            light = luminance(getattr(kind, theme)) + 0.05
            contrast = max(
                max(light, ink) / min(light, ink) for ink in (luminance(x) + 0.05 for x in INKS)
            )
            assert contrast >= 4.5, kind

    def test_color_blind_readers_tell_them_apart(self, theme):
        colors = sorted({getattr(kind, theme) for kind in page_kinds().values()})
        for one, other in combinations(colors, 2):
            for reader, seen in SEEN_BY.items():
                difference = np.linalg.norm(
                    lab(np.array(seen) @ linear(one)) - lab(np.array(seen) @ linear(other))
                )
                assert difference >= 10, (reader, one, other)
