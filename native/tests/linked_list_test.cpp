/// A list whose members carry its links.
#undef NDEBUG
#include "../linked_list.hpp"

#include <cassert>
#include <vector>

using weft::Linked;
using weft::LinkedList;

struct Item : Linked<Item> {
    int number = 0;
};

static std::vector<int> numbers(const LinkedList<Item>& list) {
    std::vector<int> all;
    for (const Item* item : list)
        all.push_back(item->number);
    assert(all.size() == list.size());
    return all;
}

int main() {
    Item items[6];
    for (int i = 0; i < 6; ++i)
        items[i].number = i;
    LinkedList<Item> list, other;
    assert(list.empty() && list.front() == nullptr && list.size() == 0);
    for (int i = 1; i < 5; ++i)
        list.push_back(&items[i]);
    list.push_front(&items[0]);
    assert(numbers(list) == std::vector({0, 1, 2, 3, 4}));
    list.erase(&items[2]);  // of the middle, the front and the back
    list.erase(&items[0]);
    list.erase(&items[4]);
    assert(numbers(list) == std::vector({1, 3}));
    assert(list.contains(&items[3]) && !list.contains(&items[4]) && !other.contains(&items[3]));
    other.push_back(&items[4]);
    assert(other.contains(&items[4]) && numbers(other) == std::vector({4}));
    list.pop_front();
    list.push_back(&items[1]);
    assert(numbers(list) == std::vector({3, 1}));
    const std::vector<Item*> all = list.take_all();
    assert(all.size() == 2 && all[0] == &items[3] && all[1] == &items[1] && list.empty());
    other.push_front(all[0]);
    assert(numbers(other) == std::vector({3, 4}));
    return 0;
}
