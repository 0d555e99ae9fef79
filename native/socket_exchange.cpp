#include "socket_exchange.hpp"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

namespace weft::collective {

namespace {

constexpr int kLookUpMs = 500;
constexpr int kMostMoves = 8;  ///< in one direction before others have their turn

int64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

enum class Moved { all, some, nothing, closed };

/// Moves pieces from the front of `pieces`, which are taken off as they are done.
template <class Pieces, class Move>
Moved move(Pieces& pieces, size_t& first, Move call) {
    Moved moved = Moved::nothing;
    for (int turn = 0; turn < kMostMoves; ++turn) {
        while (first < pieces.size() && pieces[first].second == 0)
            ++first;
        if (first == pieces.size()) return Moved::all;
        auto& [data, bytes] = pieces[first];
        const ssize_t count = call(data, bytes);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return moved;
        if (count <= 0) return Moved::closed;
        data += count;
        bytes -= size_t(count);
        moved = Moved::some;
    }
    return moved;
}

bool is_over(const std::vector<pollfd>& polled) {
    for (const pollfd& one : polled)
        if (one.fd >= 0) return false;
    return true;
}

}  // namespace

Exchanged exchange(std::vector<Flow>& flows, int64_t quiet_ns, const std::function<bool()>& look_up) {
    std::vector<pollfd> polled;
    std::vector<size_t> sent(flows.size(), 0), received(flows.size(), 0);
    for (const Flow& flow : flows)
        polled.push_back({flow.socket, POLLIN | POLLOUT, 0});
    int64_t quiet_since = now_ns();
    for (;;) {
        bool has_moved = false;
        for (size_t i = 0; i < flows.size(); ++i) {
            if (polled[i].fd < 0) continue;
            const int fd = flows[i].socket;
            const bool was_reading = received[i] < flows[i].in.size();
            Moved out = move(flows[i].out, sent[i], [fd](const char* data, size_t bytes) {
                return send(fd, data, bytes, MSG_NOSIGNAL);
            });
            const Moved in = move(flows[i].in, received[i],
                                  [fd](char* data, size_t bytes) { return recv(fd, data, bytes, 0); });
            // Who has closed may have said why before: what it sent is read first. A local socket refuses at
            // once to send to it, TCP only after a reset.
            if (out == Moved::closed && in != Moved::closed && was_reading) {
                sent[i] = flows[i].out.size();
                out = Moved::all;
            }
            if (out == Moved::closed || in == Moved::closed) return {Exchanged::closed, i};
            has_moved |= out == Moved::some || in == Moved::some;
            polled[i].events = short((out == Moved::all ? 0 : POLLOUT) | (in == Moved::all ? 0 : POLLIN));
            if (polled[i].events == 0) polled[i].fd = -1;
        }
        if (is_over(polled)) return {};
        const int ready = poll(polled.data(), polled.size(), kLookUpMs);
        if (has_moved || ready > 0) {
            quiet_since = now_ns();
            if (ready > 0) continue;
        }
        if (!look_up()) return {Exchanged::interrupted, 0};
        if (quiet_ns < 0 || now_ns() - quiet_since < quiet_ns) continue;
        for (size_t i = 0; i < flows.size(); ++i)
            if (polled[i].fd >= 0) return {Exchanged::silent, i};
    }
}

}  // namespace weft::collective
