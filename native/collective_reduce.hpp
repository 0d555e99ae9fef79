/// Reducing arrays element by element: sum, product, minimum, maximum and mean, vectorised.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::collective {

/// The numbers are those of ELEMENT_TYPES in weft/util/shared_block.py.
enum class Element : uint32_t {
    float32 = 0,
    float64 = 1,
    bfloat16 = 2,
    int8 = 3,
    int16 = 4,
    int32 = 5,
    int64 = 6,
    uint8 = 7,
    uint16 = 8,
    uint32 = 9,
    uint64 = 10,
    float16 = 11,
    boolean = 12,
};
constexpr uint32_t kElements = 13;

/// The numbers are those of REDUCTIONS in weft/util/shared_block.py.
enum class Reduction : uint32_t { sum = 0, product = 1, minimum = 2, maximum = 3, mean = 4 };
constexpr uint32_t kReductions = 5;

size_t element_bytes(Element element);

/// Reduces `inputs` arrays in their order and writes the result to `out` and, unless null, to `copy`. `out`
/// may be one of the inputs. bfloat16 and float16 are added up in float32 and rounded once; integers wrap
/// around; a NaN stays. The mean is the sum times 1/inputs and for floating point only. Of booleans, sum and
/// maximum are "or", product and minimum are "and".
void reduce(Element element, Reduction reduction, const void* const* arrays, uint32_t inputs, size_t count,
            void* out, void* copy);

}  // namespace weft::collective
