"""The interactive page of `unfazed app`: pure functions on photographs and tables, in a thin gradio shell."""
