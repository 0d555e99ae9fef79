"""`ray.util.actor_group` of Ray 2.60."""

import weft.util.actor_group
from weft.util.annotations import Deprecated

__all__ = ["ActorGroup"]


@Deprecated(message="For stateless/task processing, use ray.util.multiprocessing.", warning=True)
class ActorGroup(weft.util.actor_group.ActorGroup):
    """Weft's own, which Ray has deprecated."""
