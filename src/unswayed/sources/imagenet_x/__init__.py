"""ImageNet-X: the annotations of 16 factors of variation, and the annotated pictures as a torch dataset."""
