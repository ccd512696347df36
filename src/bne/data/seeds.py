"""Seeds that follow from what they are for, the same on every machine."""

import hashlib


def seed_of(*parts: object) -> int:
    """A seed that differs wherever the parts do."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)
