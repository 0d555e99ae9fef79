/// Plain values (None, numbers, short texts and bytes, small containers of them) as bytes, without pickle. A
/// value starts with a tag of its own, none of which is one of values.cpp.
#pragma once

#include "py.hpp"

namespace weft {

constexpr int kPlainDepth = 4;

/// 1 when written, 0 when the value is not plain, -1 with an exception set.
/// Mutable containers hold only immutable things, so that no shared identity is lost.
int encode_plain(PyObject* value, Buffer& out, int depth = kPlainDepth);
/// New reference, or null with an exception set. Throws Malformed at the end of the bytes.
PyObject* decode_plain(Cursor bytes);
/// Null, with the error of bytes that are no value.
PyObject* damaged();

}  // namespace weft
