/// What a worker says to a caller: results, errors, items of a stream.
#pragma once

#include "py.hpp"

namespace weft {

/// What is known of a call while it runs.
struct Frame {
    ProcessId from;
    TaskHeader header;
    std::string name;
    std::string method;
    std::string retry_types;
    std::vector<Entry*> nested;
    std::string lost;  ///< why an argument's memory is gone
    int64_t started_ns = 0;
};

void drop_nested(Core& core, Frame& frame);
/// The call is over and about to be answered. The mutex is held.
void record_run(Core& core, const Frame& frame, Status status, int64_t spent_ns);

/// The pending Python exception as an error value, and whether the caller wants it tried again.
std::pair<std::string, bool> dump_exception(const Core& core, const Frame& frame);
void reply_error(Core& core, Frame& frame, std::string_view error, Status status);
void reply_cancelled(Core& core, Frame& frame);
/// An argument is gone: its submitter makes it again, or knows why it cannot.
void reply_lost(Core& core, const Frame& frame);
/// With the Python exception that is set.
void reply_exception(Core& core, Frame& frame);
/// False with an exception set when the results cannot be encoded.
bool reply_results(Core& core, Frame& frame, PyObject* result);

/// Sends the index-th item of a stream; false with an exception set when it cannot be encoded.
bool send_item(Core& core, Frame& frame, uint32_t index, PyObject* value);
/// The stream ends with the exception that is set as its last item, or is tried again.
void end_stream_with_exception(Core& core, Frame& frame, uint32_t index);
uint32_t window_of(const Frame& frame);
/// Whether one more item may be sent. A retry begins behind what its consumer has taken of the first attempt.
bool has_room(uint32_t sent, const Credit& credit, uint32_t window);

}  // namespace weft
