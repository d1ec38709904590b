// The filmstrip: curve, slider and thumbnails share one axis, and the chosen picture is shown on the stage.
// `element`, `props` and `watch` are given by gradio; the value is what `films.filmstrip` returns.
function made(name, className, ...inside) {
  const part = document.createElement(name);
  if (className) part.className = className;
  part.append(...inside);
  return part;
}
function button(words, className, name) {
  const part = made("button", className, words);
  part.type = "button";
  part.dataset[name] = "";
  return part;
}

function build(film) {
  const stills = film.stills.map((still) => {
    const image = made("img");
    Object.assign(image, { src: still.picture, alt: "", draggable: false });
    Object.assign(image.dataset, { share: still.share, words: still.words });
    image.style.left = `${still.share}%`;
    return image;
  });
  const points = film.stills.map((still) => {
    const point = made("span", still.turned ? "point turned" : "point");
    point.style.left = `${still.share}%`;
    point.style.top = `${still.down}%`;
    return point;
  });
  const line = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  line.setAttribute("viewBox", "0 0 100 100");
  line.setAttribute("preserveAspectRatio", "none");
  const drawn = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  drawn.setAttribute("points", film.stills.map((still) => `${still.share},${still.down}`).join(" "));
  line.append(drawn);
  const curve = made("div", "curve", line, ...points, made("span", "now"));
  curve.ariaHidden = "true";
  const range = made("input");
  Object.assign(range, { type: "range", min: 0, max: 100, step: "any", ariaLabel: "picture of the filmstrip" });
  range.dataset.turn = film.turn;
  const thumbs = made("div", "thumbs", ...stills);
  thumbs.ariaHidden = "true";
  const said = made("p", "", made("b", "", film.title), film.said);
  said.role = "status";
  const words = made("p", "words");
  words.ariaLive = "polite";
  const ends = made("div", "ends quiet", made("span", "", "unchanged"), made("span", "", film.end));
  const buttons = [button("▶ Play on the picture", "chip", "play"), button("Back to your edit", "chip all", "back")];
  return [said, made("p", "quiet", film.curve), made("div", "axis", curve, range, thumbs, ends), words, made("div", "chips", ...buttons)];
}
const stills = () => [...element.querySelectorAll(".film .thumbs img")];
const slider = () => element.querySelector(".film input[type=range]");
let at = 0;
let playing = 0;

function onStage(still) {
  const stage = document.querySelector("#pictures .canvas");
  if (!stage) return;
  let film = stage.querySelector(".playing");
  if (!film) {
    film = document.createElement("figure");
    film.className = "playing";
    film.append(document.createElement("img"), document.createElement("figcaption"));
    stage.append(film);
  }
  film.firstChild.src = still.src;
  film.firstChild.alt = still.dataset.words;
  film.lastChild.textContent = still.dataset.words;
  const glance = document.querySelector("#pictures .glance");
  if (glance) {
    glance.kept ??= [...glance.childNodes].map((part) => part.cloneNode(true));
    glance.querySelector("img").src = still.src; glance.querySelector("span").textContent = still.dataset.words;
  }
}

function show(index) {
  const still = stills()[index];
  if (!still) return;
  at = index;
  element.querySelector(".film .words").textContent = still.dataset.words;
  element.querySelector(".film .now").style.left = `${still.dataset.share}%`;
  slider().value = still.dataset.share;
  slider().setAttribute("aria-valuetext", still.dataset.words);
  stills().forEach((other, place) => other.classList.toggle("current", place === index));
  onStage(still);
}

function nearest(share) {
  const far = stills().map((still) => Math.abs(Number(still.dataset.share) - share));
  return far.indexOf(Math.min(...far));
}

// Thumbnails stand at their levels; of those that would overlap only the more important one is shown.
function spread() {
  const { clientWidth: width, clientHeight: side } = element.querySelector(".film .thumbs");
  const all = stills();
  const order = [0, Number(slider().dataset.turn), all.length - 1, ...all.keys()];
  const taken = [];
  for (const still of all) still.classList.add("hidden");
  for (const index of order) {
    const left = Number(all[index].dataset.share) * width / 100;
    if (taken.every((other) => Math.abs(other - left) >= side + 2)) {
      taken.push(left);
      all[index].classList.remove("hidden");
    }
  }
}

function play() {
  clearInterval(playing);
  show(0);
  playing = setInterval(() => { if (at + 1 < stills().length) show(at + 1); else clearInterval(playing); }, 600);
}

function scrub(event) {
  const box = element.querySelector(".film .axis").getBoundingClientRect();
  clearInterval(playing);
  show(nearest(100 * (event.clientX - box.left) / box.width));
}
let scrubbing = false;
element.addEventListener("input", (event) => { if (event.target === slider()) show(nearest(Number(slider().value))); });
element.addEventListener("keydown", (event) => {
  const last = stills().length - 1;
  const to = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, Home: 0, End: last }[event.key];
  if (event.target !== slider() || to === undefined) return;
  event.preventDefault();
  clearInterval(playing);
  show(Math.min(last, Math.max(0, to)));
});
element.addEventListener("click", (event) => {
  if (event.target.closest("[data-play]")) play();
  if (!event.target.closest("[data-back]")) return;
  clearInterval(playing);
  document.querySelector("#pictures .playing")?.remove();
  const glance = document.querySelector("#pictures .glance");
  if (glance?.kept) glance.replaceChildren(...glance.kept);
});
element.addEventListener("pointerdown", (event) => {
  const area = event.target.closest(".film .curve, .film .thumbs");
  if (!area) return;
  scrubbing = true;
  area.setPointerCapture(event.pointerId);
  scrub(event);
});
element.addEventListener("pointermove", (event) => { if (scrubbing) scrub(event); });
for (const end of ["pointerup", "pointercancel"]) element.addEventListener(end, () => { scrubbing = false; });
function begin() {
  clearInterval(playing);
  const film = JSON.parse(props.value || "null");
  element.querySelector(".film").replaceChildren(...(film ? build(film) : []));
  if (!film) return;
  spread();
  show(Number(slider().dataset.turn));
}
new ResizeObserver(() => { if (slider()) spread(); }).observe(element);
watch("value", begin);
begin();
