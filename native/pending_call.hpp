/// A call of a concurrent actor: Python runs it on another thread or an event loop and answers when it is
/// done.
#pragma once

#include "answer.hpp"

namespace weft {

/// Hands the call to the host, which answers it through a PendingCall. An exception while it is started is
/// the answer.
void start_pending_call(const std::shared_ptr<Core>& core, std::unique_ptr<Frame> frame, PyObject* args,
                        PyObject* kwargs);
/// Asks the host to stop the call if it is under way; false when it is not. The mutex is held.
bool cancel_pending_call(Core& core, ProcessId from, uint64_t cookie, bool force, bool recursive);
bool add_pending_type(PyObject* module);

}  // namespace weft
