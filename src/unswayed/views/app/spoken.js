() => {
  // gradio gives its drop zones a spoken name that differs from the words on them; without it these words are spoken.
  const mend = () => document.querySelectorAll("button.upload-container[aria-label]")
    .forEach((zone) => zone.removeAttribute("aria-label"));
  new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
  mend();
}
