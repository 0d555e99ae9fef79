#include "title.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace weft {

/// Where the argument list lies: fields 48 and 49 of /proc/self/stat.
void ProcessTitle::find() {
    found_ = true;
    FILE* file = fopen("/proc/self/stat", "re");
    if (file == nullptr) return;
    char text[4096];
    const size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    const char* at = strrchr(text, ')');  // the second field, in parentheses, may hold spaces
    for (int field = 2; at != nullptr && field < 48; ++field)
        at = strchr(at + 1, ' ');
    if (at == nullptr) return;
    char* rest = nullptr;
    const unsigned long long start = strtoull(at, &rest, 10);
    const unsigned long long end = strtoull(rest, nullptr, 10);
    if (start == 0 || end <= start) return;
    area_ = reinterpret_cast<char*>(start);
    bytes_ = used_ = size_t(end - start);
}

void ProcessTitle::set_prefix(std::string_view prefix) {
    if (prefix == prefix_) return;
    prefix_ = prefix;
    shown_.clear();
}

void ProcessTitle::write(std::string_view name) {
    if (!found_) find();
    shown_ = name;
    if (bytes_ < 2) return;
    const size_t most = bytes_ - 1;  // the last byte stays zero, or the kernel reads on into the environment
    const size_t head = std::min(prefix_.size(), most);
    const size_t tail = std::min(name.size(), most - head);
    memcpy(area_, prefix_.data(), head);
    memcpy(area_ + head, name.data(), tail);
    if (used_ > head + tail) memset(area_ + head + tail, 0, used_ - head - tail);
    used_ = head + tail;
}

}  // namespace weft
