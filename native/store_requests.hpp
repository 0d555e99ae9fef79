/// What this process has asked of its daemon about the arena: room, and bytes that are on disk or elsewhere.
///
/// Who asks waits with Pump::wait_until for the number of answers to change, then looks for his own.
#pragma once

#include <atomic>
#include <string>
#include <unordered_map>

#include "endpoint.hpp"

namespace weft {

class StoreRequests {
  public:
    struct Space {
        bool is_answered = false;
        uint64_t freed = 0;
        std::string text;  ///< why nothing was freed
    };
    /// An object that is being brought back or here, as long as somebody waits for that.
    struct Restoring {
        uint32_t askers = 0, answers = 0;
        std::string error;  ///< of the last answer; empty when it worked
    };

    explicit StoreRequests(Endpoint& endpoint) : endpoint_(endpoint) {}

    /// The request's number.
    uint64_t ask_space(uint64_t bytes);
    void ask_restore(uint64_t key);
    void end_restore(uint64_t key);
    void on_space(Cursor cursor);
    void on_restored(Cursor cursor);
    /// The daemon is gone: all are answered.
    void daemon_lost();

    // How often NEED_SPACE and RESTORE were answered: stored under the mutex, loaded by waiters without.
    std::atomic<uint64_t> space_answers{0};
    std::atomic<uint64_t> restore_answers{0};
    std::unordered_map<uint64_t, Space> space;          ///< by the request's number
    std::unordered_map<uint64_t, Restoring> restoring;  ///< by the key of the arena's entry

  private:
    Endpoint& endpoint_;
    uint64_t last_space_request_ = 0;
};

}  // namespace weft
