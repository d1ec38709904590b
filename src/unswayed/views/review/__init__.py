"""A local page on which people rate the pictures of a benchmark."""
