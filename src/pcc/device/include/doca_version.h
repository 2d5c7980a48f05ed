/* Which release of the programming interface a device program is compiled for. rdmalab offers the
 * interface of 3.4 unless -DRDMALAB_DOCA_VERSION=209 (2.9), 300, 301, ... says otherwise: names and
 * limits that differ between releases follow it, layouts do not differ. */
#pragma once

#include <stddef.h>

#ifndef RDMALAB_DOCA_VERSION
#define RDMALAB_DOCA_VERSION 304
#endif

#define DOCA_VER_MAJOR (RDMALAB_DOCA_VERSION / 100)
#define DOCA_VER_MINOR (RDMALAB_DOCA_VERSION % 100)
#define DOCA_VER_PATCH 0

#define DOCA_VERSION_NUM(major, minor, patch) ((size_t)((major) << 24 | (minor) << 16 | (patch)))
#define DOCA_CURRENT_VERSION_NUM DOCA_VERSION_NUM(DOCA_VER_MAJOR, DOCA_VER_MINOR, DOCA_VER_PATCH)
#define DOCA_VERSION_EQ_CURRENT(major, minor, patch) \
    (DOCA_VERSION_NUM(major, minor, patch) == DOCA_CURRENT_VERSION_NUM)
#define DOCA_VERSION_LTE_CURRENT(major, minor, patch) \
    (DOCA_VERSION_NUM(major, minor, patch) <= DOCA_CURRENT_VERSION_NUM)
