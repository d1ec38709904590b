"""Pipelines of diffusers as editors: what words say is drawn, and the object's pixels are put back exactly.

renderer = open_renderer(RenderSettings(renderer="diffusers:FOLDER?scheduler=DDIMScheduler", steps=30))
"""
