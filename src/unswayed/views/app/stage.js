// The stage: the object follows the pointer in the browser, chips reset a change, and a signal says when the picture is
// settled. `element`, `trigger` and `watch` are given by gradio.
// A handle only says where the object is wanted; the server turns that into values of the same controls as the sliders.
// Every request has a number: until the picture with the last number has come, the cut-out stays where it is wanted.
let drag = null;            // {handle, start: place at the start, from: pointer at the start}
let wanted = null;          // the place that was sent last and is not yet shown
let serial = 0;             // its number, which comes back with its picture
const touched = new Set();  // the handles that were moved since the last settled picture
let quiet = 0;
const cutouts = new Map();  // address -> decoded picture

const canvas = () => element.querySelector(".canvas");
const place = () => JSON.parse(canvas()?.dataset.place || "null");
const middle = (corners) => [0, 1].map((axis) => corners.reduce((sum, corner) => sum + corner[axis], 0) / 4);

function pointer(event) {
  const box = canvas().getBoundingClientRect();
  return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
}

function decoded(address) {
  if (!cutouts.has(address)) {
    if (cutouts.size > 8) cutouts.clear();
    const image = new Image();
    image.src = address;
    image.addEventListener("load", () => paint(wanted), { once: true });
    cutouts.set(address, image);
  }
  return cutouts.get(address);
}

// The object where it is wanted, on the background without it; nothing where the server's picture is up to date.
function paint(shown) {
  const moving = canvas()?.querySelector(".moving");
  if (!moving) return;
  moving.hidden = !shown;
  if (!shown) return;
  const layers = [moving.dataset.background, moving.dataset.object].map(decoded);
  if (!layers.every((layer) => layer.complete && layer.naturalWidth)) return;
  const side = moving.width;
  const pen = moving.getContext("2d");
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.drawImage(layers[0], 0, 0, side, side);
  const [left, top, right, bottom] = JSON.parse(moving.dataset.box);
  const [first, across, , down] = shown.corners;
  const [a, b] = [0, 1].map((axis) => (across[axis] - first[axis]) / (right - left));
  const [c, d] = [0, 1].map((axis) => (down[axis] - first[axis]) / (bottom - top));
  pen.setTransform(a, b, c, d, side * (first[0] - a * left - c * top), side * (first[1] - b * left - d * top));
  pen.drawImage(layers[1], 0, 0, side, side);
}

// Handles lie outside the object's box, so that they cover neither the object nor the answer.
function draw(shown) {
  if (!shown || !canvas()?.querySelector("polygon")) return;
  const points = shown.corners.map((corner) => corner.join(",")).join(" ");
  for (const sides of canvas().querySelectorAll("polygon")) sides.setAttribute("points", points);
  const center = middle(shown.corners);
  const at = (grip, point, far) => {
    const length = Math.hypot(point[0] - center[0], point[1] - center[1]) || 1;
    const [x, y] = [0, 1].map((axis) => Math.min(1, Math.max(0, point[axis] + far * (point[axis] - center[axis]) / length)));
    grip.style.left = `${100 * x}%`;
    grip.style.top = `${100 * y}%`;
  };
  const between = (first, second) => [0, 1].map((axis) => (shown.corners[first][axis] + shown.corners[second][axis]) / 2);
  for (const grip of canvas().querySelectorAll(".grip.scale")) at(grip, shown.corners[Number(grip.dataset.corner)], 0.03);
  at(canvas().querySelector(".grip.turn"), between(0, 1), 0.08);
  at(canvas().querySelector(".grip.move"), between(2, 3), 0.08);
}

// The place after a change of the one at the start: a shift, a factor on its sides, degrees counterclockwise.
function changed(start, shift, factor, degrees) {
  const center = middle(start.corners);
  const [cosine, sine] = [Math.cos(degrees * Math.PI / 180), Math.sin(degrees * Math.PI / 180)];
  const corners = start.corners.map(([x, y]) => {
    const [across, down] = [factor * (x - center[0]), factor * (y - center[1])];
    return [center[0] + shift[0] + cosine * across + sine * down, center[1] + shift[1] - sine * across + cosine * down];
  });
  const clamped = (value) => Math.min(1, Math.max(0, value));
  return {
    corners,
    center: [clamped(start.center[0] + shift[0]), clamped(start.center[1] + shift[1])],
    rate: start.rate * factor * factor,
    degrees: start.degrees + degrees,
  };
}

function want(handle, next) {
  wanted = next;
  touched.add(handle);
  serial += 1;
  draw(wanted);
  paint(wanted);
  const { center, rate, degrees } = next;
  window.unswayedWanted = JSON.stringify({ handles: [...touched], serial, center, rate, degrees });
  trigger("input");
}

function dragged(to) {
  const { handle, start, from } = drag;
  const center = middle(start.corners);
  if (handle === "move") return changed(start, [to[0] - from[0], to[1] - from[1]], 1, 0);
  const far = (point) => Math.hypot(point[0] - center[0], point[1] - center[1]) || 0.001;
  if (handle === "scale") return changed(start, [0, 0], Math.max(0.05, far(to) / far(from)), 0);
  const angle = (point) => Math.atan2(center[1] - point[1], point[0] - center[0]) * 180 / Math.PI;
  return changed(start, [0, 0], 1, angle(to) - angle(from));
}

element.addEventListener("pointerdown", (event) => {
  const grip = event.target.closest(".grip") || (event.pointerType !== "touch" && event.target.closest("polygon"));
  if (!grip || event.button > 0) return;
  if (grip.matches(".grip")) grip.focus({ preventScroll: true });
  event.preventDefault();
  element.setPointerCapture(event.pointerId);
  element.classList.add("dragging");
  drag = { handle: grip.dataset?.handle || "move", start: wanted || place(), from: pointer(event) };
});
element.addEventListener("pointermove", (event) => { if (drag) want(drag.handle, dragged(pointer(event))); });
for (const name of ["pointerup", "pointercancel"]) {
  element.addEventListener(name, () => { drag = null; element.classList.remove("dragging"); shown(); });
}

element.addEventListener("keydown", (event) => {
  const handle = event.target.dataset?.handle;
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (!handle || !step) return;
  event.preventDefault();
  const [start, far] = [wanted || place(), event.shiftKey ? 5 : 1];
  const along = far * (step[0] - step[1]);
  if (handle === "move") want(handle, changed(start, [0.02 * far * step[0], 0.02 * far * step[1]], 1, 0));
  else if (handle === "scale") want(handle, changed(start, [0, 0], 1.05 ** along, 0));
  else want(handle, changed(start, [0, 0], 1, -3 * along));
});

element.addEventListener("click", (event) => {
  const chip = event.target.closest("[data-reset]");
  if (chip) trigger("select", { edit: chip.dataset.reset });
});

// On a phone a bar at the bottom shows picture and answer while the stage is out of sight.
const sight = new IntersectionObserver(([seen]) => element.classList.toggle("away", !seen.isIntersecting));
sight.observe(element);

function settle() {
  wanted = null;
  touched.clear();
}

function shown() {
  if (!canvas()) return;
  if (!drag && canvas().dataset.serial === String(serial)) settle();
  draw(wanted || place());
  paint(wanted);
  clearTimeout(quiet);
  quiet = setTimeout(() => trigger("settled"), 350);
}
watch("value", shown);
// Where the server refuses the last place, no picture comes: the object goes back to where it is.
const note = document.querySelector("#note");
if (note) {
  new MutationObserver(() => {
    if (!drag && note.querySelector(".old")) { settle(); draw(place()); paint(null); }
  }).observe(note, { childList: true, subtree: true });
}
shown();
