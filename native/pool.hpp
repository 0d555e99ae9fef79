/// Objects of one kind whose addresses stay, in chunks that go back to the system when nothing in them is
/// used.
///
/// A pointer to an object that was given back stays readable: memory that is not needed reads as zeros. An
/// object is made when its chunk is, and again after the chunk's memory was let go; in between it is as it
/// was given back.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#include "linked_list.hpp"

namespace weft {

template <class T>
class Pool {
  public:
    Pool() = default;
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;
    ~Pool() {
        for (Chunk* chunk : chunks_) {
            if (chunk->has_memory) destroy(chunk);
            ::free(chunk);
        }
    }

    T* take() {
        Chunk* chunk = partly_.front();
        if (chunk == nullptr) chunk = spare();
        T* item = chunk->items() + chunk->first_free;
        chunk->first_free = chunk->next_free[chunk->first_free];
        if (++chunk->used == kInChunk) partly_.erase(chunk);
        ++used_;
        return item;
    }

    void give_back(T* item) {
        Chunk* chunk = chunk_of(item);
        const auto index = uint16_t(item - chunk->items());
        chunk->next_free[index] = chunk->first_free;
        chunk->first_free = index;
        if (chunk->used-- == kInChunk) partly_.push_front(chunk);
        --used_;
        if (chunk->used != 0 || partly_.size() == 1) return;  // the last one stays: one more is soon wanted
        partly_.erase(chunk);
        spare_.push_back(chunk);
        if (spare_.size() > kSpareChunks) let_go(spare_.front());
    }

    /// A number for each object, the same for as long as the pool lives.
    uint32_t number(const T* item) const {
        const Chunk* chunk = chunk_of(item);
        return chunk->number * kInChunk + uint32_t(item - chunk->items());
    }
    /// Null when there is none of that number.
    T* at(uint32_t number) const {
        const uint32_t chunk = number / kInChunk;
        return chunk < chunks_.size() && chunks_[chunk]->has_memory
                   ? chunks_[chunk]->items() + number % kInChunk
                   : nullptr;
    }
    /// Those that are used and some that are not.
    template <class Visit>
    void each(const Visit& visit) const {
        for (size_t c = 0; c < chunks_.size(); ++c)  // a visit may take some or give some back
            for (uint32_t i = 0; chunks_[c]->used != 0 && i < kInChunk; ++i)
                visit(chunks_[c]->items() + i);
    }
    size_t used() const { return used_; }
    size_t size() const { return chunks_.size() * kInChunk; }
    /// How often the memory of a chunk was let go.
    uint64_t let_go_count() const { return let_go_count_; }

  private:
    static constexpr size_t kChunkBytes = 256 << 10;
    static constexpr size_t kPageBytes = 4096;
    static constexpr size_t kHeadBytes = 2 * kPageBytes;
    static constexpr size_t kSpareChunks = 4;
    static constexpr uint32_t kInChunk = uint32_t((kChunkBytes - kHeadBytes) / sizeof(T));

    struct Chunk : Linked<Chunk> {
        uint32_t number = 0;
        uint32_t used = 0;
        bool has_memory = false;  ///< its objects exist
        uint16_t first_free = 0;
        uint16_t next_free[kInChunk];
        T* items() { return reinterpret_cast<T*>(reinterpret_cast<char*>(this) + kHeadBytes); }
        const T* items() const { return const_cast<Chunk*>(this)->items(); }
    };
    static_assert(sizeof(Chunk) <= kHeadBytes, "the objects begin on a page of their own");

    static Chunk* chunk_of(const T* item) {
        return reinterpret_cast<Chunk*>(reinterpret_cast<uintptr_t>(item) & ~uintptr_t(kChunkBytes - 1));
    }

    /// One of which nothing is used, among the partly used ones from now on.
    Chunk* spare() {
        Chunk* chunk = spare_.empty() ? bare_.front() : spare_.front();
        if (chunk == nullptr) {
            void* memory = aligned_alloc(kChunkBytes, kChunkBytes);
            if (memory == nullptr) throw std::bad_alloc();
            chunk = new (memory) Chunk;
            chunk->number = uint32_t(chunks_.size());
            chunks_.push_back(chunk);
        } else {
            chunk->list->erase(chunk);
        }
        if (!chunk->has_memory) make(chunk);
        partly_.push_front(chunk);
        return chunk;
    }

    void make(Chunk* chunk) {
        for (uint32_t i = 0; i < kInChunk; ++i) {
            new (chunk->items() + i) T;
            chunk->next_free[i] = uint16_t(i + 1);
        }
        chunk->first_free = 0;
        chunk->has_memory = true;
    }

    void destroy(Chunk* chunk) {
        for (uint32_t i = 0; i < kInChunk; ++i)
            chunk->items()[i].~T();
        chunk->has_memory = false;
    }

    void let_go(Chunk* chunk) {
        spare_.erase(chunk);
        bare_.push_back(chunk);
        destroy(chunk);
        madvise(chunk->items(), kChunkBytes - kHeadBytes, MADV_DONTNEED);
        ++let_go_count_;
    }

    std::vector<Chunk*> chunks_;
    LinkedList<Chunk> partly_;  ///< some of it is free, and some used; of one of them maybe none
    LinkedList<Chunk> spare_;   ///< nothing is used
    LinkedList<Chunk> bare_;    ///< nor has it memory
    size_t used_ = 0;
    uint64_t let_go_count_ = 0;
};

}  // namespace weft
