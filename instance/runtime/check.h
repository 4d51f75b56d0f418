// ISLANDS_CHECK, which all of the house uses.
#pragma once

#include "runtime/check.h"  // IWYU pragma: export
