/// Bytes move both ways over several sockets at once, and every way that it can end is told.
#include "socket_exchange.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <thread>

#include "check.hpp"

using namespace weft::collective;

namespace {

constexpr int64_t kNever = -1;

/// Two connected ends that do not block.
struct Pair {
    int ends[2];

    Pair() {
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        for (int end : ends)
            CHECK_EQ(fcntl(end, F_SETFL, O_NONBLOCK), 0);
    }
    ~Pair() {
        hang_up(0);
        hang_up(1);
    }
    void hang_up(int which) {
        if (ends[which] >= 0) close(ends[which]);
        ends[which] = -1;
    }
};

std::string bytes(size_t count, int seed) {
    std::string made(count, '\0');
    for (size_t i = 0; i < count; ++i)
        made[i] = char(i * 31 + size_t(seed));
    return made;
}

bool go_on() {
    return true;
}

}  // namespace

TEST("more than the kernel holds goes both ways at once") {
    Pair pair;
    const size_t count = 5 << 20;
    const std::string mine = bytes(count, 1), theirs = bytes(count, 2);
    std::string got_there(count, '\0'), got_here(count, '\0');
    std::thread peer([&] {
        std::vector<Flow> flows{{pair.ends[1], {{theirs.data(), count}}, {{got_there.data(), count}}}};
        CHECK_EQ(int(exchange(flows, kNever, go_on).kind), int(Exchanged::done));
    });
    std::vector<Flow> flows{{pair.ends[0], {{mine.data(), count}}, {{got_here.data(), count}}}};
    CHECK_EQ(int(exchange(flows, kNever, go_on).kind), int(Exchanged::done));
    peer.join();
    CHECK(got_here == theirs && got_there == mine);
}

TEST("pieces, also empty ones, arrive in their order over several sockets") {
    Pair first, second;
    const std::string sent = bytes(100'000, 3);
    std::string from_first(sent.size(), '\0'), from_second(sent.size(), '\0');
    std::thread peer([&] {
        std::vector<Flow> flows;
        for (Pair* pair : {&first, &second})
            flows.push_back(
                {pair->ends[1],
                 {{sent.data(), 0}, {sent.data(), 7}, {sent.data() + 7, sent.size() - 7}, {nullptr, 0}},
                 {}});
        CHECK_EQ(int(exchange(flows, kNever, go_on).kind), int(Exchanged::done));
    });
    std::vector<Flow> flows{
        {first.ends[0], {}, {{from_first.data(), 60'000}, {from_first.data() + 60'000, 40'000}}},
        {second.ends[0], {}, {{from_second.data(), sent.size()}}}};
    CHECK_EQ(int(exchange(flows, kNever, go_on).kind), int(Exchanged::done));
    peer.join();
    CHECK(from_first == sent && from_second == sent);
}

TEST("nothing to move ends at once") {
    Pair pair;
    std::vector<Flow> none, idle{{pair.ends[0], {}, {}}};
    CHECK_EQ(int(exchange(none, kNever, go_on).kind), int(Exchanged::done));
    CHECK_EQ(int(exchange(idle, kNever, go_on).kind), int(Exchanged::done));
}

TEST("an end that hung up is named, whether it was to send or to receive") {
    for (const bool sends : {false, true}) {
        Pair quiet, broken;
        broken.hang_up(1);
        std::string room(10, '\0');
        std::vector<Flow> flows{{quiet.ends[0], {}, {{room.data(), 5}}}, {broken.ends[0], {}, {}}};
        if (sends)
            flows[1].out = {{room.data(), 10}};
        else
            flows[1].in = {{room.data() + 5, 5}};
        const Exchanged ended = exchange(flows, kNever, go_on);
        CHECK_EQ(int(ended.kind), int(Exchanged::closed));
        CHECK_EQ(ended.flow, size_t(1));
    }
}

TEST("an end that hangs up after half of its bytes is named") {
    Pair pair;
    std::string room(10, '\0');
    CHECK_EQ(send(pair.ends[1], "12345", 5, 0), ssize_t(5));
    pair.hang_up(1);
    std::vector<Flow> flows{{pair.ends[0], {}, {{room.data(), 10}}}};
    CHECK_EQ(int(exchange(flows, kNever, go_on).kind), int(Exchanged::closed));
    CHECK(room.substr(0, 5) == "12345");
}

TEST("what an end said before it hung up is read, though it takes nothing any more") {
    Pair pair;
    std::string room(5, '\0');
    CHECK_EQ(send(pair.ends[1], "leave", 5, 0), ssize_t(5));
    pair.hang_up(1);
    std::vector<Flow> flows{{pair.ends[0], {{"hello", 5}}, {{room.data(), 5}}}};
    CHECK_EQ(int(exchange(flows, kNever, go_on).kind), int(Exchanged::done));
    CHECK(room == "leave");
    std::vector<Flow> next{{pair.ends[0], {{"hello", 5}}, {{room.data(), 5}}}};
    CHECK_EQ(int(exchange(next, kNever, go_on).kind), int(Exchanged::closed));
}

TEST("an end that says nothing for too long is named") {
    Pair busy, quiet;
    std::string room(2, '\0');
    CHECK_EQ(send(busy.ends[1], "1", 1, 0), ssize_t(1));
    std::vector<Flow> flows{{busy.ends[0], {}, {{room.data(), 1}}},
                            {quiet.ends[0], {}, {{room.data() + 1, 1}}}};
    const Exchanged ended = exchange(flows, 1, go_on);
    CHECK_EQ(int(ended.kind), int(Exchanged::silent));
    CHECK_EQ(ended.flow, size_t(1));
}

TEST("whoever is asked while nothing moves can end it") {
    Pair pair;
    std::string room(1, '\0');
    int asked = 0;
    std::vector<Flow> flows{{pair.ends[0], {}, {{room.data(), 1}}}};
    const Exchanged ended = exchange(flows, kNever, [&] { return ++asked < 2; });
    CHECK_EQ(int(ended.kind), int(Exchanged::interrupted));
    CHECK_EQ(asked, 2);
}
