"use strict";

/* Sorting: a heading's button orders its table's rows, numbers by data-sort, text by what is shown. */
function value(row, column) {
  const cell = row.cells[column];
  return cell.dataset.sort === undefined ? cell.textContent.trim() : Number(cell.dataset.sort);
}

function compare(one, two) {
  const missing = (it) => it === "–" || it === "";
  if (missing(one) || missing(two)) return missing(one) - missing(two);
  if (typeof one === "number" && typeof two === "number") return one - two;
  return String(one).localeCompare(String(two), "en", { numeric: true });
}

for (const table of document.querySelectorAll("table[id]")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows].map((row) => [value(row, column), row]);
      const missing = rows.filter(([it]) => it === "–" || it === "");
      const there = rows.filter(([it]) => it !== "–" && it !== "");
      there.sort(([one], [two]) => (down ? compare(two, one) : compare(one, two)));
      table.tBodies[0].append(...there.map(([, row]) => row), ...missing.map(([, row]) => row));
    });
  });
}

/* Filtering: what does not have every chosen value in its data attributes is hidden. */
for (const filters of document.querySelectorAll(".filters")) {
  const list = document.getElementById(filters.dataset.for);
  const items = [...(list.tBodies ? list.tBodies[0].rows : list.children)];
  const output = filters.querySelector("output");
  const apply = () => {
    const chosen = [...filters.querySelectorAll("select")].filter((one) => one.value);
    let shown = 0;
    for (const item of items) {
      item.hidden = !chosen.every((one) => item.dataset[one.dataset.filter] === one.value);
      shown += !item.hidden;
    }
    output.textContent = `${shown} of ${items.length} ${filters.dataset.noun}`;
  };
  filters.addEventListener("change", apply);
  apply();
}

/* A flip opens in the dialog; arrow keys go to its neighbours among those that are not filtered out. */
const dialog = document.getElementById("opened");
const body = document.getElementById("opened-body");
let current = null;

function open(item) {
  current = item;
  body.replaceChildren(item.querySelector("template").content.cloneNode(true));
  for (const image of body.querySelectorAll("img[data-copy]")) {
    image.src = item.querySelector(`img.${image.dataset.copy}`).src;
  }
  dialog.setAttribute("aria-label", body.querySelector("h3").textContent);
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}

function move(by) {
  const items = [...document.querySelectorAll("#flips-list > li")].filter((item) => !item.hidden);
  open(items[(items.indexOf(current) + by + items.length) % items.length]);
}

for (const item of document.querySelectorAll("#flips-list > li")) {
  item.querySelector("button").addEventListener("click", () => open(item));
}
for (const button of dialog.querySelectorAll("[data-move]")) {
  button.addEventListener("click", () => move(Number(button.dataset.move)));
}
dialog.querySelector("[data-close]").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
});
dialog.addEventListener("keydown", (event) => {
  if (event.key === "ArrowRight") move(1);
  if (event.key === "ArrowLeft") move(-1);
});
dialog.addEventListener("close", () => current && current.querySelector("button").focus());
