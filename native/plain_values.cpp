#include "plain_values.hpp"

#include "py.hpp"

namespace weft {

namespace {

constexpr Py_ssize_t kPlainItems = 256;
/// Of a list or tuple that has numbers only.
constexpr Py_ssize_t kPlainNumbers = 4096;

void add_tagged(Buffer& out, char tag, const void* data, size_t bytes) {
    char* at = out.extend(1 + bytes);
    *at = tag;
    memcpy(at + 1, data, bytes);
}

void add_sized(Buffer& out, char tag, const char* data, Py_ssize_t bytes) {
    char* at = out.extend(5 + size_t(bytes));
    *at = tag;
    const auto size = uint32_t(bytes);
    memcpy(at + 1, &size, sizeof size);
    memcpy(at + 5, data, size_t(bytes));
}

bool has_numbers_only(PyObject* sequence) {
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence);
    if (count > kPlainNumbers) return false;
    for (Py_ssize_t i = 0; i < count; ++i) {
        const PyTypeObject* type = Py_TYPE(PySequence_Fast_GET_ITEM(sequence, i));
        if (type != &PyLong_Type && type != &PyFloat_Type && type != &PyBool_Type) return false;
    }
    return true;
}

/// Throws Malformed at the end of the bytes.
struct PlainReader {
    Cursor bytes;

    template <class T>
    T take() {
        return bytes.take<T>();
    }
    /// Each item takes a byte or more: so many there can be.
    Py_ssize_t count() {
        const auto items = take<uint32_t>();
        if (items > bytes.left()) cut_short();
        return Py_ssize_t(items);
    }

    PyObject* read(int depth = kPlainDepth) {
        if (depth < 0) return damaged();
        switch (take<char>()) {
            case 'N':
                Py_RETURN_NONE;
            case 'T':
                Py_RETURN_TRUE;
            case 'F':
                Py_RETURN_FALSE;
            case 'i':
                return PyLong_FromLongLong(take<long long>());
            case 'f':
                return PyFloat_FromDouble(take<double>());
            case 's': {
                const auto size = take<uint32_t>();
                return PyUnicode_DecodeUTF8(bytes.skip(size), size, nullptr);
            }
            case 'b': {
                const auto size = take<uint32_t>();
                return PyBytes_FromStringAndSize(bytes.skip(size), size);
            }
            case 't': {
                const Py_ssize_t size = count();
                Owned tuple(PyTuple_New(size));
                for (Py_ssize_t i = 0; tuple && i < size; ++i) {
                    PyObject* item = read(depth - 1);
                    if (item == nullptr) return nullptr;
                    PyTuple_SET_ITEM(tuple.get(), i, item);
                }
                return tuple.release();
            }
            case 'l': {
                const Py_ssize_t size = count();
                Owned list(PyList_New(size));
                for (Py_ssize_t i = 0; list && i < size; ++i) {
                    PyObject* item = read(depth - 1);
                    if (item == nullptr) return nullptr;
                    PyList_SET_ITEM(list.get(), i, item);
                }
                return list.release();
            }
            case 'd': {
                const Py_ssize_t size = count();
                Owned dict(PyDict_New());
                for (Py_ssize_t i = 0; dict && i < size; ++i) {
                    Owned key(read(depth - 1));
                    if (!key) return nullptr;
                    Owned item(read(depth - 1));
                    if (!item || PyDict_SetItem(dict.get(), key.get(), item.get()) != 0) return nullptr;
                }
                return dict.release();
            }
            default:
                return damaged();
        }
    }
};

}  // namespace

int encode_plain(PyObject* value, Buffer& out, int depth) {
    if (value == Py_None) return out.add('N'), 1;
    if (value == Py_True) return out.add('T'), 1;
    if (value == Py_False) return out.add('F'), 1;
    PyTypeObject* type = Py_TYPE(value);
    if (type == &PyLong_Type) {
        int overflow = 0;
        const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow != 0) return 0;
        return add_tagged(out, 'i', &number, sizeof number), 1;
    }
    if (type == &PyFloat_Type) {
        const double number = PyFloat_AS_DOUBLE(value);
        return add_tagged(out, 'f', &number, sizeof number), 1;
    }
    if (type == &PyUnicode_Type) {
        Py_ssize_t bytes = 0;
        const char* text = PyUnicode_AsUTF8AndSize(value, &bytes);
        if (text == nullptr) return PyErr_Clear(), 0;  // lone surrogates: pickle keeps them
        if (size_t(bytes) > kInlineBytes / 2) return 0;
        return add_sized(out, 's', text, bytes), 1;
    }
    if (type == &PyBytes_Type) {
        if (size_t(PyBytes_GET_SIZE(value)) > kInlineBytes / 2) return 0;
        return add_sized(out, 'b', PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)), 1;
    }
    if (depth == 0) return 0;
    const bool is_tuple = type == &PyTuple_Type;
    if (is_tuple || (type == &PyList_Type && depth == kPlainDepth)) {
        const Py_ssize_t count = PySequence_Fast_GET_SIZE(value);
        if (count > kPlainItems && (depth != kPlainDepth || !has_numbers_only(value))) return 0;
        const auto size = uint32_t(count);
        add_tagged(out, is_tuple ? 't' : 'l', &size, sizeof size);
        for (Py_ssize_t i = 0; i < count; ++i)
            if (const int done = encode_plain(PySequence_Fast_GET_ITEM(value, i), out, depth - 1); done != 1)
                return done;
        return 1;
    }
    if (type == &PyDict_Type && depth == kPlainDepth) {
        if (PyDict_GET_SIZE(value) > kPlainItems) return 0;
        const auto size = uint32_t(PyDict_GET_SIZE(value));
        add_tagged(out, 'd', &size, sizeof size);
        Py_ssize_t at = 0;
        PyObject *key = nullptr, *item = nullptr;
        while (PyDict_Next(value, &at, &key, &item)) {
            if (const int done = encode_plain(key, out, depth - 1); done != 1) return done;
            if (const int done = encode_plain(item, out, depth - 1); done != 1) return done;
        }
        return 1;
    }
    return 0;
}

PyObject* damaged() {
    PyErr_SetString(PyExc_RuntimeError, "weft: a value's bytes are damaged");
    return nullptr;
}

PyObject* decode_plain(Cursor bytes) {
    return PlainReader{bytes}.read();
}

}  // namespace weft
