/// Processes of a simulation for Python (src/weft/testing/simulate).
#include <nanobind/stl/function.h>

#include "bindings.hpp"
#include "virtual_process.hpp"

namespace weft {

namespace {

/// One for all of them, while there are any: it is mapped and never read.
std::shared_ptr<Segment> no_memory() {
    static std::weak_ptr<Segment> last;
    std::shared_ptr<Segment> segment = last.lock();
    if (!segment) last = segment = Segment::create(1, 0, 1);
    return segment;
}

Id as_id(const nb::bytes& bytes) {
    if (bytes.size() != sizeof(Id)) throw nb::value_error("an id has 16 bytes");
    Id id;
    memcpy(&id, bytes.c_str(), sizeof id);
    return id;
}

nb::list take_sent(VirtualProcess& process) {
    nb::list out;
    for (VirtualSent& one : process.take_sent()) {
        if (one.to == 0)
            out.append(nb::make_tuple(0, one.kind, nb::bytes(one.bytes.data(), one.bytes.size())));
        else
            out.append(nb::make_tuple(one.to, one.bunch, std::move(one.indices)));
    }
    return out;
}

std::vector<std::tuple<uint64_t, uint32_t, bool>> take_done(VirtualProcess& process) {
    std::vector<std::tuple<uint64_t, uint32_t, bool>> out;
    for (const VirtualDone& one : process.take_done())
        out.emplace_back(one.bunch, one.index, one.has_failed);
    return out;
}

}  // namespace

void add_virtual_process(nb::module_& m) {
    nb::class_<VirtualProcess>(m, "VirtualProcess")
        .def("__init__",
             [](VirtualProcess* self, std::function<bool(uint32_t)> is_alive) {
                 new (self) VirtualProcess(no_memory(), std::move(is_alive));
             })
        .def("set_time", &VirtualProcess::set_time)
        .def("submit", &VirtualProcess::submit)
        .def("create_actor",
             [](VirtualProcess& p, nb::bytes actor, nb::bytes spec, nb::bytes task) {
                 p.create_actor(as_id(actor), std::string(spec.c_str(), spec.size()), as_id(task));
             })
        .def("call", [](VirtualProcess& p, nb::bytes actor, uint64_t bunch, uint32_t count,
                        int32_t retries) { p.call(as_id(actor), bunch, count, retries); })
        .def("hear", [](VirtualProcess& p, uint16_t kind,
                        nb::bytes bytes) { p.hear(Kind(kind), {bytes.c_str(), bytes.size()}); })
        .def("answered", &VirtualProcess::answered)
        .def("handed_back", &VirtualProcess::handed_back)
        .def("return_idle", &VirtualProcess::return_idle)
        .def("take_sent", &take_sent)
        .def("take_done", &take_done)
        .def_prop_ro("leases", &VirtualProcess::leases);
}

}  // namespace weft
