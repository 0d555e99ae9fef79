"""The folders of a node: its own, those of submitted jobs, and those that runtime environments were made in.

Runs in the daemon's thread. A node that has made none sweeps none.
"""

from __future__ import annotations

from collections.abc import Callable


class Folders:
    """One node's. `jobs_kept` names the folder of submitted jobs where a head keeps something."""

    def __init__(self, node_id: str, keeps_files: bool, jobs_kept: Callable[[], str]) -> None:
        self._node_id = node_id
        self.keeps_files = keeps_files
        self._jobs_kept = jobs_kept
        self.has_some = False
        """There may be folders to be swept: some worker has a runtime environment, or the node has its own."""

    def session(self) -> str:
        """Where this node keeps files, made now."""
        from weft.environments import session_folder

        self.has_some = True
        return session_folder.make(self._node_id, self.keeps_files)

    def jobs(self) -> str:
        """Where the files of submitted jobs are: with all that a head keeps, if it keeps something."""
        return self._jobs_kept() or self.session()

    def sweep(self, of_own: bool = False) -> None:
        """Remove those of jobs that are over; `of_own`: nothing of this node runs any more."""
        if self.has_some:
            from weft.environments import env_folders

            if of_own:
                env_folders.release()
            env_folders.sweep()
