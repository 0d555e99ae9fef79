/// Collective operations of a fixed set of processes over one block of shared memory that all of them map.
///
/// Every operation is a sequence of rounds; a round ends when all members have arrived. The rules that make
/// one barrier a round enough (docs/design names the reasons):
///   COL-1  In round r a member writes only its own slots, those of parity r % 2.
///   COL-2  In round r a member reads only what others wrote in round r - 1.
///   COL-3  All members go through the same number of rounds in an operation, or none after a mismatch.
///   COL-4  Nothing in the block is a lock: a member may die between any two instructions, and the others
///   only
///          miss its arrival. A round fails only for want of an arrival, so it fails for all or for none.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "collective_reduce.hpp"
#include "layout.hpp"

namespace weft::collective {

constexpr uint32_t kMaxMembers = 256;
constexpr uint32_t kMaxDimensions = 8;

enum class Operation : uint32_t {
    join = 0,
    barrier = 1,
    all_reduce = 2,
    reduce = 3,
    reduce_scatter = 4,
    all_gather = 5,
    gather = 6,
    scatter = 7,
    broadcast = 8,
    all_to_all = 9,
    send = 10,
    refused = 11,  ///< a member's own argument was bad: it takes part only so that all others hear of it
};

/// What a member asks for; all members must ask for the same.
struct Request {
    Operation operation;
    Element element;
    Reduction reduction;
    uint32_t root;
    uint32_t dimensions;
    uint32_t reserved;
    int64_t shape[kMaxDimensions];
    bool operator==(const Request&) const = default;
};

/// Why a member takes part no longer. A lower number is nearer to the cause.
enum class Gone : uint32_t { no = 0, died = 1, left = 2, interrupted = 3, timed_out = 4, failed = 5 };

/// What an operation came to.
struct Outcome {
    enum Kind { done, gone, mismatch, timed_out, interrupted, node_lost } kind = done;
    uint32_t rank = 0;         ///< gone: who; mismatch: who differs from rank 0; timed_out: who was missing
    Gone why = Gone::no;       ///< gone
    Request first{}, other{};  ///< mismatch: what rank 0 asked for, and what `rank` did
    explicit operator bool() const { return kind == done; }
};

/// What a member that waits long asks about the world around it, some fifty times a second.
struct Surroundings {
    std::function<bool(uint64_t process)> is_alive;
    /// done to go on, or interrupted, or node_lost.
    std::function<Outcome::Kind()> look_up;
};

struct Block;
struct Bell;
struct Cell;

class Member {
  public:
    /// What a group needs; `slot_bytes` is how much of an array is on its way at a time.
    static uint64_t block_bytes(uint32_t size, uint64_t slot_bytes);
    /// `block` is zeroed by whoever made it, and mapped for as long as the member lives. `process` is not 0.
    Member(void* block, uint32_t size, uint64_t slot_bytes, uint32_t rank, uint64_t process,
           Surroundings around, int64_t timeout_ns);
    ~Member();
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    /// Takes the rank and waits for all others; gone with Gone::no when the rank is taken.
    Outcome join();
    /// The others are told; what they wait for from here ends with an error.
    void leave(Gone why = Gone::left);
    /// Whether somebody is gone; for who waits for something else than a round.
    bool sees_loss();

    Outcome barrier(const Request& request);
    Outcome all_reduce(const Request& request, char* data, size_t count);
    Outcome reduce(const Request& request, char* data, size_t count);
    /// `in` has size × count elements, `out` has count; `out` may be this member's part of `in`.
    Outcome reduce_scatter(const Request& request, const char* in, char* out, size_t count);
    Outcome all_gather(const Request& request, const char* in, char* out, size_t bytes);
    Outcome gather(const Request& request, const char* in, char* out, size_t bytes);
    Outcome scatter(const Request& request, const char* in, char* out, size_t bytes);
    Outcome broadcast(const Request& request, char* data, size_t bytes);
    /// size × bytes in both; `out` may be `in`.
    Outcome all_to_all(const Request& request, const char* in, char* out, size_t bytes);
    /// Returns once the last of it is in the block or was taken.
    Outcome send(const Request& request, uint32_t to, const char* data, size_t bytes);
    Outcome receive(const Request& request, uint32_t from, char* data, size_t bytes);

    /// How long one wait may take from now on; without bound when negative.
    void set_timeout(int64_t timeout_ns) { timeout_ns_ = timeout_ns; }

    uint32_t rank() const { return rank_; }
    uint32_t size() const { return size_; }

  private:
    Cell& cell(uint32_t rank) const;
    char* in_slot(uint32_t rank, uint32_t round) const;
    char* out_slot(uint32_t rank, uint32_t round) const;
    char* pipe_slot(uint32_t rank, uint32_t fragment) const;
    /// Ends the round: all have arrived.
    Outcome arrive();
    /// The first round's end, and whether all asked for the same.
    Outcome agree(const Request& request);
    void publish(const Request& request);
    Outcome failed(Outcome outcome);
    bool has_arrived(uint32_t rank) const;
    /// Who is gone, nearest to the cause; done when nobody is.
    Outcome find_cause() const;
    /// The same if somebody is gone without having arrived.
    Outcome find_missing() const;
    Outcome find_gone(uint32_t rank) const;
    void bury_the_dead();
    template <class Done, class Lost>
    Outcome wait(Bell& bell, Done done, Lost lost);
    /// Runs in(chunk), then in the next round middle(chunk), then in the next out(chunk), one chunk a round.
    template <class In, class Middle, class Out>
    Outcome pipeline(const Request& request, size_t chunks, In in, Middle middle, Out out);
    template <class In, class Out>
    Outcome exchange(const Request& request, size_t chunks, In in, Out out);
    Outcome reduce_directly(const Request& request, char* data, size_t count, bool takes_all);
    Outcome reduce_in_parts(const Request& request, char* data, size_t count, bool takes_all);
    /// What all have in their slots of the last round, this member's share being `own`.
    void reduce_slots(const Request& request, const char* own, uint64_t slot_offset, size_t count, char* out,
                      char* copy) const;

    Block* block_;
    uint32_t size_;
    uint32_t rank_;
    uint64_t slot_bytes_;
    uint64_t process_;
    Surroundings around_;
    int64_t timeout_ns_;
    uint32_t round_ = 0;  ///< rounds that this member has ended
    bool joined_ = false;
    uint32_t spins_a_yield_;
    Outcome failure_{};  ///< what every later operation says
};

}  // namespace weft::collective
