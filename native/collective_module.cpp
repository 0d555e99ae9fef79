/// `_native.GroupMember`: collective operations for Python, on memory that the buffer protocol shows. The GIL
/// is released while an operation runs.
#include <nanobind/stl/optional.h>

#include <mutex>
#include <optional>

#include "bindings.hpp"
#include "collective.hpp"
#include "py.hpp"
#include "socket_exchange.hpp"

namespace weft {

namespace {

using namespace collective;

class View {
  public:
    View(nb::handle object, bool is_written) {
        const int flags = PyBUF_C_CONTIGUOUS | (is_written ? PyBUF_WRITABLE : 0);
        if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
    }
    ~View() { PyBuffer_Release(&view_); }
    View(const View&) = delete;
    View& operator=(const View&) = delete;
    char* data() const { return static_cast<char*>(view_.buf); }
    size_t bytes() const { return size_t(view_.len); }

  private:
    Py_buffer view_;
};

int64_t in_ns(double timeout_s) {
    return timeout_s < 0 ? -1 : int64_t(timeout_s * 1e9);
}

/// A Member, and what keeps its memory and its node's segment mapped.
struct GroupMember {
    GroupMember(nb::object memory, uint32_t size, uint64_t slot_bytes, uint32_t rank, double timeout_s)
        : block(memory, false), core(session().core) {
        if (attached() == nullptr) throw nb::python_error();
        // The block begins at a cache line: the same one in all processes, which map the segment at pages.
        const uintptr_t start = (reinterpret_cast<uintptr_t>(block.data()) + 63) / 64 * 64;
        if (block.bytes() < Member::block_bytes(size, slot_bytes) + 64)
            throw nb::value_error("the block is too small for such a group");
        const ProcessId self = core->self();
        const uint64_t process = uint64_t(self.generation) << 32 | (self.slot + 1);
        member.emplace(reinterpret_cast<void*>(start), size, slot_bytes, rank, process, surroundings(),
                       in_ns(timeout_s));
    }

    Surroundings surroundings() {
        return {[this](uint64_t process) {
                    return core->endpoint.segment.is_alive({uint32_t(process) - 1, uint32_t(process >> 32)});
                },
                [this] {
                    if (core->is_lost()) return Outcome::node_lost;
                    nb::gil_scoped_acquire gil;
                    // The exception stays set until the operation has returned.
                    return PyErr_CheckSignals() != 0 ? Outcome::interrupted : Outcome::done;
                }};
    }

    View block;
    std::shared_ptr<Core> core;
    std::optional<Member> member;
    std::mutex mutex;
};

nb::object describe(const Request& request) {
    nb::list shape;
    for (uint32_t i = 0; i < request.dimensions; ++i)
        shape.append(request.shape[i]);
    return nb::make_tuple(uint32_t(request.operation), uint32_t(request.element), uint32_t(request.reduction),
                          request.root, nb::tuple(shape));
}

/// None when it was done, else (what, rank, why, rank 0's request, the other request).
nb::object report(const Outcome& outcome) {
    switch (outcome.kind) {
        case Outcome::done:
            return nb::none();
        case Outcome::interrupted:
            if (PyErr_Occurred() != nullptr) throw nb::python_error();
            return nb::make_tuple("gone", outcome.rank, uint32_t(Gone::interrupted), nb::none(), nb::none());
        case Outcome::gone:
            return nb::make_tuple("gone", outcome.rank, uint32_t(outcome.why), nb::none(), nb::none());
        case Outcome::mismatch:
            return nb::make_tuple("mismatch", outcome.rank, 0, describe(outcome.first),
                                  describe(outcome.other));
        case Outcome::timed_out:
            return nb::make_tuple("timed out", outcome.rank, 0, nb::none(), nb::none());
        case Outcome::node_lost:
            return nb::make_tuple("node lost", outcome.rank, 0, nb::none(), nb::none());
    }
    __builtin_unreachable();
}

template <class Call>
nb::object run(GroupMember& group, Call&& call) {
    Outcome outcome;
    {
        nb::gil_scoped_release unlocked;
        const std::unique_lock lock(group.mutex, std::try_to_lock);
        if (!lock.owns_lock()) throw std::runtime_error("another thread of this process uses this group now");
        outcome = call(*group.member);
    }
    return report(outcome);
}

Request make_request(uint32_t operation, uint32_t element, uint32_t reduction, uint32_t root,
                     const std::vector<int64_t>& shape, const Member& member) {
    if (operation > uint32_t(Operation::refused)) throw nb::value_error("there is no such operation");
    if (element >= kElements) throw nb::value_error("there is no such type of element");
    if (reduction >= kReductions) throw nb::value_error("there is no such reduction");
    if (root >= member.size()) throw nb::value_error("the root is not a member");
    if (shape.size() > kMaxDimensions) throw nb::value_error("an array has at most 8 dimensions here");
    Request request{};
    request.operation = Operation(operation);
    request.element = Element(element);
    request.reduction = Reduction(reduction);
    request.root = root;
    request.dimensions = uint32_t(shape.size());
    std::copy(shape.begin(), shape.end(), request.shape);
    return request;
}

void need_bytes(const View& view, size_t bytes, const char* what) {
    if (view.bytes() != bytes) throw nb::value_error(what);
}

/// `in` and `out` as the operation has them; the size of a part follows from the smaller of the two.
Outcome dispatch(Member& member, const Request& request, uint32_t peer, bool is_receiving, const View* in,
                 const View* out) {
    const size_t width = element_bytes(request.element);
    char* const to = out == nullptr ? nullptr : out->data();
    const char* const from = in == nullptr ? nullptr : in->data();
    switch (request.operation) {
        case Operation::join:
            return member.join();
        case Operation::barrier:
        case Operation::refused:
            return member.barrier(request);
        case Operation::all_reduce:
            return member.all_reduce(request, to, out->bytes() / width);
        case Operation::reduce:
            return member.reduce(request, to, out->bytes() / width);
        case Operation::reduce_scatter:
            return member.reduce_scatter(request, from, to, out->bytes() / width);
        case Operation::all_gather:
            return member.all_gather(request, from, to, in->bytes());
        case Operation::gather:
            return member.gather(request, from, to, in->bytes());
        case Operation::scatter:
            return member.scatter(request, from, to, out->bytes());
        case Operation::broadcast:
            return member.broadcast(request, to, out->bytes());
        case Operation::all_to_all:
            return member.all_to_all(request, from, to, in->bytes() / member.size());
        case Operation::send:
            if (is_receiving) return member.receive(request, peer, to, out->bytes());
            return member.send(request, peer, from, in->bytes());
    }
    __builtin_unreachable();
}

void check_buffers(const Member& member, const Request& request, bool is_receiving, const View* in,
                   const View* out) {
    const bool is_root = member.rank() == request.root;
    const auto need = [](bool there, const char* what) {
        if (!there) throw nb::value_error(what);
    };
    switch (request.operation) {
        case Operation::join:
        case Operation::barrier:
        case Operation::refused:
            return;
        case Operation::all_reduce:
        case Operation::reduce:
        case Operation::broadcast:
            return need(out != nullptr, "the operation needs an array");
        case Operation::reduce_scatter:
            need(in != nullptr && out != nullptr, "the operation needs two arrays");
            return need_bytes(*in, out->bytes() * member.size(),
                              "the input must have one part for each member");
        case Operation::all_gather:
            need(in != nullptr && out != nullptr, "the operation needs two arrays");
            return need_bytes(*out, in->bytes() * member.size(),
                              "the output must have one part for each member");
        case Operation::gather:
            need(in != nullptr && (!is_root || out != nullptr), "the operation needs two arrays at the root");
            if (is_root)
                need_bytes(*out, in->bytes() * member.size(),
                           "the output must have one part for each member");
            return;
        case Operation::scatter:
            need(out != nullptr && (!is_root || in != nullptr), "the operation needs two arrays at the root");
            if (is_root)
                need_bytes(*in, out->bytes() * member.size(), "the input must have one part for each member");
            return;
        case Operation::all_to_all:
            need(in != nullptr && out != nullptr, "the operation needs two arrays");
            need(in->bytes() % member.size() == 0, "the input must have one part for each member");
            return need_bytes(*out, in->bytes(), "the output must be as large as the input");
        case Operation::send:
            return need((is_receiving ? out : in) != nullptr, "the operation needs an array");
    }
}

nb::object perform(GroupMember& group, uint32_t operation, uint32_t element, uint32_t reduction,
                   uint32_t root, const std::vector<int64_t>& shape, nb::object in, nb::object out,
                   int peer) {
    const Member& member = *group.member;
    const Request request = make_request(operation, element, reduction, root, shape, member);
    std::optional<View> from, to;
    if (!in.is_none()) from.emplace(in, false);
    if (!out.is_none()) to.emplace(out, true);
    const bool is_receiving = from == std::nullopt;
    const View* const in_view = from ? &*from : nullptr;
    const View* const out_view = to ? &*to : nullptr;
    check_buffers(member, request, is_receiving, in_view, out_view);
    if (request.operation == Operation::send &&
        (peer < 0 || uint32_t(peer) >= member.size() || uint32_t(peer) == member.rank()))
        throw nb::value_error("the peer must be another member");
    return run(group, [&](Member& m) {
        return dispatch(m, request, uint32_t(peer), is_receiving, in_view, out_view);
    });
}

/// Reduces arrays of this process, as the members of a group do with theirs.
void reduce_arrays(uint32_t element, uint32_t reduction, nb::list arrays, nb::object out) {
    if (element >= kElements) throw nb::value_error("there is no such type of element");
    if (reduction >= kReductions) throw nb::value_error("there is no such reduction");
    if (arrays.size() == 0 || arrays.size() > kMaxMembers)
        throw nb::value_error("there must be 1 to 256 arrays");
    const View target(out, true);
    std::vector<std::unique_ptr<View>> views;
    std::vector<const void*> pointers;
    for (nb::handle array : arrays) {
        views.push_back(std::make_unique<View>(array, false));
        need_bytes(*views.back(), target.bytes(), "the arrays must be as large as the output");
        pointers.push_back(views.back()->data());
    }
    nb::gil_scoped_release unlocked;
    const Element type = Element(element);
    reduce(type, Reduction(reduction), pointers.data(), uint32_t(pointers.size()),
           target.bytes() / element_bytes(type), target.data(), nullptr);
}

/// `flows`: (socket's descriptor, buffers to send, buffers to fill). None, or (what, which of the flows).
nb::object exchange_bytes(nb::list flows, double quiet_s) {
    std::vector<std::unique_ptr<View>> views;
    std::vector<Flow> native;
    for (nb::handle each : flows) {
        const nb::tuple flow = nb::cast<nb::tuple>(each);
        Flow& made = native.emplace_back(Flow{nb::cast<int>(flow[0]), {}, {}});
        for (nb::handle buffer : flow[1]) {
            views.push_back(std::make_unique<View>(buffer, false));
            made.out.emplace_back(views.back()->data(), views.back()->bytes());
        }
        for (nb::handle buffer : flow[2]) {
            views.push_back(std::make_unique<View>(buffer, true));
            made.in.emplace_back(views.back()->data(), views.back()->bytes());
        }
    }
    Exchanged exchanged;
    {
        nb::gil_scoped_release unlocked;
        exchanged = exchange(native, in_ns(quiet_s), [] {
            nb::gil_scoped_acquire gil;
            return PyErr_CheckSignals() == 0;
        });
    }
    switch (exchanged.kind) {
        case Exchanged::done:
            return nb::none();
        case Exchanged::interrupted:
            throw nb::python_error();
        case Exchanged::closed:
            return nb::make_tuple("closed", exchanged.flow);
        case Exchanged::silent:
            return nb::make_tuple("silent", exchanged.flow);
    }
    __builtin_unreachable();
}

}  // namespace

void add_group_member(nb::module_& m) {
    m.def("exchange_bytes", &exchange_bytes, nb::arg("flows"), nb::arg("quiet_s"));
    m.def("reduce_arrays", &reduce_arrays, nb::arg("element"), nb::arg("reduction"), nb::arg("arrays"),
          nb::arg("out"));
    nb::class_<GroupMember>(m, "GroupMember")
        .def(nb::init<nb::object, uint32_t, uint64_t, uint32_t, double>(), nb::arg("block"), nb::arg("size"),
             nb::arg("slot_bytes"), nb::arg("rank"), nb::arg("timeout_s"))
        .def_static(
            "block_bytes",
            [](uint32_t size, uint64_t slot_bytes) { return Member::block_bytes(size, slot_bytes) + 64; })
        .def("perform", &perform, nb::arg("operation"), nb::arg("element"), nb::arg("reduction"),
             nb::arg("root"), nb::arg("shape"), nb::arg("source").none(), nb::arg("target").none(),
             nb::arg("peer") = -1)
        .def("set_timeout", [](GroupMember& g, double timeout_s) { g.member->set_timeout(in_ns(timeout_s)); })
        .def("sees_loss",
             [](GroupMember& g) {
                 const std::unique_lock lock(g.mutex, std::try_to_lock);
                 return lock.owns_lock() && (g.core->is_lost() || g.member->sees_loss());
             })
        .def("leave", [](GroupMember& g) {
            const std::unique_lock lock(g.mutex, std::try_to_lock);
            if (!lock.owns_lock())
                throw std::runtime_error("another thread of this process uses this group now");
            g.member->leave();
        });
}

}  // namespace weft
