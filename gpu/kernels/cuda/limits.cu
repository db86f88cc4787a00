// A module of its own: only a benchmark loads it.
#include "limits.cuh"
