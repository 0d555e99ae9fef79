/// The records that travel in rings. Integers are little-endian and native; peers share one machine.
#pragma once

#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "arena.hpp"
#include "ids.hpp"

namespace weft {

/// `src/weft/engine/wire/kinds.py` holds those that the daemon sees; a test compares them.
enum class Kind : uint16_t {
    CONTROL = 1,
    BIND_JOB = 2,
    LEASE_REQUEST = 3,
    LEASE_GRANT = 4,
    LEASE_RETURN = 5,
    LEASE_REVOKE = 6,
    SHAPE_REFUSED = 7,
    PEER_DIED = 8,
    PEER_DETACHED = 9,
    BLOCKED = 10,
    UNBLOCKED = 11,
    CREATE_ACTOR = 12,
    ACTOR_UP = 13,
    ACTOR_DOWN = 14,
    ACTOR_WATCH = 15,
    ACTOR_DROP = 16,
    ACTOR_CREATED = 17,
    FUNCTION = 18,
    TASK = 19,
    NEED_SPACE = 20,
    SPACE = 21,
    RESTORE = 22,
    RESTORED = 23,
    LENDS_OBJECTS = 24,
    PROMISE_KEPT = 25,
    FIND_ORPHANS = 26,
    ORPHANS = 27,
    ADOPT = 28,
    ADOPTED = 29,
    SETTLED = 30,
    ORPHAN_ASKED = 31,
    ORPHAN_ANSWERED = 32,
    DEPOSIT = 33,
    WITHDRAW = 34,
    NOT_NEAR = 35,
    RETIRES = 36,
    SPARE_RINGS = 37,
    // Between drivers and workers only:
    REPLY = 64,            ///< ReplyHeader, then for each return a PackedValue
    HANDBACK = 65,         ///< u64 cookies of tasks that were not started
    BORROW_ADD = 66,       ///< Id, ProcessId: that process was sent a ref of yours
    BORROW_RELEASE = 67,   ///< Id, u64: so many of the counts given to me are returned
    WANT = 68,             ///< Id: send me the value when it is there
    VALUE = 69,            ///< Id, then a PackedValue
    CANCEL = 70,           ///< u64 cookie, u32 how: 1 force, 2 recursive
    STREAM_ITEM = 71,      ///< u64 cookie, u32 index, then a PackedValue
    STREAM_CREDIT = 72,    ///< u64 cookie, u32 items consumed so far; kNoMoreItems: stop
    ACQUAINT = 73,         ///< nothing: it opens a ring, so that one hears of the other's death
    CANCEL_OBJECT = 74,    ///< Id, u32 how: cancel your task that makes it
    MOVED = 75,            ///< Id, ProcessId: its owner is dead, that one owns it now and counts you in
    FORGET_FUNCTION = 76,  ///< u64 key: no task of mine will need it again, unless I send it anew
    KEEP = 77,  ///< Id, u32 1: what outlives all processes names it, so it stays; from a daemon 0: no more
    DEPOSIT_THERE = 78,  ///< Id, u32 node: a row that was sent there names it; send a copy of its row after
};

/// Flags of a record: the next one of the same peer continues it; a ProcessId comes before its bytes, whom
/// it is for or, from the relay, who sends it; it is a Word of the channels (channels.hpp).
constexpr uint16_t kMore = 1, kNamed = 2, kChannel = 4;

enum TaskFlags : uint32_t {
    kIsCreation = 1,    ///< makes an actor; the reply goes to the daemon
    kIsMethod = 2,      ///< a call on this worker's actor
    kSelfBorrow = 4,    ///< nested refs were not counted for the receiver, who must do so
    kStreaming = 8,     ///< a generator: items are sent as they come
    kRetryErrors = 16,  ///< an exception is worth another attempt
    kUnordered = 32,    ///< a call that may overtake earlier ones of its caller
    kWritable = 64,     ///< its arguments are its own, to write to
};

/// A consumer's credit that says: stop.
constexpr uint32_t kNoMoreItems = 0xffffffff;
/// Items of one stream: their numbers, and the ids made of these, have 32 bits.
constexpr uint32_t kMostItems = 0xfffffff0;
static_assert(uint64_t(kMostItems) + 2 < kNoMoreItems);
/// A producer may be so many items ahead of its consumer.
constexpr uint32_t kStreamWindow = 256;

/// An argument in the static part: 'R' and the index of a dependency, or 'V', a length and the value.
constexpr size_t kLeastArgument = 1 + sizeof(uint32_t);

struct TaskHeader {
    Id task;
    uint64_t cookie;    ///< the submitter's name for it, returned in the reply
    uint64_t function;  ///< key of the function or class
    Id actor;
    uint32_t flags;
    uint32_t attempt;
    uint32_t returns;
    uint32_t args;        ///< positional
    uint32_t keywords;    ///< (str, value) pairs after them
    uint32_t deps;        ///< PackedValues after the static part
    uint32_t nested;      ///< PackedRefs at the end of the static part
    uint32_t name_bytes;  ///< display name, when not the function's own
    uint32_t method_bytes;
    uint32_t retry_bytes;   ///< pickled exception types worth a retry
    uint32_t static_bytes;  ///< name, method, retry types, arguments, nested refs
    uint32_t window;        ///< of a generator: items it may be ahead
};
static_assert(sizeof(TaskHeader) == 96);

/// `lost`: the memory of an argument was gone when the task was to start.
enum class Status : uint32_t { ok = 0, failed = 1, retry = 2, cancelled = 3, exiting = 4, lost = 5 };

struct ReplyHeader {
    uint64_t cookie;
    uint32_t status;
    uint32_t duration_ns;
    uint32_t values;
    uint32_t reserved;
};
static_assert(sizeof(ReplyHeader) == 24);

/// Why a process ended, as far as somebody acts on it; `engine/wire/kinds.py` has the same.
enum class DeathCause : uint32_t { ended = 0, stopped_for_memory = 1 };

/// What PEER_DIED begins with; then the reason, for a person.
struct PeerDeath {
    ProcessId dead;
    DeathCause cause = DeathCause::ended;
    uint32_t reserved = 0;
    uint64_t peak_bytes = 0;  ///< what it held at most, when it was stopped for memory
};
static_assert(sizeof(PeerDeath) == 24);

/// A ref inside a value.
struct PackedRef {
    Id id;
    ProcessId owner;
    uint32_t is_actor;
    uint32_t reserved;
};
static_assert(sizeof(PackedRef) == 32);

enum class Where : uint32_t { none = 0, inlined = 1, arena = 2, error = 3, unknown = 4 };

/// A value on its way: this header, `nested` PackedRefs, then `bytes` of data (or an ArenaRef).
struct PackedValue {
    Where where;
    uint32_t nested;
    uint64_t bytes;
};
static_assert(sizeof(PackedValue) == 16);

/// A record has at most so many bytes, whatever is in it: sums of its parts fit into 32 bits with room to
/// spare.
/// `engine/wire/link.py` takes no longer frame than twice that from another node.
constexpr uint64_t kMostRecordBytes = 1u << 29;
/// A task has at most so many results; `engine/process/options/option_checks.py` refuses more.
constexpr uint32_t kMostReturns = 1u << 24;
/// Refs inside one value: as PackedRefs they take half of a record.
constexpr size_t kMostNested = kMostRecordBytes / 2 / sizeof(PackedRef);

/// Counts that one process can have of one object; before it gets more it returns most of them.
constexpr uint32_t kMostTokens = 1u << 31;

/// A growing byte buffer.
class Buffer {
  public:
    Buffer() = default;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { free(data_); }

    char* extend(size_t bytes) {
        if (size_ + bytes > capacity_) grow(size_ + bytes);
        char* at = data_ + size_;
        size_ += bytes;
        return at;
    }
    /// `bytes` may be null when there are none, which memcpy must not be given.
    void append(const void* bytes, size_t count) {
        char* at = extend(count);
        if (count != 0) memcpy(at, bytes, count);
    }
    template <class T>
    void add(const T& value) {
        append(&value, sizeof value);
    }
    char* data() { return data_; }
    const char* data() const { return data_; }
    size_t size() const { return size_; }
    void resize(size_t size) {
        if (size > capacity_) grow(size);
        size_ = size;
    }
    void clear() { size_ = 0; }

  private:
    /// At first to what is needed and no more: many are written once and kept.
    void grow(size_t needed) {
        capacity_ = capacity_ == 0 ? needed : needed + needed / 2 + 256;
        data_ = static_cast<char*>(realloc(data_, capacity_));
        if (data_ == nullptr) throw std::bad_alloc();
    }
    char* data_ = nullptr;
    size_t size_ = 0, capacity_ = 0;
};

/// An owned, immutable run of bytes; short ones need no allocation.
class Blob {
  public:
    Blob() = default;
    Blob(const char* data, size_t bytes) { assign(data, bytes); }
    Blob(const Blob&) = delete;
    Blob& operator=(const Blob&) = delete;
    ~Blob() { reset(); }

    void assign(const char* data, size_t bytes) {
        reset();
        char* to = small_;
        if (bytes > sizeof small_) {
            big_ = static_cast<char*>(malloc(bytes));
            if (big_ == nullptr) throw std::bad_alloc();
            to = big_;
        }
        if (bytes != 0) memcpy(to, data, bytes);
        size_ = bytes;
    }
    void reset() {
        if (size_ > sizeof small_) free(big_);
        size_ = 0;
    }
    const char* data() const { return size_ > sizeof small_ ? big_ : small_; }
    size_t size() const { return size_; }
    std::string_view view() const { return {data(), size_}; }

  private:
    size_t size_ = 0;
    union {
        char small_[24] = {};
        char* big_;
    };
};

/// A record that makes no sense.
struct Malformed : std::runtime_error {
    using std::runtime_error::runtime_error;
};
[[noreturn, gnu::cold, gnu::noinline]] inline void cut_short() {
    throw Malformed("it is cut short");
}

/// Reads a record front to back, never beyond its end: Malformed then.
class Cursor {
  public:
    Cursor(const char* data, size_t bytes) : at_(data), end_(data + bytes) {}

    template <class T>
    T take() {
        T value;
        memcpy(&value, skip(sizeof value), sizeof value);
        return value;
    }
    const char* skip(size_t bytes) {
        if (bytes > left()) [[unlikely]]
            cut_short();
        const char* here = at_;
        at_ += bytes;
        return here;
    }
    std::string_view rest() const { return {at_, size_t(end_ - at_)}; }
    std::string_view text(size_t bytes) { return {skip(bytes), bytes}; }
    size_t left() const { return size_t(end_ - at_); }

  private:
    const char* at_;
    const char* end_;
};

/// An engine error: b"S", the code, the text.
enum class ErrorCode : uint8_t {
    worker_crashed = 1,
    actor_died = 2,
    owner_died = 3,
    object_lost = 4,
    cancelled = 5,
    node_lost = 6,
    actor_unavailable = 7,
    out_of_memory = 8,
    get_timed_out = 9,
    unschedulable = 10,
    reconstruction_failed = 24,
    stopped_for_memory = 25,
    bad_record = 26,  ///< one that makes no sense, or is too long to be sent
};

/// What an engine error has before its text.
constexpr size_t kErrorCodeBytes = 2;

/// Whether a text is an error value of the engine's own, not words for a person.
inline bool is_error_value(std::string_view text) {
    return text.size() >= kErrorCodeBytes && text[0] == 'S' && uint8_t(text[1]) < ' ';
}

inline std::string error_value(ErrorCode code, std::string_view text) {
    std::string value{'S', char(code)};
    return value.append(text);
}

}  // namespace weft
