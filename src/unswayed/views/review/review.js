"use strict";
const byId = (id) => document.getElementById(id);
const buttons = [...document.querySelectorAll("button[data-answer]")];
const keys = Object.fromEntries(buttons.map((button, place) => [String(place + 1), button.dataset.answer]));
let state = null, at = 0, shown = 0, busy = false;

function unanswered(from) {
  for (let step = 0; step < state.items.length; step += 1) {
    const number = (from + step) % state.items.length;
    if (state.items[number].answer === null) return number;
  }
  return null;
}

function show(number) {
  at = Math.max(0, Math.min(state.items.length - 1, number));
  const item = state.items[at];
  const done = state.items.filter((item) => item.answer !== null).length;
  byId("original").src = `/picture/${at}/original`;
  byId("edited").src = `/picture/${at}/edited`;
  byId("edit").textContent = state.blind ? "" : [item.edit, item.label].filter(Boolean).join(" · ");
  const end = done === state.items.length ? " · all rated, thank you" : "";
  byId("place").textContent =
    `Picture ${at + 1} of ${state.items.length} · ${done} rated · rater ${state.rater}${end}`;
  byId("progress").max = state.items.length;
  byId("progress").value = done;
  for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.answer === item.answer));
  zoom(false);
  shown = performance.now();
}

async function answer(kind) {
  if (busy || state === null) return;
  busy = true;
  try {
    const body = JSON.stringify({item: at, answer: kind, seconds: (performance.now() - shown) / 1000});
    const reply = await fetch("/answer", {method: "POST", headers: {"Content-Type": "application/json"}, body});
    if (!reply.ok) throw new Error((await reply.json()).error);
    state.items[at].answer = kind;
    byId("message").textContent = "";
    const next = unanswered(at + 1);
    show(next === null ? at : next);
  } catch (error) {
    byId("message").textContent = `The answer was not saved: ${error.message}`;
  } finally {
    busy = false;
  }
}

// Hold to flip: the original is shown as long as the button, or on a phone the picture, is held.
function flip(on) {
  byId("pair").classList.toggle("flipped", on);
  byId("flip").setAttribute("aria-pressed", String(on));
}
for (const held of [byId("flip"), byId("pair")]) {
  held.addEventListener("pointerdown", () => flip(held.id === "flip" || !held.classList.contains("zoomed")));
  for (const end of ["pointerup", "pointercancel", "pointerleave"]) held.addEventListener(end, () => flip(false));
  held.addEventListener("contextmenu", (event) => event.preventDefault());
}
byId("flip").addEventListener("keydown", (event) => { if (event.key === " " || event.key === "Enter") flip(true); });
byId("flip").addEventListener("keyup", () => flip(false));

// Both pictures are enlarged at the same place.
const windows = [...document.querySelectorAll(".window")];
function zoom(on = !byId("pair").classList.contains("zoomed")) {
  byId("pair").classList.toggle("zoomed", on);
  byId("zoom").setAttribute("aria-pressed", String(on));
  for (const part of windows) {
    part.style.height = on ? `${part.clientWidth}px` : "";
    part.scrollTo((part.scrollWidth - part.clientWidth) / 2, (part.scrollHeight - part.clientHeight) / 2);
  }
}
byId("zoom").addEventListener("click", () => zoom());
for (const part of windows) {
  part.addEventListener("scroll", () => windows.forEach((other) => {
    if (other !== part && Math.hypot(other.scrollLeft - part.scrollLeft, other.scrollTop - part.scrollTop) > 1) {
      other.scrollTo(part.scrollLeft, part.scrollTop);
    }
  }));
}

for (const button of buttons) button.addEventListener("click", () => answer(button.dataset.answer));
document.addEventListener("keydown", (event) => {
  if (state === null || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key in keys) answer(keys[event.key]);
  else if (event.key === "ArrowLeft") show(at - 1);
  else if (event.key === "ArrowRight") show(at + 1);
  else if (event.key.toLowerCase() === "n") show(unanswered(at + 1) ?? at);
  else if (event.key.toLowerCase() === "z") zoom();
  else return;
  event.preventDefault();
});

fetch("/state").then((reply) => reply.json()).then((given) => {
  state = given;
  show(unanswered(0) ?? 0);
}).catch((error) => { byId("message").textContent = `The pictures cannot be loaded: ${error.message}`; });
