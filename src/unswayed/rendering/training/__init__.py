"""Training of the compact diffusion network: photographs, optimizer, loop."""
