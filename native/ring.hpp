/// The two ends of a ring. A record is 8 bytes of header and its payload, 8-byte aligned. It becomes visible
/// by one release-store of the tail: a producer that dies while it writes leaves the ring as it was.
#pragma once

#include <cstring>

#include "layout.hpp"

namespace weft {

struct RecordHeader {
    uint32_t bytes;  ///< of the payload; kWrap when the rest of the ring is skipped
    uint16_t kind;
    uint16_t flags;
};
static_assert(sizeof(RecordHeader) == 8);
constexpr uint32_t kWrap = 0xffffffff;

inline uint32_t record_span(uint32_t payload) {
    return (uint32_t(sizeof(RecordHeader)) + payload + 7) & ~7u;
}

class RingWriter {
  public:
    explicit RingWriter(RingHeader* ring)
        : ring_(ring),
          data_(reinterpret_cast<char*>(ring) + kRingPage),
          tail_(ring->tail.load(std::memory_order_relaxed)),
          head_(ring->head.load(std::memory_order_acquire)) {}

    /// Where to write the payload, or null when there is no room now. Nothing is visible before publish().
    char* reserve(uint32_t payload, uint16_t kind, uint16_t flags = 0) {
        const uint32_t span = record_span(payload);
        uint32_t offset = tail_ & (kRingBytes - 1);
        uint32_t skip = 0;
        if (offset + span > kRingBytes) {
            skip = kRingBytes - offset;
            offset = 0;
        }
        if (tail_ + skip + span - head_ > kRingBytes) {
            // Partner: RingReader::release. Sequentially consistent: after want_room() either this sees the
            // room, or the reader sees that it is wanted.
            head_ = ring_->head.load(std::memory_order_seq_cst);
            if (tail_ + skip + span - head_ > kRingBytes) return nullptr;
        }
        if (skip != 0) reinterpret_cast<RecordHeader*>(data_ + (tail_ & (kRingBytes - 1)))->bytes = kWrap;
        next_ = tail_ + skip + span;
        *reinterpret_cast<RecordHeader*>(data_ + offset) = {payload, kind, flags};
        return data_ + offset + sizeof(RecordHeader);
    }
    /// Makes the reserved record visible.
    void publish() {
        tail_ = next_;
        ring_->tail.store(tail_, std::memory_order_release);  // partner: RingReader::next
    }
    void want_room() { ring_->wants_room.store(1, std::memory_order_seq_cst); }
    bool is_empty() const { return ring_->head.load(std::memory_order_acquire) == tail_; }

  private:
    RingHeader* ring_;
    char* data_;
    uint32_t tail_, head_, next_ = 0;
};

struct Record {
    uint16_t kind;
    uint16_t flags;
    uint32_t bytes;
    const char* data;
};

class RingReader {
  public:
    explicit RingReader(RingHeader* ring)
        : ring_(ring),
          data_(reinterpret_cast<char*>(ring) + kRingPage),
          head_(ring->head.load(std::memory_order_relaxed)),
          tail_(head_) {}

    /// The next record, valid until release(). False when there is none.
    bool next(Record& out) {
        for (;;) {
            if (head_ == tail_) {
                // Partner: RingWriter::publish. Sequentially consistent: after take_ready's exchange either
                // this sees the record, or the producer sees its bit cleared and rings again.
                tail_ = ring_->tail.load(std::memory_order_seq_cst);
                if (head_ == tail_) return false;
            }
            const uint32_t offset = head_ & (kRingBytes - 1);
            const RecordHeader& header = *reinterpret_cast<const RecordHeader*>(data_ + offset);
            if (header.bytes == kWrap) {
                head_ += kRingBytes - offset;
                continue;
            }
            out = {header.kind, header.flags, header.bytes, data_ + offset + sizeof(RecordHeader)};
            head_ += record_span(header.bytes);
            return true;
        }
    }
    /// Gives the room of everything read back. True when the producer waits for it.
    bool release() {
        ring_->head.store(head_, std::memory_order_seq_cst);  // partner: RingWriter::reserve
        return ring_->wants_room.load(std::memory_order_seq_cst) != 0 && ring_->wants_room.exchange(0) != 0;
    }
    /// Gives room back in the middle of a long drain.
    void release_early() { ring_->head.store(head_, std::memory_order_release); }
    bool has_more() const { return ring_->tail.load(std::memory_order_acquire) != head_; }

  private:
    RingHeader* ring_;
    const char* data_;
    uint32_t head_, tail_;
};

}  // namespace weft
