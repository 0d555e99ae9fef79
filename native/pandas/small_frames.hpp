/// Small frames: a frame of Modin's around one of pandas, in and out. Everything here needs the GIL.
#pragma once

#include "owned.hpp"

namespace weft {

/// Modin's and pandas' classes, and what Python does where this code does not know how. Told once.
struct Known {
    PyTypeObject* compiler = nullptr;  ///< SmallQueryCompiler
    PyTypeObject* modin_frame = nullptr;
    PyTypeObject* modin_series = nullptr;
    PyTypeObject* frame = nullptr;
    PyTypeObject* series = nullptr;
    PyTypeObject* array = nullptr;     ///< NumPy's
    PyObject* scalar_types = nullptr;  ///< a set: what is of one of these shares no memory with a frame
    PyObject* plain_types = nullptr;   ///< a set: an argument of one of these is pandas' as it is
    PyObject* plain = nullptr;         ///< plain(value): what pandas is given for it, or `unknown`
    PyObject* unknown = nullptr;
    PyObject* limit = nullptr;  ///< its attributes `few_rows`: up to how many a frame is small in any case;
                                ///< `makes_small`: whether new frames are
    PyObject* has_grown = nullptr;   ///< has_grown(data): whether one with more is not small
    PyObject* on_weft = nullptr;     ///< on_weft(compiler): one on Weft
    PyObject* move_large = nullptr;  ///< move_large(data): to Weft, where a new frame is not small
    PyObject* write = nullptr;       ///< write(data, indexer, key, value): whether it was written
};
extern Known known;

/// Names of attributes, interned.
struct Names {
    PyObject *query_compiler, *pinned, *held_frame, *held_series, *modin_frame, *as_series, *own, *show,
        *shape_hint, *column, *siblings, *parent, *parent_axis, *manager, *axes, *is_copy, *item_cache,
        *columns, *index, *blocks, *values, *ndarray, *base, *flags, *writeable, *few_rows, *makes_small,
        *inplace;
};
extern Names names;
bool make_names();

/// The compiler of a small frame or series of Modin's; none, with no error, of any other.
Owned small_compiler(PyObject* data);
/// The same, and none where the frame is pinned to a backend.
Owned unpinned_compiler(PyObject* data);
/// What a small compiler holds, as a series or as a frame of pandas. None with an error set.
Owned held_by(PyObject* compiler, bool as_series);
/// What it has as its own, as a series or as a frame; none, with no error, where it has not.
Owned own_in(PyObject* compiler, bool as_series);
/// What it holds, for who only looks at its labels.
Owned glanced_at(PyObject* compiler, bool as_series);
/// What a frame or series of Modin's may write into: what its compiler has as its own. None, with no error,
/// where it has none.
Owned own_of(PyObject* data);
/// The same; what it holds is its own from now on where nobody else sees its values.
Owned claim(PyObject* data);
/// The same, or the frame that nobody else holds: its columns may be exchanged, but others may share values.
Owned sole_frame_of(PyObject* data);
/// The labels of a frame or series of pandas: a list, of the rows last. None with an error set.
Owned axes_of(PyObject* data);
/// Rows of a frame or series of pandas; -1 with an error set.
Py_ssize_t rows_of(PyObject* data);
/// Whether there are more than are small in any case: 1, 0, or -1 with an error set.
int has_more_than_few_rows(PyObject* data);

/// A frame or series of Modin's around one of pandas, on Weft where it has grown; anything else as it is.
PyObject* wrap(PyObject* made);
/// Makes a bare frame or series of Modin's one around what pandas made, however large. False with an error
/// set.
bool adopt(PyObject* data, PyObject* made);
/// Modin's series of a column; Modin writes what is assigned to a part of it into the frame that it is of.
PyObject* column_of(PyObject* frame, PyObject* column);

/// Whether what was read cannot share memory with what it was read from.
bool is_scalar(PyObject* made);
/// Whether pandas is given an argument as it is.
bool is_plain(PyObject* value);

enum class Given { as_it_is, changed, by_modin, failed };
/// What pandas is given for an argument: `other` where it was changed; `by_modin`: pandas cannot be given
/// it.
Given plain_argument(PyObject* value, Owned& other);

}  // namespace weft
