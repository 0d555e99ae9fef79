/// Objects of one kind in chunks whose memory goes back to the system.
#undef NDEBUG
#include "../pool.hpp"

#include <cassert>
#include <set>
#include <vector>

struct Item {
    Item() { ++alive; }
    ~Item() { --alive; }
    uint64_t value = 7;
    char rest[120];
    static inline int64_t alive = 0;
};

int main() {
    {
        weft::Pool<Item> pool;
        std::vector<Item*> items;
        std::set<uint32_t> numbers;
        for (int i = 0; i < 100'000; ++i) {
            items.push_back(pool.take());
            assert(items.back()->value == 7);
            items.back()->value = uint64_t(i);
            numbers.insert(pool.number(items.back()));
        }
        assert(numbers.size() == items.size() && pool.used() == items.size());
        for (int i = 0; i < 100'000; ++i)
            assert(items[i]->value == uint64_t(i) && pool.at(pool.number(items[i])) == items[i]);
        assert(pool.at(1u << 30) == nullptr);

        // One that stays keeps its chunk, and nobody else's.
        Item* stays = items[50'000];
        for (Item* item : items) {
            item->value = 7;
            if (item != stays) pool.give_back(item);
        }
        assert(pool.used() == 1 && pool.let_go_count() > 10);
        assert(Item::alive < 20'000);
        assert(pool.at(pool.number(stays)) == stays);
        [[maybe_unused]] const uint64_t gone = items[1]->value;  // it still can be read

        // A small number that comes and goes lets nothing go.
        const uint64_t before = pool.let_go_count();
        for (int i = 0; i < 100'000; ++i)
            pool.give_back(pool.take());
        assert(pool.let_go_count() == before);

        // What was let go is made again.
        items.clear();
        for (int i = 0; i < 99'999; ++i) {
            items.push_back(pool.take());
            assert(items.back()->value == 7 && pool.at(pool.number(items.back())) == items.back());
        }
        size_t seen = 0;
        pool.each([&](Item*) { ++seen; });
        assert(seen >= 100'000);
    }
    assert(Item::alive == 0);
    return 0;
}
