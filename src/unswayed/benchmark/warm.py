"""What each worker of a build would import or make at its first photograph; their server does it once, before them."""

import cv2
import numpy as np
import numpy.fft
import numpy.ma
import numpy.random

import unswayed.sources.coco  # noqa: F401

cv2.cvtColor(np.zeros((1, 1, 3), np.uint8), cv2.COLOR_RGB2LAB)  # makes the tables of this color space, in 0.1 s
