/// The node daemon's end of the segment, for Python.
#include <nanobind/stl/unordered_map.h>

#include "bindings.hpp"
#include "node_port.hpp"
#include "py.hpp"

namespace weft {

namespace {

nb::list drain(NodePort& port) {
    nb::list out;
    for (const Received& r : port.drain())
        out.append(nb::make_tuple(r.from.slot, r.from.generation, int(r.kind),
                                  nb::bytes(r.payload.data(), r.payload.size())));
    return out;
}

/// (id, is it lent, function, shape, ids that it needs, (entry, generation, bytes) or None, body) for each
/// row.
nb::list take_ledger(NodePort& port, uint32_t slot, uint32_t generation) {
    nb::list out;
    for (const FoundRow& row : port.take_ledger({slot, generation})) {
        nb::list needs;
        for (const Id& id : row.needs)
            needs.append(as_bytes(id));
        nb::object arena = nb::none();
        if (row.head.in_arena != 0)
            arena = nb::make_tuple(row.head.arena.entry, row.head.arena.generation, row.head.arena.bytes);
        out.append(nb::make_tuple(as_bytes(row.head.id), row.is_lent, row.head.function, row.head.shape,
                                  needs, arena, nb::bytes(row.body.data(), row.body.size())));
    }
    return out;
}

nb::list mark_dead(NodePort& port, uint32_t slot, uint32_t generation) {
    nb::list out;
    for (const ProcessId& peer : port.mark_dead({slot, generation}))
        out.append(nb::make_tuple(peer.slot, peer.generation));
    return out;
}

nb::dict port_statistics(const NodePort& port) {
    const NodePort::Statistics s = port.statistics();
    nb::dict out;
    out["arena_bytes"] = s.arena_bytes;
    out["used_bytes"] = s.used_bytes;
    out["objects"] = s.objects;
    out["spilled_objects"] = s.spilled_objects;
    out["slots_used"] = s.slots_used;
    out["ring_blocks_used"] = s.ring_blocks_used;
    return out;
}

/// [(slot, skipped, first, written, bytes)]: of each slot, the events from the number that is given for it
/// on.
nb::list port_events(const NodePort& port, const std::unordered_map<uint32_t, uint64_t>& since, size_t most) {
    nb::list out;
    for (const auto& [slot, written] : port.event_counts()) {
        const auto it = since.find(slot);
        const EventLog::Read read = port.events(slot, it == since.end() ? 0 : it->second, most);
        out.append(nb::make_tuple(slot, read.skipped, read.first, read.written,
                                  nb::bytes(reinterpret_cast<const char*>(read.events.data()),
                                            read.events.size() * sizeof(Event))));
    }
    return out;
}

/// (recorded, missed, thinned, refused, [(function, runs, failed, retried, ns, ns of the longest)]), since
/// the last call; `refused` since the beginning.
nb::tuple take_recorded(NodePort& port) {
    nb::list functions;
    if (port.recorder() == nullptr) return nb::make_tuple(0, 0, 0, 0, functions);
    const Recorder::Sums sums = port.recorder()->take_sums();
    for (const auto& [name, of] : sums.functions)
        functions.append(nb::make_tuple(nb::bytes(name.data(), name.size()), of.runs, of.failed, of.retried,
                                        of.run_ns, of.longest_ns));
    return nb::make_tuple(sums.recorded, sums.missed, sums.thinned, port.event_file()->refused(), functions);
}

/// The events of those runs; by any thread, while another uses the port.
nb::bytes find_runs(const NodePort& port, int64_t from_ns, int64_t to_ns, nb::bytes name, bool is_unwell,
                    bool is_longest, size_t most) {
    const RunsWanted wanted{from_ns, to_ns, {name.c_str(), name.size()}, is_unwell, is_longest, most};
    std::vector<Event> found;
    if (const std::shared_ptr<EventFile> file = port.event_file()) {
        const nb::gil_scoped_release released;
        found = file->find(wanted);
    }
    return nb::bytes(reinterpret_cast<const char*>(found.data()), found.size() * sizeof(Event));
}

// ---- records between nodes -------------------------------------------------------------------------

nb::bytes take_batch(NodePort& port, uint32_t node) {
    const std::string batch = port.forwarding().take_batch(node);
    return nb::bytes(batch.data(), batch.size());
}

/// (consumed, None | (processes, objects, to, kind) | (from, to, kind, payload)).
nb::tuple deliver(NodePort& port, uint32_t node, nb::handle batch, size_t at, nb::bytes refusal) {
    Py_buffer view;
    if (PyObject_GetBuffer(batch.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
    const std::unique_ptr<Py_buffer, void (*)(Py_buffer*)> guard(&view, PyBuffer_Release);
    if (at > size_t(view.len)) throw nb::value_error("beyond the end of the batch");
    const Delivery d = port.forwarding().deliver(node, static_cast<const char*>(view.buf) + at,
                                                 size_t(view.len) - at, {refusal.c_str(), refusal.size()});
    const size_t consumed = at + d.consumed;
    if (d.stop == Delivery::Stop::none) return nb::make_tuple(consumed, nb::none());
    const nb::tuple to = nb::make_tuple(d.to.slot, d.to.generation);
    if (d.stop == Delivery::Stop::record)
        return nb::make_tuple(consumed,
                              nb::make_tuple(nb::make_tuple(d.from.slot, d.from.generation), to, int(d.kind),
                                             nb::bytes(d.payload.data(), d.payload.size())));
    nb::list processes, objects;
    for (const FarProcess& p : d.processes)
        processes.append(nb::make_tuple(p.node, p.id.slot, p.id.generation));
    for (const FarObject& o : d.objects)
        objects.append(nb::make_tuple(o.node, o.entry, o.generation, o.bytes));
    return nb::make_tuple(consumed, nb::make_tuple(processes, objects, to, int(d.kind)));
}

/// (body, processes, objects): the last two are not known here, and then the body is of no use.
nb::tuple row_from_link(NodePort& port, nb::bytes body, std::tuple<uint32_t, uint32_t, uint32_t> dead) {
    Delivery out;
    const std::string row = port.forwarding().row_in(
        {body.c_str(), body.size()}, {std::get<0>(dead), {std::get<1>(dead), std::get<2>(dead)}}, out);
    nb::list processes, objects;
    for (const FarProcess& p : out.processes)
        processes.append(nb::make_tuple(p.node, p.id.slot, p.id.generation));
    for (const FarObject& o : out.objects)
        objects.append(nb::make_tuple(o.node, o.entry, o.generation, o.bytes));
    return nb::make_tuple(nb::bytes(row.data(), row.size()), processes, objects);
}

/// (ticket, code, bytes, errno, folder) for each.
nb::list take_spilled(NodePort& port) {
    constexpr const char* kCodes[] = {"done",      "no_room",     "nothing",    "gone",
                                      "elsewhere", "disk_failed", "over_limit", "stopped"};
    static_assert(std::size(kCodes) == size_t(SpillCode::stopped) + 1);
    nb::list out;
    for (const auto& [ticket, is_restore, result, folder] : port.take_spilled())
        out.append(nb::make_tuple(ticket, kCodes[size_t(result.code)], result.bytes, result.error, folder));
    return out;
}

nb::object begin_receiving(NodePort& port, uint32_t entry, uint32_t generation, uint64_t bytes) {
    char* data = port.begin_receiving(entry, generation);
    if (data == nullptr) return nb::none();
    return nb::steal(PyMemoryView_FromMemory(data, Py_ssize_t(bytes), PyBUF_WRITE));
}

nb::object begin_sending(NodePort& port, uint32_t entry, uint32_t generation) {
    uint64_t bytes = 0;
    const char* data = port.begin_sending(entry, generation, bytes);
    if (data == nullptr) return nb::none();
    return nb::steal(PyMemoryView_FromMemory(const_cast<char*>(data), Py_ssize_t(bytes), PyBUF_READ));
}

}  // namespace

void add_node_port(nb::module_& m) {
    nb::class_<NodePort>(m, "NodePort")
        .def(nb::init<uint64_t, uint32_t, uint32_t>(), nb::arg("arena_bytes"), nb::arg("events") = kEvents,
             nb::arg("slots") = kFewSlots)
        .def_prop_ro("segment_fd", &NodePort::segment_fd)
        .def_prop_ro("event_fd", &NodePort::event_fd)
        .def("reserve_slot",
             [](NodePort& p) {
                 const ProcessId id = p.reserve_slot();
                 return nb::make_tuple(id.slot, id.generation);
             })
        .def("drain", &drain)
        .def("linger", &NodePort::linger, nb::arg("limit_ns"))
        .def("send",
             [](NodePort& p, uint32_t slot, uint32_t generation, int kind, nb::bytes payload) {
                 return p.send({slot, generation}, Kind(kind), payload.c_str(), payload.size());
             })
        .def("mark_dead", &mark_dead)
        .def("release_slot", [](NodePort& p, uint32_t slot,
                                uint32_t generation) { return p.release_slot({slot, generation}); })
        .def("take_ledger", &take_ledger)
        .def("take_objects",
             [](NodePort& port, uint32_t slot, uint32_t generation) {
                 std::vector<std::pair<uint32_t, uint32_t>> taken;
                 for (const ArenaRef& ref : port.take_objects({slot, generation}))
                     taken.emplace_back(ref.entry, ref.generation);
                 return taken;
             })
        .def("statistics", &port_statistics)
        .def("events", &port_events, nb::arg("since"), nb::arg("most"))
        .def("tallies", &NodePort::tallies)
        .def(
            "record",
            [](NodePort& p, int kind, int64_t at_ns, int64_t duration_ns, uint64_t bytes, std::string name) {
                p.record(EventKind(kind), at_ns, duration_ns, bytes, name);
            },
            nb::arg("kind"), nb::arg("at_ns"), nb::arg("duration_ns"), nb::arg("bytes"), nb::arg("name") = "")
        .def("begin_recording", &NodePort::begin_recording)
        .def("end_recording", &NodePort::end_recording, nb::call_guard<nb::gil_scoped_release>())
        .def("take_recorded", &take_recorded)
        .def("find_runs", &find_runs)
        .def("begin_spilling", &NodePort::begin_spilling)
        .def("end_spilling", &NodePort::end_spilling, nb::call_guard<nb::gil_scoped_release>())
        .def_prop_ro("spill_fd", [](NodePort& p) { return p.spill_thread().event_fd(); })
        .def("ask_room", [](NodePort& p, uint64_t bytes) { return p.spill_thread().make_room(bytes); })
        .def("ask_restore",
             [](NodePort& p, uint32_t entry, uint32_t generation) {
                 return p.spill_thread().restore({entry, generation, 0});
             })
        .def("take_spilled", &take_spilled)
        .def("has_entry", &NodePort::has_entry)
        .def("add_proxy",
             [](NodePort& p, uint32_t node, uint32_t far_slot, uint32_t far_generation) {
                 if (node > kMaxNode || far_slot >= kMostSlots)
                     throw nb::value_error("no node or no process has that number");
                 const ProcessId id = p.add_proxy({node, {far_slot, far_generation}});
                 return nb::make_tuple(id.slot, id.generation);
             })
        .def("is_proxy", &NodePort::is_proxy)
        .def("is_alive",
             [](NodePort& p, uint32_t slot, uint32_t generation) { return p.is_alive({slot, generation}); })
        .def("set_node", [](NodePort& p, uint32_t node) { p.forwarding().names.node = node; })
        .def("far_name",
             [](NodePort& p, uint32_t slot, uint32_t generation) {
                 const FarProcess who = p.forwarding().names.far({slot, generation});
                 return nb::make_tuple(who.node, who.id.slot, who.id.generation);
             })
        .def("name_import",
             [](NodePort& p, uint32_t entry, uint32_t generation, uint32_t node, uint32_t far_entry,
                uint32_t far_generation, uint64_t bytes) {
                 p.forwarding().names.add_import({entry, generation, bytes},
                                                 {node, far_entry, far_generation, bytes});
                 p.set_node_of(entry, generation, node);
             })
        .def("forget_import",
             [](NodePort& p, uint32_t entry, uint32_t generation) {
                 p.forwarding().names.remove_import(entry, generation);
             })
        .def("pass_on",
             [](NodePort& p, uint32_t node, std::pair<uint32_t, uint32_t> from,
                std::pair<uint32_t, uint32_t> to, int kind, nb::bytes payload) {
                 if (!p.forwarding().pass_on(node, {from.first, from.second}, {to.first, to.second},
                                             Kind(kind), payload.c_str(), payload.size()))
                     throw nb::value_error("the record is cut short");
             })
        .def("nodes_with_output",
             [](NodePort& p) {
                 p.forwarding().commit();
                 return p.forwarding().nodes_with_output();
             })
        .def("take_batch", &take_batch)
        .def("hold_link", [](NodePort& p, uint32_t node) { p.forwarding().hold(node, true); })
        .def("release_link", &NodePort::release_link)
        .def("remove_link", [](NodePort& p, uint32_t node) { p.forwarding().remove_link(node); })
        .def("deliver", &deliver)
        .def("refuse_records", [](NodePort& p, uint32_t slot,
                                  uint32_t generation) { p.forwarding().refuse({slot, generation}); })
        .def("to_link",
             [](NodePort& p, int kind, nb::bytes payload) {
                 const std::string record =
                     p.forwarding().record_out(Kind(kind), payload.c_str(), payload.size());
                 return nb::bytes(record.data(), record.size());
             })
        .def("row_to_link",
             [](NodePort& p, nb::bytes body) {
                 const std::string row = p.forwarding().row_out({body.c_str(), body.size()});
                 return nb::bytes(row.data(), row.size());
             })
        .def("row_from_link", &row_from_link)
        .def("import_object",
             [](NodePort& p, uint64_t bytes, uint32_t slot, uint32_t generation) {
                 const ArenaRef ref = p.import_object(bytes, {slot, generation});
                 return nb::make_tuple(ref.entry, ref.generation);
             })
        .def("begin_receiving", &begin_receiving)
        .def("end_receiving", &NodePort::end_receiving)
        .def("begin_sending", &begin_sending)
        .def("end_sending", &NodePort::end_sending)
        .def("exists", &NodePort::exists)
        .def("accept", &NodePort::accept)
        .def("remove", &NodePort::remove)
        .def("room_may_come", &NodePort::room_may_come)
        .def("largest_objects", &NodePort::largest_objects)
        .def("close", [](NodePort&) {});
}

}  // namespace weft
