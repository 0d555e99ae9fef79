/// Lineage that is too old to stay in memory: batches of records in a file that has no name.
///
/// FIL-1  A batch stays as long as something refers into it: an object in memory, or a later record.
/// FIL-2  A record refers only to records that were written before it, so nothing is kept by a circle.
/// FIL-3  Past the limit, or when the disk refuses a batch, the oldest go (or that one); who refers into them
///        finds nothing there.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace weft {

struct Entry;

/// Not thread-safe: the owner's lock guards it, but for write(), which needs none.
class LineageFile {
  public:
    struct Batch {
        uint64_t number = 0;
        uint64_t offset = 0;      ///< in the file, once it is sealed
        uint64_t size = 0;        ///< likewise
        std::string bytes;        ///< until they are written
        uint64_t references = 0;  ///< from memory, and from later batches
        bool is_written = false;
        std::unordered_map<uint64_t, uint64_t> needs;  ///< references to earlier batches, by their number
        std::unordered_set<Entry*> inputs;  ///< of its tasks, which stay in memory: each has one lineage hold
    };
    using Shared = std::shared_ptr<Batch>;

    LineageFile() = default;
    LineageFile(const LineageFile&) = delete;
    LineageFile& operator=(const LineageFile&) = delete;
    ~LineageFile();

    /// A batch to be filled; it has one reference, until it is sealed.
    Shared begin();
    /// Where the next record of the batch will be; never 0.
    static uint64_t next_position(const Batch& batch);
    static void append(Batch& batch, const char* record, size_t bytes);
    /// The batch has a place in the file. What goes to make room for it leaves its inputs in `unneeded`.
    void seal(const Shared& batch, std::vector<Entry*>& unneeded);
    /// By any thread. An error number, 0 when all is on disk.
    int write(const Batch& batch);
    /// Its bytes are on disk, or will never be.
    void written(const Shared& batch, int error, std::vector<Entry*>& unneeded);

    /// One more reference to a record; `from` is the batch of the record that refers to it, if one does.
    void refer(uint64_t position, Batch* from = nullptr);
    /// One less, from memory. What only this needed goes too.
    void drop(uint64_t position, std::vector<Entry*>& unneeded);
    /// False when it is not there any more, or cannot be read.
    bool read(uint64_t position, std::string& record);
    /// No batch needs it any more; how many did.
    uint32_t forget_input(Entry* entry);

    void limit(uint64_t bytes) { most_bytes_ = bytes; }
    uint64_t bytes() const { return bytes_; }
    uint64_t most_bytes() const { return most_bytes_; }
    size_t batches() const { return batches_.size(); }
    /// What the disk last said no with; empty when it never did.
    const std::string& trouble() const { return trouble_; }

  private:
    void remove(uint64_t number, std::vector<Entry*>& unneeded);
    bool open();
    void give_back(const Batch& batch);

    int fd_ = -1;
    int open_error_ = 0;
    std::map<uint64_t, Shared> batches_;  ///< by number, oldest first
    uint64_t last_number_ = 0;
    uint64_t end_ = 0;  ///< of the file
    uint64_t bytes_ = 0;
    uint64_t most_bytes_ = uint64_t(4) << 30;
    std::string trouble_;
};

}  // namespace weft
