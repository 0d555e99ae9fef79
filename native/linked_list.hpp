/// A list whose members carry its links: any of them leaves it in constant time, and nothing is allocated.
///
/// A member is in one list at a time and knows in which.
#pragma once

#include <cassert>
#include <cstddef>
#include <vector>

namespace weft {

template <class T>
class LinkedList;

/// What a member inherits.
template <class T>
struct Linked {
    T* before = nullptr;
    T* after = nullptr;
    LinkedList<T>* list = nullptr;  ///< that it is in
};

template <class T>
class LinkedList {
  public:
    class Iterator {
      public:
        explicit Iterator(T* at) : at_(at) {}
        T* operator*() const { return at_; }
        Iterator& operator++() { return at_ = at_->after, *this; }
        bool operator==(const Iterator&) const = default;

      private:
        T* at_;
    };

    LinkedList() = default;
    LinkedList(const LinkedList&) = delete;
    LinkedList& operator=(const LinkedList&) = delete;

    bool empty() const { return first_ == nullptr; }
    size_t size() const { return size_; }
    T* front() const { return first_; }
    Iterator begin() const { return Iterator(first_); }
    Iterator end() const { return Iterator(nullptr); }
    bool contains(const T* member) const { return member->list == this; }

    void push_back(T* member) { insert(member, last_, nullptr); }
    void push_front(T* member) { insert(member, nullptr, first_); }
    void pop_front() { erase(first_); }

    void erase(T* member) {
        assert(contains(member));
        (member->before != nullptr ? member->before->after : first_) = member->after;
        (member->after != nullptr ? member->after->before : last_) = member->before;
        member->before = member->after = nullptr;
        member->list = nullptr;
        --size_;
    }

    /// All members, which are in no list any more.
    std::vector<T*> take_all() {
        std::vector<T*> all;
        all.reserve(size_);
        while (!empty()) {
            all.push_back(first_);
            pop_front();
        }
        return all;
    }

  private:
    void insert(T* member, T* before, T* after) {
        assert(member->list == nullptr);
        member->before = before;
        member->after = after;
        member->list = this;
        (before != nullptr ? before->after : first_) = member;
        (after != nullptr ? after->before : last_) = member;
        ++size_;
    }

    T* first_ = nullptr;
    T* last_ = nullptr;
    size_t size_ = 0;
};

}  // namespace weft
