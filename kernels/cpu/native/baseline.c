/* The kernels for one instruction level: setup.py gives the flags. */
#include "replay.h"
