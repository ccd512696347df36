"""How fast a device runs the method, each time as a ratio to the plain network's in one process.

A `Case` is something to be timed. Each part of the comparison (`training`, `inference`, `memory`,
`growth`) lists its cases with what they are compared with; `clock` times them; a `Measurement` is
what comes out.
"""

from bne.speed.comparison import PARTS, compare
from bne.speed.measurement import Measurement
from bne.speed.settings import Settings

__all__ = ["PARTS", "Measurement", "Settings", "compare"]
