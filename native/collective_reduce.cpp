#include "collective_reduce.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#define WEFT_INLINE inline __attribute__((always_inline))

namespace weft::collective {

namespace {

/// Elements that are reduced at a time: the running result stays in the first-level cache.
constexpr size_t kBlock = 1024;

struct BFloat16 {
    uint16_t bits;
};

struct Float16 {
    uint16_t bits;
};

/// Without branches, so that loops of it are vectorised.
WEFT_INLINE float widen(Float16 value) {
    const uint32_t shifted = uint32_t(value.bits & 0x7fff) << 13;
    // Exponents are moved by multiplying; that is exact, for subnormal numbers too.
    const float scaled = std::bit_cast<float>(shifted) * 0x1p112f;
    const uint32_t special = (value.bits & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;
    const uint32_t sign = uint32_t(value.bits & 0x8000) << 16;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special | sign);
}

/// To nearest, ties to even.
WEFT_INLINE Float16 narrow(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = bits & 0x7fffffff;
    const uint16_t sign = uint16_t((bits >> 16) & 0x8000);
    // Below the smallest normal number, adding a half lets the machine round to its last place.
    const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t normal = (magnitude - 0x38000000u + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    const uint32_t large = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const uint32_t found = magnitude >= 0x477ff000u ? large : magnitude < 0x38800000u ? small : normal;
    return Float16{uint16_t(found | sign)};
}

template <class T>
struct Running {
    using type = T;
};
template <>
struct Running<BFloat16> {
    using type = float;
};

template <>
struct Running<Float16> {
    using type = float;
};

template <class T>
WEFT_INLINE auto load(T value) {
    if constexpr (std::is_same_v<T, Float16>)
        return widen(value);
    else if constexpr (std::is_same_v<T, BFloat16>)
        return std::bit_cast<float>(uint32_t(value.bits) << 16);
    else
        return value;
}

template <class T, class R>
WEFT_INLINE T store(R value) {
    if constexpr (std::is_same_v<T, Float16>) {
        return narrow(value);
    } else if constexpr (std::is_same_v<T, BFloat16>) {
        const uint32_t bits = std::bit_cast<uint32_t>(value);
        const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;  // to nearest, ties to even
        const uint32_t quiet_nan = (bits >> 16) | 0x40;
        return BFloat16{uint16_t(value != value ? quiet_nan : rounded)};
    } else {
        return value;
    }
}

/// Integers as unsigned ones of at least 32 bits, where overflow is defined.
template <class R>
using Wrapping = std::conditional_t<sizeof(R) < 4, uint32_t, std::make_unsigned_t<R>>;

template <Reduction reduction, class R>
WEFT_INLINE R combine(R a, R b) {
    if constexpr (reduction == Reduction::minimum) return (a < b || a != a) ? a : b;
    if constexpr (reduction == Reduction::maximum) return (a > b || a != a) ? a : b;
    if constexpr (std::is_integral_v<R>) {
        using W = Wrapping<R>;
        if constexpr (reduction == Reduction::product) return R(W(a) * W(b));
        return R(W(a) + W(b));
    } else {
        if constexpr (reduction == Reduction::product) return a * b;
        return a + b;
    }
}

template <class T, Reduction reduction>
WEFT_INLINE void reduce_blocks(const void* const* arrays, uint32_t inputs, size_t count, void* out,
                               void* copy) {
    using R = typename Running<T>::type;
    alignas(64) R running[kBlock];
    alignas(64) T result[kBlock];
    for (size_t start = 0; start < count; start += kBlock) {
        const size_t n = std::min(kBlock, count - start);
        const T* first = static_cast<const T*>(arrays[0]) + start;
        if (inputs == 1) {
            for (size_t i = 0; i < n; ++i)
                running[i] = load(first[i]);
        } else {
            const T* second = static_cast<const T*>(arrays[1]) + start;
            for (size_t i = 0; i < n; ++i)
                running[i] = combine<reduction, R>(load(first[i]), load(second[i]));
        }
        for (uint32_t k = 2; k < inputs; ++k) {
            const T* next = static_cast<const T*>(arrays[k]) + start;
            for (size_t i = 0; i < n; ++i)
                running[i] = combine<reduction, R>(running[i], load(next[i]));
        }
        if constexpr (reduction == Reduction::mean && std::is_floating_point_v<R>) {
            const R scale = R(1) / R(inputs);
            for (size_t i = 0; i < n; ++i)
                running[i] *= scale;
        }
        const void* whole = running;
        if constexpr (!std::is_same_v<T, R>) {
            for (size_t i = 0; i < n; ++i)
                result[i] = store<T>(running[i]);
            whole = result;
        }
        memcpy(static_cast<T*>(out) + start, whole, n * sizeof(T));
        if (copy != nullptr) memcpy(static_cast<T*>(copy) + start, whole, n * sizeof(T));
    }
}

using Kernel = void (*)(const void* const*, uint32_t, size_t, void*, void*);

template <class T, Reduction reduction>
void plain(const void* const* arrays, uint32_t inputs, size_t count, void* out, void* copy) {
    reduce_blocks<T, reduction>(arrays, inputs, count, out, copy);
}

#ifdef __x86_64__
template <class T, Reduction reduction>
__attribute__((target("avx2"))) void wide(const void* const* arrays, uint32_t inputs, size_t count, void* out,
                                          void* copy) {
    reduce_blocks<T, reduction>(arrays, inputs, count, out, copy);
}
#endif

template <class T, Reduction reduction>
Kernel choose() {
#ifdef __x86_64__
    static const bool is_wide = __builtin_cpu_supports("avx2");
    if (is_wide) return wide<T, reduction>;
#endif
    return plain<T, reduction>;
}

template <class T>
Kernel kernel(Reduction reduction) {
    switch (reduction) {
        case Reduction::sum:
            return choose<T, Reduction::sum>();
        case Reduction::product:
            return choose<T, Reduction::product>();
        case Reduction::minimum:
            return choose<T, Reduction::minimum>();
        case Reduction::maximum:
            return choose<T, Reduction::maximum>();
        case Reduction::mean:
            return choose<T, Reduction::mean>();
    }
    __builtin_unreachable();
}

Kernel kernel(Element element, Reduction reduction) {
    switch (element) {
        case Element::float32:
            return kernel<float>(reduction);
        case Element::float64:
            return kernel<double>(reduction);
        case Element::bfloat16:
            return kernel<BFloat16>(reduction);
        case Element::int8:
            return kernel<int8_t>(reduction);
        case Element::int16:
            return kernel<int16_t>(reduction);
        case Element::int32:
            return kernel<int32_t>(reduction);
        case Element::int64:
            return kernel<int64_t>(reduction);
        case Element::uint8:
            return kernel<uint8_t>(reduction);
        case Element::uint16:
            return kernel<uint16_t>(reduction);
        case Element::uint32:
            return kernel<uint32_t>(reduction);
        case Element::uint64:
            return kernel<uint64_t>(reduction);
        case Element::float16:
            return kernel<Float16>(reduction);
        case Element::boolean: {
            const bool is_and = reduction == Reduction::product || reduction == Reduction::minimum;
            return kernel<uint8_t>(is_and ? Reduction::minimum : Reduction::maximum);
        }
    }
    __builtin_unreachable();
}

}  // namespace

size_t element_bytes(Element element) {
    constexpr size_t bytes[kElements] = {4, 8, 2, 1, 2, 4, 8, 1, 2, 4, 8, 2, 1};
    return bytes[uint32_t(element)];
}

void reduce(Element element, Reduction reduction, const void* const* arrays, uint32_t inputs, size_t count,
            void* out, void* copy) {
    kernel(element, reduction)(arrays, inputs, count, out, copy);
}

}  // namespace weft::collective
