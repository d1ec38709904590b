// A press on a bar's picture asks for the filmstrip of that change and model. `element` and `trigger` are gradio's.
element.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-change]");
  if (button) trigger("select", { change: button.dataset.change, model: button.dataset.model });
});
