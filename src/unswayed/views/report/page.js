"use strict";

const one = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const data = JSON.parse(one("#data").textContent);
const word = (edit) => (data.words[edit] || edit).replace(/ %/g, "\u00a0%");
const percent = (thousandths) => `${Math.round(thousandths / 10)}\u00a0%`;

function make(name, attributes = {}, ...inside) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...inside);
  return element;
}

/* Sorting: a heading's button orders its table's rows, numbers by data-sort, text by what is shown. */
function value(row, column) {
  const cell = row.cells[column];
  return cell.dataset.sort === undefined ? cell.textContent.trim() : Number(cell.dataset.sort);
}

function compare(first, second) {
  if (typeof first === "number" && typeof second === "number") return first - second;
  return String(first).localeCompare(String(second), "en", { numeric: true });
}

for (const table of all("table[id]")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    one("button", heading).addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows].map((row) => [value(row, column), row]);
      const missing = rows.filter(([it]) => it === "–" || it === "");
      const there = rows.filter(([it]) => it !== "–" && it !== "");
      there.sort(([first], [second]) => (down ? compare(second, first) : compare(first, second)));
      table.tBodies[0].append(...there.map(([, row]) => row), ...missing.map(([, row]) => row));
    });
  });
}

/* Filtering: one choice of model and edit for the whole page, and further filters above a list. */
const choice = { model: "", edit: "" };
const form = one("#choice");
const bars = all(".filters[data-for]").map((bar) => {
  const list = document.getElementById(bar.dataset.for);
  return [bar, [...(list.tBodies ? list.tBodies[0].rows : list.children)]];
});

function apply() {
  for (const [bar, items] of bars) {
    const wanted = { ...choice };
    for (const select of all("select[data-filter]", bar)) wanted[select.dataset.filter] = select.value;
    let shown = 0;
    for (const item of items) {
      item.hidden = !Object.entries(wanted).every(([key, it]) => !it || item.dataset[key] === it);
      shown += !item.hidden;
    }
    one("output", bar).textContent = `${shown} of ${items.length} ${bar.dataset.noun}`;
  }
  for (const mark of all(".drawing [data-place]")) {
    const other = choice.model && String(data.places[choice.model]) !== mark.dataset.place;
    mark.classList.toggle("out", Boolean(other || (choice.edit && choice.edit !== mark.dataset.edit)));
  }
  for (const button of all(".matrix button")) {
    const { model = "", edit = "" } = button.dataset;
    button.setAttribute("aria-pressed", model === choice.model && edit === choice.edit && Boolean(model || edit));
  }
  for (const row of all(".forest tr[data-model]")) row.classList.toggle("out", Boolean(choice.model) && row.dataset.model !== choice.model);
  for (const cell of all("#groups [data-edit]")) cell.classList.toggle("out", Boolean(choice.edit) && cell.dataset.edit !== choice.edit);
  describe();
  if (explorer) explorer.follow();
}

/* Below the matrix: what was chosen, how many flips it has, the worst of them, and where the others are. */
const IN_PLACE = 8;
function describe() {
  const place = one("#chosen");
  if (!place) return;
  place.replaceChildren();
  if (!choice.model && !choice.edit) return;
  const sums = [0, 0, 0, 0];
  for (const model of data.models) {
    for (const edit of data.edits) {
      if ((choice.model && model !== choice.model) || (choice.edit && edit !== choice.edit)) continue;
      (data.counts[`${model}\n${edit}`] || []).forEach((number, at) => (sums[at] += number));
    }
  }
  const [flips, controlled, wrong, gained] = sums;
  const blame = controlled ? `, ${wrong} of ${controlled} wrong in the control already` : "";
  const name = make("b", {}, `${choice.model || "All models"}, ${choice.edit ? word(choice.edit) : "all edits"}`);
  const links = [["#drops", "numbers"], ["#flips", "pictures"], ["#explorer", "every photograph"]]
    .filter(([target]) => one(target))
    .flatMap(([target, text], at) => [at ? ", " : " See ", make("a", { href: target }, text)]);
  const shown = explorer ? explorer.flips(IN_PLACE) : [];
  const worst = shown.length && flips > shown.length ? `. The ${shown.length} that lose most:` : links.length ? "." : "";
  place.append(make("p", {}, name, `: ${flips} right to wrong${blame}; ${gained} wrong to right.`, ...links, worst));
  if (shown.length) place.append(make("ul", { class: "in-place" }, ...shown.map((card) => make("li", {}, card))));
}

function choose(model, edit) {
  choice.model = model;
  choice.edit = edit;
  form.elements.model.value = model;
  form.elements.edit.value = edit;
  apply();
}

for (const bar of all(".filters[data-for]")) bar.addEventListener("change", apply);
if (form) {
  form.addEventListener("change", () => choose(form.elements.model.value, form.elements.edit.value));
  one("button", form).addEventListener("click", () => choose("", ""));
  form.addEventListener("submit", (event) => event.preventDefault());
}
for (const button of all(".matrix button")) {
  button.addEventListener("click", () => {
    const { model = "", edit = "" } = button.dataset;
    const again = choice.model === model && choice.edit === edit;
    if (again) choose("", "");
    else choose(model, edit === "average" ? "" : edit);
    /* The flips below the matrix come into sight, as far as the pressed cell stays in sight. */
    const below = one("#chosen").getBoundingClientRect().bottom + 8 - innerHeight;
    scrollBy(0, Math.max(0, Math.min(below, button.getBoundingClientRect().top - 60)));
  });
}

/* The dialog: a flip of the gallery or a photograph of the explorer; arrow keys go to the next one. The address names
   what is open, so that a link leads to it. */
const dialog = one("#opened");
const body = one("#opened-body");
let opened = null;

function show(kind, key, content, step, origin) {
  opened = { step, origin };
  body.replaceChildren(...content);
  dialog.setAttribute("aria-label", one("h3", body).textContent);
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  history.replaceState(null, "", `#${kind}=${encodeURIComponent(key)}`);
}

function openFlip(item, origin = one("button", item)) {
  const content = one("template", item).content.cloneNode(true);
  for (const image of all("img[data-copy]", content)) image.src = one(`img.${image.dataset.copy}`, item).src;
  const step = (by) => {
    const items = all("#flips-list > li").filter((other) => !other.hidden);
    openFlip(items[(items.indexOf(item) + by + items.length) % items.length]);
  };
  show("flip", item.dataset.key, [content], step, origin);
}

function openAddress() {
  const [kind, key] = location.hash.slice(1).split("=").map(decodeURIComponent);
  if (kind === "flip") {
    const item = all("#flips-list > li").find((other) => other.dataset.key === key);
    if (item) openFlip(item);
  }
  if (kind === "photograph" && explorer) explorer.openKey(key);
}

for (const button of all("[data-flip]")) {
  button.addEventListener("click", () => openFlip(all("#flips-list > li").find((item) => item.dataset.key === button.dataset.flip), button));
}
for (const item of all("#flips-list > li")) one("button", item).addEventListener("click", () => openFlip(item));
for (const button of all("[data-move]", dialog)) {
  button.addEventListener("click", () => opened.step(Number(button.dataset.move)));
}
one("[data-close]", dialog).addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
});
dialog.addEventListener("keydown", (event) => {
  if (event.key === "ArrowRight") opened.step(1);
  if (event.key === "ArrowLeft") opened.step(-1);
});
dialog.addEventListener("close", () => {
  history.replaceState(null, "", location.pathname + location.search);
  if (opened && opened.origin) opened.origin.focus({ preventScroll: true });
});
window.addEventListener("hashchange", openAddress);

/* The explorer: a scatter of all photographs for one model and edit. */
const KINDS = {
  kept: "stays right",
  lost: "right → wrong, control right",
  blamed: "right → wrong, control wrong already",
  gained: "wrong → right",
  wrong: "stays wrong",
};

function makeExplorer() {
  const bar = one("#explorer-choice");
  const svg = one("#scatter");
  const { model: models, edit: edits, photograph: photographs } = Object.fromEntries(
    all("select", bar).map((select) => [select.name, select]),
  );
  const at = (share, upwards) => (upwards ? 420 - 0.4 * share : 45 + 0.4 * share);
  const cell = (model, edit, number) => {
    const [shares, answers] = data.points[`${model}\n${edit}`] || [[], []];
    if (shares[number] === undefined || shares[number] === null) return null;
    return { share: shares[number], answer: answers[number], right: answers[number] === data.photographs[number][1] };
  };
  const kindOf = (model, edit, number) => {
    const before = cell(model, "original", number);
    const after = cell(model, edit, number);
    if (before.right && after.right) return "kept";
    if (!before.right) return after.right ? "gained" : "wrong";
    const control = cell(model, data.controls[edit], number);
    return control && !control.right ? "blamed" : "lost";
  };
  let points = [];

  function draw(tag, attributes, text = "") {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, it] of Object.entries(attributes)) element.setAttribute(key, it);
    element.textContent = text;
    svg.append(element);
    return element;
  }

  function redraw() {
    const model = models.value;
    const edit = edits.value;
    svg.replaceChildren();
    for (const tick of [0, 250, 500, 750, 1000]) {
      draw("line", { x1: at(0), x2: at(1000), y1: at(tick, true), y2: at(tick, true), class: "grid" });
      draw("line", { y1: at(0, true), y2: at(1000, true), x1: at(tick), x2: at(tick), class: "grid" });
      draw("text", { x: at(tick), y: 436, "text-anchor": "middle" }, `${tick / 10}`);
      draw("text", { x: 38, y: at(tick, true) + 4, "text-anchor": "end" }, `${tick / 10}`);
    }
    draw("line", { x1: at(0), y1: at(0, true), x2: at(1000), y2: at(1000, true), class: "diagonal" });
    draw("text", { x: 245, y: 456, "text-anchor": "middle" }, "true class before the edit, %");
    draw("text", { x: 12, y: 220, "text-anchor": "middle", transform: "rotate(-90 12 220)" }, "after the edit, %");
    points = data.photographs
      .map(([name], number) => ({ name, number, before: cell(model, "original", number), after: cell(model, edit, number) }))
      .filter((point) => point.before && point.after)
      .map((point) => ({ ...point, kind: kindOf(model, edit, point.number), loss: point.before.share - point.after.share }))
      .sort((first, second) => second.loss - first.loss);
    const counts = Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, 0]));
    for (const point of [...points].reverse()) {
      counts[point.kind] += 1;
      const mark = draw("circle", { cx: at(point.before.share), cy: at(point.after.share, true), r: 4, class: point.kind });
      mark.append(Object.assign(document.createElementNS("http://www.w3.org/2000/svg", "title"), { textContent: point.name }));
    }
    const words = Object.entries(KINDS).map(([kind, name]) => [kind, `${name}: ${counts[kind]}`]);
    one("#scatter-legend").replaceChildren(...words.map(([kind, text]) => make("li", {}, make("span", { class: `key ${kind}` }), text)));
    svg.setAttribute("aria-label", `${points.length} photographs, ${model}, ${word(edit)}. ${words.map(([, text]) => text).join("; ")}`);
    photographs.replaceChildren(...points.map(({ name, number, loss }) => make("option", { value: number }, `${name} (${loss > 0 ? "−" : "+"}${Math.abs(Math.round(loss / 10))})`)));
  }

  function picture(number, edit, side) {
    const strip = data.strips[number];
    const column = ["original", ...data.edits].indexOf(edit);
    if (!strip || column < 0) return null;
    const cellOfStrip = make("span", { class: "crop", role: "img", "aria-label": `${data.photographs[number][0]}, ${word(edit)}` });
    cellOfStrip.style.width = cellOfStrip.style.height = `${side}px`;
    cellOfStrip.style.backgroundImage = `url(${strip})`;
    cellOfStrip.style.backgroundSize = `auto ${side}px`;
    cellOfStrip.style.backgroundPosition = `-${column * side}px 0`;
    return cellOfStrip;
  }

  function card(number, edit) {
    const [name, label] = data.photographs[number];
    const control = data.controls[edit] === "original" ? null : data.controls[edit];
    const columns = ["original", ...(control ? [control] : []), edit];
    const rows = data.models.map((model) => {
      const cells = columns.map((column) => {
        const it = cell(model, column, number);
        if (!it) return make("td", {}, "–");
        const answer = data.classes[it.answer];
        return make("td", {}, make("span", { class: it.right ? "right" : "wrong" }, `${it.right ? "✓" : "✗"} ${answer}`), make("small", {}, ` true class ${percent(it.share)}`));
      });
      return make("tr", {}, make("th", { scope: "row" }, model), ...cells);
    });
    const heads = columns.map((column) => {
      const image = picture(number, column, window.innerWidth < 640 ? 96 : 168);
      const text = make("span", {}, column === control ? `control: ${word(column)}` : word(column));
      return make("th", { scope: "col" }, ...(image ? [image] : []), text);
    });
    const head = make("tr", {}, make("td"), ...heads);
    const others = data.edits.map((other) => {
      const answers = data.models.map((model) => cell(model, other, number)).filter(Boolean);
      const button = make("button", { type: "button", class: "other", "aria-pressed": other === edit });
      const wrong = answers.filter((it) => !it.right).length;
      button.append(...[picture(number, other, 84)].filter(Boolean), make("span", {}, word(other)), make("small", {}, answers.length ? `${wrong} of ${answers.length} wrong` : "not possible"));
      button.disabled = !answers.length;
      button.addEventListener("click", () => open(number, other));
      return button;
    });
    return [
      make("h3", {}, `${name}, ${word(edit)}`),
      make("p", {}, "True class: ", make("b", {}, data.classes[label])),
      make("div", { class: "scroll" }, make("table", { class: "answers" }, make("thead", {}, head), make("tbody", {}, ...rows))),
      make("h4", {}, "The same photograph under every edit"),
      make("div", { class: "others" }, ...others),
    ];
  }

  /* The flips of what is chosen that lost most, at most one of each photograph, as buttons that open it. */
  function flips(most) {
    const found = [];
    for (const model of data.models.filter((it) => !choice.model || it === choice.model)) {
      for (const edit of data.edits.filter((it) => !choice.edit || it === choice.edit)) {
        data.photographs.forEach((_, number) => {
          const [before, after] = [cell(model, "original", number), cell(model, edit, number)];
          if (before && after && before.right && !after.right) found.push({ model, edit, number, before, after });
        });
      }
    }
    found.sort((first, second) => second.before.share - second.after.share - (first.before.share - first.after.share));
    const seen = new Set();
    const chosen = found.filter(({ number }) => !seen.has(number) && seen.add(number)).slice(0, most);
    return chosen.map(({ model, edit, number, before, after }) => {
      const pictures = [picture(number, "original", 76), picture(number, edit, 76)].filter(Boolean);
      const answers = [`✓ ${data.classes[before.answer]}`, `✗ ${data.classes[after.answer]}`];
      const whose = [choice.model ? "" : model, choice.edit ? "" : word(edit)].filter(Boolean).join(", ");
      const button = make("button", { type: "button", class: "other", "aria-haspopup": "dialog" });
      button.append(make("span", { class: "crops" }, ...pictures), make("span", { class: "right" }, answers[0]), make("span", { class: "wrong" }, answers[1]));
      if (whose) button.append(make("small", {}, whose));
      button.addEventListener("click", () => {
        models.value = model;
        edits.value = edit;
        redraw();
        open(number, edit, button);
      });
      return button;
    });
  }

  function open(number, edit = edits.value, origin = svg) {
    const step = (by) => {
      const place = points.findIndex((point) => point.number === number);
      open(points[(place + by + points.length) % points.length].number, edit);
    };
    show("photograph", `${models.value}/${edit}/${data.photographs[number][0]}`, card(number, edit), step, origin);
  }

  function openKey(key) {
    const model = data.models.find((it) => key.startsWith(`${it}/`));
    const edit = model && data.edits.find((it) => key.slice(model.length + 1).startsWith(`${it}/`));
    const number = edit ? data.photographs.findIndex(([name]) => `${model}/${edit}/${name}` === key) : -1;
    if (number < 0) return;
    models.value = model;
    edits.value = edit;
    redraw();
    open(number, edit);
  }

  /* The nearest point counts, because a point is smaller than a finger. */
  svg.addEventListener("click", (event) => {
    const box = svg.getBoundingClientRect();
    const [x, y] = [((event.clientX - box.left) * 460) / box.width, ((event.clientY - box.top) * 460) / box.height];
    const away = (point) => Math.hypot(at(point.before.share) - x, at(point.after.share, true) - y);
    const nearest = points.reduce((best, point) => (!best || away(point) < away(best) ? point : best), null);
    if (nearest && away(nearest) < 24) open(nearest.number);
  });
  one("#explorer-open").addEventListener("click", () => photographs.value && open(Number(photographs.value)));
  for (const select of [models, edits]) select.addEventListener("change", redraw);
  redraw();
  return {
    flips,
    openKey,
    follow() {
      if (choice.model) models.value = choice.model;
      if (choice.edit) edits.value = choice.edit;
      redraw();
    },
  };
}

const explorer = one("#scatter") ? makeExplorer() : null;
apply();
openAddress();
