"""`disc` or `disc:RADIUS`: a disc in the center of the picture."""

import numpy as np

from unswayed.registry import declare


@declare(help="a disc in the center", usage="disc:RADIUS")
def open_disc(argument):
    radius = float(argument or 0.3)

    def disc(image, box=None):
        high, wide = image.shape[:2]
        rows, columns = np.mgrid[:high, :wide]
        distance = np.hypot((rows + 0.5) / high - 0.5, (columns + 0.5) / wide - 0.5)
        return (distance < radius).astype(np.float32)

    return disc
