/* The least that a remote call can be: pickle, one ring each way in shared memory, pickle. See limit.py. */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __x86_64__
#define relax() __builtin_ia32_pause()
#else
#define relax() ((void)0)
#endif

enum { CAPACITY = 1 << 22, SPINS = 20000, WRAP = 0xffffffff };

/* Positions only grow; the byte of position p is bytes[p % CAPACITY]. A record is a u32 length and its bytes,
   padded to 8; a length of WRAP sends the reader back to the start of the buffer. */
typedef struct {
    _Alignas(64) _Atomic uint64_t written;  /* by the producer, released after the record */
    _Alignas(64) _Atomic uint64_t consumed; /* by the consumer, released after its last look at the record */
    _Alignas(64) _Atomic uint32_t asleep;   /* the consumer's futex word */
    _Alignas(64) unsigned char bytes[CAPACITY];
} Ring;

static Ring *calls, *results;
static PyObject *dumps, *loads, *protocol;

static uint64_t padded(uint32_t length) {
    return (sizeof(uint32_t) + length + 7) & ~(uint64_t)7;
}

static void await_room(Ring* ring, uint64_t end) {
    while (end - atomic_load_explicit(&ring->consumed, memory_order_acquire) > CAPACITY)
        relax();
}

static void await_record(Ring* ring, uint64_t at) {
    for (;;) {
        for (int spin = 0; spin < SPINS; spin++) {
            if (atomic_load_explicit(&ring->written, memory_order_acquire) != at) return;
            relax();
        }
        atomic_store(&ring->asleep, 1);
        if (atomic_load(&ring->written) == at)
            syscall(SYS_futex, &ring->asleep, FUTEX_WAIT, 1, NULL, NULL, 0);
        atomic_store(&ring->asleep, 0);
    }
}

static void publish(Ring* ring, const char* data, uint32_t length) {
    uint64_t at = atomic_load_explicit(&ring->written, memory_order_relaxed);
    uint64_t left = CAPACITY - at % CAPACITY;
    if (left < padded(length)) {
        await_room(ring, at + left + padded(length));
        *(uint32_t*)(ring->bytes + at % CAPACITY) = (uint32_t)WRAP;
        at += left;
    } else {
        await_room(ring, at + padded(length));
    }
    unsigned char* record = ring->bytes + at % CAPACITY;
    memcpy(record, &length, sizeof length);
    memcpy(record + sizeof length, data, length);
    atomic_store(&ring->written, at + padded(length));
    if (atomic_load(&ring->asleep)) syscall(SYS_futex, &ring->asleep, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* The next record, which stays in the ring until `consumed` is set to *end. */
static unsigned char* next_record(Ring* ring, uint32_t* length, uint64_t* end) {
    uint64_t at = atomic_load_explicit(&ring->consumed, memory_order_relaxed);
    await_record(ring, at);
    memcpy(length, ring->bytes + at % CAPACITY, sizeof *length);
    if (*length == (uint32_t)WRAP) {
        at += CAPACITY - at % CAPACITY;
        memcpy(length, ring->bytes, sizeof *length);
    }
    *end = at + padded(*length);
    return ring->bytes + at % CAPACITY + sizeof *length;
}

static int send_object(Ring* ring, PyObject* object) {
    PyObject* data = PyObject_CallFunctionObjArgs(dumps, object, protocol, NULL);
    if (!data) return -1;
    publish(ring, PyBytes_AS_STRING(data), (uint32_t)PyBytes_GET_SIZE(data));
    Py_DECREF(data);
    return 0;
}

static PyObject* receive_object(Ring* ring) {
    uint32_t length;
    uint64_t end;
    unsigned char* data;
    Py_BEGIN_ALLOW_THREADS;
    data = next_record(ring, &length, &end);
    Py_END_ALLOW_THREADS;
    PyObject* view = PyMemoryView_FromMemory((char*)data, length, PyBUF_READ);
    if (!view) return NULL;
    PyObject* object = PyObject_CallOneArg(loads, view);
    Py_DECREF(view);
    atomic_store_explicit(&ring->consumed, end, memory_order_release);
    return object;
}

static PyObject* call(PyObject* module, PyObject* args) {
    (void)module;
    if (send_object(calls, args)) return NULL;
    Py_RETURN_NONE;
}

static PyObject* result(PyObject* module, PyObject* unused) {
    (void)module, (void)unused;
    return receive_object(results);
}

static PyObject* serve(PyObject* module, PyObject* function) {
    (void)module;
    for (;;) {
        PyObject* args = receive_object(calls);
        PyObject* value = args ? PyObject_Call(function, args, NULL) : NULL;
        Py_XDECREF(args);
        if (!value || send_object(results, value)) return NULL;
        Py_DECREF(value);
    }
}

static PyMethodDef methods[] = {{"call", call, METH_VARARGS, "Send a call's arguments."},
                                {"result", result, METH_NOARGS, "Wait for the next result."},
                                {"serve", serve, METH_O, "Answer calls with a function, for ever."},
                                {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "limit_ring", .m_methods = methods};

PyMODINIT_FUNC PyInit_limit_ring(void) {
    calls = mmap(NULL, 2 * sizeof(Ring), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE,
                 -1, 0);
    if (calls == MAP_FAILED) return PyErr_SetFromErrno(PyExc_OSError);
    results = calls + 1;
    PyObject* pickle = PyImport_ImportModule("pickle");
    if (!pickle) return NULL;
    dumps = PyObject_GetAttrString(pickle, "dumps");
    loads = PyObject_GetAttrString(pickle, "loads");
    protocol = PyLong_FromLong(5);
    Py_DECREF(pickle);
    return dumps && loads && protocol ? PyModule_Create(&definition) : NULL;
}
