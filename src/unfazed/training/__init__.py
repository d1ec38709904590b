"""Training of the compact diffusion network: photographs, optimiser, loop."""
