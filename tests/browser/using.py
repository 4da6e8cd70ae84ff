"""What a reader does with a page, for tests of several modules."""

from __future__ import annotations

from typing import Any

HOVER = """() => {
  const lanes = document.getElementById("lanes"), box = lanes.getBoundingClientRect();
  const said = new Set();
  for (let y = box.top + 4; y < box.bottom; y += 10)
    for (let x = box.left + 1; x < box.right; x += 40) {
      lanes.dispatchEvent(new PointerEvent("pointermove", { clientX: x, clientY: y }));
      said.add(document.getElementById("details").textContent);
    }
  return [...said];
}"""


def ready(page: Any) -> Any:
    """The page, once its timeline is drawn."""
    page.evaluate("tracelabTimeline.ready")
    return page


def view(page: Any) -> list[int]:
    """The times that the timeline shows, ns on the page's clock."""
    return page.evaluate("tracelabTimeline.view")


def wait_until(page: Any, expression: str) -> None:
    """Look at each frame; Playwright's own wait evaluates text, which a page's policy forbids."""
    page.evaluate(
        "new Promise(done => { const look = () => "
        f"({expression}) ? done() : requestAnimationFrame(look); look(); }})"
    )


def wheel(page: Any, down: float) -> None:
    """Turn the wheel; the page has heard of it and drawn a frame since."""
    page.evaluate(
        "window.wheeled = 0; addEventListener('wheel', () => requestAnimationFrame("
        "() => requestAnimationFrame(() => { wheeled = 1; })), {once: true, capture: true})"
    )
    page.mouse.wheel(0, down)
    wait_until(page, "wheeled")


def shown(page: Any) -> str:
    """What is said of the activity that is pointed at or chosen."""
    return page.inner_text("#details")


def hover_over_all(page: Any) -> set[str]:
    """Point at every lane in many places, at once; what was said of them."""
    return set(page.evaluate(HOVER))


def drag(page: Any, selector: str, first: float, last: float, *, down: float = 0.5) -> None:
    """Drag over an element, between two places given as shares of its width."""
    box = page.locator(selector).bounding_box()
    y = box["y"] + down * min(box["height"], 300)
    page.mouse.move(box["x"] + first * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + (first + last) / 2 * box["width"], y, steps=3)
    page.mouse.move(box["x"] + last * box["width"], y, steps=3)
    page.mouse.up()
