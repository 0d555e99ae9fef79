"""The state listings of `weft.util.state`, under the name that they once had in Ray."""

from weft.util.state import get_actor as get_actor
from weft.util.state import get_node as get_node
from weft.util.state import get_worker as get_worker
from weft.util.state import list_actors as list_actors
from weft.util.state import list_nodes as list_nodes
from weft.util.state import list_objects as list_objects
from weft.util.state import list_tasks as list_tasks
from weft.util.state import list_workers as list_workers
