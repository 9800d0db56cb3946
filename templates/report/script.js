"use strict";
// Without this script, browsers show titles of drawings as usual, and links lead to rows of the table.
(() => {
  document.documentElement.classList.add("js");

  // Show titles of marks at once, next to the pointer.
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);
  for (const title of document.querySelectorAll("svg .mark > title")) {
    const mark = title.parentNode;
    mark.dataset.tip = title.textContent;
    title.remove();
  }
  document.addEventListener("pointermove", (event) => {
    const mark = event.target instanceof Element ? event.target.closest("[data-tip]") : null;
    tip.hidden = mark === null;
    if (mark === null) return;
    tip.textContent = mark.dataset.tip;
    const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 18;
    const y = below + tip.offsetHeight > innerHeight - 8 ? event.clientY - tip.offsetHeight - 12 : below;
    tip.style.left = `${Math.max(x, 8)}px`;
    tip.style.top = `${Math.max(y, 8)}px`;
  });

  // Mark a clicked layer wherever it is drawn; a second click removes the marks.
  let selected = "";
  const select = (layer) => {
    selected = layer === selected ? "" : layer;
    for (const mark of document.querySelectorAll(".selected")) mark.classList.remove("selected");
    if (selected === "") return;
    for (const mark of document.querySelectorAll(`[data-layers~="${selected}"]`)) mark.classList.add("selected");
  };
  document.addEventListener("click", (event) => {
    if (!(event.target instanceof Element) || event.target.closest("a, button, summary")) return;
    const mark = event.target.closest("[data-layers]");
    if (mark !== null && mark.dataset.layers !== "") select(mark.dataset.layers.split(" ")[0]);
  });

  // Sort tables by the column whose title is clicked: numbers in descending order first.
  for (const button of document.querySelectorAll("table.sortable th button")) {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      const column = head.cellIndex;
      const body = head.closest("table").tBodies[0];
      const first = head.classList.contains("n") ? "descending" : "ascending";
      const second = first === "descending" ? "ascending" : "descending";
      const order = head.getAttribute("aria-sort") === first ? second : first;
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const rows = [...body.rows].map((row) => [key(row), row]);
      const numeric = rows.every(([value]) => value !== "" && !Number.isNaN(Number(value)));
      const compare = numeric ? (a, b) => a - b : (a, b) => a.localeCompare(b, "en");
      rows.sort(([a], [b]) => sign * compare(a, b));
      body.append(...rows.map(([, row]) => row));
    });
  }
})();
