"""The few parts of `ray._private` that packages use; which, and who wants them, is in docs/ray-differences.md."""

from weft.compat.ray._private import internal_api as internal_api
from weft.compat.ray._private import services as services
from weft.compat.ray._private import state as state
from weft.compat.ray._private import worker as worker
