/* SPDX-License-Identifier: Apache-2.0 */
/* The one place where the version stands. CMake reads the three numbers from here. */
#ifndef NEARLIGHT_VERSION_H
#define NEARLIGHT_VERSION_H

#define NEARLIGHT_MAJOR 0
#define NEARLIGHT_MINOR 1
#define NEARLIGHT_PATCH 0

/* One number to compare with: 10203 is version 1.2.3. */
#define NEARLIGHT_VERSION_CODE (NEARLIGHT_MAJOR * 10000 + NEARLIGHT_MINOR * 100 + NEARLIGHT_PATCH)

#endif /* NEARLIGHT_VERSION_H */
