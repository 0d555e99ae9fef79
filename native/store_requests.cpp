#include "store_requests.hpp"

namespace weft {

uint64_t StoreRequests::ask_space(uint64_t bytes) {
    const uint64_t number = ++last_space_request_;
    space[number] = {};
    const records::Space body{bytes, number};
    endpoint_.send_daemon(Kind::NEED_SPACE, &body, sizeof body);
    return number;
}

void StoreRequests::ask_restore(uint64_t key) {
    ++restoring[key].askers;
    endpoint_.send_daemon(Kind::RESTORE, &key, sizeof key);
}

void StoreRequests::end_restore(uint64_t key) {
    const auto it = restoring.find(key);
    if (--it->second.askers == 0) restoring.erase(it);
}

void StoreRequests::on_space(Cursor cursor) {
    const auto [freed, number] = cursor.take<records::Space>();
    if (const auto it = space.find(number); it != space.end())
        it->second = {true, freed, std::string(cursor.rest())};
    ++space_answers;
}

void StoreRequests::on_restored(Cursor cursor) {
    const auto answer = cursor.take<records::Restored>();
    const uint64_t key = ArenaRef{answer.entry, answer.generation}.key();
    if (const auto it = restoring.find(key); it != restoring.end()) {
        ++it->second.answers;
        it->second.error = answer.ok != 0 ? std::string() : std::string(cursor.rest());
    }
    ++restore_answers;
}

void StoreRequests::daemon_lost() {
    for (auto& [number, request] : space)
        request = {true, 0, "the node daemon ended"};
    ++space_answers;
    ++restore_answers;
}

}  // namespace weft
