"""What there is in the cluster, as `weft.util.state` lists it: `weft.state.list_tasks()`."""

from weft.util.state import *  # noqa: F403
from weft.util.state import __all__ as __all__
