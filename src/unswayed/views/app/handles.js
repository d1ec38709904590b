// The stage: handles that move, scale and turn the object, chips that reset a change, and a signal when the picture is
// settled. `element`, `trigger` and `watch` are given by gradio.
// A handle only says where the object is wanted; the server turns that into values of the same controls as the sliders.
let drag = null;    // {handle, start: place at the start, from: pointer at the start}
let wanted = null;  // the place that was sent last and is not yet shown
let serial = 0;     // its number, which comes back with its picture
let late = 0;
let quiet = 0;

const canvas = () => element.querySelector(".canvas");
const place = () => JSON.parse(canvas()?.dataset.place || "null");
const middle = (corners) => [0, 1].map((axis) => corners.reduce((sum, corner) => sum + corner[axis], 0) / 4);

function pointer(event) {
  const box = canvas().getBoundingClientRect();
  return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
}

function draw(shown) {
  if (!shown || !canvas()?.querySelector("polygon")) return;
  const at = (grip, [x, y]) => { grip.style.left = `${100 * x}%`; grip.style.top = `${100 * y}%`; };
  const points = shown.corners.map((corner) => corner.join(",")).join(" ");
  for (const sides of canvas().querySelectorAll("polygon")) sides.setAttribute("points", points);
  const center = middle(shown.corners);
  const inside = ([x, y]) => [Math.min(0.97, Math.max(0.03, x)), Math.min(0.97, Math.max(0.03, y))];
  for (const grip of canvas().querySelectorAll(".grip.scale")) at(grip, inside(shown.corners[Number(grip.dataset.corner)]));
  at(canvas().querySelector(".grip.move"), inside(center));
  // The round handle lies beyond the upper side, or on the nearest side of the frame where there is no room.
  const top = [0, 1].map((axis) => (shown.corners[0][axis] + shown.corners[1][axis]) / 2);
  const length = Math.hypot(top[0] - center[0], top[1] - center[1]) || 1;
  at(canvas().querySelector(".grip.turn"), inside([0, 1].map((axis) => top[axis] + 0.1 * (top[axis] - center[axis]) / length)));
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
  wanted = { ...next, handle };
  draw(wanted);
  serial += 1;
  window.unswayedWanted = JSON.stringify({ handle, serial, center: next.center, rate: next.rate, degrees: next.degrees });
  trigger("input");
  clearTimeout(late);
  // Where no new picture comes, the frame returns to the object.
  late = setTimeout(() => { if (!drag) { wanted = null; draw(place()); } }, 4000);
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
  canvas().setPointerCapture(event.pointerId);
  drag = { handle: grip.dataset?.handle || "move", start: wanted || place(), from: pointer(event) };
});
element.addEventListener("pointermove", (event) => { if (drag) want(drag.handle, dragged(pointer(event))); });
for (const name of ["pointerup", "pointercancel"]) element.addEventListener(name, () => { drag = null; });

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

function shown() {
  // While a handle is held, or the picture of its last place is still to come, the frame stays where it is wanted.
  if (!canvas()) return;
  if (!drag && canvas().dataset.serial === String(serial)) wanted = null;
  draw(wanted || place());
  clearTimeout(quiet);
  quiet = setTimeout(() => trigger("settled"), 350);
}
watch("value", shown);
shown();
