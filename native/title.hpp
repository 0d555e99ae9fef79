/// What `ps` and `top` show of a worker: the name of the task that it runs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft {

/// Writes over the process's own argument list, which is what the kernel shows of it. No system call, and
/// nothing at all while the name stays the same. Used by a worker's main thread only.
class ProcessTitle {
  public:
    /// What stands before every name: "weft::".
    void set_prefix(std::string_view prefix);
    void show(std::string_view name) {
        if (name != shown_) write(name);
    }

  private:
    void find();
    void write(std::string_view name);

    char* area_ = nullptr;
    size_t bytes_ = 0;  ///< of the area; 0 when it is not known
    size_t used_ = 0;   ///< what the last title took; the whole area before the first
    bool found_ = false;
    std::string prefix_ = "weft::";
    std::string shown_;
};

}  // namespace weft
