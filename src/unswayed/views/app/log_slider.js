// A slider with a logarithmic scale: `props.value` lies between `props.low` and `props.high`.
// `element`, `trigger` and `props` are given by gradio.
function set(value) {
  if (!Number.isFinite(value)) return;
  props.value = Math.min(props.high, Math.max(props.low, value));
  trigger("input");
}
const rounded = (value) => Number(value.toPrecision(3));

element.addEventListener("input", (event) => {
  const value = Number(event.target.value);
  if (event.target.type === "range") set(rounded(props.low * (props.high / props.low) ** (value / 1000)));
  // A number that is being typed may not be complete: 0.0 is the beginning of 0.05.
  else if (value >= props.low && value <= props.high) set(value);
});
element.addEventListener("change", (event) => { if (event.target.type === "number") set(Number(event.target.value)); });
element.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
  if (event.target.type !== "range" || !step) return;
  event.preventDefault();
  set(rounded(Number(props.value) * (props.high / props.low) ** (step / 100)));
});
