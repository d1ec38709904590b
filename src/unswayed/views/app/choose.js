// A press on a thumbnail chooses its photograph; the component's value is the name. Until the server has opened it, or an
// uploaded one, the stage shows the file itself; the last button opens the dialog of the upload. `element`, `props` and `trigger` are given by gradio.
function loading(address) {
  const stage = document.querySelector("#pictures .canvas");
  if (!stage) return;
  stage.classList.add("loading");
  stage.querySelector(".after").src = address;
}
element.addEventListener("click", (event) => {
  if (event.target.closest("[data-own]")) {
    document.querySelector("#upload").scrollIntoView({ block: "center" });
    document.querySelector("#upload input[type=file]").click();
  }
  const button = event.target.closest("[data-sample]");
  if (!button) return;
  loading(button.querySelector("img").src);
  props.value = button.dataset.sample;
  trigger("input");
});
element.querySelector("[aria-pressed=true]")?.scrollIntoView({ block: "nearest", inline: "center" });
document.addEventListener("change", (event) => {
  const file = event.target.matches("#upload input[type=file]") && event.target.files[0];
  if (file && file.type.startsWith("image/")) loading(URL.createObjectURL(file));
}, true);
