// The list of flips is one block of HTML: a click on one of its buttons becomes an event with the flip's index.
// `element` and `trigger` are given by gradio.
element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-flip]");
  if (button) trigger("select", { place: Number(button.dataset.flip) });
});
// A card far down in the list opens above it, so the page goes there once the card is in the document.
const large = document.querySelector("#flip");
new MutationObserver(() => {
  if (large.querySelector("h2")) large.scrollIntoView({ block: "start" });
}).observe(large, { childList: true, subtree: true });
