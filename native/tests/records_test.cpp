/// What a process does with records that make no sense, or that are not their sender's to say: it drops them,
/// changes nothing, ends the wait of who waits for them, and goes on.
#include <algorithm>
#include <random>

#include "fake_node.hpp"
#include "record_check.hpp"

using namespace weft;
using namespace weft::testing;

namespace {

/// One record of each kind that a driver or worker can be sent, as its sender would make it. What they name
/// is there: a task that runs at `worker`, an object of `worker`'s that is wanted, an actor that is called.
struct Scene {
    FakeNode node;
    Puppet worker{node};
    Puppet stranger{node};
    std::unique_ptr<Core> driver = node.driver();
    std::unique_ptr<Core> laborer = node.worker();  ///< who runs tasks
    Entry* returned = nullptr;
    Entry* stream = nullptr;
    Entry* borrowed = nullptr;
    Entry* own = nullptr;
    Entry* actor = nullptr;
    Entry* answered = nullptr;
    uint64_t cookie = 0, stream_cookie = 0, call_cookie = 0;

    Scene() {
        returned = submit(*driver);
        node.expect(Kind::LEASE_REQUEST);
        node.grant(driver->self(), worker.id);
        cookie = next_cookie();
        {
            std::lock_guard lock(driver->mutex());
            Call call;
            call.flags = kStreaming;
            call.shape = 1;
            Task* task = draft(*driver, call);
            task->function = driver->definitions.define_function(7, "code");
            task->shape = driver->leases.shape(1);
            stream = task->returns.at(0);
            stream->more().stream = std::make_unique<Stream>();
            driver->submitter.submit(task);
        }
        node.expect(Kind::LEASE_REQUEST);
        node.grant(driver->self(), worker.id, 1);
        stream_cookie = next_cookie();
        own = put(*driver, "mine");
        {
            std::lock_guard lock(driver->mutex());
            driver->objects.escape(own);
            borrowed = driver->borrowing.borrow(Id{5, 6}.object(1), worker.id, false, 1);
            hold(borrowed);
            driver->borrowing.fetch(borrowed);
            actor = driver->borrowing.borrow(Id{7, 8}.object(1), {kDaemonSlot, 1}, true, 0);
            hold(actor);
        }
        answered = call_actor(*driver, actor);
        node.expect(Kind::ACTOR_WATCH);
        actor_up();
        call_cookie = next_cookie();
    }

    uint64_t next_cookie() {
        std::string record;
        const ProcessId from = driver->self();
        EVENTUALLY((driver->pump.poll(), worker.has_heard(from, Kind::TASK)));
        record = worker.hear(from, Kind::TASK);
        return reinterpret_cast<const TaskHeader*>(record.data())->cookie;
    }
    void actor_up() {
        const records::ActorUp body{actor->id, worker.id};
        node.port.send(driver->self(), body.kind, &body, sizeof body);
    }

    /// All that was said to it is read, on this thread.
    void read_all(Core& core) {
        const std::string_view last = "the last word";
        core.inbox.take_binding();
        node.port.send(core.self(), Kind::BIND_JOB, last.data(), last.size());
        EVENTUALLY((node.has(Kind::CONTROL), core.pump.poll(), core.inbox.take_binding() == last));
        for (Puppet* puppet : {&worker, &stranger})
            EVENTUALLY((core.pump.poll(), puppet->has_said_all(core.self())));
        EVENTUALLY((core.pump.poll(), !core.pump.has_mail()));
    }
    void read_all() {
        read_all(*driver);
        read_all(*laborer);
    }

    struct Sample {
        Kind kind;
        std::string bytes;
        bool is_daemons;
        bool to_laborer = false;
    };
    std::vector<Sample> samples() const;
    void say(const Sample& sample, std::string_view bytes) {
        const ProcessId to = (sample.to_laborer ? laborer : driver)->self();
        if (sample.is_daemons)
            node.port.send(to, sample.kind, bytes.data(), bytes.size());
        else
            worker.say_bytes(to, sample.kind, bytes);
    }
};

template <class... Parts>
std::string bytes_of(const Parts&... parts) {
    Buffer out;
    (out.add(parts), ...);
    return {out.data(), out.size()};
}

std::string value_of(Where where, std::string_view data, std::vector<PackedRef> refs = {}) {
    std::string out = bytes_of(PackedValue{where, uint32_t(refs.size()), data.size()});
    for (const PackedRef& ref : refs)
        out += bytes_of(ref);
    return out.append(data);
}

std::string task_record(const Scene& scene, uint32_t flags, Id actor) {
    TaskHeader header{};
    header.task = Id{9, 9};
    header.cookie = 77;
    header.function = 7;
    header.actor = actor;
    header.flags = flags;
    header.returns = 1;
    header.args = 2;
    header.deps = 2;
    header.nested = 1;
    header.name_bytes = 1;
    std::string args = "f";
    args += 'R' + bytes_of(uint32_t(0)) + 'V' + bytes_of(uint32_t(1)) + 'N';
    const PackedRef ref{scene.borrowed->id, scene.worker.id, 0, 0};
    header.static_bytes = uint32_t(args.size() + sizeof ref);
    return bytes_of(header) + args + bytes_of(ref) + value_of(Where::inlined, "N", {ref}) +
           value_of(Where::arena, bytes_of(ArenaRef{3, 1, 70'000}));
}

std::vector<Scene::Sample> Scene::samples() const {
    const Id id{11, 12};
    const PackedRef ref{own->id, driver->self(), 0, 0}, theirs{Id{13, 14}, worker.id, 0, 0};
    const std::string value = value_of(Where::inlined, "N", {ref, theirs});
    const std::string far = value_of(Where::arena, bytes_of(ArenaRef{3, 1, 70'000}), {theirs});
    TaskHeader again{};
    again.task = Id{15, 16};
    again.returns = 2;
    again.function = 99;
    again.nested = 1;
    again.static_bytes = sizeof(PackedRef);
    const std::string record = bytes_of(again, theirs);
    const std::string task_row = bytes_of(TaskRow{kTaskRow, 1, 3, 0, uint32_t(record.size()), 1, 1, 1}) +
                                 record + "f" + bytes_of(ref, TaskEdges{});
    const std::string value_row = bytes_of(uint32_t(kValueRow), uint32_t(1)) + far + task_row;
    const auto row = [&](Id of, const std::string& body) {
        return bytes_of(of, uint32_t(body.size()), uint32_t(4)) + body;
    };
    return {
        {Kind::CONTROL, "message", true},
        {Kind::BIND_JOB, "message", true},
        {Kind::LEASE_GRANT, bytes_of(records::LeaseGrant{50, 2, worker.id}), true},
        {Kind::LEASE_REVOKE, bytes_of(uint64_t(1)), true},
        {Kind::SHAPE_REFUSED, bytes_of(uint32_t(3), uint32_t(0)) + "S\x0ano", true},
        {Kind::NOT_NEAR, bytes_of(uint32_t(2), uint32_t(1), uint32_t(1)), true},
        {Kind::PEER_DIED, bytes_of(PeerDeath{{stranger.id.slot, stranger.id.generation + 7}}) + "why", true},
        {Kind::FIND_ORPHANS, bytes_of(uint64_t(1), uint32_t(1), uint32_t(2), stranger.id, stranger.id), true},
        {Kind::SETTLED,
         bytes_of(uint32_t(1), uint32_t(0), ProcessId{stranger.id.slot, stranger.id.generation + 7}), true},
        {Kind::ORPHAN_ANSWERED, bytes_of(id, uint32_t(1), uint32_t(0), worker.id), true},
        {Kind::ADOPT,
         bytes_of(uint64_t(3), uint32_t(2), uint32_t(1), uint32_t(12), uint32_t(0), uint64_t(99)) + "code" +
             row(Id{17, 18}, value_row) + row(Id{15, 16}.object(2), task_row),
         true},
        {Kind::ACTOR_UP, bytes_of(records::ActorUp{id, worker.id}), true},
        {Kind::ACTOR_DOWN, bytes_of(Id{21, 22}, uint32_t(1), uint32_t(0)) + "S\x02gone", true},
        {Kind::PROMISE_KEPT, bytes_of(id), true},
        {Kind::SPARE_RINGS, "", true},
        {Kind::SPACE, bytes_of(uint64_t(1), uint64_t(2)) + "text", true},
        {Kind::RESTORED, bytes_of(uint64_t(1), uint32_t(1), uint32_t(0)), true},
        {Kind::FUNCTION, bytes_of(uint64_t(7)) + "code", true},
        {Kind::TASK, task_record(*this, kIsCreation | kSelfBorrow, id), true, true},
        {Kind::FUNCTION, bytes_of(uint64_t(8)) + "code", false},
        {Kind::FORGET_FUNCTION, bytes_of(uint64_t(8)), false},
        {Kind::TASK, task_record(*this, 0, {}), false, true},
        {Kind::REPLY, bytes_of(ReplyHeader{cookie, 0, 10, 1, 0}) + value, false},
        {Kind::REPLY, bytes_of(ReplyHeader{call_cookie, 0, 10, 1, 0}) + far, false},
        {Kind::HANDBACK, bytes_of(cookie, stream_cookie), false},
        {Kind::BORROW_ADD, bytes_of(own->id, stranger.id), false},
        {Kind::BORROW_RELEASE, bytes_of(own->id, uint64_t(1)), false},
        {Kind::WANT, bytes_of(own->id), false},
        {Kind::VALUE, bytes_of(borrowed->id) + value, false},
        {Kind::CANCEL, bytes_of(records::Cancel{5}), false},
        {Kind::CANCEL_OBJECT, bytes_of(records::CancelObject{own->id}), false},
        {Kind::STREAM_ITEM, bytes_of(stream_cookie, uint32_t(0), uint32_t(0)) + value, false},
        {Kind::STREAM_CREDIT, bytes_of(records::StreamCredit{9, 3}), false},
        {Kind::ACQUAINT, "", false},
        {Kind::MOVED, bytes_of(Id{23, 24}, stranger.id), false},
        {Kind::KEEP, bytes_of(records::Keep{own->id, 1}), false},
        {Kind::DEPOSIT_THERE, bytes_of(records::DepositThere{own->id, 1}), false},
    };
}

/// The process still does all that it did: a task goes out and its answer comes back.
void goes_on(Scene& scene) {
    Core& driver = *scene.driver;
    scene.read_all();
    Call call;
    call.shape = 1000;
    Entry* result = submit(driver, call);
    Puppet fresh(scene.node);
    scene.node.grant(driver.self(), fresh.id, 1000);
    EVENTUALLY((driver.pump.poll(), fresh.has_heard(driver.self(), Kind::TASK)));
    const std::string task = fresh.hear(driver.self(), Kind::TASK);
    const auto cookie = reinterpret_cast<const TaskHeader*>(task.data())->cookie;
    fresh.say(driver.self(), Kind::REPLY, ReplyHeader{cookie, 0, 1, 1, 0}, PackedValue{Where::inlined, 0, 1},
              'N');
    CHECK_EQ(get(driver, result), "N");
}

uint64_t argument_of_fuzz(const char* name, uint64_t otherwise) {
    const char* given = getenv(name);
    return given == nullptr ? otherwise : strtoull(given, nullptr, 10);
}

}  // namespace

TEST("nothing can be appended to nothing, from nowhere") {
    Buffer buffer;
    buffer.append(nullptr, 0);  // UBSan ends it where memcpy is given a null
    CHECK_EQ(buffer.size(), 0u);
    buffer.append("some", 4);
    buffer.append(nullptr, 0);
    CHECK(std::string_view(buffer.data(), buffer.size()) == "some");
}

TEST("every kind that a process may be told has a sample here") {
    Scene scene;
    const auto samples = scene.samples();
    for (size_t kind = 0; kind < kKinds; ++kind) {
        const bool is_known = kSayers[kind] != Sayer::nobody;
        const bool is_sampled = std::any_of(samples.begin(), samples.end(),
                                            [&](const auto& s) { return size_t(s.kind) == kind; });
        CHECK_EQ(is_known, is_sampled);
    }
}

TEST("a record of each kind, as its sender makes it, is read") {
    Scene scene;
    for (const Scene::Sample& sample : scene.samples())
        scene.say(sample, sample.bytes);
    goes_on(scene);
    CHECK_EQ(get(*scene.driver, scene.returned), "N");
    CHECK_EQ(get(*scene.driver, scene.borrowed), "N");
    CHECK_EQ(scene.stream->extra->stream->received, 1u);
    std::lock_guard lock(scene.driver->mutex());
    CHECK(scene.driver->objects.find(Id{17, 18}) != nullptr);
}

TEST("what only the daemon may say has no effect when another says it, and the other way round") {
    for (const auto& sample : Scene().samples()) {
        if (kSayers[size_t(sample.kind)] == Sayer::anyone) continue;
        Scene scene;
        scene.read_all();
        const auto before = counters(*scene.driver);
        Scene::Sample wrong = sample;
        for (const Scene::Sample& own : scene.samples())
            if (own.kind == sample.kind) wrong = own;
        wrong.is_daemons = !wrong.is_daemons;
        scene.say(wrong, wrong.bytes);
        scene.read_all();
        const auto after = counters(*scene.driver);
        CHECK_EQ(before.owned, after.owned);
        CHECK_EQ(before.borrowed, after.borrowed);
        CHECK_EQ(before.pending, after.pending);
        CHECK_EQ(before.leases, after.leases);
        CHECK_EQ(before.actors, after.actors);
        CHECK(!scene.returned->is_done());
        CHECK(!scene.answered->is_done());
        CHECK(!scene.borrowed->is_done());
        goes_on(scene);
    }
}

TEST("an answer counts only when it comes from whom it was asked of") {
    Scene scene;
    const ProcessId to = scene.driver->self();
    const std::string value = value_of(Where::inlined, "X");
    scene.stranger.say_bytes(to, Kind::REPLY, bytes_of(ReplyHeader{scene.cookie, 0, 1, 1, 0}) + value);
    scene.stranger.say_bytes(to, Kind::REPLY, bytes_of(ReplyHeader{scene.call_cookie, 0, 1, 1, 0}) + value);
    scene.stranger.say_bytes(to, Kind::VALUE, bytes_of(scene.borrowed->id) + value);
    scene.stranger.say_bytes(to, Kind::STREAM_ITEM,
                             bytes_of(scene.stream_cookie, uint32_t(0), uint32_t(0)) + value);
    scene.stranger.say_bytes(to, Kind::HANDBACK, bytes_of(scene.cookie));
    scene.read_all();
    CHECK(!scene.returned->is_done());
    CHECK(!scene.answered->is_done());
    CHECK(!scene.borrowed->is_done());
    CHECK_EQ(scene.stream->extra->stream->received, 0u);
    const std::string mine = value_of(Where::inlined, "N");
    scene.worker.say_bytes(to, Kind::REPLY, bytes_of(ReplyHeader{scene.cookie, 0, 1, 1, 0}) + mine);
    scene.worker.say_bytes(to, Kind::REPLY, bytes_of(ReplyHeader{scene.call_cookie, 0, 1, 1, 0}) + mine);
    scene.worker.say_bytes(to, Kind::VALUE, bytes_of(scene.borrowed->id) + mine);
    scene.worker.say_bytes(to, Kind::STREAM_ITEM,
                           bytes_of(scene.stream_cookie, uint32_t(0), uint32_t(0)) + mine);
    CHECK_EQ(get(*scene.driver, scene.returned), "N");
    CHECK_EQ(get(*scene.driver, scene.answered), "N");
    CHECK_EQ(get(*scene.driver, scene.borrowed), "N");
    CHECK_EQ(scene.stream->extra->stream->received, 1u);
    goes_on(scene);
}

TEST("only the daemon has an actor made, and only a worker runs tasks") {
    Scene scene;
    scene.worker.say_bytes(scene.laborer->self(), Kind::TASK, task_record(scene, kIsCreation, Id{1, 2}));
    scene.worker.say_bytes(scene.driver->self(), Kind::TASK, task_record(scene, 0, {}));
    const std::string plain = task_record(scene, 0, {});
    scene.node.port.send(scene.laborer->self(), Kind::TASK, plain.data(), plain.size());
    scene.read_all();
    CHECK(!scene.laborer->inbox.has_incoming());
    CHECK(!scene.driver->inbox.has_incoming());
    const std::string answer = scene.worker.hear(scene.driver->self(), Kind::REPLY);
    CHECK_EQ(reinterpret_cast<const ReplyHeader*>(answer.data())->cookie, 77u);
    goes_on(scene);
}

TEST("who waits for a record that makes no sense gets an error that says so") {
    Scene scene;
    const ProcessId to = scene.driver->self();
    scene.worker.say_bytes(to, Kind::REPLY, bytes_of(ReplyHeader{scene.cookie, 0, 1, 7, 0}));
    scene.worker.say_bytes(to, Kind::REPLY, bytes_of(ReplyHeader{scene.call_cookie, 0, 1, 0, 0}));
    scene.worker.say_bytes(to, Kind::VALUE, bytes_of(scene.borrowed->id, PackedValue{Where::inlined, 9, 1}));
    const std::string beyond = bytes_of(ArenaRef{0xfffffff0, 1, 8});
    scene.worker.say_bytes(
        to, Kind::STREAM_ITEM,
        bytes_of(scene.stream_cookie, uint32_t(0), uint32_t(0)) + value_of(Where::arena, beyond));
    CHECK(get(*scene.driver, scene.returned).find("makes no sense") != std::string::npos);
    CHECK(get(*scene.driver, scene.answered).find("without this result") != std::string::npos);
    CHECK(get(*scene.driver, scene.borrowed).find("makes no sense") != std::string::npos);
    CHECK(get(*scene.driver, scene.stream).find("makes no sense") != std::string::npos);
    TaskHeader header{};
    header.cookie = 78;
    header.deps = 1 << 30;
    scene.worker.say(scene.laborer->self(), Kind::TASK, header);
    scene.read_all();
    CHECK(!scene.laborer->inbox.has_incoming());
    const std::string answer = scene.worker.hear(scene.laborer->self(), Kind::REPLY);
    CHECK_EQ(reinterpret_cast<const ReplyHeader*>(answer.data())->cookie, 78u);
    goes_on(scene);
}

TEST("a task that outlives a wrap of the generations does not set them back") {
    Scene scene;
    Core& driver = *scene.driver;
    const uint64_t pending = counters(driver).pending;
    Puppet fresh(scene.node);
    Entry* result = nullptr;
    uint32_t index = 0;
    {
        std::lock_guard lock(driver.mutex());
        Task* task = draft(driver, {});
        task->generation = 0xffffffff;  // the last one before the others begin anew
        index = task->index;
        task->function = driver.definitions.define_function(7, "code");
        task->shape = driver.leases.shape(2000);
        result = task->returns.at(0);
        driver.submitter.submit(task);
    }
    scene.node.grant(driver.self(), fresh.id, 2000);
    EVENTUALLY((driver.pump.poll(), fresh.has_heard(driver.self(), Kind::TASK)));
    const std::string task = fresh.hear(driver.self(), Kind::TASK);
    const auto cookie = reinterpret_cast<const TaskHeader*>(task.data())->cookie;
    CHECK_EQ(cookie, 0xffffffffULL << 32 | index);
    fresh.say(driver.self(), Kind::REPLY, ReplyHeader{cookie, 0, 1, 1, 0}, PackedValue{Where::inlined, 0, 1},
              'N');
    CHECK_EQ(get(driver, result), "N");
    CHECK_EQ(counters(driver).pending, pending);
    std::lock_guard lock(driver.mutex());
    CHECK(driver.tasks.new_task()->generation < 1000);
}

TEST("a borrower returns counts before their number wraps") {
    Scene scene;
    Core& driver = *scene.driver;
    {
        std::lock_guard lock(driver.mutex());
        scene.borrowed->tokens = kMostTokens - 1;
        driver.borrowing.borrow(scene.borrowed->id, scene.worker.id, false, 1);
        CHECK_EQ(scene.borrowed->tokens, 1u);
    }
    const std::string released = scene.worker.hear(driver.self(), Kind::BORROW_RELEASE);
    CHECK(released == bytes_of(scene.borrowed->id, uint64_t(kMostTokens - 1)));
}

TEST("a record that is cut anywhere does no harm") {
    Scene scene;
    for (const Scene::Sample& sample : scene.samples()) {
        if (sample.kind == Kind::CONTROL || sample.kind == Kind::BIND_JOB) continue;
        for (size_t bytes = 0; bytes < sample.bytes.size(); ++bytes)
            scene.say(sample, sample.bytes.substr(0, bytes));
        scene.read_all();
    }
    goes_on(scene);
}

TEST("counts, sizes, slots and indexes of any value do no harm") {
    constexpr uint32_t kBad[] = {0xffffffff, 0x80000000, 0x7fffffff, 0x10000, kFewSlots, 2, 0};
    const size_t kinds = Scene().samples().size();
    for (size_t which = 0; which < kinds; ++which) {
        Scene scene;
        const Scene::Sample sample = scene.samples()[which];
        for (size_t at = 0; at + sizeof(uint32_t) <= sample.bytes.size(); at += sizeof(uint32_t))
            for (const uint32_t bad : kBad) {
                std::string bent = sample.bytes;
                memcpy(bent.data() + at, &bad, sizeof bad);
                scene.say(sample, bent);
            }
        scene.read_all();
        goes_on(scene);
    }
}

TEST("records that were changed at random do no harm") {
    const uint64_t seed = argument_of_fuzz("WEFT_FUZZ_SEED", 20'261'116);
    const uint64_t rounds = argument_of_fuzz("WEFT_FUZZ_ROUNDS", 200);
    for (uint64_t round = 0; round < rounds; ++round) {
        std::mt19937_64 random(seed + round);
        const auto below = [&](uint64_t limit) { return random() % limit; };
        Scene scene;
        const auto samples = scene.samples();
        for (int i = 0; i < 400; ++i) {
            const Scene::Sample& sample = samples[below(samples.size())];
            std::string bent = sample.bytes;
            for (uint64_t changes = 1 + below(3); changes != 0 && !bent.empty(); --changes) {
                const size_t at = below(bent.size());
                switch (below(4)) {
                    case 0:
                        bent[at] = char(random());
                        break;
                    case 1:
                        bent[at] ^= char(1 << below(8));
                        break;
                    case 2:
                        bent.resize(at);
                        break;
                    default:
                        bent.insert(at, bent.substr(0, below(64)));
                }
            }
            scene.say(sample, bent);
            if (i % 16 == 0) scene.read_all();
        }
        goes_on(scene);
    }
}
