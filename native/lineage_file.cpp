#include "lineage_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace weft {

namespace {

uint64_t number_of(uint64_t position) {
    return position >> 32;
}

std::string folder() {
    const char* chosen = getenv("TMPDIR");
    return chosen != nullptr && *chosen != 0 ? chosen : "/tmp";
}

/// All of it, or an error number.
template <class Transfer>
int transfer_all(size_t bytes, Transfer&& transfer) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t count = transfer(done);
        if (count > 0)
            done += size_t(count);
        else if (count == 0 || errno != EINTR)
            return count == 0 ? EIO : errno;
    }
    return 0;
}

}  // namespace

LineageFile::~LineageFile() {
    if (fd_ >= 0) ::close(fd_);
}

/// A file that is gone with this process, however it ends.
bool LineageFile::open() {
    if (fd_ >= 0) return true;
    fd_ = ::open(folder().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {  // not every file system can make one
        std::string name = folder() + "/weft-lineage-XXXXXX";
        fd_ = ::mkostemp(name.data(), O_CLOEXEC);
        if (fd_ >= 0) ::unlink(name.c_str());
    }
    open_error_ = fd_ < 0 ? errno : 0;
    return fd_ >= 0;
}

LineageFile::Shared LineageFile::begin() {
    auto batch = std::make_shared<Batch>();
    batch->number = ++last_number_;
    batch->references = 1;
    batches_.emplace(batch->number, batch);
    return batch;
}

uint64_t LineageFile::next_position(const Batch& batch) {
    return batch.number << 32 | uint32_t(batch.bytes.size());
}

void LineageFile::append(Batch& batch, const char* record, size_t bytes) {
    const auto size = uint32_t(bytes);
    batch.bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
    batch.bytes.append(record, bytes);
}

void LineageFile::seal(const Shared& batch, std::vector<Entry*>& unneeded) {
    batch->size = batch->bytes.size();
    batch->offset = end_;
    end_ += batch->size;
    bytes_ += batch->size;
    open();
    while (bytes_ > most_bytes_)
        remove(batches_.begin()->first, unneeded);
    drop(batch->number << 32, unneeded);
}

int LineageFile::write(const Batch& batch) {
    if (fd_ < 0) return open_error_;
    return transfer_all(batch.bytes.size(), [&](size_t done) {
        return ::pwrite(fd_, batch.bytes.data() + done, batch.bytes.size() - done,
                        off_t(batch.offset + done));
    });
}

void LineageFile::written(const Shared& batch, int error, std::vector<Entry*>& unneeded) {
    const auto found = batches_.find(batch->number);
    const bool is_wanted = found != batches_.end() && found->second == batch;
    if (error != 0) {
        trouble_ = folder() + ": " + strerror(error);
        if (is_wanted) remove(batch->number, unneeded);
    }
    if (error != 0 || !is_wanted) return give_back(*batch);
    batch->is_written = true;
    std::string().swap(batch->bytes);  // to assign an empty one would keep the memory
}

void LineageFile::refer(uint64_t position, Batch* from) {
    const uint64_t number = number_of(position);
    const auto found = batches_.find(number);
    if (found == batches_.end() || (from != nullptr && from->number == number)) return;
    ++found->second->references;
    if (from != nullptr) ++from->needs[number];
}

void LineageFile::drop(uint64_t position, std::vector<Entry*>& unneeded) {
    const auto found = batches_.find(number_of(position));
    if (found == batches_.end() || --found->second->references != 0) return;
    remove(found->first, unneeded);
}

/// And what only it needed. Chains of batches are walked, not recursed into.
void LineageFile::remove(uint64_t number, std::vector<Entry*>& unneeded) {
    std::vector<uint64_t> numbers{number};
    while (!numbers.empty()) {
        const auto found = batches_.find(numbers.back());
        numbers.pop_back();
        if (found == batches_.end()) continue;
        const Shared batch = found->second;
        batches_.erase(found);
        bytes_ -= batch->size;
        unneeded.insert(unneeded.end(), batch->inputs.begin(), batch->inputs.end());
        batch->inputs.clear();
        for (const auto& [earlier, count] : batch->needs) {
            const auto other = batches_.find(earlier);
            if (other == batches_.end()) continue;
            other->second->references -= count;
            if (other->second->references == 0) numbers.push_back(earlier);
        }
        if (batch->is_written) give_back(*batch);
    }
}

/// The disk's space.
void LineageFile::give_back(const Batch& batch) {
    if (fd_ < 0 || batch.size == 0) return;
    if (batches_.empty()) {
        [[maybe_unused]] const int done = ::ftruncate(fd_, 0);
        return;
    }
    // Where a file system cannot do that, the space comes back when nothing is left.
    ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(batch.offset), off_t(batch.size));
}

bool LineageFile::read(uint64_t position, std::string& record) {
    const auto found = batches_.find(number_of(position));
    if (found == batches_.end()) return false;
    const Batch& batch = *found->second;
    const uint64_t at = uint32_t(position);
    const auto copy = [&](uint64_t from, char* to, size_t bytes) {
        if (!batch.is_written) {
            if (from + bytes > batch.bytes.size()) return false;
            memcpy(to, batch.bytes.data() + from, bytes);
            return true;
        }
        const int error = from + bytes > batch.size ? EIO : transfer_all(bytes, [&](size_t done) {
            return ::pread(fd_, to + done, bytes - done, off_t(batch.offset + from + done));
        });
        if (error != 0) trouble_ = folder() + ": " + strerror(error);
        return error == 0;
    };
    uint32_t size = 0;
    if (!copy(at, reinterpret_cast<char*>(&size), sizeof size)) return false;
    if (at + sizeof size + size > batch.size + batch.bytes.size()) return false;
    record.resize(size);
    return copy(at + sizeof size, record.data(), size);
}

uint32_t LineageFile::forget_input(Entry* entry) {
    uint32_t count = 0;
    for (auto& [number, batch] : batches_)
        count += uint32_t(batch->inputs.erase(entry));
    return count;
}

}  // namespace weft
