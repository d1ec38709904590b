"""The interactive page of `unswayed app`: pure functions on photographs and tables, in a thin gradio shell."""
