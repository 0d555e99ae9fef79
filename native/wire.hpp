/// What records are made of, besides what `records.hpp` says of each. Integers are little-endian and native;
/// peers share one machine.
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
#include "records.hpp"

namespace weft {

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

using PeerDeath = records::PeerDied;

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
        const size_t capacity = capacity_ == 0 ? needed : needed + needed / 2 + 256;
        void* larger = realloc(data_, capacity);
        if (larger == nullptr) throw std::bad_alloc();  // what there was stays
        data_ = static_cast<char*>(larger);
        capacity_ = capacity;
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
