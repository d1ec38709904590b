// The filmstrip: the slider (arrow keys included), a finger or the mouse on the thumbnails or on the curve choose the
// picture. `element` and `watch` are given by gradio; nothing is asked of the server.
const thumbs = () => [...element.querySelectorAll(".film .thumbs img")];
const slider = () => element.querySelector(".film input[type=range]");

function show(place) {
  const one = thumbs()[place];
  if (!one) return;
  const big = element.querySelector(".film .big");
  big.src = one.src;
  big.alt = one.dataset.words;
  element.querySelector(".film figcaption").textContent = one.dataset.words;
  element.querySelector(".film .now").style.left = `${one.dataset.share}%`;
  slider().value = String(place);
  slider().setAttribute("aria-valuetext", one.dataset.words);
  thumbs().forEach((other, at) => other.classList.toggle("current", at === place));
}

// The picture nearest to the pointer: on the curve by its level, on the thumbnails by its place.
function under(event) {
  const area = event.target.closest(".film .curve, .film .thumbs");
  if (!area) return null;
  const box = area.getBoundingClientRect();
  const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  const all = thumbs();
  if (area.classList.contains("thumbs")) return Math.min(all.length - 1, Math.floor(share * all.length));
  const far = all.map((one) => Math.abs(Number(one.dataset.share) - 100 * share));
  return far.indexOf(Math.min(...far));
}

let scrubbing = false;
element.addEventListener("input", (event) => { if (event.target === slider()) show(Number(slider().value)); });
element.addEventListener("pointerdown", (event) => {
  const place = under(event);
  if (place === null) return;
  scrubbing = true;
  event.target.closest(".curve, .thumbs").setPointerCapture(event.pointerId);
  show(place);
});
element.addEventListener("pointermove", (event) => { if (scrubbing) { const at = under(event); if (at !== null) show(at); } });
for (const end of ["pointerup", "pointercancel"]) element.addEventListener(end, () => { scrubbing = false; });
const begin = () => { if (slider()) show(Number(slider().value)); };
watch("value", begin);
begin();
