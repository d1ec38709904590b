// The visitor's mark on the photograph: a box around the object, strokes that add to it or take from it, undo.
// `element`, `trigger` and `watch` are given by gradio; one finished stroke is one event.
// On a touch screen no tool is chosen at first, so that a finger on the photograph scrolls the page.
let tool = matchMedia("(pointer: coarse)").matches ? "" : "box";
let from = null;
let brush = null;

const image = () => element.querySelector(".marker img");
const canvas = () => element.querySelector(".marker canvas");

function place(event) {
  const box = canvas().getBoundingClientRect();
  const clamp = (value) => Math.min(1, Math.max(0, value));
  return [clamp((event.clientX - box.left) / box.width), clamp((event.clientY - box.top) / box.height)];
}

function prepare() {
  const shown = image();
  if (!shown || !canvas()) return;
  const fit = () => { canvas().width = shown.naturalWidth || 1; canvas().height = shown.naturalHeight || 1; };
  shown.complete ? fit() : shown.addEventListener("load", fit, { once: true });
  for (const button of element.querySelectorAll("[data-tool]")) {
    button.setAttribute("aria-pressed", String(button.dataset.tool === tool));
  }
  element.querySelector(".marker").classList.toggle("drawing", tool !== "");
  // The picture is shown anew after each stroke; the size of the brush stays.
  if (brush !== null) element.querySelector("[data-size]").value = brush;
}

function draw(to) {
  const pen = canvas().getContext("2d");
  const [wide, high] = [canvas().width, canvas().height];
  if (tool === "box") {
    pen.clearRect(0, 0, wide, high);
    pen.strokeStyle = "#ffffff"; pen.lineWidth = 4;
    pen.strokeRect(from[0] * wide, from[1] * high, (to[0] - from[0]) * wide, (to[1] - from[1]) * high);
    pen.strokeStyle = "#0057a3"; pen.lineWidth = 2;
    pen.strokeRect(from[0] * wide, from[1] * high, (to[0] - from[0]) * wide, (to[1] - from[1]) * high);
    return;
  }
  const size = Number(element.querySelector("[data-size]").value) / 100;
  pen.strokeStyle = tool === "add" ? "#0072b2" : "#d55e00";
  pen.lineWidth = Math.max(2, size * Math.max(wide, high)); pen.lineCap = "round"; pen.lineJoin = "round";
  pen.beginPath(); pen.moveTo(from[0] * wide, from[1] * high); pen.lineTo(to[0] * wide, to[1] * high + 0.01); pen.stroke();
  from = to;
}

element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-tool]");
  if (button) { tool = tool === button.dataset.tool ? "" : button.dataset.tool; prepare(); }
  if (event.target.closest("[data-undo]")) trigger("select", { undo: true });
});
element.addEventListener("input", (event) => { if (event.target.matches("[data-size]")) brush = event.target.value; });
document.addEventListener("keydown", (event) => {
  const undo = element.querySelector("[data-undo]");
  const typing = event.target.matches("input:not([type=range]), textarea");
  if (event.key !== "z" || !(event.ctrlKey || event.metaKey) || typing || !undo || undo.disabled || !undo.offsetParent) return;
  event.preventDefault();
  trigger("select", { undo: true });
});
element.addEventListener("pointerdown", (event) => {
  if (event.target !== canvas() || tool === "") return;
  event.preventDefault();
  canvas().setPointerCapture(event.pointerId);
  from = place(event);
  if (tool !== "box") draw(from);
});
element.addEventListener("pointermove", (event) => { if (from) draw(place(event)); });
element.addEventListener("pointercancel", () => { from = null; });
element.addEventListener("pointerup", (event) => {
  if (!from) return;
  const to = place(event);
  if (tool === "box") {
    const box = [Math.min(from[0], to[0]), Math.min(from[1], to[1]), Math.abs(to[0] - from[0]), Math.abs(to[1] - from[1])];
    if (box[2] > 0.02 && box[3] > 0.02) trigger("select", { box });
  } else {
    draw(to);
    trigger("select", { paint: canvas().toDataURL("image/png"), add: tool === "add" });
  }
  from = null;
});
watch("value", prepare);
prepare();
