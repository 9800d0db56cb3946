"""Pictures of a report's page: ``python -m tests.tools.picture_report PAGE.html OUT.png``.

The page is what `microfold report` writes; a part of it is pictured, in light or dark, in a window of any
width. The README's picture is made by

    microfold report examples/digits/digits.tflite -o page.html
    python -m tests.tools.picture_report page.html docs/images/report.png
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path


def picture(page: Path, out: Path, *, scheme: str, width: int, height: int, top: int) -> None:
    """Write a picture of a part of a page.

    Args:
        scheme: ``light`` or ``dark``.
        width: of the window, in CSS pixels.
        height, top: of the part; a height of 0 means all below the top.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        tab.goto(page.resolve().as_uri())
        whole = tab.evaluate("document.documentElement.scrollHeight")
        clip = {"x": 0, "y": top, "width": width, "height": height or whole - top}
        tab.screenshot(path=out, full_page=True, clip=clip)  # type: ignore[arg-type]
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--scheme", choices=("light", "dark"), default="light")
    parser.add_argument("--width", type=int, default=1160)
    parser.add_argument("--height", type=int, default=1325)
    parser.add_argument("--top", type=int, default=0)
    given = parser.parse_args()
    picture(given.page, given.out, scheme=given.scheme, width=given.width, height=given.height, top=given.top)


if __name__ == "__main__":
    main()
