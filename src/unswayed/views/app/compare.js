// The comparison of two models, drawn from its numbers: dumbbells by edit, and the pictures the models disagree about.
// `element`, `props` and `watch` are given by gradio.
function made(name, className, ...inside) {
  const part = document.createElement(name);
  if (className) part.className = className;
  part.append(...inside);
  return part;
}
function at(part, left, width) {
  part.style.left = `${left}%`;
  if (width !== undefined) part.style.width = `${width}%`;
  return part;
}

function dumbbell(row, low, high) {
  const [first, second] = row.drops.map((drop) => 100 * (drop - low) / (high - low));
  const track = made("span", "track",
    at(made("span", "zero"), -100 * low / (high - low)),
    at(made("span", "between"), Math.min(first, second), Math.abs(first - second)),
    at(made("span", "dot"), first), at(made("span", "dot second"), second));
  track.setAttribute("aria-hidden", "true");
  return made("li", "", made("b", "", row.edit), track, made("span", "said", row.words), made("span", "", row.verdict));
}

function card(row) {
  const image = row.picture ? made("img") : made("span", "", "no picture");
  if (row.picture) { image.src = row.picture; image.alt = row.title; }
  return made("li", "", image, made("span", "said", made("b", "", row.title), ...row.said.map((line) => made("span", "", line))));
}

function draw() {
  const root = element.querySelector(".comparison");
  const shown = JSON.parse(props.value || "null");
  if (!root) return;
  if (!shown) { root.replaceChildren(); return; }
  const drops = shown.rows.flatMap((row) => row.drops);
  const [low, high] = [Math.min(0, ...drops), Math.max(10, ...drops)];
  const key = made("p", "key", ...shown.models.map((model, place) => made("span", "", made("i", place ? "dot second" : "dot"), model)),
    made("span", "quiet", `points of accuracy lost, from ${Math.round(low)} to ${Math.round(high)}`));
  root.replaceChildren(
    key,
    made("ol", "dumbbell", ...shown.rows.map((row) => dumbbell(row, low, high))),
    made("p", "quiet", shown.told),
    made("h2", "", "Where they disagree"),
    made("p", "", shown.disagreed),
    made("ul", "flips disagreed", ...shown.pictures.map(card)),
  );
}
watch("value", draw);
draw();
