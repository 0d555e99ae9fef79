/// What the files that bind the core to Python by nanobind share.
#pragma once

#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "core.hpp"

namespace nb = nanobind;

namespace weft {

/// The core; throws when the process is not attached.
Core& need();
nb::bytes as_bytes(const Id& id);

void add_inspection(nb::module_& m);
void add_node_port(nb::module_& m);
void add_group_member(nb::module_& m);
void add_virtual_process(nb::module_& m);

}  // namespace weft
